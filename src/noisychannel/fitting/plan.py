"""What ``fit`` chooses from the facts, by the rules of ``rules.py``."""

from __future__ import annotations

from dataclasses import dataclass, replace

from noisychannel.decode.settings import SearchSettings
from noisychannel.errors import BadInputError
from noisychannel.fitting import rules
from noisychannel.fitting.facts import Facts, FitUnits
from noisychannel.fitting.reasons import reasons
from noisychannel.systems import should_look_ahead


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
    paced: bool = False
    """Whether a tenth of the updates keeps an even pace."""
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
        return max(1, round(rules.REVERSE_UPDATES * self.updates))

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
        return SearchSettings(k1=self.k1, k2=self.k2, look_ahead=should_look_ahead(self.input_units))


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
    without_outputs = facts.words > 0 and (facts.listed >= rules.LISTED if lexicon is None else not lexicon)
    counted = facts
    if without_outputs:
        facts = replace(facts, words=facts.words - facts.listed_words)
    copying = rules.copying(facts) if copy is None else copy
    given = rules.given_inputs(facts) if inputs is None else min(inputs, facts.words)
    new = rules.made_up(facts, given) if made_up is None else made_up
    alike = (rules.made_up(facts, 0) if made_up is None else made_up) if given else 0
    folded = (
        (rules.FOLDS if facts.pairs < rules.FEW or facts.inputs < rules.LEAST_DEV else 0) if folds is None else folds
    )
    tagging = given > 0 and facts.tags and not facts.tagged_words
    words = given if tagging else facts.words
    alone = words >= rules.WORDS_ALONE
    outputs = words + (0 if alone else facts.pairs)
    plan = Plan(
        folds=folded,
        dev_pairs=facts.pairs // folded if folded else rules.dev_size(facts.pairs),
        copy=copying,
        made_up=new,
        reverse_made_up=alike,
        words_given_inputs=given,
        inputs_drawn=given > 0 and not facts.tags and facts.varied >= rules.VARIED,
        words_given_tags=tagging,
        repeat=rules.repeats(facts.pairs, new + given),
        reverse_repeat=max(1, min(rules.MOST_REPEATED_IN_REVERSE, alike // (2 * max(facts.pairs, 1)))),
        input_units=facts.input_units,
        output_units=facts.output_units,
        hidden_size=rules.HIDDEN,
        embedding_size=rules.EMBEDDING,
        dropout=rules.DROPOUT,
        batch_size=rules.BATCH,
        updates=rules.updates(facts.pairs),
        paced=rules.paced(facts),
        learning_rate=rules.LEARNING_RATE,
        lm_hidden_size=next(size for least, size in rules.LM_HIDDEN if outputs >= least),
        lm_dropout=rules.DROPOUT,
        lm_updates=min(rules.LM_MOST, max(rules.LM_LEAST, rules.LM_EPOCHS * outputs // rules.LM_BATCH)),
        lm_words_alone=alone,
        word_list=facts.words > 0 and not rules.running_text(facts),
        seen=facts.repeated >= rules.REPEATED,
        without_outputs=without_outputs,
        k1=rules.K1,
        k2=rules.K2,
    )
    chosen = {"--folds": folds, "--copy": copy, "--made-up": made_up, "--inputs": inputs, "--lexicon": lexicon}
    return explained(replace(plan, given=tuple(name for name, value in chosen.items() if value is not None)), counted)


def explained(plan: Plan, facts: Facts, *further: str) -> Plan:
    """The plan with a reason for each choice, and further ones, if it was shortened."""
    return replace(plan, reasons=(*reasons(facts, plan, set(plan.given), shortened=bool(further)), *further))


def check_choices(facts: Facts, made_up: int | None, inputs: int | None, lexicon: bool | None) -> None:
    """Refuse what the data does not allow, in the words of the command line."""
    if made_up and facts.input_units != facts.output_units:
        raise BadInputError(
            f"--made-up: the symbols are {facts.input_units} in the input and {facts.output_units} in the output, so "
            "nothing can stand on both sides; leave it out"
        )
    for name, given in (("--inputs", inputs), ("--lexicon", lexicon is not None)):
        if given and not facts.words:
            raise BadInputError(f"{name} would be ignored: there are no words; give --words, or leave it out")
    if inputs and facts.tags and not facts.tagged_words and not rules.can_tag(facts):
        raise BadInputError(
            f"--inputs: {rules.NO_TAGS}, and {rules.no_tagging(facts)}; give words with tags (--word-columns)"
        )
