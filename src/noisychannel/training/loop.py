"""The training of one model, from its first update to its best checkpoint.

The loss is -log p per output symbol. An update's batches, and their parts on several processes, are weighted by the
update's symbols altogether, so accumulation and more processes change nothing but rounding.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from noisychannel.data.batches import Rows, make_batch, plan_batches
from noisychannel.data.corpus import Corpus
from noisychannel.data.prepare import open_corpus
from noisychannel.errors import NoisyChannelError
from noisychannel.precision import float32_products
from noisychannel.runs import MODEL_CLASSES, RunDirectory, save_tensors
from noisychannel.training.config import Role, RunConfig
from noisychannel.training.events import Advanced, Evaluated, Event, Finished, Listener, Started
from noisychannel.training.graphs import GraphedLoss, can_be_captured
from noisychannel.training.metrics import MetricsLog
from noisychannel.training.roles import describe_model
from noisychannel.training.state import TrainingState, derive_seed
from noisychannel.training.world import World

SECONDS_BETWEEN_NEWS = 0.2


@dataclass(frozen=True)
class Job:
    """One model to train; its data has been prepared in the run directory."""

    config: RunConfig
    role: Role
    run_dir: Path
    label: str
    """How to call it: the role, with the group where there are groups."""


def train_model(job: Job, world: World, listen: Listener, stopped: Callable[[], bool] = lambda: False) -> Finished:
    """Train, or go on training, until early stopping or the last epoch; the best model is then in the run.

    ``stopped`` is asked after every update; when it says yes the training saves itself and ends as if by ctrl-C.
    """
    return _Training(job, world, listen, stopped).run()


class _Training:
    def __init__(self, job: Job, world: World, listen: Listener, stopped: Callable[[], bool]) -> None:
        config, role = job.config, job.role
        self.job, self.world, self.stopped = job, world, stopped
        self.listen = listen if world.leads else _ignore
        self.run_files = RunDirectory(job.run_dir)
        self.training = config.training
        own = config.model(role)
        self.batch_size = own.batch_size or config.training.batch_size
        self.max_epochs = own.max_epochs or config.training.max_epochs
        self.train_corpus = open_corpus(self.run_files.data_dir, role, "train")
        self.dev_corpus = open_corpus(self.run_files.data_dir, role, "dev")

        torch.manual_seed(derive_seed(config.seed, role, "weights"))
        input_codec, output_codec = self.run_files.codecs()
        model_class, arguments = describe_model(role, own, len(input_codec), len(output_codec))
        self.model = MODEL_CLASSES[model_class](**arguments).to(world.device)
        self.optimiser = torch.optim.Adam(
            self.model.parameters(), lr=own.learning_rate or config.training.learning_rate, fused=True
        )
        data = self.train_corpus.fingerprint
        if self.run_files.state_file(role).exists():
            self.state = TrainingState.load(self.run_files.state_file(role), self.model, self.optimiser, data)
        else:
            self.state = TrainingState(self.optimiser.param_groups[0]["lr"], data)
            if world.leads:
                self.run_files.write_model_config(role, model_class, arguments)
                self.state.save(self.run_files.state_file(role), self.model, self.optimiser)
        self.optimiser.param_groups[0]["lr"] = self.state.learning_rate
        self.parallel: nn.Module = DistributedDataParallel(self.model) if world.size > 1 else self.model
        self.graphed: GraphedLoss | None = None
        if self.training.cuda_graphs and world.size == 1 and can_be_captured(self.model):
            self.graphed = GraphedLoss(self.model, bf16=self.training.precision == "bf16")
        self.metrics = MetricsLog(self.run_files.metrics_file, role, config.tensorboard) if world.leads else None
        # Summed over processes whenever it is looked at, so that no update waits for it.
        self.interval_loss = torch.zeros((), dtype=torch.float64, device=world.device)
        if world.leads:
            self.interval_loss += self.state.interval_loss
        self.last_loss = math.nan

    def run(self) -> Finished:
        began = time.monotonic()
        state, training = self.state, self.training
        self._announce()
        self.symbols_since_news, self.last_news = 0, time.monotonic()
        products: Literal["ieee", "tf32"] = "tf32" if training.precision == "tf32" else "ieee"
        with _interruption(self.world) as interruption, float32_products(products, self.world.device):
            while state.epoch < self.max_epochs and state.since_best < training.patience:
                updates = self._plan_epoch(state.epoch)
                while state.position < len(updates):
                    self._update(updates[state.position])
                    state.position += 1
                    state.step += 1
                    ends_epoch = state.position == len(updates)
                    if state.step % training.log_every == 0:
                        self._record_training()
                    if state.step % training.evaluate_every == 0 if training.evaluate_every else ends_epoch:
                        self._evaluate()
                    elif state.step % training.checkpoint_every == 0:
                        self._save_state()
                    if interruption.is_set() or self.stopped():
                        self._save_state()
                        raise KeyboardInterrupt
                    if state.since_best >= training.patience:
                        break
                else:
                    state.epoch, state.position = state.epoch + 1, 0
            if state.evaluated_step < state.step:
                self._evaluate()
        return self._finish(time.monotonic() - began)

    def _plan_epoch(self, epoch: int) -> list[list[Rows]]:
        """The updates of an epoch, each a list of batches."""
        order = np.random.default_rng([self.job.config.seed, epoch])
        batches = plan_batches(self.train_corpus, self.batch_size, self.training.batch_symbols, order)
        group = self.training.accumulate
        return [batches[start : start + group] for start in range(0, len(batches), group)]

    def _update(self, batches: list[Rows]) -> None:
        """One step of Adam on the gradient of all the batches."""
        self.parallel.train()
        torch.manual_seed(derive_seed(self.job.config.seed, self.job.role, self.state.step, self.world.rank))
        symbols = sum(int(self.train_corpus.outputs.lengths_of(rows).sum()) for rows in batches)
        for n, rows in enumerate(batches):
            if self.graphed is not None:
                self.interval_loss += self.graphed(make_batch(self.train_corpus, rows), 1 / symbols)
                continue
            together = n == len(batches) - 1 or self.world.size == 1
            with nullcontext() if together else self.parallel.no_sync():  # type: ignore[operator]
                loss = self._summed_loss(self.parallel, self.train_corpus, rows)
                # Distributed training averages over processes what is here a sum.
                (loss * (self.world.size / symbols)).backward()
            self.interval_loss += loss.detach()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.training.clip_norm)
        self.optimiser.step()
        # A graph adds to the gradients where they were when it was captured.
        self.optimiser.zero_grad(set_to_none=self.graphed is None)
        self.state.interval_symbols += symbols
        self._tell_news(symbols)

    def _summed_loss(self, model: nn.Module, corpus: Corpus, rows: Rows) -> Tensor:
        """-log p summed over this process's share of a batch; a process without a row works for nothing."""
        own = rows[self.world.rank :: self.world.size]
        batch = make_batch(corpus, own if len(own) else rows[:1]).to(self.world.device)
        with torch.autocast(self.world.device.type, torch.bfloat16, enabled=self.training.precision == "bf16"):
            log_prob: Tensor = model(*batch.arguments)
        return -log_prob.sum() * (len(own) > 0)

    @torch.no_grad()
    def _dev_loss(self) -> float:
        """-log p per symbol of the dev data."""
        self.model.eval()
        total = torch.zeros((), dtype=torch.float64, device=self.world.device)
        for rows in plan_batches(self.dev_corpus, self.batch_size, self.training.batch_symbols, order=None):
            total += self._summed_loss(self.model, self.dev_corpus, rows)
        return float(self.world.sum(total)) / int(self.dev_corpus.outputs.starts[-1])

    def _record_training(self) -> None:
        """Write down the mean loss since the last record."""
        state = self.state
        if state.interval_symbols:
            self.last_loss = float(self.world.sum(self.interval_loss)) / state.interval_symbols
        if not math.isfinite(self.last_loss):
            raise NoisyChannelError(
                f"{self.job.label}: the loss became {self.last_loss} before step {state.step}; "
                "lower the learning rate (learning_rate) and start anew (--overwrite)"
            )
        if self.metrics:
            values = {"epoch": state.epoch, "loss": self.last_loss, "perplexity": _perplexity(self.last_loss)}
            self.metrics.write("train", state.step, **values, learning_rate=state.learning_rate)
        state.interval_symbols = 0
        self.interval_loss.zero_()

    def _evaluate(self) -> None:
        """Look at dev: keep the best model, lower the learning rate when it no longer helps."""
        state, training = self.state, self.training
        if state.interval_symbols:
            self._record_training()
        loss = self._dev_loss()
        state.evaluated_step = state.step
        best = loss < state.best_loss
        if self.metrics:
            values = {"epoch": state.epoch, "loss": loss, "perplexity": _perplexity(loss)}
            self.metrics.write("dev", state.step, **values, learning_rate=state.learning_rate)
        if best:
            state.best_loss, state.best_step, state.since_best = loss, state.step, 0
            self._save_model()
        else:
            state.since_best += 1
            if state.since_best % training.decay_patience == 0:
                state.learning_rate *= training.decay
        perplexities = _perplexity(self.last_loss), _perplexity(loss)
        rate = self.optimiser.param_groups[0]["lr"]
        self.listen(Evaluated(self.job.label, state.epoch + 1, state.step, *perplexities, rate, best))
        self.optimiser.param_groups[0]["lr"] = state.learning_rate
        self._save_state()

    def _save_model(self) -> None:
        if self.world.leads:
            state = self.state
            metadata = {"step": str(state.step), "dev_loss": repr(state.best_loss)}
            save_tensors(self.run_files.model_file(self.job.role), self.model.state_dict(), metadata)

    def _save_state(self) -> None:
        self.state.interval_loss = float(self.world.sum(self.interval_loss))
        if self.world.leads:
            self.state.save(self.run_files.state_file(self.job.role), self.model, self.optimiser)

    def _finish(self, seconds: float) -> Finished:
        if not math.isfinite(_perplexity(self.state.best_loss)):
            raise NoisyChannelError(
                f"{self.job.label}: dev perplexity was never finite; lower the learning rate, start anew (--overwrite)"
            )
        if self.world.leads:
            self.run_files.state_file(self.job.role).unlink()
        if self.metrics:
            self.metrics.close()
        finished = Finished(
            self.job.label, self.state.step, self.state.best_step, _perplexity(self.state.best_loss), seconds
        )
        self.listen(finished)
        return finished

    def _announce(self) -> None:
        parameters = sum(p.numel() for p in self.model.parameters())
        total = self.max_epochs * len(self._plan_epoch(self.state.epoch))
        self.listen(Started(self.job.label, self.state.step, total, parameters))

    def _tell_news(self, symbols: int) -> None:
        self.symbols_since_news += symbols
        now = time.monotonic()
        if (elapsed := now - self.last_news) >= SECONDS_BETWEEN_NEWS:
            rate = self.symbols_since_news / elapsed
            self.listen(Advanced(self.job.label, self.state.step + 1, self.last_loss, rate))
            self.symbols_since_news, self.last_news = 0, now


def _ignore(event: Event) -> None:
    """The listener of the processes that do not lead."""


def _perplexity(loss: float) -> float:
    return math.exp(loss) if loss < 700 else math.inf


@contextmanager
def _interruption(world: World) -> Iterator[threading.Event]:
    """Ctrl-C sets the event, so that an update is finished and saved first; a second ctrl-C does not wait.

    Several processes would not stop at the same update, so they stop at once, at their last checkpoint.
    """
    event = threading.Event()
    if world.size > 1 or threading.current_thread() is not threading.main_thread():
        yield event
        return

    def interrupt(signum: int, frame: Any) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, before)
