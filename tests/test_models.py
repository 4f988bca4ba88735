"""SSNT and the language model against their definitions, written out from their parameters."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import oracles
from noisychannel import SSNT, LanguageModel
from noisychannel.ids import BOS, EOS, PAD, UNK

exhaustive = settings(max_examples=30, deadline=None, derandomize=True)

INPUT_VOCABULARY, OUTPUT_VOCABULARY = 8, 7

SHAPES = {
    "uni": {},
    "uni, 2 layers": {"num_layers": 2},
    "uni, small embeddings": {"embedding_size": 3},
    "uni, 2 layers, large embeddings": {"num_layers": 2, "embedding_size": 9},
    "bi": {"bidirectional": True},
    "bi, 2 layers, small embeddings": {"bidirectional": True, "num_layers": 2, "embedding_size": 3},
}
UNIDIRECTIONAL = {name: shape for name, shape in SHAPES.items() if "bidirectional" not in shape}

LM_SHAPES = {
    "2 layers": {},
    "1 layer": {"num_layers": 1},
    "3 layers, small embeddings": {"num_layers": 3, "embedding_size": 4},
}

Batch = tuple[Tensor, Tensor, Tensor, Tensor]


def spread(model: torch.nn.Module, seed: int, scale: float) -> None:
    """Larger weights than at the start of training: gates and words that are far from even."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=rng, dtype=torch.float64).to(parameter))


def ssnt(shape: str = "uni", seed: int = 0, dtype: torch.dtype = torch.float64, **options) -> SSNT:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = SSNT(INPUT_VOCABULARY, OUTPUT_VOCABULARY, hidden_size=6, **SHAPES[shape], **options)
    spread(model, seed, 0.5)
    return model.to(dtype).eval()


def language_model(
    shape: str = "2 layers", seed: int = 0, dtype: torch.dtype = torch.float64, vocabulary: int = 7, **options
) -> LanguageModel:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LanguageModel(vocabulary, hidden_size=6, **LM_SHAPES[shape], **options)
    spread(model, seed, 0.5)
    return model.to(dtype).eval()


def padded(rows: list[list[int]], filler: int = PAD, extra: int = 0) -> tuple[Tensor, Tensor]:
    longest = max(map(len, rows)) + extra
    ids = torch.tensor([row + [filler] * (longest - len(row)) for row in rows])
    return ids, torch.tensor([len(row) for row in rows])


def pairs(inputs: list[list[int]], outputs: list[list[int]], filler: int = PAD, extra: int = 0) -> Batch:
    return *padded(inputs, filler, extra), *padded(outputs, filler, extra)


# Lengths from EOS alone upwards, the longest input not with the longest output.
INPUTS = [[4, 5, 6, EOS], [7, EOS], [EOS], [4, 4, 7, UNK, 5, EOS], [6, 5, EOS]]
OUTPUTS = [[5, 6, EOS], [4, 4, 5, 6, EOS], [UNK, EOS], [6, 5, EOS], [EOS]]


def sequences(vocabulary: int) -> st.SearchStrategy[list[int]]:
    symbols = st.sampled_from([UNK, *range(4, vocabulary)])
    return st.lists(symbols, max_size=4).map(lambda symbols: [*symbols, EOS])


batches = st.lists(st.tuples(sequences(INPUT_VOCABULARY), sequences(OUTPUT_VOCABULARY)), min_size=1, max_size=4).map(
    lambda rows: ([source for source, _ in rows], [target for _, target in rows])
)


def assert_close(actual: Tensor, expected: Tensor, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


# --- SSNT against its definition -------------------------------------------------------------------------------------


@exhaustive
@given(batches, st.sampled_from(list(SHAPES)), st.integers(0, 5))
def test_log_prob_is_the_enumeration_over_explicit_softmaxes(rows, shape: str, seed: int) -> None:
    model = ssnt(shape, seed)
    actual = model.log_prob(*pairs(*rows))
    assert actual.shape == (len(rows[0]),)
    expected = [
        oracles.log_marginal(*oracles.ssnt_lattice(model.state_dict(), source, target))
        for source, target in zip(*rows, strict=True)
    ]
    assert_close(actual.detach(), torch.stack(expected))


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_those_of_the_enumeration(shape: str) -> None:
    model = ssnt(shape, seed=2)
    model.log_prob(*pairs(INPUTS, OUTPUTS)).sum().backward()
    leaves = {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}
    for source, target in zip(INPUTS, OUTPUTS, strict=True):
        oracles.log_marginal(*oracles.ssnt_lattice(leaves, source, target)).backward()
    for name, parameter in model.named_parameters():
        assert_close(parameter.grad, leaves[name].grad)


@pytest.mark.parametrize("shape", SHAPES)
def test_float32_is_close_to_the_enumeration(shape: str) -> None:
    model = ssnt(shape, seed=3, dtype=torch.float32)
    actual = model.log_prob(*pairs(INPUTS, OUTPUTS))
    assert actual.dtype == torch.float32
    expected = [
        oracles.log_marginal(*oracles.ssnt_lattice(model.state_dict(), source, target))
        for source, target in zip(INPUTS, OUTPUTS, strict=True)
    ]
    assert_close(actual.detach().double(), torch.stack(expected), 1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_viterbi_and_alignments_are_those_of_the_enumeration(shape: str) -> None:
    model = ssnt(shape, seed=4)
    batch = pairs(INPUTS, OUTPUTS)
    score, best = model.viterbi(*batch)
    posteriors = model.alignments(*batch)
    assert posteriors.shape == (len(INPUTS), batch[0].shape[1], batch[2].shape[1])
    for b, (source, target) in enumerate(zip(INPUTS, OUTPUTS, strict=True)):
        lattice = oracles.ssnt_lattice(model.state_dict(), source, target)
        best_score, best_set = oracles.best_alignments(*lattice)
        I, J = len(source), len(target)
        assert score[b].item() == pytest.approx(best_score, abs=1e-9)
        assert tuple(best[b, :J].tolist()) in best_set
        assert (best[b, J:] == -1).all()
        expected = torch.zeros_like(posteriors[b])
        expected[:I, :J] = oracles.posteriors(*lattice)
        assert_close(posteriors[b].detach(), expected)
    assert (score <= model.log_prob(*batch)).all()


def test_forward_is_log_prob() -> None:
    model, lm = ssnt("bi"), language_model()
    assert torch.equal(model(*pairs(INPUTS, OUTPUTS)), model.log_prob(*pairs(INPUTS, OUTPUTS)))
    assert torch.equal(lm(*padded(OUTPUTS)), lm.log_prob(*padded(OUTPUTS)))


@pytest.mark.parametrize("shape", SHAPES)
def test_sides_are_what_the_lattice_is_made_of(shape: str) -> None:
    model = ssnt(shape, seed=5)
    inputs, input_lengths, outputs, _ = pairs(INPUTS, OUTPUTS)
    input_side, output_side = model.read_inputs(inputs, input_lengths), model.read_outputs(outputs)
    assert input_side.scores.shape == (*inputs.shape, OUTPUT_VOCABULARY)
    assert output_side.scores.shape == (*outputs.shape, OUTPUT_VOCABULARY)
    word = oracles.joint_word_log_probs(input_side.scores, output_side.scores, outputs)
    emit = model.emit_logits(input_side, output_side)
    for b, (source, target) in enumerate(zip(INPUTS, OUTPUTS, strict=True)):
        expected_word, expected_emit = oracles.ssnt_lattice(model.state_dict(), source, target)
        assert_close(word[b, : len(source), : len(target)].detach(), expected_word)
        assert_close(emit[b, : len(source), : len(target)].detach(), expected_emit)


# --- probabilities ---------------------------------------------------------------------------------------------------


def all_outputs(vocabulary: int, length: int) -> list[list[int]]:
    """Every output of this length: EOS at the end and nowhere else."""
    words = [word for word in range(vocabulary) if word != EOS]
    return [[*prefix, EOS] for prefix in itertools.product(words, repeat=length - 1)]


def mass(model: SSNT, source: list[int], vocabulary: int, length: int) -> float:
    outputs = all_outputs(vocabulary, length)
    return model.log_prob(*pairs([source] * len(outputs), outputs)).exp().sum().item()


def test_probabilities_are_at_most_one() -> None:
    for shape, seed in itertools.product(SHAPES, range(5)):
        assert (ssnt(shape, seed).log_prob(*pairs(INPUTS, OUTPUTS)) < 0).all()
    assert math.isfinite(language_model().log_prob(*padded(OUTPUTS)).sum().item())


@pytest.mark.parametrize("source", [[EOS], [4, EOS], [4, 6, 5, EOS]])
def test_ssnt_probabilities_sum_to_less_than_one_and_grow_with_length(source: list[int]) -> None:
    torch.manual_seed(0)
    model = SSNT(7, 4, hidden_size=5, embedding_size=3).double().eval()
    masses = [mass(model, source, 4, length) for length in range(1, 7)]
    assert all(m > 0 for m in masses)
    assert sum(masses) < 1


@pytest.mark.parametrize("seed", [0, 1])
def test_ssnt_with_every_gate_open_on_one_input_is_a_distribution(seed: int) -> None:
    # e = 1 and I = 1: nothing can be lost, so what is missing from one is what has not ended yet.
    torch.manual_seed(seed)
    model = SSNT(7, 4, hidden_size=5).double().eval()
    with torch.no_grad():
        model.emit.bias.fill_(60.0)
    longest = 6
    total = sum(mass(model, [EOS], 4, length) for length in range(1, longest + 1))
    prefixes = [row[:-1] for row in all_outputs(4, longest + 1)]
    side = model.read_inputs(torch.tensor([[EOS]]), torch.tensor([1]))
    outputs = torch.tensor(prefixes)
    word = (side.scores + model.read_outputs(outputs).scores).log_softmax(-1)
    remaining = word.gather(-1, outputs[..., None]).squeeze(-1).sum(1).exp().sum().item()
    assert 0 < remaining < 1
    assert total + remaining == pytest.approx(1, abs=1e-10)


def test_ssnt_loses_exactly_what_ends_early_or_runs_past_the_input() -> None:
    """All mass is accounted for: what ended at I, ended before I, was shifted past I, or has not ended yet."""
    torch.manual_seed(1)
    model = SSNT(7, 4, hidden_size=5).double().eval()
    source, longest = [5, 4, EOS], 4
    ended = sum(mass(model, source, 4, length) for length in range(1, longest + 1))
    early = fallen = continuing = 0.0

    def leave(prefix: list[int]) -> tuple[list[float], float]:
        """p(prefix, z = i) for each i, and the mass that shifted past I before the prefix's last symbol."""
        if not prefix:
            return [1.0, 0.0, 0.0], 0.0
        before, _ = leave(prefix[:-1])
        word, emit = oracles.ssnt_lattice(model.state_dict(), source, prefix)
        e, p = emit[:, -1].sigmoid().tolist(), word[:, -1].exp().tolist()
        arrive, column = 0.0, []
        for i in range(len(source)):
            arrive += before[i]
            column.append(arrive * e[i] * p[i])
            arrive *= 1 - e[i]
        return column, arrive

    for length in range(1, longest + 1):
        for output in all_outputs(4, length):
            column, past = leave(output)
            early += sum(column[:-1])
            fallen += past  # does not depend on the last symbol: once for every prefix
    for prefix in (row[:-1] for row in all_outputs(4, longest + 1)):
        continuing += sum(leave(prefix)[0])
    assert min(early, fallen, continuing) > 0.01
    assert ended + early + fallen + continuing == pytest.approx(1, abs=1e-10)


@pytest.mark.parametrize("shape", LM_SHAPES)
def test_lm_probabilities_sum_to_one_less_what_has_not_ended(shape: str) -> None:
    model = language_model(shape, seed=1, vocabulary=4)
    total = 0.0
    for length in range(1, 7):
        total += model.log_prob(*padded(all_outputs(4, length))).exp().sum().item()
        prefixes = [row[:-1] for row in all_outputs(4, length + 1)]
        state = model.start(len(prefixes))
        log_p = torch.zeros(len(prefixes), dtype=torch.float64)
        last = torch.full((len(prefixes),), BOS)
        for symbols in torch.tensor(prefixes).T:
            step, state = model.step(last, state)
            log_p += step.gather(1, symbols[:, None]).squeeze(1).detach()
            last = symbols
        remaining = log_p.exp().sum().item()
        assert total + remaining == pytest.approx(1, abs=1e-10)
    assert total > 0.3


# --- the language model against its definition -----------------------------------------------------------------------


@exhaustive
@given(st.lists(sequences(7), min_size=1, max_size=4), st.sampled_from(list(LM_SHAPES)), st.integers(0, 5))
def test_lm_log_prob_is_its_definition(rows: list[list[int]], shape: str, seed: int) -> None:
    model = language_model(shape, seed)
    actual = model.log_prob(*padded(rows))
    assert actual.shape == (len(rows),)
    expected = torch.stack([oracles.lm_log_prob(model.state_dict(), row) for row in rows])
    assert_close(actual.detach(), expected)


@pytest.mark.parametrize("shape", LM_SHAPES)
def test_lm_steps_are_its_definition(shape: str) -> None:
    model = language_model(shape, seed=2)
    rows = [[4, 5, 6], [6, UNK, 4]]
    state, last = model.start(2), torch.tensor([BOS, BOS])
    for j in range(4):
        log_probs, state = model.step(last, state)
        expected = [oracles.lm_next_log_probs(model.state_dict(), row[:j]) for row in rows]
        assert_close(log_probs.detach(), torch.stack(expected))
        if j < 3:
            last = torch.tensor([row[j] for row in rows])


def test_lm_gradients_are_those_of_the_definition() -> None:
    model = language_model(seed=3)
    model.log_prob(*padded(OUTPUTS)).sum().backward()
    leaves = {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}
    sum(oracles.lm_log_prob(leaves, row) for row in OUTPUTS).backward()
    for name, parameter in model.named_parameters():
        assert_close(parameter.grad, leaves[name].grad)


# --- one symbol at a time --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", UNIDIRECTIONAL)
def test_stepping_through_inputs_is_reading_them(shape: str) -> None:
    model = ssnt(shape, seed=6)
    ids = torch.tensor([[4, 5, 6, 7, EOS], [7, 7, UNK, 4, EOS], [5, 4, 5, 4, EOS]])
    whole = model.read_inputs(ids, torch.tensor([5, 5, 5]))
    state = model.start_inputs(3)
    for i in range(5):
        side, state = model.step_inputs(ids[:, i], state)
        assert_close(side.scores, whole.scores[:, i])
        assert_close(side.gate, whole.gate[:, i])


@pytest.mark.parametrize("shape", SHAPES)
def test_stepping_through_outputs_is_reading_them(shape: str) -> None:
    model = ssnt(shape, seed=6)
    ids = torch.tensor([[4, 5, 6, EOS], [UNK, 4, 4, EOS]])
    whole = model.read_outputs(ids)
    state, last = model.start_outputs(2), torch.tensor([BOS, BOS])
    for j in range(4):
        side, state = model.step_outputs(last, state)
        assert_close(side.scores, whole.scores[:, j])
        assert_close(side.gate, whole.gate[:, j])
        last = ids[:, j]


ORDER = [2, 0, 0, 1, 2, 2]
"""Some twice, none in its place: what a search does with its states."""


@pytest.mark.parametrize("shape", UNIDIRECTIONAL)
@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_states_may_be_repeated_and_reordered(side: str, shape: str) -> None:
    model = ssnt(shape, seed=7)
    first, then = torch.tensor([[4, 5], [6, 4], [UNK, 6]]), torch.tensor([4, 5, 6, 4, UNK, 5])
    start, step = (
        (model.start_inputs, model.step_inputs) if side == "inputs" else (model.start_outputs, model.step_outputs)
    )
    state = start(3)
    if side == "outputs":
        _, state = step(torch.full((3,), BOS), state)
    for symbols in first.T:
        _, state = step(symbols, state)
    selected, after = step(then, state.select(torch.tensor(ORDER)))
    selected_twice, _ = step(then[[5, 0]], after.select(torch.tensor([5, 0])))
    # What was selected from must still be good: hypotheses share it.
    unselected, _ = step(torch.tensor([4, 4, 4]), state)

    def from_scratch(rows: Tensor) -> tuple[Tensor, Tensor]:
        if side == "inputs":
            whole = model.read_inputs(rows, torch.full((len(rows),), rows.shape[1]))
        else:
            whole = model.read_outputs(torch.cat([rows, torch.full((len(rows), 1), EOS)], 1))
        return whole.scores[:, -1], whole.gate[:, -1]

    longer = torch.cat([first[ORDER], then[:, None]], 1)
    longest = torch.cat([longer[[5, 0]], then[[5, 0], None]], 1)
    untouched = torch.cat([first, torch.full((3, 1), 4)], 1)
    for actual, rows in ((selected, longer), (selected_twice, longest), (unselected, untouched)):
        scores, gate = from_scratch(rows)
        assert_close(actual.scores, scores)
        assert_close(actual.gate, gate)


@pytest.mark.parametrize("shape", LM_SHAPES)
def test_language_model_states_may_be_repeated_and_reordered(shape: str) -> None:
    model = language_model(shape, seed=7)
    first, then = torch.tensor([[4, 5], [6, 4], [UNK, 6]]), torch.tensor([4, 5, 6, 4, UNK, 5])
    _, state = model.step(torch.full((3,), BOS), model.start(3))
    for symbols in first.T:
        _, state = model.step(symbols, state)
    log_probs, _ = model.step(then, state.select(torch.tensor(ORDER)))
    rows = torch.cat([first[ORDER], then[:, None]], 1).tolist()
    expected = torch.stack([oracles.lm_next_log_probs(model.state_dict(), row) for row in rows])
    assert_close(log_probs.detach(), expected)


def test_one_input_row_serves_many_outputs() -> None:
    # The search scores all prefixes of a sentence at once: emit_logits must broadcast over what comes before I and J.
    model = ssnt("uni", seed=8)
    inputs, lengths = padded([INPUTS[3]])
    outputs = torch.tensor([[4, 5, EOS], [6, 6, EOS], [5, UNK, EOS]])
    one, many = model.read_inputs(inputs, lengths), model.read_outputs(outputs)
    repeated = model.read_inputs(inputs.expand(3, -1), lengths.expand(3))
    assert_close(model.emit_logits(one, many), model.emit_logits(repeated, many))


@pytest.mark.parametrize("shape", UNIDIRECTIONAL)
def test_a_prefix_does_not_see_what_follows(shape: str) -> None:
    model = ssnt(shape, seed=9)
    short = model.read_inputs(torch.tensor([[4, 5, 6]]), torch.tensor([3]))
    long = model.read_inputs(torch.tensor([[4, 5, 6, 7, 4, EOS]]), torch.tensor([6]))
    assert_close(long.scores[:, :3], short.scores, 1e-12)
    assert_close(long.gate[:, :3], short.gate, 1e-12)


@pytest.mark.parametrize("shape", ["bi", "bi, 2 layers, small embeddings"])
def test_a_bidirectional_encoder_does_see_what_follows(shape: str) -> None:
    model = ssnt(shape, seed=9)
    first = model.read_inputs(torch.tensor([[4, 5, 6, EOS]]), torch.tensor([4]))
    other = model.read_inputs(torch.tensor([[4, 5, 7, EOS]]), torch.tensor([4]))
    assert (first.scores[:, :2] - other.scores[:, :2]).abs().amax(-1).min() > 1e-4


@pytest.mark.parametrize("shape", SHAPES)
def test_outputs_see_only_what_was_said_before(shape: str) -> None:
    model = ssnt(shape, seed=9)
    first = model.read_outputs(torch.tensor([[4, 5, 6, EOS]]))
    other = model.read_outputs(torch.tensor([[4, 5, 4, EOS]]))
    assert_close(first.scores[:, :3], other.scores[:, :3], 1e-12)
    assert (first.scores[:, 3] - other.scores[:, 3]).abs().max() > 1e-4


# --- batches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("filler", "extra"), [(PAD, 3), (EOS, 0), (5, 2), (BOS, 1)])
def test_padding_changes_nothing(filler: int, extra: int, shape: str) -> None:
    model = ssnt(shape, seed=10)
    expected, actual = model.log_prob(*pairs(INPUTS, OUTPUTS)), model.log_prob(*pairs(INPUTS, OUTPUTS, filler, extra))
    assert_close(actual, expected, 1e-12)
    score, best = model.viterbi(*pairs(INPUTS, OUTPUTS))
    padded_score, padded_best = model.viterbi(*pairs(INPUTS, OUTPUTS, filler, extra))
    assert_close(padded_score, score, 1e-12)
    assert torch.equal(padded_best[:, : best.shape[1]], best)
    lm = language_model()
    assert_close(lm.log_prob(*padded(OUTPUTS, filler, extra)), lm.log_prob(*padded(OUTPUTS)), 1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_padding_symbols_get_no_gradient(shape: str) -> None:
    # Symbol 7 (and 6 on the output side) stands only in the padding.
    inputs, outputs = [[4, 5, EOS], [4, EOS]], [[5, EOS], [4, 4, 5, EOS]]
    model, lm = ssnt(shape, seed=10), language_model(seed=10)
    model.log_prob(*padded(inputs, 7, 2), *padded(outputs, 6, 2)).sum().backward()
    lm.log_prob(*padded(outputs, 6, 2)).sum().backward()
    assert (model.encoder.embedding.weight.grad[7] == 0).all()
    assert (model.decoder.embedding.weight.grad[6] == 0).all()
    assert (lm.decoder.embedding.weight.grad[6] == 0).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_batch_is_its_rows_in_any_order(shape: str) -> None:
    model, lm = ssnt(shape, seed=11), language_model(seed=11)
    whole = model.log_prob(*pairs(INPUTS, OUTPUTS))
    singles = [model.log_prob(*pairs([x], [y])) for x, y in zip(INPUTS, OUTPUTS, strict=True)]
    assert_close(whole, torch.cat(singles), 1e-12)
    order = [4, 2, 0, 3, 1]
    permuted = model.log_prob(*pairs([INPUTS[b] for b in order], [OUTPUTS[b] for b in order]))
    assert_close(permuted, whole[order], 1e-12)
    assert_close(lm.log_prob(*padded(OUTPUTS)), torch.cat([lm.log_prob(*padded([y])) for y in OUTPUTS]), 1e-12)


def test_read_inputs_ignores_padding_in_both_directions() -> None:
    model = ssnt("bi, 2 layers, small embeddings", seed=12)
    ids, lengths = padded(INPUTS, filler=7, extra=2)
    whole = model.read_inputs(ids, lengths)
    for b, source in enumerate(INPUTS):
        alone = model.read_inputs(torch.tensor([source]), torch.tensor([len(source)]))
        assert_close(whole.scores[b : b + 1, : len(source)], alone.scores, 1e-12)
        assert_close(whole.gate[b : b + 1, : len(source)], alone.gate, 1e-12)


# --- training --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_dropout_acts_in_training_only(shape: str) -> None:
    batch = pairs(INPUTS, OUTPUTS)
    plain, dropping = ssnt(shape, seed=13), ssnt(shape, seed=13, dropout=0.5)
    dropping.load_state_dict(plain.state_dict())
    assert torch.equal(dropping.log_prob(*batch), plain.log_prob(*batch))
    assert torch.equal(plain.train().log_prob(*batch), plain.eval().log_prob(*batch))
    torch.manual_seed(0)
    first, second = dropping.train().log_prob(*batch), dropping.log_prob(*batch)
    assert (first - second).abs().max() > 1e-3
    # Both networks drop: either side read twice differs.
    for read in (lambda: dropping.read_inputs(*batch[:2]), lambda: dropping.read_outputs(batch[2])):
        assert (read().scores - read().scores).abs().max() > 1e-3
    assert torch.equal(dropping.eval().log_prob(*batch), plain.log_prob(*batch))


@pytest.mark.parametrize("shape", LM_SHAPES)
def test_language_model_dropout_acts_in_training_only(shape: str) -> None:
    batch = padded(OUTPUTS)
    plain, dropping = language_model(shape, seed=13), language_model(shape, seed=13, dropout=0.5)
    dropping.load_state_dict(plain.state_dict())
    assert torch.equal(dropping.log_prob(*batch), plain.log_prob(*batch))
    torch.manual_seed(0)
    first, second = dropping.train().log_prob(*batch), dropping.log_prob(*batch)
    assert (first - second).abs().max() > 1e-3
    assert torch.equal(dropping.eval().log_prob(*batch), plain.log_prob(*batch))


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_parameter_learns_and_the_padding_embedding_does_not(shape: str, dropout: float) -> None:
    model = ssnt(shape, seed=14, dropout=dropout).train()
    torch.manual_seed(0)
    model.log_prob(*pairs(INPUTS, OUTPUTS)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name
    assert (model.encoder.embedding.weight.grad[PAD] == 0).all()
    assert (model.decoder.embedding.weight.grad[PAD] == 0).all()


@pytest.mark.parametrize("shape", LM_SHAPES)
def test_every_parameter_of_the_language_model_learns(shape: str) -> None:
    model = language_model(shape, seed=14).train()
    model.log_prob(*padded(OUTPUTS)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name
    assert (model.decoder.embedding.weight.grad[PAD] == 0).all()


def test_embedding_size_is_the_hidden_size_unless_said() -> None:
    assert SSNT(8, 7, 6).encoder.embedding.weight.shape == (8, 6)
    assert SSNT(8, 7, 6).decoder.embedding.weight.shape == (7, 6)
    assert SSNT(8, 7, 6, embedding_size=3).encoder.embedding.weight.shape == (8, 3)
    assert LanguageModel(7, 6).decoder.embedding.weight.shape == (7, 6)
    assert LanguageModel(7, 6, embedding_size=3).decoder.embedding.weight.shape == (7, 3)


def test_a_few_steps_of_training_raise_the_probability() -> None:
    model = ssnt("bi", seed=15, dtype=torch.float32).train()
    batch = pairs(INPUTS, OUTPUTS)
    before = model.log_prob(*batch).sum().item()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(30):
        optimiser.zero_grad()
        (-model.log_prob(*batch).sum()).backward()
        optimiser.step()
    assert model.log_prob(*batch).sum().item() > before / 2


@pytest.mark.parametrize("shape", SHAPES)
def test_autocast_is_near_float32(shape: str) -> None:
    model = ssnt(shape, seed=16, dtype=torch.float32)
    batch = pairs(INPUTS, OUTPUTS)
    expected = model.log_prob(*batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = model.log_prob(*batch)
        score, _ = model.viterbi(*batch)
        posteriors = model.alignments(*batch)
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual, expected, rtol=0.03, atol=0.1)
    torch.testing.assert_close(score, model.viterbi(*batch)[0], rtol=0.03, atol=0.1)
    torch.testing.assert_close(posteriors.sum(1), model.alignments(*batch).sum(1), rtol=0, atol=1e-4)
    actual.sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.dtype == torch.float32, name
        assert parameter.grad.isfinite().all(), name
    assert model.input_word.weight.grad.abs().max() > 0


def test_language_model_under_autocast_is_near_float32() -> None:
    model = language_model(seed=16, dtype=torch.float32)
    expected = model.log_prob(*padded(OUTPUTS))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = model.log_prob(*padded(OUTPUTS))
        log_probs, _ = model.step(torch.tensor([BOS]), model.start(1))
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual, expected, rtol=0.03, atol=0.1)
    assert log_probs.dtype == torch.float32
    assert log_probs.exp().sum().item() == pytest.approx(1, abs=1e-5)
    actual.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("shape", ["uni", "bi"])
def test_bfloat16_weights_give_float32_probabilities(shape: str) -> None:
    model, lm = ssnt(shape, seed=16, dtype=torch.float32), language_model(seed=16, dtype=torch.float32)
    batch = pairs(INPUTS, OUTPUTS)
    expected, expected_lm = model.log_prob(*batch), lm.log_prob(*batch[2:])
    model, lm = model.bfloat16(), lm.bfloat16()
    actual, actual_lm = model.log_prob(*batch), lm.log_prob(*batch[2:])
    assert actual.dtype == actual_lm.dtype == torch.float32
    torch.testing.assert_close(actual, expected, rtol=0.03, atol=0.1)
    torch.testing.assert_close(actual_lm, expected_lm, rtol=0.03, atol=0.1)
    log_probs, _ = lm.step(torch.tensor([BOS]), lm.start(1))
    assert log_probs.exp().sum().item() == pytest.approx(1, abs=1e-5)


def test_stepping_under_autocast_is_near_float32() -> None:
    model = ssnt(seed=17, dtype=torch.float32)
    state, plain_state = model.start_inputs(2), model.start_inputs(2)
    for symbols in torch.tensor([[4, 5], [6, 4], [EOS, EOS]]):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            side, state = model.step_inputs(symbols, state)
        plain, plain_state = model.step_inputs(symbols, plain_state)
        torch.testing.assert_close(side.scores.float(), plain.scores, rtol=0.05, atol=0.05)


def test_emit_logits_are_float32_under_autocast() -> None:
    model = ssnt(seed=17, dtype=torch.float32)
    inputs, input_lengths, outputs, _ = pairs(INPUTS, OUTPUTS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        emit = model.emit_logits(model.read_inputs(inputs, input_lengths), model.read_outputs(outputs))
    assert emit.dtype == torch.float32


def test_an_empty_batch_and_lengths_of_another_type() -> None:
    model, lm = ssnt("bi"), language_model()
    batch = pairs(INPUTS, OUTPUTS)
    assert model.log_prob(*(x[:0] for x in batch)).shape == (0,)
    assert lm.log_prob(*(x[:0] for x in batch[2:])).shape == (0,)
    inputs, input_lengths, outputs, output_lengths = batch
    actual = model.log_prob(inputs, input_lengths.int(), outputs, output_lengths.int())
    assert torch.equal(actual, model.log_prob(*batch))
    assert torch.equal(lm.log_prob(outputs, output_lengths.int()), lm.log_prob(outputs, output_lengths))


# --- mistakes --------------------------------------------------------------------------------------------------------


GOOD, TWO = torch.tensor([[4, EOS], [5, EOS]]), torch.tensor([2, 2])
BAD = {
    "no EOS": (torch.tensor([[4, EOS], [5, 5]]), TWO),
    "EOS past the length": (GOOD, torch.tensor([2, 1])),
    "EOS inside": (torch.tensor([[4, EOS], [EOS, EOS]]), TWO),
    "length zero": (GOOD, torch.tensor([0, 2])),
    "length too long": (GOOD, torch.tensor([2, 3])),
    "one length for two": (GOOD, torch.tensor([2])),
    "no batch": (GOOD[0], torch.tensor([2])),
    "no positions": (GOOD[:, :0], torch.tensor([0, 0])),
}


@pytest.mark.parametrize("shape", ["uni", "bi"])
@pytest.mark.parametrize("mistake", BAD)
def test_bad_sequences_are_refused(mistake: str, shape: str) -> None:
    model = ssnt(shape)
    for method in (model.log_prob, model.viterbi, model.alignments):
        with pytest.raises(ValueError, match="input"):
            method(*BAD[mistake], GOOD, TWO)
        with pytest.raises(ValueError, match="output"):
            method(GOOD, TWO, *BAD[mistake])


@pytest.mark.parametrize("mistake", BAD)
def test_bad_sequences_are_refused_by_the_language_model(mistake: str) -> None:
    with pytest.raises(ValueError, match="output"):
        language_model().log_prob(*BAD[mistake])


@pytest.mark.parametrize("shape", ["uni", "bi"])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 2), (2, 1)])
def test_as_many_inputs_as_outputs(inputs: int, outputs: int, shape: str) -> None:
    model = ssnt(shape)
    with pytest.raises(ValueError, match=r"."):
        model.log_prob(GOOD[:inputs], TWO[:inputs], GOOD[:outputs], TWO[:outputs])


@pytest.mark.parametrize("shape", ["bi", "bi, 2 layers, small embeddings"])
def test_a_bidirectional_encoder_cannot_be_stepped(shape: str) -> None:
    model = ssnt(shape)
    with pytest.raises(ValueError, match="bidirectional"):
        model.start_inputs(1)
    with pytest.raises(ValueError, match="bidirectional"):
        model.step_inputs(torch.tensor([4]), ssnt("uni").start_inputs(1))


def test_samples_have_the_models_distribution() -> None:
    """The frequencies of short outputs are their probabilities; what did not become an output is told apart."""
    torch.manual_seed(5)
    model = SSNT(6, 6, 4, bidirectional=True).eval()
    with torch.no_grad():
        model.output_word.bias[EOS] = 1.5  # short outputs are often drawn
    x, draws = [4, 5, EOS], 40_000
    outputs, lengths = model.sample(torch.tensor([x]).expand(draws, -1), torch.full((draws,), len(x)), max_length=12)
    drawn = Counter(tuple(row[:n]) for row, n in zip(outputs.tolist(), lengths.tolist(), strict=True) if n)
    assert all(y[-1] == EOS and EOS not in y[:-1] for y in drawn)
    assert 0 < drawn.total() < draws, "some end before the input was read"
    short = [(EOS,), *((a, EOS) for a in range(6) if a != EOS), (4, 5, EOS), (5, 5, EOS)]
    for y in short:
        arguments = torch.tensor([x]), torch.tensor([len(x)]), torch.tensor([y]), torch.tensor([len(y)])
        p = model.log_prob(*arguments).exp().item()
        assert drawn[y] / draws == pytest.approx(p, abs=4 * (p / draws) ** 0.5 + 1e-4), y
