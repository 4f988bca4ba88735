"""An even pace: what the first updates of a training can keep instead of learning when to read and when to write."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from noisychannel import SSNT, lattice
from noisychannel.cli.progress import LineDisplay, describe_fault
from noisychannel.data.corpus import Corpus, Sequences
from noisychannel.data.prepare import DataConfig
from noisychannel.ids import EOS, PAD
from noisychannel.models.masks import Masks
from noisychannel.models.protocols import Side
from noisychannel.models.ssnt import Pace, set_pace
from noisychannel.models.stacked import stack
from noisychannel.tensors import load_tensors
from noisychannel.training import jobs, learner
from noisychannel.training.alignment import at_one_place
from noisychannel.training.config import ModelConfig, RunConfig, TrainingConfig
from noisychannel.training.events import DevEvaluation, Event, Finished, Started
from noisychannel.training.learner import Learner
from noisychannel.training.run import train_run

INPUTS = torch.tensor([[4, 5, 6, EOS], [6, EOS, PAD, PAD]])
OUTPUTS = torch.tensor([[5, EOS, PAD], [4, 6, EOS]])
LENGTHS = torch.tensor([4, 2]), torch.tensor([2, 3])


def paced(seed: int = 0) -> SSNT:
    torch.manual_seed(seed)
    model = SSNT(7, 7, 6, bidirectional=True)
    model.pace = Pace()
    return model


def log_prob(model: SSNT) -> Tensor:
    return model(INPUTS, LENGTHS[0], OUTPUTS, LENGTHS[1])


def test_a_held_model_emits_as_often_as_the_pair_says_and_does_not_learn_when() -> None:
    model = paced()
    set_pace(model, [True])
    words, _ = model._lattice(INPUTS, LENGTHS[0], OUTPUTS)
    even = torch.stack([torch.full((4, 3), math.log(2 / 4)), torch.full((4, 3), math.log(3 / 2))])
    expected = lattice.log_marginal(words, even, *LENGTHS)
    found = log_prob(model)
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert bool(parameter.grad.abs().sum() == 0) == of_gate(name), name


def test_the_model_is_its_own_when_it_is_not_held_or_not_trained() -> None:
    model, plain = paced(), paced()
    plain.pace = None
    expected = log_prob(plain)
    assert torch.equal(log_prob(model), expected)
    set_pace(model, [True])
    assert not torch.equal(log_prob(model), expected)
    assert torch.equal(log_prob(model.eval()), expected), "evaluations and searches are those of the model"
    set_pace(model, [False])
    assert torch.equal(log_prob(model.train()), expected)
    assert model.state_dict().keys() == plain.state_dict().keys(), "a stored model does not know how it was trained"


def test_models_of_a_stack_are_held_one_by_one() -> None:
    models = [paced(seed) for seed in range(3)]
    stacked = stack(models, Masks(3, torch.device("cpu")))
    for held in ([True, False, True], [False, False, True], [False] * 3):
        set_pace(stacked, held)
        for model, one in zip(models, held, strict=True):
            set_pace(model, [one])
        together = stacked(INPUTS.repeat(3, 1), LENGTHS[0].repeat(3), OUTPUTS.repeat(3, 1), LENGTHS[1].repeat(3))
        torch.testing.assert_close(together, torch.cat([log_prob(model) for model in models]))


@pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
def test_gates_are_learnt_after_the_pace_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    """In both loops."""
    monkeypatch.setattr(jobs, "_graphs_work_for", lambda job: together)
    count, weights = Learner.count, {}

    def counted(self: Learner, symbols: int) -> None:
        count(self, symbols)
        weights[self.state.step] = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}

    monkeypatch.setattr(Learner, "count", counted)
    train_run(mirrored(tmp_path, paced_updates=20, max_updates=200), lambda event: None, lambda line: None)
    for name, first in weights[1].items():
        same = [torch.equal(weights[step][name], first) for step in (20, 21)]
        assert same == ([True, False] if of_gate(name) else [False, False]), name


def test_nothing_is_evaluated_before_emissions_are_learnt(tmp_path: Path) -> None:
    train_run(mirrored(tmp_path, paced_updates=20, max_updates=200), lambda event: None, lambda line: None)
    assert evaluated(tmp_path)[:2] == [30, 40]


def test_estimated_times_count_the_pace(tmp_path: Path) -> None:
    """Patience begins after it: a tenth of 200 updates, then six evaluations."""
    said: list[str] = []
    config = mirrored(tmp_path, paced_updates=1000, max_updates=200)
    train_run(config, lambda event: None, said.append, estimate=True)
    assert any("80 to 200 updates" in line for line in said), said


@pytest.mark.parametrize("limits", [{"max_updates": 100}, {"max_updates": None, "max_epochs": 25}])
def test_at_most_a_tenth_of_all_updates_is_paced(tmp_path: Path, limits: dict[str, int | None]) -> None:
    events: list[Event] = []
    config = mirrored(tmp_path, paced_updates=1000, **limits)
    config.training.evaluate_every = 1
    config.training.patience = 1000
    train_run(config, events.append, lambda line: None)
    assert evaluated(tmp_path) == list(range(11, 101))
    further = replace(config, direct=replace(config.direct, max_updates=1000, max_epochs=None))
    with pytest.raises(KeyboardInterrupt):
        train_run(further, stop_at_an_evaluation, lambda line: None)
    assert evaluated(tmp_path)[-1] == 101, "a training that goes on does not begin again"


def test_a_training_that_is_interrupted_while_it_keeps_the_pace_resumes_as_if_nothing_had_happened(
    tmp_path: Path,
) -> None:
    whole, parted = (mirrored(tmp_path / name, paced_updates=18, max_updates=180) for name in ("whole", "parted"))
    train_run(whole, lambda event: None, lambda line: None)
    with pytest.raises(KeyboardInterrupt):
        train_run(parted, stop_at_an_evaluation, lambda line: None)
    events: list[Event] = []
    train_run(parted, events.append, lambda line: None)
    assert [event.step for event in events if isinstance(event, Started)] == [14], "the last checkpoint before 20"
    files = [tmp_path / name / "run" / "direct" / "model.safetensors" for name in ("whole", "parted")]
    assert files[0].read_bytes() == files[1].read_bytes()


class AllAtOnce(SSNT):
    """Emits everything at the input symbol ``place``."""

    place: int

    def emit_logits(self, input_side: Side, output_side: Side) -> Tensor:
        emit = super().emit_logits(input_side, output_side)
        there = torch.arange(emit.shape[-2]) == self.place
        return torch.where(there[:, None], 20.0, -20.0).expand_as(emit)


@pytest.mark.parametrize("place", [0, 2])
def test_models_that_put_everything_at_one_place_are_recognised(place: int) -> None:
    rng = np.random.default_rng(0)
    inputs, outputs = ([[*rng.integers(4, 9, rng.integers(3, 6)), EOS] for _ in range(30)] for _ in range(2))
    short = [[4, EOS]] * 5  # not looked at
    dev = Corpus(Sequences.of(inputs + short), Sequences.of(outputs + short))
    torch.manual_seed(0)
    model = AllAtOnce(9, 9, 6, bidirectional=True)
    model.place = place
    assert at_one_place(model, dev, np.arange(35), 8) == 1.0
    assert at_one_place(model, dev, np.arange(11, 35), 8) is None
    plain = SSNT(9, 9, 6, bidirectional=True)
    found = at_one_place(plain, dev, np.arange(35), 7, batch_symbols=40)
    expected = []
    for source, target in zip(inputs, outputs, strict=True):
        one = torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([target]), torch.tensor([len(target)])
        positions = plain.viterbi(*one)[1][0, :-1]
        expected.append(len(positions.unique()) == 1)
    assert found == pytest.approx(np.mean(expected))
    assert 0 < found < 1, "the test is about both kinds of pairs"


def test_the_warning_says_what_to_do() -> None:
    bad = Finished("nouns channel", 700, 700, 2.5, 60.0, at_one_place=0.97, remedy="--channel.paced-updates 400")
    assert bad.fault.startswith("warning: the model does not align: in 97% of the dev pairs")
    assert describe_fault(bad).startswith(f"nouns channel: {bad.fault}.")
    assert describe_fault(bad).endswith("with another --run-dir and --channel.paced-updates 400")
    assert not bad._replace(at_one_place=0.1).fault
    assert not bad._replace(at_one_place=None).fault


@pytest.mark.parametrize(("paced", "remedy"), [(0, "--direct.paced-updates 4"), (4, "--direct.max-updates 80")])
def test_a_training_tells_if_its_model_does_not_align(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], paced: int, remedy: str
) -> None:
    looked_at = []

    def look(model: SSNT, *arguments: object) -> float:
        stored, _ = load_tensors(tmp_path / "run" / "direct" / "model.safetensors")
        looked_at.append(all(torch.equal(stored[name], tensor) for name, tensor in model.state_dict().items()))
        return 0.9

    monkeypatch.setattr(learner, "at_one_place", look)
    with LineDisplay() as display:
        (finished,) = train_run(mirrored(tmp_path, paced_updates=paced), display, display.say)
    assert looked_at == [True], "it is about the model that is kept"
    assert (finished.at_one_place, finished.remedy) == (0.9, remedy)
    assert describe_fault(finished) in capsys.readouterr().err


def of_gate(name: str) -> bool:
    return name.startswith(("emit.", "input_gate.", "output_gate."))


def evaluated(directory: Path) -> list[int]:
    """The steps of the evaluations on dev."""
    records = [json.loads(line) for line in (directory / "run" / "metrics.jsonl").read_text().splitlines()]
    return [record["step"] for record in records if record["kind"] == "dev"]


def stop_at_an_evaluation(event: Event) -> None:
    if isinstance(event, DevEvaluation):
        raise KeyboardInterrupt


def mirrored(directory: Path, **keys: int | None) -> RunConfig:
    """A direct model of 64 pairs of random symbols and their upper case; four updates are an epoch."""
    directory.mkdir(exist_ok=True)
    rng = np.random.default_rng(1)
    words = ["".join(rng.choice(list("abcd"), 5)) for _ in range(64)]
    (directory / "pairs.tsv").write_text("".join(f"{word}\t{word.upper()}\n" for word in words))
    pairs = [str(directory / "pairs.tsv")]
    return RunConfig(
        run_dir=str(directory / "run"),
        models=["direct"],
        device="cpu",
        jobs=1,
        data=DataConfig(train=pairs, dev=pairs),
        direct=ModelConfig(**{"hidden_size": 8, "bidirectional": True, "max_updates": 40, **keys}),
        training=TrainingConfig(batch_size=16, evaluate_every=10, checkpoint_every=7),
    )
