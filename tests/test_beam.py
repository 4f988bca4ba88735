"""Beam search, against all outputs one by one and against a beam search that is slow and plain to see."""

from __future__ import annotations

import itertools
import random
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from noisychannel.decode.beam import beam_search
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.settings import SearchSettings
from noisychannel.ids import BOS, EOS, PAD, UNK
from noisychannel.models.seq2seq import Seq2Seq

INPUTS = [[4, 5, 6, 4, EOS], [6, EOS], [EOS], [5, 5, 4, EOS], [4, EOS]]
WEIGHTS = [0.0, 0.7, 3.0, -0.4]


def beam(K: int, max_length: int | None = None, **keywords: Any) -> SearchSettings:
    return SearchSettings(k1=K, k2=K, max_length=max_length, **keywords)


def random_seq2seq(seed: int, attention: bool = True, output_vocab_size: int = 6) -> Seq2Seq:
    """A random model in float64 with opinions: its weights are far from zero."""
    torch.manual_seed(seed)
    model = Seq2Seq(7, output_vocab_size, 5, attention=attention).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.6 * torch.randn_like(parameter))
    return model


class Place(NamedTuple):
    """Which input each hypothesis belongs to, and how many symbols were said."""

    first: Tensor
    position: int

    def select(self, indices: Tensor) -> Place:
        return Place(self.first[indices], self.position)


class Table(nn.Module):
    """p(y | x) = Π_j p(y_j | y_{j-1}, j, x_1), from a table; counts the hypotheses it is asked about at each step."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)
        self.asked: list[int] = []

    def start(self, inputs: Tensor, input_lengths: Tensor) -> Place:
        return Place(inputs[:, 0], 0)

    def step(self, symbols_N: Tensor, state: Place) -> tuple[Tensor, Place]:
        self.asked.append(len(symbols_N))
        logits_NV = self.logits[state.first, state.position, symbols_N]
        return logits_NV.log_softmax(-1), Place(state.first, state.position + 1)


def constant_logits(eos: float = 0.0, a: float = 0.0, b: float = 0.0) -> Tensor:
    """The same distribution over EOS, 4 (``a``) and 5 (``b``) everywhere: [first, position, last, next]."""
    p = torch.zeros(6, dtype=torch.float64)
    p[EOS], p[4], p[5] = eos, a, b
    return p.log().expand(7, 50, 6, 6).clone()


def random_logits(seed: int, V: int = 8) -> Tensor:
    return 2 * torch.randn(7, 6, V, V, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def all_outputs(model: Seq2Seq, u: list[int], symbols: list[int], longest: int) -> dict[tuple[int, ...], float]:
    """log p(v | u) of every output of up to ``longest`` symbols, EOS included and left out of the key."""
    outputs = [row for n in range(longest) for row in itertools.product(symbols, repeat=n)]
    ids = pad_sequence([torch.tensor([*row, EOS]) for row in outputs], batch_first=True, padding_value=PAD)
    inputs = torch.tensor([u] * len(outputs))
    with torch.no_grad():
        log_probs = model.log_prob(
            inputs, torch.full((len(outputs),), len(u)), ids, torch.tensor([len(row) + 1 for row in outputs])
        )
    return dict(zip(outputs, log_probs.tolist(), strict=True))


def check_against(found: list[Hypothesis], log_probs: dict[tuple[int, ...], float], w: float, n_best: int) -> None:
    """``found`` is exactly the ``n_best`` of all outputs, in order, with their scores."""
    ranked = sorted(log_probs, key=lambda y: log_probs[y] + w * (len(y) + 1), reverse=True)[:n_best]
    assert [hypothesis.tokens for hypothesis in found] == ranked
    for hypothesis in found:
        log_prob, length = log_probs[hypothesis.tokens], len(hypothesis.tokens) + 1
        assert hypothesis.direct == pytest.approx(log_prob, abs=1e-10)
        assert hypothesis.score == pytest.approx(log_prob + w * length, abs=1e-10)
        assert hypothesis.length == length
        assert hypothesis.complete
        rest = (hypothesis.channel, hypothesis.lm, hypothesis.alignment, hypothesis.channel_alignment)
        assert rest == (None, None, None, None)


@pytest.mark.parametrize("w", WEIGHTS)
@pytest.mark.parametrize("attention", [False, True])
def test_a_beam_of_all_prefixes_finds_the_exact_n_best(attention: bool, w: float) -> None:
    longest = 5
    for seed, n_best in itertools.product(range(4), (1, 4, 40)):
        model = random_seq2seq(seed, attention)
        found = beam_search(model, INPUTS, beam(64, longest), n_best=n_best, length_weight=w)
        for u, hypotheses in zip(INPUTS, found, strict=True):
            check_against(hypotheses, all_outputs(model, u, [4, 5], longest), w, n_best)


def test_unk_is_proposed_only_where_allowed_and_pad_and_bos_never() -> None:
    model = random_seq2seq(1, output_vocab_size=5)
    for allow_unk, symbols in ((False, [4]), (True, [4, UNK])):
        found = beam_search(model, INPUTS, beam(40, 4, allow_unk=allow_unk), n_best=40)
        for u, hypotheses in zip(INPUTS, found, strict=True):
            check_against(hypotheses, all_outputs(model, u, symbols, 4), 0.0, 40)


def reference_beam(model: Table, first: int, K: int, n_best: int, longest: int, w: float) -> list[tuple[int, ...]]:
    """The beam search of the module's docstring for one sentence, with neither tensors nor early stopping."""
    tables = model.logits.log_softmax(-1)[first].tolist()
    live, answers = [((BOS,), 0.0)], []
    for table in tables[:longest]:
        candidates = [
            ((*y, v), log_prob + table[y[-1]][v])
            for y, log_prob in live
            for v in range(len(table))
            if v not in (PAD, BOS, UNK)
        ]
        candidates = sorted(candidates, key=lambda candidate: -candidate[1])[: 2 * K]
        answers += [(y, log_prob + w * (len(y) - 1)) for y, log_prob in candidates if y[-1] == EOS]
        live = [(y, log_prob) for y, log_prob in candidates if y[-1] != EOS][:K]
    answers = sorted(answers, key=lambda answer: -answer[1])[:n_best]
    return [y[1:-1] for y, _ in answers] or [live[0][0][1:]]


@pytest.mark.parametrize("w", WEIGHTS)
@pytest.mark.parametrize("beam_size", [1, 2, 3, 7])
def test_a_narrow_beam_is_the_plain_algorithm(beam_size: int, w: float) -> None:
    complete = 0
    for seed, n_best in itertools.product(range(8), {1, beam_size}):
        model = Table(random_logits(seed))
        found = beam_search(model, INPUTS, beam(beam_size, 6), n_best, length_weight=w)
        for u, hypotheses in zip(INPUTS, found, strict=True):
            expected = reference_beam(model, u[0], beam_size, n_best, 6, w)
            assert [hypothesis.tokens for hypothesis in hypotheses] == expected
            complete += hypotheses[0].complete
    assert complete > 20


def same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    assert [[h.tokens for h in row] for row in found] == [[h.tokens for h in row] for row in expected]
    for got, want in zip(itertools.chain(*found), itertools.chain(*expected), strict=True):
        assert (got.length, got.complete) == (want.length, want.complete)
        assert (got.score, got.direct) == pytest.approx((want.score, want.direct), abs=1e-10)


@pytest.mark.parametrize("w", [0.0, 1.5])
@pytest.mark.parametrize("attention", [False, True])
def test_the_batch_does_not_matter(attention: bool, w: float) -> None:
    model = random_seq2seq(6, attention, output_vocab_size=9)
    generator = random.Random(0)
    inputs = [[*generator.choices([4, 5, 6], k=generator.randrange(12)), EOS] for _ in range(30)]
    together = beam_search(model, inputs, beam(4), n_best=3, length_weight=w)
    same(together, [beam_search(model, [u], beam(4), n_best=3, length_weight=w)[0] for u in inputs])
    order = generator.sample(range(30), 30)
    permuted = beam_search(model, [inputs[b] for b in order], beam(4), n_best=3, length_weight=w)
    same(permuted, [together[b] for b in order])
    assert len({h.length for row in together for h in row}) > 2


@pytest.mark.parametrize("w", [0.0, 0.5])
def test_the_reported_scores_are_what_the_model_says_from_scratch(w: float) -> None:
    model = random_seq2seq(5, output_vocab_size=12)
    for u, hypotheses in zip(INPUTS, beam_search(model, INPUTS, beam(5), n_best=5, length_weight=w), strict=True):
        for h in hypotheses:
            v = torch.tensor([[*h.tokens, EOS]])
            log_prob = model.log_prob(torch.tensor([u]), torch.tensor([len(u)]), v, torch.tensor([h.length])).item()
            assert h.direct == pytest.approx(log_prob, abs=1e-10)
            assert h.score == pytest.approx(log_prob + w * h.length, abs=1e-10)


def searched(model: Table) -> list[int]:
    """What a model was asked by a search, after two steps that measure its memory."""
    return model.asked[2:]


def test_it_stops_as_soon_as_nothing_can_win_and_not_before() -> None:
    # Saying nothing has p = 0.6; "a" 0.4·0.6, and whatever goes on after "a" has at most 0.16.
    model = Table(constant_logits(eos=0.6, a=0.4))
    [[best]] = beam_search(model, [[EOS]], beam(3, 50))
    assert (best.tokens, len(searched(model))) == ((), 1)
    model.asked.clear()
    [three] = beam_search(model, [[EOS]], beam(3, 50), n_best=3)
    assert ([h.tokens for h in three], len(searched(model))) == ([(), (4,), (4, 4)], 3)

    # "a" is likelier than saying nothing, but a negative weight charges it for at least one symbol more.
    model = Table(constant_logits(eos=0.45, a=0.55))
    [[best]] = beam_search(model, [[EOS]], beam(3, 50), length_weight=-1.0)
    assert (best.tokens, len(searched(model))) == ((), 1)

    # With p = 0.5 and a weight above log 2 every further symbol pays, though each answer beats all that is live.
    model = Table(constant_logits(eos=0.5, a=0.5))
    [[best]] = beam_search(model, [[EOS]], beam(3, 9), length_weight=0.7)
    assert (best.tokens, len(searched(model))) == ((4,) * 8, 9)
    assert best.score == pytest.approx(9 * (0.7 + torch.tensor(0.5, dtype=torch.float64).log().item()))


def test_closed_sentences_leave_the_batch() -> None:
    logits = constant_logits(eos=0.6, a=0.4)
    logits[5] = constant_logits(eos=1e-4, a=1 - 1e-4)[5]
    model = Table(logits)
    short, long = beam_search(model, [[4, EOS], [5, EOS]], beam(1, 8), length_weight=1e-3)
    assert (short[0].tokens, short[0].complete) == ((), True)
    assert (len(long[0].tokens), searched(model)) == (7, [2] + [1] * 7)


def test_eos_takes_no_place_in_the_beam() -> None:
    # EOS is the best first symbol, yet the one place of the beam goes to "a", which later ends better.
    logits = constant_logits(eos=1.0)
    logits[:, 0] = constant_logits(eos=0.5, a=0.3, b=0.2)[:, 0]
    [found] = beam_search(Table(logits), [[EOS]], beam(1, 5), length_weight=1.0)
    assert [h.tokens for h in found] == [(4,)]


def test_an_output_that_never_ends_is_returned_and_flagged() -> None:
    model = Table(constant_logits(a=0.7, b=0.3))
    for w in (0.0, 0.5):
        given, default = (beam_search(model, [[4, 4, EOS]], beam(3, n), 2, w) for n in (5, None))
        for [found], length in ((given, 5), (default, 2 * 3 + 10)):
            assert len(found) == 1
            assert (found[0].tokens, found[0].length, found[0].complete) == ((4,) * length, length, False)
            log_prob = length * torch.tensor(0.7, dtype=torch.float64).log().item()
            assert (found[0].direct, found[0].score) == pytest.approx((log_prob, log_prob + w * length))


def test_fewer_than_n_best_are_returned_where_fewer_end() -> None:
    logits = constant_logits(a=1.0)
    logits[:, 0, BOS, EOS] = 0.0
    [found] = beam_search(Table(logits), [[EOS]], beam(4, 6), n_best=4)
    assert [(h.tokens, h.complete) for h in found] == [((), True)]


def test_no_inputs_no_outputs() -> None:
    assert beam_search(random_seq2seq(0), []) == []


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        ([[4, EOS], [4, 5]], {}, r"inputs\[1\] must end in its only EOS"),
        ([[4, EOS, 4, EOS]], {}, r"inputs\[0\] must end in its only EOS \(id 2\)"),
        ([[4, EOS], []], {}, r"inputs\[1\] must end in its only EOS"),
        ([[EOS]], {"n_best": 0}, "n_best must be at least 1, but is 0"),
    ],
)
def test_bad_input_is_one_clear_line(inputs: list[list[int]], options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        beam_search(random_seq2seq(0), inputs, **options)
    assert "\n" not in str(error.value)


def test_more_outputs_than_the_beam_holds_may_be_asked_for() -> None:
    model = Table(random_logits(3))
    [found] = beam_search(model, [[4, EOS]], beam(2, 6), n_best=5)
    assert [h.tokens for h in found] == reference_beam(model, 4, 2, 5, 6, 0.0)
    assert len(found) > 2


@pytest.mark.parametrize(("max_length", "max_growth", "longest"), [(None, 2, 5), (4, 2, 4), (9, 0, 3)])
def test_an_output_grows_no_more_than_it_may(max_length: int | None, max_growth: int, longest: int) -> None:
    model = Table(constant_logits(a=0.7, b=0.3))
    [[found]] = beam_search(model, [[4, 4, EOS]], beam(3, max_length, max_growth=max_growth))
    assert (found.length, found.complete) == (longest, False)


def test_a_trained_model_reverses_strings_it_has_not_seen() -> None:
    torch.manual_seed(0)
    generator = random.Random(0)
    strings = [list(row) for n in range(1, 6) for row in itertools.product(range(4, 9), repeat=n)]
    generator.shuffle(strings)
    held_out, strings = strings[:200], strings[200:]
    model = Seq2Seq(9, 9, 48)
    optimiser = torch.optim.Adam(model.parameters(), lr=8e-3)
    for _ in range(250):
        batch = generator.sample(strings, 64)
        inputs = pad_sequence([torch.tensor([*row, EOS]) for row in batch], batch_first=True)
        outputs = pad_sequence([torch.tensor([*row[::-1], EOS]) for row in batch], batch_first=True)
        lengths = torch.tensor([len(row) + 1 for row in batch])
        loss = -model(inputs, lengths, outputs, lengths).sum() / lengths.sum()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    found = beam_search(model.eval(), [[*row, EOS] for row in held_out], beam(4))
    right = sum(best.tokens == tuple(row[::-1]) for [best], row in zip(found, held_out, strict=True))
    assert right / len(held_out) >= 0.95
