"""Blind comparisons: which items, what the page gives away, and how ratings are counted."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands import run_here
from noisychannel.evaluation.held_out import HeldOut
from noisychannel.evaluation.item_outputs import as_json_lines, as_tsv
from noisychannel.evaluation.table import Bootstrap, EvaluationTable, SystemResult
from noisychannel.experiments.design import Design
from noisychannel.experiments.rows import SystemRow
from noisychannel.experiments.running import run_blocks
from noisychannel.experiments.summarisation.design import DESIGN as SUMMARISATION
from noisychannel.prefer.agreement import exact_interval, krippendorff_alpha, pairwise_agreement, sign_test
from noisychannel.prefer.key import Key, key_file
from noisychannel.prefer.outputs import OutputReader, PlainText
from noisychannel.prefer.page import PageRecord, html, make_page, read_page
from noisychannel.prefer.pairing import Comparison, compare
from noisychannel.prefer.ratings import counting, read_ratings
from noisychannel.prefer.tally import LABELS, Tally, decide
from preferring import HOSTILE, artificial, taken_back, toy_comparison, toy_page, write_lines, write_ratings
from toy_experiment import DESIGN, Toy

COMPLAINT = "noisychannel: "


def complaint(*words: object) -> str:
    """The one line of a command that fails on bad input."""
    done = run_here([str(word) for word in words], b"")
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.decode().splitlines()
    return line.removeprefix(COMPLAINT)


def shown(*words: object) -> str:
    done = run_here([str(word) for word in words], b"")
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


# The rule of the paper.


def test_the_rule_against_its_words_in_every_small_case() -> None:
    for raters in range(6):
        for labels in product(LABELS, repeat=raters):
            votes = {label: sum(1 for one in labels if one == label) for label in LABELS}
            winners = [
                label
                for label in LABELS
                if raters >= 2
                and all(votes[label] > votes[other] for other in LABELS if other != label)
                and Fraction(votes[label], raters) >= Fraction(50, 100)
            ]
            decision = decide(labels)
            assert ([decision] if decision in LABELS else []) == winners, labels


@pytest.mark.parametrize(
    ("labels", "decision"),
    [
        (["A better"], "fewer than two raters"),
        (["A better", "B better"], "no single label in plurality"),
        (["A better", "A better", "B better", "both bad"], "A better"),
        (["A better", "A better", "B better", "both bad", "both good"], "less than half agree"),
    ],
)
def test_why_a_segment_is_left_out(labels: list, decision: str) -> None:
    assert decide(labels) == decision


def test_the_tally_is_the_rule_item_by_item(tmp_path: Path) -> None:
    _, _, key = toy_page(tmp_path, 30)
    rng = random.Random(5)
    said = {item.id: rng.choices(LABELS, k=rng.randint(0, 4)) for item in key.items}
    ratings = [artificial(key, item, f"r{n}", label) for item, labels in said.items() for n, label in enumerate(labels)]
    tally = Tally.of(key, counting(ratings))
    expected = Counter(decide(labels) for labels in said.values())
    record = tally.record()
    assert {k: v for k, v in {**record["counts"], **record["left out"]}.items() if v} == expected
    assert record["segments that count"] == sum(expected[label] for label in LABELS) > 5
    for segment in record["segments"]:
        assert list(segment["votes"].values()) == said[segment["item"]]


# Agreement and chance.


def test_alpha_of_the_published_example() -> None:
    """Krippendorff (2011), Computing Krippendorff's alpha-reliability, part C: nominal data with missing ratings."""
    raters = ["1233214 12...", "1233224 125.3", ".333234 2251.", "1233244 1251."]
    raters = [line.replace(" ", "") for line in raters]
    items = [[line[n] for line in raters if line[n] != "."] for n in range(12)]
    alpha = krippendorff_alpha(items)
    assert alpha is not None
    assert round(alpha, 3) == 0.743


def brute_force_alpha(items: list[list[str]]) -> float | None:
    """Disagreement of pairs within items, and of pairs of all labels, each pair taken by itself."""
    items = [labels for labels in items if len(labels) > 1]
    every = [label for labels in items for label in labels]
    observed = [
        Fraction(int(a != b), len(labels) - 1)
        for labels in items
        for (n, a), (m, b) in product(enumerate(labels), repeat=2)
        if n != m
    ]
    expected = [int(a != b) for a, b in combinations(every, 2)]
    if not sum(expected):
        return None
    return float(1 - (sum(observed) / len(every)) / Fraction(sum(expected), len(expected)))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from("xyz"), max_size=4), max_size=6))
def test_agreement_against_brute_force(items: list[list[str]]) -> None:
    expected = brute_force_alpha(items)
    alpha = krippendorff_alpha(items)
    assert alpha == expected or alpha == pytest.approx(expected, abs=1e-12)
    pairs = [(a, b) for labels in items for a, b in combinations(labels, 2)]
    assert pairwise_agreement(items) == (sum(a == b for a, b in pairs) / len(pairs) if pairs else None)


def test_the_sign_test_enumerates_all_outcomes() -> None:
    for n in range(11):
        for one in range(n + 1):
            far = abs(2 * one - n)
            extreme = sum(abs(2 * sum(signs) - n) >= far for signs in product((0, 1), repeat=n))
            assert sign_test(one, n - one) == pytest.approx(extreme / 2**n)


def test_the_sign_test_of_the_paper_s_counts() -> None:
    by_hand = 2 * sum(math.comb(347, k) for k in range(136)) / 2**347
    assert sign_test(135, 212) == sign_test(212, 135) == pytest.approx(by_hand)
    assert by_hand < 1e-4
    assert sign_test(0, 5000) == pytest.approx(0, abs=1e-300)


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (10, 10), (3, 10), (212, 347), (1, 2)])
def test_the_ends_of_the_interval_are_where_the_tails_are_a_fortieth(successes: int, trials: int) -> None:
    low, high = exact_interval(successes, trials)

    def mass(counts: range, p: float) -> float:
        return sum(math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in counts)

    if successes:
        assert mass(range(successes, trials + 1), low) == pytest.approx(0.025)
    if successes < trials:
        assert mass(range(successes + 1), high) == pytest.approx(0.025)
    assert (low == 0, high == 1) == (successes == 0, successes == trials)
    assert low <= successes / trials <= high


# Blindness.


def test_the_page_has_no_word_about_systems_and_files(tmp_path: Path) -> None:
    directory = tmp_path / "secret-place"
    directory.mkdir()
    comparison = replace(toy_comparison(directory), a="zebra-system", b="okapi-system")
    page, key = make_page(comparison)
    text = html(page)
    for word in ("zebra", "okapi", "secret-place", "one.txt", "other.txt", '"seed"', '"equal"', '"key"'):
        assert word not in text
    assert "zebra-system" in key.json()


def sides(comparison: Comparison, secrets: range) -> list[str]:
    return [item.first for secret in secrets for item in make_page(comparison, secret=secret)[1].items]


def swapped(comparison: Comparison) -> Comparison:
    pairs = [pair._replace(a=pair.b, b=pair.a) for pair in comparison.pairs]
    return replace(comparison, a=comparison.b, b=comparison.a, pairs=pairs)


def test_swapped_systems_give_the_same_pages(tmp_path: Path) -> None:
    """Exactly: for each secret with (A, B) there is one with (B, A) that draws the same page with the same chance."""
    comparison = toy_comparison(tmp_path, items=2)

    def pages(one: Comparison) -> Counter:
        drawn = (make_page(one, secret=n)[0] for n in range(4000))
        return Counter(tuple(item.outputs for item in page.items) for page in drawn)

    before, after = pages(comparison), pages(swapped(comparison))
    assert before.keys() == after.keys()
    assert len(before) == 2, "of two items, A is first in exactly one"
    for page, times in before.items():
        assert abs(times - after[page]) < 5 * math.sqrt(2000)


def test_the_side_of_a_system_is_balanced_and_independent_of_place_and_length(tmp_path: Path) -> None:
    comparison = toy_comparison(tmp_path, items=11)
    drawn = sides(comparison, range(2000))
    for place in range(11):
        first = sum(side == "A" for side in drawn[place::11])
        assert abs(first - 1000) < 5 * math.sqrt(500), "at every place of the page, whatever the outputs are there"
    for secret in range(20):
        assert abs(sides(comparison, range(secret, secret + 1)).count("A") - 5.5) < 1
    # All outputs of B are longer: their mean length on the first side is that on the second side.
    pages = [make_page(comparison, secret=secret)[0] for secret in range(400)]
    longer_first = sum(len(item.outputs[0]) > len(item.outputs[1]) for page in pages for item in page.items)
    assert abs(longer_first - 2200) < 5 * math.sqrt(1100)


def test_nobody_can_compute_the_sides_from_the_seed(tmp_path: Path) -> None:
    comparison = toy_comparison(tmp_path, items=40)
    (page, key), (other, other_key) = make_page(comparison), make_page(comparison)
    assert [item.input for item in page.items] == [item.input for item in other.items], "the seed draws the items"
    assert [item.first for item in key.items] != [item.first for item in other_key.items]
    assert not {item.id for item in page.items} & {item.id for item in other.items}
    assert page.page != other.page


def test_nobody_can_compute_the_sides_from_the_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Mersenne Twister of ``random.Random`` can be solved from 624 words of what it drew, whatever its seed."""
    comparison = toy_comparison(tmp_path)

    def predictable(*seed: object) -> random.Random:
        raise AssertionError("a generator whose state follows from its output")

    monkeypatch.setattr("noisychannel.prefer.key.random.Random", predictable)
    page, key = make_page(comparison)
    assert [item.id for item in page.items] == [item.id for item in key.items]


def test_hostile_texts_come_back_and_stay_texts(tmp_path: Path) -> None:
    file, page, _ = toy_page(tmp_path, hostile=True)
    assert read_page(file) == page
    assert {item.input for item in page.items} >= set(HOSTILE)
    assert "window.attacked" in (text := file.read_text(encoding="utf-8"))
    assert text.lower().count("<script") == 3, "the record and two programs"
    assert "<img" not in text
    assert "://" not in text.split("prefer-data")[0] + text.split("</script>")[1]


# Which items.


def test_items_are_those_that_both_have_and_that_differ(tmp_path: Path) -> None:
    comparison = toy_comparison(tmp_path, items=100)
    assert (comparison.common, comparison.equal, comparison.differing) == (150, 50, 100)
    assert all(pair.a != pair.b and int(pair.key.input.split()[1]) % 3 != 2 for pair in comparison.pairs)
    assert (comparison.a, comparison.b) == ("one.txt", "other.txt")
    smaller = toy_comparison(tmp_path, items=10)
    assert len(smaller.pairs) == 10


def test_outputs_that_look_alike_are_equal(tmp_path: Path) -> None:
    files = write_lines(tmp_path, inputs=["x", "y", "z"], a=["a  b ", "e\u0301", "p"], b=["a b", "é", "q"])
    reader = OutputReader(PlainText(files["inputs"]))
    comparison = compare(reader.read(files["a"]), reader.read(files["b"]), 9, 1)
    assert [pair.key.input for pair in comparison.pairs] == ["z"]


def evaluated(file: Path, rows: list[tuple[str, str, str, str]]) -> Path:
    """A file as evaluate --outputs writes it: input, tag, and the outputs of two systems."""
    if file.suffix == ".jsonl":
        lines = [
            json.dumps(
                {
                    "input": given,
                    "features": [tag],
                    "group": "",
                    "columns": {},
                    "references": ["r", "s"],
                    "systems": {
                        name: {"output": output, "right": False, "confidence": None, "complete": True}
                        for name, output in (("direct", one), ("direct+lm", other))
                    },
                }
            )
            for given, tag, one, other in rows
        ]
    else:
        head = "input features references direct direct:_right direct+lm direct+lm:_right direct+lm:_confidence"
        lines = [head.replace(" ", "\t").replace("_", " ")]
        lines += [f"{given}\t{tag}\tr ||| s\t{one}\t0\t{other}\t0\t0.5" for given, tag, one, other in rows]
    file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return file


@pytest.mark.parametrize("suffixes", [(".tsv", ".tsv"), (".jsonl", ".jsonl"), (".tsv", ".jsonl")])
def test_files_of_evaluate_are_matched_by_input_tags_and_occurrence(tmp_path: Path, suffixes: tuple[str, str]) -> None:
    rows = [("x", "SG", "x1", "x2"), ("x", "PL", "p1", "p2"), ("x", "SG", "x1", "x4"), ("only here", "SG", "a", "b")]
    one = evaluated(tmp_path / f"one{suffixes[0]}", rows)
    other = evaluated(tmp_path / f"other{suffixes[1]}", [("new", "SG", "a", "b"), *reversed(rows[:3])])
    reader = OutputReader(PlainText())
    comparison = compare(reader.read(f"{one}:direct"), reader.read(f"{other}:direct+lm"), 9, 1)
    found = {
        (pair.key.features[0], pair.key.occurrence): (pair.a, pair.b, pair.references) for pair in comparison.pairs
    }
    right = ("r", "s")
    assert found == {
        ("SG", 0): ("x1", "x4", right),
        ("SG", 1): ("x1", "x2", right),
        ("PL", 0): ("p1", "p2", right),
    }
    assert (comparison.a, comparison.b) == ("direct", "direct+lm")


def test_what_evaluate_writes_is_read(tmp_path: Path) -> None:
    """Also with columns that have the names of others, systems with and without confidence, and a group."""
    held_out = HeldOut(
        name="test",
        inputs=["Baum", "Haus"],
        features=[("DAT", "PL"), ()],
        references=[["Bäumen", "Baum"], ["Häusern"]],
        groups=["N", "N"],
        columns={"references": ["p", "q"], "direct: right": ["p", "q"]},
        places=["test.tsv:2", "test.tsv:1"],
    )
    outputs = {"direct": ["Bäumen", ""], "a: b": ["Baum", "Haus <b>"]}
    results = [
        SystemResult(
            system=name,
            baseline=False,
            compared_with=None,
            measured={},
            length_ratio=1.0,
            outputs=texts,
            complete=[True, True],
            confidence=[0.5, 0.25] if name == "direct" else None,
        )
        for name, texts in outputs.items()
    ]
    table = EvaluationTable("run", held_out, [], Bootstrap(1, 1, "input", 2), results)
    for file, content in (("o.tsv", as_tsv(table)), ("o.jsonl", as_json_lines(table))):
        (tmp_path / file).write_text(content, encoding="utf-8")
        for name, texts in outputs.items():
            read = OutputReader(PlainText()).read(f"{tmp_path / file}:{name}")
            assert read.name == name
            assert read.items == {
                ("N", "Haus", (), 0): (texts[1], ("Häusern",)),
                ("N", "Baum", ("DAT", "PL"), 0): (texts[0], ("Bäumen", "Baum")),
            }


class WithPairs(Toy):
    """An experiment of two baselines, which needs no training."""

    def training_pairs(self, part, pairs, seed):  # type: ignore[no-untyped-def]
        return [(item.input, f"{item.input}e", item.features) for item in part.dev]


def test_the_files_of_an_experiment(tmp_path: Path) -> None:
    rows = (SystemRow(name="copy", baseline="identity"), SystemRow(name="copy", setting="few: 9", baseline="rules"))
    design: Design = replace(DESIGN, blocks={"plain": rows}, examples=(), plots=())
    toy = WithPairs(tmp_path / "work", design)
    (block,) = run_blocks(toy, ["plain"], tmp_path, "toy")
    file = tmp_path / "toy.plain.outputs.jsonl.xz"
    line = shown("prefer", f"{file}:copy", f"{file}:few: 9: copy", "--parts", "doubled", "--page", tmp_path / "p.html")
    key = Key.read(tmp_path / "p.key.json")
    outputs = [block.outputs(row)[1] for row in (0, 1)]
    differing = [
        (item.input, one, other)
        for (part, _), item, one, other in zip(block.items, block.items.values(), *outputs, strict=True)
        if part == "doubled" and one != other
    ]
    assert differing
    assert sorted((item.input, item.a, item.b) for item in key.items) == sorted(differing)
    assert (key.a, key.b) == ("copy", "few: 9: copy")
    assert f"{len(differing)} of {len(differing)} items" in line
    message = complaint("prefer", file, f"{file}:copies", "--page", tmp_path / "q.html")
    assert "name a row after a colon (FILE:ROW); it has 'copy', 'few: 9: copy'" in message
    assert "did you mean copy?" in complaint("prefer", f"{file}:copies", f"{file}:copy", "--page", tmp_path / "q.html")
    message = complaint("prefer", f"{file}:copy", f"{file}:few: 9: copy", "--parts", "double", "--page", "q.html")
    assert message == "--parts: no item belongs to 'double'; did you mean doubled?"
    assert not (tmp_path / "q.html").exists()


def test_the_documented_rows_of_summarisation_exist() -> None:
    documented = Path(__file__).parents[1] / "docs" / "prefer.md"
    text = documented.read_text(encoding="utf-8")
    names = [row.name for row in SUMMARISATION.blocks["table"]]
    for name in ("direct (bi)", "direct + channel + LM + bias (bi)"):
        assert f"$RESULTS:{name}" in text
        assert names.count(name) == 1, "the name alone says which row of the block is meant"


# Ratings.


def test_the_last_rating_of_a_rater_counts_in_whatever_order_files_come(tmp_path: Path) -> None:
    _, _, key = toy_page(tmp_path)
    x, y, z = (item.id for item in key.items[:3])
    first = [artificial(key, x, "Ann", "A better"), artificial(key, y, "Bob", "A better")]
    second = [artificial(key, x, " ann", "B better"), artificial(key, y, "Cy", "both bad")]
    undone = artificial(key, z, "Ann", "both bad")
    second += [undone, taken_back(undone)]
    files = [write_ratings(tmp_path / "1.jsonl", first), write_ratings(tmp_path / "2.jsonl", second)]
    for order in (files, files[::-1]):
        votes = {one.item.id: one.votes for one in Tally.of(key, read_ratings(order, key, True)).segments if one.votes}
        assert votes == {x: {"ann": "B better"}, y: {"bob": "A better", "cy": "both bad"}}


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_the_tally_depends_neither_on_files_nor_on_which_system_is_a(tmp_path_factory, data: st.DataObject) -> None:
    directory = tmp_path_factory.mktemp("page")
    comparison = toy_comparison(directory, items=4)
    (_, key), mirror = make_page(comparison, secret=1), {"A better": "B better", "B better": "A better"}
    flipped = replace(
        key,
        items=[replace(item, first="B" if item.first == "A" else "A", a=item.b, b=item.a) for item in key.items],
    )
    item = st.sampled_from([one.id for one in key.items])
    said = data.draw(st.lists(st.tuples(item, st.sampled_from("pqrs"), st.sampled_from(LABELS)), max_size=12))
    ratings = [artificial(key, *one) for one in said]
    shuffled = data.draw(st.permutations(ratings))
    one, again = Tally.of(key, counting(ratings)).figures(), Tally.of(key, counting(shuffled)).figures()
    assert one == again
    other = Tally.of(flipped, counting(ratings)).figures()
    assert other["counts"] == {label: one["counts"][mirror.get(label, label)] for label in LABELS}
    assert other["sign test"]["p"] == one["sign test"]["p"]
    assert other["alpha"] == one["alpha"]


def test_the_table(tmp_path: Path) -> None:
    _, _, key = toy_page(tmp_path)
    ids = [item.id for item in key.items]
    said = ["A better"] * 2 + ["B better"] * 7 + ["both good", "both bad"]
    ratings = [artificial(key, x, r, label) for x, label in zip(ids, said, strict=False) for r in ("Ann", "Bob")]  # type: ignore[arg-type]
    file, where = write_ratings(tmp_path / "r.jsonl", ratings), key_file(tmp_path / "page.html")
    text = shown(
        "prefer", "tally", file, "--key", where, "--allow-artificial", "--paper", "--json", tmp_path / "t.json"
    )
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert cells[0] == ["", "segments", "both bad", "both good", "A better", "B better"]
    assert cells[2] == ["artificial ratings", "11", "1", "1", "2", "7"]
    assert cells[3][1:] == ["641", "188", "106", "135", "212"]
    assert text.startswith("ARTIFICIAL RATINGS")
    assert "2 raters, 22 ratings" in text
    alone = write_ratings(tmp_path / "one.jsonl", ratings[:1])
    assert "1 rater, 1 rating. A segment" in shown("prefer", "tally", alone, "--key", where, "--allow-artificial")
    assert "Left out: 1 (fewer than two raters)." in text
    assert "100.0 % of the pairs of raters; Krippendorff's alpha (nominal) 1.000" in text
    assert "B is better in 7 of 9 segments with a preference, 77.8 % [40.0, 97.2]; two-sided p = 0.18." in text
    record = json.loads((tmp_path / "t.json").read_text())
    assert record["artificial ratings"] is True
    assert record["raters"] == {"ann": 11, "bob": 11}
    assert record == json.loads(shown("prefer", "tally", file, "--key", where, "--allow-artificial", "--json", "-"))


def test_trials_are_left_out_and_said(tmp_path: Path) -> None:
    _, _, key = toy_page(tmp_path)
    where = tmp_path / "page.key.json"
    made = [artificial(key, item.id, rater, "A better") for item in key.items[:2] for rater in ("Ann", "Bob")]
    real = [replace(one, artificial=False) for one in made]
    again = artificial(key, key.items[0].id, "Ann", "B better")  # a trial, later than her rating
    undone = artificial(key, key.items[3].id, "Ann", "B better")
    trials = [again, artificial(key, key.items[2].id, "Cy", "both bad"), undone, taken_back(undone)]
    mixed = write_ratings(tmp_path / "mixed.jsonl", [*real, *trials])
    done = run_here(["prefer", "tally", mixed, "--key", str(where), "--json", "-"], b"")
    assert done.returncode == 0, done.stderr
    assert done.stderr.decode() == f"{COMPLAINT}2 artificial ratings (trials or tests) were left out\n"
    alone = shown("prefer", "tally", write_ratings(tmp_path / "real.jsonl", real), "--key", where, "--json", "-")
    assert json.loads(done.stdout) == json.loads(alone)
    assert json.loads(alone)["raters"] == {"ann": 2, "bob": 2}
    line = complaint("prefer", "tally", write_ratings(tmp_path / "trials.jsonl", trials), "--key", where)
    assert line.startswith(f"{tmp_path / 'trials.jsonl'}: all ratings are artificial (trials or tests); ")
    told = shown("prefer", "tally", tmp_path / "trials.jsonl", "--key", where, "--allow-artificial")
    assert told.startswith("ARTIFICIAL RATINGS")


def test_without_ratings_nothing_is_invented(tmp_path: Path) -> None:
    toy_page(tmp_path)
    text = shown("prefer", "tally", write_ratings(tmp_path / "r.jsonl", []), "--key", tmp_path / "page.key.json")
    assert "| not rated yet | –        | –        | –         | –        | –        |" in text
    assert "641" not in text


# Bad input: one line.


def test_bad_ratings_are_one_line(tmp_path: Path) -> None:
    _, _, key = toy_page(tmp_path)
    good = artificial(key, key.items[0].id, "Ann", "both bad")
    where = tmp_path / "page.key.json"

    def refusal(*ratings: object) -> str:
        file = tmp_path / "r.jsonl"
        file.write_text("".join(f"{one if isinstance(one, str) else one.json()}\n" for one in ratings))  # type: ignore[attr-defined]
        done = run_here(["prefer", "tally", str(file), "--key", str(where), "--json", str(tmp_path / "out.json")], b"")
        assert (done.returncode, done.stdout) == (2, b""), done.stderr
        assert not (tmp_path / "out.json").exists()
        (line,) = done.stderr.decode().splitlines()
        assert f"{file}:{len(ratings)}: " in line
        return line

    real = replace(good, artificial=False)
    assert f"but the key is of page '{key.page}'" in refusal(replace(real, page="0" * 16))
    assert "the page has no item 'nothing'" in refusal(real, replace(real, item="nothing"))
    assert "not JSON" in refusal(real, '{"format": 1')
    for changed in ('"both bad"', "Ann", "2020-"):
        assert "damaged" in refusal(real.json().replace(changed, "" if changed == "Ann" else "1"))
    assert "format" in refusal(real.json().replace('"format": 1', '"format": 2'))


def test_exchanged_files_are_told_apart(tmp_path: Path) -> None:
    _, _, key = toy_page(tmp_path)
    where, good = tmp_path / "page.key.json", artificial(key, key.items[0].id, "Ann", "both bad")
    for count in (1, 2):
        ratings = write_ratings(tmp_path / "r.jsonl", [good] * count)
        line = complaint("prefer", "tally", where, "--key", ratings)
        assert line.startswith(f"{ratings} is no key (is it a file of ratings?)")
    assert "page.html is no key" in complaint("prefer", "tally", ratings, "--key", tmp_path / "page.html")
    assert f"{where} is no file of ratings (is it a key?)" in complaint("prefer", "tally", where, "--key", where)
    where.write_text(where.read_text()[:-20])
    done = run_here(["prefer", "tally", ratings, "--key", str(where)], b"")
    assert "damaged" in done.stderr.decode()


def test_an_unknown_system_lists_the_known_ones_once(tmp_path: Path) -> None:
    file = evaluated(tmp_path / "one.tsv", [("x", "SG", "x1", "x2")])
    line = complaint("prefer", f"{file}:zzz", f"{file}:direct", "--page", tmp_path / "p.html")
    assert line == f"{file}: no system 'zzz'; it has 'direct', 'direct+lm'"


def test_a_damaged_file_of_evaluate_is_one_line(tmp_path: Path) -> None:
    rows = [("x", "SG", "x1", "x2"), ("y", "SG", "y1", "y2")]
    for suffix, before, after, expected in (
        ("tsv", "x1\t", "", "one.tsv:2: 7 columns, but the head has 8"),
        ("jsonl", '"x1"', "1", "one.jsonl:1: damaged (systems.direct.output"),
        ("jsonl", '"direct": {"output": "y1"', '"other": {"output": "y1"', "item 2 has no output of direct"),
    ):
        file = evaluated(tmp_path / f"one.{suffix}", rows)
        file.write_text(file.read_text().replace(before, after))
        words = ["prefer", f"{file}:direct", f"{file}:direct+lm", "--page", tmp_path / "p.html"]
        assert expected in complaint(*words)
        assert not (tmp_path / "p.html").exists()


def test_bad_usage_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    files = write_lines(tmp_path, inputs=["x", "y"], a=["1", "2"], b=["1", "3"], short=["1"])
    a, b, page = files["a"], files["b"], tmp_path / "p.html"
    cases = {
        ("prefer", a, b, "--page", page): "name the file of their inputs with --inputs",
        ("prefer", a, "--page", page): "prefer needs two files of outputs",
        ("prefer", a, b, "--inputs", files["inputs"]): "prefer needs two files of outputs and a page",
        ("prefer", a, files["short"], "--inputs", files["inputs"], "--page", page): "ends before line 2",
        ("prefer", a, a, "--inputs", files["inputs"], "--page", page): "the same outputs on all 2 items",
        ("prefer", f"{a}:x", b, "--inputs", files["inputs"], "--page", page): "leave out :x",
        ("prefer", a, b, "--references", b, "--page", page): "give --inputs, or --show-references",
        ("prefer", a, tmp_path / "no", "--inputs", files["inputs"], "--page", page): "no such file",
        ("prefer", a, b, "--inputs", files["inputs"], "--page", tmp_path / "no" / "p.html"): "existing directory",
        ("prefer", a, b, "--inputs", files["inputs"], "--page", page, "--items", 0): "at least 1",
        ("prefer", "serve"): "prefer serve needs a page",
        ("prefer", "serve", page): "no such page",
        ("prefer", "serve", a): "not a page of noisychannel prefer",
        ("prefer", "tally", a): "needs ratings and a key",
        ("prefer", "tally", a, "--key", page): "no such file; name the key",
    }
    before = sorted(tmp_path.iterdir())
    for words, expected in cases.items():
        assert expected in complaint(*words), words
    assert sorted(tmp_path.iterdir()) == before


def test_a_rated_page_is_never_replaced_nor_a_changed_one_served(tmp_path: Path) -> None:
    files = write_lines(tmp_path, inputs=["x", "y"], a=["1", "2"], b=["1", "3"])
    page = tmp_path / "p.html"
    words = ["prefer", files["a"], files["b"], "--inputs", files["inputs"], "--page", page]
    shown(*words)
    content = page.read_bytes(), key_file(page).read_bytes()
    assert "exists, and ratings of that page need its key" in complaint(*words)
    page.unlink()
    assert "p.key.json exists" in complaint(*words)
    assert key_file(page).read_bytes() == content[1]
    page.write_bytes(content[0].replace(b'"input": "y"', b'"input": "z"'))
    assert "was changed after it was made" in complaint("prefer", "serve", page)


def test_references_are_shown_only_if_asked(tmp_path: Path) -> None:
    rows = [("x", "SG", "x1", "x2")]
    file = evaluated(tmp_path / "one.tsv", rows)
    pages: list[PageRecord] = []
    for n, more in enumerate(([], ["--show-references"])):
        shown("prefer", f"{file}:direct", f"{file}:direct+lm", "--page", tmp_path / f"{n}.html", *more)
        pages.append(read_page(tmp_path / f"{n}.html"))
    assert [page.items[0].references for page in pages] == [(), ("r", "s")]
    assert [Key.read(tmp_path / f"{n}.key.json").references for n in (0, 1)] == [False, True]
