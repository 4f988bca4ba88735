"""What ``fit`` chooses by rule from the facts, and why. All constants of the rules are in this file.

The rules were made on the dev sets of nine languages of SIGMORPHON 2017, with 100 and 1,000 pairs. Those for other
tasks have not been measured yet; docs/experiments/few-pairs.md says how to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from noisychannel.data.augment import AugmentConfig
from noisychannel.data.prepare import DataConfig
from noisychannel.data.rows import PRESETS
from noisychannel.decode.settings import SearchSettings
from noisychannel.errors import BadInputError
from noisychannel.fitting.facts import Facts, FitUnits
from noisychannel.fitting.tagging import MOST_TAG_SETS
from noisychannel.models.registry import Role
from noisychannel.training.config import ModelConfig, RunConfig, TrainingConfig

FEW = 500
"""Fewer pairs than this are held out in turn, in folds."""
FOLDS = 3
DEV_SHARE, LEAST_DEV, MOST_DEV = 0.15, 100, 1_000
"""With more pairs, this much is split off as dev, once."""
COPIED = 0.5
"""With so much copied, copying and made-up pairs are used."""
MADE_UP, MADE_UP_BESIDE_WORDS = 8_000, 2_000
"""Made-up pairs; if words are given inputs, fewer of them are better."""
MADE_UP_UNTIL, MADE_UP_GONE = 500, 1_000
"""If words are given inputs, made-up pairs become fewer still between these numbers of pairs."""
GIVEN_INPUTS = 10_000
"""The most words that are given inputs."""
VARIED = 0.05
"""If the outputs of so many pairs are written in several ways, so should the inputs of words be: they are drawn."""
LEAST_WORDS = 200
"""So few words are not worth a reverse model."""
LEAST_REPEATED, MOST_REPEATED, MOST_REPEATED_IN_REVERSE = 4, 10, 40
"""How often a real pair is repeated beside pairs that were made. A reverse model has made-up ones alone."""
REVERSE_UPDATES = 0.5
"""The share of the updates that a reverse model has: with so little data it learns quickly, and then too much."""
COPY_START = 3.0
HIDDEN, EMBEDDING, DROPOUT = 128, 128, 0.3
BATCH, LEARNING_RATE = 32, 4e-3
UPDATES, MOST_UPDATES, EPOCHS = 2_000, 20_000, 10
"""Updates with 100 pairs or fewer. 1,000 pairs take twice as many, four times as many pairs twice as many again, and
large data so many epochs."""
LM_HIDDEN = ((2_000, 256), (500, 128), (0, 64))
"""Units of the language model by the least number of outputs it is trained on."""
LM_BATCH, LM_RATE, LM_EPOCHS, LM_LEAST, LM_MOST = 64, 4e-3, 20, 300, 4_000
"""The language model is trained for so many epochs, within these numbers of updates."""
WORDS_ALONE = 1_000
"""With so many words, the language model is trained on them alone."""
REPEATED = 0.05
"""If so many pairs are repetitions of earlier ones, they are running text, and inputs come again."""
SMALL_INVENTORY = 200
"""A side with more different words than this is running text."""
LISTED = 0.99
"""If so many outputs of pairs are among the words, the list was probably made from them, among others."""
K1, K2 = 10, 5
NO_TAGS = "the pairs have tags, but the words have none"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that ``fit`` chooses."""

    folds: int
    """0: one split."""
    dev_pairs: int
    """How many pairs are held out at a time."""
    copy: bool
    made_up: int
    reverse_made_up: int
    """The same for the reverse model, which has only the pairs beside them."""
    words_given_inputs: int
    """Words for which a reverse model writes inputs; 0: none."""
    inputs_drawn: bool = False
    """Whether such an input is drawn from the reverse model; otherwise it is the most probable one."""
    words_given_tags: bool
    """Whether it writes tags for them, too."""
    repeat: int
    reverse_repeat: int
    input_units: FitUnits
    output_units: FitUnits
    hidden_size: int
    embedding_size: int
    dropout: float
    batch_size: int
    updates: int
    learning_rate: float
    lm_hidden_size: int
    lm_dropout: float
    lm_updates: int
    lm_words_alone: bool
    """The language model and the word list see the words alone, so that all folds share them."""
    word_list: bool
    seen: bool = False
    """Whether counts of the pairs are a term of all systems."""
    without_outputs: bool
    """Outputs of pairs are left out of the words, so that held-out answers are not listed more often than new ones."""
    k1: int
    k2: int
    given: tuple[str, ...] = ()
    """The options that were given, and so not chosen."""
    reasons: tuple[str, ...] = ()
    """One short sentence for each choice."""

    @property
    def reverse_updates(self) -> int:
        return max(1, round(REVERSE_UPDATES * self.updates))

    @property
    def shares_lm(self) -> bool:
        """Whether all folds have the same language model: if it sees nothing of the pairs, not even through tags."""
        return self.lm_words_alone and not self.words_given_tags

    @property
    def systems(self) -> tuple[str, ...]:
        """The systems to tune, smallest first."""
        full = "direct+channel+lm"
        names = ("direct+lm", full, *((f"{full}+word_list",) if self.word_list else ()))
        return tuple(f"{name}+seen" for name in names) if self.seen else names

    @property
    def settings(self) -> SearchSettings:
        return SearchSettings(k1=self.k1, k2=self.k2)


def make_plan(
    facts: Facts,
    *,
    folds: int | None = None,
    copy: bool | None = None,
    made_up: int | None = None,
    inputs: int | None = None,
    lexicon: bool | None = None,
) -> Plan:
    """Choose by rule; what the caller gives is not chosen."""
    without_outputs = facts.words > 0 and (facts.listed >= LISTED if lexicon is None else not lexicon)
    counted = facts
    if without_outputs:
        facts = replace(facts, words=facts.words - facts.listed_words)
    copying = _copying(facts) if copy is None else copy
    given = _given_inputs(facts) if inputs is None else min(inputs, facts.words)
    new = _made_up(facts, given) if made_up is None else made_up
    alike = (_made_up(facts, 0) if made_up is None else made_up) if given else 0
    folded = (FOLDS if facts.pairs < FEW or facts.inputs < LEAST_DEV else 0) if folds is None else folds
    tagging = given > 0 and facts.tags and not facts.tagged_words
    words = given if tagging else facts.words
    alone = words >= WORDS_ALONE
    outputs = words + (0 if alone else facts.pairs)
    plan = Plan(
        folds=folded,
        dev_pairs=facts.pairs // folded if folded else dev_size(facts.pairs),
        copy=copying,
        made_up=new,
        reverse_made_up=alike,
        words_given_inputs=given,
        inputs_drawn=given > 0 and not facts.tags and facts.varied >= VARIED,
        words_given_tags=tagging,
        repeat=_repeat(facts.pairs, new + given),
        reverse_repeat=max(1, min(MOST_REPEATED_IN_REVERSE, alike // (2 * max(facts.pairs, 1)))),
        input_units=facts.input_units,
        output_units=facts.output_units,
        hidden_size=HIDDEN,
        embedding_size=EMBEDDING,
        dropout=DROPOUT,
        batch_size=BATCH,
        updates=updates_by_rule(facts.pairs),
        learning_rate=LEARNING_RATE,
        lm_hidden_size=next(size for least, size in LM_HIDDEN if outputs >= least),
        lm_dropout=DROPOUT,
        lm_updates=min(LM_MOST, max(LM_LEAST, LM_EPOCHS * outputs // LM_BATCH)),
        lm_words_alone=alone,
        word_list=facts.words > 0 and not _running_text(facts),
        seen=facts.repeated >= REPEATED,
        without_outputs=without_outputs,
        k1=K1,
        k2=K2,
    )
    chosen = {"--folds": folds, "--copy": copy, "--made_up": made_up, "--inputs": inputs, "--lexicon": lexicon}
    return explained(replace(plan, given=tuple(name for name, value in chosen.items() if value is not None)), counted)


def explained(plan: Plan, facts: Facts, *further: str) -> Plan:
    """The plan with a reason for each choice, and further ones."""
    return replace(plan, reasons=(*_reasons(facts, plan, set(plan.given)), *further))


def check_choices(facts: Facts, made_up: int | None, inputs: int | None, lexicon: bool | None) -> None:
    """Refuse what the data does not allow, in the words of the command line."""
    if made_up and facts.input_units != facts.output_units:
        raise BadInputError(
            f"--made_up: the symbols are {facts.input_units} in the input and {facts.output_units} in the output, so "
            "nothing can stand on both sides; leave it out"
        )
    for name, given in (("--inputs", inputs), ("--lexicon", lexicon is not None)):
        if given and not facts.words:
            raise BadInputError(f"{name} would be ignored: there are no words; give --words, or leave it out")
    if inputs and facts.tags and not facts.tagged_words and not _can_tag(facts):
        raise BadInputError(f"--inputs: {NO_TAGS}, and {_no_tagging(facts)}; give words with tags (--word_columns)")


def dev_size(pairs: int) -> int:
    """How many pairs are split off."""
    return min(MOST_DEV, max(LEAST_DEV, round(DEV_SHARE * pairs)))


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


def _copying(facts: Facts) -> bool:
    return (facts.input_units, facts.output_units) == ("characters", "characters") and facts.copied >= COPIED


def _given_inputs(facts: Facts) -> int:
    tagged = facts.tagged_words or not facts.tags or _can_tag(facts)
    usable = facts.words >= LEAST_WORDS and tagged and not _running_text(facts)
    return min(GIVEN_INPUTS, facts.words) if usable else 0


def _repeat(pairs: int, made: int) -> int:
    """How often each real pair counts beside so many that were made."""
    return max(LEAST_REPEATED, min(MOST_REPEATED, made // max(pairs, 1))) if made else 1


def _can_tag(facts: Facts) -> bool:
    """Whether a reverse model can write the tags of words."""
    return facts.input_units == "characters" and not facts.private_symbols and facts.tag_sets <= MOST_TAG_SETS


def _no_tagging(facts: Facts) -> str:
    """Why a reverse model cannot write the tags of words, if it cannot."""
    if facts.input_units != "characters":
        return "the inputs are words, before which a reverse model writes no tags"
    return "inputs have symbols of the private use area" if facts.private_symbols else "there are too few of them"


def _made_up(facts: Facts, given: int) -> int:
    if not _copying(facts):
        return 0
    if not given:
        return MADE_UP
    left = (MADE_UP_GONE - facts.pairs) / (MADE_UP_GONE - MADE_UP_UNTIL)
    return 100 * round(MADE_UP_BESIDE_WORDS * min(1.0, max(0.0, left)) / 100)


def updates_by_rule(pairs: int) -> int:
    by_size = UPDATES * (1 + math.log10(min(max(pairs, 100), 1_000) / 100)) * math.sqrt(max(pairs, 1_000) / 1_000)
    return 10 * round(min(MOST_UPDATES, max(by_size, EPOCHS * pairs / BATCH)) / 10)


def _running_text(facts: Facts) -> bool:
    return facts.output_units == "words" and facts.output_symbols > SMALL_INVENTORY


def _reasons(facts: Facts, plan: Plan, given: set[str]) -> tuple[str, ...]:
    """A sentence for each choice; ``given``: the options that decided instead."""
    found = []
    if plan.folds:
        why = "as given" if "--folds" in given else f"fewer than {FEW} pairs are too few to split some off for good"
        found.append(f"{plan.folds} folds, so that every pair is held out once: {why}")
    else:
        found.append(f"{plan.dev_pairs:,} pairs are held out as dev, and the models see the others")
    percent = f"{100 * facts.copied:.0f} % of the output symbols are copied"
    if "--copy" in given:
        found.append(f"copying {'on' if plan.copy else 'off'}: as given")
    else:
        found.append(f"copying {'on' if plan.copy else 'off'}: {percent}" + _sides(facts))
    if "--made_up" in given:
        found.append(f"{plan.made_up:,} made-up pairs: as given")
    elif plan.made_up:
        found.append(f"{plan.made_up:,} made-up pairs with new stems: few pairs do not teach what stays the same")
    else:
        copied = _copying(facts)
        found.append(
            f"no made-up pairs: {'with so many pairs, words do better' if copied else percent + _sides(facts)}"
        )
    if plan.words_given_inputs:
        why = "as given" if "--inputs" in given else "they show the models real outputs"
        what = "tags and inputs" if plan.words_given_tags else "inputs"
        found.append(f"{plan.words_given_inputs:,} words are given {what} by a reverse model: {why}")
        if plan.inputs_drawn:
            found.append(
                "these inputs are drawn, and not the most probable ones: the outputs of "
                f"{100 * facts.varied:.0f} % of the pairs are written in several ways"
            )
    elif facts.words:
        why = f"{NO_TAGS}, and {_no_tagging(facts)}" if facts.tags and not facts.tagged_words else "too few"
        why = "running text" if _running_text(facts) else why
        found.append(f"words are not given inputs: {'as given' if '--inputs' in given else why}")
    if plan.repeat > 1:
        found.append(f"each real pair counts {plan.repeat} times, so that they are not lost among the made ones")
    found.append(
        f"direct and channel: {plan.hidden_size} units, dropout {plan.dropout:g}, {plan.updates:,} updates of "
        f"{plan.batch_size}, by the number of pairs"
    )
    words = f"the {plan.words_given_inputs if plan.words_given_tags else facts.words:,} words"
    source = words if plan.lm_words_alone else "the outputs of the pairs"
    source += " and the words" if facts.words and not plan.lm_words_alone else ""
    found.append(f"language model: {plan.lm_hidden_size} units, {plan.lm_updates:,} updates, on {source}")
    if plan.word_list:
        found.append("the words are also a list of likely outputs, whose weight is tuned")
    if plan.seen:
        found.append(
            f"counts of the pairs are a term (seen): {100 * facts.repeated:.0f} % of the pairs are repetitions, so "
            "inputs come again; held-out inputs are not among the other pairs, so its weight stays where tuning starts"
        )
    if plan.without_outputs:
        why = "as given" if "--lexicon" in given else f"{100 * facts.listed:.0f} % of them are listed"
        found.append(
            f"the outputs of the pairs are left out of the words: {why}; --lexicon true if outputs of new inputs are "
            "listed just as often"
        )
    found.append(f"search: k1 {plan.k1}, k2 {plan.k2}: outputs are short, and wider searches gain little")
    return tuple(found)


def _sides(facts: Facts) -> str:
    if facts.input_units == facts.output_units == "characters":
        return ""
    return f", and symbols are {facts.input_units} in the input, {facts.output_units} in the output"
