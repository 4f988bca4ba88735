"""Run directories: files that are read once, word lists, and runs of version 0.1."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from noisychannel.data.codec import Codec
from noisychannel.data.prepare import DataConfig
from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.models import LanguageModel
from noisychannel.models.registry import ROLES
from noisychannel.models.word_list import WordList
from noisychannel.run_records import DataRecord
from noisychannel.runs import RunDirectory
from noisychannel.tensors import load_metadata, load_tensors, save_tensors
from noisychannel.training.config import RunConfig, parse_config
from noisychannel.training.events import Finished
from noisychannel.training.run import train_run
from toys import toy_config

OLD = Path(__file__).parent / "data" / "run-0.1"
"""Written by version 0.1.0: ``plain`` has direct, channel and lm, ``word_list`` a language model with a word list."""


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the old runs, in the directory that their configurations are relative to."""
    directory = Path(shutil.copytree(OLD, tmp_path / "old"))
    monkeypatch.chdir(directory)
    return directory


def train(config: RunConfig) -> list[Finished]:
    return train_run(config, listen=lambda event: None, say=lambda line: None)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model with a word list, and a direct model."""
    config = toy_config(tmp_path_factory.mktemp("listed"), models=("direct", "lm"), rows=60, max_epochs=1)
    config.lm = replace(config.lm, word_list=True)
    finished = {model.label: model for model in train(config)}
    outputs = {line.split("\t")[1] for line in Path(config.data.train[0]).read_text().splitlines()}
    assert finished["lm"].listed_outputs == len(outputs)
    assert finished["direct"].listed_outputs is None
    return Path(config.run_dir)


# Reading once.


def test_each_file_is_read_once(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []

    def counted(read: Callable[..., Any]) -> Callable[..., Any]:
        def count(self: Path, *arguments: object, **keywords: object) -> Any:
            if self.is_relative_to(trained):
                reads.append(self.name)
            return read(self, *arguments, **keywords)

        return count

    for name in ("read_text", "read_bytes"):
        monkeypatch.setattr(Path, name, counted(getattr(Path, name)))
    run = RunDirectory.open(trained)
    for _ in range(3):
        run.header()
        run.codecs()
        assert run.data_config.columns == "pairs"
        run.load_model("lm")
        run.load_model("direct")
        run.load_word_list()
        assert run.groups() == [run]
        assert run.group("") is run
    assert sorted(reads) == sorted(
        ["run.json", "config.yaml", "input.vocabulary.json", "output.vocabulary.json", "config.json", "config.json"]
    )


def test_what_a_run_writes_it_reads_anew(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.write_header(["a", "b/c"], DataRecord())
    assert [one.path.name for one in run.groups()] == ["a", "b%2Fc"]
    assert run.group("a") is run.group("a")
    run.write_header([""], DataRecord(train={"lines": 1}), group="x")
    assert run.header().data == DataRecord(train={"lines": 1})
    run.write_config("data: {columns: unimorph}\n")
    assert run.data_config == DataConfig(columns="unimorph")
    run.write_config("data: {columns: pairs}\nlater: {}\n")
    assert run.data_config == DataConfig()
    run.header_file.write_text("{}")
    assert run.header().groups == [""]
    run.forget()
    with pytest.raises(BadInputError, match="format None"):
        run.header()


def test_the_data_section_is_that_of_the_configuration(trained: Path) -> None:
    run = RunDirectory(trained)
    assert run.data_config == parse_config(run.config_file).data


def test_unfinished_models_are_reported(trained: Path, tmp_path: Path) -> None:
    run = RunDirectory(Path(shutil.copytree(trained, tmp_path / "run")))
    assert run.unfinished(ROLES) == []
    run.state_file("lm").touch()
    run.model_dir("channel").mkdir()
    run.state_file("channel").touch()
    channel, lm = run.unfinished(ROLES)
    assert "training of channel is unfinished, it has no model yet" in channel
    assert "training of lm is unfinished, this is its best model so far; finish it with noisychannel train" in lm


def test_weights_that_are_not_finite_are_refused_when_loaded(trained: Path, tmp_path: Path) -> None:
    run = RunDirectory(Path(shutil.copytree(trained, tmp_path / "run")))
    tensors, metadata = load_tensors(run.model_file("lm"))
    tensors["word.bias"][2] = torch.inf
    save_tensors(run.model_file("lm"), tensors, metadata)
    run.record_files("lm")
    with pytest.raises(BadInputError, match=r"NaN or infinite weights \(word\.bias\); the training of lm diverged"):
        run.load_model("lm")


def test_metadata_is_read_without_the_tensors(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    save_tensors(file, {"a": torch.zeros(3)}, {"step": "4"})
    assert load_metadata(file) == {"step": "4"} == load_tensors(file)[1]
    file.write_bytes(file.read_bytes()[:20])
    for load in (load_metadata, load_tensors):
        with pytest.raises(NoisyChannelError, match="damaged or truncated"):
            load(file)


# Word lists.


def listed(run: RunDirectory, *texts: str, features: tuple[str, ...] = ()) -> list[bool]:
    """Whether each text is on the list of a run, symbol by symbol."""
    trie, (_, codec) = run.load_word_list().words, run.codecs()
    found = []
    for text in texts:
        node = torch.zeros(1, dtype=torch.long)
        for symbol in codec.encode(text, features):
            node = trie.child(node, torch.tensor([symbol]))
        found.append(int(node) >= 0)
    return found


def test_the_word_list_holds_the_training_outputs(trained: Path) -> None:
    run = RunDirectory(trained)
    words = run.load_word_list()
    assert isinstance(words, WordList)
    assert not words.reads_features
    assert type(run.load_model("lm")) is LanguageModel, "the network alone"
    pairs = [line.split("\t") for line in (trained.parent / "train.tsv").read_text().splitlines()]
    outputs = {output for _, output in pairs}
    assert all(listed(run, *outputs))
    beginnings = {output[:-1] for output in outputs} - outputs
    assert beginnings
    assert not any(listed(run, *beginnings))
    records = [json.loads(line) for line in run.metrics_file.read_text().splitlines()]
    (record,) = [record for record in records if record["kind"] not in ("train", "dev")]
    assert record == {"model": "lm", "kind": "word list", "step": record["step"], "outputs": len(outputs)}


def test_the_word_list_is_written_again_and_recorded_once(trained: Path, tmp_path: Path) -> None:
    config = parse_config(trained / "config.yaml")
    config.run_dir = str(shutil.copytree(trained, tmp_path / "run"))
    config.training.max_epochs = 2
    run = RunDirectory(Path(config.run_dir))
    before = run.word_list_file.read_bytes()
    # As if it had been interrupted before its end.
    run.stopped_file("lm").rename(run.state_file("lm"))
    run.word_list_file.unlink()
    assert {model.label for model in train(config)} == {"direct", "lm"}
    assert run.word_list_file.read_bytes() == before
    assert run.metrics_file.read_text().count('"word list"') == 1


def test_a_word_list_that_does_not_fit_is_refused(trained: Path, tmp_path: Path) -> None:
    run = RunDirectory(Path(shutil.copytree(trained, tmp_path / "run")))
    tensors, metadata = load_tensors(run.word_list_file)
    save_tensors(run.word_list_file, tensors, {"symbols": "7"})
    with pytest.raises(NoisyChannelError, match=r"not the word list of this run \(7 symbols instead of"):
        run.load_word_list()
    save_tensors(run.word_list_file, {"others": tensors["keys"]}, metadata)
    with pytest.raises(NoisyChannelError, match="not the word list of this run"):
        run.load_word_list()
    for keys in (tensors["keys"].flip(0), tensors["keys"].float(), tensors["keys"] + 10_000, tensors["keys"][None]):
        save_tensors(run.word_list_file, {"keys": keys}, metadata)
        with pytest.raises(NoisyChannelError, match=r"not the word list of this run \(keys are"):
            run.load_word_list()
    run.word_list_file.write_bytes(run.word_list_file.read_bytes()[:50])
    with pytest.raises(NoisyChannelError, match="damaged or truncated"):
        run.load_word_list()
    run.word_list_file.unlink()
    with pytest.raises(
        NoisyChannelError, match=r"word_list\.safetensors: missing; restore it from a copy, or train it"
    ):
        run.load_word_list()
    run.record_files("lm")
    with pytest.raises(BadInputError, match=r"has no word list; set lm\.word_list: true"):
        run.load_word_list()


# Version 0.1.


@pytest.mark.parametrize("name", ["plain", "word_list"])
def test_models_of_version_0_1_have_the_same_log_probabilities(name: str) -> None:
    run = RunDirectory.open(OLD / name)
    assert run.header().noisychannel == "0.1.0"
    assert run.data_config.train == ["train.tsv"]
    codecs = dict(zip(("input", "output"), run.codecs(), strict=True))
    roles = [role for role in ROLES if run.has_model(role)]
    assert roles == (["lm"] if name == "word_list" else ["direct", "channel", "lm"])
    for record in json.loads((run.path / "expected.json").read_text()):
        for role in roles:
            arguments = []
            for side in (ROLES[role].reads, ROLES[role].writes):
                if side is not None:
                    ids = codecs[side].encode(record[side])
                    arguments += [torch.tensor([ids]), torch.tensor([len(ids)])]
            with torch.no_grad():
                score = run.load_model(role).log_prob(*arguments).item()
            assert score == pytest.approx(record[role], abs=1e-5), (record, role)


def test_a_word_list_of_version_0_1_is_read_without_its_share() -> None:
    run = RunDirectory.open(OLD / "word_list")
    assert "share" in load_metadata(run.word_list_file)
    assert listed(run, "aba", "abba", "baba", "ab", "bbbb") == [True, True, True, False, False]


def test_a_run_of_version_0_1_is_continued(old: Path) -> None:
    """Training further writes the word list of today, and removes the record of the share."""
    config = parse_config(old / "word_list" / "config.yaml")
    assert train(config) == [], "nothing to do"
    run = RunDirectory(old / "word_list")
    assert "dev with word list" in run.metrics_file.read_text()
    config.training.max_updates = 30
    (lm,) = train(config)
    assert lm.step == 30
    assert lm.listed_outputs == 10
    assert "share" not in run.metrics_file.read_text()
    assert listed(run, "aba", "abba", "bbbb") == [True, True, False]


def test_a_model_is_added_to_a_run_of_version_0_1(old: Path) -> None:
    config = parse_config(old / "plain" / "config.yaml")
    config.models, config.attention.hidden_size = ["attention"], 4
    before = {role: RunDirectory(old / "plain").model_file(role).read_bytes() for role in ("direct", "channel", "lm")}
    assert [model.label for model in train(config)] == ["attention"]
    run = RunDirectory.open(old / "plain")
    assert run.load_model("attention") is not None
    assert {role: run.model_file(role).read_bytes() for role in before} == before


def test_vocabularies_of_version_0_1_keep_their_fingerprints() -> None:
    recorded = json.loads((OLD / "plain" / "direct" / "config.json").read_text())["vocabularies"]
    assert {side: Codec.load(OLD / "plain", side).fingerprint for side in recorded} == recorded
