"""The sequence-to-sequence baselines, against sums over all outputs and against their equations written out."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from noisychannel.ids import BOS, EOS, PAD
from noisychannel.models.seq2seq import Seq2Seq

KINDS = [
    pytest.param({"attention": attention, "bidirectional": bidirectional, "num_layers": layers}, id=name)
    for attention, bidirectional, layers, name in [
        (False, False, 1, "plain-uni"),
        (False, True, 1, "plain-bi"),
        (False, True, 2, "plain-bi-2"),
        (True, False, 1, "attention-uni"),
        (True, True, 1, "attention-bi"),
        (True, True, 2, "attention-bi-2"),
    ]
]
INPUTS = [[4, 5, 6, 4, EOS], [6, EOS], [EOS], [5, 5, 4, EOS]]
OUTPUTS = [[4, 3, EOS], [5, 4, 4, 5, 3, EOS], [4, 4, EOS], [EOS]]


def model_of(kind: dict[str, object], seed: int = 0, output_vocab_size: int = 6, **more: object) -> Seq2Seq:
    """A random model in float64, with weights far enough from zero that everything it computes matters."""
    torch.manual_seed(seed)
    model = Seq2Seq(7, output_vocab_size, 5, embedding_size=3, **kind, **more).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return model


def padded(rows: list[list[int]], extra: int = 0) -> tuple[Tensor, Tensor]:
    ids = pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)
    return torch.nn.functional.pad(ids, (0, extra), value=PAD), torch.tensor([len(row) for row in rows])


def log_probs(model: Seq2Seq, inputs: list[list[int]], outputs: list[list[int]], extra: int = 0) -> Tensor:
    return model.log_prob(*padded(inputs, extra), *padded(outputs, extra))


def stepped(model: Seq2Seq, inputs: list[list[int]], symbols: list[list[int]]) -> Tensor:
    """log p of equally long (unfinished) outputs, by steps."""
    state = model.start(*padded(inputs))
    total = torch.zeros(len(inputs), dtype=torch.float64)
    for before, symbol in itertools.pairwise(torch.tensor([[BOS, *row] for row in symbols]).unbind(1)):
        log_prob, state = model.step(before, state)
        total = total + log_prob.gather(1, symbol[:, None]).squeeze(1)
    return total


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_of_all_outputs_and_what_has_not_ended_sum_to_one(kind: dict[str, object]) -> None:
    V, longest = 5, 3
    model = model_of(kind, output_vocab_size=V)
    others = [symbol for symbol in range(V) if symbol != EOS]
    ended = [[*row, EOS] for n in range(longest) for row in itertools.product(others, repeat=n)]
    unended = [list(row) for row in itertools.product(others, repeat=longest)]
    for u in INPUTS:
        mass_ended = log_probs(model, [u] * len(ended), ended).exp().sum().item()
        mass_unended = stepped(model, [u] * len(unended), unended).exp().sum().item()
        assert mass_ended + mass_unended == pytest.approx(1.0, abs=1e-12)
        assert 0.001 < mass_ended < 0.999


def lstm_cell(x: Tensor, hidden: Tensor, cell: Tensor, lstm: torch.nn.LSTM, layer: int) -> tuple[Tensor, Tensor]:
    w_x, w_h = getattr(lstm, f"weight_ih_l{layer}"), getattr(lstm, f"weight_hh_l{layer}")
    b_x, b_h = getattr(lstm, f"bias_ih_l{layer}"), getattr(lstm, f"bias_hh_l{layer}")
    i, f, g, o = (w_x @ x + b_x + w_h @ hidden + b_h).chunk(4)
    cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


class ByHand(NamedTuple):
    """What the equations of the module's docstring give for one pair."""

    log_prob: Tensor
    looks: list[int]
    """The input position with the highest energy before each output symbol; none without attention."""


def by_the_equations(model: Seq2Seq, u: list[int], v: list[int]) -> ByHand:
    """One vector at a time."""
    H, L = model.decoder.hidden_size, model.decoder.num_layers
    if model.bidirectional:
        h = model.encoder(torch.tensor([u]), torch.tensor([len(u)]))[0]
        summary = torch.cat([h[-1][:H], h[0][H:]])
    else:
        h = model.encoder(torch.tensor([u]))[0]
        summary = h[-1]
    first = (model.bridge.weight @ summary + model.bridge.bias).tanh().view(2 * L, H)
    hidden, cell = list(first[:L]), list(first[L:])
    total, looks = torch.zeros((), dtype=torch.float64), []
    for before, symbol in itertools.pairwise([BOS, *v]):
        x, context = model.embedding.weight[before], torch.empty(0, dtype=torch.float64)
        if model.attention is not None:
            query = model.attention.query.weight @ hidden[-1] + model.attention.query.bias
            energy = [model.attention.energy.weight[0] @ (query + model.attention.key.weight @ h_i).tanh() for h_i in h]
            looks.append(int(torch.stack(energy).argmax()))
            context = sum(w * h_i for w, h_i in zip(torch.stack(energy).softmax(0), h, strict=True))
        x = torch.cat([x, context])
        for layer in range(L):
            hidden[layer], cell[layer] = lstm_cell(x, hidden[layer], cell[layer], model.decoder, layer)
            x = hidden[layer]
        logits = model.word.weight @ torch.cat([x, context]) + model.word.bias
        total = total + logits[symbol] - logits.exp().sum().log()
    return ByHand(total, looks)


@pytest.mark.parametrize("kind", KINDS)
def test_log_prob_follows_the_equations(kind: dict[str, object]) -> None:
    model = model_of(kind, seed=1)
    expected = [by_the_equations(model, u, v) for u, v in zip(INPUTS, OUTPUTS, strict=True)]
    by_hand = torch.stack([each.log_prob for each in expected])
    torch.testing.assert_close(log_probs(model, INPUTS, OUTPUTS), by_hand, rtol=0, atol=1e-10)
    if not model.attends:
        with pytest.raises(ValueError, match="without attention"):
            model.attended(*padded(INPUTS), *padded(OUTPUTS))
        return
    attended = model.attended(*padded(INPUTS), *padded(OUTPUTS)).tolist()
    assert [[i for i in row if i >= 0] for row in attended] == [each.looks for each in expected]
    assert len({i for each in expected for i in each.looks}) > 1, "otherwise a constant would pass"


@pytest.mark.parametrize("kind", KINDS)
def test_steps_add_up_to_log_prob(kind: dict[str, object]) -> None:
    model = model_of(kind, seed=2)
    outputs = [[4, 3, 5, EOS], [5, 4, 4, EOS], [3, 3, 3, EOS], [5, 5, 4, EOS]]
    torch.testing.assert_close(stepped(model, INPUTS, outputs), log_probs(model, INPUTS, outputs), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_selected_states_go_on_as_the_originals_would(kind: dict[str, object]) -> None:
    model = model_of(kind, seed=3)
    _, state = model.step(torch.tensor([BOS] * 4), model.start(*padded(INPUTS)))
    chosen, symbols = torch.tensor([3, 1, 1, 0, 2]), torch.tensor([4, 5, 3, 4, 5])
    got, got_state = model.step(symbols, state.select(chosen))
    for n, (row, symbol) in enumerate(zip(chosen.tolist(), symbols.tolist(), strict=True)):
        _, alone = model.step(torch.tensor([BOS]), model.start(*padded([INPUTS[row]])))
        expected, alone = model.step(torch.tensor([symbol]), alone)
        torch.testing.assert_close(got[n], expected[0], rtol=0, atol=1e-12)
        torch.testing.assert_close(got_state.decoder.cell_LNH[:, n], alone.decoder.cell_LNH[:, 0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_the_batch_and_its_order_change_nothing(kind: dict[str, object]) -> None:
    model = model_of(kind, seed=4)
    together = log_probs(model, INPUTS, OUTPUTS)
    alone = torch.cat([log_probs(model, [u], [v]) for u, v in zip(INPUTS, OUTPUTS, strict=True)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-12)
    torch.testing.assert_close(together, log_probs(model, INPUTS, OUTPUTS, extra=3), rtol=0, atol=1e-12)
    torch.testing.assert_close(together.flip(0), log_probs(model, INPUTS[::-1], OUTPUTS[::-1]), rtol=0, atol=1e-12)

    inputs, input_lengths = padded(INPUTS)
    outputs, output_lengths = padded(OUTPUTS)
    rubbish_in, rubbish_out = inputs.clone(), outputs.clone()
    for b in range(len(INPUTS)):
        rubbish_in[b, input_lengths[b] :] = 5
        rubbish_out[b, output_lengths[b] :] = 4
    rubbish = model.log_prob(rubbish_in, input_lengths, rubbish_out, output_lengths)
    torch.testing.assert_close(together, rubbish, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_learns_and_padding_does_not(kind: dict[str, object]) -> None:
    model = model_of(kind, seed=5)
    log_probs(model, INPUTS, OUTPUTS, extra=2).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 1e-6, name
    used_in, used_out = [EOS, 4, 5, 6], [BOS, 3, 4, 5]  # an output's EOS is said, never read
    for embedding, used in ((model.encoder.embedding, used_in), (model.embedding, used_out)):
        learning = embedding.weight.grad.abs().sum(1) > 0
        assert learning.nonzero().squeeze(1).tolist() == sorted(used)


@pytest.mark.parametrize("attention", [False, True])
def test_the_gradient_is_that_of_finite_differences(attention: bool) -> None:
    model = model_of({"attention": attention, "bidirectional": True}, seed=6)
    log_probs(model, INPUTS, OUTPUTS).sum().backward()
    direction = {name: torch.randn_like(p) for name, p in model.named_parameters()}
    slope = sum((p.grad * direction[name]).sum().item() for name, p in model.named_parameters())
    around = []
    for sign in (1, -1):
        with torch.no_grad():
            moved = {name: p + sign * 1e-6 * direction[name] for name, p in model.named_parameters()}
            arguments = (*padded(INPUTS), *padded(OUTPUTS))
            around.append(torch.func.functional_call(model, moved, arguments).sum().item())
    assert (around[0] - around[1]) / 2e-6 == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_is_random_in_training_and_absent_in_evaluation(kind: dict[str, object]) -> None:
    model, without = model_of(kind, seed=7, dropout=0.5), model_of(kind, seed=7)
    draws = torch.stack([log_probs(model, INPUTS, OUTPUTS) for _ in range(3)])
    assert (draws.std(0) > 1e-3).all()
    torch.testing.assert_close(
        log_probs(model.eval(), INPUTS, OUTPUTS), log_probs(without, INPUTS, OUTPUTS), rtol=0, atol=0
    )


@pytest.mark.parametrize("attention", [False, True])
def test_only_attention_still_sees_the_input_after_the_start(attention: bool) -> None:
    model = model_of({"attention": attention, "bidirectional": True})
    here, elsewhere = model.start(*padded([[4, 5, EOS]])), model.start(*padded([[6, 4, EOS]]))
    blend = elsewhere._replace(decoder=here.decoder)
    difference = model.step(torch.tensor([BOS]), here)[0] - model.step(torch.tensor([BOS]), blend)[0]
    assert (difference.abs().max().item() > 1e-3) == attention


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ([[4, 5]], [[4, EOS]], r"inputs\[0\] must end in its only EOS"),
        ([[4, EOS], [4, EOS]], [[4, EOS], [4, 4]], r"outputs\[1\] must end in its only EOS"),
        ([[EOS, 4, EOS]], [[EOS]], r"inputs\[0\] must end in its only EOS \(id 2\)"),
    ],
)
def test_a_sequence_without_its_eos_is_refused(inputs: list[list[int]], outputs: list[list[int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        log_probs(model_of({}), inputs, outputs)
