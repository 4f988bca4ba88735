"""``decode --output`` and ``--resume``: a file that is continued after any death has the bytes of one run."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from noisychannel.arguments import dump_config
from noisychannel.cli.main import main
from noisychannel.errors import BadInputError
from noisychannel.output_file import OutputFile
from toys import LETTERS, double_vowels, toy_config, write_pairs

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
FAST = ["--k1", "4", "--k2", "2", "--device", "cpu"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("trained")
    config = toy_config(directory, rows=300, longest=4, max_epochs=3)
    file = directory / "config.yaml"
    file.write_text(dump_config(config))
    assert main(["train", str(file)]) == 0
    return Path(config.run_dir)


@pytest.fixture(autouse=True)
def many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noisychannel.streams.BATCHES_AT_ONCE", 1)


def write_words(file: Path, lines: int = 24) -> Path:
    """Inputs of many lengths; some are bad, some have unknown symbols."""
    rng = random.Random(3)
    texts = ["".join(rng.choices(LETTERS + "XY", k=rng.randint(1, 9))) for _ in range(lines)]
    for n in range(7, lines, 8):
        texts[n] = "a\tb"
    file.write_text("".join(f"{text}\n" for text in texts))
    return file


def write_candidates(file: Path, inputs: int) -> Path:
    """Outputs to rank: three of each input, with bad and empty lines between them."""
    pairs = [
        line.split("\t") for line in write_pairs(file, double_vowels, inputs, 5, longest=5).read_text().splitlines()
    ]
    lines = [f"{x}\t{y}\n{x}\t{x}\n{x}\t{y}X\n" for x, y in pairs]
    for n in range(4, inputs - 1, 9):
        lines[n] += "no pair\n"
        lines[n + 1] = lines[n + 1].replace("\n", "\n\t\n", 1)
    file.write_text("".join(lines))
    return file


@pytest.fixture
def words(tmp_path: Path) -> Path:
    return write_words(tmp_path / "words.txt")


def in_child(words: list[str], prepare: Callable[[], None], errors: Path) -> int:
    """The command in a process of its own, which ``prepare`` may doom; its exit code, negative for a signal."""
    if (child := os.fork()) == 0:
        sys.stdout = sys.stderr = errors.open("w", buffering=1)
        prepare()
        os._exit(main(words))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(call: int, before: bool) -> Callable[[], None]:
    """Die at the so-manieth of the calls that make bytes lasting, or just after it."""

    def prepare() -> None:
        left = call

        def dying(act: Callable[..., None]) -> Callable[..., None]:
            def called(*arguments: object) -> None:
                nonlocal left
                left -= 1
                if left == 0 and before:
                    die()
                act(*arguments)
                if left == 0:
                    die()

            return called

        os.fsync, os.replace, os.unlink = dying(os.fsync), dying(os.replace), dying(os.unlink)

    return prepare


def die_after(seconds: float) -> Callable[[], None]:
    def prepare() -> None:
        signal.signal(signal.SIGALRM, lambda number, frame: die())
        signal.setitimer(signal.ITIMER_REAL, seconds)

    return prepare


def killed_again_and_again(command: list[str], output: Path, dooms: list[Callable[[], None]]) -> tuple[int, int]:
    """Kill and resume until nothing is left to kill: how many processes died, and the exit code of the last one."""
    deaths, errors = 0, output.with_name("errors")
    for doom in dooms:
        code = in_child([*command, "--output", str(output), "--resume"], doom, errors)
        if code >= 0:
            return deaths, code
        deaths += 1
    return deaths, in_child([*command, "--output", str(output), "--resume"], lambda: None, errors)


@pytest.mark.parametrize("lines", [24, pytest.param(400, marks=pytest.mark.faults)])
@pytest.mark.parametrize("way", ["--json", "--rerank"])
def test_killed_and_resumed_it_has_the_bytes_of_one_run(lines: int, way: str, trained: Path, tmp_path: Path) -> None:
    """A death at any call that makes bytes lasting, before or after it, and at any moment between."""
    words, candidates = write_words(tmp_path / "words.txt", lines), write_candidates(tmp_path / "lists.tsv", lines)
    inputs = ["--rerank", str(candidates)] if way == "--rerank" else [str(words), "--json", *FAST]
    command = ["decode", str(trained), *inputs, "--batch_size", "2", "--device", "cpu"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    began = time.monotonic()
    assert in_child([*command, "--output", str(whole)], lambda: None, tmp_path / "told") == 1, "some lines are bad"
    seconds = time.monotonic() - began
    rng = random.Random(lines)
    dooms = [
        die_after(rng.uniform(0, seconds / 4)) if rng.random() < 0.3 else die_at(rng.randint(3, 20), rng.random() < 0.5)
        for _ in range(lines // 6)
    ]
    deaths, code = killed_again_and_again(command, killed, dooms)
    assert deaths >= 2
    print(f"{way}: {lines} lines, {deaths} deaths")
    assert killed.read_bytes() == whole.read_bytes()
    assert code == 1, "bad lines that were met before the last start count too"
    told, resumed = ((tmp_path / name).read_text().splitlines()[-1] for name in ("told", "errors"))
    assert told == resumed


def test_the_file_is_what_would_be_printed(trained: Path, words: Path, tmp_path: Path, capsys) -> None:
    command = ["decode", str(trained), str(words), *FAST]
    assert main(command) == 1
    printed = capsys.readouterr().out
    output = tmp_path / "output"
    assert main([*command, "--output", str(output)]) == 1
    assert output.read_text() == printed
    assert capsys.readouterr().out == ""
    link = tmp_path / "link"
    link.symlink_to("through")
    assert main([*command, "--output", str(link)]) == 1
    assert link.is_symlink()
    assert (tmp_path / "through").read_text() == printed
    assert main([*command, "--output", "/dev/null"]) == 1
    assert not Path("/dev/null").is_file()


def test_what_is_there_is_not_lost(trained: Path, words: Path, tmp_path: Path, capsys) -> None:
    output, journal = tmp_path / "output", tmp_path / "output.journal"
    command = ["decode", str(trained), str(words), *FAST, "--batch_size", "2"]

    def refused(*options: str, code: int = 2) -> str:
        capsys.readouterr()
        noted = journal.read_text() if journal.exists() else ""
        before = output.read_bytes()
        assert main([*command, *options]) == code
        assert (journal.read_text() if journal.exists() else "") == noted
        assert output.read_bytes() == before
        return capsys.readouterr().err.splitlines()[-1]

    output.write_text("years of work\n")
    assert f"{output}: exists; remove it, or name another file" in refused("--output", str(output))
    assert "output.journal is not beside it" in refused("--output", str(output), "--resume")
    journal.symlink_to("nowhere")
    assert "output.journal: missing" in refused("--output", str(output), "--resume", code=1)
    journal.unlink()
    assert "words.txt: exists" in refused("--output", str(words))
    assert "words.txt.journal is not beside it" in refused("--output", str(words), "--resume")
    assert "--resume continues a file; name it with --output FILE" in refused("--resume")
    assert "cannot be a file" in refused("--output", str(tmp_path))
    assert "cannot be a file" in refused("--output", str(tmp_path / "nowhere" / "x"))
    assert "is not a regular file, so it cannot be continued" in refused("--output", "/dev/null", "--resume")
    output.unlink()

    assert in_child([*command, "--output", str(output)], die_at(8, before=True), tmp_path / "errors") < 0
    assert json.loads(journal.read_text())["bytes"] > 0
    assert "exists; continue it with --resume, remove it and output.journal, or" in refused("--output", str(output))
    resumed = ["--output", str(output), "--resume"]
    assert "was begun with other n_best; repeat the command as it was" in refused(*resumed, "--n_best", "2")
    assert "was begun with other format;" in refused(*resumed, "--json")
    assert "was begun with other weight of direct;" in refused(*resumed, "--weights", "2,0,0,0")
    assert "was begun with other max_length;" in refused(*resumed, "--max_length", "7")
    text = words.read_text()
    words.write_text("x" + text)
    assert "was begun with another input; give the same one" in refused(*resumed)
    words.write_text(text[:1])
    assert "was begun with another input; give the same one" in refused(*resumed)
    words.write_text(text)
    kept, noted = output.read_bytes(), journal.read_text()
    for changed in (kept[:3], b"x" + kept[1:]):
        output.write_bytes(changed)
        assert "not what output.journal counts; restore it, or remove both" in refused(*resumed, code=1)
    output.write_bytes(kept)
    for damage in (
        "",
        "[]",
        "{}",
        noted.replace('"lines": ', '"lines": "x", "more": '),
        noted.replace('"lines": ', '"lines": 1000000000000000'),
        noted.replace('"failed": ', '"failed": 7'),
        "[" * 100_000,
    ):
        journal.write_text(damage)
        assert "output.journal: damaged" in refused(*resumed, code=1)
    journal.write_text(noted)
    with OutputFile(output, resume=True).begin(json.loads(noted)["decided_by"]):
        assert "another process is writing it" in refused(*resumed, code=1)
    assert main([*command, *resumed]) == 1
    whole = output.read_bytes()
    capsys.readouterr()
    assert main([*command, *resumed]) == 1, "the exit code of the whole"
    assert "is complete; there was nothing left to do" in capsys.readouterr().err
    assert output.read_bytes() == whole


def test_a_finished_file_grows_with_its_input(trained: Path, words: Path, tmp_path: Path) -> None:
    command = ["decode", str(trained), *FAST, "--output", str(tmp_path / "output"), "--resume"]
    copy = tmp_path / "copy.txt"
    copy.write_bytes(words.read_bytes())
    main([*command, str(words)])
    first = (tmp_path / "output").read_bytes()
    with copy.open("a") as stream:
        stream.write("ab\n")
    main([*command, str(copy)])  # the name of the input does not matter
    grown = (tmp_path / "output").read_bytes()
    assert grown.startswith(first)
    assert grown.count(b"\n") == first.count(b"\n") + 1


def test_a_file_that_was_finished_in_the_meantime_is_not_replaced(trained: Path, words: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    late = OutputFile(output)
    assert main(["decode", str(trained), str(words), *FAST, "--output", str(output)]) == 1
    whole = output.read_bytes()
    with pytest.raises(BadInputError, match="exists; continue it with --resume"), late.begin({"a": "b"}):
        pass
    assert output.read_bytes() == whole


def test_a_command_that_fails_at_once_leaves_nothing_behind(trained: Path, tmp_path: Path) -> None:
    assert main(["decode", str(trained), str(tmp_path / "none.txt"), "--output", str(tmp_path / "output")]) == 2
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_what_was_written_and_it_is_continued(
    trained: Path, words: Path, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, whole = tmp_path / "output", tmp_path / "whole"
    command = ["decode", str(trained), str(words), *FAST, "--batch_size", "2", "--output"]
    assert main([*command, str(whole)]) == 1
    capsys.readouterr()
    write, left = OutputFile.write, 3

    def fills_up(file: OutputFile, *arguments: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            file.stream.close()
            file.stream = Path("/dev/full").open("wb")  # noqa: SIM115 (the file closes it)
        write(file, *arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(OutputFile, "write", fills_up)
        assert main([*command, str(output)]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"noisychannel: {output}: cannot be written (No space left on device); free some space or fix the directory, "
        "then try again"
    )
    assert main([*command, str(output), "--resume"]) == 1
    assert output.read_bytes() == whole.read_bytes()


def test_a_line_must_be_read_before_it_is_done(tmp_path: Path) -> None:
    with OutputFile(tmp_path / "x").begin({"a": "b"}) as file:
        assert list(file.rest("abc")) == ["a", "b", "c"]
        file.write("ab\n", 2, {"n": 1})
        assert file.journal.lines == 2
    with OutputFile(tmp_path / "x", resume=True).begin({"a": "b"}) as file:
        assert file.journal.state == {"n": 1}
        assert list(file.rest("abc")) == ["c"]
        file.write("c\n", 1, {})
    assert (tmp_path / "x").read_text() == "ab\nc\n"
    with pytest.raises(BadInputError, match="exists"):
        OutputFile(tmp_path / "x")


def test_pairs_instead_of_inputs_are_told_of_once(trained: Path, tmp_path: Path, capsys) -> None:
    wrong, output = tmp_path / "wrong.tsv", tmp_path / "out.txt"
    wrong.write_text("a\tb\n" * 10)
    message = f"{wrong}:1: 2 columns instead of an input without tabs; cut -f1 gives the first column alone"
    assert main(["decode", str(trained), str(wrong), *FAST]) == 1
    out, err = capsys.readouterr()
    assert out == "\n" * 10
    assert err.splitlines()[1:] == [
        f"noisychannel: {message} (of further lines like this, only the number is told)",
        "noisychannel: 10 lines could not be decoded",
    ]
    # What was told before an interruption is not told again, but counted; other lines are told of, too.
    decode = ["decode", str(trained), str(wrong), "--output", str(output), "--max-symbols", "5", *FAST]
    assert main(decode) == 1
    wrong.write_text("a\tb\n" * 11 + "aaaaaaaa\n")
    capsys.readouterr()
    assert main([*decode, "--resume"]) == 1
    assert capsys.readouterr().err.splitlines()[1:] == [
        f"noisychannel: {wrong}:12: 8 symbols, more than --max-symbols 5",
        "noisychannel: 12 lines could not be decoded, 11 of them with a wrong number of columns",
    ]


def test_a_file_in_another_encoding_is_refused_once(trained: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    good, wrong = tmp_path / "good.txt", tmp_path / "wrong.txt"
    good.write_text("ab\n")
    wrong.write_text("ab\tb\n" * 10, encoding="utf-16")
    convert = f"noisychannel: {wrong}: UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8 {wrong} > NEW_FILE"
    assert main(["decode", str(trained), str(good), str(wrong), *FAST]) == 2
    out, err = capsys.readouterr()
    assert not out, "refused before anything is decoded"
    assert err.splitlines()[-1] == convert
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"ab\n")))
    assert main(["decode", str(trained), "-", str(wrong), *FAST]) == 2
    out, err = capsys.readouterr()
    assert out.count("\n") == 1, "what was read before is decoded"
    assert err.splitlines()[-1] == convert
    assert main(["score", str(trained), str(wrong)]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.splitlines() == [convert]


def test_score_tells_of_bad_lines_as_decode_does(trained: Path, tmp_path: Path, capsys) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("")
    assert main(["score", str(trained), str(file)]) == 0
    assert capsys.readouterr().err == "noisychannel: there were no lines to score\n"
    file.write_text("ab\n" * 25 + "a\tb\n")
    assert main(["score", str(trained), str(file)]) == 1
    out, err = capsys.readouterr()
    assert out.count("\n") == 26
    told = err.splitlines()
    assert told[19].startswith(f"noisychannel: {file}:20: 1 tab-separated column, but 2 are expected")
    assert told[20:] == [
        "noisychannel: further lines that cannot be scored are only counted",
        "noisychannel: 25 lines could not be scored",
    ]


def test_many_bad_lines_are_counted(trained: Path, tmp_path: Path, capsys) -> None:
    wrong = tmp_path / "wrong.tsv"
    wrong.write_text("aaaaaaaa\n" * 50)
    assert main(["decode", str(trained), str(wrong), "--max-symbols", "5", *FAST]) == 1
    out, err = capsys.readouterr()
    assert out == "\n" * 50
    told = err.splitlines()
    assert "wrong.tsv:20: 8 symbols, more than --max-symbols 5" in told[-3]
    assert "further lines that cannot be decoded are only counted" in told[-2]
    assert "50 lines could not be decoded" in told[-1]


def test_given_outputs_that_do_not_fit_are_reported_and_the_rest_ranked(trained: Path, tmp_path: Path, capsys) -> None:
    lists = tmp_path / "lists.tsv"
    lists.write_text(f"{'ab' * 400}\t{'ab' * 400}\nab\taab\nab\tab\n")
    assert main(["decode", str(trained), "--rerank", str(lists), "--memory", "0.01", "--weights", "1,0,0,0"]) == 1
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert out.startswith("\n")
    assert "lists.tsv:1: scoring 801 symbols given 801 needs about" in err
