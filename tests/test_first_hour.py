"""What a newcomer meets first: blank lines, -, n-best lists, simultaneous decoding, progress, estimates of time."""

from __future__ import annotations

import io
import itertools
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from commands import run_here
from noisychannel import NoisyChannel
from noisychannel.arguments import dump_config
from noisychannel.cli import progress
from noisychannel.cli.main import main
from noisychannel.cli.progress import LineDisplay, TerminalReporter
from noisychannel.cli.prompt import prompted
from noisychannel.data.codec import Codec
from noisychannel.data.files import Line
from noisychannel.data.prepare import DataSource
from noisychannel.data.rows import read_parallel
from noisychannel.decode.settings import SearchSettings
from noisychannel.errors import BadInputError, did_you_mean_system
from noisychannel.evaluation.held_out import HeldOut
from noisychannel.fitting.options import FitOptions, UserData
from noisychannel.reporting import Advance, Pace, Silent, duration, rate
from noisychannel.runs import RunDirectory
from noisychannel.streams import LineDecoder
from noisychannel.text import Characters, TextConfig
from noisychannel.training import timing
from noisychannel.training.events import Advanced, Finished, Started
from noisychannel.training.run import train_run
from noisychannel.tuning.run import TuneOptions, drawn_pairs, tune_run
from toys import double_vowels, tag, toy_config, write_pairs

FEW = ["--k1", "3", "--k2", "2", "--limit", "8", "--iterations", "0"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("hour")
    config = toy_config(directory, models=("direct", "channel", "lm"), rows=300, longest=4, max_epochs=3)
    train_run(config, lambda event: None, lambda line: None)
    return Path(config.run_dir)


def told(done: subprocess.CompletedProcess[bytes]) -> str:
    return done.stderr.decode()


# Lines.


def test_a_blank_input_gives_a_blank_output(run: Path) -> None:
    done = run_here(["decode", str(run)], b"bad\n\n \t\nk\n")
    first, second, third, fourth = done.stdout.decode().split("\n")[:4]
    assert (done.returncode, second, third) == (0, "", "")
    alone = run_here(["decode", str(run)], b"bad\nk\n").stdout.decode().splitlines()
    assert [first, fourth] == alone
    records = [json.loads(line) for line in run_here(["decode", str(run), "--json"], b"\nk\n").stdout.splitlines()]
    assert (records[0]["input"], records[0]["hypotheses"]) == ("", [])
    assert records[1]["hypotheses"]


def test_an_input_without_lines_is_told_of(run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "blank.txt").write_text("\n")
    for words in ([], ["--json"], ["--output", str(tmp_path / "out.txt")]):
        done = run_here(["decode", str(run), str(tmp_path / "empty.txt"), "--system", "direct", *words], b"")
        assert (done.returncode, done.stdout) == (0, b"")
        assert told(done) == "noisychannel: there were no lines to decode\n"
    assert told(run_here(["decode", str(run), str(tmp_path / "blank.txt"), "--system", "direct"], b"")) == ""


def test_a_directory_of_runs_names_them(run: Path, tmp_path: Path) -> None:
    def complaint() -> str:
        done = run_here(["decode", str(tmp_path)], b"")
        assert done.returncode == 2
        return told(done)

    assert complaint().endswith("not a run directory (no run.json); create one with noisychannel fit or train\n")
    for name in "dbca":
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text("{}")
    named = ", ".join(str(tmp_path / name) for name in "abc")
    assert complaint().endswith(f"not a run directory (no run.json); name one of the runs inside: {named}, …\n")


def test_only_a_pattern_is_called_one(run: Path, tmp_path: Path) -> None:
    for name, message in (("gone.txt", "no such file"), ("*.gone", "no such file, and no file matches the pattern")):
        done = run_here(["decode", str(run), str(tmp_path / name), "--system", "direct"], b"")
        assert (done.returncode, told(done)) == (2, f"noisychannel: {tmp_path / name}: {message}\n")


def test_a_system_is_suggested_by_its_terms() -> None:
    known = ["direct", "direct+channel+lm+seen", "direct+lm+seen", "direct+length"]
    for asked, meant in {
        "direct+lm": "direct+lm+seen",
        "lm+direct": "direct+lm+seen",
        "channel+lm": "direct+channel+lm+seen",
        "direkt": "direct",
    }.items():
        assert did_you_mean_system(asked, known) == f"; did you mean {meant}?"


def test_rows_of_an_n_best_list_begin_with_their_input(run: Path, tmp_path: Path) -> None:
    done = run_here(["decode", str(run), "--n-best", "3"], b"bad\n\nk\n")
    rows = [line.split("\t") for line in done.stdout.decode().splitlines()]
    assert [row[0] for row in rows] == ["bad"] * 3 + [""] + ["k"] * 3
    model = NoisyChannel.load(run)
    assert [row[1] for row in rows[:3]] == [output.text for output in model("bad", n_best=3)]
    assert float(rows[0][2]) >= float(rows[1][2])

    config = toy_config(tmp_path, rows=60, max_epochs=1)
    tag(config, "V;PST")
    train_run(config, lambda event: None, lambda line: None)
    done = run_here(["decode", config.run_dir, "--n-best", "2"], b"abe\tV;PST\n")
    given = done.stdout.decode()
    assert [line.split("\t")[:2] for line in given.splitlines()] == [["abe", "V;PST"]] * 2
    lists = tmp_path / "lists.tsv"
    lists.write_text("abe\taabee\tV;PST\n\nabe\tabe\tV;PST\n")
    done = run_here(["decode", config.run_dir, "--rerank", str(lists), "--n-best", "2"], b"")
    assert [line.split("\t")[:2] for line in done.stdout.decode().splitlines()] == [["abe", "V;PST"]] * 2
    assert "1 blank line skipped" in told(done)


def test_a_dash_is_standard_input_everywhere(run: Path, tmp_path: Path) -> None:
    pairs = write_pairs(tmp_path / "pairs.tsv", double_vowels, rows=5, seed=3, longest=4)
    data = pairs.read_bytes().replace(b"\n", b"\n\n", 1)
    inputs = b"".join(line.split(b"\t")[0] + b"\n" for line in data.splitlines() if line)
    assert run_here(["decode", str(run), "-"], inputs).stdout == run_here(["decode", str(run)], inputs).stdout
    both = tmp_path / "inputs.txt"
    both.write_bytes(b"k\n")
    together = run_here(["decode", str(run), str(both), "-"], inputs).stdout
    assert together.count(b"\n") == 6
    scored = run_here(["score", str(run), "-"], data)
    assert scored.stdout == run_here(["score", str(run), str(pairs)], b"").stdout
    assert "1 blank line skipped" in told(scored)
    here = run_here(["evaluate", str(run), "-"], data)
    there = run_here(["evaluate", str(run), str(pairs)], b"")
    assert "1 blank line skipped (standard input)" in told(here)
    score = r"\| direct +\| ([^|]*)\|"
    assert re.findall(score, here.stdout.decode()) == re.findall(score, there.stdout.decode()) != []
    lists = run_here(["decode", str(run), "--rerank", "-"], data)
    assert lists.stdout.count(b"\n") == 5


def test_standard_input_is_read_once(run: Path, tmp_path: Path) -> None:
    for words in (["decode", str(run), "-", "-"], ["evaluate", str(run), "-", "--references", "-"]):
        done = run_here(words, b"bad\n")
        assert done.returncode == 2
        assert told(done).startswith("noisychannel: standard input (-) is named twice, but can be read once")
    done = run_here(["fit", "-", "--words", "-", "--run-dir", str(tmp_path / "run")], b"bad\n")
    assert "standard input (-) is named twice" in told(done)
    done = run_here(["fit", "-"], b"a\tb\n")
    assert told(done) == (
        "noisychannel: --run-dir: pairs from standard input have no name; name a directory for the run\n"
    )
    done = run_here(["train", str(run / "config.yaml"), "--data.train", "-", "--run-dir", str(tmp_path / "new")], b"")
    assert "standard input (-) can be read once, but training data is read several times" in told(done)


def test_fit_copies_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = write_pairs(tmp_path / "pairs.tsv", double_vowels, rows=60, seed=3)
    words = b"".join(line.split(b"\t")[1] + b"\n\n" for line in pairs.read_bytes().splitlines())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(words)))
    options = FitOptions(pairs=str(pairs), words=["-"], run_dir=str(tmp_path / "run"))
    copied = options.with_standard_input(tmp_path)
    data = UserData.read(copied)
    assert len(data.words) == len({line for line in words.splitlines() if line})
    assert data.blank == f"60 blank lines skipped ({tmp_path / 'standard input'})"
    assert options.with_standard_input(tmp_path) != options


def test_train_counts_blank_lines(tmp_path: Path, capsys) -> None:
    config = toy_config(tmp_path, rows=30, max_epochs=1)
    train = Path(config.data.train[0])
    train.write_text(train.read_text().replace("\n", "\n\n", 12))
    (tmp_path / "config.yaml").write_text(dump_config(config))
    assert main(["train", str(tmp_path / "config.yaml")]) == 0
    assert f"data.train: 12 blank lines skipped ({train})" in capsys.readouterr().err
    assert RunDirectory(Path(config.run_dir)).header().data.train["lines"] == 30


def test_further_references_skip_the_same_blank_lines(run: Path, tmp_path: Path, capsys) -> None:
    texts = {"x": "bad\n\nk\n", "one": "baad\n\nk\n", "two": "bad\n\nkk\n", "bad": "bad\nkk\n\n"}
    texts |= {"short": "bad\nkk\n", "long": "bad\n\nkk\nmore\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    words = ["evaluate", str(run), str(tmp_path / "x"), "--samples", "10", "--references"]
    assert main([*words, f"{tmp_path / 'one'},{tmp_path / 'two'}"]) == 0
    assert "1 blank line skipped" in capsys.readouterr().err
    assert main([*words, f"{tmp_path / 'one'},{tmp_path / 'bad'}"]) == 2
    assert "not parallel to" in capsys.readouterr().err
    assert main([*words, f"{tmp_path / 'one'},{tmp_path / 'short'}"]) == 2
    assert f"short:2: not parallel to {tmp_path / 'x'}:3" in capsys.readouterr().err
    assert main([*words, f"{tmp_path / 'one'},{tmp_path / 'long'}"]) == 2
    assert "long:4: a reference without an input" in capsys.readouterr().err


def test_further_references_of_several_files_are_parallel_file_by_file(tmp_path: Path) -> None:
    for name, texts in {"x": ("a\n\n", "\nb\n"), "good": ("A\n\n", "\nB\n"), "bad": ("A\nB\n", "\n\n")}.items():
        (tmp_path / name).mkdir()
        for n, text in enumerate(texts):
            (tmp_path / name / str(n)).write_text(text)
    rows = list(read_parallel([str(tmp_path / "x")], [str(tmp_path / "x")]))
    codec = Codec(TextConfig(), Characters(), list("aAbB"), [])
    assert HeldOut.read("x", rows, [str(tmp_path / "good")], codec).references == [["a", "A"], ["b", "B"]]
    with pytest.raises(BadInputError, match="not parallel"):
        HeldOut.read("x", rows, [str(tmp_path / "bad")], codec)


# Simultaneous decoding.


def test_online_shows_how_the_output_grows(run: Path) -> None:
    done = run_here(["decode", str(run), "--online"], b"lome\n\nx\ty\nk\n")
    assert done.returncode == 1, "a line has two columns"
    lines = done.stdout.decode().split("\n")
    steps = [line.split("\t") for line in lines[:5]]
    assert [step[0] for step in steps] == ["l", "lo", "lom", "lome", "lome␄"]
    assert all(text.startswith(stable) for _, text, stable in steps)
    assert all(later[1].startswith(now[2]) for now, later in itertools.pairwise(steps))
    online = NoisyChannel.load(run).online()
    partial = [online.read(letter) for letter in "lome"]
    assert [(step[1], step[2]) for step in steps[:4]] == [(now.text, now.stable) for now in partial]
    assert steps[4][1] == steps[4][2] == online.finish()[0].text
    assert lines[5:7] == ["", ""], "the blank line, and the one that is no input"
    assert [line.split("\t")[0] for line in lines[7:9]] == ["k", "k␄"]
    hurried = run_here(["decode", str(run), "--online", "--margin", "0.01"], b"lome\n").stdout.decode().split("\n")
    assert hurried[3].split("\t")[2] > "", "with a small margin something is stable before the end"
    record = json.loads(run_here(["decode", str(run), "--online", "--json"], b"lome\n").stdout)
    assert [step["read"] for step in record["steps"]] == ["l", "lo", "lom", "lome"]
    assert record["hypotheses"][0]["output"] == steps[4][1]


def test_online_refuses_what_it_cannot_do(run: Path, tmp_path: Path) -> None:
    for option in (["--explain"], ["--n-best", "2"], ["--output", str(tmp_path / "x")]):
        done = run_here(["decode", str(run), "--online", *option], b"k\n")
        assert done.returncode == 2
        assert f"--online and {option[0]} exclude each other" in told(done)
    assert "--margin would be ignored" in told(run_here(["decode", str(run), "--margin", "2"], b"k\n"))
    config = toy_config(tmp_path, rows=40, bidirectional=True, max_epochs=1)
    train_run(config, lambda event: None, lambda line: None)
    done = run_here(["decode", config.run_dir, "--online"], b"k\n")
    assert done.returncode == 2
    (line,) = [line for line in told(done).splitlines() if "--online" in line]
    assert line == (
        "noisychannel: --online: the direct model of this run is bidirectional, so it reads the whole input before it "
        "writes; train one with --direct.bidirectional false"
    )


# A terminal.


def test_decode_prompts_on_a_terminal(run: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = pty.openpty()
    with open(follower, encoding="utf-8") as keyboard:
        monkeypatch.setattr(sys, "stdin", keyboard)
        os.write(leader, b"bad\nk\n\x04")
        assert main(["decode", str(run)]) == 0
        shown = capsys.readouterr()
        os.write(leader, b"k\n\x04")
        assert main(["decode", str(run), "-", "--online"]) == 0
    os.close(leader)
    model = NoisyChannel.load(run)
    assert shown.out.splitlines() == [model(word)[0].text for word in ("bad", "k")]
    assert "type an input, then Enter; Ctrl-D ends\n> > > \n" in shown.err
    assert "type an input, then Enter; Ctrl-D ends\n> > \n" in capsys.readouterr().err


def test_each_answer_comes_before_the_next_line_is_read(run: Path) -> None:
    order: list[str] = []

    def typed() -> Iterator[Line]:
        for number, word in enumerate(("bad", "k"), start=1):
            order.append(f"read {word}")
            yield Line(word, Path("keyboard"), number)

    directory = RunDirectory.open(run)
    decoder = LineDecoder(NoisyChannel.load(run), directory.data_config)
    for line in decoder.decode(prompted(typed(), "an input"), one_by_one=True):
        order.append(f"answer {line.text}")
    assert order == ["read bad", "answer bad", "read k", "answer k"]


def test_a_bar_has_a_total_or_a_rate_but_no_question_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    for total in (None, 888):
        screen = io.StringIO()
        with progress._bar(Pace("decode", total), Console(file=screen, force_terminal=True, width=120)) as advance:
            advance(111)
            time.sleep(0.12)
            advance(111)
        assert "?" not in screen.getvalue().replace("\x1b[?25", "")
        assert ("222 of 888" if total else "222 done, ") in screen.getvalue()
        assert ("left" in screen.getvalue()) == (total is not None)


# Lines of progress.


def test_lines_come_at_intervals_and_not_from_quick_work(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    with TerminalReporter().counting("decode", 100) as advance:
        advance(100)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.1)
    reporter = TerminalReporter()
    with reporter.counting("decode", 100, start=20) as advance:
        advance(30)
        time.sleep(0.35)
    lines = capsys.readouterr().err.splitlines()
    assert 2 <= len(lines) <= 4
    assert all(re.fullmatch(r"decode: 50 of 100, [\d.,]+ a second, about 1 s left", line) for line in lines)
    with reporter.counting("decode", None, enabled=False) as advance:
        time.sleep(0.2)
    assert capsys.readouterr().err == ""


def test_words_for_times_and_rates() -> None:
    assert [duration(x) for x in (0.2, 89, 95, 3600, 6720)] == ["1 s", "89 s", "2 min", "60 min", "112 min"]
    assert duration(7300) == "2 h 2 min"
    assert [rate(*x) for x in ((1, 60), (50, 10), (3000, 2))] == ["1 a minute", "5.0 a second", "1,500 a second"]
    assert str(Pace("decode", 5)).startswith("decode: 0 of 5, ")


def test_a_training_tells_how_far_it_is_inside_an_epoch(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    display = LineDisplay()
    for label in ("lm", "direct", "channel", "attention"):
        display(Started(label, 0, 1000, 17))
    display.running["lm"].began -= 50.0
    display(Advanced("lm", 100, 1.5, 100.0))
    assert capsys.readouterr().err.splitlines()[-1].endswith("; and 1 more")
    for label in ("direct", "channel", "attention"):
        display(Finished(label, 10, 10, 2.0, 1.0))
    display(Advanced("lm", 200, 1.25, 100.0))
    assert capsys.readouterr().err.splitlines()[-1] == "lm: step 200 of 1,000, loss 1.250, at most 3 min left"


class Counter(Silent):
    """Remembers the totals and what was counted."""

    def __init__(self) -> None:
        self.counted: list[list[int]] = []

    @contextmanager
    def counting(self, label: str, total: int | None = None) -> Iterator[Advance]:
        assert total is not None
        self.counted.append([total, 0])

        def advance(more: int) -> None:
            assert more >= 0
            self.counted[-1][1] += more

        yield advance


def test_tune_tells_its_total_and_the_score_of_the_direct_model(run: Path, tmp_path: Path, capsys) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    counter, options = Counter(), TuneOptions(limit=8, iterations=1, systems=["direct+lm", "channel+lm"])
    results = tune_run(RunDirectory.open(copy), options, SearchSettings(k1=3, k2=2), counter)
    assert [done for _, done in counter.counted] == [total for total, _ in counter.counted]
    assert main(["tune", str(copy), *FEW, "--systems", "direct+lm,direct+channel+lm"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown] == ["direct", "direct+lm", "direct+channel+lm"]
    dev = list(DataSource(RunDirectory.open(copy).data_config).rows("dev"))
    pairs = [(row.input, row.output) for row in drawn_pairs(dev, 8)]
    model = NoisyChannel.load(copy, "direct")
    right = sum(model(x)[0].text == y for x, y in pairs)
    assert shown[0].split() == ["direct", "dev", "accuracy", f"{100 * right / len(pairs):.2f}"]
    assert {result.alone_score for result in results if result.system != "channel+lm"} == {100 * right / len(pairs)}


# How long a training takes.


def test_train_says_how_long_it_will_take(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    config = toy_config(tmp_path, rows=60, models=("direct", "lm"), max_epochs=4, patience=2)
    (tmp_path / "config.yaml").write_text(dump_config(config))
    assert main(["train", str(tmp_path / "config.yaml")]) == 0
    lines = capsys.readouterr().err.splitlines()
    estimated = next(n for n, line in enumerate(lines) if line.startswith("estimated time: "))
    assert "on this machine" in lines[estimated]
    assert re.search(r"direct .*\(9 to 12 updates of [\d.]+ ms\)", lines[estimated]), lines[estimated]
    assert estimated < next(n for n, line in enumerate(lines) if "parameters" in line)
    assert not any(line.startswith("warning") for line in lines)

    monkeypatch.setattr(timing, "LONG", 0.0)
    monkeypatch.setattr(timing, "SHORTER", 1e-6)
    again = ["train", str(tmp_path / "config.yaml"), "--run-dir", str(tmp_path / "again")]
    assert main([*again, "--lm.num-layers", "2", "--lm.hidden-size", "64"]) == 0
    (warning,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    for part in ("--direct.max-updates 100", "--lm.max-updates 100", "hidden-size (now", "noisychannel fit"):
        assert part in warning


def test_an_estimate_changes_nothing(tmp_path: Path) -> None:
    models = []
    for estimate in (False, True):
        config = toy_config(tmp_path / str(estimate), rows=60, max_epochs=1)
        train_run(config, lambda event: None, lambda line: None, estimate=estimate)
        models.append((Path(config.run_dir) / "direct" / "model.safetensors").read_bytes())
    assert models[0] == models[1]


def test_a_resumed_training_has_less_left(tmp_path: Path) -> None:
    said: list[str] = []
    config = toy_config(tmp_path, rows=60, max_epochs=4, patience=9)
    train_run(config, lambda event: None, said.append, estimate=True)
    config.training.max_epochs = 10
    train_run(config, lambda event: None, said.append, estimate=True)
    first, second = [line for line in said if line.startswith("estimated")]
    assert "12 updates" in first
    assert "0 to 18 updates" in second


def test_slow_updates_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(timing, "SLOW", 0.0)
    assert timing.seconds_of(lambda: calls.append(1)) > 0
    assert len(calls) == 1
