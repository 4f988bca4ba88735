"""The word list: a further term of the objective that prefers listed outputs.

    word_list(y) = 0 if y is listed, -1 if it is not

The term scores prefixes, so the search uses it like a language model. A prefix that is the beginning of a listed output
has 0. A prefix that has left the list loses ``STEP`` with each symbol since, down to -1; a complete output that is not
listed has exactly -1, because EOS charges the rest. If the whole price were due at once, the search would drop outputs
that are not listed before their rivals have paid for what they do not explain. The tuner chooses the weight, which is
the price of an unlisted output in nats.

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
STEP = 0.25
"""What a prefix loses with each symbol after it has left the list, until it has lost 1."""


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
        return Trie.counted(ids, starts, vocab_size)[0]

    @staticmethod
    def counted(ids: npt.NDArray[Any], starts: npt.NDArray[Any], vocab_size: int) -> tuple[Trie, npt.NDArray[np.int64]]:
        """The trie of such sequences, and how many of them pass each edge: [E]."""
        lengths = np.diff(starts)
        node = np.zeros(len(lengths), np.int64)
        levels: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
        passed: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
        nodes = 1
        for depth in range(int(lengths.max(initial=0))):
            longer = np.flatnonzero(lengths > depth)
            symbol = ids[starts[longer] + depth].astype(np.int64)
            keys, which, count = np.unique(node[longer] * vocab_size + symbol, return_inverse=True, return_counts=True)
            node[longer] = nodes + which
            levels.append(keys)
            passed.append(count)
            nodes += len(keys)
        return Trie(vocab_size, torch.from_numpy(np.concatenate(levels))), np.concatenate(passed)

    @staticmethod
    def restored(vocab_size: int, keys: Tensor) -> Trie:
        """The trie of stored keys. ValueError if they are not those of a trie."""
        if keys.dtype != torch.long or keys.dim() != 1:
            raise ValueError(f"keys are {keys.dtype} of shape {list(keys.shape)}, not whole numbers in a row")
        # An edge begins at a node before the one that it leads to.
        before = keys // vocab_size <= torch.arange(len(keys))
        if not bool((keys >= 0).all() & before.all() & (keys[1:] > keys[:-1]).all()):
            raise ValueError("keys are not in order")
        return Trie(vocab_size, keys)

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
    """Where N prefixes are."""

    node_N: Tensor
    """Their nodes; OFF if they have left the list."""
    off_N: Tensor
    """The number of their symbols since they left the list."""

    def select(self, indices: Tensor) -> WordListState:
        """The rows ``indices``, in that order; a row may be repeated."""
        return WordListState(*(x.index_select(0, indices) for x in self))

    def put(self, rows: Tensor, new: WordListState) -> WordListState:
        """These states with the rows ``rows`` replaced by ``new``."""
        return WordListState(*(x.index_copy(0, rows, y) for x, y in zip(self, new, strict=True)))

    def concat(self, other: WordListState) -> WordListState:
        """These states, then those of ``other``."""
        return WordListState(*(torch.cat(pair) for pair in zip(self, other, strict=True)))


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
        root_N = torch.full((n,), ROOT, device=self.words.keys.device)
        return WordListState(root_N, torch.zeros_like(root_N))

    def step(
        self, symbols_N: Tensor, state: WordListState, parents_N: Tensor | None = None
    ) -> tuple[None, WordListState]:
        """Append a symbol (BOS first) to each output. There is no distribution over the next symbol."""
        before = state if parents_N is None else state.select(parents_N)
        node_N = torch.where(symbols_N == BOS, before.node_N, self.words.child(before.node_N, symbols_N))
        return None, WordListState(node_N, before.off_N + (node_N == OFF))

    def score(self, state: WordListState, symbols_N: Tensor) -> Tensor:
        """What each output loses with this symbol: [N]."""
        off_N = self.words.child(state.node_N, symbols_N) == OFF
        lost_N, next_N = ((STEP * count_N.double()).clamp(max=1.0) for count_N in (state.off_N, state.off_N + 1))
        loses_N = torch.where(symbols_N == EOS, 1 - lost_N, next_N - lost_N)
        return torch.where(off_N, 0.0 - loses_N, 0.0)
