"""The runs of an experiment with few pairs, by name: a model of one role for each part, with some of the ingredients.

direct.rule-1           the direct model that ``fit`` would train, seed 1
channel.copy.p100-2     a channel with copying alone, 100 pairs, seed 2
lm.rule.w1000.strict-1  a language model of 1,000 words of the strict setting
reverse.rule-1          a direct model that reads outputs and writes inputs, for self-training
"""

from __future__ import annotations

import re
from typing import NamedTuple

from noisychannel.fitting.facts import Facts
from noisychannel.fitting.plan import Plan, make_plan
from noisychannel.fitting.rules import MADE_UP, WORDS_ALONE

NAME = re.compile(
    r"(?P<role>[a-z]+)\.(?P<kind>[a-z]+)(\.p(?P<pairs>\d+))?(\.w(?P<words>\d+))?(\.(?P<setting>[a-z]+))?-(?P<seed>\d+)"
)
WITHOUT_WORDS = ("plain", "copy")
"""Kinds whose direct model and channel do not depend on the words."""


class RunSpec(NamedTuple):
    """What the name of a run says."""

    role: str
    kind: str
    """Which ingredients there are, see ``plan_of``."""
    pairs: int | None
    """How many training pairs; all if None."""
    words: int | None
    setting: str
    seed: int

    @property
    def name(self) -> str:
        pairs = "" if self.pairs is None else f".p{self.pairs}"
        words = "" if self.words is None else f".w{self.words}"
        return f"{self.role}.{self.kind}{pairs}{words}{f'.{self.setting}' * bool(self.setting)}-{self.seed}"

    @staticmethod
    def parse(name: str) -> RunSpec:
        found = NAME.fullmatch(name)
        if found is None:
            raise ValueError(f"no run is called {name!r}")
        pairs, words = (None if found[key] is None else int(found[key]) for key in ("pairs", "words"))
        return RunSpec(found["role"], found["kind"], pairs, words, found["setting"] or "", int(found["seed"]))

    @staticmethod
    def of(role: str, models: str, setting: str, seed: int) -> RunSpec:
        """From what a row says about its models, such as ``rule.p100``; runs that are the same have the same name."""
        spec = RunSpec.parse(f"{role}.{models}-{seed}")._replace(setting=setting)
        if role == "lm":
            alone = spec.words is None or spec.words >= WORDS_ALONE
            return spec._replace(kind="rule", pairs=None if alone else spec.pairs)
        return spec._replace(words=None, setting="") if spec.kind in WITHOUT_WORDS else spec

    @property
    def reverse(self) -> RunSpec:
        """The run that gives inputs to the words of this one."""
        return self._replace(role="reverse", kind="rule")


def plan_of(kind: str, facts: Facts) -> Plan:
    """What ``fit`` chooses for these facts, with some ingredients only."""
    match kind:
        case "rule":
            return make_plan(facts)
        case "plain":
            return make_plan(facts, copy=False, made_up=0, inputs=0)
        case "copy":
            return make_plan(facts, made_up=0, inputs=0)
        case "made":
            return make_plan(facts, copy=False, inputs=0)
        case "copymade":
            return make_plan(facts, inputs=0)
        case "inputs":
            return make_plan(facts, made_up=0)
        case "all":
            return make_plan(facts, made_up=MADE_UP)
    raise ValueError(f"no kind of model is called {kind!r}")
