"""Drawn inputs for words: when they are used, and that they are a sample of what the reverse model writes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from noisychannel.data.codec import Codec
from noisychannel.data.rows import Row
from noisychannel.decode.settings import SearchSettings
from noisychannel.fitting.drawing import draw_outputs
from noisychannel.fitting.facts import count_facts
from noisychannel.fitting.inputs import InputTask, make_tasks
from noisychannel.fitting.plan import make_plan
from noisychannel.fitting.timing import INPUTS, Speed, estimate_stages
from noisychannel.models.ssnt import SSNT
from noisychannel.noisy_channel import NoisyChannel
from noisychannel.text import Characters, TextConfig

WORDS = [f"w{n}" for n in range(300)]


def row(text: str, output: str, *tags: str) -> Row:
    return Row(text, output, tags, "", "")


@pytest.fixture
def model() -> NoisyChannel:
    """It writes texts of its own making: random weights."""
    torch.manual_seed(1)
    codec = Codec.build(TextConfig(), Characters(), Counter("abc"), ())
    direct = SSNT(len(codec), len(codec), hidden_size=8, embedding_size=4, bidirectional=True).eval()
    return NoisyChannel(codec, codec, {"direct": direct}, settings=SearchSettings(max_growth=4))


def test_outputs_are_drawn_from_the_model(model: NoisyChannel) -> None:
    direct: SSNT = model.models["direct"]
    drawn = Counter(draw_outputs(model, ["ab"] * 25_000, seed=3))
    total = drawn.total()
    compared = [text for text, count in drawn.most_common(8) if text and count > 15]
    assert len(compared) >= 3
    inputs = torch.tensor([model.input_codec.encode("ab")])
    for text in compared:
        ids = torch.tensor([model.output_codec.encode(text)])
        lengths = torch.tensor([inputs.shape[1]]), torch.tensor([ids.shape[1]])
        probability = direct.log_prob(inputs, lengths[0], ids, lengths[1]).exp().item()
        deviation = (probability * (1 - probability) / total) ** 0.5
        assert abs(drawn[text] / total - probability) < 4 * deviation, text


def test_a_seed_draws_the_same_and_leaves_the_global_generator_alone(model: NoisyChannel) -> None:
    texts = ["a", "abc", "b"] * 100
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = draw_outputs(model, texts, seed=1)
    assert torch.equal(before, torch.random.get_rng_state())
    assert first == draw_outputs(model, texts, seed=1) != draw_outputs(model, texts, seed=2)
    assert len(set(first)) > 1


def test_no_output_has_a_special_symbol(model: NoisyChannel) -> None:
    with torch.no_grad():
        for parameter in model.models["direct"].parameters():
            parameter.zero_()
    drawn = draw_outputs(model, ["abc"] * 500, seed=1)
    assert set("".join(drawn)) <= set("abc")
    assert max(map(len, drawn)) <= 3 + 4


def test_inputs_are_drawn_if_outputs_are_written_in_several_ways(tmp_path: Path) -> None:
    words = [row("", word) for word in WORDS]
    steady = [row(f"a{n}", f"b{n}") for n in range(40)]
    varied = [*steady[:-4], row("x", "b"), row("y", "b"), row("x", "c"), row("z", "c")]
    assert (count_facts(steady).varied, count_facts(varied).varied) == (0.0, 0.1)
    plans = {name: make_plan(count_facts(pairs, words)) for name, pairs in (("s", steady), ("v", varied))}
    assert (plans["s"].inputs_drawn, plans["v"].inputs_drawn) == (False, True)
    assert any("drawn" in reason and "10 %" in reason for reason in plans["v"].reasons)
    assert not make_plan(count_facts(varied)).inputs_drawn  # no words
    tagged = [pair._replace(features=("N",)) for pair in varied]
    assert not make_plan(count_facts(tagged, [row("", word, "N") for word in WORDS])).inputs_drawn
    seeds = [[task.seed for task in make_tasks(tmp_path, words * 4, tmp_path, False, "cpu", drawn)] for drawn in (1, 0)]
    assert seeds == [[1, 501, 1001], [None] * 3]


def test_drawing_is_estimated_to_be_quick() -> None:
    pairs = [row("x", "b"), row("y", "b")] * 50
    plan = make_plan(count_facts(pairs, [row("", word) for word in WORDS]))
    seconds = [
        estimate_stages(each, count_facts(pairs), Speed(0.02, 0.02, 0.02, 2, False))[INPUTS]
        for each in (plan, replace(plan, inputs_drawn=False))
    ]
    assert seconds[0] < seconds[1] / 5


def test_a_task_draws_with_its_seed(model: NoisyChannel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NoisyChannel, "load", lambda *args, **kwargs: model)
    words = tuple(row("", text) for text in ("ab", "c", "ba"))
    file = tmp_path / "0.txt"
    InputTask("run", words, str(file), "cpu", 1, seed=7).work()
    assert file.read_text(encoding="utf-8").splitlines() == draw_outputs(model, ["ab", "c", "ba"], 7)
