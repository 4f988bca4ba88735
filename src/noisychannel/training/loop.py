"""The training of one model, in one process or several.

The loss is -log p per output symbol; for an SSNT that is equation (2) of the paper. The batches of an update, and their
parts in several processes, are weighted by the symbols of the whole update, so gradient accumulation and more processes
change nothing but rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from noisychannel.allocation import freed_memory_kept
from noisychannel.data.batches import Rows, make_batch
from noisychannel.data.corpus import Corpus
from noisychannel.models.ssnt import set_pace
from noisychannel.precision import Products, float32_products
from noisychannel.processes import interruption
from noisychannel.training.events import Finished, Listener
from noisychannel.training.learner import Job, Learner
from noisychannel.training.world import World


def train_model(job: Job, world: World, listen: Listener, stopped: Callable[[], bool] = lambda: False) -> Finished:
    """Train, or resume training, until early stopping or a limit; the best model is then in the run directory."""
    return train_learner(Learner(job, world, listen), stopped)


def train_learner(learner: Learner, stopped: Callable[[], bool] = lambda: False) -> Finished:
    """Train a learner to its end.

    ``stopped`` is called after every update. If it returns true, the training saves its state and ends like after
    ctrl-C.
    """
    return _Training(learner, stopped).run()


class _Training:
    def __init__(self, learner: Learner, stopped: Callable[[], bool]) -> None:
        self.learner, self.stopped = learner, stopped
        self.world, self.model = learner.world, learner.model
        self.bf16 = learner.training.precision == "bf16"
        self.parallel: nn.Module = DistributedDataParallel(self.model) if self.world.size > 1 else self.model
        # Summed over processes only when it is read, so that no update waits for it.
        self.interval_loss = torch.zeros((), dtype=torch.float64, device=self.world.device)
        if self.world.leads:
            self.interval_loss += learner.state.interval_loss

    def run(self) -> Finished:
        learner, state, training = self.learner, self.learner.state, self.learner.training
        learner.announce()
        products: Products = "tf32" if training.precision == "tf32" else "ieee"
        with (
            # Several processes would not stop at the same update. They stop at once, and resume from a checkpoint.
            interruption(enabled=self.world.size == 1) as interrupted,
            float32_products(products, self.world.device),
            freed_memory_kept(self.world.device),
            cpu_threads(state.threads),
        ):
            learner.turn()
            while not learner.done:
                update = learner.updates[state.position]
                symbols = learner.symbols(update)
                self._update(update, symbols)
                learner.count(symbols)
                if learner.record_due:
                    self._record()
                if learner.evaluation_due:
                    self._evaluate()
                elif state.step % training.checkpoint_every == 0:
                    self._save_state()
                if interrupted.is_set() or self.stopped():
                    self._save_state()
                    interrupted.leave()
                learner.turn()
            if state.evaluated_step < state.step:
                self._evaluate()
        return learner.finish(float(self.world.sum(self.interval_loss)))

    def _update(self, batches: list[Rows], symbols: int) -> None:
        """One step of Adam on the gradient of all the batches."""
        learner = self.learner
        self.parallel.train()
        set_pace(self.model, [learner.paced])
        torch.manual_seed(*learner.update_seeds(1))
        for n, rows in enumerate(batches):
            together = n == len(batches) - 1 or self.world.size == 1
            with nullcontext() if together else self.parallel.no_sync():  # type: ignore[operator]
                loss = self._summed_loss(self.parallel, learner.train_corpus, rows)
                # Distributed training averages over processes; the loss is a sum.
                (loss * (self.world.size / symbols)).backward()
            self.interval_loss += loss.detach()
        nn.utils.clip_grad_norm_(self.model.parameters(), learner.training.clip_norm)
        learner.optimiser.step()
        learner.optimiser.zero_grad()

    def _summed_loss(self, model: nn.Module, corpus: Corpus, rows: Rows) -> Tensor:
        """-log p summed over this process's rows of a batch; a process without rows computes one row and ignores it."""
        own = rows[self.world.rank :: self.world.size]
        batch = make_batch(corpus, own if len(own) else rows[:1]).to(self.world.device)
        with torch.autocast(self.world.device.type, torch.bfloat16, enabled=self.bf16):
            log_prob: Tensor = model(*batch.arguments)
        return -log_prob.sum() * (len(own) > 0)

    @torch.no_grad()
    def _dev_loss(self) -> float:
        """-log p per symbol of the dev data."""
        self.model.eval()
        corpus = self.learner.dev_corpus
        total = torch.zeros((), dtype=torch.float64, device=self.world.device)
        for rows in self.learner.dev_batches():
            total += self._summed_loss(self.model, corpus, rows)
        return float(self.world.sum(total)) / self.learner.dev_symbols

    def _record(self) -> None:
        self.learner.record(float(self.world.sum(self.interval_loss)))
        self.interval_loss.zero_()

    def _evaluate(self) -> None:
        """Evaluate on dev; store the model if it is the best so far, lower the learning rate if it is due."""
        if self.learner.state.interval_symbols:
            self._record()
        if self.learner.judge(self._dev_loss()):
            self.learner.save_model(self.model.state_dict())
        self._save_state()

    def _save_state(self) -> None:
        self.learner.save_state(float(self.world.sum(self.interval_loss)))


@contextmanager
def cpu_threads(number: int) -> Iterator[None]:
    """Operations on the CPU use so many threads; rounding depends on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
