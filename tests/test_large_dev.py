"""A user's own large files: samples of dev for tuning and evaluations, long and empty lines, outputs never right."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from noisychannel.arguments import dump_config
from noisychannel.cli.main import main
from noisychannel.data.batches import make_batch
from noisychannel.data.corpus import Corpus, Sequences
from noisychannel.data.rows import Row, read_parallel
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.objective import Weights
from noisychannel.errors import BadInputError
from noisychannel.evaluation import default_metric
from noisychannel.evaluation.default_metric import are_sentences
from noisychannel.evaluation.metrics import METRICS, REPORTED
from noisychannel.runs import RunDirectory
from noisychannel.training import dev_sample
from noisychannel.training.config import TrainingConfig
from noisychannel.training.learner import Learner
from noisychannel.training.run import train_run
from noisychannel.training.state import TrainingState
from noisychannel.tuning import run as tuning
from noisychannel.tuning.confidence import JudgedList, fit_confidence
from noisychannel.tuning.run import drawn_pairs
from toys import toy_config


def rows(number: int) -> list[Row]:
    return [Row(str(n), str(n), (), "", "") for n in range(number)]


def test_dev_pairs_are_drawn_in_their_order_and_fewer_are_a_part_of_more() -> None:
    every = rows(300)
    few, more = drawn_pairs(every, 40), drawn_pairs(every, 90)
    assert (len(few), len(more)) == (40, 90)
    assert set(few) < set(more)
    assert few == [row for row in every if row in few] == drawn_pairs(every, 40)
    assert few != every[:40]
    assert drawn_pairs(every, 0) == drawn_pairs(every, 300) == drawn_pairs(every, 1000) == every


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = toy_config(tmp_path_factory.mktemp("large"), rows=50, models=("direct", "lm"), max_epochs=1)
    train_run(config, lambda event: None, lambda line: None)
    return Path(config.run_dir)


@pytest.mark.parametrize(("options", "used"), [([], 25), (["--limit", "10"], 10), (["--limit", "0"], 60)])
def test_a_tuning_says_and_records_how_many_of_how_many(
    trained: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, options: list[str], used: int
) -> None:
    """The dev set has 60 pairs."""
    if not options:
        monkeypatch.setattr(tuning, "drawn_pairs", lambda pairs, limit: drawn_pairs(pairs, limit // 20))
    words = ["--systems", "direct+lm", "--iterations", "0", "--k1", "3", "--k2", "2", "--metric", "edit_distance"]
    assert main(["tune", str(trained), *words, *options]) == 0
    line = f"tuning on {used} of 60 dev pairs, drawn with a fixed seed; for all: --limit 0"
    assert (line in capsys.readouterr().err) == (used < 60)
    record = json.loads((trained / "weights.json").read_text())["systems"]["direct+lm"]
    assert record["dev_sentences"] == used
    assert record.get("dev_sentences_of") == (60 if used < 60 else None)


def test_sentences_are_tuned_and_measured_by_a_metric_for_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless another is named. Words of a few kinds, such as sounds, or one word a line, are right or wrong."""
    sentences = [" ".join(f"w{(n * k) % 211}" for k in (1, 2, 3)) for n in range(1, 212)]
    config = toy_config(tmp_path, max_updates=1)
    for file in (*config.data.train, *config.data.dev):
        Path(file).write_text("".join(f"{line}\t{line}\n" for line in sentences))
    config.data.input.units = config.data.output.units = "words"
    train_run(config, lambda event: None, lambda line: None)
    words = ["--systems", "direct+length", "--iterations", "0", "--k1", "2", "--k2", "1", "--limit", "5"]
    test, run = config.data.dev[0], RunDirectory(Path(config.run_dir))

    def measured() -> str:
        assert main(["evaluate", config.run_dir, test, "--systems", "direct"]) == 0
        return capsys.readouterr().out

    assert main(["tune", config.run_dir, *words]) == 0
    line = "outputs are sentences, so the metric is bleu; for another: --metric rouge1 (headlines)"
    assert line in capsys.readouterr().err
    assert "| bleu" in measured()
    assert main(["tune", config.run_dir, *words, "--metric", "rouge1"]) == 0
    assert line not in capsys.readouterr().err
    assert "| rouge1" in measured()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "sacrebleu", None)
        assert main(["tune", config.run_dir, *words]) == 0
    assert "accuracy says little, but" in (said := capsys.readouterr().err)
    assert "pip install 'noisychannel[metrics]'" in said
    assert not are_sentences(run, ["w1", "w2 w3", "w4 w5 w6"])
    monkeypatch.setattr(default_metric, "SMALL_INVENTORY", 300)
    assert not are_sentences(run, sentences)


def test_help_names_every_metric(capsys: pytest.CaptureFixture[str]) -> None:
    for command, known in (("tune", METRICS), ("evaluate", (*METRICS, *REPORTED))):
        assert main([command, "--help"]) == 0
        assert f"metrics: {', '.join(known)}.\n" in capsys.readouterr().out


def corpus(lengths: list[int]) -> Corpus:
    return Corpus(None, Sequences.of([[4] * length for length in lengths]))


@pytest.mark.parametrize(
    ("pairs", "interval", "limit", "used"),
    [
        (900, 1, None, 900),  # never less than a thousand
        (7000, 2000, None, 7000),  # 219 batches cost 77 updates
        (7000, 100, None, 1371),  # 15 updates of 100 are worth 43 batches of 32
        (7000, 10, None, 1000),
        (7000, 10, 0, 7000),
        (7000, 2000, 300, 300),
        (200, 2000, 300, 200),
    ],
)
def test_how_much_of_dev_an_evaluation_uses(pairs: int, interval: int, limit: int | None, used: int) -> None:
    training = TrainingConfig(dev_limit=limit)
    found = dev_sample.sample_size(corpus([3] * pairs), training, 32, interval)
    assert found == pytest.approx(used, rel=0.01)
    chosen = dev_sample.sample(corpus([3] * pairs), found)
    assert len(set(chosen.tolist())) == found
    assert (np.diff(chosen) > 0).all()


def test_evaluations_use_the_sample_and_a_resumed_training_keeps_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = toy_config(tmp_path, rows=40, max_epochs=None, max_updates=2, dev_limit=7)
    (tmp_path / "config.yaml").write_text(dump_config(config))
    assert main(["train", str(tmp_path / "config.yaml")]) == 0
    told = capsys.readouterr().err
    assert "evaluations during training use 7 of 60 dev lines (direct); for all: --training.dev-limit 0" in told
    stopped = RunDirectory(Path(config.run_dir)).stopped_file("direct")
    assert TrainingState.read(stopped).dev_pairs == 7
    further = ["train", str(tmp_path / "run" / "config.yaml"), "--direct.max-updates", "4"]
    assert main(further) == 0
    assert TrainingState.read(stopped).dev_pairs == 7


def test_the_dev_loss_is_per_symbol_of_the_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    judge = Learner.judge

    def watched(self: Learner, dev_loss: float) -> bool:
        rows = np.concatenate(self.dev_batches())
        batch = make_batch(self.dev_corpus, rows)
        expected = -self.model.log_prob(*batch.arguments).sum().item() / int(batch.output_lengths.sum())
        assert dev_loss == pytest.approx(expected, rel=1e-5)
        seen.append(len(rows))
        return judge(self, dev_loss)

    monkeypatch.setattr(Learner, "judge", watched)
    train_run(toy_config(tmp_path, rows=40, max_epochs=1, dev_limit=7), lambda event: None, lambda line: None)
    assert seen == [7]


def test_a_few_very_long_lines_are_worth_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = toy_config(tmp_path, rows=200, models=("direct", "channel"), max_epochs=None, max_updates=1)
    with Path(config.data.train[0]).open("a") as file:
        file.write("ab" * 150 + "\tb\n")
    (tmp_path / "config.yaml").write_text(dump_config(config))
    assert main(["train", str(tmp_path / "config.yaml")]) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    assert "the longest input of the training data has 300 symbols, and 99 % have at most 6." in line
    assert line.endswith("--data.input.max-length 12")


def test_all_lines_without_a_headline_are_counted(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("a\nb\n\nc\nd\n\n")
    (tmp_path / "out").write_text("A\n\n\nC\n \nX\n")
    with pytest.raises(BadInputError) as caught:
        list(read_parallel([str(tmp_path / "in")], [str(tmp_path / "out")]))
    assert str(caught.value) == (
        f"{tmp_path}/out:2: the line is empty; fill it in, or remove it on both sides (as for 2 more lines that are "
        "empty on one side)"
    )


def test_no_confidence_is_fitted_if_no_output_is_ever_right() -> None:
    found = [Hypothesis.of((symbol,), -1.0, {"direct": -1.0}, 2, True) for symbol in (4, 5)]
    lists = [JudgedList(str(n), ["a", "b"], found, ["a" if n == 7 else "c"]) for n in range(200)]
    assert fit_confidence(lists, Weights(), 2) is None
    assert fit_confidence(lists[:50], Weights(), 2) is not None, "too few to say so"
