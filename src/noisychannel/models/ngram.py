"""An n-gram model of outputs: a further term of the objective, of either sign.

    ngram(y) = Σ_j log p(y_j | y_{j-n+1} .. y_{j-1})

With a positive weight it is a second language model, which needs no training loop. Made from the outputs of the pairs
and with a negative weight, it is what a density ratio subtracts: a direct model has learnt from its pairs what their
outputs look like, too, and that is what the language model of many more outputs is to replace (McDermott, Sak and
Variani, 2019). A low order is enough, and it cannot be too sure of anything.

``kneser_ney`` has the probabilities. They sum to one over the vocabulary after every context. The model looks up the
proposed symbols only. Where it is in its trie is known for contexts of every length at once: the node of the last k
symbols is the child, by the last of them, of the node that the k - 1 symbols before it had.

Shapes: B batch, J output positions, N outputs stepped together, n the order, E edges of the trie, C its contexts.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from noisychannel.ids import BOS, inside
from noisychannel.models.kneser_ney import estimate
from noisychannel.models.word_list import OFF, ROOT, Trie


class NGramState(NamedTuple):
    """What N outputs end in."""

    node_Nn: Tensor
    """The nodes of their last 0, 1 .. n - 1 symbols; OFF if such a context was never seen."""

    def select(self, indices: Tensor) -> NGramState:
        """The rows ``indices``, in that order; a row may be repeated."""
        return NGramState(self.node_Nn.index_select(0, indices))

    def put(self, rows: Tensor, new: NGramState) -> NGramState:
        """These states with the rows ``rows`` replaced by ``new``."""
        return NGramState(self.node_Nn.index_copy(0, rows, new.node_Nn))

    def concat(self, other: NGramState) -> NGramState:
        """These states, then those of ``other``."""
        return NGramState(torch.cat([self.node_Nn, other.node_Nn]))


class NGram(nn.Module):
    """The term: a source model that scores proposed symbols only."""

    log_probs: Tensor
    log_backoffs: Tensor
    began_1n: Tensor

    def __init__(
        self, grams: Trie, log_probs: Tensor, log_backoffs: Tensor, order: int, reads_features: bool = False
    ) -> None:
        """``log_probs`` [E] and ``log_backoffs`` [C]: as in ``kneser_ney.Estimates``. ``reads_features``: whether the
        outputs began with features."""
        super().__init__()
        self.grams, self.order, self.reads_features = grams, order, reads_features
        self.register_buffer("log_probs", log_probs)
        self.register_buffer("log_backoffs", log_backoffs)
        self.register_buffer("began_1n", self._began(), persistent=False)

    @staticmethod
    def of(
        ids: npt.NDArray[Any],
        starts: npt.NDArray[Any],
        vocab_size: int,
        order: int,
        reads_features: bool = False,
        rows: npt.NDArray[np.int64] | None = None,
    ) -> NGram:
        """The model of sequences that end in EOS; sequence n is ``ids[starts[n] : starts[n + 1]]``.

        ``rows``: the sequences that count; all if not given.
        """
        if rows is not None:
            lengths = np.diff(starts)[rows]
            ends = np.cumsum(lengths)
            within = np.arange(lengths.sum()) - np.repeat(ends - lengths, lengths)
            ids, starts = ids[np.repeat(starts[rows], lengths) + within], np.concatenate([[0], ends])
        keys, log_probs, log_backoffs = (torch.from_numpy(x) for x in estimate(ids, starts, vocab_size, order))
        return NGram(Trie(vocab_size, keys), log_probs.float(), log_backoffs.float(), order, reads_features)

    @staticmethod
    def restored(
        vocab_size: int, order: int, keys: Tensor, log_probs: Tensor, log_backoffs: Tensor, reads_features: bool = False
    ) -> NGram:
        """The model of stored tensors. ValueError if they are not those of such a model."""
        grams = Trie.restored(vocab_size, keys)
        for name, values, shape in (("log_probs", log_probs, keys.shape), ("log_backoffs", log_backoffs, None)):
            if values.dtype != torch.float32 or values.dim() != 1 or values.shape != (shape or values.shape):
                raise ValueError(f"{name} are {values.dtype} of shape {list(values.shape)} for {len(keys)} edges")
            if not bool((values <= 0).all() & values.isfinite().all()):
                raise ValueError(f"{name} are not logarithms of probabilities")
        if order < 1 or not len(keys) or (int(keys[-1]) // vocab_size) >= len(log_backoffs):
            raise ValueError(f"{len(log_backoffs)} contexts are too few for order {order}")
        return NGram(grams, log_probs, log_backoffs, order, reads_features)

    def log_prob(self, outputs: Tensor, output_lengths: Tensor) -> Tensor:
        """The term of whole outputs, EOS included: ids [B,J], [B] -> [B]."""
        _, state = self.step(torch.full_like(outputs[:, 0], BOS, dtype=torch.long), self.start(len(outputs)))
        total_B = torch.zeros(len(outputs), dtype=torch.float64, device=outputs.device)
        inside_BJ = inside(output_lengths, outputs.shape[1], outputs.device)
        for symbol_B, inside_B in zip(outputs.long().unbind(1), inside_BJ.unbind(1), strict=True):
            total_B += self.score(state, symbol_B).masked_fill(~inside_B, 0.0)
            _, state = self.step(symbol_B, state)
        return total_B

    def start(self, n: int) -> NGramState:
        """The state of ``n`` outputs that have read nothing, not even BOS."""
        node_Nn = torch.full((n, self.order), OFF, device=self.log_probs.device)
        node_Nn[:, 0] = ROOT
        return NGramState(node_Nn)

    def step(self, symbols_N: Tensor, state: NGramState, parents_N: Tensor | None = None) -> tuple[None, NGramState]:
        """Append a symbol (BOS first) to each output. A distribution over all symbols is not computed."""
        before = state if parents_N is None else state.select(parents_N)
        after_Nn = self._appended(before.node_Nn, symbols_N)
        # BOS stands for as many as a context can have.
        began_Nn = self.began_1n.expand_as(after_Nn)
        return None, NGramState(torch.where((symbols_N == BOS)[:, None], began_Nn, after_Nn))

    def score(self, state: NGramState, symbols_N: Tensor) -> Tensor:
        """log p of each symbol after its output: [N]."""
        node_Nn = state.node_Nn
        edge_Nn = self._children(node_Nn, symbols_N) - 1
        seen_Nn = edge_Nn >= 0
        # The longest context after which the symbol was seen; -1 if it was never seen at all.
        place_n = torch.arange(self.order, device=node_Nn.device)
        longest_N = torch.where(seen_Nn, place_n, -1).amax(1)
        edge_N = edge_Nn.gather(1, longest_N.clamp(min=0)[:, None]).squeeze(1)
        uniform = -math.log(self.grams.vocab_size)
        found_N = torch.where(longest_N >= 0, self.log_probs[edge_N.clamp(min=0)].double(), uniform)
        backed_Nn = (node_Nn != OFF) & (place_n > longest_N[:, None])
        backoff_Nn = self.log_backoffs[node_Nn.clamp(min=0)].double().masked_fill(~backed_Nn, 0.0)
        return found_N + backoff_Nn.sum(1)

    def _appended(self, node_Nn: Tensor, symbols_N: Tensor) -> Tensor:
        """The nodes one symbol further."""
        child_Nm = self._children(node_Nn[:, :-1], symbols_N)
        return torch.cat([torch.full_like(node_Nn[:, :1], ROOT), child_Nm], dim=1)

    def _children(self, node_Nm: Tensor, symbols_N: Tensor) -> Tensor:
        return self.grams.child(node_Nm, symbols_N[:, None].expand_as(node_Nm).contiguous())

    def _began(self) -> Tensor:
        """The nodes of n - 1 BOS: [1,n]."""
        nodes_1n = self.start(1).node_Nn
        for _ in range(self.order - 1):
            nodes_1n = self._appended(nodes_1n, torch.full_like(nodes_1n[:, 0], BOS))
        return nodes_1n
