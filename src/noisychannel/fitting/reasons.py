"""Why ``fit`` has chosen: a sentence for each choice of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noisychannel.fitting.facts import Facts
from noisychannel.fitting.rules import FEW, NO_TAGS, copying, no_tagging, running_text

if TYPE_CHECKING:
    from noisychannel.fitting.plan import Plan


def reasons(facts: Facts, plan: Plan, given: set[str], shortened: bool = False) -> tuple[str, ...]:
    """A sentence for each choice; ``given``: the options that decided instead. ``shortened``: the time decided."""
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
    if "--made-up" in given:
        found.append(f"{plan.made_up:,} made-up pairs: as given")
    elif plan.made_up:
        found.append(f"{plan.made_up:,} made-up pairs with new stems: few pairs do not teach what stays the same")
    else:
        copied = copying(facts)
        found.append(
            f"no made-up pairs: {'with so many pairs, words do better' if copied else percent + _sides(facts)}"
        )
    if plan.words_given_inputs:
        why = "as given" if "--inputs" in given else "they show the models real outputs"
        why += ", as many as there is time for" if shortened else ""
        what = "tags and inputs" if plan.words_given_tags else "inputs"
        found.append(f"{plan.words_given_inputs:,} words are given {what} by a reverse model: {why}")
        if plan.inputs_drawn:
            found.append(
                "these inputs are drawn, and not the most probable ones: the outputs of "
                f"{100 * facts.varied:.0f} % of the pairs are written in several ways"
            )
    elif facts.words:
        why = f"{NO_TAGS}, and {no_tagging(facts)}" if facts.tags and not facts.tagged_words else "too few"
        why = "running text" if running_text(facts) else why
        found.append(f"words are not given inputs: {'as given' if '--inputs' in given else why}")
    if plan.repeat > 1:
        found.append(f"each real pair counts {plan.repeat} times, so that they are not lost among the made ones")
    found.append(
        f"direct and channel: {plan.hidden_size} units, dropout {plan.dropout:g}, {plan.updates:,} updates of "
        f"{plan.batch_size}, by {'the time that there is' if shortened else 'the number of pairs'}"
    )
    if plan.paced:
        found.append("direct and channel begin with an even pace: between sentences, word order may differ")
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
