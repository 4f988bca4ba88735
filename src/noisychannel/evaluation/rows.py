"""The rows of an evaluation: the test items, and the training pairs that baselines are made from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from noisychannel.data.blank_lines import BlankLines
from noisychannel.data.codec import Codec
from noisychannel.data.prepare import DataSource
from noisychannel.data.rows import Columns, Row, read_pairs, read_parallel
from noisychannel.data.sources import warnings_of
from noisychannel.errors import BadInputError, did_you_mean
from noisychannel.evaluation.baselines import BASELINES
from noisychannel.evaluation.held_out import rows_of_groups
from noisychannel.reporting import Reporter
from noisychannel.runs import RunDirectory


def training_rows(
    run: RunDirectory, codecs: Iterable[Codec], baselines: Sequence[str], reporter: Reporter
) -> dict[str, list[Row]]:
    """The pairs of each group that the baselines are made from; none if there are no baselines."""
    for name in baselines:
        if name not in BASELINES:
            raise BadInputError(f"--baselines: unknown baseline {name!r}{did_you_mean(name, BASELINES)}")
    for side, codec in zip(("input", "output"), codecs, strict=True):
        if "rules" in baselines and codec.config.units != "characters":
            raise BadInputError(
                f"--baselines: rules need characters, but the {side} of this run is split into {codec.config.units}; "
                "leave rules out"
            )
    if not baselines:
        return {}
    for warning in warnings_of(run.data_config, run.header().data.sources, ("train", "train_outputs")):
        reporter.warn(warning)
    try:
        return rows_of_groups(run, DataSource(run.data_config).rows("train"))
    except BadInputError as error:
        raise BadInputError(f"--baselines needs the training pairs that config.yaml names: {error}") from error


def held_out_rows(
    run: RunDirectory, file: str, outputs: Sequence[str], columns: str | None, reporter: Reporter
) -> dict[str, list[Row]]:
    """The test items of each group of the run: ``file`` has all columns, or inputs alone if there are ``outputs``."""
    data = run.data_config
    trained = DataSource(data).columns
    roles = trained if columns is None else Columns.parse(columns, "--columns", ("input", "output"))
    if run.header().groups != [""] and (outputs or "group" not in roles.roles):
        raise BadInputError(
            f"{run.path}: has groups, so FILE needs the outputs and a column that says which group "
            "(--columns input,output,group); or name the directory of one of them"
        )
    blank = BlankLines()
    if outputs:
        found = rows_of_groups(run, read_parallel([file], outputs[:1], blank))
    else:
        found = rows_of_groups(run, read_pairs([file], roles, data.feature_separator, blank))
    if str(blank):
        reporter.warn(str(blank))
    return found
