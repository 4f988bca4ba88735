"""N-gram models: against the definition, one dictionary per count; in searches, in runs and in tuning."""

from __future__ import annotations

import math
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decoder_oracles import Tokens, random_models, reluctant
from noisychannel import NoisyChannel, NoisyChannelDecoder, Weights
from noisychannel.arguments import dump_config
from noisychannel.cli.main import main
from noisychannel.data.augment import AugmentConfig
from noisychannel.data.corpus import Sequences
from noisychannel.decode.beam_decoder import BeamDecoder
from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.experiments.rows import SystemRow
from noisychannel.experiments.training import is_finished
from noisychannel.ids import BOS, EOS
from noisychannel.models.kneser_ney import FEW_DATA
from noisychannel.models.ngram import NGram
from noisychannel.models.seq2seq import Seq2Seq
from noisychannel.run_ngrams import load_ngram
from noisychannel.runs import RunDirectory
from noisychannel.training.config import NGramConfig, parse_config
from noisychannel.training.run import train_run
from noisychannel.weights import TermSource, own_terms, read_system
from test_terms import INPUTS, SEARCHES, UNBOUNDED, everyone, ranked
from toys import toy_config

V = 8
OUTPUT = st.lists(st.integers(3, V - 1), max_size=5).map(tuple)
OUTPUTS = st.lists(OUTPUT, min_size=1, max_size=30)


def ngram(outputs: Sequence[Tokens], order: int, vocab_size: int = V) -> NGram:
    """Of outputs without EOS."""
    return NGram.of(*Sequences.of([(*y, EOS) for y in outputs]), vocab_size, order)


class ByDefinition:
    """Modified Kneser-Ney from its equations, recursively, without a trie."""

    def __init__(self, outputs: Sequence[Tokens], order: int, vocab_size: int = V) -> None:
        self.order, self.vocab_size = order, vocab_size
        events: Counter[Tokens] = Counter()
        for y in outputs:
            padded = (BOS,) * (order - 1) + (*y, EOS)
            events.update(padded[end - order : end] for end in range(order, len(padded) + 1))
        self.counts: dict[int, Counter[Tokens]] = {order: events}
        for k in range(order - 1, 0, -1):  # how many different symbols stand before each
            self.counts[k] = Counter(gram[1:] for gram in self.counts[k + 1])
        self.after: dict[Tokens, dict[int, int]] = defaultdict(dict)
        for counts in self.counts.values():
            for gram, count in counts.items():
                self.after[gram[:-1]][gram[-1]] = count

    def discount(self, k: int, count: int) -> float:
        if count == 0:
            return 0.0
        n = [sum(value == i for value in self.counts[k].values()) for i in range(5)]
        found = FEW_DATA
        if all(n[1:]):
            y = n[1] / (n[1] + 2 * n[2])
            exact = (1 - 2 * y * n[2] / n[1], 2 - 3 * y * n[3] / n[2], 3 - 4 * y * n[4] / n[3])
            found = exact if all(d > 0 for d in exact) else FEW_DATA
        return found[min(count, 3) - 1]

    def prob(self, context: Tokens, symbol: int) -> float:
        shorter = self.prob(context[1:], symbol) if context else 1 / self.vocab_size
        after, k = self.after.get(context, {}), len(context) + 1
        if not after:
            return shorter
        total, count = sum(after.values()), after.get(symbol, 0)
        backoff = sum(self.discount(k, value) for value in after.values()) / total
        return (count - self.discount(k, count)) / total + backoff * shorter

    def log_prob(self, y: Tokens) -> float:
        padded, before = (BOS,) * (self.order - 1) + (*y, EOS), self.order - 1
        grams = (padded[end - before : end + 1] for end in range(before, len(padded)))
        return sum(math.log(self.prob(gram[:-1], gram[-1])) for gram in grams)


def after(term: NGram, prefix: Tokens) -> list[float]:
    """The distribution over the symbol after a prefix."""
    state = term.start(1)
    for symbol in (BOS, *prefix):
        distribution, state = term.step(torch.tensor([symbol]), state)
        assert distribution is None
    symbols = torch.arange(term.grams.vocab_size)
    return term.score(state.select(torch.zeros_like(symbols)), symbols).exp().tolist()


# --- the probabilities


@settings(max_examples=60, deadline=None)
@given(OUTPUTS, st.integers(1, 4), st.lists(OUTPUT, min_size=1, max_size=4))
def test_probabilities_are_as_defined_and_sum_to_one(outputs: list[Tokens], order: int, asked: list[Tokens]) -> None:
    term, oracle = ngram(outputs, order), ByDefinition(outputs, order)
    for prefix in [(), *asked, *outputs[:2]]:
        found = after(term, prefix)
        assert sum(found) == pytest.approx(1, abs=1e-6)
        context = ((BOS,) * (order - 1) + prefix)[len(prefix) :]
        assert found == pytest.approx([oracle.prob(context, symbol) for symbol in range(V)], rel=1e-5)
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor([*y, EOS]) for y in asked], batch_first=True)
    lengths = torch.tensor([len(y) + 1 for y in asked])
    assert term.log_prob(ids, lengths).tolist() == pytest.approx([oracle.log_prob(y) for y in asked], rel=1e-5)


def test_with_enough_data_the_discounts_are_those_of_the_counts() -> None:
    rng = random.Random(0)
    outputs = [tuple(rng.choices(range(4, 16), range(1, 13), k=rng.randint(1, 6))) for _ in range(300)]
    for order in (2, 3):
        oracle = ByDefinition(outputs, order, 16)
        assert any(oracle.discount(order, count) != FEW_DATA[count - 1] for count in (1, 2, 3))
        term = ngram(outputs, order, 16)
        for prefix in ((), (4,), (15, 15), (4, 7, 9)):
            context = ((BOS,) * (order - 1) + prefix)[len(prefix) :]
            assert after(term, prefix) == pytest.approx([oracle.prob(context, s) for s in range(16)], rel=1e-5)


def test_a_word_after_one_word_only_is_not_likely_after_others() -> None:
    """What Kneser and Ney are for: 5 is as frequent as 6, but follows 4 only."""
    outputs = [(4, 5)] * 12 + [(first, 6) for first in (4, 6, 7)] * 4
    found = after(ngram(outputs, 2), (3,))
    assert found[6] > 2 * found[5]


def test_chosen_rows_count_alone() -> None:
    outputs = [(4,), (5, 5), (6, 4), (), (5,)]
    chosen = NGram.of(*Sequences.of([(*y, EOS) for y in outputs]), V, 3, rows=np.array([1, 3, 4]))
    assert after(chosen, (5,)) == after(ngram([(5, 5), (), (5,)], 3), (5,))


def test_states_are_rows() -> None:
    term = ngram([(4, 5), (5, 6, 4)], 3)
    _, state = term.step(torch.tensor([BOS] * 3), term.start(3))
    _, state = term.step(torch.tensor([4, 5, 6]), state)
    symbols, parents = torch.tensor([5, 6]), torch.tensor([0, 1])
    _, together = term.step(symbols, state, parents)
    _, apart = term.step(symbols, state.select(parents))
    assert together.node_Nn.tolist() == apart.node_Nn.tolist()
    put = state.put(torch.tensor([2]), state.select(torch.tensor([0])))
    assert put.node_Nn.tolist() == state.select(torch.tensor([0, 1, 0])).node_Nn.tolist()
    assert put.concat(together).node_Nn.tolist() == [*put.node_Nn.tolist(), *together.node_Nn.tolist()]


def test_what_is_no_ngram_model_is_not_restored() -> None:
    term = ngram([(4, 5), (5, 6, 4)], 2)
    stored = [term.grams.keys, term.log_probs, term.log_backoffs]
    assert after(NGram.restored(V, 2, *stored), (4,)) == after(term, (4,))
    for place, changed in (
        (1, -term.log_probs),
        (1, term.log_probs[1:]),
        (2, term.log_backoffs[:1]),
        (0, stored[0][1:]),
    ):
        with pytest.raises(ValueError, match=r"log_probs are|contexts are too few|keys are not|of shape"):
            NGram.restored(V, 2, *stored[:place], changed, *stored[place + 1 :])


# --- in a search

LEARNT = [(4, 5), (5,), (5, 4, 4), (4, 4), (4,)]


@pytest.mark.parametrize("search", SEARCHES)
def test_unbounded_beams_find_the_exact_n_best_with_either_sign(search: str) -> None:
    rng, oracle = random.Random(search), ByDefinition(LEARNT, 2, 6)

    def value(x: Sequence[int], tokens: Tokens) -> float:
        return oracle.log_prob(tokens)

    changed = 0
    for seed in range(4):
        models = reluctant(random_models(seed, 6))
        weights = Weights(0.8, rng.choice([0.0, 0.6]), 0.5, 0.4, extra={"ngram": rng.choice([-2.5, 3.0])})
        term = ngram(LEARNT, 2, 6).double()
        arguments = everyone(models, weights, {"ngram": term}, **UNBOUNDED, max_length=4, search=search)
        for x, found in zip(INPUTS, NoisyChannelDecoder(**arguments).decode(INPUTS, n_best=6), strict=True):
            expected = ranked(models, x, 6, weights, 4, search, {"ngram": value})
            assert [h.tokens for h in found] == [tokens for tokens, _ in expected[:6]]
            assert [h.extra["ngram"] for h in found] == pytest.approx([value(x, h.tokens) for h in found], rel=1e-5)
            plain = ranked(models, x, 6, replace(weights, extra={}), 4, search, {})
            changed += [tokens for tokens, _ in plain[:6]] != [h.tokens for h in found]
    assert changed > 10, "a term that changes nothing tests nothing"


def test_beam_search_ranks_with_the_term() -> None:
    torch.manual_seed(0)
    attention, term = Seq2Seq(7, 7, 5).double().eval(), ngram(LEARNT, 3, 7)
    decoder = BeamDecoder(attention, weights=Weights(1.0, extra={"ngram": -0.5}), extra={"ngram": term}, k2=3)
    oracle = ByDefinition(LEARNT, 3, 7)
    for found in decoder.decode(INPUTS, 2):
        assert found[0].extra["ngram"] == pytest.approx(oracle.log_prob(found[0].tokens), rel=1e-5)


# --- in a run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an n-gram model of its pairs, which were repeated and have others beside them."""
    directory = tmp_path_factory.mktemp("ngram")
    config = toy_config(directory, rows=40, models=("direct", "lm"), max_epochs=1)
    (directory / "words.txt").write_text("ab\nad\nabba\n")
    (directory / "further.tsv").write_text("ummm\tummm\n")
    config.data.unpaired, config.data.further = [str(directory / "words.txt")], [str(directory / "further.tsv")]
    config.data.augment = AugmentConfig(made_up=20, repeat=3)
    config.ngrams = NGramConfig(pairs=2)
    (directory / "config.yaml").write_text(dump_config(config))
    train_run(config, listen=lambda event: None, say=lambda line: None)
    return Path(config.run_dir)


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def outputs_of(run: Path, *files: str) -> list[Tokens]:
    codec = RunDirectory(run).codecs()[1]
    lines = [line for file in files for line in (run.parent / file).read_text().splitlines()]
    return [tuple(codec.encode(line.split("\t")[-1])[:-1]) for line in lines]


def test_a_run_counts_the_outputs_of_its_real_pairs_once_each(trained: Path) -> None:
    run = RunDirectory(trained)
    assert own_terms(run)["ngram_pairs"] == TermSource("ngram_pairs", trained)
    assert "ngram_outputs" not in own_terms(run)
    learnt = outputs_of(trained, "train.tsv")
    oracle = ByDefinition(learnt, 2, len(run.codecs()[1]))
    model = NoisyChannel.load(trained, weights=Weights(1.0, lm=0.5, extra={"ngram_pairs": -0.3}))
    for output in model("bad", n_best=4):
        tokens = output.hypothesis.tokens
        assert output.hypothesis.extra["ngram_pairs"] == pytest.approx(oracle.log_prob(tokens), rel=1e-5)


def test_a_finished_run_gets_further_ngrams_without_training(
    run: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = trained.parent / "config.yaml"
    with pytest.raises(BadInputError, match=r"has no n-gram model of its outputs; add it, .*--ngrams.outputs 3$"):
        load_ngram(RunDirectory(run), "outputs")
    before = (run / "lm" / "model.safetensors").read_bytes()
    assert main(["train", str(config), "--run_dir", str(run), "--ngrams.outputs", "3", "--ngrams.pairs", "3"]) == 0
    assert "the n-grams of outputs were counted (ngram_outputs)" in capsys.readouterr().err
    assert (run / "lm" / "model.safetensors").read_bytes() == before
    assert parse_config(run / "config.yaml").ngrams == NGramConfig(pairs=3, outputs=3)
    found = load_ngram(RunDirectory(run), "outputs")
    learnt = [*outputs_of(trained, "train.tsv"), *outputs_of(trained, "words.txt")]
    oracle = ByDefinition(learnt, 3, found.grams.vocab_size)
    assert after(found, learnt[0][:1]) == pytest.approx(
        [oracle.prob((BOS, learnt[0][0]), symbol) for symbol in range(found.grams.vocab_size)], rel=1e-5
    )
    assert load_ngram(RunDirectory(run), "pairs").order == 3
    assert main(["train", str(config), "--run_dir", str(run)]) == 0  # the order of pairs is that of the file again
    assert "n-grams of outputs" not in capsys.readouterr().err
    assert load_ngram(RunDirectory(run), "pairs").order == 2
    assert load_ngram(RunDirectory(run), "outputs").order == 3


def test_a_damaged_file_is_refused_and_counted_again(run: Path, trained: Path) -> None:
    file = run / "ngram_pairs.safetensors"
    good = file.read_bytes()
    file.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(NoisyChannelError, match=r"ngram_pairs.safetensors: .*count again: rm -f"):
        load_ngram(RunDirectory(run), "pairs")
    assert main(["train", str(trained.parent / "config.yaml"), "--run_dir", str(run)]) == 0
    assert file.read_bytes() == good
    file.unlink()
    with pytest.raises(NoisyChannelError, match="missing"):
        load_ngram(RunDirectory(run), "pairs")


def test_tuning_may_move_the_weight_to_either_side(run: Path, trained: Path) -> None:
    arguments = ["tune", str(run), "--systems", "direct+lm+ngram_pairs", "--iterations", "1", "--k1", "4", "--k2", "2"]
    assert main(arguments) == 0
    tuned = read_system(RunDirectory(run), "direct+lm+ngram_pairs")
    assert set(tuned.weights.extra) == {"ngram_pairs"}
    assert "ngram_pairs" in tuned.models
    (weight,) = (weight for weight in tuned.system.free if weight.name == "ngram_pairs")
    assert weight.start < 0
    assert weight.value(np.array([-3.0, 3.0])).tolist() == pytest.approx([-0.9, 0.9])
    assert main(["evaluate", str(run), str(trained.parent / "dev.tsv"), "--systems", tuned.name]) == 0


def test_an_experiment_counts_what_a_trained_run_lacks(run: Path) -> None:
    config = parse_config(run / "config.yaml")
    assert is_finished(config)
    config.ngrams.outputs = 2
    assert not is_finished(config)
    train_run(config, listen=lambda event: None, say=lambda line: None)
    assert is_finished(config)
    assert SystemRow(
        name="a", system="direct+lm+ngram_pairs", models={"direct": "x", "lm": "y", "ngram_pairs": "x"}
    ).terms == {"ngram_pairs": "ngram_pairs"}


def test_an_order_that_cannot_be_is_refused(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(trained.parent / "config.yaml"), "--ngrams.pairs", "9"]) == 2
    assert "ngrams.pairs" in capsys.readouterr().err
