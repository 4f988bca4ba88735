"""Copying: a_i[u_i] += κ(h_i), in every way a model is read, and in a stack of models."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from noisychannel import SSNT, NoisyChannelDecoder, Weights
from noisychannel.data.codec import Codec
from noisychannel.errors import NoisyChannelError
from noisychannel.ids import BOS, EOS, PAD, UNK
from noisychannel.models.masks import Masks
from noisychannel.models.registry import ModelDescription
from noisychannel.models.stacked import stack
from noisychannel.runs import RunDirectory
from noisychannel.text import TextConfig, make_splitter
from noisychannel.training.config import ModelConfig, RunConfig
from noisychannel.training.run import train_run
from toys import copy, toy_config

COPIES = [-1, -1, EOS, -1, 6, 5, 4, -1]
"""Of eight input symbols and seven output symbols."""


def model(seed: int = 1, start: float = 2.0, bidirectional: bool = False) -> SSNT:
    torch.manual_seed(seed)
    return SSNT(8, 7, 6, bidirectional=bidirectional, copies=COPIES, copy_start=start).eval()


def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    inputs = torch.tensor([[4, 5, 7, 6, EOS], [6, 4, EOS, PAD, PAD]])
    outputs = torch.tensor([[6, 5, 4, EOS], [4, 6, EOS, PAD]])
    return inputs, torch.tensor([5, 3]), outputs, torch.tensor([4, 3])


@pytest.mark.parametrize("bidirectional", [False, True])
def test_copying_adds_a_score_to_the_symbol_that_is_read_and_to_no_other(bidirectional: bool) -> None:
    copying, plain = model(bidirectional=bidirectional), model(start=0.0, bidirectional=bidirectional)
    inputs, lengths, _, _ = batch()
    gained = copying.read_inputs(inputs, lengths).scores - plain.read_inputs(inputs, lengths).scores
    expected = torch.zeros_like(gained)
    for place, symbol in [
        ((0, 0), 4),
        ((0, 1), 5),
        ((0, 3), 6),
        ((0, 4), EOS),
        ((1, 0), 6),
        ((1, 1), 4),
        ((1, 2), EOS),
    ]:
        expected[place][COPIES[symbol]] = 2.0
    torch.testing.assert_close(gained, expected)


def test_reading_step_by_step_is_reading_at_once() -> None:
    copying = model()
    torch.nn.init.normal_(copying.copying.amount.weight)  # type: ignore[union-attr]
    inputs = batch()[0][:1]
    whole = copying.read_inputs(inputs, torch.tensor([5])).scores[0]
    state = copying.start_inputs(1)
    for position in range(5):
        side, state = copying.step_inputs(inputs[:, position], state)
        torch.testing.assert_close(side.scores[0], whole[position])


@torch.no_grad()
def test_a_decoder_reports_what_the_models_say() -> None:
    direct, channel, lm_free = model(1, bidirectional=True), _channel(), Weights(direct=1.0, channel=0.7)
    decoder = NoisyChannelDecoder(direct, channel, weights=lm_free, k1=20, k2=10, max_length=6)
    inputs = [4, 5, 6, EOS]
    for best in decoder.decode([inputs], n_best=3)[0]:
        x, y = torch.tensor([inputs]), torch.tensor([[*best.tokens, EOS]])
        lengths = torch.tensor([x.shape[1]]), torch.tensor([y.shape[1]])
        assert best.direct == pytest.approx(float(direct.viterbi(x, lengths[0], y, lengths[1])[0]), abs=1e-4)
        assert best.channel == pytest.approx(float(channel.log_prob(y, lengths[1], x, lengths[0])), abs=1e-4)


def _channel() -> SSNT:
    torch.manual_seed(3)
    return SSNT(7, 8, 6, copies=[-1, -1, EOS, -1, 6, 5, 4], copy_start=1.0).eval()


def test_a_stack_copies_for_each_model_by_its_own_vocabulary() -> None:
    torch.manual_seed(5)
    small = SSNT(7, 6, 6, copies=[-1, -1, EOS, -1, 5, 4, -1], copy_start=1.5).eval()
    models = [model(), small]
    inputs, input_lengths, outputs, output_lengths = batch()
    inputs[inputs == 7], inputs[0, 3] = 5, 5
    outputs[outputs == 6] = 5
    apart = [each.log_prob(inputs, input_lengths, outputs, output_lengths) for each in models]
    together = stack(models, Masks(2, torch.device("cpu")))
    twice = [torch.cat([part, part]) for part in (inputs, input_lengths, outputs, output_lengths)]
    torch.testing.assert_close(together(*twice), torch.cat(apart))


def test_a_model_that_copies_is_built_again_from_its_description() -> None:
    sizes = {"input_vocab_size": 8, "output_vocab_size": 7, "hidden_size": 6}
    for bidirectional in (False, True):
        arguments = {**sizes, "bidirectional": bidirectional, "copies": COPIES, "copy_start": 3.0}
        description = ModelDescription("SSNT", arguments)
        assert sum(p.numel() for p in description.build().parameters()) == description.parameters


@pytest.mark.parametrize("copies", [[-1] * 7, [*COPIES[:-1], 7]])
def test_copies_that_do_not_fit_are_refused(copies: list[int]) -> None:
    with pytest.raises(ValueError, match="copies"):
        SSNT(8, 7, 6, copies=copies)


def test_counterparts_are_the_same_symbols_of_another_vocabulary() -> None:
    config = TextConfig()
    one, other = (
        Codec.build(config, make_splitter(config, iter([text]), "data"), Counter(text), features)
        for text, features in (("abcc", ["PL"]), ("bcd", ["SG", "PL"]))
    )
    found = dict(zip(one.names, one.counterparts(other), strict=True))
    assert found[one.names[EOS]] == EOS
    assert found[one.names[PAD]] == found[one.names[BOS]] == -1
    assert found["b"] == other.encode("b")[0]
    assert found["a"] == -1
    assert found["<PL>"] == -1
    tagged = one.counterparts(other, with_features=True, unknown=True)
    assert other.names[tagged[one.names.index("<PL>")]] == "<PL>"
    assert tagged[UNK] == UNK


def test_only_direct_model_and_channel_copy() -> None:
    with pytest.raises(Exception, match=r"lm\.copy: is for the direct model and the channel"):
        RunConfig(lm=ModelConfig(copy=True)).check()


def test_a_run_with_copying_is_loaded_again_and_damaged_copies_are_refused(tmp_path: Path) -> None:
    config = toy_config(tmp_path, copy, rows=20, models=("direct", "channel"), max_epochs=1)
    config.direct, config.channel = replace(config.direct, copy=True), replace(config.channel, copy=True)
    train_run(config, listen=lambda event: None, say=lambda line: None)
    run = RunDirectory(Path(config.run_dir))
    loaded = run.load_model("direct", torch.device("cpu"))
    assert isinstance(loaded, SSNT)
    assert loaded.copying is not None
    assert loaded.copying.target.ids.max() > EOS
    file = run.model_dir("channel") / "config.json"
    record = json.loads(file.read_text())
    record["arguments"]["copies"][-1] = 99
    file.write_text(json.dumps(record))
    with pytest.raises(NoisyChannelError, match=r"copies: does not fit the vocabularies"):
        run.load_model("channel", torch.device("cpu"))
