"""Scores of the next symbol that are computed late: a search finds the same as one that computes them all."""

from __future__ import annotations

import pytest
import torch

from noisychannel import SSNT, Hypothesis, LanguageModel, NoisyChannelDecoder, Weights
from noisychannel.decode import chart, next_words
from noisychannel.decode.lateness import LARGE
from noisychannel.decode.proposals import LISTED
from noisychannel.decode.settings import Alignments
from noisychannel.ids import BOS, EOS

V = LARGE
"""The smallest vocabulary that is not scored whole."""
INPUTS = [[5, 6, 7, 8, 9, EOS], [10, 11, EOS], [12, 13, 14, 15, EOS], [EOS]]
FULL = Weights(1.0, 0.6, 0.5, 3.0)


def models(scale: float) -> dict[str, torch.nn.Module]:
    """``scale``: of the scores of words; 1 for nearly uniform distributions."""
    torch.manual_seed(3)
    copies = [-1] * 4 + list(range(4, 20)) + [-1] * (V - 20)
    found = {
        "direct": SSNT(V, V, 12, bidirectional=True, copies=copies, copy_start=2.0),
        "channel": SSNT(V, V, 12, copies=copies, copy_start=2.0),
        "lm": LanguageModel(V, 12, 1),
    }
    with torch.no_grad():
        for model in found.values():
            for name, parameter in model.named_parameters():
                if "word" in name:
                    parameter.mul_(scale)
        # Else hardly any output ends.
        found["direct"].output_word.bias[EOS] += 6.0  # type: ignore[union-attr, operator, index]
    return dict(found)


def found_by(decoder: NoisyChannelDecoder, n_best: int = 4) -> list[list[Hypothesis]]:
    return decoder.decode(INPUTS, n_best)


@pytest.mark.parametrize(
    "weights", [FULL, Weights(length=9.0), Weights(0.0, 1.0, 0.3, 2.0)], ids=["full", "direct", "nc"]
)
@pytest.mark.parametrize(("scale", "search"), [(1.0, "viterbi"), (12.0, "viterbi"), (4.0, "marginal")])
def test_late_scores_change_nothing(
    weights: Weights, scale: float, search: Alignments, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs and scores are the same to the last bit."""
    decoder = NoisyChannelDecoder(**models(scale), weights=weights, k1=6, k2=3, max_length=7, search=search)
    late = found_by(decoder)
    monkeypatch.setattr(chart, "scores_late", lambda *_: False)
    assert late == found_by(decoder)
    assert any(hypothesis.complete for best in late for hypothesis in best)


def test_few_prefixes_are_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    """With peaked distributions most prefixes of a table are never projected to the vocabulary."""
    rows: list[tuple[int, int]] = []

    def counted(model, plan, sentences, table, *rest):  # type: ignore[no-untyped-def]
        words = next_words.next_words(model, plan, sentences, table, *rest)
        if words.chosen is not None:
            rows.append((len(words.chosen.row), len(table.packing.slot)))
        return words

    monkeypatch.setattr(chart, "next_words", counted)
    found_by(NoisyChannelDecoder(**models(12.0), weights=FULL, k1=6, k2=3, max_length=7))
    scored, prefixes = (sum(column) for column in zip(*rows, strict=True))
    assert 0 < scored < 0.6 * prefixes


def test_more_proposals_than_listed_symbols(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then one prefix gives no bound, and all are scored."""
    wide = {"k1": LISTED + 20, "k2": 4, "max_length": 3}
    decoder = NoisyChannelDecoder(**models(4.0), weights=FULL, **wide)  # type: ignore[arg-type]
    late = found_by(decoder)
    monkeypatch.setattr(chart, "scores_late", lambda *_: False)
    assert late == found_by(decoder)


@pytest.mark.parametrize("products", ["tf32", "bf16"])
def test_scores_are_exact_whatever_the_search_used(products: str) -> None:
    """The scores of what a search in lower precision found are those of the models, and so is the order."""
    decoder = NoisyChannelDecoder(**models(4.0), weights=FULL, k1=6, k2=3, max_length=7, products=products)
    found = found_by(decoder)
    again = decoder.score(INPUTS, [[hypothesis.tokens for hypothesis in best] for best in found])
    assert found == again
    for best in found:
        assert all(hypothesis.complete for hypothesis in best)
        assert [h.score for h in best] == sorted((h.score for h in best), reverse=True)


def test_bfloat16_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The networks of the search give bfloat16; those that score again do not."""
    seen: set[torch.dtype] = set()
    direct = models(1.0)["direct"]
    before = direct.output_scores

    def watched(states: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = before(states)
        seen.add(scores.dtype)
        return scores

    monkeypatch.setattr(direct, "output_scores", watched)
    NoisyChannelDecoder(direct, k1=6, k2=3, max_length=4, products="bf16").decode(INPUTS)
    assert seen == {torch.bfloat16, torch.float32}


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(ValueError, match="products must be ieee, tf32 or bf16, but is 'fp8'"):
        NoisyChannelDecoder(models(1.0)["direct"], products="fp8")  # type: ignore[arg-type]


def test_a_short_sentence_of_a_batch_finds_what_it_finds_alone() -> None:
    """Its padding reaches nothing. The best next symbol follows the second best first symbol."""
    torch.manual_seed(0)
    direct = SSNT(V, V, 8, bidirectional=True).eval()
    first, second, distracting = 10, 11, [20, 21]
    with torch.no_grad():
        start, state = direct.decoder.step(torch.tensor([BOS]), direct.start_outputs(1))
        after = [direct.decoder.step(torch.tensor([symbol]), state)[0][0] for symbol in (first, second)]
        wanted = torch.zeros(3, V)
        wanted[0, first], wanted[0, second], wanted[2, EOS] = 20.0, 18.5, 30.0
        wanted[1, distracting] = -10.0
        direct.output_word.weight.copy_((torch.linalg.pinv(torch.stack([start[0], *after])) @ wanted).T)
        direct.output_word.bias.zero_()
        seen = direct.encoder(torch.tensor([[EOS]]), torch.tensor([1]))[0, 0]
        direct.input_word.weight.zero_()
        direct.input_word.weight[distracting] = 10.0 * seen / seen.dot(seen)
    decoder = NoisyChannelDecoder(direct, k1=2, k2=2, max_length=4)
    (alone,) = decoder.decode([[EOS]], 2)
    beside, _ = decoder.decode([[EOS], [5, 6, 7, 8, EOS]], 2)
    assert alone[0].tokens == (second,)
    assert [h.tokens for h in beside] == [h.tokens for h in alone]
    assert [h.score for h in beside] == pytest.approx([h.score for h in alone], abs=1e-5)
