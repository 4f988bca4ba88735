"""What a training needs at least, estimated from sizes before anything is allocated.

The estimate is a lower bound, so that no run that fits is refused: every weight with the two moments of Adam and the
checkpoint that is being written, and of the activations only what one row of the longest length cannot do without.
Batches, the interpreter and the libraries come on top. It is compared with all memory that is free, swap included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import torch

from noisychannel.data.codec import Codec
from noisychannel.data.prepare import DataSource, Prepared, open_corpus
from noisychannel.devices import choose_device, free_memory
from noisychannel.errors import BadInputError
from noisychannel.ids import SPECIAL_SYMBOLS
from noisychannel.models.registry import ROLES, ModelDescription, Role, Vocabulary
from noisychannel.runs import RunDirectory
from noisychannel.training.config import RunConfig
from noisychannel.training.learner import Job

FLOAT = 4
"""Bytes."""
IN_UPDATE = 4
"""Floats per weight during an update: the weight, its gradient and two moments."""
IN_CHECKPOINT = 6
"""Floats per weight while a checkpoint is written: weights and moments, and their copy as the bytes of a file."""
LEAST_SYMBOLS: Mapping[Vocabulary, int] = {"input": len(SPECIAL_SYMBOLS) + 1, "output": len(SPECIAL_SYMBOLS) + 1}
"""The smallest vocabularies."""
GIB = 1 << 30


def check_sizes(config: RunConfig, roles: Iterable[Role]) -> None:
    """Before any data is read: refuse models that do not fit even with the smallest vocabularies."""
    for role in roles:
        _check_weights(config, role, LEAST_SYMBOLS, role)


def check_prepared(config: RunConfig, roles: Iterable[Role], data: Prepared, group: str) -> None:
    """Refuse models that do not fit with the vocabularies of the data, or with its longest row."""
    free = free_memory(choose_device(config.device))
    for role in roles:
        label = f"{group} {role}".strip()
        model = _check_weights(config, role, _symbols(data.input_codec, data.output_codec), label)
        corpus = open_corpus(data.directory, ROLES[role].trained_on, "train")
        I = 0 if corpus.inputs is None else int(corpus.inputs.lengths.max())
        J = int(corpus.outputs.lengths.max())
        if free is not None and (need := one_row(model, I, J)) > free:
            pair = f"{I:,} × {J:,} symbols" if I else f"{J:,} symbols"
            raise BadInputError(
                f"{label}: the longest line of the training data ({pair}) needs at least {_gib(need)} of memory, but "
                f"{_gib(free)} are free; set data.input.max_length and data.output.max_length, or split long lines"
            )


def processes_that_fit(jobs: Sequence[Job], processes: int, say: Callable[[str], object]) -> int:
    """At most ``processes``, and no more than have enough memory at the same time."""
    sizes = [_symbols(*RunDirectory(job.run_dir).codecs()) for job in jobs]
    models = [_describe(job.config, job.role, symbols) for job, symbols in zip(jobs, sizes, strict=True)]
    needs = sorted((FLOAT * IN_CHECKPOINT * model.parameters for model in models), reverse=True)
    free = free_memory(torch.device("cpu"))
    if free is None:
        return processes
    fitting = next(n for n in range(processes, 0, -1) if n == 1 or sum(needs[:n]) <= free)
    if fitting < processes:
        say(
            f"{processes} models at a time need at least {_gib(sum(needs[:processes]))} of memory, "
            f"but {_gib(free)} are free; training {fitting} at a time"
        )
    return fitting


def _symbols(input_codec: Codec, output_codec: Codec) -> dict[Vocabulary, int]:
    return {"input": len(input_codec), "output": len(output_codec)}


def one_row(model: ModelDescription, I: int, J: int) -> int:
    """Bytes that are kept for the gradient of one row: the scores of the symbols, and what has both positions."""
    H = model.arguments["hidden_size"]
    V = model.arguments.get("vocab_size") or model.arguments["output_vocab_size"]
    if model.class_name == "SSNT":
        return FLOAT * (I * J * H + (I + J) * V)
    return FLOAT * (I * J * H * model.arguments.get("attention", False) + J * V)


def _check_weights(config: RunConfig, role: Role, sizes: Mapping[Vocabulary, int], label: str) -> ModelDescription:
    model = _describe(config, role, sizes)
    device = choose_device(config.device)
    for place, floats in _places(device):
        free, need = free_memory(place), FLOAT * floats * model.parameters
        if free is not None and need > free:
            raise BadInputError(
                f"{label}: {_sizes(config, role, sizes)} make {model.parameters:,} parameters, which need at least "
                f"{_gib(need)} of memory, but {_gib(free)} are free; "
                f"{_advice(config, role, sizes, free // (FLOAT * floats))}"
            )
    return model


def _places(device: torch.device) -> list[tuple[torch.device, int]]:
    """Where memory is needed, and how many floats per weight."""
    if device.type == "cpu":
        return [(device, IN_CHECKPOINT)]
    return [(device, IN_UPDATE), (torch.device("cpu"), IN_CHECKPOINT)]


def _describe(config: RunConfig, role: Role, sizes: Mapping[Vocabulary, int]) -> ModelDescription:
    return ROLES[role].describe(config.model(role), sizes, DataSource(config.data).lm_reads_features)


def _sizes(config: RunConfig, role: Role, sizes: Mapping[Vocabulary, int]) -> str:
    own = config.model(role)
    keys = ("hidden_size", "num_layers", *(["embedding_size"] if own.embedding_size else []))
    vocabularies = [side for side in (ROLES[role].reads, ROLES[role].writes) if side is not None]
    return ", ".join(
        [f"{key} {getattr(own, key):,}" for key in keys]
        + [f"{sizes[side]:,} {side} symbols" for side in vocabularies if sizes is not LEAST_SYMBOLS]
    )


def _advice(config: RunConfig, role: Role, sizes: Mapping[Vocabulary, int], most: int) -> str:
    """The largest value of each key that makes the model fit while the others stay; or which keys to lower together."""
    own = config.model(role)
    keys = [key for key in ("hidden_size", "num_layers", "embedding_size") if (getattr(own, key) or 1) > 1]

    def parameters(key: str, value: int) -> int:
        changed = replace(own)
        setattr(changed, key, value)
        return ROLES[role].describe(changed, sizes).parameters

    fitting = []
    for key in keys:
        low, high = 0, getattr(own, key)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if parameters(key, middle) <= most else (low, middle)
        if low:
            fitting.append(f"{role}.{key} {low}")
    if ROLES[role].describe(own, LEAST_SYMBOLS).parameters <= most:
        fitting.append("a smaller vocabulary (data.input.max_size, data.output.max_size)")
    if fitting:
        return f"the largest that fits: {' or '.join(fitting)}"
    return f"lower {', '.join(f'{role}.{key}' for key in keys)} together"


def _gib(size: int) -> str:
    return f"{size / GIB:,.1f} GiB"
