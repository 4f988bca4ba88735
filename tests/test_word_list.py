"""A language model with its list: the trie against sets of prefixes, the mixture against its formula, and in use."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decoder_oracles import assert_same, best_outputs, random_models
from noisychannel import LanguageModel, NoisyChannel, NoisyChannelDecoder, OnlineDecoder, Weights
from noisychannel.cli.main import main
from noisychannel.data.corpus import Sequences
from noisychannel.data.prepare import DataConfig
from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.ids import BOS, EOS
from noisychannel.models.word_list import OFF, ROOT, Trie, WithWordList, best_share
from noisychannel.runs import RunDirectory
from noisychannel.training.config import dump_config, parse_config
from toys import toy_config

V = 7
Words = list[tuple[int, ...]]
WORDS = st.lists(st.lists(st.integers(3, V - 1), max_size=4).map(tuple), min_size=1, max_size=12)


def listed(words: Words) -> Trie:
    return Trie.of(Sequences.of([(*word, EOS) for word in words]), V)


def walk(trie: Trie, prefix: tuple[int, ...]) -> torch.Tensor:
    node = torch.tensor([ROOT])
    for symbol in prefix:
        node = trie.child(node, torch.tensor([symbol]))
    return node


def mixture(words: Words, share: float = 0.4, seed: int = 1) -> WithWordList:
    torch.manual_seed(seed)
    network = LanguageModel(V, 5, num_layers=2).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(3)
    return WithWordList(network, listed(words), share).eval()


# --- the trie


@given(WORDS)
def test_every_prefix_has_its_share_of_the_list(words: Words) -> None:
    trie = listed(words)
    distinct = {(*word, EOS) for word in words}
    assert trie.counts[ROOT] == len(distinct)
    below = Counter(word[:n] for word in distinct for n in range(len(word) + 1))
    for prefix, count in below.items():
        assert trie.log_prob(walk(trie, prefix)).exp().item() == pytest.approx(count / len(distinct))
        (probabilities,) = trie.next_log_probs(walk(trie, prefix)).exp().tolist()
        expected = [below[(*prefix, symbol)] / count for symbol in range(V)]
        assert probabilities == pytest.approx(expected)


@given(WORDS, st.lists(st.integers(2, V - 1), min_size=1, max_size=5).map(tuple))
def test_what_is_not_on_the_list_has_no_probability(words: Words, prefix: tuple[int, ...]) -> None:
    trie = listed(words)
    known = {(*word, EOS)[:n] for word in words for n in range(len(word) + 2)}
    node = walk(trie, prefix)
    if prefix in known:
        assert node.item() >= ROOT
    else:
        assert node.item() == OFF
        assert trie.log_prob(node).item() == -math.inf
        assert trie.next_log_probs(node).exp().sum() == 0
        assert trie.child(node, torch.tensor([EOS])).item() == OFF


def test_many_prefixes_at_once() -> None:
    trie = listed([(4,), (4, 5), (6, 6)])
    nodes = torch.cat([walk(trie, prefix) for prefix in [(), (4,), (5,), (6, 6, EOS)]])
    rows = [trie.next_log_probs(node[None]) for node in nodes]
    assert torch.equal(trie.next_log_probs(nodes), torch.cat(rows))
    assert trie.next_log_probs(nodes[:0]).shape == (0, V)


# --- the mixture


@settings(max_examples=25)
@given(WORDS, st.lists(st.integers(3, V - 1), max_size=4).map(tuple))
def test_probabilities_are_mixed_and_steps_tell_the_same(words: Words, word: tuple[int, ...]) -> None:
    model = mixture(words)
    ids = torch.tensor([[*word, EOS]])
    lengths = torch.tensor([ids.shape[1]])
    by_network = model.network.log_prob(ids, lengths).exp().item()
    expected = 0.6 * by_network + 0.4 * (word in words) / len(set(words))
    assert model.log_prob(ids, lengths).exp().item() == pytest.approx(expected)
    state, total, symbol = model.start(1), 0.0, BOS
    for following in (*word, EOS):
        next_1V, state = model.step(torch.tensor([symbol]), state)
        assert next_1V.exp().sum().item() == pytest.approx(1.0)
        total += next_1V[0, following].item()
        symbol = following
    assert math.exp(total) == pytest.approx(expected)


def test_steps_of_chosen_parents_are_those_of_each_alone() -> None:
    model = mixture([(4,), (4, 5), (6, 6)])
    _, state = model.step(torch.tensor([BOS, BOS]), model.start(2))
    _, state = model.step(torch.tensor([4, 6]), state)
    symbols, parents = torch.tensor([5, 6, 3]), torch.tensor([0, 1, 0])
    together, after = model.step(symbols, state, parents)
    apart, selected = model.step(symbols, state.select(parents))
    assert torch.allclose(together, apart)
    changed = after.put(torch.tensor([1]), selected.select(torch.tensor([2])))
    for mine, yours in zip((changed.node_N, changed.said_N), (selected.node_N, selected.said_N), strict=True):
        assert torch.allclose(mine[[0, 2]], yours[[0, 2]])
        assert torch.allclose(mine[1], yours[2])


def test_rows_of_several_lengths() -> None:
    model = mixture([(4,), (4, 5), (6, 6)])
    ids = torch.tensor([[4, EOS, 0], [4, 5, EOS], [5, EOS, 0]])
    together = model.log_prob(ids, torch.tensor([2, 3, 2]))
    for row, n, expected in zip(ids, (2, 3, 2), together, strict=True):
        assert torch.allclose(model.log_prob(row[None, :n], torch.tensor([n])), expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_says_the_same() -> None:
    model = mixture([(4,), (4, 5), (6, 6)])
    ids, lengths = torch.tensor([[4, EOS, 0], [4, 5, EOS], [5, EOS, 0]]), torch.tensor([2, 3, 2])
    here = model.log_prob(ids, lengths)
    first, _ = model.step(torch.tensor([BOS]), model.start(1))
    there = model.cuda()
    assert torch.allclose(there.log_prob(ids.cuda(), lengths).cpu(), here)
    assert torch.allclose(there.step(torch.tensor([BOS]).cuda(), there.start(1))[0].cpu(), first)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(-30, -0.1), st.one_of(st.just(-math.inf), st.just(-3.0))), min_size=2, max_size=20))
def test_the_share_is_the_best(pairs: list[tuple[float, float]]) -> None:
    network, by_list = (torch.tensor(column, dtype=torch.float64) for column in zip(*pairs, strict=True))

    def likelihood(share: float) -> float:
        logs = torch.tensor([1 - share, share], dtype=torch.float64).log()
        return float(torch.logaddexp(network + logs[0], by_list + logs[1]).sum())

    found = best_share(network, by_list)
    assert likelihood(found) >= max(likelihood(n / 100) for n in range(1, 100)) - 1e-2


@pytest.mark.parametrize("letters", [3, 20])
def test_a_list_without_held_out_outputs_counts_for_nothing(letters: int) -> None:
    model = mixture([(4,) * letters, (6,)])
    share = best_share(torch.full((50,), -20.0), torch.full((50,), -math.inf))
    fitted = WithWordList(model.network, model.words, share)
    ids, lengths = torch.tensor([[*(4,) * letters, EOS]]), torch.tensor([letters + 1])
    assert torch.allclose(fitted.log_prob(ids, lengths), model.network.log_prob(ids, lengths), atol=1e-6)


# --- the search


@pytest.mark.parametrize("search", ["viterbi", "marginal"])
def test_a_search_finds_what_is_best_by_the_mixture(search: str) -> None:
    rng = random.Random(search)
    for seed in range(4):
        plain = random_models(seed)
        words = [tuple(rng.choices((4, 5), k=rng.randrange(4))) for _ in range(3)]
        trie = Trie.of(Sequences.of([(*word, EOS) for word in words]), 6)
        models = replace(plain, lm=WithWordList(plain.lm, trie, 0.7))
        weights = Weights(0.8, 0.6, 0.9, 0.3)
        x = [*rng.choices(range(3, 7), k=3), EOS]
        arguments = {"weights": weights, "k1": 400, "k2": 400, "max_length": 4, "search": search}
        decoder = NoisyChannelDecoder(models.direct, models.channel, models.lm, **arguments)
        expected = best_outputs(models, x, (4, 5), weights, 4, search)
        (found,) = decoder.decode([x], n_best=20)
        assert_same(found, expected[: len(found)])
        online = OnlineDecoder(models.direct, models.channel, models.lm, **arguments, margin=math.inf)
        for symbol in x[:-1]:
            online.read(symbol)
        assert_same(online.finish(n_best=20), expected[: len(found)])


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


def test_a_run_keeps_the_list_and_fits_its_share(trained: Path) -> None:
    run = RunDirectory(trained)
    model, plain = run.load_model("lm"), run.load_model("lm", word_list=False)
    assert isinstance(model, WithWordList)
    assert isinstance(plain, LanguageModel)
    assert 0.5 < model.share < 1
    records = [json.loads(line) for line in run.metrics_file.read_text().splitlines()]
    (fitted,) = [record for record in records if record["kind"] == "dev with word list"]
    assert fitted["share"] == model.share
    assert fitted["perplexity"] < run.dev_perplexity("lm")


def test_training_says_what_the_list_brings(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = parse_config(trained.parent / "config.yaml")
    config.run_dir, config.models = str(trained.parent / "told"), ["lm"]
    (trained.parent / "told.yaml").write_text(dump_config(config))
    assert main(["train", str(trained.parent / "told.yaml")]) == 0
    records = [json.loads(line) for line in (trained.parent / "told" / "metrics.jsonl").read_text().splitlines()]
    (fitted,) = [record for record in records if record["kind"] == "dev with word list"]
    (said,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("lm: finished")]
    assert f"; with its word list {fitted['perplexity']:.3f} (share {fitted['share']:.2f})" in said
    command = said.partition("to train it further: noisychannel ")[2].split()
    assert command[-2:] == ["--lm.max_epochs", "2"]
    assert main(command) == 0
    assert "lm: finished after 52 steps" in capsys.readouterr().err
    records = [json.loads(line) for line in (trained.parent / "told" / "metrics.jsonl").read_text().splitlines()]
    (again,) = [record for record in records if record["kind"] == "dev with word list"]
    assert again != fitted, "the list is fitted again, and recorded once"


def test_decoding_uses_the_list(trained: Path) -> None:
    weights = Weights(1.0, 0.5, 1.0, 0.0)
    found = NoisyChannel.load(trained, weights=weights)("bade", n_best=3)
    run = RunDirectory(trained)
    model, codec = run.load_model("lm"), run.codecs()[1]
    for output in found:
        ids = codec.encode(output.text)
        expected = model.log_prob(torch.tensor([ids]), torch.tensor([len(ids)])).item()
        assert output.hypothesis.lm == pytest.approx(expected, abs=1e-4)
    assert NoisyChannel.load(trained, weights=weights).rerank("bade", [found[0].text])[0].hypothesis.lm == (
        pytest.approx(found[0].hypothesis.lm, abs=1e-4)
    )


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
            model, codec = run.load_model("lm"), run.codecs()[1]
            for tag in ("one", "two"):
                features = (tag,) if column == "features" else ()
                ids = [codec.encode(word, features) for word in ("ab", "aab", "bba")]
                on_list = [walk(model.words, tuple(x)).item() != OFF for x in ids]
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
    assert run.load_model("lm").share == pytest.approx(RunDirectory(trained).load_model("lm").share)
    assert run.metrics_file.read_text().count("dev with word list") == 1


def test_a_list_that_does_not_fit_is_refused(trained: Path, tmp_path: Path) -> None:
    run = RunDirectory(trained)
    words, share = listed([(4,)]), 0.5
    kept = run.word_list_file.read_bytes()
    try:
        run.write_word_list(words, share)
        with pytest.raises(NoisyChannelError, match=r"not the list of this model \(7 symbols instead of"):
            run.load_model("lm")
        run.word_list_file.write_bytes(kept[:100])
        with pytest.raises(NoisyChannelError, match="damaged or truncated"):
            run.load_model("lm")
    finally:
        run.word_list_file.write_bytes(kept)


def test_a_list_is_for_the_language_model(tmp_path: Path) -> None:
    config = toy_config(tmp_path)
    config.direct = replace(config.direct, word_list=True)
    with pytest.raises(BadInputError, match=r"direct\.word_list: is for the language model"):
        config.check()
