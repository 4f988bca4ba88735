"""What crosses a file boundary: schemas, roles, checksums, stale weights, and where files are written.

Every refusal is one line that names the file, and nothing is lost by it.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shlex
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from noisychannel import NoisyChannel, Weights, checksums
from noisychannel.arguments import dump_config
from noisychannel.atomic import write_text
from noisychannel.checksums import checksum
from noisychannel.cli.main import main
from noisychannel.data.codec import SIDES, Codec
from noisychannel.errors import NoisyChannelError
from noisychannel.models.registry import ModelDescription
from noisychannel.run_records import DataRecord, RunHeader
from noisychannel.runs import RunDirectory
from noisychannel.schemas import parse_record
from noisychannel.tensors import load_tensors, save_tensors, tensors_checksum
from noisychannel.training.config import RunConfig, parse_config
from noisychannel.training.log import forget_after
from noisychannel.training.run import train_run
from noisychannel.training.state import TrainingState
from noisychannel.weights import TunedSystem, read_system, read_systems, write_systems
from toys import toy_config, write_pairs

FEW = ["--k1", "4", "--k2", "2", "--limit", "20", "--iterations", "0", "--device", "cpu"]
SYSTEMS = "[direct+lm,direct+channel+lm+word_list]"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tuned run with a word list. Direct model and channel have the same shapes."""
    directory = tmp_path_factory.mktemp("boundaries")
    config = toy_config(directory, models=("direct", "channel", "lm"), rows=40, longest=4, max_epochs=1)
    config.lm = replace(config.lm, word_list=True)
    (directory / "config.yaml").write_text(dump_config(config))
    assert main(["train", str(directory / "config.yaml")]) == 0
    assert main(["tune", config.run_dir, "--systems", SYSTEMS, *FEW]) == 0
    return Path(config.run_dir)


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged. Its configuration names the original."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def config_of(run: Path) -> RunConfig:
    return replace(parse_config(run / "config.yaml"), run_dir=str(run))


def train(run: Path, *words: str) -> list[str]:
    return ["train", str(run / "config.yaml"), "--run_dir", str(run), *words]


@pytest.fixture
def inputs(tmp_path: Path) -> str:
    file = tmp_path / "inputs.txt"
    file.write_text("bad\nlome\n")
    return str(file)


@pytest.fixture
def pairs(tmp_path: Path) -> str:
    return str(write_pairs(tmp_path / "pairs.tsv", lambda x: x, rows=4, seed=1))


def fails(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The last line of a command that fails, which is its only complaint."""
    capsys.readouterr()
    assert main(list(words)) in (1, 2)
    *before, last = capsys.readouterr().err.strip().splitlines()
    assert not any("Traceback" in line or "internal error" in line for line in [*before, last]), last
    return last


def change(file: Path, edit: Callable[[Any], object]) -> None:
    record = json.loads(file.read_text())
    edit(record)
    file.write_text(json.dumps(record))


def pasted(line: str) -> list[list[str]]:
    """The commands that a message suggests at its end."""
    commands = line.rpartition(": ")[2].split(" && ")
    return [shlex.split(command) for command in commands]


def carry_out(commands: list[list[str]]) -> None:
    for program, *words in commands:
        match program:
            case "noisychannel":
                assert main(words) == 0
            case "rm":
                shutil.rmtree(words[-1], ignore_errors=True) if words[0] == "-rf" else Path(words[-1]).unlink()
            case "cp":
                shutil.copy(*words)
            case _:
                raise AssertionError(program)


# Writing: through links, into special files.


def test_a_link_is_written_through(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere" / "results.json"
    target.parent.mkdir()
    target.write_text("old")
    target.chmod(0o640)
    (tmp_path / "near").symlink_to("elsewhere/results.json")
    (tmp_path / "far").symlink_to("near")
    (tmp_path / "new").symlink_to("elsewhere/new.json")
    write_text(tmp_path / "far", "through two links")
    write_text(tmp_path / "new", "through a link to nothing")
    assert target.read_text() == "through two links"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert (tmp_path / "far").is_symlink()
    assert (tmp_path / "near").is_symlink()
    assert sorted(file.name for file in target.parent.iterdir()) == ["new.json", "results.json"]


@pytest.mark.parametrize("name", ["loop", "directory", "nowhere/file"])
def test_what_cannot_be_a_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "directory").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(NoisyChannelError, match=rf"^{tmp_path}/{name}: cannot be written \("):
        write_text(tmp_path / name, "x")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
    reader.start()
    write_text(tmp_path / "pipe", "content")
    reader.join()
    assert read == ["content"]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_descriptor_is_written_where_it_stands(tmp_path: Path) -> None:
    """As for standard output in a file: what others write before and after stays."""
    file = tmp_path / "output"
    with file.open("wb", buffering=0) as stream:
        stream.write(b"before ")
        write_text(Path(f"/dev/fd/{stream.fileno()}"), "here ")
        stream.write(b"after")
    assert file.read_text() == "before here after"


def test_a_device_stays_a_device(trained: Path, pairs: str, tmp_path: Path, capsys) -> None:
    link = tmp_path / "result.json"
    link.symlink_to("/dev/full")
    line = fails(capsys, "evaluate", str(trained), pairs, "--systems", "direct", "--json", str(link))
    assert f"{link}: cannot be written (No space left on device)" in line
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)
    assert link.is_symlink()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("pairs.tsv", "is a file that is evaluated"),
        ("link", "is a file that is evaluated"),
        ("references.txt", "is a file that is evaluated"),
        ("run/weights.json", "is a file of the run"),
        ("run/metrics.jsonl", "is a file of the run"),
        ("run/lm/model.safetensors", "is a file of the run"),
        ("run/lm/new.json", "is a file of the run"),
        ("inside", "is a file of the run"),
    ],
)
def test_results_do_not_replace_what_they_are_made_from(run: Path, pairs: str, name: str, told: str, capsys) -> None:
    home = run.parent
    (home / "link").symlink_to("pairs.tsv")
    (home / "inside").symlink_to("run/output.vocabulary.json")
    (home / "references.txt").write_text("x\n" * 4)
    before = content_of(home)
    words = ["--references", str(home / "references.txt")] if name == "references.txt" else []
    line = fails(capsys, "evaluate", str(run), pairs, "--json", str(home / name), *words)
    assert f"--json: {home / name} {told}" in line
    assert content_of(home) == before


def test_results_may_be_kept_beside_the_models(run: Path, pairs: str) -> None:
    assert main(["evaluate", str(run), pairs, "--systems", "direct", "--json", str(run / "results.json")]) == 0
    assert json.loads((run / "results.json").read_text())


def test_a_run_without_a_proposing_model_is_not_evaluated(run: Path, pairs: str, capsys) -> None:
    (run / "weights.json").unlink()
    shutil.rmtree(run / "direct")
    change(run / "run.json", lambda record: [record["files"].pop(n) for n in list(record["files"]) if "direct/" in n])
    line = fails(capsys, "evaluate", str(run), pairs)
    proposing = "(direct, attention, seq2seq, transformer)"
    assert f"{run}: no model proposes outputs {proposing} for each item of {pairs}; train" in line
    carry_out(pasted(line))
    assert main(["evaluate", str(run), pairs]) == 0


def test_measurements_do_not_replace_a_file_of_a_run(run: Path, capsys) -> None:
    line = fails(capsys, "bench", "--suites", "loss", "--output", str(run / "run.json"))
    assert f"--output: {run / 'run.json'} is a file of the run {run}; name another file" in line


# Schemas.

DEEP = "[" * 5000 + "]" * 5000
WRONG: list[Any] = [None, "x", "\0", -1, True, 0.5, 10**400, 1e308, math.nan, [], {}, [[]], {"x": None}]
"""A value of each kind. Some are right in some places."""


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of everything inside a JSON value, the whole first."""
    yield path
    inside: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield from places(one, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def read_vocabularies(run: Path) -> object:
    return RunDirectory(run).codecs()


READERS: dict[str, Callable[[Path], object]] = {
    "run.json": lambda run: RunDirectory.open(run).groups(),
    "weights.json": lambda run: (read_systems(RunDirectory(run)), read_system(RunDirectory(run)).system),
    "direct/config.json": lambda run: RunDirectory(run).load_model("direct"),
    "lm/config.json": lambda run: RunDirectory(run).load_model("lm"),
    "input.vocabulary.json": read_vocabularies,
}


@pytest.mark.parametrize("name", READERS)
def test_wrong_types_at_any_depth_are_one_line_that_names_the_file(run: Path, name: str) -> None:
    """Without checksums, so that the schema alone decides."""
    change(run / "run.json", lambda record: record.pop("files"))
    file, read = run / name, READERS[name]
    text = file.read_text()
    whole = json.loads(text)
    read(run)
    tried, refusals = 0, []
    for path in places(whole):
        if any(isinstance(key, int) and key > 0 for key in path):
            continue  # the first of a list is enough
        for wrong in WRONG:
            file.write_text(json.dumps(replaced(whole, path, wrong)))
            tried += 1
            try:
                read(run)
            except NoisyChannelError as error:
                refusals.append(str(error))
    assert len(refusals) > 0.6 * tried
    for line in refusals:
        assert line.startswith(str(run))
        assert "\n" not in line
        assert len(line) < 800
    for content in ("", "{", "[]", "null", text[:-3], f'{{"format": {DEEP}}}', DEEP, text.replace("{", "", 1), "\x00"):
        file.write_text(content)
        with pytest.raises(NoisyChannelError, match=rf"^{file}: (damaged|format)"):
            read(run)
    file.write_bytes(b"\xff" + text.encode())
    with pytest.raises(NoisyChannelError, match=f"^{file}: damaged"):
        read(run)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(NoisyChannelError, match=f"^{file}: not a regular file"):
        read(run)


def set_at(*path: Any, value: Any) -> Callable[[Any], None]:
    def edit(record: Any) -> None:
        for key in path[:-1]:
            record = record[key]
        record[path[-1]] = value

    return edit


LM = ("systems", "direct+lm")


@pytest.mark.parametrize(
    ("name", "edit", "reason"),
    [
        ("run.json", set_at("groups", value=[]), "groups: must be one or several different names"),
        ("run.json", set_at("groups", value=["a", "a"]), "groups: must be one or several different names"),
        ("run.json", set_at("files", "x", value=3), "files.x: must be a valid string"),
        ("weights.json", set_at(*LM, "weights", "lm", value="much"), r"weights\.lm: must be a valid number"),
        ("weights.json", set_at(*LM, "weights", "lm", value=math.nan), r"weights\.lm: must be a finite number"),
        (
            "weights.json",
            set_at(*LM, "weights", "lm", value=1e308),
            r"the weight lm must be between -1e\+30 and 1e\+30",
        ),
        (
            "weights.json",
            set_at(*LM, "weights", value={"direct": 0, "lm": 0, "length": 2}),
            "all weights of models are zero",
        ),
        ("weights.json", set_at(*LM, "search", "k1", value=True), r"search\.k1: must be a valid integer"),
        ("weights.json", set_at(*LM, "search", "k1", value=0), r"search: k1: must be at least 1, but is 0"),
        ("weights.json", set_at(*LM, "search", "beam", value=3), r"search\.beam: unknown key"),
        ("weights.json", set_at("systems", "direct+ml", value={"weights": {"direct": 1}, "search": {}}), "term 'ml'"),
        ("weights.json", set_at("default", value="direct+x"), "default: there is no system 'direct\\+x'"),
        ("weights.json", lambda record: record.pop("systems"), "systems: missing"),
        ("weights.json", set_at("systems", value=[]), "systems: must be an object"),
        ("direct/config.json", set_at("class", value="Perceptron"), "class: must be one of SSNT, LanguageModel"),
        ("direct/config.json", set_at("arguments", "hidden_size", value=-3), "hidden_size: must be at least 1"),
        ("direct/config.json", set_at("arguments", "dropout", value=7.0), "dropout: must be at least 0 and less than"),
        ("direct/config.json", set_at("arguments", "width", value=7), "width: unknown key"),
        ("direct/config.json", set_at("arguments", "input_vocab_size", value=7), "input_vocab_size: is 7, but the voc"),
        ("input.vocabulary.json", set_at("symbols", value=["a", "a"]), "symbols: one of them is repeated"),
        ("input.vocabulary.json", set_at("text", "units", value="syllables"), r"text\.units: must be 'characters'"),
    ],
)
def test_nonsense_is_refused_with_its_place(run: Path, name: str, edit: Callable[[Any], None], reason: str) -> None:
    change(run / name, edit)
    with pytest.raises(NoisyChannelError, match=rf"{name}: damaged \(.*{reason}.*\); restore it from a copy, or "):
        READERS[name](run)


def test_a_key_of_a_later_version_is_ignored(run: Path) -> None:
    """The format number says what an older version could misread."""
    change(run / "run.json", set_at("later", value={"x": 1}))
    assert RunDirectory.open(run).header().groups == [""]


def test_keys_with_line_ends_are_still_one_line(run: Path) -> None:
    change(run / "weights.json", set_at("systems", "a\nb", value=3))
    with pytest.raises(NoisyChannelError, match=r"damaged \(systems\.a b: must be an object\)"):
        read_systems(RunDirectory(run))


def test_a_number_of_a_million_digits_is_damage() -> None:
    digits = "1" * 1_000_000
    with pytest.raises(NoisyChannelError, match=r"^x\.json: damaged \(not JSON: number out of range"):
        parse_record(f'{{"x": {digits}}}', RunHeader, Path("x.json"), "train again")


def test_weights_are_parsed_once(run: Path, inputs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    read_bytes = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda self: (reads.append(self.name), read_bytes(self))[1])
    assert main(["decode", str(run), inputs, "--device", "cpu"]) == 0
    assert reads.count("weights.json") == 1
    assert reads.count("run.json") == 1


def test_damaged_weights_are_removed_and_tuned_by_the_command_given(run: Path, inputs: str, capsys) -> None:
    (run / "weights.json").write_text('{"systems": 3}')
    line = fails(capsys, "decode", str(run), inputs)
    assert fails(capsys, "tune", str(run)) == line, "they are not overwritten unasked"
    *before, (program, *words) = pasted(line)
    carry_out([*before, [program, *words, "--systems", "direct+lm", *FEW]])
    assert main(["decode", str(run), inputs, "--device", "cpu"]) == 0


def test_equal_tensors_give_equal_files(tmp_path: Path) -> None:
    """Checksums of two runs with the same seed are the same. safetensors writes metadata in arbitrary order."""
    tensors, files = {"b": torch.arange(3.0), "a": torch.zeros(2, 2, dtype=torch.long)}, set()
    metadata = dict.fromkeys(("step", "dev_loss", "x", "y", "z"), "é")
    for n in range(8):
        save_tensors(tmp_path / f"{n}", tensors, dict(reversed(metadata.items())) if n % 2 else metadata)
        files.add((tmp_path / f"{n}").read_bytes())
    assert len(files) == 1
    loaded, read = load_tensors(tmp_path / "0")
    assert read == metadata
    assert loaded.keys() == tensors.keys()
    assert all(torch.equal(loaded[name], tensors[name]) for name in tensors)


def test_a_damaged_training_state_is_refused(run: Path, capsys) -> None:
    """Of another role, of other shapes, with other numbers."""
    directory = RunDirectory(run)
    config = train(run, "--direct.max_epochs", "2")
    file = directory.stopped_file("direct")
    tensors, metadata = load_tensors(file)
    before = directory.model_file("direct").read_bytes()
    state = json.loads(metadata["state"])
    for wrong in ("{", json.dumps({**state, "step": -1}), json.dumps({**state, "learning_rate": math.nan}), "[]"):
        save_tensors(file, tensors, {"state": wrong})
        assert "stopped.safetensors: damaged (" in fails(capsys, *config)
    fewer = {name: tensor for name, tensor in tensors.items() if "emit" not in name}
    save_tensors(file, fewer, {"state": metadata["state"]})
    assert "stopped.safetensors: not the state of this model" in fails(capsys, *config)
    assert directory.model_file("direct").read_bytes() == before
    save_tensors(file, tensors, metadata)
    assert TrainingState.read(file).step == state["step"]
    assert main(config) == 0


def test_a_damaged_line_of_the_metrics_is_dropped(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    good = '{"model": "lm", "kind": "train", "step": 1, "loss": null}\n'
    file.write_bytes(good.encode() + b'{"model": 3}\n\xff\n[]\n{"kind": "dev"}\n' + good.encode() + b'{"mod')
    forget_after(file, "direct", None)
    assert file.read_text() == good * 2


def test_a_model_whose_loss_is_no_number_has_no_perplexity(run: Path) -> None:
    directory = RunDirectory(run)
    tensors, metadata = load_tensors(directory.model_file("lm"))
    for wrong in ({"dev_loss": "nan"}, {"dev_loss": "1e9"}, {"step": "x"}, {"step": "-1"}):
        save_tensors(directory.model_file("lm"), tensors, {**metadata, **wrong})
        with pytest.raises(NoisyChannelError, match=r"model\.safetensors: damaged \("):
            directory.dev_perplexity("lm")


# Roles.


def test_the_role_is_recorded(run: Path) -> None:
    for role in ("direct", "channel", "lm"):
        assert json.loads((run / role / "config.json").read_text())["role"] == role


@pytest.mark.parametrize(("held", "role"), [("channel", "direct"), ("direct", "channel"), ("lm", "direct")])
@pytest.mark.parametrize("recorded", [True, False])
def test_a_folder_of_another_role_is_refused(run: Path, held: str, role: str, recorded: bool) -> None:
    """Also in a run that records neither roles nor checksums."""
    shutil.rmtree(run / role)
    shutil.copytree(run / held, run / role)
    if not recorded:
        change(run / "run.json", lambda record: record.pop("files"))
        change(run / role / "config.json", lambda record: record.pop("role"))
    with pytest.raises(NoisyChannelError, match=rf"{run / role}: holds the {held}.* model, not the {role} model; "):
        NoisyChannel.load(run, device="cpu")


def test_a_model_is_trained_again_by_the_command_given(run: Path, inputs: str, capsys) -> None:
    shutil.rmtree(run / "direct")
    shutil.copytree(run / "channel", run / "direct")
    line = fails(capsys, "decode", str(run), inputs)
    assert "restore the direct model from a copy, or train it again: rm -rf" in line
    carry_out(pasted(line))
    assert main(["decode", str(run), inputs]) == 0
    shutil.rmtree(run / "direct")
    line = fails(capsys, "decode", str(run), inputs)
    assert f"{run / 'direct' / 'model.safetensors'}: missing; restore it from a copy, or train it again: rm -rf" in line
    carry_out(pasted(line))
    assert main(["decode", str(run), inputs]) == 0


def test_a_training_is_not_resumed_in_the_folder_of_another_role(run: Path, capsys) -> None:
    shutil.rmtree(run / "direct")
    shutil.copytree(run / "channel", run / "direct")
    line = fails(capsys, *train(run, "--direct.max_epochs", "2"))
    assert f"{run / 'direct'}: holds the channel model, not the direct model" in line


# Checksums.


def test_checksums_are_those_of_the_files(run: Path) -> None:
    header = RunDirectory.open(run).header()
    models = [f"{role}/{file}" for role in ("channel", "direct", "lm") for file in ("config.json", "model.safetensors")]
    vocabularies = [f"{side}.vocabulary.json" for side in SIDES]
    assert list(header.files) == sorted([*models, *vocabularies, "lm/word_list.safetensors", "seen.safetensors"])
    assert all(checksum(run / name) == recorded for name, recorded in header.files.items())


@pytest.mark.parametrize(
    "name",
    [
        "direct/model.safetensors", "channel/model.safetensors", "lm/model.safetensors", "lm/word_list.safetensors",
        "input.vocabulary.json", "output.vocabulary.json", "direct/config.json",
    ],
)  # fmt: skip
def test_a_flipped_bit_and_a_deleted_file_are_named(run: Path, name: str) -> None:
    file = run / name
    whole = file.read_bytes()
    place = whole.rindex(b"0.0") + 2 if name.endswith("config.json") else len(whole) - 8
    file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with pytest.raises(NoisyChannelError, match=rf"^{file}: .*; restore it from a copy, or "):
        NoisyChannel.load(run, device="cpu")
    file.unlink()
    with pytest.raises(NoisyChannelError, match=rf"^{file}: missing; restore it from a copy, or "):
        NoisyChannel.load(run, device="cpu")
    file.write_bytes(whole)
    assert NoisyChannel.load(run, device="cpu") is not None


@pytest.mark.parametrize("name", ["lm/word_list.safetensors", "channel/model.safetensors"])
def test_no_command_goes_on_without_what_was_trained(run: Path, inputs: str, pairs: str, name: str, capsys) -> None:
    (run / name).unlink()
    weights = (run / "weights.json").read_bytes()
    for words in (["decode", str(run), inputs], ["tune", str(run), *FEW], ["evaluate", str(run), pairs]):
        assert f"{run / name}: missing; restore it from a copy, or " in fails(capsys, *words), words
    assert (run / "weights.json").read_bytes() == weights


def test_one_bit_of_a_weight_is_enough(run: Path) -> None:
    directory = RunDirectory.open(run)
    file = directory.model_file("direct")
    tensors, metadata = load_tensors(file)
    tensors["emit.bias"] += 1e-7
    save_tensors(file, tensors, metadata)
    with pytest.raises(NoisyChannelError, match=r"damaged \(not the file that was trained") as caught:
        directory.load_model("direct")
    carry_out(pasted(str(caught.value)))
    assert RunDirectory.open(run).load_model("direct") is not None


def test_an_unfinished_model_is_not_verified(run: Path) -> None:
    directory = RunDirectory(run)
    tensors, metadata = load_tensors(directory.model_file("direct"))
    tensors["emit.bias"] += 0.5
    save_tensors(directory.model_file("direct"), tensors, metadata)
    directory.stopped_file("direct").rename(directory.state_file("direct"))
    assert directory.load_model("direct") is not None
    directory.state_file("direct").unlink()
    with pytest.raises(NoisyChannelError, match="not the file that was trained"):
        directory.load_model("direct")


def test_training_further_records_the_new_checksums(run: Path) -> None:
    before = RunDirectory.open(run).header().files
    assert main(train(run, "--lm.max_epochs", "2")) == 0
    after = RunDirectory.open(run).header().files
    assert {name for name in before if before[name] != after[name]} == {"lm/model.safetensors"}
    assert RunDirectory.open(run).load_model("lm") is not None


def test_checksums_come_before_the_end_of_the_training_state(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training that is killed in between resumes."""
    directory = RunDirectory(run)
    seen: list[bool] = []
    record = RunDirectory.record_files

    def killed(self: RunDirectory, role: str) -> None:
        seen.append(self.state_file(role).exists())
        record(self, role)
        raise KeyboardInterrupt

    config = replace(config_of(run), models=["lm"], jobs=1)
    config.lm.max_epochs = 2
    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "record_files", killed)
        with pytest.raises(KeyboardInterrupt):
            train_run(config, lambda event: None, lambda line: None)
    assert seen == [True]
    assert not directory.finished("lm")
    directory.forget()
    recorded = directory.header().files
    train_run(config, lambda event: None, lambda line: None)
    assert directory.finished("lm")
    directory.forget()
    assert directory.header().files == recorded
    assert directory.load_model("lm") is not None


def test_several_processes_may_record_at_once(tmp_path: Path) -> None:
    """Threads with descriptors of their own exclude each other as processes do."""
    for n in range(6):
        (tmp_path / f"role{n}").mkdir()
        (tmp_path / f"role{n}" / "model.safetensors").write_text(str(n))
    RunDirectory(tmp_path).write_header([""], DataRecord())
    record = [
        threading.Thread(target=lambda n=n: [RunDirectory(tmp_path).record_files(f"role{n}") for _ in range(10)])
        for n in range(6)
    ]
    for thread in record:
        thread.start()
    for thread in record:
        thread.join()
    assert list(RunDirectory(tmp_path).header().files) == [f"role{n}/model.safetensors" for n in range(6)]


# Trained models that train finds.


def content_of(run: Path) -> dict[str, bytes]:
    return {str(file.relative_to(run)): file.read_bytes() for file in run.rglob("*") if file.is_file()}


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-8] ^= 1
    file.write_bytes(content)


def swap(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a bit of a model": (lambda run: flip(run / "direct/model.safetensors"), "direct/model.safetensors: damaged (not"),
    "roles": (lambda run: swap(run / "direct", run / "channel"), "direct: holds the channel model, not the direct"),
    "a word list": (lambda run: (run / "lm/word_list.safetensors").unlink(), "lm/word_list.safetensors: missing"),
    "a configuration": (lambda run: (run / "lm/config.json").unlink(), "lm/config.json: missing"),
    "a vocabulary": (lambda run: (run / "input.vocabulary.json").unlink(), "input.vocabulary.json: missing"),
}


@pytest.mark.parametrize("further", [[], ["--training.max_epochs", "2"]])
@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_models_are_neither_finished_nor_trained_further(
    run: Path, damage: str, further: list[str], capsys
) -> None:
    harm, told = DAMAGE[damage]
    harm(run)
    before = content_of(run)
    line = fails(capsys, *train(run, *further))
    assert f"{run}/{told}" in line
    assert "; restore " in line
    assert content_of(run) == before


def test_finished_models_are_finished_after_the_command_given(run: Path, capsys) -> None:
    flip(run / "lm" / "model.safetensors")
    carry_out(pasted(fails(capsys, *train(run))))
    capsys.readouterr()
    assert main(train(run)) == 0
    assert "nothing to do" in capsys.readouterr().err


def test_weights_that_are_no_numbers_are_damage_if_they_were_not_trained(run: Path) -> None:
    directory = RunDirectory(run)
    tensors, metadata = load_tensors(directory.model_file("lm"))
    save_tensors(directory.model_file("lm"), {name: tensor * math.nan for name, tensor in tensors.items()}, metadata)
    with pytest.raises(NoisyChannelError, match="not the file that was trained"):
        directory.load_model("lm")


@pytest.mark.parametrize("lock", [True, False])
@pytest.mark.parametrize("left", ["lm/model.safetensors", "weights.json"])
def test_a_run_that_lost_its_header_is_not_replaced(run: Path, lock: bool, left: str, capsys) -> None:
    (run / "run.json").unlink()
    if lock:
        (run / ".lock").touch()
    for name in {"direct", "channel", "lm"} - {left.split("/")[0]}:
        shutil.rmtree(run / name)
    if left != "weights.json":
        (run / "weights.json").unlink()
    before = content_of(run)
    line = fails(capsys, *train(run))
    way = "start over (--overwrite)" if lock else "choose another run_dir"
    assert f"{run / 'run.json'}: missing, but {run} holds trained models; restore it from a copy, or {way}" in line
    assert content_of(run) == before
    if not lock:  # nothing says that the directory is ours
        assert "holds trained models" in fails(capsys, *train(run, "--overwrite"))
        assert content_of(run) == before
        return
    assert main(train(run, "--overwrite")) == 0
    assert not (run / "weights.json").exists()
    assert RunDirectory.open(run).load_model("lm") is not None


@pytest.fixture(scope="module")
def of_two_groups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = toy_config(tmp_path_factory.mktemp("groups"), rows=20, longest=4, max_epochs=1)
    for file in map(Path, (*config.data.train, *config.data.dev)):
        lines = file.read_text().splitlines()
        file.write_text("".join(f"{line}\t{'ab'[n % 2]}\n" for n, line in enumerate(lines)))
    config.data.columns = "input,output,group"
    train_run(config, lambda event: None, lambda line: None)
    return Path(config.run_dir)


@pytest.fixture
def groups(of_two_groups: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(of_two_groups, tmp_path / "groups"))


def test_groups_that_are_damaged_are_not_finished(groups: Path, capsys) -> None:
    whole = shutil.copytree(groups, groups.with_name("whole"))

    def told(harm: Callable[[], object]) -> str:
        harm()
        line = fails(capsys, *train(groups))
        shutil.rmtree(groups)
        shutil.copytree(whole, groups)
        return line

    assert f"{groups}/a: holds the group 'b', not 'a'; restore it" in told(lambda: swap(groups / "a", groups / "b"))
    assert f"{groups}/b/run.json: missing, so the group 'b'" in told((groups / "b" / "run.json").unlink)
    assert f"{groups}/b/direct/model.safetensors: damaged" in told(lambda: flip(groups / "b/direct/model.safetensors"))
    (groups / "run.json").unlink()
    (groups / ".lock").touch()
    assert f"{groups}/run.json: missing, but {groups} holds trained models" in fails(capsys, *train(groups))


def test_a_deleted_group_is_trained_by_the_command_given(groups: Path, capsys) -> None:
    shutil.rmtree(groups / "a")
    line = fails(capsys, *train(groups))
    assert f"{groups}/a/run.json: missing, so the group 'a' cannot be used; restore it from a copy, or" in line
    carry_out(pasted(line))
    assert RunDirectory.open(groups).group("a").load_model("direct") is not None


# The states of trainings.

FURTHER = ["--training.max_epochs", "2"]


def other_model(run: Path) -> None:
    """The state of a larger model of the same role, trained on the same data."""
    other = replace(config_of(run), run_dir=str(run.with_name("larger")), models=["lm"])
    other.lm = replace(other.lm, hidden_size=40)
    train_run(other, lambda event: None, lambda line: None)
    shutil.copy(run.with_name("larger") / "lm" / "stopped.safetensors", run / "lm")


def flip_number(run: Path) -> None:
    file = run / "lm" / "stopped.safetensors"
    file.write_bytes(file.read_bytes().replace(b'\\"learning_rate\\": 0.01', b'\\"learning_rate\\": 0.03'))


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda run: flip(run / "lm/stopped.safetensors"), "damaged (not what was saved: it has another checksum)"),
        (flip_number, "damaged (not what was saved: it has another checksum)"),
        (
            lambda run: shutil.copy(run / "channel/stopped.safetensors", run / "lm"),
            "the state of the channel model, not of the lm model; restore it from a copy, or ",
        ),
        (other_model, "not the state of this model; restore it from a copy, or "),
        (lambda run: (run / "lm/stopped.safetensors").write_bytes(b"x"), "damaged or truncated"),
    ],
)
def test_a_continuation_that_fails_changes_nothing(
    run: Path, harm: Callable[[Path], object], told: str, capsys
) -> None:
    harm(run)
    before = content_of(run)
    assert f"{run}/lm/stopped.safetensors: {told}" in fails(capsys, *train(run, *FURTHER))
    assert content_of(run) == before
    assert NoisyChannel.load(run, device="cpu") is not None


def test_an_interrupted_training_is_not_resumed_from_a_damaged_state(run: Path, capsys) -> None:
    state = run / "lm" / "training.safetensors"
    (run / "lm" / "stopped.safetensors").rename(state)
    flip(state)
    before = content_of(run)
    assert f"{state}: damaged (not what was saved" in fails(capsys, *train(run, *FURTHER))
    assert content_of(run) == before


def test_a_state_of_an_earlier_version_is_continued(run: Path) -> None:
    file = run / "lm" / "stopped.safetensors"
    tensors, metadata = load_tensors(file)
    state = json.loads(metadata["state"])
    del state["role"]
    save_tensors(file, tensors, {"state": json.dumps(state)})
    assert main(train(run, *FURTHER, "--models", "lm")) == 0


def test_the_checksum_of_tensors_depends_on_all_of_them() -> None:
    one = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor(3)}
    others: list[dict[str, torch.Tensor]] = [
        {"a": torch.tensor([1.0, 2.5]), "b": one["b"]},
        {"a": torch.tensor([[1.0, 2.0]]), "b": one["b"]},
        {"a": one["a"].view(torch.int32), "b": one["b"]},
        {"c": one["a"], "b": one["b"]},
        {"a": one["a"]},
    ]
    sums = [tensors_checksum(each) for each in (one, *others)]
    assert len(set(sums)) == len(sums)
    assert tensors_checksum(dict(reversed(one.items()))) == sums[0]


# What is no regular file.


@pytest.mark.parametrize("name", ["metrics.jsonl", "lm/model.safetensors", "lm/stopped.safetensors", "lm/config.json"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_pipes_and_devices_in_a_run_are_refused(run: Path, name: str, kind: str, capsys) -> None:
    (run / name).unlink()
    os.mkfifo(run / name) if kind == "pipe" else (run / name).symlink_to("/dev/zero")
    line = fails(capsys, *train(run, *FURTHER))
    assert line.startswith(f"noisychannel: {run / name}: ")
    assert "not a regular file" in line
    assert not list(run.rglob("training.safetensors"))


@pytest.mark.parametrize("kind", ["pipe", "link", "link to nothing", "directory"])
def test_a_lock_is_a_regular_file(run: Path, kind: str, capsys) -> None:
    lock, precious = run / ".lock", run.with_name("precious")
    precious.write_text("content")
    match kind:
        case "pipe":
            os.mkfifo(lock)
        case "directory":
            lock.mkdir()
        case _:
            lock.symlink_to(precious if kind == "link" else run.with_name("nothing"))
    line = fails(capsys, *train(run))
    assert f"{lock}: not a regular file, so it cannot be the lock of the run; remove it, then try again" in line
    assert precious.read_text() == "content"
    assert not run.with_name("nothing").exists()


def test_a_lock_that_was_left_is_not_emptied(run: Path) -> None:
    precious = run.with_name("precious")
    precious.write_text("content")
    (run / ".lock").hardlink_to(precious)
    assert main(train(run)) == 0
    assert precious.read_text() == "content"


@pytest.mark.parametrize("group", ["", "a"])
def test_a_link_in_the_place_of_the_data_is_removed_alone(group: str, run: Path, groups: Path) -> None:
    place = groups / group if group else run
    whole = groups if group else run
    elsewhere = place.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "train.inputs").write_text("content")
    (place / ".data").symlink_to(elsewhere)
    assert main(train(whole, *FURTHER, "--models", "direct")) == 0
    assert [file.read_text() for file in elsewhere.iterdir()] == ["content"]
    assert not (place / ".data").is_symlink()


def test_a_directory_that_another_process_changes_is_waited_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checksums, "SECONDS_FOR_LOCK", 0.05)
    with (
        checksums.locked(tmp_path),
        pytest.raises(NoisyChannelError, match=f"^{tmp_path}: another process is changing it; try again"),
        checksums.locked(tmp_path),
    ):
        pytest.fail("both are inside")
    with checksums.locked(tmp_path):
        pass


# What is no run directory.


def test_a_file_or_a_model_is_no_run_directory(run: Path, inputs: str, tmp_path: Path, capsys) -> None:
    assert f"{inputs}: is a file, not a run directory" in fails(capsys, "decode", inputs, inputs)
    line = fails(capsys, "decode", str(run / "direct"), inputs)
    assert f"{run / 'direct'}: a model of a run, not a run directory; did you mean {run}?" in line
    line = fails(capsys, "train", str(run / "config.yaml"), "--run_dir", inputs)
    assert f"run_dir: {inputs} is a file; choose another directory (--run-dir)" in line


# Runs that were moved.


def test_the_configuration_of_a_run_is_that_of_the_run_where_it_lies(
    trained: Path, run: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """A copy, whose configuration names the original; a moved one, whose configuration names nothing."""
    original = content_of(trained)
    moved = shutil.move(shutil.copytree(run, run.with_name("first")), run.with_name("moved"))
    (moved / "config.yaml").write_text(
        (moved / "config.yaml").read_text().replace(f"run_dir: {trained}", f"run_dir: {run.with_name('first')}")
    )
    for place in (run, moved):
        assert main(["train", str(place / "config.yaml")]) == 0
        assert f"{place}: nothing to do" in capsys.readouterr().err
        assert main(["train", str(place / "config.yaml"), "--lm.max_epochs", "2", "--models", "lm"]) == 0
        assert parse_config(place / "config.yaml").run_dir == str(place)
        assert checksum(place / "lm" / "model.safetensors") != checksum(trained / "lm" / "model.safetensors")
    assert not run.with_name("first").exists()
    assert content_of(trained) == original
    monkeypatch.chdir(moved)
    shutil.rmtree(run)
    assert parse_config(Path("config.yaml")).run_dir == str(moved)
    other = str(run.with_name("other"))
    assert parse_config(Path("config.yaml"), ["--run_dir", other]).run_dir == other


def test_the_configuration_of_a_group_is_that_of_the_whole_run(
    of_two_groups: Path, groups: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    assert main(["train", str(groups / "a" / "config.yaml")]) == 0
    assert f"{groups}: nothing to do" in capsys.readouterr().err
    monkeypatch.chdir(groups / "a")
    assert parse_config(Path("config.yaml")).run_dir == ".."
    monkeypatch.chdir(groups)
    assert parse_config(Path("config.yaml")).run_dir == "."
    assert parse_config(of_two_groups / "a" / "config.yaml").run_dir == str(of_two_groups)


# Stale weights.


def test_weights_of_an_earlier_model_are_told_of(run: Path, inputs: str, pairs: str, capsys) -> None:
    assert main(["decode", str(run), inputs, "--device", "cpu"]) == 0
    assert "tune again" not in capsys.readouterr().err
    assert main(train(run, "--lm.max_epochs", "2")) == 0
    told = (
        f"{run}: the weights of direct+channel+lm+word_list were tuned with an earlier lm; "
        f"tune again: noisychannel tune {run}"
    )
    capsys.readouterr()
    assert main(["decode", str(run), inputs, "--device", "cpu"]) == 0
    assert capsys.readouterr().err.count(told) == 1
    assert main(["decode", str(run), inputs, "--device", "cpu", "--weights", "1,1,1,0"]) == 0
    assert "tune again" not in capsys.readouterr().err, "given weights"
    assert main(["evaluate", str(run), pairs, "--device", "cpu"]) == 0
    assert (
        capsys.readouterr().err.count("of direct+lm, direct+channel+lm+word_list were tuned with an earlier lm;") == 1
    )
    assert main(["tune", str(run), "--systems", SYSTEMS, *FEW]) == 0
    capsys.readouterr()
    assert main(["decode", str(run), inputs, "--device", "cpu"]) == 0
    assert "tune again" not in capsys.readouterr().err


def test_a_system_that_is_written_again_has_its_new_weights(run: Path) -> None:
    directory = RunDirectory(run)
    tuned = read_system(directory, "direct+lm")
    write_systems(directory, [replace(tuned, weights=Weights(1.0, lm=0.25))])
    again = read_system(directory, "direct+lm")
    assert again == replace(tuned, weights=Weights(1.0, lm=0.25))
    assert read_system(directory).name == "direct+channel+lm+word_list", "the default stays"
    assert isinstance(again, TunedSystem)


def test_systems_that_are_tuned_at_once_are_all_kept(run: Path) -> None:
    tuned = read_system(RunDirectory(run), "direct+lm")
    names = ("direct+length", "direct+channel", "channel+lm", "direct+channel+lm")

    def write(name: str) -> None:
        directory = RunDirectory(run)
        read_systems(directory)
        write_systems(directory, [replace(tuned, name=name)])

    writers = [threading.Thread(target=write, args=[name]) for name in names]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    assert read_systems(RunDirectory(run)).keys() == {"direct", "direct+lm", "direct+channel+lm+word_list", *names}


# What does not fit.


@pytest.mark.parametrize("wrong", [{"hidden_size": 10**9}, {"num_layers": 10**6}, {"embedding_size": 10**12}])
def test_a_model_that_does_not_fit_its_tensors_is_not_built(
    run: Path, wrong: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of that size is allocated, and a model of a million layers is not even made."""
    change(run / "run.json", lambda record: record.pop("files"))
    change(run / "direct" / "config.json", lambda record: record["arguments"].update(wrong))
    monkeypatch.setattr(ModelDescription, "build", lambda self: pytest.fail("built"))
    with pytest.raises(NoisyChannelError, match=r"does not fit config\.json beside it; restore both"):
        RunDirectory(run).load_model("direct")


def test_a_model_of_other_numbers_is_refused(run: Path) -> None:
    directory = RunDirectory(run)
    tensors, metadata = load_tensors(directory.model_file("lm"))
    save_tensors(directory.model_file("lm"), {name: tensor.int() for name, tensor in tensors.items()}, metadata)
    with pytest.raises(NoisyChannelError, match=r"does not fit config\.json"):
        directory.load_model("lm")


def test_a_loaded_model_has_the_stored_weights_and_can_be_trained(run: Path) -> None:
    for role in ("direct", "channel", "lm"):
        model = RunDirectory(run).load_model(role)
        assert not model.training
        assert all(parameter.requires_grad and parameter.device.type == "cpu" for parameter in model.parameters())
        tensors, _ = load_tensors(RunDirectory(run).model_file(role))
        assert all(torch.equal(tensors[name], value) for name, value in model.state_dict().items())


def test_a_missing_configuration_is_copied_or_asked_for(run: Path, inputs: str, capsys) -> None:
    (run / "config.yaml").unlink()
    line = fails(capsys, "decode", str(run), inputs)
    assert f"{run / 'config.yaml'}: missing; copy the configuration there that the run was trained with" in line
    assert NoisyChannel.load(run, device="cpu")("bad"), "the models need none"


def test_groups_keep_copies_of_the_configuration(tmp_path: Path, inputs: str, capsys) -> None:
    config = toy_config(tmp_path, rows=20, longest=4, max_epochs=1)
    for file in map(Path, (*config.data.train, *config.data.dev)):
        file.write_text("".join(f"{line}\tone group\n" for line in file.read_text().splitlines()))
    config.data.columns = "input,output,group"
    train_run(config, lambda event: None, lambda line: None)
    run, group = Path(config.run_dir), Path(config.run_dir) / "one group"
    whole = (run / "config.yaml").read_text()
    other = shutil.copytree(run, tmp_path / "other")
    change(Path(other) / "run.json", set_at("groups", value=["another"]))
    shutil.move(Path(other) / "one group", Path(other) / "another")
    assert f"{other}/another: holds the group 'one group', not 'another'; rest" in fails(capsys, "tune", str(other))
    for broken, words in ((group, ["decode", str(group), inputs]), (run, ["tune", str(run)])):
        (broken / "config.yaml").unlink()
        line = fails(capsys, *words)
        assert f"{broken / 'config.yaml'}: missing; all groups have the same: cp " in line
        carry_out(pasted(line))
        assert (broken / "config.yaml").read_text() == whole


def test_a_language_model_with_fewer_symbols_cannot_be_a_term(run: Path, tmp_path: Path, capsys) -> None:
    config = toy_config(tmp_path / "other", task=lambda x: x[:1], models=("lm",), rows=5, longest=2, max_epochs=1)
    train_run(config, lambda event: None, lambda line: None)
    assert len(Codec.load(Path(config.run_dir), "output")) < len(Codec.load(run, "output"))
    line = fails(capsys, "tune", str(run), "--terms", f"news=lm:{config.run_dir}", "--systems", "direct+news", *FEW)
    assert f"{config.run_dir}: its output vocabulary is not that of {run}" in line
    # The vocabulary of the right run around the smaller model.
    for side in SIDES:
        shutil.copy(run / f"{side}.vocabulary.json", config.run_dir)
    line = fails(capsys, "tune", str(run), "--terms", f"news=lm:{config.run_dir}", "--systems", "direct+news", *FEW)
    assert "vocabulary.json: damaged (not the file that was trained" in line


# Full disks, folders that cannot be written, files that vanish.


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_tuning_that_cannot_be_written_leaves_the_earlier_one(
    run: Path, code: int, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}

    def refused(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refused)
    line = fails(capsys, "tune", str(run), "--systems", "direct+length", *FEW)
    assert f"{run / 'weights.json'}: cannot be written ({os.strerror(code)})" in line
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before


def test_a_training_that_cannot_record_its_checksums_resumes(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    def full(self: RunDirectory, header: object) -> None:
        raise NoisyChannelError(f"{self.header_file}: cannot be written (No space left on device)")

    further = ["--lm.max_epochs", "2", "--models", "lm"]
    words = train(run, *further)
    other = Path(shutil.copytree(run, run.with_name("other")))
    assert main(train(other, *further)) == 0
    write_header = RunDirectory._write_header
    left = [1]  # that of the preparation

    def full_later(self: RunDirectory, header: Any) -> None:
        if not left:
            full(self, header)
        left.pop()
        write_header(self, header)

    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "_write_header", full_later)
        assert "run.json: cannot be written (No space left on device)" in fails(capsys, *words)
    assert not RunDirectory(run).finished("lm")
    assert main(words) == 0
    for name in ("lm/model.safetensors", "lm/word_list.safetensors"):
        assert (run / name).read_bytes() == (other / name).read_bytes()
    assert RunDirectory(run).header().files == RunDirectory(other).header().files


@pytest.mark.parametrize("name", ["dev.tsv", "run/weights.json", "run/lm", "run/run.json", "run"])
def test_what_vanishes_is_named(run: Path, inputs: str, name: str, capsys) -> None:
    """Commands that need it say so; those that do not are not disturbed."""
    config = config_of(run)
    dev = shutil.copy(config.data.dev[0], run.with_name("dev.tsv"))
    (run / "config.yaml").write_text(dump_config(replace(config, data=replace(config.data, dev=[str(dev)]))))
    gone = run.parent / name
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    tune = ["tune", str(run), "--systems", "direct+lm", *FEW]
    if name == "run/weights.json":
        assert main(tune) == 0
        return
    assert str(gone) in fails(capsys, *tune) or str(gone.parent) in fails(capsys, *tune)
    if name == "dev.tsv":
        assert main(["decode", str(run), inputs, "--device", "cpu"]) == 0
    else:
        assert str(gone.parent) in fails(capsys, "decode", str(run), inputs, "--device", "cpu")
