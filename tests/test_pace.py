"""An even pace: what the first updates of a training can keep instead of learning when to read and when to write."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from noisychannel import SSNT, lattice
from noisychannel.ids import EOS, PAD
from noisychannel.models.masks import Masks
from noisychannel.models.ssnt import Pace, set_pace
from noisychannel.models.stacked import stack

INPUTS = torch.tensor([[4, 5, 6, EOS], [6, EOS, PAD, PAD]])
OUTPUTS = torch.tensor([[5, EOS, PAD], [4, 6, EOS]])
LENGTHS = torch.tensor([4, 2]), torch.tensor([2, 3])


def paced(seed: int = 0) -> SSNT:
    torch.manual_seed(seed)
    model = SSNT(7, 7, 6, bidirectional=True)
    model.pace = Pace()
    return model


def log_prob(model: SSNT) -> Tensor:
    return model(INPUTS, LENGTHS[0], OUTPUTS, LENGTHS[1])


def test_a_held_model_emits_as_often_as_the_pair_says_and_does_not_learn_when() -> None:
    model = paced()
    set_pace(model, [True])
    words, _ = model._lattice(INPUTS, LENGTHS[0], OUTPUTS)
    even = torch.stack([torch.full((4, 3), math.log(2 / 4)), torch.full((4, 3), math.log(3 / 2))])
    expected = lattice.log_marginal(words, even, *LENGTHS)
    found = log_prob(model)
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    for name, parameter in model.named_parameters():
        of_gate = name.startswith(("emit.", "input_gate.", "output_gate."))
        assert parameter.grad is not None
        assert bool(parameter.grad.abs().sum() == 0) == of_gate, name


def test_the_model_is_its_own_when_it_is_not_held_or_not_trained() -> None:
    model, plain = paced(), paced()
    plain.pace = None
    expected = log_prob(plain)
    assert torch.equal(log_prob(model), expected)
    set_pace(model, [True])
    assert not torch.equal(log_prob(model), expected)
    assert torch.equal(log_prob(model.eval()), expected), "evaluations and searches are those of the model"
    set_pace(model, [False])
    assert torch.equal(log_prob(model.train()), expected)
    assert model.state_dict().keys() == plain.state_dict().keys(), "a stored model does not know how it was trained"


def test_models_of_a_stack_are_held_one_by_one() -> None:
    models = [paced(seed) for seed in range(3)]
    stacked = stack(models, Masks(3, torch.device("cpu")))
    for held in ([True, False, True], [False, False, True], [False] * 3):
        set_pace(stacked, held)
        for model, one in zip(models, held, strict=True):
            set_pace(model, [one])
        together = stacked(INPUTS.repeat(3, 1), LENGTHS[0].repeat(3), OUTPUTS.repeat(3, 1), LENGTHS[1].repeat(3))
        torch.testing.assert_close(together, torch.cat([log_prob(model) for model in models]))
