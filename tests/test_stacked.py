"""Many models as one: what each would have computed alone, in value and in gradient."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from interpreter import DEVICE, MARKS, interpreted, portable_is_portable  # noqa: F401 (used by every test)
from noisychannel.ids import EOS, PAD
from noisychannel.models import SSNT, LanguageModel, Seq2Seq
from noisychannel.models import stacked as stacked_module
from noisychannel.models.masks import Masks
from noisychannel.models.stacked import StackedLSTM, share_weights, stack, unsupported

with interpreted():
    from noisychannel.kernels import lstm as fused

pytestmark = MARKS

MAKERS: dict[str, Callable[[int], nn.Module]] = {
    "ssnt": lambda V: SSNT(V, V + 1, 5),
    "bidirectional ssnt": lambda V: SSNT(V, V, 5, bidirectional=True, embedding_size=3),
    "deep ssnt": lambda V: SSNT(V, V, 4, bidirectional=True, num_layers=2),
    "lm": lambda V: LanguageModel(V, 6),
    "seq2seq": lambda V: Seq2Seq(V, V, 4, attention=False),
    "attention": lambda V: Seq2Seq(V, V, 4, num_layers=2),
}


def random_ids(rng: random.Random, rows: int, longest: int, symbols: int) -> tuple[Tensor, Tensor]:
    lengths = [rng.randint(1, longest) for _ in range(rows)]
    ids = torch.full((rows, longest), PAD)
    for row, length in zip(ids, lengths, strict=True):
        row[: length - 1] = torch.tensor([rng.randrange(4, symbols) for _ in range(length - 1)], dtype=torch.long)
        row[length - 1] = EOS
    return ids, torch.tensor(lengths)


def batch(name: str, rng: random.Random, symbols: int) -> tuple[Tensor, ...]:
    inputs, outputs = random_ids(rng, 3, 5, symbols), random_ids(rng, 3, 7, symbols)
    return tuple(x.to(DEVICE) for x in (outputs if name == "lm" else (*inputs, *outputs)))


@pytest.mark.parametrize("name", MAKERS)
def test_values_and_gradients_are_those_of_each_alone(name: str) -> None:
    torch.manual_seed(1)
    rng = random.Random(1)
    sizes = (9, 12, 7)
    models = [MAKERS[name](V).double().to(DEVICE) for V in sizes]
    batches = [batch(name, rng, V) for V in sizes]
    expected = [model(*arguments) for model, arguments in zip(models, batches, strict=True)]
    weights = torch.linspace(-1, 2, 9, dtype=torch.float64, device=DEVICE)
    (torch.cat(expected) * weights).sum().backward()
    gradients = [{name: p.grad.clone() for name, p in model.named_parameters()} for model in models]

    whole = stack(models, Masks(len(models), DEVICE))
    share_weights(whole, models)
    value = whole(*(torch.cat(parts) for parts in zip(*batches, strict=True)))
    torch.testing.assert_close(value, torch.cat(expected))
    (value * weights).sum().backward()
    for model, alone in zip(models, gradients, strict=True):
        for parameter, gradient in alone.items():
            torch.testing.assert_close(model.get_parameter(parameter).grad, gradient, msg=parameter)


def test_symbols_that_only_fill_up_never_change() -> None:
    torch.manual_seed(2)
    models = [SSNT(5, 5, 4), SSNT(9, 9, 4)]
    whole = stack(models, Masks(len(models), DEVICE))
    optimiser = torch.optim.Adam(whole.parameters(), lr=0.1)
    rng = random.Random(2)
    for _ in range(3):
        parts = [batch("ssnt", rng, 5), batch("ssnt", rng, 9)]
        (-whole.cpu()(*(torch.cat([x.cpu() for x in part]) for part in zip(*parts, strict=True))).sum()).backward()
        optimiser.step()
        optimiser.zero_grad()
    assert (whole.output_word.bias[0, 5:] == -torch.inf).all()
    assert (whole.output_word.weight[0, 5:] == 0).all()
    assert all(torch.isfinite(p[1]).all() for p in whole.parameters())


def test_changes_of_the_stack_are_changes_of_its_models() -> None:
    models = [LanguageModel(6, 4), LanguageModel(8, 4)]
    before = [{name: p.detach().clone() for name, p in model.named_parameters()} for model in models]
    whole = stack(models, Masks(len(models), DEVICE))
    share_weights(whole, models)
    with torch.no_grad():
        for parameter in whole.parameters():
            parameter += 1
            parameter.grad += 2
    for model, old in zip(models, before, strict=True):
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(parameter.detach(), old[name] + 1)
            assert (parameter.grad == 2).all()


def test_lstm_starts_from_given_states_and_returns_the_last() -> None:
    torch.manual_seed(3)
    lstms = [nn.LSTM(3, 4, num_layers=2, batch_first=True).double() for _ in range(2)]
    x = torch.randn(6, 5, 3, dtype=torch.float64)
    hidden, cell = torch.randn(2, 2, 6, 4, dtype=torch.float64)
    start = hidden.requires_grad_(), cell.requires_grad_()
    states, last = StackedLSTM(lstms, Masks(2))(x, start)
    ours = torch.autograd.grad(states.square().sum() + last[0].sum() + last[1].sin().sum(), start)
    theirs = []
    total = torch.zeros((), dtype=torch.float64)
    for n, lstm in enumerate(lstms):
        rows = slice(3 * n, 3 * n + 3)
        expected, after = lstm(x[rows], (hidden[:, rows].contiguous(), cell[:, rows].contiguous()))
        torch.testing.assert_close(states[rows], expected)
        torch.testing.assert_close(last[0][:, rows], after[0])
        torch.testing.assert_close(last[1][:, rows], after[1])
        total = total + expected.square().sum() + after[0].sum() + after[1].sin().sum()
    theirs = torch.autograd.grad(total, start)
    torch.testing.assert_close(ours, theirs)


def test_dropout_falls_between_layers_in_training_only() -> None:
    masks = Masks(2)
    lstm = StackedLSTM([nn.LSTM(3, 4, num_layers=2, batch_first=True, dropout=0.5) for _ in range(2)], masks)
    x = torch.randn(4, 5, 3)
    first = lstm(x)[0]
    masks.seeds_N += 1
    masks.begin()
    assert not torch.equal(first, lstm(x)[0])
    lstm.eval()
    assert torch.equal(lstm(x)[0], lstm(x)[0])


@pytest.mark.parametrize(("N", "B", "H"), [(1, 1, 1), (2, 3, 5), (3, 2, 130)])
def test_kernels_are_the_portable_steps(N: int, B: int, H: int) -> None:
    torch.manual_seed(4)
    T = 2  # the kernels see slices of a longer run
    make = [torch.randn(N, T, B, size, device=DEVICE) for size in (4 * H, H, H, H, H, H, 4 * H)]
    runs = []
    for step, back in ((stacked_module._step, stacked_module._back), (fused.step, fused.back)):
        g, c, h, a, dh, dc, dg = (x.clone()[:, 1] for x in make)
        step(g, c, h, a)
        back(g, c, a, dh, dc, dg)
        runs.append((g, h, a, dc, dg))
    torch.testing.assert_close(runs[1], runs[0], rtol=1e-5, atol=1e-6)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.scale = nn.Linear(2, 2), nn.Parameter(torch.ones(2))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Embedding(3, 2), nn.Linear(2, 3)
        self.two.weight = self.one.weight


@pytest.mark.parametrize("name", MAKERS)
def test_our_models_are_supported(name: str) -> None:
    assert unsupported(MAKERS[name](8)) is None


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (Scaled, "the layer Scaled is not supported"),
        (Tied, "layers of Tied share a parameter"),
        (lambda: nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)), "the layer LayerNorm is not supported"),
        (lambda: nn.Sequential(nn.BatchNorm1d(2, affine=False)), "the layer BatchNorm1d is not supported"),
        (lambda: nn.Sequential(nn.AlphaDropout(0.1)), "the layer AlphaDropout is not supported"),
        (lambda: nn.Sequential(nn.LSTM(2, 2)), "this kind of LSTM is not supported"),
        (lambda: nn.LSTM(2, 2, batch_first=True, bidirectional=True), "this kind of LSTM is not supported"),
    ],
)
def test_other_layers_are_named(make: Callable[[], nn.Module], reason: str) -> None:
    assert unsupported(make()) == reason
    if "share" not in reason:
        with pytest.raises(ValueError, match=f"cannot stack: {reason}"):
            stack([make(), make()], Masks(2))


def test_layers_without_weights_are_kept() -> None:
    models = [nn.Sequential(nn.Linear(2, 2), nn.Tanh()) for _ in range(2)]
    assert unsupported(models[0]) is None
    x = torch.randn(4, 2)
    expected = torch.cat([models[0](x[:2]), models[1](x[2:])])
    torch.testing.assert_close(stack(models, Masks(2))(x), expected)
