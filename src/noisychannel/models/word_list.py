"""A language model together with the list of outputs it was trained on.

A network does not know its list by heart. A share of the probability is therefore given to the list itself:

    p(y) = (1 - share) · p_network(y) + share · [y is on the list] / |list|

which is a distribution too, and has prefixes: a part of an output has the share of the list that begins with it. So a
search can follow it from the first symbol on. The share is the one under which held-out outputs are most probable.

The list is a trie. Its nodes are numbered by depth, then parent, then last symbol, so that the edges of a node stand
together: edge e leads to node e + 1, and all edges in order are sorted by (parent, symbol).

Shapes: B batch, J output positions, N outputs stepped together, R rows of a state, V symbols, E edges, D most children.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from noisychannel.ids import BOS, inside
from noisychannel.models.lm import LanguageModel
from noisychannel.models.lstm import LSTMState

ROOT, OFF = 0, -1
"""The node of the empty prefix; the mark of a prefix that is not on the list."""
EM_STEPS = 100
MOST = 1 - 1e-4
"""The largest share of a list."""


class Trie(nn.Module):
    """Distinct outputs, EOS included, by their prefixes."""

    keys: Tensor
    counts: Tensor
    first: Tensor

    def __init__(self, vocab_size: int, keys: Tensor, counts: Tensor) -> None:
        """``keys``: parent · V + symbol of each edge, ascending: [E]; ``counts``: outputs below each node: [E + 1]."""
        super().__init__()
        self.vocab_size = vocab_size
        nodes = torch.arange(len(counts) + 1, device=keys.device)
        self.register_buffer("keys", keys)
        self.register_buffer("counts", counts)
        self.register_buffer("first", torch.searchsorted(keys, nodes * vocab_size))

    @staticmethod
    def of(ids: npt.NDArray[np.int32], starts: npt.NDArray[np.int64], vocab_size: int) -> Trie:
        """The trie of the distinct sequences ``ids[starts[n] : starts[n + 1]]``."""
        node, lengths = np.zeros(len(starts) - 1, np.int64), np.diff(starts)
        levels: list[npt.NDArray[np.int64]] = []
        nodes = 1
        for depth in range(int(lengths.max(initial=0))):
            longer = np.flatnonzero(lengths > depth)
            symbol = ids[starts[longer] + depth].astype(np.int64)
            keys, which = np.unique(node[longer] * vocab_size + symbol, return_inverse=True)
            node[longer] = nodes + which
            levels.append(keys)
            nodes += len(keys)
        counts = np.zeros(nodes, np.int64)
        counts[np.unique(node)] = 1  # of equal outputs one; none goes on after its EOS
        end = nodes
        for keys in reversed(levels):
            np.add.at(counts, keys // vocab_size, counts[end - len(keys) : end])
            end -= len(keys)
        keys = np.concatenate(levels) if levels else np.zeros(0, np.int64)
        return Trie(vocab_size, torch.from_numpy(keys), torch.from_numpy(counts))

    def child(self, node_N: Tensor, symbol_N: Tensor) -> Tensor:
        """The node one symbol further; OFF where the list has none: [N]."""
        key_N = node_N * self.vocab_size + symbol_N
        edge_N = torch.searchsorted(self.keys, key_N).clamp(max=len(self.keys) - 1)
        return torch.where((node_N != OFF) & (self.keys[edge_N] == key_N), edge_N + 1, OFF)

    def log_prob(self, node_N: Tensor) -> Tensor:
        """log of the share of the list that begins like this: [N]."""
        share_N = self.counts[node_N.clamp(min=ROOT)].double() / self.counts[ROOT]
        return share_N.log().masked_fill(node_N == OFF, -torch.inf)

    def next_log_probs(self, node_N: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        """log p(next symbol) on the list after each prefix: [N,V]; -inf for what does not occur."""
        on_N = node_N.clamp(min=ROOT)
        first_N, end_N = self.first[on_N], self.first[on_N + 1]
        most = int((end_N - first_N).max()) if len(node_N) else 0
        edge_ND = first_N[:, None] + torch.arange(most, device=node_N.device)
        there_ND = (edge_ND < end_N[:, None]) & (node_N != OFF)[:, None]
        edge_ND = edge_ND.clamp(max=len(self.keys) - 1)
        share_ND = (self.counts[edge_ND + 1].double() / self.counts[on_N][:, None]).to(dtype)
        # What belongs to another node goes to a column that is cut off.
        symbol_ND = torch.where(there_ND, self.keys[edge_ND] % self.vocab_size, self.vocab_size)
        share_NV = share_ND.new_zeros(len(node_N), self.vocab_size + 1).scatter_(1, symbol_ND, share_ND)
        return share_NV[:, : self.vocab_size].log_()


class WordListState(NamedTuple):
    """Of N prefixes."""

    network: LSTMState
    next_NV: Tensor
    """What the network says of the next symbol."""
    said_N: Tensor
    """What it said of the prefix."""
    node_N: Tensor

    def select(self, indices: Tensor) -> WordListState:
        """The states of the prefixes ``indices``, in that order, repeats allowed."""
        network, *others = self
        return WordListState(network.select(indices), *(x.index_select(0, indices) for x in others))

    def put(self, rows: Tensor, new: WordListState) -> WordListState:
        """These states with others in the place of ``rows``."""
        network, *others = self
        changed = (x.index_copy(0, rows, y) for x, y in zip(others, new[1:], strict=True))
        return WordListState(network.put(rows, new.network), *changed)


class WithWordList(nn.Module):
    """A source model: a network, and a share for the list."""

    def __init__(self, network: LanguageModel, words: Trie, share: float) -> None:
        super().__init__()
        self.network, self.words, self.share = network, words, share
        logs = torch.tensor([1 - share, share], dtype=torch.float64).log().tolist()
        self.log_network, self.log_list = logs

    @property
    def reads_features(self) -> bool:
        return self.network.reads_features

    def log_prob(self, outputs: Tensor, output_lengths: Tensor) -> Tensor:
        """log p(outputs), EOS included: ids [B,J], [B] -> [B]."""
        by_network_B = self.network.log_prob(outputs, output_lengths)
        by_list_B = self.by_list(outputs, output_lengths).to(by_network_B.dtype)
        return torch.logaddexp(self.log_network + by_network_B, self.log_list + by_list_B)

    def by_list(self, outputs: Tensor, output_lengths: Tensor) -> Tensor:
        """log p(outputs) by the list alone, [B]."""
        node_B = torch.full_like(outputs[:, 0], ROOT, dtype=torch.long)
        inside_BJ = inside(output_lengths, outputs.shape[1], outputs.device)
        for symbol_B, inside_B in zip(outputs.long().unbind(1), inside_BJ.unbind(1), strict=True):
            node_B = torch.where(inside_B, self.words.child(node_B, symbol_B), node_B)
        return self.words.log_prob(node_B)

    def start(self, n: int) -> WordListState:
        """The state of ``n`` outputs of which nothing has been said, not even BOS."""
        network = self.network.start(n)
        zeros_NV = network.hidden_LNH.new_zeros(n, self.words.vocab_size)
        root_N = torch.full_like(zeros_NV[:, 0], ROOT, dtype=torch.long)
        return WordListState(network, zeros_NV, zeros_NV[:, 0], root_N)

    def step(
        self, symbols_N: Tensor, state: WordListState, parents_N: Tensor | None = None
    ) -> tuple[Tensor, WordListState]:
        """Append a symbol (BOS first) to each output: log p(next symbol) [N,V], and the state to go on from."""
        next_NV, network = self.network.step(symbols_N, state.network, parents_N)
        rows = torch.arange(len(symbols_N), device=symbols_N.device) if parents_N is None else parents_N
        said_N = state.said_N[rows] + state.next_NV[rows, symbols_N]  # BOS is certain: its row is still of zeros
        before_N = state.node_N[rows]
        node_N = torch.where(symbols_N == BOS, before_N, self.words.child(before_N, symbols_N))
        network_N, list_N = self.log_network + said_N, self.log_list + self.words.log_prob(node_N).to(said_N.dtype)
        list_NV = self.words.next_log_probs(node_N, said_N.dtype).add_(list_N[:, None])
        both_NV = torch.logaddexp(network_N[:, None] + next_NV, list_NV)
        mixed_NV = both_NV.sub_(torch.logaddexp(network_N, list_N)[:, None])
        return mixed_NV, WordListState(network, next_NV, said_N, node_N)


def best_share(by_network: Tensor, by_list: Tensor) -> float:
    """The share under which outputs with these log-probabilities are most probable together, by EM.

    Not quite 1, so that nothing becomes impossible; 0 where nothing is on the list.
    """
    network, listed = by_network.double(), by_list.double()
    share = torch.tensor(0.5, dtype=torch.float64)
    for _ in range(EM_STEPS):
        from_list = torch.sigmoid(share.logit() + listed - network)
        share = from_list.mean().clamp(max=MOST)
    return float(share)


class WordList(nn.Module):
    """The listed outputs as a term of the objective."""

    def __init__(self, trie: Trie, reads_features: bool = False) -> None:
        super().__init__()
        self.trie, self.reads_features = trie, reads_features
