"""Many models of one shape trained together on one device, with one CUDA graph per update of all of them.

Small models on a GPU wait for the host, which launches a few hundred kernels per update. A graph launches them all at
once, and with ``models.stacked`` each kernel works for all models. The data is on the GPU too: an update needs only its
row numbers from the host, which are sent for many updates at a time. Only records of the loss and evaluations wait for
the GPU.

The tensors of a graph have fixed sizes, so batches are padded to round sizes: positions with PAD, rows with an empty
sequence that does not count. There is one graph per size. Every model has its own optimiser, metrics, learning rate and
early stopping. When half of the models are done, the others are stacked again without them. Dropout is drawn for each
model from (seed, role, step), so it does not matter which models are trained together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from noisychannel.data.batches import Rows
from noisychannel.data.corpus import Corpus, Sequences
from noisychannel.errors import NoisyChannelError
from noisychannel.ids import EOS, PAD, inside
from noisychannel.models.masks import Masks
from noisychannel.models.ssnt import set_pace
from noisychannel.models.stacked import share_weights, stack
from noisychannel.precision import Products, float32_products
from noisychannel.processes import interruption
from noisychannel.training.events import Finished
from noisychannel.training.graphs import capture
from noisychannel.training.learner import Learner

SECONDS_BETWEEN_CHECKPOINTS = 60.0


def train_together(
    learners: Sequence[Learner], stopped: Callable[[], bool] = lambda: False
) -> tuple[list[Finished], list[NoisyChannelError]]:
    """Train every model to its end. Returns the finished ones, and the errors of those that failed.

    ``stopped`` is called after every update. If it returns true, all save their state and end like after ctrl-C.
    """
    return _Together(learners, stopped).run()


class _Size(NamedTuple):
    """The size of a batch: rows per model, and positions. Language models have no input positions."""

    B: int
    I: int
    J: int


class _Together:
    def __init__(self, learners: Sequence[Learner], stopped: Callable[[], bool]) -> None:
        self.learners, self.stopped = list(learners), stopped
        first = learners[0]
        self.training = first.training
        self.device = first.world.device
        self.train_data = _Data([learner.train_corpus for learner in learners], self.device)
        self.dev_data = _Data([learner.dev_corpus for learner in learners], self.device)
        self.interval = {learner: learner.state.interval_loss for learner in learners}
        """-log p of the training data since the last record, per model."""
        self.best: dict[Learner, dict[str, Tensor]] = {}
        """The best weights that have not been written yet."""
        self.last_checkpoint = time.monotonic()
        self.finished: list[Finished] = []
        self.errors: list[NoisyChannelError] = []
        for learner in learners:
            learner.announce()
            _start(learner.optimiser)
        self.active, self.stacked = list(learners), _Stacked(learners)

    def run(self) -> tuple[list[Finished], list[NoisyChannelError]]:
        products: Products = "tf32" if self.training.precision == "tf32" else "ieee"
        with interruption() as interrupted, float32_products(products, self.device):
            self._end_of_round()
            while self.active:
                for _ in self._round():
                    if interrupted.is_set() or self.stopped():
                        self._collect()
                        self._checkpoint()
                        interrupted.leave()
                self._collect()
                self._end_of_round()
                if time.monotonic() - self.last_checkpoint > SECONDS_BETWEEN_CHECKPOINTS:
                    self._checkpoint()
        return self.finished, self.errors

    def _round(self) -> Iterator[None]:
        """Updates of all active models until one of them has to record, to evaluate or to start an epoch."""
        if 2 * len(self.active) <= len(self.stacked.learners):
            self.stacked = _Stacked(self.active)
        updates = min(_until_event(learner) for learner in self.active)
        planned = {
            learner: [update[0] for update in learner.updates[learner.state.position :][:updates]]
            for learner in self.active
        }
        sizes, rows = self._arrange(self.train_data, planned)
        seeds = [learner.update_seeds(updates) for learner in self.stacked.learners]
        for k, (size, rows_R, seeds_N) in enumerate(zip(sizes, rows, self._send(np.array(seeds).T), strict=True)):
            self.stacked.update(self.train_data, size, rows_R, seeds_N)
            for learner, batches in planned.items():
                learner.count(learner.symbols([batches[k]]))
            yield

    def _arrange(self, data: _Data, planned: dict[Learner, list[Rows]]) -> tuple[list[_Size], list[Tensor]]:
        """The batches of the stack from those of its models. A model without a batch gets rows that do not count."""
        members = self.stacked.learners
        sizes, flat = [], []
        for k in range(max(map(len, planned.values()))):
            batches = {
                learner: data.first[self.learners.index(learner)] + rows[k]
                for learner, rows in planned.items()
                if k < len(rows)
            }
            every = np.concatenate(list(batches.values()))
            B = _rounded(max(map(len, batches.values())))
            rows_NB = np.full((len(members), B), data.nothing)
            for place, learner in zip(rows_NB, members, strict=True):
                own = batches.get(learner, [])
                place[: len(own)] = own
            sizes.append(_Size(B, *data.longest(every)))
            flat.append(rows_NB.ravel())
        return sizes, list(self._send(np.concatenate(flat)).split([len(rows) for rows in flat]))

    def _send(self, numbers: npt.NDArray[np.int64]) -> Tensor:
        """Copy to the device without waiting for it."""
        sent = torch.from_numpy(np.ascontiguousarray(numbers))
        return sent.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else sent

    def _collect(self) -> None:
        """Read the summed losses of the updates since the last call."""
        lost = self.stacked.take_lost()
        for learner in self.active:
            self.interval[learner] += lost[self.stacked.learners.index(learner)]

    def _end_of_round(self) -> None:
        """Records, evaluations, new epochs, and the end of the models that are done."""
        for learner in list(self.active):
            if learner.record_due:
                self._record(learner)
        self._evaluate([learner for learner in self.active if learner.evaluation_due])
        for learner in self.active:
            learner.turn()
        ended = [learner for learner in self.active if learner.done]
        self._evaluate(ended)
        for learner in [learner for learner in ended if learner in self.active]:
            with self._excused(learner):
                self._write_best(learner)
                self.finished.append(learner.finish(self.interval[learner]))
                self.active.remove(learner)

    def _record(self, learner: Learner) -> None:
        if learner.state.interval_symbols:
            with self._excused(learner):
                learner.record(self.interval[learner])
                self.interval[learner] = 0.0

    def _evaluate(self, learners: Sequence[Learner]) -> None:
        """Evaluate those models on dev that have been updated since their last evaluation."""
        learners = [learner for learner in learners if learner.state.evaluated_step < learner.state.step]
        for learner in learners:
            self._record(learner)
        planned = {learner: learner.dev_batches() for learner in learners if learner in self.active}
        if not planned:
            return
        sizes, rows = self._arrange(self.dev_data, planned)
        for size, rows_R in zip(sizes, rows, strict=True):
            self.stacked.evaluate(self.dev_data, size, rows_R)
        lost = self.stacked.take_lost()
        for learner in planned:
            if learner.judge(lost[self.stacked.learners.index(learner)] / learner.dev_symbols):
                self.best[learner] = {name: x.clone() for name, x in learner.model.state_dict().items()}

    def _checkpoint(self) -> None:
        """Write the state of every model."""
        for learner in self.active:
            self._write_best(learner)
            learner.save_state(self.interval[learner])
        self.last_checkpoint = time.monotonic()

    def _write_best(self, learner: Learner) -> None:
        if learner in self.best:
            learner.save_model(self.best.pop(learner))

    @contextmanager
    def _excused(self, learner: Learner) -> Iterator[None]:
        """A model that fails is removed; the others continue."""
        try:
            yield
        except NoisyChannelError as error:
            self.errors.append(error)
            self.active.remove(learner)


class _Stacked:
    """The models as one stack, and its updates."""

    def __init__(self, learners: Sequence[Learner]) -> None:
        training = learners[0].training
        self.learners, self.clip_norm, self.bf16 = list(learners), training.clip_norm, training.precision == "bf16"
        self.device = learners[0].world.device
        self.masks = Masks(len(learners), self.device)
        self.model = stack([learner.model for learner in learners], self.masks)
        share_weights(self.model, [learner.model for learner in learners])
        self.gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        self.lost_N = torch.zeros(len(learners), dtype=torch.float64, device=self.device)
        """-log p, summed since ``take_lost`` was last called."""
        self._graphs: dict[tuple[bool, _Size], tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        # Graphs are replayed one after the other, and their results are not needed later: they can share memory.
        self._pool = torch.cuda.graph_pool_handle() if self.device.type == "cuda" else None

    def update(self, data: _Data, size: _Size, rows_R: Tensor, seeds_N: Tensor) -> None:
        """One optimiser step of every model on its batch, with dropout from its seed."""
        self.masks.seeds_N.copy_(seeds_N)
        set_pace(self.model, [learner.paced for learner in self.learners])
        self._run(True, data, size, rows_R)

    def evaluate(self, data: _Data, size: _Size, rows_R: Tensor) -> None:
        """Add up the losses of the models on one batch each."""
        self._run(False, data, size, rows_R)

    def take_lost(self) -> list[float]:
        lost: list[float] = self.lost_N.tolist()
        self.lost_N.zero_()
        return lost

    def _run(self, learn: bool, data: _Data, size: _Size, rows_R: Tensor) -> None:
        self.model.train(learn)
        if self.device.type != "cuda":
            return self._work(learn, data, size, rows_R)
        if (learn, size) not in self._graphs:
            self._graphs[learn, size] = self._capture(learn, data, size, rows_R)
        graph, place_R = self._graphs[learn, size]
        place_R.copy_(rows_R)
        graph.replay()

    def _work(self, learn: bool, data: _Data, size: _Size, rows_R: Tensor, warm_up: bool = False) -> None:
        arguments = data.batch(size, rows_R)
        counts_R = rows_R != data.nothing
        self.masks.begin()
        with torch.set_grad_enabled(learn):
            # A cache of rounded weights would outlive the graph that computed it.
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16, cache_enabled=False):
                log_prob_R: Tensor = self.model(*arguments)
            lost_N = -torch.where(counts_R, log_prob_R, 0.0).view(-1, size.B).sum(1)
        if learn:
            symbols_N = torch.where(counts_R, arguments[-1], 0).view(-1, size.B).sum(1)
            torch._foreach_zero_(self.gradients)
            (lost_N / symbols_N.clamp(min=1)).sum().backward()
            _clip(self.gradients, self.clip_norm)
        if not warm_up:
            self.lost_N += lost_N.detach()
            for learner in self.learners if learn else ():
                learner.optimiser.step()

    def _capture(self, learn: bool, data: _Data, size: _Size, rows_R: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """A graph that reads its rows from its own tensor; the warm-up changes nothing."""
        place_R = rows_R.clone()
        work = partial(self._work, learn, data, size, place_R)
        with torch.cuda.device(self.device):
            return capture(work, partial(work, warm_up=True), self._pool), place_R


class _Data:
    """The corpora of all models on the device, with consecutive row numbers; the last row is only EOS."""

    def __init__(self, corpora: Sequence[Corpus], device: torch.device) -> None:
        self.first = np.cumsum([0, *(corpus.size for corpus in corpora)])[:-1]
        self.nothing = sum(corpus.size for corpus in corpora)
        inputs = [corpus.inputs for corpus in corpora if corpus.inputs is not None]
        self.sides = [_Side(side, device) for side in (inputs, [corpus.outputs for corpus in corpora]) if side]

    def longest(self, rows: Rows) -> tuple[int, int]:
        """Rounded numbers of input and output positions that fit these rows."""
        *inputs, outputs = (_rounded(int(side.lengths[rows].max())) for side in self.sides)
        return (inputs[0] if inputs else 0), outputs

    def batch(self, size: _Size, rows_R: Tensor) -> tuple[Tensor, ...]:
        """The arguments of the model: ids and lengths of each side."""
        widths = (size.I, size.J)[-len(self.sides) :]
        return tuple(x for side, width in zip(self.sides, widths, strict=True) for x in side.take(rows_R, width))


class _Side:
    def __init__(self, corpora: Sequence[Sequences], device: torch.device) -> None:
        self.lengths = np.concatenate([*(corpus.lengths for corpus in corpora), [1]])
        ids = np.concatenate([*(corpus.ids for corpus in corpora), [EOS]])
        self.ids = torch.from_numpy(ids).to(device)
        self.starts = torch.from_numpy(np.cumsum(self.lengths) - self.lengths).to(device)
        self.lengths_there = torch.from_numpy(self.lengths).to(device)

    def take(self, rows_R: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Padded ids and lengths: [R] -> [R,width], [R]."""
        lengths_R = self.lengths_there[rows_R]
        places = self.starts[rows_R, None] + torch.arange(width, device=rows_R.device)
        ids = self.ids[places.clamp(max=len(self.ids) - 1)].long()
        return ids.masked_fill(~inside(lengths_R, width, rows_R.device), PAD), lengths_R


def _until_event(learner: Learner) -> int:
    """Updates until a model has to record or to evaluate, or its epoch is over."""
    state, training = learner.state, learner.training
    left = [len(learner.updates) - state.position, training.log_every - state.step % training.log_every]
    if (every := learner.evaluate_every) is not None:
        left.append(every - state.step % every)
    return int(min(*left, learner.limits.updates - state.step))


def _rounded(n: int) -> int:
    """The next of a few sizes, at most a quarter larger: multiples of 4 up to 32, then of 8 up to 64, and so on."""
    step = max(4, 1 << max(0, n.bit_length() - 3))
    return -(-n // step) * step


def _clip(gradients: Sequence[Tensor], most: float) -> None:
    """Scale the gradient of each model down to ``most``, as ``torch.nn.utils.clip_grad_norm_`` does for one model."""
    norms = [torch.linalg.vector_norm(gradient.flatten(1), dim=1) for gradient in gradients]
    scale_N = (most / (torch.linalg.vector_norm(torch.stack(norms), dim=0) + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(scale_N.view(-1, *[1] * (gradient.dim() - 1)))


def _start(optimiser: torch.optim.Optimizer) -> None:
    """Allocate the moments of a new optimiser, which a graph needs: one step with zero gradients, then reset."""
    if optimiser.state:
        return
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()
    for parameter in parameters:
        optimiser.state[parameter]["step"].zero_()
        parameter.grad = None
