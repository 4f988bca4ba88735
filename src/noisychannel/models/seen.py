"""Seen inputs: a further term of the objective made from counts of the training pairs.

    seen(x, y) = log((c(x, y) + a) / (c(x) + a))        0 if x is not among the pairs

c(x) is how often the input x, with its features, is among the training pairs, c(x, y) how often it is there with the
output y. Of a prefix u of an output, c(x, u) counts the outputs that begin with u. So the term joins the search like a
language model: a symbol adds log((c(x, u') + a) / (c(x, u) + a)) <= 0, and nothing more after a prefix with which no
output of x begins. An output that was never seen with x has log(a / (c(x) + a)): the more often x was seen, the worse.

The pairs are a trie of sequences, each an input with its EOS and then an output with its EOS. An input with an unknown
symbol is not counted: other inputs would look the same. An output with an unknown symbol counts in c(x) alone, for the
same reason: its sequence is the input.

Shapes: B batch, I input positions, J output positions, N outputs stepped together, E edges.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from noisychannel.ids import BOS, EOS, UNK, inside
from noisychannel.models.word_list import OFF, ROOT, Trie

ADDED = 0.1
"""a: what is added to every count. Chosen on dev of historical spellings: 1 trusts an input that was seen once too
little, and much less than 0.1 gains nothing."""
MOST_SYMBOLS = 5_000_000
"""If the pairs have more symbols, those whose inputs are rare are not counted: the file stays small."""

IntArray = npt.NDArray[np.int64]


class SeenState(NamedTuple):
    """Where N prefixes are."""

    node_N: Tensor
    """Their nodes; OFF if the input was not seen, or not with such an output."""

    def select(self, indices: Tensor) -> SeenState:
        """The rows ``indices``, in that order; a row may be repeated."""
        return SeenState(self.node_N.index_select(0, indices))

    def put(self, rows: Tensor, new: SeenState) -> SeenState:
        """These states with the rows ``rows`` replaced by ``new``."""
        return SeenState(self.node_N.index_copy(0, rows, new.node_N))

    def concat(self, other: SeenState) -> SeenState:
        """These states, then those of ``other``."""
        return SeenState(torch.cat([self.node_N, other.node_N]))


class Seen(nn.Module):
    """The term: a model of the search that scores proposed symbols only, given the input."""

    counts: Tensor
    reads_features = False
    """The features before an output; those before the input are part of it."""

    def __init__(self, pairs: Trie, counts: Tensor, added: float = ADDED) -> None:
        """``counts``: how often each edge of ``pairs`` is passed: [E]. ``added``: a."""
        super().__init__()
        self.pairs, self.added = pairs, added
        self.register_buffer("counts", counts)

    @staticmethod
    def of(
        input_ids: npt.NDArray[Any],
        input_starts: IntArray,
        output_ids: npt.NDArray[Any],
        output_starts: IntArray,
        vocab_size: int,
        rows: IntArray | None = None,
        most_symbols: int = MOST_SYMBOLS,
    ) -> Seen:
        """The term of pairs, both sides with EOS; sequence n is ``ids[starts[n] : starts[n + 1]]``.

        ``vocab_size``: that of the larger vocabulary. ``rows``: the pairs that count; all if not given.
        """
        rows = np.arange(len(input_starts) - 1) if rows is None else rows
        # Only hashes of all inputs are in memory at a time.
        hashes = (hash(input_ids[input_starts[n] : input_starts[n + 1]].tobytes()) for n in rows)
        _, which, often = np.unique(np.fromiter(hashes, np.int64, len(rows)), return_inverse=True, return_counts=True)
        often = often[which]
        lengths = np.diff(input_starts)[rows] + np.diff(output_starts)[rows]
        least = 1
        while lengths[often >= least].sum() > most_symbols:
            least *= 2
        pairs = [
            (input_ids[input_starts[n] : input_starts[n + 1]], output_ids[output_starts[n] : output_starts[n + 1]])
            for n in rows[often >= least]
        ]
        pairs = [(x, y[:0] if UNK in y else y) for x, y in pairs if UNK not in x]
        ids = np.concatenate([np.zeros(0, np.int64), *(side for pair in pairs for side in pair)])
        trie, counts = Trie.counted(ids, np.cumsum([0, *(len(x) + len(y) for x, y in pairs)]), vocab_size)
        return Seen(trie, torch.from_numpy(counts).int())

    @staticmethod
    def restored(vocab_size: int, keys: Tensor, counts: Tensor) -> Seen:
        """The term of stored keys and counts. ValueError if they are not those of pairs."""
        pairs = Trie.restored(vocab_size, keys)
        if counts.dtype != torch.int32 or counts.shape != keys.shape:
            raise ValueError(f"counts are {counts.dtype} of shape {list(counts.shape)} for {len(keys)} edges")
        seen = Seen(pairs, counts)
        onward = torch.from_numpy(seen._onward)
        # Only at the end of an input or of an output do fewer go on: outputs may have an unknown symbol.
        ends = keys % vocab_size == EOS
        if not bool((counts >= 1).all() & ((onward == counts) | (ends & (onward < counts))).all()):
            raise ValueError("counts do not add up")
        return seen

    @cached_property
    def size(self) -> tuple[int, int]:
        """How many pairs were counted, and how many of them are different.

        The outputs of an input that have unknown symbols are taken as one.
        """
        first = self._keys // self.pairs.vocab_size == ROOT
        return int(self._counts[first].sum()), int((self._onward < self._counts).sum())

    def log_prob(self, inputs: Tensor, input_lengths: Tensor, outputs: Tensor, output_lengths: Tensor) -> Tensor:
        """The term of whole outputs, EOS included: ids [B,I], [B], [B,J], [B] -> [B]."""
        seen_B = self.start_for(inputs, input_lengths).node_N
        node_B = self._follow(seen_B, outputs, output_lengths)
        return torch.where(seen_B == OFF, 0.0, self._log_count(node_B) - self._log_count(seen_B))

    def start_for(self, inputs: Tensor, input_lengths: Tensor) -> SeenState:
        """The state of an output of each input that has read nothing, not even BOS: ids [B,I], [B]."""
        root_B = torch.full((len(inputs),), ROOT, device=self.counts.device)
        return SeenState(self._follow(root_B, inputs, input_lengths))

    def step(self, symbols_N: Tensor, state: SeenState, parents_N: Tensor | None = None) -> tuple[None, SeenState]:
        """Append a symbol (BOS first) to each output. There is no distribution over the next symbol."""
        before = state if parents_N is None else state.select(parents_N)
        child_N = self.pairs.child(before.node_N, symbols_N)
        return None, SeenState(torch.where(symbols_N == BOS, before.node_N, child_N))

    def score(self, state: SeenState, symbols_N: Tensor) -> Tensor:
        """What each output loses with this symbol: [N]."""
        child_N = self.pairs.child(state.node_N, symbols_N)
        return torch.where(state.node_N == OFF, 0.0, self._log_count(child_N) - self._log_count(state.node_N))

    def attested(self, inputs: tuple[int, ...], most: int) -> list[tuple[int, ...]]:
        """The outputs of an input (with EOS) in the pairs, without EOS, the most frequent first; at most ``most``."""
        node = ROOT
        for symbol in inputs:
            node = next((child for last, child in self._children(node) if last == symbol), OFF)
            if node == OFF:
                return []
        found: list[tuple[int, tuple[int, ...]]] = []
        waiting: list[tuple[int, tuple[int, ...]]] = [(node, ())]
        while waiting:
            node, prefix = waiting.pop()
            for symbol, child in self._children(node):
                if symbol == EOS:
                    found.append((-int(self._counts[child - 1]), prefix))
                else:
                    waiting.append((child, (*prefix, symbol)))
        return [output for _, output in sorted(found)[:most]]

    def _children(self, node: int) -> list[tuple[int, int]]:
        """The symbols after a node, and where each leads."""
        V = self.pairs.vocab_size
        first, last = np.searchsorted(self._keys, [node * V, (node + 1) * V])
        return [(int(self._keys[edge] % V), edge + 1) for edge in range(first, last)]

    def _follow(self, node_B: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        """The nodes after whole sequences: [B]."""
        inside_BT = inside(lengths.to(ids.device), ids.shape[1], ids.device)
        for symbol_B, inside_B in zip(ids.long().unbind(1), inside_BT.unbind(1), strict=True):
            node_B = torch.where(inside_B, self.pairs.child(node_B, symbol_B), node_B)
        return node_B

    def _log_count(self, node_N: Tensor) -> Tensor:
        """log(c + a) of nodes, with c = 0 for OFF: [N]."""
        if not len(self.counts):
            return torch.zeros_like(node_N, dtype=torch.float64)
        count_N = self.counts[(node_N - 1).clamp(min=0)].double()
        return (torch.where(node_N == OFF, 0.0, count_N) + self.added).log()

    @cached_property
    def _keys(self) -> IntArray:
        """Where they are quick to walk one by one."""
        return self.pairs.keys.cpu().numpy()

    @cached_property
    def _onward(self) -> IntArray:
        """How many pairs go on after each edge: [E]."""
        onward = np.zeros(len(self._keys) + 1, np.int64)
        np.add.at(onward, self._keys // self.pairs.vocab_size, self._counts)
        return onward[1:]

    @cached_property
    def _counts(self) -> npt.NDArray[np.int32]:
        return self.counts.cpu().numpy()
