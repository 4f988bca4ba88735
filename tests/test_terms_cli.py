"""Further terms of the objective and other proposing models through the commands: tuned, stored, printed, explained."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from noisychannel import NoisyChannel, Weights
from noisychannel.arguments import dump_config
from noisychannel.cli.main import main
from noisychannel.decode.beam import beam_search
from noisychannel.decode.settings import SearchSettings
from noisychannel.runs import RunDirectory
from noisychannel.training.config import RunConfig
from noisychannel.weights import TermSource, read_system, read_systems
from toys import double_vowels, toy_config, write_pairs

FEW = ["--k1", "6", "--k2", "3", "--limit", "15", "--iterations", "1", "--device", "cpu"]
FEW_BEAMS = FEW[2:]
"""A beam search has no k1."""


def train(config: RunConfig, file: Path) -> Path:
    file.write_text(dump_config(config))
    assert main(["train", str(file)]) == 0
    return Path(config.run_dir)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Vowel doubling with a word list and an attention model; a second language model with the same vocabularies."""
    directory = tmp_path_factory.mktemp("terms")
    models = ("direct", "channel", "lm", "attention", "seq2seq")
    config = toy_config(directory, models=models, rows=300, longest=4, max_epochs=3)
    config.lm = replace(config.lm, word_list=True)
    first = train(config, directory / "first.yaml")
    config.run_dir, config.models, config.lm = str(directory / "second"), ["lm"], replace(config.lm, word_list=False)
    config.data.vocabularies = str(first)
    return first, train(config, directory / "second.yaml")


@pytest.fixture
def run(runs: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of the first run."""
    return Path(shutil.copytree(runs[0], tmp_path / "run"))


def decode(run: Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    inputs = run.with_name("inputs.txt")
    inputs.write_text("bad\nlome\nab\n")
    capsys.readouterr()
    assert main(["decode", str(run), str(inputs), "--json", "--n_best", "3", "--device", "cpu", *words]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def check_sums(records: list[dict[str, Any]], weights: Weights) -> None:
    """The score is the weighted sum of the terms that are printed."""
    for record in records:
        scores = [h["score"] for h in record["hypotheses"]]
        assert scores == sorted(scores, reverse=True)
        for h in record["hypotheses"]:
            terms = {name: h[name] for name in ("direct", "channel", "lm", "length")} | h["extra"]
            total = sum(weight * terms[name] for name, weight in weights.by_name().items() if weight)
            assert h["score"] == pytest.approx(total, abs=1e-4)
            assert set(h["extra"]) == {name for name, weight in weights.extra.items() if weight}


def test_a_run_with_a_word_list_is_tuned_with_it_and_says_so_everywhere(run: Path, capsys) -> None:
    assert main(["tune", str(run), *FEW]) == 0
    *shown, last = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown] == [
        "direct", "direct+length", "direct+lm", "channel+lm", "direct+channel+lm", "direct+channel+lm+word_list",
    ]  # fmt: skip
    assert last.startswith("confidence of direct+channel+lm+word_list, by cross-validation: off by")
    assert "word_list" in shown[-1].split("weights:")[1]
    record = json.loads((run / "weights.json").read_text())
    assert record["default"] == "direct+channel+lm+word_list"
    entry = record["systems"][record["default"]]
    assert entry["weights"]["word_list"] >= 0
    assert entry["terms"] == {"word_list": {"kind": "word_list", "run": "."}}
    smaller = record["systems"]["direct+channel+lm"]
    tried = [step["weights"] for step in entry["history"]]
    # A larger system tries the weights of one that it contains.
    assert {**smaller["weights"], "word_list": 0.0} in tried

    weights = Weights.parse("direct=1,channel=0.5,lm=0.3,length=0.2,word_list=2")
    records = decode(run, capsys, "--weights", "direct=1,channel=0.5,lm=0.3,length=0.2,word_list=2")
    check_sums(records, weights)
    values = {h["extra"]["word_list"] for record in records for h in record["hypotheses"] if h["complete"]}
    assert values
    assert values <= {0.0, -1.0}

    table = run.with_name("test.tsv")
    write_pairs(table, double_vowels, 12, 9, longest=4)
    assert main(["evaluate", str(run), str(table), "--device", "cpu"]) == 0
    shown_table = capsys.readouterr().out.split("\n\n")[0]
    rows = [line.split("|")[1].strip() for line in shown_table.splitlines() if line.startswith("| ")]
    assert rows[2:] == ["direct", *record["systems"], "attention", "seq2seq"], "attention and seq2seq need no tuning"
    inputs = run.with_name("inputs.txt")
    assert main(["decode", str(run), str(inputs), "--explain", "--weights", "direct=1,word_list=2"]) == 0
    shown = capsys.readouterr().out
    assert "word_list" in shown.splitlines()[2]
    assert "weights: direct 1, channel 0, lm 0, length 0, word_list 2" in shown


def test_the_word_list_term_is_that_of_the_training_outputs(runs: tuple[Path, Path]) -> None:
    model = NoisyChannel.load(runs[0], weights=Weights(1.0, extra={"word_list": 1.0}), device="cpu")
    pairs = (runs[0].parent / "train.tsv").read_text().splitlines()
    known = {line.split("\t")[1] for line in pairs}
    outputs = [*sorted(known)[:10], "bbbb", "aab", sorted(known)[0] + "k"]
    for output in model.rerank("bad", outputs):
        assert output.hypothesis.extra == {"word_list": 0.0 if output.text in known else -1.0}


def test_a_second_language_model_and_a_density_ratio(runs: tuple[Path, Path], run: Path, capsys) -> None:
    second = Path(shutil.copytree(runs[1], run.with_name("second")))
    terms = ["--terms", f'["news=lm:{second}","paired=density_ratio:{second}"]']
    systems = ["--systems", "[direct+lm,direct+lm+news+paired]"]
    assert main(["tune", str(run), *terms, *systems, *FEW]) == 0
    tuned = read_system(RunDirectory(run))
    assert tuned.name == "direct+lm+news+paired"
    assert tuned.weights.extra["news"] >= 0 >= tuned.weights.extra["paired"]
    assert tuned.terms == {"news": TermSource("lm", second), "paired": TermSource("density_ratio", second)}
    check_sums(decode(run, capsys), tuned.weights)

    weights = Weights(1.0, lm=0.4, extra={"news": 0.4, "paired": -0.3})
    records = decode(run, capsys, "--system", tuned.name, "--weights", "direct=1,lm=0.4,news=0.4,paired=-0.3")
    check_sums(records, weights)
    for record in records:
        for h in record["hypotheses"]:
            assert h["extra"]["news"] == h["extra"]["paired"], "the same model"

    # Both directories move together, and the run still knows its terms.
    moved = run.with_name("elsewhere")
    moved.mkdir()
    shutil.move(run, moved / "run")
    shutil.move(second, moved / "second")
    check_sums(decode(moved / "run", capsys), tuned.weights)


def test_attention_is_a_system_like_any_other(run: Path, capsys) -> None:
    settings = SearchSettings(k1=6, k2=3)
    alone = NoisyChannel.load(run, "attention", settings=settings, device="cpu")
    found = alone.batch(["bad", "lome"], n_best=2)
    inputs = [alone.input_codec.encode(text) for text in ("bad", "lome")]
    expected = beam_search(alone.models["attention"], inputs, settings, 2)
    assert [[o.hypothesis.tokens for o in best] for best in found] == [[h.tokens for h in best] for best in expected]
    assert all(output.hypothesis.alignment is None for best in found for output in best)

    systems = "[attention+length,attention+channel+lm,seq2seq+length]"
    assert main(["tune", str(run), "--systems", systems, *FEW_BEAMS]) == 0
    tuned = read_systems(RunDirectory(run))
    assert set(tuned) == {"direct", "attention+length", "attention+channel+lm", "seq2seq+length"}
    scores = {name: tuned[name].record["dev_score"] for name in tuned if name != "direct"}
    assert scores["attention+channel+lm"] >= scores["attention+length"]
    records = decode(run, capsys, "--system", "attention+channel+lm", "--weights", "1,0.7,0.4,0.1")
    check_sums(records, Weights(1.0, 0.7, 0.4, 0.1))
    assert {h["direct_is"] for record in records for h in record["hypotheses"]} == {"attention"}
    assert all(h["channel_alignment"] is not None for record in records for h in record["hypotheses"] if h["complete"])
    reranked = NoisyChannel.load(run, "attention+channel+lm", Weights(1.0, 0.7, 0.4, 0.1), settings, "cpu")
    texts = [h["output"] for h in records[0]["hypotheses"]]
    for ours, given in zip(reranked.rerank("bad", texts), records[0]["hypotheses"], strict=True):
        assert ours.hypothesis.score == pytest.approx(given["score"], abs=1e-4)
    with pytest.raises(ValueError, match="online decoding needs a direct model"):
        alone.online()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--terms", "news"], "--terms: 'news' is not NAME=KIND:RUN, such as news=lm:runs/news"),
        (["--terms", "news=ln:x"], "--terms: unknown kind of term 'ln'; did you mean lm?"),
        (["--terms", "lm=lm:x"], "--terms: a further term cannot be named 'lm'"),
        (["--terms", "news=lm:nowhere", "--systems", "direct+news"], "nowhere: no such run directory"),
        (["--systems", "direct+news"], "there is no term 'news'"),
        (["--systems", "attention"], "attention has no weights to tune"),
    ],
)
def test_bad_terms_are_one_line(words: list[str], complaint: str, runs: tuple[Path, Path], capsys) -> None:
    assert main(["tune", str(runs[0]), *words, *FEW]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line


def test_a_term_of_another_vocabulary_is_refused(runs: tuple[Path, Path], tmp_path: Path, capsys) -> None:
    config = toy_config(tmp_path, task=lambda x: x + "q", models=("lm",), rows=40, max_epochs=1)
    other = train(config, tmp_path / "config.yaml")
    capsys.readouterr()
    assert main(["tune", str(runs[0]), "--terms", f"news=lm:{other}", "--systems", "direct+news", *FEW]) == 2
    *_, line = capsys.readouterr().err.splitlines()  # before it: how many dev pairs are used
    assert f"{other}: its output vocabulary is not that of {runs[0]}" in line
    assert f"--data.vocabularies {runs[0]}" in line


def test_weights_tuned_with_the_list_inside_the_language_model_are_refused_with_the_command(run: Path, capsys) -> None:
    """Version 0.1 gave a share of the language model's probability to the list."""
    assert main(["tune", str(run), "--systems", "[direct+length,direct+lm]", *FEW]) == 0
    record = json.loads((run / "weights.json").read_text())
    del record["format"]
    (run / "weights.json").write_text(json.dumps(record))
    capsys.readouterr()
    assert main(["decode", str(run), str(run / "config.yaml")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"so tune again: noisychannel tune {run}")
    assert main(["tune", str(run), "--systems", "direct+length", *FEW]) == 0
    assert list(read_systems(RunDirectory(run))) == ["direct", "direct+length"], "what the list had changed is gone"


def test_models_of_several_runs_can_be_mixed(runs: tuple[Path, Path]) -> None:
    roles = {"direct": runs[0], "channel": runs[0], "lm": runs[1]}
    weights, settings = Weights(1.0, 0.5, 0.3), SearchSettings(k1=6, k2=3)
    mixed = NoisyChannel.load(runs[0], weights=weights, settings=settings, device="cpu", roles=roles)
    own = NoisyChannel.load(runs[0], weights=weights, settings=settings, device="cpu", roles=list(roles))
    (theirs,), (ours,) = mixed("bad"), own.rerank("bad", [mixed("bad")[0].text])
    assert theirs.hypothesis.direct == pytest.approx(ours.hypothesis.direct, abs=1e-4)
    assert theirs.hypothesis.lm == pytest.approx(ours.hypothesis.lm, abs=1e-4), "trained on the same data and seed"
    many = mixed.rerank_batch(["bad", "ab"], [["baad", "bad"], ["aab"]])
    assert [[o.text for o in best] for best in many] == [
        [o.text for o in mixed.rerank("bad", ["baad", "bad"])],
        ["aab"],
    ]


def test_one_name_may_stand_for_two_sources(runs: tuple[Path, Path], run: Path, capsys) -> None:
    """Systems that were tuned with different sources of one name are evaluated each with its own."""
    second = Path(shutil.copytree(runs[1], run.with_name("second")))
    for source, system in ((run, "direct+news"), (second, "direct+lm+news")):
        assert main(["tune", str(run), "--terms", f"news=lm:{source}", "--systems", system, *FEW]) == 0
    record = json.loads((run / "weights.json").read_text())
    for entry in record["systems"].values():
        entry["weights"]["news"] = 2.0
    (run / "weights.json").write_text(json.dumps(record))
    test = write_pairs(run.with_name("test.tsv"), double_vowels, 20, 9, longest=4)
    result = run.with_name("result.json")
    assert main(["evaluate", str(run), str(test), "--json", str(result), "--device", "cpu"]) == 0
    outputs = {row["system"]: row["outputs"] for row in json.loads(result.read_text())["systems"]}
    inputs = [line.split("\t")[0] for line in test.read_text().splitlines()]
    for system in ("direct+news", "direct+lm+news"):
        model = NoisyChannel.load(run, system, device="cpu")
        assert [best[0].text for best in model.batch(inputs)] == outputs[system]
    assert main(["tune", str(run), "--terms", f'["a=lm:{second}","a=lm:{run}"]', "--systems", "direct+a", *FEW]) == 2
    assert "two terms have the same name" in capsys.readouterr().err


def test_groups_have_terms_of_their_own(tmp_path: Path, capsys) -> None:
    config = toy_config(tmp_path, models=("direct", "lm"), longest=4, max_epochs=1)
    for file in (*config.data.train, *config.data.dev):
        lines = Path(file).read_text().splitlines()
        Path(file).write_text("".join(f"{line}\t{'one' if n % 2 else 'two'}\n" for n, line in enumerate(lines)))
    config.data.columns, config.lm = "input,output,group", replace(config.lm, word_list=True)
    run = train(config, tmp_path / "first.yaml")
    config.run_dir, config.models, config.data.vocabularies = str(tmp_path / "second"), ["lm"], str(run)
    second = train(config, tmp_path / "second.yaml")
    terms = ["--terms", f"news=lm:{second}", "--systems", "[direct+lm+word_list,direct+lm+word_list+news]"]
    assert main(["tune", str(run), *terms, *FEW]) == 0
    for group in ("one", "two"):
        tuned = read_system(RunDirectory(run / group))
        assert {name: source.run for name, source in tuned.terms.items()} == {
            "word_list": (run / group).resolve(),
            "news": (second / group).resolve(),
        }
    # Tuned again without --terms, each group has its own source still; and a group alone finds its part of the run.
    expected = {group: read_system(RunDirectory(run / group)).terms for group in ("one", "two")}
    assert main(["tune", str(run), "--systems", "direct+lm+word_list+news", *FEW]) == 0
    assert main(["tune", str(run / "two"), *terms, *FEW]) == 0
    assert {group: read_system(RunDirectory(run / group)).terms for group in ("one", "two")} == expected
    result = tmp_path / "result.json"
    assert main(["evaluate", str(run), config.data.dev[0], "--json", str(result), "--device", "cpu"]) == 0
    record = json.loads(result.read_text())
    outputs = next(row["outputs"] for row in record["systems"] if row["system"] == "direct+lm+word_list+news")
    for group in ("one", "two"):
        model = NoisyChannel.load(run / group, device="cpu")
        own = [n for n, name in enumerate(record["items"]["groups"]) if name == group]
        texts = [record["items"]["inputs"][n] for n in own]
        assert [best[0].text for best in model.batch(texts)] == [outputs[n] for n in own]


def test_a_run_with_attention_alone(tmp_path: Path, capsys) -> None:
    config = toy_config(tmp_path, models=("attention",), rows=60, longest=4, max_epochs=1)
    run = train(config, tmp_path / "config.yaml")
    test = write_pairs(tmp_path / "test.tsv", double_vowels, 8, 9, longest=4)
    # Outputs that do not end within the limit have no other terms; tuning goes on.
    assert main(["tune", str(run), "--max_length", "3", *FEW_BEAMS]) == 0
    assert read_system(RunDirectory(run)).name == "attention+length"
    assert main(["evaluate", str(run), str(test), "--device", "cpu"]) == 0
    table = capsys.readouterr().out.split("\n\n")[0]
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")]
    assert rows[2:] == ["attention+length", "attention"]


def test_the_model_that_proposes_is_the_one_asked_for(run: Path, capsys) -> None:
    both = NoisyChannel.load(run, "attention", device="cpu", roles=["direct", "attention"])
    assert both.proposer == "attention"
    assert main(["tune", str(run), "--systems", "attention+lm", *FEW_BEAMS]) == 0
    records = decode(run, capsys)
    assert {h["direct_is"] for record in records for h in record["hypotheses"]} == {"attention"}, "the run's default"
    records = decode(run, capsys, "--weights", "1,0,0.5,0")
    assert {h["direct_is"] for record in records for h in record["hypotheses"]} == {"viterbi"}, "the direct model"
    for roles, complaint in ((["lm"], "no model proposes"), ([], "no model proposes")):
        with pytest.raises(ValueError, match=complaint):
            NoisyChannel.load(run, weights=Weights(1.0), device="cpu", roles=roles)
    with pytest.raises(ValueError, match="give a list of texts, not one text"):
        both.batch("bad")
    with pytest.raises(ValueError, match="a list of texts for each of the 1 inputs"):
        both.rerank("bad", "baad")


def test_terms_are_found_through_a_link_and_missed_with_a_clear_line(
    runs: tuple[Path, Path], run: Path, capsys
) -> None:
    second = Path(shutil.copytree(runs[1], run.with_name("second")))
    assert main(["tune", str(run), "--terms", f"news=lm:{second}", "--systems", "direct+news", *FEW]) == 0
    link = run.parent / "elsewhere"
    link.mkdir()
    (link / "current").symlink_to(run)
    assert decode(run, capsys) == decode(link / "current", capsys)
    # A later call needs no --terms, and the run's own word list is there beside terms that are given.
    assert main(["tune", str(run), "--systems", "direct+lm+news", *FEW]) == 0
    weights = Weights(1.0, extra={"news": 0.3, "word_list": 1.0})
    model = NoisyChannel.load(run, weights=weights, device="cpu", terms={"news": TermSource("lm", str(second))})  # type: ignore[arg-type]
    assert set(model("bad")[0].hypothesis.extra) == {"news", "word_list"}
    shutil.rmtree(second)
    capsys.readouterr()
    assert main(["decode", str(run), str(run / "config.yaml"), "--weights", "direct=1,news=0.5"]) == 2
    assert f"the term news is in {second}, which does not exist" in capsys.readouterr().err


def test_another_models_section_does_not_matter(run: Path, tmp_path: Path, capsys) -> None:
    """A model that was added with sizes of its own stays as it is when the first configuration is repeated."""
    config = toy_config(tmp_path / "again", models=("direct",), rows=40, longest=4, max_epochs=1)
    file = tmp_path / "config.yaml"
    added = train(config, file)
    assert main(["train", str(added / "config.yaml"), "--models", "attention", "--attention.hidden_size", "8"]) == 0
    assert main(["train", str(file)]) == 0
    assert "every model is trained" in capsys.readouterr().err
    assert NoisyChannel.load(added, "attention", device="cpu").models["attention"].decoder.hidden_size == 8
