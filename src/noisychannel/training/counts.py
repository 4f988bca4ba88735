"""What a run counts in its data, beside what it trains: pairs (the term seen) and n-grams of outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from noisychannel.arguments import dump_config
from noisychannel.data.prepare import Prepared, open_corpus, prepare
from noisychannel.models.registry import ROLES
from noisychannel.models.seen import Seen
from noisychannel.reporting import Say
from noisychannel.run_ngrams import make_ngram, missing_ngrams, write_ngram
from noisychannel.runs import RunDirectory
from noisychannel.training.config import RunConfig
from noisychannel.training.removal import leaving_no_data
from noisychannel.training.resuming import check_data, codecs_of


def counts_pairs(config: RunConfig) -> bool:
    """Whether a run keeps counts of its pairs: if it has a model of outputs given inputs."""
    return any(ROLES[role].trained_on == "pairs" for role in config.models)


def write_seen(run: RunDirectory, data: Prepared) -> None:
    """The term ``seen`` of a group, from its encoded pairs."""
    inputs, outputs = open_corpus(data.directory, "pairs", "train")
    assert inputs is not None
    symbols = max(len(data.input_codec), len(data.output_codec))
    run.write_seen(Seen.of(*inputs, *outputs, symbols, data.real_pairs()))


def write_ngrams(run: RunDirectory, config: RunConfig, data: Prepared, orders: Mapping[str, int]) -> None:
    """The n-gram models of a group that have an order, by name."""
    for name, order in orders.items():
        if order:
            write_ngram(run, name, make_ngram(name, order, data, config.data))


def add_counts(run: RunDirectory, config: RunConfig, complete: bool, say: Say) -> None:
    """Count what a finished run lacks: because an earlier version did not, the configuration asks for n-grams now, or
    the counts were removed or are damaged.

    ``complete``: all files of data are there.
    """
    groups = run.groups()
    lacks_seen = counts_pairs(config) and not all(group.is_intact(group.seen_file) for group in groups)
    ngrams: dict[str, int] = {}
    for of_group in groups:
        ngrams |= missing_ngrams(of_group, asdict(config.ngrams))
    added = [
        *(["the training pairs were{} counted (seen)"] if lacks_seen else []),
        *(f"the n-grams of {name} were{{}} counted (ngram_{name})" for name in ngrams),
    ]
    if not added:
        return
    if not complete:
        for line in added:
            say(f"{run.path}: {line.format(' not')}, because files of its data are missing")
        return
    with leaving_no_data(run):
        prepared = prepare(config.data, lambda group: run.group(group).data_dir, codecs_of(run))
        for group, data in prepared.items():
            check_data(run.group(group), data, config)
    for group, data in prepared.items():
        if lacks_seen:
            write_seen(run.group(group), data)
        write_ngrams(run.group(group), config, data, ngrams)
        run.group(group).record_prepared()
    for place in dict.fromkeys([*groups, run]) if ngrams else ():
        place.write_config(dump_config(config))
    for line in added:
        say(f"{run.path}: {line.format('')}")
