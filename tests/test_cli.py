"""The command line as a person meets it: help, results, and one clear line for everything that can go wrong."""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from commands import run_here
from noisychannel import NoisyChannel, Weights
from noisychannel.arguments import all_keys, dump_config
from noisychannel.cli.main import COMMANDS, main
from noisychannel.decode.settings import SearchSettings
from noisychannel.json_lines import json_line
from noisychannel.runs import RunDirectory
from noisychannel.training.config import ModelConfig, RunConfig, parse_config
from toys import tag, toy_config, write_pairs

CONFIGS = Path(__file__).parent.parent / "configs"


def write_config(config: RunConfig) -> str:
    file = Path(config.run_dir).parent / "config.yaml"
    file.write_text(dump_config(config))
    return str(file)


def fails(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> str:
    """The one line a failing command prints."""
    capsys.readouterr()
    assert main(list(words)) == code
    lines = capsys.readouterr().err.strip().splitlines()
    complaints = [line for line in lines if line.startswith("noisychannel: ")]
    assert complaints == lines[-1:], lines
    assert "Traceback" not in "\n".join(lines)
    return complaints[0]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small finished run with all three models."""
    directory = tmp_path_factory.mktemp("trained")
    config = toy_config(directory, models=("direct", "channel", "lm"), rows=400, max_epochs=4)
    assert main(["train", write_config(config)]) == 0
    return Path(config.run_dir)


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of the trained run to be damaged."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def score(run: Path, text: str) -> subprocess.CompletedProcess[bytes]:
    return run_here(["score", str(run)], text.encode())


# What works.


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(command: str, capsys) -> None:
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"noisychannel {command}" in shown
    assert "example:" in shown or "examples:" in shown


def test_help_names_every_command_and_starts_without_torch() -> None:
    code = "import sys; from noisychannel.cli.main import main; main(['--help']); assert 'torch' not in sys.modules"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert all(command in shown for command in COMMANDS)


def test_train_help_lists_every_key(capsys) -> None:
    assert main(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all("  --" + key.replace("_", "-") in shown for key in all_keys(RunConfig))


def test_training_prints_the_perplexity_of_each_model_and_lines_when_piped(tmp_path: Path, capsys) -> None:
    config = toy_config(tmp_path, models=("direct", "channel", "lm"), max_epochs=1)
    assert main(["train", write_config(config), "--direct.hidden_size", "16"]) == 0
    shown = capsys.readouterr()
    assert [line.split()[0] for line in shown.out.splitlines()] == ["channel", "direct", "lm"]
    assert "dev ppl" in shown.err
    assert "not comparable" in shown.err, "an SSNT's perplexity needs its caveat"
    assert "\x1b" not in shown.err + shown.out
    assert json.loads((Path(config.run_dir) / "direct" / "config.json").read_text())["arguments"]["hidden_size"] == 16


def test_a_terminal_gets_a_progress_bar(tmp_path: Path) -> None:
    import pty

    config = toy_config(tmp_path, rows=1000, max_epochs=3)  # long enough for news between the first and the last step
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "noisychannel", "train", write_config(config)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "140"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=follower, env=environment)
    os.close(follower)
    shown = b""
    while True:
        try:
            if not (part := os.read(leader, 65536)):
                break
        except OSError:  # the other end is closed
            break
        shown += part
    os.close(leader)
    assert process.wait() == 0
    assert "━" in shown.decode()
    assert "symbols/s" in shown.decode()


def test_score_gives_what_the_models_give(trained: Path) -> None:
    done = score(trained, "ab\taab\nkalu\tkaaluu\n")
    assert done.returncode == 0, done.stderr
    first, second = map(json.loads, done.stdout.splitlines())
    assert (first["input"], first["output"]) == ("ab", "aab")
    assert first["input_symbols"] == ["a", "b", "<eos>"]
    assert second["output_symbols"] == ["k", "a", "a", "l", "u", "u", "<eos>"]
    for record in (first, second):
        assert len(record["alignment"]) == len(record["output_symbols"])
        assert len(record["channel_alignment"]) == len(record["input_symbols"])
        assert record["alignment"] == sorted(record["alignment"])
        assert record["alignment"][-1] == len(record["input_symbols"]) - 1

    import torch

    directory = RunDirectory.open(trained)
    input_codec, output_codec = directory.codecs()
    x, y = torch.tensor([input_codec.encode("kalu")]), torch.tensor([output_codec.encode("kaaluu")])
    lengths = torch.tensor([x.shape[1]]), torch.tensor([y.shape[1]])
    models = {role: directory.load_model(role) for role in ("direct", "channel", "lm")}
    with torch.no_grad():
        direct = models["direct"].log_prob(x, lengths[0], y, lengths[1]).item()
        channel = models["channel"].log_prob(y, lengths[1], x, lengths[0]).item()
        lm = models["lm"].log_prob(y, lengths[1]).item()
        direct_viterbi = models["direct"].viterbi(x, lengths[0], y, lengths[1])[0].item()
        channel_viterbi = models["channel"].viterbi(y, lengths[1], x, lengths[0])[0].item()
    assert (second["direct"], second["channel"], second["lm"]) == pytest.approx((direct, channel, lm), abs=1e-4)
    best = second["direct_viterbi"], second["channel_viterbi"]
    assert best == pytest.approx((direct_viterbi, channel_viterbi), abs=1e-4)
    assert best[0] < direct - 1e-4
    assert best[1] < channel - 1e-4


def test_numbers_that_are_not_finite_are_null() -> None:
    record = {"a": -math.inf, "b": [math.nan, 1.5, {"c": (math.inf, 2)}], "d": "ä"}
    assert json_line(record) == '{"a": null, "b": [null, 1.5, {"c": [null, 2]}], "d": "ä"}'


def test_score_keeps_order_over_many_lengths_and_reads_compressed_files(trained: Path, tmp_path: Path, capsys) -> None:
    import gzip

    pairs = write_pairs(tmp_path / "pairs.tsv", lambda x: x, rows=200, seed=5, longest=12)
    packed = tmp_path / "pairs.tsv.gz"
    packed.write_bytes(gzip.compress(pairs.read_bytes()))
    assert main(["score", str(trained), str(packed), "--models", "[lm]", "--batch_size", "7"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [f"{r['input']}\t{r['output']}" for r in records] == pairs.read_text().splitlines()
    assert all("lm" in record and "direct" not in record for record in records)


def test_score_counts_unknown_symbols(trained: Path) -> None:
    done = score(trained, "aXb\taaXb\n")
    assert done.returncode == 0
    assert b"2 unknown symbols, read as <unk>: 'X'" in done.stderr
    assert json.loads(done.stdout)["input_symbols"] == ["a", "<unk>", "b", "<eos>"]


def test_features_stand_before_what_each_model_reads(tmp_path: Path) -> None:
    config = toy_config(tmp_path, models=("direct", "channel", "lm"), max_epochs=1)
    tag(config, "V;PST")
    assert main(["train", write_config(config)]) == 0
    record = json.loads(score(Path(config.run_dir), "ab\taab\tV;PST\n").stdout)
    model = NoisyChannel.load(
        config.run_dir, weights=Weights(1.0, 1.0, 1.0), settings=SearchSettings(search="marginal")
    )
    ((_, terms),) = model.rerank("ab", ["aab"], ("V", "PST"))
    for role in ("direct", "channel", "lm"):
        assert record[role] == pytest.approx(getattr(terms, role), abs=1e-4), "as decoding has it"
    assert record["input_symbols"] == ["<V>", "<PST>", "a", "b", "<eos>"]
    assert record["output_symbols"] == ["a", "a", "b", "<eos>"]
    assert record["channel_alignment"][-1] == 2 + len("aab"), "the channel reads the tags before the output"


@pytest.mark.parametrize("name", ["inflection", "summarisation", "translation"])
def test_sample_configurations_are_valid(name: str) -> None:
    config = parse_config(CONFIGS / f"{name}.yaml")
    assert config.data.train
    assert not config.channel.bidirectional


def test_the_inflection_sample_explains_every_key() -> None:
    sample = yaml.safe_load((CONFIGS / "inflection.yaml").read_text())
    text = (CONFIGS / "inflection.yaml").read_text()
    for key in all_keys(RunConfig):
        section, _, name = key.rpartition(".")
        if section in ("channel", "lm", "data.output", "seq2seq", "attention"):
            continue  # as for direct and data.input
        if section == "transformer" and hasattr(ModelConfig, name):
            continue
        if key in ("data.train_outputs", "data.dev_outputs", "direct.word_list"):
            continue
        value = sample
        for part in key.split("."):
            assert part in value, f"{key} is not in the sample"
            value = value[part]
        assert name in text
    assert "train_outputs" in (CONFIGS / "summarisation.yaml").read_text()
    assert "word_list" in sample["lm"]


# What goes wrong.


def test_unknown_commands_and_options(trained: Path, capsys) -> None:
    assert fails(capsys, 2, "trian").endswith("unknown command 'trian'; did you mean train?")
    assert f"; choose from {', '.join(COMMANDS)}" in fails(capsys, 2, "zzz")
    assert "did you mean --models?" in fails(capsys, 2, "score", str(trained), "--model", "[lm]")
    assert "configuration file" in fails(capsys, 2, "train")
    assert "run directory" in fails(capsys, 2, "score")
    assert main([]) == 2


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("--direct.hiden_size 3", "unknown option --direct.hiden_size; did you mean --direct.hidden-size?"),
        ("--direct.hidden_size big", "--direct.hidden_size: must be a whole number, but is 'big'"),
        ("--direct.hidden_size 0", "direct.hidden_size: must be at least 1, but is 0"),
        ("--direct.dropout 1.5", "direct.dropout: must be at least 0 and less than 1"),
        ("--training.precision fp8", "--training.precision: must be one of fp32, tf32, bf16, but is 'fp8'"),
        ("--training.learning_rate 0", "training.learning_rate: must be greater than 0"),
        (
            "--channel.bidirectional true",
            "channel.bidirectional: the channel reads the output while the search builds it",
        ),
        ("--lm.bidirectional true", "lm.bidirectional"),
        (
            "--models chanel",
            "--models: must be one or more of direct, channel, lm, seq2seq, attention, transformer, but is 'chanel'",
        ),
        ("--models [lm,lm]", "models: duplicate model"),
        ("--data.columns input,ouput", "data.columns: unknown column 'ouput'"),
        ("--data.columns input", "data.columns: 'output' must occur exactly once"),
        ("--data.train nowhere.tsv", "nowhere.tsv: no such file"),
        ("--data.train_outputs x.txt", "data.train_outputs and data.dev_outputs go together"),
        (
            "--data.input.units words --data.input.remove_spaces true",
            "data.input.remove_spaces: leaves one word of each",
        ),
        ("--data.input.sentencepiece x.model", "data.input.sentencepiece: is only for units: subwords"),
        ("--device gpu", "device: gpu cannot be used here"),
        ("stray", "unexpected argument 'stray'"),
    ],
)
def test_bad_options_of_train(change: str, complaint: str, tmp_path: Path, capsys) -> None:
    config = toy_config(tmp_path, max_epochs=1)
    assert complaint in fails(capsys, 2, "train", write_config(config), *change.split())
    assert not Path(config.run_dir).exists(), "a refused training leaves nothing behind"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "empty"),
        ("a: [b\n", "config.yaml:2: not valid YAML"),
        ("- a\n- b\n", "must contain keys and values"),
        ("data: 3\n", "data must be a section with keys and values, but is 3"),
        ("training: {learning_rat: 1}\n", "unknown key training.learning_rat; did you mean training.learning_rate?"),
        ("direct: {hidden_size: large}\n", "config.yaml: direct.hidden_size: must be a whole number, but is 'large'"),
        ("models: [direct]\n", "data.train: no file given"),
    ],
)
def test_bad_configuration_files(text: str, complaint: str, tmp_path: Path, capsys) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    assert complaint in fails(capsys, 2, "train", str(file), "--run_dir", str(tmp_path / "run"))
    assert "No such file" in fails(capsys, 2, "train", str(tmp_path / "none.yaml"))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "train.tsv: empty"),
        (b"ab\taab\nb\n", "train.tsv:2: 1 tab-separated column, but 2 are expected (input, output)"),
        (b"ab\taab\nb\tb\tb\n", "train.tsv:2: 3 tab-separated columns"),
        (b"ab\taab\nab\t\n", "train.tsv:2: the output is empty"),
        (b"\taab\n", "train.tsv:1: the input is empty"),
        (b"ab\taab\n\xff\tb\n", "train.tsv:2: not UTF-8 (byte 0xff at column 1)"),
    ],
)
def test_bad_data(content: bytes, complaint: str, tmp_path: Path, capsys) -> None:
    config = toy_config(tmp_path, max_epochs=1)
    Path(config.data.train[0]).write_bytes(content)
    assert complaint in fails(capsys, 2, "train", write_config(config))
    assert not Path(config.run_dir).exists()
    # Mended, the same command goes through.
    write_pairs(Path(config.data.train[0]), lambda x: x, rows=20, seed=1)
    assert main(["train", write_config(config)]) == 0


def test_score_continues_after_a_bad_line(trained: Path, tmp_path: Path, capsys) -> None:
    bad = tmp_path / "bad.tsv"
    bad.write_bytes(b"ab\taab\nab\n\xff\tb\n\tb\n" + b"a" * 30 + b"\ta\nba\tbaa\n")
    words = ["score", str(trained), str(bad), "--max_symbols", "20"]
    assert main([*words, "--columns", "input,output"]) == 1
    shown = capsys.readouterr()
    records = [json.loads(line) for line in shown.out.splitlines()]
    assert [record["output"] for record in records] == ["aab", None, None, None, "a", "baa"]
    assert [record["lm"] is None for record in records] == [False, True, True, True, True, False]
    complaints = [
        "2: 1 tab-separated",
        "3: not UTF-8",
        "4: the input is empty",
        "5: more symbols than --max-symbols 20",
    ]
    for line, complaint in zip(shown.err.splitlines(), complaints, strict=True):
        assert line.startswith(f"noisychannel: {bad}:{complaint}")
    good = tmp_path / "good.tsv"
    good.write_text("ab\taab\nba\tbaa\n")
    assert main(["score", str(trained), str(good)]) == 0
    for ours, theirs in zip(map(json.loads, capsys.readouterr().out.splitlines()), records[::5], strict=True):
        assert ours["direct"] == pytest.approx(theirs["direct"], abs=1e-5)
    bad.write_text("ab\n")
    assert main(words) == 1


def test_score_refuses_missing_models(trained: Path, tmp_path: Path, capsys) -> None:
    assert "has no attention model" in fails(capsys, 2, "score", str(trained), "--models", "[attention]")
    assert "no such run directory" in fails(capsys, 2, "score", str(tmp_path / "none"))
    assert "not a run directory" in fails(capsys, 2, "score", str(tmp_path))


def test_a_directory_that_is_no_run_is_not_written_into(tmp_path: Path, capsys) -> None:
    config = toy_config(tmp_path, max_epochs=1)
    Path(config.run_dir).mkdir()
    (Path(config.run_dir) / "thesis.tex").write_text("years of work")
    assert "not empty, and not a run directory" in fails(capsys, 2, "train", write_config(config))
    assert fails(capsys, 2, "train", write_config(config), "--overwrite")
    assert [p.name for p in Path(config.run_dir).iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("kept", [0, 7, 100, -1])
def test_a_truncated_checkpoint_is_refused(kept: int, run: Path, tmp_path: Path, capsys) -> None:
    file = run / "direct" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    pairs = write_pairs(tmp_path / "pairs.tsv", lambda x: x, rows=3, seed=1)
    assert f"{file}: damaged or truncated" in fails(capsys, 1, "score", str(run), str(pairs))


def test_a_vocabulary_of_another_run_is_refused(run: Path, tmp_path: Path, capsys) -> None:
    file = run / "output.vocabulary.json"
    vocabulary = json.loads(file.read_text())
    vocabulary["symbols"].reverse()
    file.write_text(json.dumps(vocabulary))
    complaint = fails(capsys, 1, "score", str(run), str(tmp_path / "x.tsv"))
    assert "output.vocabulary.json: damaged (not the file that was trained" in complaint


def test_weights_of_another_size_are_refused(run: Path, trained: Path, capsys) -> None:
    shutil.copy(trained / "lm" / "model.safetensors", run / "direct" / "model.safetensors")
    assert "does not fit" in fails(capsys, 1, "score", str(run))


def test_a_run_of_another_version_is_refused(run: Path, capsys) -> None:
    header = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**header, "format": 99, "noisychannel": "9.9"}))
    assert "format 99, written by noisychannel 9.9" in fails(capsys, 2, "score", str(run))
    config = replace(parse_config(run / "config.yaml"), run_dir=str(run))
    (run.parent / "again.yaml").write_text(dump_config(config))
    assert "format 99" in fails(capsys, 2, "train", str(run.parent / "again.yaml"))


@pytest.mark.parametrize("name", ["run.json", "direct/config.json", "output.vocabulary.json"])
def test_damaged_json_is_refused(name: str, run: Path, capsys) -> None:
    (run / name).write_text('{"format": 1, "groups": [""')
    assert name.rpartition("/")[2] in fails(capsys, 1, "score", str(run))


def test_a_full_disk_ends_in_one_line_and_the_training_resumes(tmp_path: Path) -> None:
    config = toy_config(tmp_path, max_epochs=2, checkpoint_every=4)
    file = write_config(config)

    def no_room() -> None:
        # No file may grow beyond this: room for vocabularies and configuration, not for weights.
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    command = [sys.executable, "-B", "-m", "noisychannel", "train", file]
    full = subprocess.run(command, capture_output=True, text=True, preexec_fn=no_room, check=False)
    assert full.returncode == 1, full.stderr
    assert "cannot be written (File too large); free some space" in full.stderr.splitlines()[-1]
    assert "Traceback" not in full.stderr
    assert not list(Path(config.run_dir).rglob("*.tmp"))
    assert not RunDirectory(Path(config.run_dir)).has_model("direct")
    assert main(["train", file]) == 0
    assert RunDirectory(Path(config.run_dir)).finished("direct")


@pytest.mark.parametrize("jobs", [pytest.param("1", marks=pytest.mark.long), "2"])
def test_ctrl_c_saves_and_the_training_resumes(jobs: str, tmp_path: Path) -> None:
    # More models than jobs: the one that waits must not begin.
    config = toy_config(tmp_path, models=("direct", "channel", "lm"), rows=500, max_epochs=800, patience=800)
    command = [sys.executable, "-m", "noisychannel", "train", write_config(config), "--jobs", jobs]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    metrics = Path(config.run_dir) / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (metrics.exists() and metrics.stat().st_size > 1000):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process
    _, shown = process.communicate(timeout=60)
    assert process.returncode == 1, shown
    assert shown.splitlines()[-1].startswith("noisychannel: interrupted"), shown
    assert "Traceback" not in shown
    assert not (Path(config.run_dir) / "channel").exists()
    resumed = run_here(["train", *command[4:5], "--jobs", "1", "--training.max_epochs", "1"], b"")
    assert resumed.returncode == 0, resumed.stderr
    assert b"resuming at step" in resumed.stderr


def test_overwrite_removes_nothing_before_the_new_data_has_proved_good(run: Path, capsys) -> None:
    config = replace(parse_config(run / "config.yaml"), run_dir=str(run))
    file = run.parent / "again.yaml"
    file.write_text(dump_config(config))
    assert "no such file" in fails(capsys, 2, "train", str(file), "--overwrite", "--data.train", "nowhere.tsv")
    assert RunDirectory.open(run).finished("direct")


def test_overwrite_is_the_remedy_for_a_run_of_another_version(run: Path) -> None:
    (run / "run.json").write_text('{"format": 99}')
    config = replace(parse_config(run / "config.yaml"), run_dir=str(run), models=["lm"])
    file = run.parent / "again.yaml"
    file.write_text(dump_config(config))
    assert main(["train", str(file), "--overwrite"]) == 0
    assert RunDirectory.open(run).finished("lm")
    assert not (run / "direct").exists()


@pytest.mark.parametrize("name", ["..", ".", ".lock", "run.json", "lm", "a/b", "x" * 300, "[/bold]", "ü→ß"])
def test_any_group_name_stays_inside_the_run(name: str, tmp_path: Path, capsys) -> None:
    config = toy_config(tmp_path / "inner", models=("lm",), rows=20, max_epochs=1)
    for split in ("train", "dev"):
        file = Path(getattr(config.data, split)[0])
        file.write_text("".join(f"{line}\t{name}\n" for line in file.read_text().splitlines()))
    config.data.columns = "input,output,group"
    before = set(tmp_path.rglob("*"))
    assert main(["train", write_config(config)]) == 0
    run = RunDirectory.open(Path(config.run_dir))
    assert run.header().groups == [name]
    assert run.group(name).path.parent == run.path
    assert run.group(name).finished("lm")
    outside = {p for p in tmp_path.rglob("*") if run.path not in (p, *p.parents)} - before
    assert {path.name for path in outside} == {"config.yaml"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("seed: 1\nseed: 2\n", "config.yaml:2: not valid YAML (duplicate key seed)"),
        ("seed: null\n", "seed must not be null"),
        ("direct: {hidden_size: null}\n", "direct.hidden_size must not be null"),
        ("seed: -1\n", "seed: must be at least 0"),
    ],
)
def test_keys_that_say_nothing_or_twice(text: str, complaint: str, tmp_path: Path, capsys) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    assert complaint in fails(capsys, 2, "train", str(file), "--run_dir", str(tmp_path / "run"))
