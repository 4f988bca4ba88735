"""Which test inputs the training pairs have, if the files are still there as they were."""

from __future__ import annotations

from noisychannel.data.prepare import DataSource
from noisychannel.data.rows import HUB
from noisychannel.data.sources import compare
from noisychannel.errors import BadInputError
from noisychannel.evaluation.held_out import HeldOut
from noisychannel.runs import RunDirectory


def seen_items(run: RunDirectory, held_out: HeldOut) -> list[bool] | None:
    """For each item, whether the training pairs of its group have its input with its features.

    None if the pairs cannot be read, or are not those that the run was trained on.
    """
    data, header = run.data_config, run.header()
    if any(source.startswith(HUB) for source in (*data.train, *data.train_outputs)):
        return None
    differences = compare(data, header.data.sources, ("train", "train_outputs"))
    if header.data.sources and (differences.changed or differences.missing):
        return None
    grouped = header.groups != [""]
    groups = held_out.groups if grouped else [""] * len(held_out.inputs)
    wanted = list(zip(groups, held_out.inputs, held_out.features, strict=True))
    asked, found = set(wanted), set()
    try:
        for row in DataSource(data).rows("train"):
            own = row.group if grouped else ""
            if not grouped and header.group and row.group not in ("", header.group):
                continue
            key = (own, row.input, row.features)
            if key in asked:
                found.add(key)
    except BadInputError:
        return None
    return [key in found for key in wanted]
