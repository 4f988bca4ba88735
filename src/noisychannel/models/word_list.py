"""The word list: a further term of the objective that prefers listed outputs.

    word_list(y) = 0 as long as a (partial) output is the beginning of a listed one, -1 as soon as it is not

EOS counts as a symbol, so the beginning of a listed output that is not itself listed gets its -1 at EOS. The term
scores prefixes: the search uses it like a language model, from the first symbol on. The tuner chooses its weight,
which is the price, in nats, of leaving the list.

The list is a trie. Its nodes are numbered by depth, then parent, then last symbol. Edge e leads to node e + 1, so the
keys (parent, symbol) of all edges in order are sorted.

Shapes: B batch, J output positions, N outputs stepped together, E edges.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from noisychannel.ids import BOS, EOS, inside

ROOT, OFF = 0, -1
"""The node of the empty prefix; the mark of a prefix that is not on the list."""


class Trie(nn.Module):
    """Distinct outputs, EOS included, by their prefixes."""

    keys: Tensor

    def __init__(self, vocab_size: int, keys: Tensor) -> None:
        """``keys``: parent · V + symbol of each edge, ascending: [E]."""
        super().__init__()
        self.vocab_size = vocab_size
        self.register_buffer("keys", keys)

    @staticmethod
    def of(ids: npt.NDArray[Any], starts: npt.NDArray[Any], vocab_size: int) -> Trie:
        """The trie of sequences that end in EOS; sequence n is ``ids[starts[n] : starts[n + 1]]``."""
        lengths = np.diff(starts)
        node = np.zeros(len(lengths), np.int64)
        levels: list[npt.NDArray[np.int64]] = []
        nodes = 1
        for depth in range(int(lengths.max(initial=0))):
            longer = np.flatnonzero(lengths > depth)
            symbol = ids[starts[longer] + depth].astype(np.int64)
            keys, which = np.unique(node[longer] * vocab_size + symbol, return_inverse=True)
            node[longer] = nodes + which
            levels.append(keys)
            nodes += len(keys)
        keys = np.concatenate(levels) if levels else np.zeros(0, np.int64)
        return Trie(vocab_size, torch.from_numpy(keys))

    def __len__(self) -> int:
        """How many distinct outputs are listed."""
        return int((self.keys % self.vocab_size == EOS).sum())

    def child(self, node_N: Tensor, symbol_N: Tensor) -> Tensor:
        """The node one symbol further; OFF if the list has none: [N]."""
        if not len(self.keys):
            return torch.full_like(node_N, OFF)
        key_N = node_N * self.vocab_size + symbol_N
        edge_N = torch.searchsorted(self.keys, key_N).clamp(max=len(self.keys) - 1)
        return torch.where((node_N != OFF) & (self.keys[edge_N] == key_N), edge_N + 1, OFF)


class WordListState(NamedTuple):
    """The nodes of N prefixes."""

    node_N: Tensor

    def select(self, indices: Tensor) -> WordListState:
        """The rows ``indices``, in that order; a row may be repeated."""
        return WordListState(self.node_N.index_select(0, indices))

    def put(self, rows: Tensor, new: WordListState) -> WordListState:
        """These states with the rows ``rows`` replaced by ``new``."""
        return WordListState(self.node_N.index_copy(0, rows, new.node_N))

    def concat(self, other: WordListState) -> WordListState:
        """These states, then those of ``other``."""
        return WordListState(torch.cat([self.node_N, other.node_N]))


class WordList(nn.Module):
    """The term: a source model that scores proposed symbols only."""

    def __init__(self, words: Trie, reads_features: bool = False) -> None:
        """``reads_features``: whether the listed outputs begin with features."""
        super().__init__()
        self.words, self.reads_features = words, reads_features

    def log_prob(self, outputs: Tensor, output_lengths: Tensor) -> Tensor:
        """0 for a listed output, -1 for any other: ids [B,J], [B] -> [B]."""
        node_B = torch.full_like(outputs[:, 0], ROOT, dtype=torch.long)
        inside_BJ = inside(output_lengths, outputs.shape[1], outputs.device)
        for symbol_B, inside_B in zip(outputs.long().unbind(1), inside_BJ.unbind(1), strict=True):
            node_B = torch.where(inside_B, self.words.child(node_B, symbol_B), node_B)
        return torch.where(node_B == OFF, -1.0, 0.0).double()

    def start(self, n: int) -> WordListState:
        """The state of ``n`` outputs that have read nothing, not even BOS."""
        return WordListState(torch.full((n,), ROOT, device=self.words.keys.device))

    def step(
        self, symbols_N: Tensor, state: WordListState, parents_N: Tensor | None = None
    ) -> tuple[None, WordListState]:
        """Append a symbol (BOS first) to each output. There is no distribution over the next symbol."""
        node_N = state.node_N if parents_N is None else state.node_N.index_select(0, parents_N)
        return None, WordListState(torch.where(symbols_N == BOS, node_N, self.words.child(node_N, symbols_N)))

    def score(self, state: WordListState, symbols_N: Tensor) -> Tensor:
        """-1 if an output leaves the list with this symbol, else 0: [N]."""
        left_N = (state.node_N != OFF) & (self.words.child(state.node_N, symbols_N) == OFF)
        return torch.where(left_N, -1.0, 0.0).double()
