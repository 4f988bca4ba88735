"""``noisychannel tune RUN``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from noisychannel.arguments import Bounds, given_values, parse_options
from noisychannel.cli.progress import TerminalReporter
from noisychannel.decode.settings import SearchSettings
from noisychannel.errors import BadInputError
from noisychannel.evaluation.metrics import METRICS
from noisychannel.noisy_channel import first_proposer
from noisychannel.packaged import refuse_packaged
from noisychannel.runs import RunDirectory
from noisychannel.tuning.loop import TuningResult
from noisychannel.tuning.run import TuneOptions, tune_run
from noisychannel.weights import read_system

USAGE = f"""usage: noisychannel tune RUN [--systems direct+channel+lm] [--metric accuracy] [--k1 20] [--k2 10]

Choose the weights of the objective on the run's dev data and write them to weights.json, where decode and evaluate find
them. The dev inputs are decoded with a few weights, and the n-best lists are kept with their terms. The search over
weights runs on these lists. Then tune decodes again with the weights it found, merges the lists, and repeats until
nothing changes. A system is never worse on dev than with the weights that it starts from. It can be a few items below
the direct model alone, if these items could be luck. All groups of a run are tuned together and share the weights; to
tune one group alone, name its directory. Each system is written when it is tuned. When all are tuned, the largest
becomes the default of decode.

Of a large dev set, 500 pairs (of each group) are drawn, always the same ones. --limit N draws N, --limit 0 takes all.

systems: terms joined by +, such as direct+length, direct+lm, channel+lm, direct+channel+lm, attention+length, or
direct+channel+lm+word_list. attention, seq2seq and transformer propose by beam search, and the other terms rerank.
metrics: {", ".join(METRICS)}.

example:
  noisychannel tune runs/demo --metric accuracy --k1 60 --k2 30
  noisychannel tune runs/summarisation --metric rouge1
  noisychannel tune runs/demo --terms news=lm:runs/news --systems direct+channel+lm+news
"""


@dataclass(frozen=True, kw_only=True)
class TuneCommand(TuneOptions, SearchSettings):
    """Options of tune.

    Args:
        run: The run directory.
    """

    run: str = ""
    max_length: Annotated[int, Bounds(least=2)] | None = None
    """EOS counts: with a length of 1 there is only the empty output."""


def run(words: list[str]) -> int:
    options = parse_options(TuneCommand, words, ("run",), USAGE)
    if not options.run:
        raise BadInputError("tune needs a run directory: noisychannel tune runs/demo")
    given = SearchSettings.among(given_values(TuneCommand, words, ("run",)))
    try:
        settings = SearchSettings().changed(**given)
    except ValueError as error:
        raise BadInputError(str(error)) from error
    directory = RunDirectory.open_finished(Path(options.run))
    refuse_packaged(directory.path, "tuned")
    results = tune_run(directory, options, settings, TerminalReporter(), given)
    alone = direct_scores(results)
    width = max(map(len, [*alone, *(result.system for result in results)]))
    for name, score in alone.items():
        print(f"{name:<{width}}  dev {results[0].metric} {score:.2f}")
    for result in results:
        weights = "  ".join(f"{name} {value:.3g}" for name, value in result.weights.by_name().items())
        remark = f"  ({result.remark})" if result.remark else ""
        print(f"{result.system:<{width}}  dev {result.metric} {result.dev_score:.2f}  weights: {weights}{remark}")
    default = read_system(directory.groups()[0])
    if default.confidence is not None and default.confidence.calibration is not None:
        print(f"confidence of {default.name}, by cross-validation: {default.confidence.calibration}")
    print(f"noisychannel: decode {options.run} now uses {default.name}", file=sys.stderr)
    return 0


def direct_scores(results: Sequence[TuningResult]) -> dict[str, float]:
    """The dev score of each proposing model alone, by its name: what tuning has to improve on."""
    found = {}
    for result in results:
        if result.alone_score is not None:
            found[first_proposer(result.system.split("+"))] = result.alone_score
    return found
