"""decode, tune and evaluate from the command line, and the Python entry point, on a small trained run."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from commands import run_here
from noisychannel import NoisyChannel, Weights
from noisychannel.arguments import dump_config
from noisychannel.cli.main import main
from noisychannel.data.codec import Codec
from noisychannel.decode.settings import SearchSettings
from noisychannel.errors import BadInputError
from noisychannel.runs import RunDirectory
from noisychannel.text import Characters, TextConfig
from noisychannel.tuning import System, TuningResult, tune
from toys import copy, double_vowels, tag, toy_config, write_pairs

FULL = "1,0.5,0.3,0.2"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vowel doubling, with all three models; decodes well, but not perfectly."""
    directory = tmp_path_factory.mktemp("trained")
    config = toy_config(directory, models=("direct", "channel", "lm"), rows=600, longest=4, max_epochs=5)
    file = directory / "config.yaml"
    file.write_text(dump_config(config))
    assert main(["train", str(file)]) == 0
    return Path(config.run_dir)


def decode(run: Path, text: bytes, *options: str) -> subprocess.CompletedProcess[bytes]:
    return run_here(["decode", str(run), *options], text)


def test_the_program_reads_standard_input(trained: Path) -> None:
    command = [sys.executable, "-m", "noisychannel", "decode", str(trained), "--weights", FULL]
    done = subprocess.run(command, input=b"bad\nk\n", capture_output=True, check=False)
    here = decode(trained, b"bad\nk\n", "--weights", FULL)
    assert (done.returncode, done.stdout) == (here.returncode, here.stdout) == (0, b"baad\nk\n")
    # A start of more than ten seconds is followed by a line of progress.
    assert all(line.startswith(b"decode: ") for line in done.stderr.splitlines())


def test_lines_in_lines_out_in_order(trained: Path, tmp_path: Path, capsys) -> None:
    words = tmp_path / "words.txt"
    words.write_text("bad\nk\nlome\nab\n")
    assert main(["decode", str(trained), str(words), "--weights", FULL, "--batch_size", "2"]) == 0
    outputs = capsys.readouterr().out.splitlines()
    model = NoisyChannel.load(trained, weights=Weights.parse(FULL))
    assert outputs == [model(word)[0].text for word in ("bad", "k", "lome", "ab")]
    assert outputs == ["baad", "k", "loomee", "aab"]


def test_json_has_the_terms_and_the_objective_is_their_sum(trained: Path) -> None:
    done = decode(trained, b"bad\n", "--weights", FULL, "--n_best", "3", "--json")
    (record,) = map(json.loads, done.stdout.splitlines())
    assert record["input"] == "bad"
    assert len(record["hypotheses"]) == 3
    scores = [h["score"] for h in record["hypotheses"]]
    assert scores == sorted(scores, reverse=True)
    for h in record["hypotheses"]:
        total = 1 * h["direct"] + 0.5 * h["channel"] + 0.3 * h["lm"] + 0.2 * h["length"]
        assert h["score"] == pytest.approx(total, abs=3e-6)
        assert len(h["alignment"]) == h["length"] == len(h["output"]) + 1
        assert len(h["channel_alignment"]) == len("bad") + 1


def test_a_bad_line_is_reported_and_the_rest_decoded(trained: Path) -> None:
    done = decode(trained, b"bad\n\xff\nab\nx\ty\n\n" + b"a" * 50 + b"\n", "--weights", FULL, "--max_symbols", "20")
    assert done.returncode == 1
    outputs = done.stdout.decode().split("\n")
    assert outputs[:4] == ["baad", "", "aab", ""]
    assert len(outputs) == 7, "an output line for each input line, and the last newline"
    complaints = done.stderr.decode().splitlines()
    assert "standard input:2: not UTF-8" in complaints[0]
    assert "standard input:4: 2 columns" in complaints[1]
    assert "standard input:6: 50 symbols, more than --max-symbols 20" in complaints[2]


def strict_json(line: bytes | str) -> dict[str, Any]:
    """As a reader that knows nothing of Python's -Infinity sees it."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    return json.loads(line, parse_constant=refuse)


def test_incomplete_outputs_and_unknown_symbols_are_told(trained: Path, capsys, tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("ab\nbXdX\nxb?\n")
    plain = ["decode", str(trained), str(words), "--weights", FULL]
    assert main(plain) == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 3
    (line,) = shown.err.splitlines()
    assert line == f"noisychannel: 4 unknown symbols, read as <unk>: 'X', 'x', '?' (first: {words}:2)"

    assert main([*plain, "--json", "--k1", "1", "--k2", "1", "--max_length", "1"]) == 0
    shown = capsys.readouterr()
    records = [strict_json(line) for line in shown.out.splitlines()]
    assert [record["unknown_symbols"] for record in records] == [[], ["X", "X"], ["x", "?"]]
    assert [record["unknown_features"] for record in records] == [[], [], []]
    incomplete = [n for n, record in enumerate(records, 1) if not record["hypotheses"][0]["complete"]]
    assert incomplete
    assert all(records[n - 1]["hypotheses"][0]["channel"] is None for n in incomplete), "minus infinity"
    (line,) = shown.err.splitlines()
    counted = "1 incomplete output" if len(incomplete) == 1 else f"{len(incomplete)} incomplete outputs"
    assert line.startswith(f"noisychannel: {counted} (first: {words}:{incomplete[0]}): the search found no end; ")
    assert "4 unknown symbols" in line

    assert main([*plain, "--explain", "--k1", "1", "--k2", "1", "--max_length", "1"]) == 0
    shown = capsys.readouterr()
    assert "unknown symbols, read as <unk>: 'X'\n" in shown.out
    assert "incomplete (…)" in shown.out
    assert "incomplete output" in shown.err

    words.write_text("ab\n")
    assert main(plain) == 0
    assert capsys.readouterr().err == "", "nothing to tell"


@pytest.mark.parametrize("search", ["viterbi", "marginal"])
def test_json_says_which_of_the_two_a_term_is(search: str, trained: Path, capsys, tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("bad\n")
    options = ["--weights", "1,0.5,0,0", "--search", search, "--json"]
    assert main(["decode", str(trained), str(words), *options]) == 0
    (found,) = strict_json(capsys.readouterr().out)["hypotheses"]
    assert (found["direct_is"], found["channel_is"]) == (search, "marginal")
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text(f"bad\t{found['output']}\n")
    assert main(["score", str(trained), str(pairs)]) == 0
    scored = strict_json(capsys.readouterr().out)
    assert found["direct"] == pytest.approx(scored["direct" if search == "marginal" else "direct_viterbi"], abs=1e-4)
    assert found["channel"] == pytest.approx(scored["channel"], abs=1e-4)
    assert main(["decode", str(trained), str(words), "--weights", "1,0,0,0", "--json"]) == 0
    (found,) = strict_json(capsys.readouterr().out)["hypotheses"]
    assert (found["channel"], found["channel_is"]) == (None, None)


def test_explain_shows_a_table_and_the_alignment(trained: Path, capsys, tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("bad\n")
    assert main(["decode", str(trained), str(words), "--weights", FULL, "--n_best", "2", "--explain"]) == 0
    shown = capsys.readouterr().out
    for part in ("baad", "channel", "length", "●"):
        assert part in shown


def test_reranking_gives_the_scores_of_the_search(trained: Path, tmp_path: Path, capsys) -> None:
    model = NoisyChannel.load(trained, weights=Weights.parse(FULL))
    searched = model("lome", n_best=4)
    reranked = model.rerank("lome", [output.text for output in reversed(searched)])
    assert [o.text for o in reranked] == [o.text for o in searched]
    for ours, theirs in zip(reranked, searched, strict=True):
        assert ours.hypothesis.score == pytest.approx(theirs.hypothesis.score, abs=1e-4)
        assert ours.hypothesis.channel == pytest.approx(theirs.hypothesis.channel, abs=1e-4)
    file = tmp_path / "lists.tsv"
    file.write_text("lome\tlome\nlome\tloomee\nab\tabb\nab\taab\n")
    assert main(["decode", str(trained), "--rerank", str(file), "--weights", FULL]) == 0
    assert capsys.readouterr().out.splitlines() == ["loomee", "aab"]


def test_reranking_gives_every_output_back_once(trained: Path, tmp_path: Path, capsys) -> None:
    """Also those that the models cannot tell apart: with unknown symbols, and by case where text is lower-cased."""
    given = ["lYomee", "loomee", "lXomee", "LOOMEE", "lome", "lZZmee"]
    loaded = NoisyChannel.load(trained, weights=Weights.parse(FULL))
    lower = Codec(TextConfig(lowercase=True), Characters(), loaded.output_codec.symbols, ())
    model = NoisyChannel(loaded.input_codec, lower, loaded.models, loaded.weights, loaded.settings)
    reranked = model.rerank("lome", given)
    assert sorted(output.text for output in reranked) == sorted(given)
    scores = [output.hypothesis.score for output in reranked]
    assert scores == sorted(scores, reverse=True)
    texts = [output.text for output in reranked]
    assert texts[:2] == ["loomee", "LOOMEE"]
    assert texts.index("lXomee") == texts.index("lYomee") + 1
    for output in reranked:
        (alone,) = model.rerank("lome", [output.text])
        assert output.hypothesis.score == pytest.approx(alone.hypothesis.score, abs=1e-4)

    file = tmp_path / "lists.tsv"
    file.write_text("".join(f"lome\t{output}\n" for output in given))
    words = ["decode", str(trained), "--rerank", str(file), "--weights", FULL, "--n_best", "9"]
    assert main(words) == 0
    shown = capsys.readouterr()
    lines = [line.split("\t")[1] for line in shown.out.splitlines()]
    assert sorted(lines) == sorted(given)
    assert "10 unknown symbols, read as <unk>: 'Y', 'X', 'L', 'O', 'M', … (first: " in shown.err
    assert "lists.tsv:1)" in shown.err


def test_a_text_that_arrives_in_pieces(trained: Path) -> None:
    model = NoisyChannel.load(trained, weights=Weights.parse(FULL), settings=SearchSettings(max_length=20))
    searched = model("lome", n_best=3)
    online = model.online(margin=math.inf)
    assert online.read("lo").text.startswith("loo")
    online.read("me")
    assert [output.text for output in online.finish(3)] == [output.text for output in searched]
    hurried = model.online(margin=3.0)
    heard = [hurried.read(letter) for letter in "lome"]
    assert all(now.text.startswith(now.stable) for now in heard)
    assert all(later.text.startswith(now.stable) for now, later in itertools.pairwise(heard))
    assert hurried.finish()[0].text.startswith(heard[-1].stable)
    assert heard[-1].stable
    with pytest.raises(ValueError, match="the input has ended"):
        hurried.read("x")


def test_untuned_runs_decode_with_the_direct_model_and_say_so(trained: Path) -> None:
    done = decode(trained, b"bad\n")
    assert done.returncode == 0
    assert b"not tuned, so the direct model decodes alone" in done.stderr
    assert done.stdout.decode().strip() == NoisyChannel.load(trained, weights=Weights(direct=1.0))("bad")[0].text


def test_tune_then_evaluate(trained: Path, tmp_path: Path, capsys) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    assert main(["tune", str(run), "--k1", "6", "--k2", "3", "--limit", "20", "--iterations", "1"]) == 0
    shown = capsys.readouterr().out
    for system in ("direct+length", "direct+lm", "channel+lm", "direct+channel+lm"):
        assert system in shown
    record = json.loads((run / "weights.json").read_text())
    assert record["default"] == "direct+channel+lm"
    full = record["systems"]["direct+channel+lm"]
    direct_only = [step["decoded_score"] for step in full["history"] if step["weights"]["direct"] == 1.0
                   and step["weights"]["channel"] == step["weights"]["lm"] == 0.0]  # fmt: skip
    assert full["dev_score"] >= max(direct_only)
    assert full["search"]["k1"] == 6

    test = write_pairs(tmp_path / "test.tsv", double_vowels, rows=20, seed=9, longest=4)
    result = tmp_path / "result.json"
    words = ["evaluate", str(run), str(test), "--metrics", "[accuracy,edit_distance]", "--json", str(result)]
    assert main(words) == 0
    table = capsys.readouterr().out
    assert table.split("\n\n")[0].count("\n|") == 6, "a rule and five systems under the titles"
    assert "p=" in table
    assert "average lagging" in table, "this direct model is unidirectional"
    measured = {s["system"]: s["measured"]["accuracy"] for s in json.loads(result.read_text())["systems"]}
    model = NoisyChannel.load(run, "direct+lm")
    pairs = [line.split("\t") for line in test.read_text().splitlines()]
    right = sum(model(x)[0].text == y for x, y in pairs)
    assert measured["direct+lm"]["score"] == pytest.approx(100 * right / len(pairs))
    assert measured["direct"]["p_value"] is None
    assert measured["direct+lm"]["low"] <= measured["direct+lm"]["score"] <= measured["direct+lm"]["high"]

    # A narrow search makes errors that are not the model's.
    assert main([*words, "--systems", "channel+lm", "--k1", "1", "--k2", "1", "--search_errors"]) == 0
    assert "search errors" in capsys.readouterr().out
    record = json.loads(result.read_text())["systems"][1]
    assert (record["search"]["k1"], record["search"]["k2"]) == (1, 1)
    narrow = NoisyChannel.load(run, weights=Weights(**record["weights"]), settings=SearchSettings(**record["search"]))
    missed = 0
    for x, y in pairs:
        (found,) = narrow(x)
        (reference,) = narrow.rerank(x, [y])
        missed += found.text != y and reference.hypothesis.score > found.hypothesis.score
    assert 0 < missed < len(pairs)
    assert record["search_errors"] == pytest.approx(100 * missed / len(pairs))
    for given, used in ((["--k1", "2"], (2, 2)), (["--k2", "8"], (8, 8)), (["--k2", "2"], (6, 2))):
        assert main([*words, "--systems", "channel+lm", *given]) == 0
        search = json.loads(result.read_text())["systems"][1]["search"]
        assert (search["k1"], search["k2"]) == used
    capsys.readouterr()
    assert main([*words, "--systems", "channel+lm", "--k1", "2", "--k2", "3"]) == 2
    assert "k1 and k2 must satisfy" in capsys.readouterr().err


def test_tuning_with_room_for_nothing_is_refused_and_with_little_works(trained: Path, tmp_path: Path, capsys) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    narrow = ["tune", str(run), "--k1", "1", "--k2", "1", "--limit", "20", "--iterations", "1", "--max-length"]
    assert main([*narrow, "1"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--max-length: must be at least 2, but is 1" in line
    assert not (run / "weights.json").exists()
    assert main([*narrow, "2"]) == 0
    assert "tuning on 20 dev pairs" in capsys.readouterr().err


def test_a_tuning_that_is_interrupted_leaves_the_default_alone(
    trained: Path, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    words = ["tune", str(run), "--k1", "4", "--k2", "2", "--limit", "20", "--iterations", "1"]

    def interrupted(system: System, *arguments: Any, **options: Any) -> TuningResult:
        if system.name == "channel+lm":
            raise KeyboardInterrupt
        return tune(system, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr("noisychannel.tuning.run.tune", interrupted)
        patch.setattr("noisychannel.tuning.run.FEW_PAIRS", 20)  # dev pairs that are enough
        assert main(words) == 1
        assert "With fewer than" not in capsys.readouterr().err
        record = json.loads((run / "weights.json").read_text())
        assert list(record["systems"]) == ["direct+length", "direct+lm"]
        assert "default" not in record
        assert NoisyChannel.load(run).weights == Weights(direct=1.0)
        assert b"not tuned, so the direct model decodes alone" in decode(run, b"bad\n").stderr

        assert main([*words, "--systems", "direct+lm"]) == 0
        assert main(words) == 1
        assert json.loads((run / "weights.json").read_text())["default"] == "direct+lm"
    assert main(words) == 0
    assert json.loads((run / "weights.json").read_text())["default"] == "direct+channel+lm"


def test_groups_are_tuned_and_evaluated_together(tmp_path: Path, capsys) -> None:
    """Their weights are shared, and each decodes its own items, whatever the order of the file."""
    config = toy_config(tmp_path, models=("direct", "lm"), longest=4, max_epochs=2)
    tasks = {"doubled": double_vowels, "same": copy}
    files = {"train": config.data.train[0], "dev": config.data.dev[0], "test": str(tmp_path / "test.tsv")}
    for seed, file in enumerate(files.values()):
        lines = []
        for group, task in tasks.items():
            pairs = write_pairs(tmp_path / "pairs.tsv", task, 20 if seed else 200, seed, longest=4)
            lines += [f"{line}\t{group}\n" for line in pairs.read_text().splitlines()]
        Path(file).write_text("".join(lines[0::2] + lines[1::2]))
    config.data.columns = "input,output,group"
    (tmp_path / "config.yaml").write_text(dump_config(config))
    assert main(["train", str(tmp_path / "config.yaml")]) == 0
    run = RunDirectory(Path(config.run_dir))
    assert main(["tune", str(run.path), "--k1", "6", "--k2", "3", "--iterations", "1"]) == 0
    written = [json.loads((of_group.path / "weights.json").read_text())["systems"] for of_group in run.groups()]
    assert len(written) == 2
    models_of = [[system.pop("models") for system in systems.values()] for systems in written]
    assert models_of[0] != models_of[1]
    assert written[0] == written[1]
    assert written[0]["direct+lm"]["dev_sentences"] == 40

    result = tmp_path / "result.json"
    assert main(["evaluate", str(run.path), files["test"], "--json", str(result)]) == 0
    record = json.loads(result.read_text())
    assert record["sentences"] == 40
    models = {group: NoisyChannel.load(run.group(group).path, "direct+lm") for group in tasks}
    items = [line.split("\t") for line in Path(files["test"]).read_text().splitlines()]
    right = sum(models[group](x)[0].text == y for x, y, group in items)
    assert 0 < right < 40
    (measured,) = [system for system in record["systems"] if system["system"] == "direct+lm"]
    assert measured["measured"]["accuracy"]["score"] == pytest.approx(100 * right / 40)
    assert measured["weights"] == written[0]["direct+lm"]["weights"]

    # One of them can be tuned alone; evaluation then uses, and notes, the weights of each.
    one = run.group("same")
    assert main(["tune", str(one.path), "--systems", "direct+lm", "--iterations", "1", "--limit", "5"]) == 0
    assert main(["evaluate", str(run.path), files["test"], "--json", str(result)]) == 0
    alone, other, _, measured = json.loads(result.read_text())["systems"]
    assert [alone["system"], other["system"]] == ["direct (k1 6, k2 3)", "direct (k1 6/20, k2 3/10)"]
    assert measured["system"] == "direct+lm"
    assert measured["compared_with"] == other["system"]
    assert set(measured["search"]) == set(tasks)
    (run.group("doubled").path / "weights.json").unlink()
    capsys.readouterr()
    assert main(["evaluate", str(run.path), files["test"], "--json", str(result)]) == 0
    assert "skipping direct+length, direct+lm" in capsys.readouterr().err
    assert [system["system"] for system in json.loads(result.read_text())["systems"]] == ["direct"]
    same = tmp_path / "same.tsv"
    same.write_text("".join(f"{x}\t{y}\t{group}\n" for x, y, group in items if group == "same"))
    assert main(["evaluate", str(run.path), str(same), "--json", str(result)]) == 0
    named = [system["system"] for system in json.loads(result.read_text())["systems"]]
    alone = ["direct (k1 6, k2 3)", "direct (k1 20, k2 10)"]
    assert named == [*alone, "direct+length", "direct+lm"], "only groups with items matter"
    assert main(["evaluate", str(run.group("doubled").path), str(same)]) == 2
    assert "has no lines of the group 'doubled'" in capsys.readouterr().err

    capsys.readouterr()
    Path(files["test"]).write_text("a\ta\tother\n")
    assert main(["evaluate", str(run.path), files["test"]]) == 2
    assert "test.tsv:1: the run has no group 'other'; it has doubled, same" in capsys.readouterr().err
    assert main(["evaluate", str(run.path), files["test"], "--columns", "input,output,-"]) == 2
    assert "has groups, so FILE needs the outputs and a column" in capsys.readouterr().err
    assert main(["tune", str(run.path), "--systems", "channel+lm"]) == 2
    assert "channel+lm needs the model channel, which the run does not have" in capsys.readouterr().err


def test_features_reach_the_channel_before_the_output(tmp_path: Path) -> None:
    """Online search and reranking agree, so the channel has read the features in both."""
    config = toy_config(tmp_path, models=("direct", "channel"), max_epochs=1, longest=4)
    tag(config, "V;PST")
    (tmp_path / "config.yaml").write_text(dump_config(config))
    assert main(["train", str(tmp_path / "config.yaml")]) == 0
    model = NoisyChannel.load(config.run_dir, weights=Weights(1.0, 0.7))
    (searched,) = model("abe", features=("V", "PST"))
    (reranked,) = model.rerank("abe", [searched.text], features=("V", "PST"))
    assert reranked.hypothesis.channel == pytest.approx(searched.hypothesis.channel, abs=1e-4)
    (bare,) = model.rerank("abe", [searched.text])
    assert bare.hypothesis.channel != pytest.approx(searched.hypothesis.channel, abs=1e-3)
    assert (
        decode(Path(config.run_dir), b"abe\tV;PST\n", "--weights", "1,0.7,0,0").stdout.decode().strip() == searched.text
    )
    lists = tmp_path / "lists.tsv"
    lists.write_text("abe\taabee\tV;PST\n")
    done = decode(Path(config.run_dir), b"", "--rerank", str(lists), "--weights", "1,0.7,0,0", "--json")
    (record,) = json.loads(done.stdout)["hypotheses"]
    (given,) = model.rerank("abe", ["aabee"], features=("V", "PST"))
    assert record["channel"] == pytest.approx(given.hypothesis.channel, abs=1e-4)

    done = decode(Path(config.run_dir), b"abe\tV;FUT\n", "--weights", "1,0.7,0,0", "--json")
    assert b"1 unknown feature, read as <unk>: 'FUT' (first: standard input:1)" in done.stderr
    assert json.loads(done.stdout)["unknown_features"] == ["FUT"]
    with pytest.raises(ValueError, match="online decoding takes no features"):
        model.online()

    record = json.loads(decode(Path(config.run_dir), b"abe\tV;PST\n", "--json").stdout)
    assert record["input_symbols"] == ["<V>", "<PST>", "a", "b", "e"]
    (best,) = record["hypotheses"]
    drawn = decode(Path(config.run_dir), b"abe\tV;PST\n", "--explain").stdout.decode().split("\n\n")[0]
    grid = drawn.splitlines()[-6:]
    assert [line.split()[0] for line in grid] == ["<V>", "<PST>", "a", "b", "e", "␄"]
    points = [[column for column, cell in enumerate(line.split()[1:]) if cell == "●"] for line in grid]
    assert points == [[j for j, i in enumerate(best["alignment"]) if i == row] for row in range(6)]


@pytest.mark.parametrize("features", [(), ("V", "PST")])
def test_a_search_asks_the_models_what_they_were_trained_to_answer(features: tuple[str, ...], tmp_path: Path) -> None:
    """The terms of the dev pairs, as decoding computes them, are those of the dev perplexities."""
    config = toy_config(tmp_path, models=("direct", "channel", "lm"), max_epochs=2, longest=4)
    if features:
        tag(config, ";".join(features))
    (tmp_path / "config.yaml").write_text(dump_config(config))
    assert main(["train", str(tmp_path / "config.yaml")]) == 0
    model = NoisyChannel.load(
        config.run_dir, weights=Weights(1.0, 1.0, 1.0), settings=SearchSettings(search="marginal")
    )
    run = RunDirectory(Path(config.run_dir))
    lost, symbols = dict.fromkeys(("direct", "channel", "lm"), 0.0), dict.fromkeys(("direct", "channel", "lm"), 0)
    for line in Path(config.data.dev[0]).read_text().splitlines():
        x, y = line.split("\t")[:2]
        (found,) = model.rerank(x, [y], features)
        for role in lost:
            lost[role] -= getattr(found.hypothesis, role)
            written = x if role == "channel" else y
            symbols[role] += len(written) + 1 + (0 if role == "direct" else len(features))
    for role, total in lost.items():
        assert math.exp(total / symbols[role]) == pytest.approx(run.dev_perplexity(role), rel=1e-3), role


def test_several_references(trained: Path, tmp_path: Path, capsys) -> None:
    """A word-for-word match with any reference counts; the second file alone makes the third input right."""
    outputs = [NoisyChannel.load(trained)(word)[0].text for word in ("bad", "ab", "lome")]
    words, first, second = (tmp_path / name for name in ("words.txt", "first.txt", "second.txt"))
    words.write_text("bad\nab\nlome\n")
    first.write_text(f"{outputs[0]}\nnever\nnever\n")
    second.write_text(f"never\nnever\n{outputs[2]}\n")
    scores = []
    for references in ([first], [second], [first, second]):
        result = tmp_path / "result.json"
        names = "[" + ",".join(map(str, references)) + "]"
        command = ["evaluate", str(trained), str(words), "--references", names, "--metrics", "[accuracy,edit_distance]"]
        assert main([*command, "--json", str(result)]) == 0
        (system,) = json.loads(result.read_text())["systems"]
        scores.append({name: measured["score"] for name, measured in system["measured"].items()})
    assert [score["accuracy"] for score in scores] == pytest.approx([100 / 3, 100 / 3, 200 / 3])
    assert scores[2]["edit_distance"] < min(scores[0]["edit_distance"], scores[1]["edit_distance"])
    second.write_text("never\n")
    assert main([*command]) == 2
    assert "second.txt: 1 references, but there are 3 inputs" in capsys.readouterr().err.splitlines()[-1]


def test_a_model_whose_training_diverged_is_one_line(trained: Path, tmp_path: Path, capsys) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    file = run / "channel" / "model.safetensors"
    tensors = load_file(file)
    tensors["emit.weight"][0, 3] = float("nan")
    with safe_open(file, "pt") as opened:
        save_file(tensors, file, opened.metadata())
    RunDirectory(run).record_files("channel")
    assert main(["decode", str(run), "--weights", FULL]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "channel/model.safetensors: NaN or infinite weights (emit.weight)" in line


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--weights", "1,2"], "--weights: give four numbers"),
        (
            ["--weights", "direct=1,chanel=2"],
            "the weight chanel is 2.0, but there is no such term; did you mean channel?",
        ),
        (["--weights", "1,x,0,0"], "--weights: the weight channel must be a number, but is 'x'"),
        (["--weights", "direct=a"], "--weights: the weight direct must be a number, but is 'a'"),
        (["--weights", "direct=1,direct=2"], "--weights: a weight is given twice in 'direct=1,direct=2'"),
        (["--weights", "1,nan,0,0"], "must be a finite number"),
        (["--system", "direct+channel"], "the system direct+channel has not been tuned; there are direct."),
        (["--system", "channel+lm"], "has not been tuned"),
        (["--k1", "2", "--k2", "3"], "1 <= k2 <= k1"),
        (["--n_best", "0"], "--n_best: must be at least 1"),
        (["--search", "greedy"], "search"),
        (["nowhere.txt"], "nowhere.txt: no such file"),
    ],
)
def test_bad_options_of_decode(words: list[str], complaint: str, trained: Path, capsys) -> None:
    assert main(["decode", str(trained), *words]) == 2
    assert complaint in capsys.readouterr().err.splitlines()[-1]


def test_bad_options_of_tune_and_evaluate(trained: Path, tmp_path: Path, capsys) -> None:
    assert main(["tune", str(trained), "--systems", "[directchannel]"]) == 2
    assert "unknown system 'directchannel'" in capsys.readouterr().err
    assert main(["tune", str(trained), "--metric", "acuracy"]) == 2
    assert "did you mean accuracy?" in capsys.readouterr().err
    for command, words, complaint in (
        ("tune", ["--n_best", "0"], "--n_best: must be at least 1, but is 0"),
        ("tune", ["--limit", "-1"], "--limit: must be at least 0, but is -1"),
        ("tune", ["--iterations", "-3"], "--iterations: must be at least 0, but is -3"),
        ("tune", ["--seed", "-1"], "--seed: must be at least 0 and at most 4294967295, but is -1"),
        ("tune", ["--systems", "direct"], "direct has no weights to tune"),
        ("evaluate", ["x.tsv", "--batch_size", "0"], "--batch_size: must be at least 1, but is 0"),
        ("evaluate", ["x.tsv", "--seed", "-1"], "--seed: must be at least 0 and at most 4294967295, but is -1"),
        ("evaluate", ["x.tsv", "--json", "."], "--json: . cannot be a file"),
        ("evaluate", ["x.tsv", "--json", "nowhere/x.json"], "--json: nowhere/x.json cannot be a file"),
    ):
        assert main([command, str(trained), *words]) == 2
        assert complaint in capsys.readouterr().err
    (tmp_path / "empty.tsv").write_text("")
    assert main(["evaluate", str(trained), str(tmp_path / "empty.tsv")]) == 2
    assert "empty.tsv: empty" in capsys.readouterr().err
    with pytest.raises(BadInputError):
        NoisyChannel.load(tmp_path)


def test_systems_are_tuned_from_small_to_large(trained: Path, tmp_path: Path) -> None:
    """In whatever order they are named: only then is a larger one never below a smaller one on dev."""
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    systems = "[direct+channel+lm,direct+lm,direct+length]"
    few = ["--k1", "4", "--k2", "2", "--limit", "20", "--iterations", "1"]
    assert main(["tune", str(run), "--systems", systems, *few]) == 0
    record = json.loads((run / "weights.json").read_text())
    assert list(record["systems"]) == ["direct+length", "direct+lm", "direct+channel+lm"]
    assert record["default"] == "direct+channel+lm"


def test_models_that_are_unfinished_are_told_of(trained: Path, tmp_path: Path, capsys) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    shutil.copy(run / "direct" / "stopped.safetensors", run / "direct" / "training.safetensors")
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("abe\taabee\n")
    told = (
        f"{run}: the training of direct is unfinished, this is its best model so far; finish it with noisychannel train"
    )
    for words in (
        ["score", str(run), str(pairs)],
        ["evaluate", str(run), str(pairs)],
        ["decode", str(run), "--rerank", str(pairs)],
        ["tune", str(run), "--limit", "5", "--iterations", "0", "--systems", "direct+length"],
    ):
        assert main(words) == 0
        assert told in capsys.readouterr().err, words
    (run / "channel" / "model.safetensors").unlink()
    shutil.copy(run / "direct" / "stopped.safetensors", run / "channel" / "training.safetensors")
    assert main(["tune", str(run), "--limit", "5", "--iterations", "0"]) == 0
    assert "the training of channel is unfinished, it has no model yet" in capsys.readouterr().err


def test_a_run_that_was_never_tuned_is_evaluated_with_a_hint(trained: Path, tmp_path: Path, capsys) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("abe\taabee\n")
    assert main(["evaluate", str(trained), str(pairs)]) == 0
    shown = capsys.readouterr()
    assert (
        f"not tuned, so the direct model is evaluated alone; for the others, first run noisychannel tune {trained}"
        in shown.err
    )
    assert "1 units, too few for reliable intervals and p-values" in shown.out
