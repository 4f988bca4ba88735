"""``noisychannel evaluate``: what is drawn, compared and recorded, on a small run with two systems written by hand."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisychannel import NoisyChannel, Weights
from noisychannel.arguments import dump_config
from noisychannel.cli.main import main
from noisychannel.decode.settings import SearchSettings
from noisychannel.errors import BadInputError
from noisychannel.evaluation.baselines import BASELINES
from noisychannel.evaluation.decoding import search_errors
from noisychannel.evaluation.held_out import HeldOut
from noisychannel.evaluation.metrics import make_metric
from noisychannel.evaluation.significance import confidence_interval, paired_bootstrap
from noisychannel.runs import RunDirectory
from noisychannel.training.config import RunConfig
from noisychannel.weights import TunedSystem, read_system, write_systems
from toys import double_vowels, toy_config, write_pairs

NARROW, WIDE = SearchSettings(k1=4, k2=2), SearchSettings(k1=8, k2=4, search="marginal", lm_proposals=2)
WITH_LM = TunedSystem("direct+lm", Weights(1.0, lm=0.4, length=0.5), NARROW)
WITH_LENGTH = TunedSystem("direct+length", Weights(1.0, length=0.5), NARROW)


def train(config: RunConfig, directory: Path) -> Path:
    (directory / "config.yaml").write_text(dump_config(config))
    assert main(["train", str(directory / "config.yaml")]) == 0
    return Path(config.run_dir)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vowel doubling; the direct model gets most of it right."""
    directory = tmp_path_factory.mktemp("trained")
    return train(toy_config(directory, models=("direct", "lm"), rows=400, longest=4, max_epochs=4), directory)


@pytest.fixture
def tuned(trained: Path, tmp_path: Path) -> Callable[..., Path]:
    """A copy of the run with the given systems, the last of which is the default."""

    def with_systems(*systems: TunedSystem) -> Path:
        run = Path(shutil.copytree(trained, tmp_path / "run"))
        write_systems(RunDirectory(run), systems, default=systems[-1].name)
        return run

    return with_systems


def evaluate(run: Path, test: Path, *words: str) -> dict[str, Any]:
    """The record; a number that JSON does not have is an error."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    result = test.with_suffix(".json")
    assert main(["evaluate", str(run), str(test), "--json", str(result), "--device", "cpu", *words]) == 0
    record: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"), parse_constant=refuse)
    return record


def repeated_words(file: Path) -> Path:
    """Sixty lines of twelve words, some of them often; one reference in five is not what the models learn."""
    words = [line.split("\t")[0] for line in write_pairs(file, double_vowels, 12, 5, 4).read_text().splitlines()]
    lines = [(words[n * n % 12], n) for n in range(60)]
    file.write_text("".join(f"{x}\t{x if n % 5 == 0 else double_vowels(x)}\tpart {n % 7}\n" for x, n in lines))
    return file


# --- what is drawn, and what is recorded


@pytest.mark.parametrize(
    "by", ["input", "document", *(pytest.param(x, marks=pytest.mark.long) for x in ("line", "output"))]
)
def test_every_figure_can_be_computed_from_the_record(by: str, tuned: Callable[..., Path], tmp_path: Path) -> None:
    """The intervals and p-values are those of the units asked for: of inputs unless something else is named."""
    run, test = tuned(WITH_LENGTH, WITH_LM), repeated_words(tmp_path / "test.tsv")
    words = [] if by == "input" else ["--resample_by", by]
    record = evaluate(run, test, "--columns", "input,output,-document", "--metrics", "[accuracy,edit_distance]",
                      "--baselines", "[memorised]", "--samples", "200", "--seed", "3", *words)  # fmt: skip
    items = record["items"]
    lines = [line.split("\t") for line in test.read_text().splitlines()]
    assert [items["inputs"], items["references"]] == [[x for x, _, _ in lines], [[y] for _, y, _ in lines]]
    assert items["columns"] == {"document": [part for *_, part in lines]}
    assert items["features"] == [[]] * 60
    assert items["groups"] == [""] * 60
    units: Sequence[Any] = {
        "input": items["inputs"],
        "line": range(60),
        "output": [y for _, y, _ in lines],
        "document": items["columns"]["document"],
    }[by]
    assert record["bootstrap"] == {"samples": 200, "seed": 3, "resampled_by": by, "units": len(set(units))}
    assert {"noisychannel", "torch"} < record.keys()
    rows = {system["system"]: system for system in record["systems"]}
    assert list(rows) == ["memorised", "direct", "direct+length", "direct+lm"]
    for name in ("accuracy", "edit_distance"):
        metric = make_metric(name)
        statistics = {
            system: np.stack(list(map(metric.statistics, row["outputs"], items["references"])))
            for system, row in rows.items()
        }
        for system, row in rows.items():
            measured, ours = row["measured"][name], statistics[system]
            assert measured["score"] == pytest.approx(float(metric.score(ours.sum(0), 60)))
            interval = confidence_interval(metric, ours, 200, 3, groups=units)
            assert (measured["low"], measured["high"]) == pytest.approx(interval)
            if system == "direct":
                assert row["compared_with"] is measured["p_value"] is None
            else:
                p_value = paired_bootstrap(metric, ours, statistics[row["compared_with"]], 200, 3, groups=units)
                assert measured["p_value"] == pytest.approx(p_value)
    model = NoisyChannel.load(run, "direct+lm", device="cpu")
    assert rows["direct+lm"]["outputs"] == [model(x)[0].text for x in items["inputs"]]
    assert rows["direct+lm"]["complete"] == [model(x)[0].hypothesis.complete for x in items["inputs"]]


def test_the_table_says_what_was_drawn(tuned: Callable[..., Path], tmp_path: Path, capsys) -> None:
    run, test = tuned(WITH_LM), repeated_words(tmp_path / "test.tsv")
    words = ["evaluate", str(run), str(test), "--columns", "input,output,-document"]
    inputs = len({line.split("\t")[0] for line in test.read_text().splitlines()})
    assert main(words) == 0
    few = "too few for reliable intervals and p-values"
    assert f"Resampled by input: {inputs} units, {few}.\n" in capsys.readouterr().out
    assert main([*words, "--resample_by", "features"]) == 2
    complaint = capsys.readouterr().err.splitlines()[-1]
    assert "--resample-by" in complaint
    assert "has no 'features'; there are input, line, output, document" in complaint


def test_units_reach_across_groups() -> None:
    """A lemma is one unit, whatever the group of its forms."""
    parts = [
        HeldOut("test", ["Haus", "Baum"], [("PL",), ("PL",)], [["Häuser"], ["Bäume"]], ["a", "a"]),
        HeldOut("test", ["Haus"], [("SG",)], [["Hauses"]], ["b"]),
    ]
    whole = HeldOut.of_all(parts)
    assert whole.units("input") == ["Haus", "Baum", "Haus"]
    assert whole.units("group") == ["a", "a", "b"]
    assert whole.units("features") == [("PL",), ("PL",), ("SG",)]
    with pytest.raises(BadInputError, match="no 'lemma'; there are input, line, output, features, group"):
        whole.units("lemma")


def test_outputs_without_an_end_are_marked_and_have_no_lagging(tuned: Callable[..., Path], tmp_path: Path) -> None:
    search = SearchSettings(k1=1, k2=1, max_length=4)
    test = tmp_path / "test.tsv"
    test.write_text("bababab\tbaabaabaab\n")
    record = evaluate(tuned(TunedSystem("direct+length", Weights(1.0), search)), test)
    assert len(record["systems"]) == 2
    for system in record["systems"]:
        assert system["complete"] == [False]
        assert system["average_lagging"] is None


# --- what it is compared with


def test_the_direct_model_alone_searches_as_the_default_system_does(tuned: Callable[..., Path]) -> None:
    run = RunDirectory(tuned(WITH_LENGTH, TunedSystem("direct+lm", WITH_LM.weights, WIDE)))
    direct = read_system(run, "direct")
    assert direct.weights == Weights(direct=1.0)
    assert direct.settings == SearchSettings(k1=8, k2=4, search="marginal"), "the language model is no part of it"
    loaded = NoisyChannel.load(run.path, "direct", device="cpu").settings
    assert loaded == replace(direct.settings, allow_unk=False), "of characters, UNK is not proposed"


def test_each_system_is_compared_with_a_direct_model_of_the_same_search(
    tuned: Callable[..., Path], tmp_path: Path, capsys
) -> None:
    run = tuned(WITH_LENGTH, TunedSystem("direct+lm", WITH_LM.weights, WIDE))
    test = repeated_words(tmp_path / "test.tsv")
    columns = ["--columns", "input,output,-"]

    def searched(*words: str) -> dict[str, tuple[str | None, dict[str, Any]]]:
        systems = evaluate(run, test, *columns, *words)["systems"]
        return {system["system"]: (system["compared_with"], system["search"]) for system in systems}

    narrow, wide = "direct (k1 4, k2 2, search viterbi)", "direct (k1 8, k2 4, search marginal)"
    found = searched()
    assert {name: against for name, (against, _) in found.items()} == {
        narrow: None, wide: None, "direct+length": narrow, "direct+lm": wide,
    }  # fmt: skip
    assert "against the direct model with the same search" in capsys.readouterr().out
    for name, search in ((narrow, NARROW), (wide, WIDE)):
        used = found[name][1]
        assert (used["k1"], used["k2"], used["search"]) == (search.k1, search.k2, search.search)

    alone = searched("--systems", "direct+length")
    assert list(alone) == ["direct", "direct+length"], "one search needs no telling apart"
    assert alone["direct"][1]["k1"] == 4, "that of the system compared, not of the default"
    widths = {name: (search["k1"], search["k2"]) for name, (_, search) in searched("--k1", "3", "--k2", "3").items()}
    assert widths == dict.fromkeys(
        ["direct (search viterbi)", "direct (search marginal)", "direct+length", "direct+lm"], (3, 3)
    )


def test_what_no_search_may_find_is_no_search_error(trained: Path) -> None:
    """An unknown letter, or more letters than an output may have."""
    search = SearchSettings(k1=1, k2=1, max_length=4)
    model = NoisyChannel.load(trained, weights=Weights(1.0), settings=search, device="cpu")
    for reference, errors in (("bab", 1), ("baba", 0), ("b?", 0)):
        held_out = HeldOut("test", ["bababab"], [()], [[reference]])
        outputs = model.batch(held_out.inputs)
        assert not outputs[0][0].hypothesis.complete, "so any reference would be preferred"
        assert search_errors(model, held_out, outputs) == errors, reference


# --- baselines


def test_baselines_are_made_from_the_training_pairs(
    tuned: Callable[..., Path], trained: Path, tmp_path: Path, capsys
) -> None:
    run, test = tuned(WITH_LM), repeated_words(tmp_path / "test.tsv")
    words = ["--columns", "input,output,-", "--baselines", "[identity,memorised,rules]"]
    record = evaluate(run, test, *words)
    pairs = [line.split("\t") for line in (trained.parent / "train.tsv").read_text().splitlines()]
    inputs = record["items"]["inputs"]
    for system in record["systems"]:
        assert system["baseline"] == (system["system"] in BASELINES)
        if system["baseline"]:
            answer = BASELINES[system["system"]]([(x, y, ()) for x, y in pairs])
            assert system["outputs"] == [answer(x, ()) for x in inputs]
            assert system["weights"] is system["search"] is system["sentences_per_second"] is None
            assert system["compared_with"] == "direct"
            assert 0 < system["measured"]["accuracy"]["p_value"] <= 1
    ratio = len("".join(inputs)) / len("".join(y for (y,) in record["items"]["references"]))
    assert record["systems"][0]["length_ratio"] == pytest.approx(ratio)

    capsys.readouterr()
    assert main(["evaluate", str(run), str(test), *words[:2], "--baselines", "copy"]) == 2
    known = "identity, first_8, first_15, memorised, nearest, rules"
    assert f"--baselines: unknown baseline 'copy'; choose from {known}" in capsys.readouterr().err
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("train.tsv", "gone.tsv"))
    assert main(["evaluate", str(run), str(test), *words]) == 2
    (complaint,) = capsys.readouterr().err.splitlines()
    assert "--baselines needs the training pairs that config.yaml names: " in complaint
    assert "gone.tsv: no such file" in complaint


def test_baselines_of_groups_and_features_know_only_their_own(tmp_path: Path) -> None:
    config = toy_config(tmp_path, max_epochs=1)
    lines = ["ab\tba\tV\tx", "ab\tbb\tV\ty", "ab\tbab\tN\ty"]
    for file in (*config.data.train, *config.data.dev):
        Path(file).write_text("\n".join(lines) + "\n")
    config.data.columns = "input,output,features,group"
    run = train(config, tmp_path)
    test = tmp_path / "test.tsv"
    test.write_text("ab\t1\tV\ty\nab\t2\tN\ty\nab\t3\tN\tx\nab\t4\tV\tx\n")
    record = evaluate(run, test, "--baselines", "memorised")
    items = record["items"]
    assert items["groups"] == ["x", "x", "y", "y"]
    assert items["features"] == [["N"], ["V"], ["V"], ["N"]]
    assert record["bootstrap"]["units"] == 1, "one input, in two groups"
    assert record["systems"][0]["outputs"] == ["ab", "ba", "bb", "bab"]
    one = evaluate(RunDirectory(run).group("y").path, test, "--baselines", "memorised")
    assert one["systems"][0]["outputs"] == ["bb", "bab"]


# --- text that was changed


def test_signatures_and_baselines_know_how_the_text_was_changed(tmp_path: Path, capsys) -> None:
    config = toy_config(tmp_path, max_epochs=1)
    for file in (*config.data.train, *config.data.dev):
        Path(file).write_text("Ab 12\tAB  7\nb\tb\n" * 4)
    for side in (config.data.input, config.data.output):
        side.units, side.lowercase, side.digits_to_hash = "words", True, True
    run, test = train(config, tmp_path), tmp_path / "test.tsv"
    assert main(["tune", str(run), "--iterations", "1", "--device", "cpu"]) == 0
    stored = json.loads((run / "weights.json").read_text())["systems"]["direct+length"]["signature"]
    assert stored.startswith("match:exact|case:lc|digits:#|")

    test.write_text("AB 34\tAb 3\nC 5\tC 6\n")
    capsys.readouterr()
    record = evaluate(run, test, "--metrics", "[accuracy,bleu]", "--baselines", "[identity,memorised]")
    assert record["signatures"]["accuracy"] == stored
    assert record["signatures"]["bleu"].startswith("case:lc|digits:#|eff:no|tok:13a")
    assert f"accuracy {stored}; bleu case:lc|digits:#|" in capsys.readouterr().out
    assert record["items"]["references"] == [["ab #"], ["c #"]]
    outputs = {system["system"]: system["outputs"] for system in record["systems"]}
    assert outputs["identity"] == ["ab ##", "c #"]
    assert outputs["memorised"] == ["ab #", "c #"]

    assert main(["evaluate", str(run), str(test), "--baselines", "rules"]) == 2
    (complaint,) = capsys.readouterr().err.splitlines()
    assert "--baselines: rules need characters, but the input of this run is split into words" in complaint
