"""What ``fit`` counts and chooses, and how it divides pairs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noisychannel.data.prepare import DataConfig
from noisychannel.data.rows import Row
from noisychannel.evaluation.metrics import make_metric
from noisychannel.fitting import progress
from noisychannel.fitting.configs import reverse_config, run_config
from noisychannel.fitting.estimate import choose_default, what_helps
from noisychannel.fitting.facts import Facts, choose_units, count_facts
from noisychannel.fitting.folds import Part, assign_folds, make_parts
from noisychannel.fitting.inputs import choose_words
from noisychannel.fitting.plan import make_plan
from noisychannel.fitting.timing import Speed, estimate_stages, shortened
from noisychannel.text import TextConfig


def row(text: str, output: str, tags: str = "") -> Row:
    return Row(text, output, tuple(tags.split(";")) if tags else (), "", "")


FACTS = Facts(
    pairs=100, inputs=100, words=10_000, tags=True, tagged_words=True, tag_sets=30, copied=0.9, listed=0.1,
    private_symbols=False, listed_words=100,
    input_units="characters", output_units="characters", input_symbols=30, output_symbols=30, input_length=9.0,
    output_length=10.0,
)  # fmt: skip


def test_facts_are_counted() -> None:
    pairs = [row("geben", "gab", "V;PST"), row("leben", "lebte", "V;PST"), row("Tag", "Tage", "N;PL")]
    words = [row("", "gab", "V;PST"), row("", "Tage", "N;SG"), row("", "Tage", "N;SG")]
    facts = count_facts(pairs, words)
    assert (facts.pairs, facts.words, facts.tag_sets) == (3, 2, 2)
    assert facts.tagged_words
    assert facts.listed == pytest.approx(1 / 3)  # Tage is listed with other tags
    # gab: g, b of 3; lebte: l, e, b, e of 5; Tage: 3 of 4.
    assert facts.copied == pytest.approx((2 / 3 + 4 / 5 + 3 / 4) / 3)
    untagged = count_facts([one._replace(features=()) for one in pairs], words)
    assert not untagged.tagged_words
    assert untagged.listed == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("texts", "units"),
    [
        (["cat", "hot dog", "quatschtet fest"], "characters"),
        (["K AE T", "D AO G Z", "AH"], "words"),
        (["the cat sat on the mat", "it rains"], "words"),
        ([], "characters"),
    ],
)
def test_units_are_found(texts: list[str], units: str) -> None:
    assert choose_units(texts) == units


def test_few_pairs_are_helped_by_everything() -> None:
    plan = make_plan(FACTS)
    assert (plan.folds, plan.copy, plan.made_up, plan.words_given_inputs, plan.repeat) == (3, True, 2000, 10_000, 10)
    assert plan.lm_words_alone
    assert plan.systems == ("direct+lm", "direct+channel+lm", "direct+channel+lm+word_list")


def test_with_more_pairs_words_take_the_place_of_made_up_ones() -> None:
    plan = make_plan(replace(FACTS, pairs=1000))
    assert (plan.folds, plan.dev_pairs, plan.made_up, plan.words_given_inputs) == (0, 150, 0, 10_000)
    assert [make_plan(replace(FACTS, pairs=n)).repeat for n in (500, 1_000, 2_000, 50_000)] == [10, 10, 5, 4]
    assert plan.updates > make_plan(FACTS).updates
    assert 0 < make_plan(replace(FACTS, pairs=700)).made_up < make_plan(FACTS).made_up
    # If words cannot be given inputs, nothing takes their place.
    alone = make_plan(replace(FACTS, pairs=1000, words=0, tagged_words=False))
    assert (alone.made_up, alone.words_given_inputs) == (8000, 0)


def test_words_without_tags_are_given_some_if_the_pairs_have_tags() -> None:
    plan = make_plan(replace(FACTS, tagged_words=False))
    assert plan.words_given_tags
    assert not plan.shares_lm
    assert not make_plan(FACTS).words_given_tags
    assert make_plan(FACTS).shares_lm
    for facts in (replace(FACTS, private_symbols=True), replace(FACTS, tag_sets=10_000)):
        assert make_plan(replace(facts, tagged_words=False)).words_given_inputs == 0


def test_sentences_begin_with_an_even_pace() -> None:
    sides = {"input_units": "words", "output_units": "words", "input_symbols": 3_000}
    for facts, share in (
        (FACTS, 0),
        (replace(FACTS, **sides, output_symbols=3_000), 10),
        (replace(FACTS, **sides, output_symbols=40), 0),  # pronunciations
        (replace(FACTS, **{**sides, "input_units": "characters"}, output_symbols=3_000), 0),
    ):
        plan = make_plan(replace(facts, tags=False))
        for config, updates in (
            (run_config(plan, DataConfig(), "run"), plan.updates),
            (reverse_config(plan, DataConfig(), "run"), plan.reverse_updates),
        ):
            paced = {config.direct.paced_updates, config.channel.paced_updates}
            assert paced == {updates // share if share else 0}
            assert config.lm.paced_updates == 0
        assert any("even pace" in reason for reason in plan.reasons) == (share > 0)


def test_running_text_has_counts_of_its_pairs_in_every_system() -> None:
    """Pairs that repeat are running text. An input with several outputs, as in a dictionary, is not."""
    text = count_facts([row("vnd", "und")] * 3 + [row("jn", "in"), row("jn", "ihn")])
    assert text.repeated == pytest.approx(2 / 5)
    assert count_facts([row("jn", "in"), row("jn", "ihn"), row("a", "b", "x"), row("a", "b", "y")]).repeated == 0
    plan = make_plan(replace(FACTS, repeated=0.1))
    assert plan.systems == ("direct+lm+seen", "direct+channel+lm+seen", "direct+channel+lm+word_list+seen")
    (reason,) = (line for line in plan.reasons if "(seen)" in line)
    assert "10 % of the pairs are repetitions" in reason
    without = make_plan(FACTS)
    assert not without.seen
    assert not any("seen" in name for name in without.systems)


def test_sides_that_share_no_alphabet_are_not_copied() -> None:
    for facts in (replace(FACTS, copied=0.2), replace(FACTS, output_units="words", output_symbols=40)):
        plan = make_plan(facts)
        assert (plan.copy, plan.made_up) == (False, 0)
        assert any("copying off" in reason for reason in plan.reasons)
        assert plan.word_list
    text = make_plan(replace(FACTS, output_units="words", output_symbols=5_000, tags=False))
    assert (text.word_list, text.words_given_inputs) == (False, 0)


def test_what_is_given_is_not_chosen() -> None:
    plan = make_plan(FACTS, folds=0, copy=False, made_up=7, inputs=20_000)
    assert (plan.folds, plan.copy, plan.made_up, plan.words_given_inputs) == (0, False, 7, 10_000)
    assert sum("as given" in reason for reason in plan.reasons) == 3  # a split says how many it takes
    assert make_plan(replace(FACTS, words=0, tagged_words=False)).word_list is False


def test_a_list_made_from_the_pairs_does_not_help_to_tune() -> None:
    assert not make_plan(FACTS).without_outputs
    listed = replace(FACTS, listed=1.0)
    assert make_plan(listed).without_outputs
    assert make_plan(listed).words_given_inputs == 9_900
    assert not make_plan(listed, lexicon=True).without_outputs
    assert make_plan(FACTS, lexicon=False).without_outputs
    # If nothing else is listed, it is as if there were no words.
    nothing = make_plan(replace(listed, words=100))
    assert (nothing.lm_words_alone, nothing.word_list, nothing.words_given_inputs) == (False, False, 0)


def test_a_plan_becomes_a_configuration() -> None:
    plan = make_plan(FACTS)
    data = DataConfig(train=["t"], dev=["d"], columns="sigmorphon2016", unpaired=["w"], unpaired_columns="output")
    config = run_config(plan, data, "r")
    config.check()
    assert config.direct.copy
    assert config.direct.bidirectional
    assert not config.channel.bidirectional
    assert not config.lm.copy
    assert config.data.lm_data == "unpaired"
    assert (config.data.augment.made_up, config.data.augment.repeat) == (2000, 10)
    assert config.training.schedule == "linear"
    # Evaluated once, at the end.
    assert config.training.evaluate_every >= max(config.limits(role).updates for role in config.models)  # type: ignore[operator]
    back = reverse_config(plan, data, "r")
    back.check()
    assert back.models == ["direct"]
    assert back.data.columns == "output,features,input"
    mixed = make_plan(replace(FACTS, output_units="words", output_symbols=40))
    assert reverse_config(mixed, data, "r").data.input.units == "words"


def test_a_plan_is_shortened_to_its_time() -> None:
    speed = Speed(direct=0.03, channel=0.02, lm=0.03, processes=2, stacked=False)
    plan = make_plan(FACTS)
    assert shortened(plan, FACTS, speed, 60) == plan
    short = shortened(plan, FACTS, speed, 3)
    assert sum(estimate_stages(short, FACTS, speed).values()) <= 180
    assert short.updates < plan.updates
    assert "3 minutes" in short.reasons[-1]
    for minutes, shown in ((1.0, "more than 1 minute;"), (0.5, "more than 0.5 minutes;")):
        slow = replace(speed, direct=100.0)
        assert shown in shortened(plan, FACTS, slow, minutes).reasons[-1]


def test_the_time_left_follows_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    told: list[progress.Progress] = []
    stages = progress.Stages({"done before": 50.0, "one": 40.0, "two": 60.0}, told.append)
    assert told == []
    with stages.stage("done before"):
        pass
    assert (told[0].share, told[0].seconds_left) == (0.0, 150.0)
    with stages.stage("one") as advance:
        now = 80.0  # twice as long as estimated
        advance(1.0)
    assert told[-1].share == pytest.approx(90 / 150)
    assert told[-1].seconds_left == pytest.approx(120.0)
    assert str(told[-1]) == "stage 2 of 3, one: 60 %, about 2 min left"


inputs_and_tags = st.lists(st.tuples(st.sampled_from("abcdefghij"), st.sampled_from("XYZ")), min_size=20, max_size=60)


@given(inputs_and_tags, st.integers(2, 4), st.integers(0, 5))
def test_an_input_is_never_in_two_folds(items: list[tuple[str, str]], folds: int, seed: int) -> None:
    pairs = [row(text, f"{text}{n}", tags) for n, (text, tags) in enumerate(items)]
    parts = make_parts(pairs, folds, 5, seed)
    assert [one for part in parts[:-1] for one in part.held_out] != []
    assert sorted(one for part in parts[:-1] for one in part.held_out) == sorted(pairs)
    for part in parts:
        assert not {one.input for one in part.train} & {one.input for one in part.held_out}
        assert sorted((*part.train, *part.held_out)) == sorted(pairs)
    (split,) = make_parts(pairs, 0, 5, seed)
    assert not {one.input for one in split.train} & {one.input for one in split.held_out}


def test_folds_share_tag_sets() -> None:
    pairs = [row(f"x{n}", f"y{n}", "ABCDEFGHIJ"[n % 10]) for n in range(30)]
    assigned = assign_folds(pairs, 3, seed=1)
    assert sorted(map(assigned.count, range(3))) == [10, 10, 10]
    for tag in "ABCDEFGHIJ":
        assert {fold for one, fold in zip(pairs, assigned, strict=True) if one.features == (tag,)} == {0, 1, 2}


def test_words_of_training_pairs_are_not_given_inputs() -> None:
    words = [row("", f"w{n}", "N") for n in range(50)]
    train = [row("x", "w3", "N"), row("x", "w4", "V")]
    tagged = choose_words(words, train, 50, True, 1)
    assert {one.output for one in words} - {one.output for one in tagged} == {"w3"}
    plain = choose_words(words, train, 50, False, 1)
    assert {one.output for one in words} - {one.output for one in plain} == {"w3", "w4"}
    some = choose_words(words, [], 10, True, 1)
    assert len(some) == 10
    assert some == choose_words(words, [], 10, True, 1)
    assert some != choose_words(words, [], 10, True, 2)


def test_advice_follows_from_the_data() -> None:
    pairs = [row(f"x{n}", f"y{n}", f"T{n}") for n in range(20)]
    part = Part("fold1", tuple(pairs[:10]), tuple(pairs[10:]))
    right = [True] * 5 + [False] * 5
    plain = replace(FACTS, pairs=20, tag_sets=20, tagged_words=False)
    helps = what_helps(plain, [part], right, [])
    assert helps[0].startswith("tags for the words")
    assert any("rare tag sets" in line and "50 %" in line for line in helps)
    listed = what_helps(replace(plain, tagged_words=True), [part], right, [row("", f"y{n}") for n in range(10, 15)])
    assert any(line.startswith("more words: 100 %") for line in listed)
    assert what_helps(plain, [part], right, [], trained=0.2)[0].startswith("more time (--minutes): the models had 20 %")
    assert what_helps(replace(plain, words=0), [part], right, [])[0].startswith("a list of words")
    twice = Part("fold1", (row("a", "b"), row("a", "c")), (row("d", "e"),))
    assert any("several outputs" in line for line in what_helps(replace(plain, tags=False), [twice], [True], []))


def test_the_default_is_the_largest_system_that_is_not_clearly_worse() -> None:
    rows = [row(f"x{n}", "right") for n in range(100)]
    metric = make_metric("accuracy", None, TextConfig())

    def outputs(wrong: int) -> list[str]:
        return ["wrong"] * wrong + ["right"] * (100 - wrong)

    assert choose_default({"small": outputs(24), "large": outputs(25)}, rows, metric) == "large"
    assert choose_default({"small": outputs(20), "large": outputs(40)}, rows, metric) == "small"
    assert choose_default({"small": outputs(40), "large": outputs(20), "more": outputs(30)}, rows, metric) == "large"


def test_an_input_with_very_many_pairs_is_not_split_off() -> None:
    pairs = [row("often", f"y{n}") for n in range(400)] + [row(f"x{n}", "y") for n in range(200)]
    for seed in range(5):
        (part,) = make_parts(pairs, 0, 100, seed)
        assert len(part.held_out) == 100
        assert all(one.input != "often" for one in part.held_out)
