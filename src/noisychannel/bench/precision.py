"""What a rougher search brings, and what it changes: one row for each kind of ``products``, or of ``channel_words``.

A search in TF32 or bfloat16, or with a channel whose softmax runs over some words, scores its outputs again, exactly.
So three questions matter: how many best outputs are others than those of the exact search, by how much the search's own
scores were wrong, and how much worse the outputs are, by their exact scores. EOS gets a higher score than random
weights give it, so that outputs end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from noisychannel import NoisyChannelDecoder
from noisychannel.bench.timing import median_seconds
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.terms import Ids
from noisychannel.precision import SearchProducts

HEADER = (
    "| setting | batch | system | {} | sentences/s | other outputs | largest error of a score "
    "| largest loss of an output |\n| --- | ---: | --- | --- | ---: | ---: | ---: | ---: |"
)


class AsSearched(NoisyChannelDecoder):
    """Keeps the scores of the search, however rough they are."""

    def exact(
        self, inputs: Sequence[Ids], contexts: Sequence[Ids], found: Sequence[Sequence[Hypothesis]]
    ) -> list[list[Hypothesis]]:
        return [list(best) for best in found]


def rows(
    name: str, system: str, decoder: NoisyChannelDecoder, inputs: list[list[int]], rounds: int, rough: SearchProducts
) -> Iterator[str]:
    """Two precisions, run in turn; outputs are compared with those of ieee."""
    kinds: dict[str, NoisyChannelDecoder] = {
        products: decoder.reweighted(decoder.weights, decoder.settings.changed(products=products))
        for products in dict.fromkeys(("ieee", rough))
    }
    yield from compared(name, system, kinds, inputs, rounds)


def channel_word_rows(
    name: str,
    decoder: NoisyChannelDecoder,
    inputs: list[list[int]],
    rounds: int,
    counts: Sequence[int] = (2000, 500, 0),
) -> Iterator[str]:
    """The whole softmax of the channel, and the input's own words with some numbers of frequent ones."""
    kinds = {"all": decoder} | {
        f"own and {count:,}": decoder.reweighted(decoder.weights, decoder.settings.changed(channel_words=count))
        for count in counts
    }
    yield from compared(name, "full", kinds, inputs, rounds)


def compared(
    name: str, system: str, kinds: Mapping[str, NoisyChannelDecoder], inputs: list[list[int]], rounds: int
) -> Iterator[str]:
    """One row for each kind of search; outputs are compared with those of the first."""
    seconds = median_seconds({kind: _decoding(each, inputs) for kind, each in kinds.items()}, rounds)
    expected: list[Hypothesis] = []
    for kind, each in kinds.items():
        found = [best[0] for best in _as_searched(each).decode(inputs, align=False)]
        expected = expected or found
        others = sum(one.tokens != other.tokens for one, other in zip(found, expected, strict=True))
        # A partial output has no score but the search's.
        again = each.score(inputs, [[one.tokens] for one in found], align=False)
        whole = [(one, exact[0]) for one, exact in zip(found, again, strict=True) if one.complete]
        error = max((abs(one.score - exact.score) for one, exact in whole), default=0.0)
        losses = [other.score - exact[0].score for other, exact in zip(expected, again, strict=True) if other.complete]
        partial = f" ({len(found) - len(whole)} partial)" if len(whole) < len(found) else ""
        yield (
            f"| {name} | {len(inputs)} | {system} | {kind} | {len(inputs) / seconds[kind]:.3g} "
            f"| {others} of {len(found)}{partial} | {error:.1e} | {max(0.0, *losses, 0.0):.1e} |"
        )


def _as_searched(decoder: NoisyChannelDecoder) -> NoisyChannelDecoder:
    return AsSearched(decoder._direct, decoder._channel, decoder._lm, decoder.weights, settings=decoder.settings)


def _decoding(decoder: NoisyChannelDecoder, inputs: list[list[int]]) -> Callable[[], object]:
    return lambda: decoder.decode(inputs, align=False)
