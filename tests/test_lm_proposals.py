"""Proposals by the language model: they add outputs to the search, and change nothing where all are there already."""

from __future__ import annotations

import pytest
import torch

from noisychannel import SSNT, Hypothesis, LanguageModel, NoisyChannelDecoder, Weights

INPUTS = [[2], [4, 2], [5, 3, 4, 2]]
WEIGHTS = Weights(direct=0.7, channel=0.5, lm=0.9, length=0.2)


def random_models(seed: int) -> tuple[SSNT, SSNT, LanguageModel]:
    torch.manual_seed(seed)
    models = SSNT(6, 7, 6), SSNT(7, 6, 6), LanguageModel(7, 6, num_layers=1)
    for model in models:
        for parameter in model.double().parameters():
            parameter.data.mul_(3)
    return models


def decode(seed: int, k: int, lm_proposals: int) -> list[list[Hypothesis]]:
    decoder = NoisyChannelDecoder(
        *random_models(seed), weights=WEIGHTS, k1=k, k2=k, max_length=4, lm_proposals=lm_proposals
    )
    return decoder.decode(INPUTS, n_best=3)


@pytest.mark.parametrize("seed", range(5))
def test_nothing_changes_where_everything_is_proposed_already(seed: int) -> None:
    # A proposal that came twice would take two of the k2 places, and with k2 = k1 = all of them it would show.
    without, with_lm = decode(seed, 60, 0), decode(seed, 60, 10)
    assert [[h.tokens for h in best] for best in with_lm] == [[h.tokens for h in best] for best in without]


@torch.no_grad()
def test_the_language_model_brings_in_better_outputs_and_scores_stay_exact() -> None:
    gained = 0
    for seed in range(20):
        direct, channel, lm = random_models(seed)
        for x, without, with_lm in zip(INPUTS, decode(seed, 2, 0), decode(seed, 2, 4), strict=True):
            if with_lm[0].complete and (not without[0].complete or with_lm[0].score > without[0].score + 1e-9):
                gained += 1
            for h in with_lm:
                if h.complete:
                    y = torch.tensor([[*h.tokens, 2]])
                    lengths = torch.tensor([len(x)]), torch.tensor([h.length])
                    assert h.direct == pytest.approx(
                        float(direct.viterbi(torch.tensor([x]), lengths[0], y, lengths[1])[0])
                    )
                    assert h.channel == pytest.approx(
                        float(channel.log_prob(y, lengths[1], torch.tensor([x]), lengths[0]))
                    )
                    assert h.lm == pytest.approx(float(lm.log_prob(y, lengths[1])))
    assert gained >= 5, "with beams this narrow the language model's own proposals must help now and then"


def test_they_need_a_language_model() -> None:
    direct, _, _ = random_models(0)
    with pytest.raises(ValueError, match=r"lm_proposals is 3, but no language model \(lm\) is given"):
        NoisyChannelDecoder(direct, lm_proposals=3)
