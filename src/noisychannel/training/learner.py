"""One model in training: its data, weights, optimiser and state, its events, metrics and checkpoints.

A learner does not train by itself: ``loop`` trains one (in one process or several), ``together`` many at once. They
tell the learner the losses.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor

from noisychannel.data.batches import Rows, plan_batches
from noisychannel.data.codec import Codec
from noisychannel.data.prepare import DataSource, open_corpus
from noisychannel.errors import NoisyChannelError
from noisychannel.models.registry import ROLES, ModelDescription, Role
from noisychannel.models.ssnt import SSNT, Pace
from noisychannel.models.word_list import Trie
from noisychannel.runs import RunDirectory
from noisychannel.tensors import save_tensors
from noisychannel.training import dev_sample
from noisychannel.training.alignment import at_one_place
from noisychannel.training.config import RunConfig, TrainingConfig
from noisychannel.training.events import Advanced, DevEvaluation, Event, Finished, Listener, Started
from noisychannel.training.log import WORD_LIST, MetricsLog
from noisychannel.training.state import TrainingState, derive_seed
from noisychannel.training.world import World

SECONDS_BETWEEN_NEWS = 0.2
FEWEST_UPDATES, MOST_UPDATES = 100, 2000
"""Between two evaluations, unless the configuration sets evaluate_every: one epoch, but within these bounds. With a
hundred pairs an epoch is five updates, and patience counted in such epochs would end the training much too early."""


@dataclass(frozen=True)
class Job:
    """One model to train. Its data has been prepared in the run directory."""

    config: RunConfig
    role: Role
    run_dir: Path
    label: str
    """Its name in messages: the role, after the group if there are groups."""
    threads: int = 1
    """CPU threads, unless its training began with another number."""


class Learner:
    """The model of a job, and the state of its training."""

    def __init__(self, job: Job, world: World, listen: Listener) -> None:
        config, role = job.config, job.role
        self.job, self.world = job, world
        self.listen = listen if world.leads else _ignore
        self.files = RunDirectory(job.run_dir)
        self.training = config.training
        own = config.model(role)
        self.batch_size = own.batch_size or config.training.batch_size
        self.limits = config.limits(role)
        self.train_corpus = open_corpus(self.files.data_dir, ROLES[role].trained_on, "train")
        self.dev_corpus = open_corpus(self.files.data_dir, ROLES[role].trained_on, "dev")

        torch.manual_seed(derive_seed(config.seed, role, "weights"))
        description = describe_model(job)
        self.model = description.build().to(world.device)
        if isinstance(self.model, SSNT) and own.paced_updates:
            self.model.pace = Pace().to(world.device)
        # On a GPU the learning rate is a tensor, so that a CUDA graph of the optimiser step reads its current value.
        on_gpu = world.device.type == "cuda"
        self.first_rate = rate = own.learning_rate or config.training.learning_rate
        self.warmup = config.training.warmup if own.warmup is None else own.warmup
        self.optimiser = torch.optim.Adam(
            self.model.parameters(),
            lr=torch.tensor(rate, device=world.device) if on_gpu else rate,
            fused=True,
            capturable=on_gpu,
        )
        data = self.train_corpus.fingerprint
        if self.files.state_file(role).exists():
            self.files.check_role(role)
            self.state = TrainingState.load(self.files.state_file(role), self.model, self.optimiser, role, data)
            self.state.threads = self.state.threads or job.threads
        else:
            self.state = TrainingState(rate, data, job.threads, role)
            self.state.dev_pairs = dev_pairs(job)
            if world.leads:
                self.files.write_model_config(role, description)
                self.state.save(self.files.state_file(role), self.model, self.optimiser)
        self._set_rate()
        self.metrics = MetricsLog(self.files.metrics_file, role, config.tensorboard) if world.leads else None
        self.last_loss = math.nan
        self._began = self._last_news = time.monotonic()
        self._symbols_since_news = 0
        self._epoch: tuple[int, list[list[Rows]]] | None = None

    @property
    def done(self) -> bool:
        """Whether the training ends: a limit is reached, or patience has run out."""
        return self.state.at_limit(self.limits) or self._out_of_patience

    @property
    def _out_of_patience(self) -> bool:
        return self.training.schedule == "plateau" and self.state.since_best >= self.training.patience

    @property
    def updates(self) -> list[list[Rows]]:
        """The updates of the current epoch, each a list of batches."""
        epoch = self.state.epoch
        if self._epoch is None or self._epoch[0] != epoch:
            order = np.random.default_rng([self.job.config.seed, epoch])
            batches = plan_batches(self.train_corpus, self.batch_size, self.training.batch_symbols, order)
            group = self.training.accumulate
            self._epoch = epoch, [batches[start : start + group] for start in range(0, len(batches), group)]
        return self._epoch[1]

    @cached_property
    def dev_rows(self) -> Rows:
        """The dev pairs that evaluations use."""
        return dev_sample.sample(self.dev_corpus, self.state.dev_pairs or self.dev_corpus.size)

    @property
    def dev_symbols(self) -> int:
        """The output symbols of an evaluation, EOS included."""
        return int(self.dev_corpus.outputs.lengths_of(self.dev_rows).sum())

    def dev_batches(self) -> list[Rows]:
        symbols = self.training.batch_symbols
        return plan_batches(self.dev_corpus, self.batch_size, symbols, order=None, among=self.dev_rows)

    def symbols(self, update: list[Rows]) -> int:
        """The number of output symbols of an update, EOS included."""
        return sum(int(self.train_corpus.outputs.lengths_of(rows).sum()) for rows in update)

    def update_seeds(self, updates: int) -> list[int]:
        """The seeds of the next updates. They depend on the seed of the run, the role, the step and the rank only."""
        seed, role, step = self.job.config.seed, self.job.role, self.state.step
        return [derive_seed(seed, role, step + k, self.world.rank) for k in range(updates)]

    @property
    def paced_updates(self) -> int:
        """How many first updates keep an even pace. A training that goes on after its limit does not begin again."""
        return 0 if self.state.evaluated_step else self.job.config.model(self.job.role).paced(self.most_updates)

    @property
    def paced(self) -> bool:
        """Whether the next update keeps an even pace."""
        return self.state.step < self.paced_updates

    @cached_property
    def most_updates(self) -> int:
        """The updates to the limits of the training, whichever epoch it is in."""
        if self.limits.epochs == math.inf:
            return int(self.limits.updates)
        batches = plan_batches(self.train_corpus, self.batch_size, self.training.batch_symbols, order=None)
        return self.limits.total(math.ceil(len(batches) / self.training.accumulate))

    def announce(self) -> None:
        parameters = sum(p.numel() for p in self.model.parameters())
        self.listen(Started(self.job.label, self.state.step, self.most_updates, parameters))

    def count(self, symbols: int) -> None:
        """Count an update with so many symbols."""
        self.state.position += 1
        self.state.step += 1
        self.state.interval_symbols += symbols
        self._symbols_since_news += symbols
        if self.training.schedule == "linear":
            self.state.learning_rate = self.first_rate * (1 - self.state.step / self.limits.updates)
        if self.training.schedule == "linear" or self.state.step <= self.warmup:
            self._set_rate()
        now = time.monotonic()
        if (elapsed := now - self._last_news) >= SECONDS_BETWEEN_NEWS:
            rate = self._symbols_since_news / elapsed
            self.listen(Advanced(self.job.label, self.state.step, self.last_loss, rate))
            self._symbols_since_news, self._last_news = 0, now

    @property
    def record_due(self) -> bool:
        """Whether to record the training loss after this update."""
        return self.state.step % self.training.log_every == 0

    @property
    def evaluate_every(self) -> int | None:
        """The number of updates between two evaluations on dev; None if there is one at the end of each epoch."""
        if self.training.evaluate_every is not None:
            return self.training.evaluate_every
        every = evaluation_interval(self.training, len(self.updates))
        return None if every == len(self.updates) else every

    @property
    def evaluation_due(self) -> bool:
        """Whether to evaluate on dev after this update: not before emissions are learnt."""
        if self.state.step <= self.paced_updates:
            return False
        if (every := self.evaluate_every) is not None:
            return self.state.step % every == 0
        return self.state.position == len(self.updates)

    def turn(self) -> None:
        """Start the next epoch if this one is over."""
        if self.state.position == len(self.updates) and not self.done:
            self.state.epoch, self.state.position = self.state.epoch + 1, 0

    def record(self, interval_loss: float) -> None:
        """Record the mean loss since the last record, given the sum of -log p."""
        state = self.state
        if state.interval_symbols:
            self.last_loss = interval_loss / state.interval_symbols
        if not math.isfinite(self.last_loss):
            raise NoisyChannelError(
                f"{self.job.label}: the loss became {self.last_loss} before step {state.step}; "
                "lower the learning rate (learning_rate) and start over (--overwrite)"
            )
        if self.metrics:
            values = {"epoch": state.epoch, "loss": self.last_loss, "perplexity": _perplexity(self.last_loss)}
            self.metrics.write("train", state.step, **values, learning_rate=self.rate)
        state.interval_symbols = 0

    def judge(self, dev_loss: float) -> bool:
        """Record -log p per symbol of dev, and lower the learning rate if it is due. Returns whether it is the best."""
        state, training = self.state, self.training
        state.evaluated_step = state.step
        best = dev_loss < state.best_loss
        rate = self.rate
        if self.metrics:
            values = {"epoch": state.epoch, "loss": dev_loss, "perplexity": _perplexity(dev_loss)}
            self.metrics.write("dev", state.step, **values, learning_rate=rate)
        if best:
            state.best_loss, state.best_step, state.since_best = dev_loss, state.step, 0
        else:
            state.since_best += 1
            if training.schedule == "plateau" and state.since_best % training.decay_patience == 0:
                state.learning_rate *= training.decay
                self._set_rate()
        perplexities = _perplexity(self.last_loss), _perplexity(dev_loss)
        self.listen(DevEvaluation(self.job.label, state.epoch + 1, state.step, *perplexities, rate, best))
        return best

    def save_model(self, tensors: Mapping[str, Tensor]) -> None:
        """Store these weights as the best so far."""
        if self.world.leads:
            metadata = {"step": str(self.state.best_step), "dev_loss": repr(self.state.best_loss)}
            save_tensors(self.files.model_file(self.job.role), tensors, metadata)

    def save_state(self, interval_loss: float) -> None:
        self.state.interval_loss = interval_loss
        if self.world.leads:
            self.state.save(self.files.state_file(self.job.role), self.model, self.optimiser)

    def finish(self, interval_loss: float) -> Finished:
        """End the training; the best model is in the run. The state is kept if a limit ended it."""
        if not math.isfinite(_perplexity(self.state.best_loss)):
            raise NoisyChannelError(
                f"{self.job.label}: dev perplexity was never finite; lower the learning rate, start over (--overwrite)"
            )
        listed = None
        # A linear schedule is complete at its limit: there is nothing to continue.
        at_limit = not self._out_of_patience and self.training.schedule == "plateau"
        if self.world.leads:
            listed = self._write_word_list() if self.job.config.model(self.job.role).word_list else None
            if listed is not None and self.metrics:
                self.metrics.write(WORD_LIST, self.state.best_step, outputs=listed)
            # Last: while the state is there, the training is unfinished, and all of the above is repeated.
            if at_limit:
                self.save_state(interval_loss)
            # While there is a state, the checksums are not verified: a training that is killed here resumes.
            self.files.record_files(self.job.role)
            if at_limit:
                self.files.state_file(self.job.role).replace(self.files.stopped_file(self.job.role))
            else:
                self.files.state_file(self.job.role).unlink()
        if self.metrics:
            self.metrics.close()
        state, seconds = self.state, time.monotonic() - self._began
        perplexity = _perplexity(state.best_loss)
        further = self._command_further() if at_limit else ""
        label, share = self.job.label, self._at_one_place() if self.world.leads else None
        finished = Finished(
            label, state.step, state.best_step, perplexity, seconds, further, listed, share, self._remedy()
        )
        self.listen(finished)
        return finished

    def _at_one_place(self) -> float | None:
        """The share of dev pairs that the stored model does not align."""
        if not isinstance(self.model, SSNT):
            return None
        model = cast(SSNT, self.files.load_model(self.job.role, self.world.device))
        return at_one_place(model, self.dev_corpus, self.dev_rows, self.batch_size, self.training.batch_symbols)

    def _remedy(self) -> str:
        """The option that may help a model that does not align."""
        tenth = max(1, self.most_updates // 10)
        paced = self.job.config.model(self.job.role).paced_updates >= tenth
        return f"--{self.job.role}." + (f"max-updates {2 * self.most_updates}" if paced else f"paced-updates {tenth}")

    def _command_further(self) -> str:
        """The command that continues the training with twice the limit that ended it."""
        key, value = "max_updates", 2 * self.state.step
        if self.state.epoch >= self.limits.epochs:
            key, value = "max_epochs", 2 * self.state.epoch
        return f"noisychannel train {self.job.config.run_dir}/config.yaml --{self.job.role}.{key} {value}"

    def _write_word_list(self) -> int:
        """Store the training outputs beside the language model; returns how many different ones there are."""
        outputs, (_, codec) = self.train_corpus.outputs, self.files.codecs()
        words = Trie.of(outputs.ids, outputs.starts, len(codec))
        self.files.write_word_list(words)
        return len(words)

    @property
    def rate(self) -> float:
        """The learning rate of the next update."""
        return self.state.learning_rate * min(1.0, (self.state.step + 1) / max(1, self.warmup))

    def _set_rate(self) -> None:
        group = self.optimiser.param_groups[0]
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(self.rate)
        else:
            group["lr"] = self.rate


def describe_model(job: Job) -> ModelDescription:
    """The model of a job: its class and sizes."""
    role, own = job.role, job.config.model(job.role)
    input_codec, output_codec = RunDirectory(job.run_dir).codecs()
    return ROLES[role].describe(
        own,
        {"input": len(input_codec), "output": len(output_codec)},
        reads_features=DataSource(job.config.data).lm_reads_features,
        copies=_copies(role, input_codec, output_codec) if own.copy else (),
    )


def dev_pairs(job: Job) -> int:
    """How many dev pairs the evaluations of a training use."""
    training, files, kind = job.config.training, RunDirectory(job.run_dir), ROLES[job.role].trained_on
    state, dev = files.state_file(job.role), open_corpus(files.data_dir, kind, "dev")
    if state.exists():
        return TrainingState.read(state).dev_pairs or dev.size
    batch_size = job.config.model(job.role).batch_size or training.batch_size
    batches = plan_batches(open_corpus(files.data_dir, kind, "train"), batch_size, training.batch_symbols, order=None)
    interval = evaluation_interval(training, math.ceil(len(batches) / training.accumulate))
    return dev_sample.sample_size(dev, training, batch_size, interval)


def evaluation_interval(training: TrainingConfig, per_epoch: int) -> int:
    """The number of updates between two evaluations on dev, if an epoch has so many."""
    return training.evaluate_every or min(max(per_epoch, FEWEST_UPDATES), MOST_UPDATES)


def _copies(role: Role, input_codec: Codec, output_codec: Codec) -> list[int]:
    """For each symbol that a model reads, the same symbol among those it writes; -1 if there is none.

    The channel writes the features before x, so it can copy them too. If both sides are words, an unknown word can be
    copied as such: the text of an output has the word itself in its place.
    """
    codecs = {"input": input_codec, "output": output_codec}
    reads, writes = ROLES[role].reads, ROLES[role].writes
    assert reads is not None
    with_features = ROLES[role].trained_on == "swapped pairs"
    words = input_codec.config.units == output_codec.config.units == "words"
    return codecs[reads].counterparts(codecs[writes], with_features, unknown=words)


def _ignore(event: Event) -> None:
    """The listener of the processes that do not lead."""


def _perplexity(loss: float) -> float:
    return math.exp(loss) if loss < 700 else math.inf
