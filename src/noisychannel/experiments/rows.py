"""A row of an experiment's table: a system, or a baseline, with its models, setting and search.

    direct = SystemRow(name="direct (bi)", system="direct", models={"direct": "bi"})
    full = SystemRow(name="full", setting="strict", system="direct+channel+lm+word_list",
                     models={"direct": "bi", "channel": "bi", "lm": "lm", "word_list": "lm"})
    few = full.restricted(pairs=100)        # "full, 100 pairs"

Systems are named as in ``noisychannel.systems``. ``models`` says which runs have the model of each role and of each
further term; the experiment turns these names, with the setting and the seed, into run directories.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from noisychannel.systems import PROPOSERS, System
from noisychannel.weight_records import TermKind
from noisychannel.weights import TermSource, system_of

THREE_SEEDS = "three seeds"
"""What the names of rows end in that have the models of three seeds, beside rows of one."""
MODEL_ROLES = (*PROPOSERS, "channel", "lm")
"""Parts of a system's name that are models; ``length`` is neither a model nor a further term."""


@dataclass(frozen=True, kw_only=True)
class SystemRow:
    """One row. It is identified by its setting and name."""

    name: str
    setting: str = ""
    """Which data the models were trained on, if there are several, such as ``paper`` and ``strict``."""
    system: str = ""
    """Such as ``direct+channel+lm``; empty for a baseline."""
    baseline: str = ""
    """The name of a baseline without models, such as ``rules``; see ``evaluation.baselines``."""
    models: Mapping[str, str] = field(default_factory=dict)
    """For each role and further term of the system: the runs that have it."""
    term_kinds: Mapping[str, TermKind] = field(default_factory=dict)
    """The kinds of further terms; one that is not listed is of the kind of its name (``word_list``)."""
    seeds: int | None = None
    """How many of the experiment's seeds; all if None."""
    search: Mapping[str, Any] = field(default_factory=dict)
    """Search settings that differ from the experiment's, such as ``{"search": "marginal"}``."""
    weights_of: str = ""
    """The name of the row, in the same setting, whose tuned weights are used. If empty, the row is tuned itself."""
    raised: Mapping[str, float] = field(default_factory=dict)
    """What is added to weights after tuning, by term, to see what larger ones do."""
    choose: Literal["", "ensemble", "pool", "rerank", "references"] = ""
    """What chooses among the outputs of several searches; see ``choosing``. ``references`` searches nothing: its
    outputs are the references, with their terms, for counts of search errors. Tables leave it out."""
    bias: bool = True
    """Whether the length bias is among the terms that are tuned; without, its weight is zero."""
    pairs: int | None = None
    """How many training pairs its models have; all if None."""
    unpaired: int | None = None
    """How many unpaired outputs its language model has; all if None."""
    online: bool = False
    """Whether it can put out the beginning of an output before its input has ended; tables mark it with ``*``."""
    unrestricted: str = ""
    """The name of the same row with all pairs and all unpaired outputs, if this one has fewer."""

    def __post_init__(self) -> None:
        if bool(self.system) == bool(self.baseline):
            raise ValueError(f"{self.label}: name either a system or a baseline")
        if (self.choose or self.raised) and not self.weights_of:
            reason = f"chooses ({self.choose})" if self.choose else "raises weights"
            raise ValueError(f"{self.label}: a row that {reason} needs weights_of")
        if self.system:
            needed = [*self.make_system().roles, *self.terms]
            if missing := [name for name in needed if name not in self.models]:
                raise ValueError(f"{self.label}: models does not say which runs have {', '.join(missing)}")

    @property
    def key(self) -> tuple[str, str]:
        return self.setting, self.name

    @property
    def label(self) -> str:
        """How messages and records call it."""
        return f"{self.setting}: {self.name}" if self.setting else self.name

    @property
    def base(self) -> str:
        """The name of the row without its restrictions: what learning curves and comparisons go by."""
        return self.unrestricted or self.name

    @property
    def terms(self) -> dict[str, TermKind]:
        """The further terms of the system with their kinds."""
        names = [part for part in self.system.split("+") if part and part not in (*MODEL_ROLES, "length")]
        return {name: self.term_kinds.get(name, name) for name in names}  # type: ignore[arg-type]

    def model_of(self, name: str) -> str:
        """The role of the model in whose run a role or a further term is: counts of pairs are with a direct model."""
        if name not in self.terms:
            return name
        return "direct" if self.terms[name] in ("seen", "ngram_pairs") else "lm"

    def make_system(self) -> System:
        system = system_of(self.system, {name: TermSource(kind, Path()) for name, kind in self.terms.items()})
        return system if self.bias else system.fixing({"length": 0.0})

    @property
    def is_tuned(self) -> bool:
        """Whether the row has weights to tune."""
        return bool(self.system) and bool(self.make_system().free)

    def used_models(self) -> dict[str, str]:
        """The runs of the roles and further terms that the system has."""
        if not self.system:
            return {}
        return {name: self.models[name] for name in (*self.make_system().roles, *self.terms)}

    def restricted(self, pairs: int | None = None, unpaired: int | None = None, **changes: Any) -> SystemRow:
        """The same row with fewer pairs or unpaired outputs; its name says so."""
        amounts = [f"{n} {noun}" for n, noun in ((pairs, "pairs"), (unpaired, "unpaired")) if n is not None]
        name = ", ".join([self.name, *amounts])
        return replace(self, name=name, unrestricted=self.base, pairs=pairs, unpaired=unpaired, **changes)

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "setting": self.setting,
            "system": self.system,
            "baseline": self.baseline,
            "models": self.used_models(),
            "base": self.base,
            "pairs": self.pairs,
            "unpaired": self.unpaired,
            **({"choose": self.choose} if self.choose else {}),
            **({"weights of": self.weights_of} if self.weights_of else {}),
            **({"raised": dict(self.raised)} if self.raised else {}),
            **({} if self.bias else {"bias": False}),
            **({"online": True} if self.online else {}),
        }
