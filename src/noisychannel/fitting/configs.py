"""From a plan to the configurations of its trainings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from noisychannel.data.augment import AugmentConfig
from noisychannel.data.prepare import DataConfig
from noisychannel.data.rows import PRESETS
from noisychannel.fitting.plan import Plan
from noisychannel.fitting.rules import COPY_START, LM_BATCH, LM_RATE
from noisychannel.models.registry import Role
from noisychannel.training.config import ModelConfig, RunConfig, TrainingConfig


def run_config(
    plan: Plan,
    data: DataConfig,
    run_dir: str | Path,
    models: tuple[Role, ...] = ("direct", "channel", "lm"),
    *,
    seed: int = 1,
    device: str = "auto",
    jobs: int | None = None,
) -> RunConfig:
    """The configuration of a training by this plan.

    ``data``: files and columns; the plan adds made-up pairs, and what the language model is trained on. Models are
    evaluated once, at the end: how long they are trained does not depend on dev.
    """
    data = replace(
        data,
        input=replace(data.input, units=plan.input_units),
        output=replace(data.output, units=plan.output_units),
        lm_data="unpaired" if plan.lm_words_alone and data.unpaired else "all",
        augment=AugmentConfig(made_up=plan.made_up, repeat=plan.repeat, seed=seed),
    )
    size = ModelConfig(
        hidden_size=plan.hidden_size,
        embedding_size=plan.embedding_size,
        dropout=plan.dropout,
        copy=plan.copy,
        copy_start=COPY_START,
        paced_updates=plan.updates // 10 if plan.paced else 0,
    )
    lm = ModelConfig(
        hidden_size=plan.lm_hidden_size,
        dropout=plan.lm_dropout,
        batch_size=LM_BATCH,
        learning_rate=LM_RATE,
        max_updates=plan.lm_updates,
        word_list=plan.word_list,
    )
    training = TrainingConfig(
        batch_size=plan.batch_size,
        max_updates=plan.updates,
        learning_rate=plan.learning_rate,
        schedule="linear",
        evaluate_every=max(plan.updates, plan.lm_updates),
    )
    return RunConfig(
        run_dir=str(run_dir),
        models=list(models),
        seed=seed,
        device=device,
        jobs=jobs,
        data=data,
        direct=replace(size, bidirectional=True),
        channel=size,
        lm=lm,
        training=training,
    )


def reverse_config(
    plan: Plan, data: DataConfig, run_dir: str | Path, *, seed: int = 1, device: str = "auto", jobs: int | None = None
) -> RunConfig:
    """The configuration of the reverse run of ``data``: its direct model reads an output and writes the input.

    The words are not trained on; made-up pairs take their material from them.
    """
    columns = {"input": "output", "output": "input"}
    listed = PRESETS.get(data.columns.strip(), data.columns).split(",")
    data = replace(
        data,
        columns=",".join(columns.get(name.strip(), name.strip()) for name in listed),
        input=data.output,
        output=data.input,
    )
    swapped = replace(
        plan,
        input_units=plan.output_units,
        output_units=plan.input_units,
        made_up=plan.reverse_made_up,
        repeat=plan.reverse_repeat,
        updates=plan.reverse_updates,
        lm_words_alone=False,
    )
    return run_config(swapped, data, run_dir, ("direct",), seed=seed, device=device, jobs=jobs)
