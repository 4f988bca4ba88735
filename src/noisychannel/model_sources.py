"""Where the models and further terms of a system come from: its run, or other runs with the same vocabularies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from noisychannel.decode.objective import TERMS, Weights
from noisychannel.errors import BadInputError, did_you_mean
from noisychannel.run_files import NGRAMS
from noisychannel.run_ngrams import load_ngram
from noisychannel.runs import RunDirectory
from noisychannel.systems import PROPOSERS
from noisychannel.weights import TermSource, TunedSystem, known_terms


def load_models(run: RunDirectory, homes: Mapping[str, str | Path], device: torch.device) -> dict[str, nn.Module]:
    """The models of a system by role. ``homes``: the run directory of each."""
    models: dict[str, nn.Module] = {}
    for role, home in homes.items():
        other = _open(run, Path(home))
        _check_vocabularies(run, other, role, role in (*PROPOSERS, "channel"))
        models[role] = other.load_model(role, device)
    return models


def load_terms(run: RunDirectory, sources: Mapping[str, TermSource], device: torch.device) -> dict[str, nn.Module]:
    """The further terms of a system by name."""
    terms = {}
    for name, source in sources.items():
        if not source.run.is_dir():
            raise BadInputError(f"{run.path}: the term {name} is in {source.run}, which does not exist")
        other = _open(run, source.run)
        _check_vocabularies(run, other, name, source.kind == "seen")
        terms[name] = _load_term(other, source, device)
    return terms


def needed_terms(
    run: RunDirectory, tuned: TunedSystem, weights: Weights, given: Mapping[str, TermSource] | None
) -> dict[str, TermSource]:
    """The sources of the further terms that have a weight: given ones, else those of the system, else of the run."""
    wanted = [name for name, weight in weights.extra.items() if weight]
    if not wanted:
        return {}
    known = {**known_terms(run), **tuned.terms, **(given or {})}
    for name in wanted:
        if name not in known:
            suggestion = did_you_mean(name, (*TERMS, *known))
            if name == "seen":
                suggestion = f": the run has no counts of its training pairs; {run.adding_seen()}"
            if name in (f"ngram_{of}" for of in NGRAMS):
                suggestion = f"; {run.adding_ngram(name.removeprefix('ngram_'))}"
            raise BadInputError(
                f"{run.path}: the weight {name} is {weights.extra[name]}, but there is no such term{suggestion}"
            )
    return {name: known[name] for name in wanted}


def same_sources(
    run: RunDirectory, homes: Mapping[str, str | Path], sources: Mapping[str, TermSource], tuned: TunedSystem
) -> bool:
    """Whether models and further terms are those that a system was tuned with: of the run, or where it says."""
    if any(Path(home).resolve() != run.path.resolve() for home in homes.values()):
        return False
    return all(
        name in tuned.terms
        and source.kind == tuned.terms[name].kind
        and source.run.resolve() == tuned.terms[name].run.resolve()
        for name, source in sources.items()
    )


def _open(run: RunDirectory, path: Path) -> RunDirectory:
    """The run of a path; the given one if it is the same, so that its files are read once."""
    return run if path.resolve() == run.path.resolve() else RunDirectory.open(path)


def _load_term(run: RunDirectory, source: TermSource, device: torch.device) -> nn.Module:
    """A further term of this run."""
    match source.kind:
        case "word_list":
            return run.load_word_list(device)
        case "seen":
            return run.load_seen(device)
        case "ngram_pairs" | "ngram_outputs":
            return load_ngram(run, source.kind.removeprefix("ngram_"), device)
        case _:
            return run.load_model("lm", device)


def _check_vocabularies(run: RunDirectory, other: RunDirectory, name: str, reads_input: bool) -> None:
    """Refuse models of a run whose ids mean something else."""
    if other is run:
        return
    for side, ours, theirs in zip(("input", "output"), run.codecs(), other.codecs(), strict=True):
        if (side == "output" or reads_input) and ours.fingerprint != theirs.fingerprint:
            raise BadInputError(
                f"{other.path}: its {side} vocabulary is not that of {run.path}, so its {name} cannot be used there; "
                f"train it with --data.vocabularies {run.path}"
            )
