"""The word list: the trie against sets of prefixes, the term against its definition, in a search and in a run."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from noisychannel import NoisyChannel, Weights
from noisychannel.arguments import dump_config
from noisychannel.cli.main import main
from noisychannel.data.corpus import Sequences
from noisychannel.data.prepare import DataConfig
from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.ids import BOS, EOS
from noisychannel.models.word_list import OFF, ROOT, Trie, WordList
from noisychannel.runs import RunDirectory
from noisychannel.training.config import parse_config
from toys import toy_config

V = 7
Word = tuple[int, ...]
Words = list[Word]
WORD = st.lists(st.integers(3, V - 1), max_size=4).map(tuple)
WORDS = st.lists(WORD, max_size=12)


def listed(words: Words, vocab_size: int = V) -> Trie:
    sequences = [(*word, EOS) for word in words]
    ids = np.array([symbol for sequence in sequences for symbol in sequence], np.int32)
    return Trie.of(ids, np.cumsum([0, *map(len, sequences)]), vocab_size)


def walk(trie: Trie, prefix: Word) -> torch.Tensor:
    node = torch.tensor([ROOT])
    for symbol in prefix:
        node = trie.child(node, torch.tensor([symbol]))
    return node


def by_definition(words: Words, prefix: Word) -> float:
    """The term of a prefix, EOS included if it has one: a quarter for each symbol off the list, all of it at EOS."""
    beginnings = {(*word, EOS)[:n] for word in words for n in range(len(word) + 2)} | {()}
    off = sum(prefix[:n] not in beginnings for n in range(len(prefix) + 1))
    if off and prefix[-1] == EOS:
        return -1.0
    return -min(1.0, 0.25 * off) if off else 0.0


# --- the trie


@given(WORDS, st.lists(st.integers(EOS, V - 1), max_size=5).map(tuple))
def test_a_prefix_is_on_the_list_if_a_listed_output_begins_with_it(words: Words, prefix: Word) -> None:
    trie = listed(words)
    known = {()} | {(*word, EOS)[:n] for word in words for n in range(len(word) + 2)}
    assert len(trie) == len(set(words))
    assert (walk(trie, prefix).item() != OFF) == (prefix in known)
    for beginning in known:
        assert walk(trie, beginning).item() >= ROOT
        assert (walk(trie, (*beginning, 5)).item() != OFF) == ((*beginning, 5) in known)


def test_a_trie_reads_the_sequences_of_a_corpus() -> None:
    outputs = Sequences.of([(4, EOS), (4, 5, EOS), (4, EOS)])
    assert torch.equal(Trie.of(outputs.ids, outputs.starts, V).keys, listed([(4,), (4, 5), (4,)]).keys)


# --- the term


@settings(max_examples=60)
@given(WORDS, st.lists(WORD, min_size=1, max_size=4))
def test_steps_and_whole_outputs_are_as_defined(words: Words, asked: Words) -> None:
    term = WordList(listed(words))
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor([*word, EOS]) for word in asked], batch_first=True)
    whole = term.log_prob(ids, torch.tensor([len(word) + 1 for word in asked]))
    assert whole.tolist() == [by_definition(words, (*word, EOS)) for word in asked]
    for word, expected in zip(asked, whole.tolist(), strict=True):
        state, total, previous = term.start(1), 0.0, BOS
        for n, symbol in enumerate((*word, EOS)):
            distribution, state = term.step(torch.tensor([previous]), state)
            assert distribution is None
            total += float(term.score(state, torch.tensor([symbol])))
            assert total == by_definition(words, (*word, EOS)[: n + 1])
            previous = symbol
        assert total == expected


def test_states_are_rows() -> None:
    term = WordList(listed([(4,), (4, 5), (6, 6)]))
    _, state = term.step(torch.tensor([BOS, BOS]), term.start(2))
    _, state = term.step(torch.tensor([4, 6]), state)
    symbols, parents = torch.tensor([5, 6, 3]), torch.tensor([0, 1, 0])
    _, together = term.step(symbols, state, parents)
    _, apart = term.step(symbols, state.select(parents))
    assert (
        together.node_N.tolist()
        == apart.node_N.tolist()
        == [walk(term.words, p).item() for p in ((4, 5), (6, 6))] + [OFF]
    )
    assert together.put(torch.tensor([1]), apart.select(torch.tensor([2]))).node_N.tolist() == [
        together.node_N[0],
        OFF,
        OFF,
    ]
    assert together.off_N.tolist() == apart.off_N.tolist() == [0, 0, 1]
    assert together.concat(term.start(1)).node_N.tolist() == [*together.node_N.tolist(), ROOT]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_says_the_same() -> None:
    term = WordList(listed([(4,), (4, 5), (6, 6)])).cuda()
    ids, lengths = torch.tensor([[4, EOS, 0], [4, 5, EOS], [5, EOS, 0]]), torch.tensor([2, 3, 2])
    assert term.log_prob(ids.cuda(), lengths).tolist() == [0.0, 0.0, -1.0]
    assert term.start(2).node_N.is_cuda


# --- a run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A list that holds most dev outputs, and much else."""
    directory = tmp_path_factory.mktemp("listed")
    config = toy_config(directory, models=("direct", "channel", "lm"), max_epochs=1)
    dev = [line.split("\t")[1] for line in Path(config.data.dev[0]).read_text().splitlines()]
    rng = random.Random(3)
    others = ["".join(rng.choices("abdeiklmou", k=8)) for _ in range(300)]
    (directory / "words.txt").write_text("".join(f"{word}\n" for word in [*dev[: len(dev) * 3 // 4], *others]))
    config.data.unpaired = [str(directory / "words.txt")]
    config.lm = replace(config.lm, word_list=True)
    (directory / "config.yaml").write_text(dump_config(config))
    assert main(["train", str(directory / "config.yaml")]) == 0
    return Path(config.run_dir)


def outputs_of(run: Path) -> set[str]:
    """What the language model was trained on."""
    pairs = [line.split("\t")[1] for line in (run.parent / "train.tsv").read_text().splitlines()]
    return {*pairs, *(run.parent / "words.txt").read_text().splitlines()}


def test_a_run_keeps_the_outputs_of_its_language_model(trained: Path) -> None:
    run = RunDirectory(trained)
    term, expected = run.load_word_list(), outputs_of(trained)
    assert len(term.words) == len(expected)
    codec = run.codecs()[1]
    for text in [*list(expected)[:20], "zz", ""]:
        ids = torch.tensor([codec.encode(text)])
        assert float(term.log_prob(ids, torch.tensor([ids.shape[1]]))) == (0.0 if text in expected else -1.0)
    records = [json.loads(line) for line in run.metrics_file.read_text().splitlines()]
    assert [record["outputs"] for record in records if record["kind"] == "word list"] == [len(expected)]


def test_decoding_uses_the_list(trained: Path) -> None:
    expected = outputs_of(trained)
    weights = Weights(1.0, 0.5, 0.2, 0.0, extra={"word_list": 50.0})
    model = NoisyChannel.load(trained, weights=weights)
    found = model("bade", n_best=3)
    assert found[0].text in expected
    for output in found:
        assert output.hypothesis.extra == {"word_list": 0.0 if output.text in expected else -1.0}
    assert model.rerank("bade", [found[0].text])[0].hypothesis.extra == found[0].hypothesis.extra
    without = NoisyChannel.load(trained, weights=Weights(1.0, 0.5, 0.2, 0.0))("bade", n_best=3)
    assert [output.hypothesis.extra for output in without] == [{}] * 3


def test_groups_and_features_have_lists_of_their_own(tmp_path: Path) -> None:
    """Words of a group are not on the list of another; with features, an output is listed with its tags."""
    (tmp_path / "train.tsv").write_text("a\tab\tone\nb\tbb\ttwo\n" * 4)
    (tmp_path / "dev.tsv").write_text("b\tab\tone\na\tbb\ttwo\n")
    (tmp_path / "words.tsv").write_text("one\taab\ntwo\tbba\n")
    found = {}
    for column in ("group", "features"):
        config = toy_config(tmp_path / column, models=("lm",), max_epochs=1)
        config.data = DataConfig(
            train=[str(tmp_path / "train.tsv")],
            dev=[str(tmp_path / "dev.tsv")],
            unpaired=[str(tmp_path / "words.tsv")],
            columns=f"input,output,{column}",
            unpaired_columns=f"{column},output",
        )
        config.lm = replace(config.lm, word_list=True)
        (tmp_path / column / "config.yaml").write_text(dump_config(config))
        assert main(["train", str(tmp_path / column / "config.yaml")]) == 0
        for name in ("one", "two") if column == "group" else ("",):
            run = RunDirectory(Path(config.run_dir)).group(name)
            term, codec = run.load_word_list(), run.codecs()[1]
            assert term.reads_features is (column == "features")
            for tag in ("one", "two"):
                features = (tag,) if column == "features" else ()
                ids = [codec.encode(word, features) for word in ("ab", "aab", "bba")]
                on_list = [walk(term.words, tuple(x)).item() != OFF for x in ids]
                found[column, name or tag] = on_list
    assert found["group", "one"] == found["features", "one"] == [True, True, False]
    assert found["group", "two"] == found["features", "two"] == [False, False, True]


def test_an_interrupted_end_is_made_up_for(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the list and the end of the training: the list is written again, and recorded once."""
    directory = trained.parent / "again"
    config = parse_config(trained.parent / "config.yaml")
    config.run_dir, config.models = str(directory), ["lm"]
    (trained.parent / "again.yaml").write_text(dump_config(config))
    state = RunDirectory(directory).state_file("lm")

    replace = Path.replace

    def killed(self: Path, target: Path) -> Path:
        if self == state:
            raise KeyboardInterrupt
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        assert main(["train", str(trained.parent / "again.yaml")]) != 0
    assert state.exists()
    assert main(["train", str(trained.parent / "again.yaml")]) == 0
    run = RunDirectory(directory)
    assert torch.equal(run.load_word_list().words.keys, RunDirectory(trained).load_word_list().words.keys)
    assert run.metrics_file.read_text().count('"word list"') == 1


def test_a_list_that_does_not_fit_is_refused(trained: Path) -> None:
    run = RunDirectory(trained)
    kept = run.word_list_file.read_bytes()
    try:
        run.write_word_list(listed([(4,)]))
        with pytest.raises(NoisyChannelError, match=r"not the word list of this run \(7 symbols instead of"):
            run.load_word_list()
        run.word_list_file.write_bytes(kept[:100])
        with pytest.raises(NoisyChannelError, match="damaged or truncated"):
            run.load_word_list()
    finally:
        run.word_list_file.write_bytes(kept)


def test_a_list_is_for_the_language_model(tmp_path: Path) -> None:
    config = toy_config(tmp_path)
    config.direct = replace(config.direct, word_list=True)
    with pytest.raises(BadInputError, match=r"direct\.word_list: is for the language model"):
        config.check()
