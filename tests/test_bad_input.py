"""Nonsense from outside: numbers, options that would be ignored, streams, signals, the environment."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from noisychannel import SSNT, LanguageModel, NoisyChannel, Weights, scoring
from noisychannel.arguments import all_keys, dump_config, given_values
from noisychannel.arguments.bounds import all_bounds
from noisychannel.cli.decode import DecodeCommand
from noisychannel.cli.evaluate import EvaluateCommand
from noisychannel.cli.main import COMMANDS, main
from noisychannel.cli.report import ReportCommand
from noisychannel.cli.reproduce import ReproduceOptions
from noisychannel.cli.score import ScoreCommand
from noisychannel.cli.tune import TuneCommand
from noisychannel.data.batches import make_batch
from noisychannel.data.codec import Unknown
from noisychannel.decode.settings import SearchSettings
from noisychannel.errors import BadInputError, command_line, did_you_mean, shortened
from noisychannel.experiments.demo import DemoOptions
from noisychannel.experiments.settings import MeasuringSettings
from noisychannel.models.seq2seq import Seq2Seq
from noisychannel.remarks import Remarks
from noisychannel.runs import RunDirectory
from noisychannel.streams import StreamOptions
from noisychannel.systems import make_system, unused_settings
from noisychannel.training.config import RunConfig
from noisychannel.tuning.run import TuneOptions
from noisychannel.weights import TermSource
from toys import double_vowels, toy_config, write_pairs

OPTIONS = (
    RunConfig,
    TuneCommand,
    EvaluateCommand,
    ReportCommand,
    DecodeCommand,
    ScoreCommand,
    ReproduceOptions,
    DemoOptions,
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose directory needs quotes."""
    directory = tmp_path_factory.mktemp("a run")
    config = toy_config(directory, models=("direct", "lm", "attention"), rows=60, longest=4, max_epochs=1)
    file = directory / "config.yaml"
    file.write_text(dump_config(config))
    assert main(["train", str(file)]) == 0
    return Path(config.run_dir)


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    file = tmp_path / "inputs.txt"
    file.write_text("bad\nlome\n")
    return file


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    file = tmp_path / "pairs.tsv"
    file.write_text("bad\tbaad\nlome\tloomee\n")
    return file


def complaint_of(capsys: pytest.CaptureFixture[str], words: list[str], code: int = 2) -> str:
    """The last line that a failing command prints on standard error; it prints no result."""
    capsys.readouterr()
    assert main(words) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "internal error" not in shown.err
    return shown.err.splitlines()[-1]


# Numbers.


def numbers() -> Iterator[tuple[type, str, type]]:
    for cls in OPTIONS:
        for key, kind in all_keys(cls).items():
            for number in {kind, *get_args(kind)} & {int, float}:
                yield cls, key, number


def test_every_number_that_a_user_can_give_has_bounds() -> None:
    assert [(cls.__name__, key) for cls, key, _ in numbers() if key not in all_bounds(cls)] == []


@pytest.mark.parametrize(("cls", "key", "kind"), [pytest.param(*x, id=f"{x[0].__name__} {x[1]}") for x in numbers()])
def test_nonsense_numbers_are_refused_where_they_are_given(cls: type, key: str, kind: type) -> None:
    for value in ("-1", "nan", "inf", "1e999", "-inf", "1" + "0" * 400, "1" + "0" * 5000, "x", "", "[1]", "true"):
        if kind is float and value == "1" + "0" * 400:
            continue  # a large number, and finite as Python reads it only if it is whole
        with pytest.raises(BadInputError) as caught:
            given_values(cls, [f"--{key}={value}"])
        assert str(caught.value).startswith(f"--{key}: must be ")
        assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("cls", "values", "complaint"),
    [
        (SearchSettings, {"k1": 0}, "k1: must be at least 1, but is 0"),
        (SearchSettings, {"k1": True}, "k1: must be a whole number, but is True"),
        (SearchSettings, {"k2": 2.5}, "k2: must be a whole number, but is 2.5"),
        (SearchSettings, {"max_length": 0}, "max_length: must be at least 1, but is 0"),
        (SearchSettings, {"max_growth": -1}, "max_growth: must be at least 0, but is -1"),
        (SearchSettings, {"lm_proposals": -1}, "lm_proposals: must be at least 0, but is -1"),
        (SearchSettings, {"memory": float("nan")}, "memory: must be a finite number, but is nan"),
        (SearchSettings, {"memory": float("inf")}, "memory: must be a finite number, but is inf"),
        (SearchSettings, {"memory": -2.0}, "memory: must be greater than 0 and at most 1048576, but is -2.0"),
        (SearchSettings, {"memory": 1e300}, "memory: must be greater than 0 and at most 1048576, but is 1e+300"),
        (SearchSettings, {"k1": None}, "k1: must be a whole number, but is None"),
        (
            StreamOptions,
            {"batch_size": 2**63 - 1},
            "batch_size: must be at most 1099511627776, but is 9223372036854775807",
        ),
        (StreamOptions, {"n_best": 0}, "n_best: must be at least 1, but is 0"),
        (StreamOptions, {"batch_size": 0}, "batch_size: must be at least 1, but is 0"),
        (TuneOptions, {"limit": -1}, "limit: must be at least 0, but is -1"),
        (TuneOptions, {"iterations": -3}, "iterations: must be at least 0, but is -3"),
        (MeasuringSettings, {"decoding_batch": 0}, "decoding_batch: must be at least 1, but is 0"),
        (DemoOptions, {"pairs": 0}, "pairs: must be at least 1, but is 0"),
    ],
)
def test_python_refuses_the_same(cls: type, values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match="must be") as caught:
        cls(**values)
    assert str(caught.value) == complaint


def test_refused_numbers_leave_good_weights_alone(trained: Path, capsys) -> None:
    (trained / "weights.json").write_text(good := '{"format": 2, "systems": {}}')
    try:
        assert "--limit: must be" in complaint_of(capsys, ["tune", str(trained), "--limit", "-1", "--iterations", "-3"])
        assert (trained / "weights.json").read_text() == good
    finally:
        (trained / "weights.json").unlink()


# Options that would be ignored.


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("decode RUN INPUTS --rerank PAIRS", "--rerank reads PAIRS alone; leave out INPUTS, or --rerank"),
        ("decode RUN INPUTS --json --explain", "--json and --explain exclude each other"),
        ("decode RUN INPUTS --resume", "--resume continues a file; name it with --output FILE"),
        ("decode RUN --rerank PAIRS --k1 3", "--k1 would be ignored: nothing is searched with --rerank"),
        ("decode RUN --rerank PAIRS --max-length 3", "--max-length would be ignored"),
        ("decode RUN --rerank PAIRS --allow-unk", "--allow-unk would be ignored"),
        ("decode RUN INPUTS --system attention --k1 3", "--k1 would be ignored: the beam search of attention"),
        ("decode RUN INPUTS --system attention --search marginal", "--search would be ignored"),
        ("decode RUN INPUTS --system attention --lm-proposals 3", "--lm-proposals would be ignored"),
        ("decode RUN INPUTS --channel-alignment viterbi", "--channel-alignment would be ignored: the channel has no"),
        ("decode RUN INPUTS --n-best 2 --n-best=3", "--n-best: given twice, as '2' and as '3'"),
        ("decode RUN INPUTS --run other", "--run: given twice"),
        ("score RUN PAIRS --columns pairs --columns input,output", "--columns: given twice"),
        ("tune RUN --systems [direct+lm,direct+lm]", "--systems: something is named twice in direct+lm, direct+lm"),
        ("tune RUN --systems []", "--systems: must not be empty"),
        ("score RUN PAIRS --models []", "--models: must not be empty"),
        ("tune RUN --tokenize 13a", "--tokenize is for the metric bleu, but the metric is accuracy"),
        ("tune RUN --systems attention+lm --k1 3", "--k1 would be ignored: the beam search of attention"),
        ("tune RUN --systems direct+lm --terms news=lm:RUN", "--terms: no system uses news; name one that does"),
        ("tune RUN --systems direct+lm --channel-alignment viterbi", "--channel-alignment would be ignored"),
        ("evaluate RUN PAIRS --tokenize 13a", "--tokenize is for the metric bleu, which --metrics does not name"),
        ("evaluate RUN INPUTS --references PAIRS --columns pairs", "--columns would be ignored: with --references"),
        ("evaluate RUN PAIRS --metrics [accuracy,accuracy]", "--metrics: something is named twice"),
        ("evaluate RUN PAIRS --metrics []", "--metrics: must not be empty; name something"),
        ("train CONFIG --channel.hidden_size 5", "--channel.hidden_size would be ignored: channel is not trained"),
        ("train CONFIG --data.feature_separator=", "data.feature_separator: must not be empty"),
        ("reproduce inflection-nouns --merge --blocks main", "--blocks would be ignored: --merge runs nothing"),
        ("bench --suites []", "--suites: must not be empty; name something"),
        ("bench --suites [loss,loss]", "--suites: name each suite once"),
        ("bench --output nowhere/x.md", "--output: nowhere/x.md cannot be a file"),
    ],
)
def test_what_would_be_ignored_is_refused(
    line: str, complaint: str, trained: Path, inputs: Path, pairs: Path, capsys
) -> None:
    names = {"RUN": trained, "INPUTS": inputs, "PAIRS": pairs, "CONFIG": trained.parent / "config.yaml"}
    words = line.split()
    for name, path in names.items():
        words = [word.replace(name, str(path)) for word in words]
        complaint = complaint.replace(name, str(path))
    assert complaint in complaint_of(capsys, words)


def test_a_beam_of_any_width_can_be_asked_for(trained: Path, inputs: Path, capsys) -> None:
    """Although k1 must not be below k2: it follows."""
    assert main(["decode", str(trained), str(inputs), "--system", "attention", "--k2", "40"]) == 0
    assert (
        main(["tune", str(trained), "--systems", "attention+lm", "--k2", "30", "--limit", "3", "--iterations", "0"])
        == 0
    )
    (trained / "weights.json").unlink()


def test_the_order_of_terms_does_not_matter() -> None:
    extra = {name: TermSource("lm", Path("x")).weight(name) for name in ("word_list", "news")}
    for name in ("lm+direct", "direct+lm"):
        assert make_system(name) == make_system("direct+lm")
        assert make_system(name).name == "direct+lm"
    names = {make_system(name, extra).name for name in ("news+lm+word_list+direct", "direct+lm+word_list+news")}
    assert names == {"direct+lm+word_list+news"}


def test_one_system_under_two_names_is_tuned_and_found_once(trained: Path, inputs: Path, capsys) -> None:
    few = ["--k1", "2", "--k2", "1", "--limit", "3", "--iterations", "0"]
    assert main(["tune", str(trained), "--systems", "[lm+direct,direct+lm]", *few]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2, "direct alone, and the system"
    outputs = []
    for name in ("direct+lm", "lm+direct"):
        assert main(["decode", str(trained), str(inputs), "--system", name]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    (trained / "weights.json").unlink()


# Lines.


def test_a_bad_candidate_is_reported_and_the_rest_ranked(trained: Path, tmp_path: Path, capsys) -> None:
    good, bad = tmp_path / "good.tsv", tmp_path / "bad.tsv"
    good.write_text("bad\tbad\nbad\tbaad\nab\taab\n")
    bad.write_bytes(b"\xff\nbad\tbad\nbad\nbad\tbaad\n" + b"b" * 30 + b"\tb\nab\taab\nab\t \n")
    assert main(["decode", str(trained), "--rerank", str(good)]) == 0
    expected = capsys.readouterr().out
    assert main(["decode", str(trained), "--rerank", str(bad), "--max_symbols", "20"]) == 1
    shown = capsys.readouterr()
    assert shown.out == expected
    told = [line.partition("bad.tsv:")[2] for line in shown.err.splitlines()[1:]]
    assert [line[:2] for line in told] == ["1:", "3:", "5:", "7:"]
    assert "30 symbols, more than --max-symbols 20" in told[2]
    bad.write_text("nothing\n")
    assert main(["decode", str(trained), "--rerank", str(bad)]) == 1


# Standard streams.


def test_closed_streams(trained: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", None)
        for command in ("decode", "score"):
            assert "standard input is closed; name a file" in complaint_of(capsys, [command, str(trained)])
        assert "standard input is closed" in complaint_of(capsys, ["decode", str(trained), "--rerank", "-"])
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        assert main(["--help"]) == 1
    assert "standard output is closed; send the results to a file" in capsys.readouterr().err


def test_a_full_standard_output_is_one_line(trained: Path, inputs: Path, pairs: Path, capsys) -> None:
    for words in (["decode", str(trained), str(inputs)], ["score", str(trained), str(pairs)], ["--version"]):
        capsys.readouterr()
        with pytest.MonkeyPatch.context() as patch, Path("/dev/full").open("w") as full:
            patch.setattr(sys, "stdout", full)
            assert main(words) == 1
        last = capsys.readouterr().err.splitlines()[-1]
        assert last == "noisychannel: standard output: cannot be written (No space left on device)"


def test_a_reader_that_is_gone_is_no_news(trained: Path, pairs: Path, capsys) -> None:
    for words in (["evaluate", str(trained), str(pairs), "--k1", "2"], ["score", str(trained), str(pairs)]):
        reader, writer = os.pipe()
        os.close(reader)
        capsys.readouterr()
        with pytest.MonkeyPatch.context() as patch, os.fdopen(writer, "w") as broken:
            patch.setattr(sys, "stdout", broken)
            assert main(words) == 1
        assert "roken" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("redirected", "code", "told"),
    [
        (">&-", 1, "noisychannel: standard output is closed; send the results to a file, or to /dev/null\n"),
        (">/dev/full", 1, "noisychannel: standard output: cannot be written (No space left on device)\n"),
        ("2>&- | true; exit ${PIPESTATUS[0]}", 1, ""),
        (">&- 2>&-", 1, ""),
    ],
)
def test_a_program_with_bad_streams_ends_in_order(redirected: str, code: int, told: str) -> None:
    command = f"{shlex.join([sys.executable, '-m', 'noisychannel', '--help'])} {redirected}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, told)


def test_results_are_utf_8_in_any_locale() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "noisychannel", "--help"]
    shown = subprocess.run(command, capture_output=True, env=environment, check=True).stdout
    assert "COMMAND …" in shown.decode("utf-8")


# Signals.

SLOW_TO_STOP = """
import sys, time, types
from noisychannel.cli.main import main

def run(words):
    try:
        print("begun", flush=True)
        time.sleep(60)
    finally:
        if words:
            print("stopping", flush=True)
            time.sleep(60)

sys.modules["noisychannel.cli.tune"] = types.SimpleNamespace(run=run)
sys.exit(main(["tune", *sys.argv[1:]]))
"""


@pytest.mark.parametrize(
    ("sent", "code", "told"),
    [
        (signal.SIGINT, 1, "interrupted"),
        (signal.SIGTERM, 143, "stopped by SIGTERM"),
        (signal.SIGHUP, 129, "stopped by SIGHUP"),
    ],
)
def test_signals_that_ask_to_stop(sent: signal.Signals, code: int, told: str) -> None:
    kept = "the systems tuned so far are in weights.json, and the run's default system is as it was"
    for words in ([], ["slowly"]):
        process = subprocess.Popen(
            [sys.executable, "-c", SLOW_TO_STOP, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(sent)
        if words:
            assert process.stdout.readline() == "stopping\n"
            process.send_signal(sent)
        _, shown = process.communicate(timeout=20)
        assert process.returncode == code
        assert shown == ("" if words else f"noisychannel: {told}; {kept}\n")


def test_an_ignored_signal_stays_ignored() -> None:
    """As nohup asks for."""
    code = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + SLOW_TO_STOP.replace("60", "0.5")
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=20)
    assert process.returncode == 0


def test_every_command_says_what_an_interrupt_leaves(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(words: list[str]) -> int:
        raise KeyboardInterrupt

    for name, command in COMMANDS.items():
        monkeypatch.setattr(f"noisychannel.cli.{name}.run", interrupted)
        assert complaint_of(capsys, [name], code=1) == f"noisychannel: interrupted; {command.interrupted}"
        assert ("training" in command.interrupted) == (name == "train")


def test_an_interrupt_before_anything_is_kept_promises_nothing(
    capsys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    pairs, run = tmp_path / "pairs.tsv", tmp_path / "run"
    write_pairs(pairs, double_vowels, 30, seed=1)
    words = ["fit", str(pairs), "--run-dir", str(run), "--device", "cpu"]
    monkeypatch.setattr("noisychannel.fitting.fit.measure_speed", interrupted)  # before the plan is written
    assert complaint_of(capsys, words, code=1) == "noisychannel: interrupted"
    monkeypatch.undo()
    monkeypatch.setattr("noisychannel.fitting.fit.make_parts", interrupted)  # after that
    kept = COMMANDS["fit"].interrupted
    assert complaint_of(capsys, words, code=1) == f"noisychannel: interrupted; {kept}"
    # While modules are loaded, nothing can have been written.
    monkeypatch.setattr("noisychannel.cli.main.import_module", interrupted)
    assert complaint_of(capsys, ["tune", str(run)], code=1) == "noisychannel: interrupted"


# Memory.


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        (
            "decode RUN --k1 1000000",
            "lower --k1, or one of --batch-size, --k2, --n-best, --lm-proposals, --max-length, --max-growth, --memory",
        ),
        ("decode RUN", "lower one of --batch-size, --k1, --k2,"),
        (
            "train x.yaml --direct.hidden-size=99999 --jobs 4",
            "lower --direct.hidden-size or --jobs, or one of batch_size,",
        ),
        ("evaluate RUN x.tsv --samples 9", "lower --samples, or one of --batch-size, --k1, --k2"),
        ("score RUN", "lower one of --batch-size, --max-symbols"),
        ("bench", "free some, or use a machine with more"),
    ],
)
def test_out_of_memory_names_the_options_that_matter(
    line: str, advice: str, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, *_ = words = line.split()
    for error in (MemoryError(), RuntimeError("CUDA out of memory. Tried"), RuntimeError("can't allocate memory: 9")):

        def run(words: list[str], error: Exception = error) -> int:
            raise error

        monkeypatch.setattr(f"noisychannel.cli.{name}.run", run)
        assert complaint_of(capsys, words, code=1).startswith(f"noisychannel: out of memory; {advice}")


# The environment, and messages.


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"WORLD_SIZE": "abc"}, "WORLD_SIZE: must be a whole number, at least 1, but is 'abc'; unset it"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE: must be a whole number, at least 1, but is '0'"),
        ({"WORLD_SIZE": "2", "RANK": "2"}, "RANK: must be a whole number, from 0 to 1, but is '2'"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is 2, but the other processes cannot be found"),
    ],
)
def test_nonsense_in_the_environment_of_a_training(
    variables: dict[str, str], complaint: str, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = toy_config(tmp_path, max_epochs=1)
    (tmp_path / "config.yaml").write_text(dump_config(config))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert complaint in complaint_of(capsys, ["train", str(tmp_path / "config.yaml")])


def test_data_that_is_nowhere(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["reproduce", "inflection-nouns", "--quick"]
    assert "--data: nowhere is not a directory" in complaint_of(capsys, [*words, "--data", "nowhere"])
    monkeypatch.setenv("NOISYCHANNEL_DATA", "/nowhere")
    assert "NOISYCHANNEL_DATA: /nowhere is not a directory" in complaint_of(capsys, words)


def test_a_suggested_command_can_be_pasted(trained: Path, inputs: Path, capsys) -> None:
    """The directory of the run has a space in its name."""
    assert main(["decode", str(trained), str(inputs)]) == 0
    _, _, suggested = capsys.readouterr().err.splitlines()[0].partition("first run ")
    assert shlex.split(suggested) == ["noisychannel", "tune", str(trained)]
    assert command_line("tune", Path("a b")) == "noisychannel tune 'a b'"


def test_messages_stay_short() -> None:
    assert shortened("x") == "'x'"
    assert len(shortened("x" * 10**6)) < 100
    assert len(shortened([10**4000] * 9)) < 100
    assert shortened(10**5000) == "a number of thousands of digits"
    began = time.monotonic()
    did_you_mean("x" * 10**6, ["xx", "xy"])
    assert time.monotonic() - began < 5


# Python.


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: SSNT(0, 8, 4), "input_vocab_size must be a whole number of at least 1, but is 0"),
        (lambda: SSNT(8, 8, -4), "hidden_size must be"),
        (lambda: SSNT(8, 8, 4, num_layers=0), "num_layers must be"),
        (lambda: Seq2Seq(8, 8, 4, embedding_size=0), "embedding_size must be"),
        (lambda: Seq2Seq(8, 8, 2.5), "hidden_size must be"),  # type: ignore[arg-type]
        (lambda: LanguageModel(8, 0), "hidden_size must be"),
        (lambda: LanguageModel(True, 4), "vocab_size must be"),
    ],
)
def test_models_without_size(make: Callable[[], object], complaint: str) -> None:
    with pytest.raises(ValueError, match=f"^{complaint}"):
        make()


@pytest.mark.parametrize(
    ("use", "complaint"),
    [
        (lambda m: m(b"bad"), "texts: must be text, but one is b'bad'"),
        (lambda m: m(["bad"]), "texts: must be text, but one is ['bad']"),
        (lambda m: m("b\0d"), "texts: must not contain a NUL character, but one is 'b\\x00d'"),
        (lambda m: m("bad", features=["PL"]), "features: this run was trained without features, so it cannot use 'PL'"),
        (lambda m: m("bad", features="PL"), "features: give a list of features for each of the 1 texts"),
        (lambda m: m.batch(["bad"], features=[]), "features: give a list of features for each of the 1 texts"),
        (lambda m: m.batch("bad"), "texts: give a list of texts, not one text"),
        (lambda m: m.batch(["bad", None]), "texts: must be text, but one is None"),
        (lambda m: m.batch(["bad"], batch_size=1.5), "batch_size must be a whole number of at least 1, but is 1.5"),
        (lambda m: m.rerank(b"bad", ["baad"]), "texts: must be text"),
        (lambda m: m.rerank("bad", ["ba\0d"]), "outputs: must not contain a NUL character"),
        (lambda m: m.rerank("bad", [3]), "outputs: must be text, but one is 3"),
        (lambda m: m.rerank("bad", ["baad"], features=["PL"]), "features: this run was trained without features"),
        (lambda m: m.reweighted(None), "weights: must be Weights(...), but is None"),
        (lambda m: m.reweighted(Weights(), {"k1": 3}), "settings: must be SearchSettings(...), but is {'k1': 3}"),
    ],
)
def test_nonsense_arguments_of_a_model(trained: Path, use: Callable[[NoisyChannel], object], complaint: str) -> None:
    model = NoisyChannel.load(trained, device="cpu")
    with pytest.raises(ValueError, match=f"^{re.escape(complaint)}"):
        use(model)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"weights": (1, 0, 0, 0)}, "weights: must be Weights(...), but is (1, 0, 0, 0)"),
        ({"settings": {}}, "settings: must be SearchSettings(...), but is {}"),
        ({"roles": "direct"}, "roles: give a list, such as ['direct'], not one text"),
        ({"terms": {"x": 5}}, "terms: x: must be TermSource(...), but is 5"),
    ],
)
def test_nonsense_about_what_to_load(trained: Path, given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(complaint)}"):
        NoisyChannel.load(trained, **given)


# Messages.


def test_a_pair_that_is_too_large_is_reported_and_the_rest_scored(
    trained: Path, pairs: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["score", str(trained), str(pairs)]) == 0
    whole = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    pairs.write_text(f"bad\tbaad\n{'a' * 900}\t{'b' * 800}\nlome\tloomee\n")
    monkeypatch.setattr(scoring, "room_of", lambda settings, device: 2**20)
    assert main(["score", str(trained), str(pairs)]) == 1
    shown = capsys.readouterr()
    first, long, last = (json.loads(line) for line in shown.out.splitlines())
    assert f"{pairs}:2: scoring 800 symbols given 900 needs about" in shown.err
    assert long["direct"] is None
    for one, before in zip((first, last), whole, strict=True):
        assert one["direct"] == pytest.approx(before["direct"])


def test_a_batch_of_pairs_is_scored_in_parts_that_fit(
    trained: Path, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "many.tsv").write_text("bad\tbaad\n" * 50)
    sizes = []
    monkeypatch.setattr(scoring, "make_batch", lambda *x: (sizes.append(len(x[1])), make_batch(*x))[1])
    monkeypatch.setattr(scoring, "room_of", lambda settings, device: 2**17)
    assert main(["score", str(trained), str(tmp_path / "many.tsv"), "--models", "direct"]) == 0
    assert sum(sizes) == 50
    assert max(sizes) < 20


def test_a_text_with_an_output_that_does_not_fit_is_left_out(trained: Path) -> None:
    model = NoisyChannel.load(trained, settings=SearchSettings(memory=0.001), device="cpu")
    refused: dict[int, str] = {}
    outputs = [["baad", "bad"], ["b" * 5000], ["loomee"]]
    ranked = model.rerank_batch(["bad", "a", "lome"], outputs, refuse=lambda n, why: refused.update({n: str(why)}))
    assert [sorted(output.text for output in best) for best in ranked] == [["baad", "bad"], [], ["loomee"]]
    assert refused.keys() == {1}
    assert refused[1].startswith("scoring 5001 symbols given 2 needs about")


def test_a_device_that_is_not_there_is_one_short_line(trained: Path, inputs: Path, capsys) -> None:
    for name in ("mps", "foo"):
        line = complaint_of(capsys, ["decode", str(trained), str(inputs), "--device", name])
        assert line == f"noisychannel: device: {name} cannot be used here; use auto or cpu"


def test_options_are_refused_before_models_are_loaded(
    trained: Path, pairs: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunDirectory, "load_model", lambda *_: pytest.fail("a model is loaded"))
    assert "unknown metric 'foo'" in complaint_of(capsys, ["tune", str(trained), "--metric", "foo"])
    assert "unknown column 'foo'" in complaint_of(capsys, ["score", str(trained), str(pairs), "--columns", "foo"])


def test_a_system_is_tuned_by_the_command_given(trained: Path, inputs: Path, capsys) -> None:
    line = complaint_of(capsys, ["decode", str(trained), str(inputs), "--system", "direct+lm"])
    words = shlex.split(line.split("Tune it with ")[1])
    assert main([*words[1:], "--iterations", "0"]) == 0
    (trained / "weights.json").unlink()


def test_a_model_is_added_by_the_command_given(trained: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    line = complaint_of(capsys, ["tune", str(trained), "--systems", "seq2seq+lm"])
    words = shlex.split(line.split("train it: ")[1])
    assert words[0] == "noisychannel"
    assert main(words[1:]) == 0
    assert RunDirectory.open(trained).has_model("seq2seq")


def test_the_shortest_output_of_a_tuning_is_said_once(trained: Path, capsys) -> None:
    assert main(["tune", "--help"]) == 0
    about = " ".join(capsys.readouterr().out.split("--max-length")[1].split("--")[0].split())
    assert "(at least 2)" in about
    line = complaint_of(capsys, ["tune", str(trained), "--max-length", "1"])
    assert line == "noisychannel: --max-length: must be at least 2, but is 1"


def test_the_advice_about_incomplete_outputs_fits_every_system() -> None:
    remarks = Remarks()
    remarks.add("words.txt:1", Unknown([], []), complete=False)
    advised = re.findall(r"--(\w+)", remarks.line())
    assert advised
    assert not set(advised) & unused_settings(["attention"], with_channel=False).keys()


def test_a_run_of_groups_is_told_of_its_groups_alone(tmp_path: Path, inputs: Path, capsys) -> None:
    config = toy_config(tmp_path, models=("direct",), rows=20, max_epochs=1)
    for name in ("train", "dev"):
        file = tmp_path / f"{name}.tsv"
        rows = file.read_text().splitlines()
        file.write_text("".join(f"{row}\t{'uv'[n % 2]}\n" for n, row in enumerate(rows)))
    config.data.columns = "input,output,group"
    (tmp_path / "config.yaml").write_text(dump_config(config))
    assert main(["train", str(tmp_path / "config.yaml")]) == 0
    capsys.readouterr()
    assert main(["decode", config.run_dir, str(inputs)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "has one run per group; choose one of them" in line
