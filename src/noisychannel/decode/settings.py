"""How to search: every setting of the decoder, checked in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any, Literal, TypedDict, get_args

from noisychannel.arguments import Bounds, Count, CountOrZero, check_bounds
from noisychannel.precision import SearchProducts

Alignments = Literal["viterbi", "marginal"]
"""Score by the best alignment, or by the sum over all alignments."""


class SearchKeywords(TypedDict, total=False):
    """The settings as keyword arguments of the decoder."""

    k1: int
    k2: int
    max_length: int | None
    max_growth: int | None
    search: Alignments
    channel_alignment: Alignments
    look_ahead: bool | None
    lm_proposals: int
    allow_unk: bool | None
    memory: float | None
    products: SearchProducts
    per_symbol: bool
    channel_words: int | None


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """The settings of one search. The decoder, the online decoder, the reference, runs and commands all use this class.

    Args:
        k1: Proposals of the direct model for each cell.
        k2: Survivors of each cell. Beam search (attention, seq2seq, transformer) uses it as its beam size.
        max_length: Longest output in symbols, EOS included.
        max_growth: How many symbols longer than its input an output may be. If neither this nor max_length is given,
            the longest output is twice as long as its input plus ten.
        search: Whether an output is scored by the direct model's best alignment (viterbi, as in the paper) or by the
            sum over its alignments (marginal).
        channel_alignment: The same for the channel; marginal is exact, viterbi is equation (3) of the paper.
        look_ahead: Rank the extensions that are proposed for a cell by how well the channel explains the input before
            that cell from their prefixes. Without it, as in the paper, prefixes are compared as they stood in their own
            cells: those that had little of the input to explain look best, and take all places if the input is long.
            If not given, it is off, but tune and fit turn it on for inputs of words or subwords, and keep that with the
            weights.
        lm_proposals: Further proposals for each cell, by the language model. They compete for the k2 places too.
        allow_unk: Whether UNK may be proposed. If not given, the models of a run propose it if both sides are words and
            the direct model proposes: its alignment then says which input word to copy. Models without a run, which
            know no texts, do not propose it.
        memory: How much memory a search may use, in GiB, beside the models. Larger batches are searched in parts; an
            input that does not fit alone is refused. The default is half of the free memory on a GPU, and 4 GiB
            elsewhere.
        products: How exact the matrix products of a search on a GPU are: ieee, tf32 (factors rounded to ten bits) or
            bf16 (networks in bfloat16). Outputs that it has found are then scored again exactly, and ranked by that. On
            a CPU tf32 is the same as ieee.
        per_symbol: Divide each term by its own length: the channel's by that of the input, others by that of the
            output. The proposing model alone searches, and the objective ranks at least k2 of its outputs.
        channel_words: The channel's softmax in the search runs over the words of the input and this number of the most
            frequent ones, which is faster with a large vocabulary. Outputs that the search has found are then scored
            again with the whole softmax, and ranked by that. If not given, it is whole in the search, too.
    """

    k1: Count = 20
    k2: Count = 10
    max_length: Count | None = None
    max_growth: CountOrZero | None = None
    search: Alignments = "viterbi"
    channel_alignment: Alignments = "marginal"
    look_ahead: bool | None = None
    lm_proposals: CountOrZero = 0
    allow_unk: bool | None = None
    memory: Annotated[float, Bounds(above=0, most=2**20)] | None = None
    products: SearchProducts = "ieee"
    per_symbol: bool = False
    channel_words: CountOrZero | None = None

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.k2 > self.k1:
            raise ValueError(f"k1 and k2 must satisfy 1 <= k2 <= k1, but are {self.k1} and {self.k2}")
        for name in ("search", "channel_alignment"):
            if (choice := getattr(self, name)) not in get_args(Alignments):
                raise ValueError(f"{name} must be 'viterbi' or 'marginal', but is {choice!r}")
        if self.products not in get_args(SearchProducts):
            raise ValueError(f"products must be ieee, tf32 or bf16, but is {self.products!r}")
        for name in ("look_ahead", "allow_unk"):
            if (choice := getattr(self, name)) is not None and not isinstance(choice, bool):
                raise ValueError(f"{name} must be true, false or None, but is {choice!r}")
        if not isinstance(self.per_symbol, bool):
            raise ValueError(f"per_symbol must be true or false, but is {self.per_symbol!r}")

    def longest_output(self, input_length: int) -> int:
        """The longest output of an input, EOS included in both lengths."""
        if self.max_length is None and self.max_growth is None:
            return 2 * input_length + 10
        limits = [] if self.max_length is None else [self.max_length]
        return min([*limits, *([] if self.max_growth is None else [input_length + self.max_growth])])

    def changed(self, **given: Any) -> SearchSettings:
        """These settings with others in their place. If k1 or k2 is given alone, the other follows if it must."""
        if "k1" in given and "k2" not in given:
            given["k2"] = min(self.k2, given["k1"])
        if "k2" in given and "k1" not in given:
            given["k1"] = max(self.k1, given["k2"])
        return replace(self, **given)

    def for_direct(self) -> SearchSettings:
        """The same search by the direct model alone."""
        return replace(
            self, channel_alignment="marginal", look_ahead=None, lm_proposals=0, per_symbol=False, channel_words=None
        )

    def finds_all_of(self, other: SearchSettings) -> bool:
        """Whether it is another search, or a wider one that is else the same: its lists can be judged alike."""
        return (
            self.k1 >= other.k1
            and self.k2 >= other.k2
            and bool(self.look_ahead) == bool(other.look_ahead)
            and all(
                getattr(self, field.name) == getattr(other, field.name)
                for field in fields(self)
                if field.name not in ("k1", "k2", "look_ahead", "memory")
            )
        )

    def record(self) -> dict[str, Any]:
        """For weights.json and results: everything that can change the outputs of a search."""
        known = {**asdict(self), "look_ahead": self.look_ahead or None}
        later = {
            "look_ahead": None,
            "per_symbol": False,
            "channel_words": None,
        }  # what earlier versions do not know is left out if it is off
        return {name: x for name, x in known.items() if name != "memory" and (name, x) not in later.items()}

    @staticmethod
    def among(options: Mapping[str, Any]) -> dict[str, Any]:
        """Those of some options that are settings of a search."""
        names = {field.name for field in fields(SearchSettings)}
        return {name: value for name, value in options.items() if name in names}
