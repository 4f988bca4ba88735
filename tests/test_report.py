"""``noisychannel report``: its numbers are those of ``evaluate``, it is one safe file, and any run has a page."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import run_here
from noisychannel import Weights
from noisychannel.arguments import dump_config
from noisychannel.cli.main import main
from noisychannel.data.prepare import DataSource
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.settings import SearchSettings
from noisychannel.evaluation.metrics import make_metric
from noisychannel.evaluation.significance import confidence_interval, curve_intervals, difference_interval
from noisychannel.fitting.estimate import Estimate
from noisychannel.fitting.facts import count_facts
from noisychannel.fitting.plan import make_plan
from noisychannel.fitting.work import Begun, Done, Work
from noisychannel.outputs import Output
from noisychannel.report.disagreements import disagreements_section, find_disagreements
from noisychannel.report.kinds import kinds_section
from noisychannel.report.options import PageOptions
from noisychannel.report.page import make_page
from noisychannel.report.search_errors import scored_errors, search_errors_section
from noisychannel.report.section import marked_text, shown_text, spread
from noisychannel.report.subject import Remembering, Subject, make_subject
from noisychannel.report.symbols import confusions, symbols_section
from noisychannel.report.training import POINTS, read_losses, thinned, training_section
from noisychannel.report.weights import grid, make_pool, weight_curve, weights_section
from noisychannel.report.words import words_section
from noisychannel.reporting import Silent
from noisychannel.runs import RunDirectory
from noisychannel.training.config import RunConfig
from noisychannel.weights import TunedSystem, write_systems
from pages_read import PageReader
from toys import double_vowels, tag, toy_config, write_pairs

CHROMIUM = Path("/usr/bin/chromium")
SECTIONS = {
    *("systems", "training", "learning", "weights", "disagreements", "search-errors", "errors", "symbols"),
    *("alignments", "coverage", "words"),
}
FEW = PageOptions(samples=50, device="cpu", limit=20)


def train(config: RunConfig, directory: Path) -> Path:
    (directory / "config.yaml").write_text(dump_config(config))
    assert main(["train", str(directory / "config.yaml")]) == 0
    return Path(config.run_dir)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vowel doubling with all models; the direct model gets some of it right."""
    directory = tmp_path_factory.mktemp("tuned")
    config = toy_config(directory, models=("direct", "channel", "lm"), rows=200, longest=4, max_epochs=4)
    run = train(config, directory)
    words = ["--k1", "4", "--k2", "2", "--iterations", "1", "--n_best", "5", "--device", "cpu"]
    assert main(["tune", str(run), "--systems", "direct+lm,direct+channel+lm", *words]) == 0
    return run


@pytest.fixture(scope="module")
def test_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty words; one reference in five is not what the models learn."""
    file = write_pairs(tmp_path_factory.mktemp("data") / "test.tsv", double_vowels, 40, 7, 4)
    lines = [line.split("\t") for line in file.read_text().splitlines()]
    file.write_text("".join(f"{x}\t{x if n % 5 == 0 else y}\n" for n, (x, y) in enumerate(lines)))
    return file


@pytest.fixture(scope="module")
def subject(tuned: Path, test_file: Path) -> Subject:
    return make_subject(RunDirectory.open(tuned), replace(FEW, test=str(test_file), limit=0), Remembering(Silent()))


def report(run: Path, *words: str) -> PageReader:
    """The page of a run, as written by the command."""
    file = run.parent / "page.html"
    assert main(["report", str(run), *words, "--output", str(file), "--device", "cpu", "--samples", "100"]) == 0
    return PageReader(file.read_text(encoding="utf-8"))


# --- the numbers


def test_its_numbers_are_those_of_evaluate(tuned: Path, test_file: Path, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    words = ["--device", "cpu", "--samples", "100", "--baselines", "identity", "--search-errors"]
    chosen = ["--metrics", "accuracy,edit_distance", "--json", str(result)]
    assert main(["evaluate", str(tuned), str(test_file), *words, *chosen]) == 0
    record: dict[str, Any] = json.loads(result.read_text())
    page = report(tuned, str(test_file), "--baselines", "identity")
    rows = {row[0].removesuffix(" (decode uses this)"): row for row in page.table("systems", "system")}
    assert rows.keys() == {system["system"] for system in record["systems"]}
    for system in record["systems"]:
        expected = []
        for metric in ("accuracy", "edit_distance"):
            value = system["measured"][metric]
            p_value = "" if value["p_value"] is None else f"{value['p_value']:.3f}"
            expected += [f"{value['score']:.2f}", f"[{value['low']:.2f}, {value['high']:.2f}]", p_value]
        assert rows[system["system"]][1:-1] == [*expected, f"{system['length_ratio']:.3f}"]
    assert rows["identity"][-1] == "", "it learns nothing from the training pairs"
    scores = {name: float(row[1]) for name, row in rows.items()}
    simple = scores.pop("identity")
    assert ("The baseline identity" in page.texts[""]) == (simple > max(scores.values()))
    default = record["systems"][-1]
    (points,) = (rows for rows in page.tables["coverage"] if rows[0][0].startswith("coverage"))
    column = points[0].index(default["system"])
    assert [float(row[column]) for row in points[1:]] == [
        pytest.approx(point["accuracy"], abs=0.006) for point in default["reliability"]["curve"]
    ]
    kinds = {kind["kind"]: kind["count"] for kind in record["errors"]["kinds"]}
    shown = {row[0]: int(row[1]) for row in page.table("errors", "error")}
    assert shown == dict(list(kinds.items())[: len(shown)])
    wrong = record["errors"]["wrong"]
    by_search = round(default["search_errors"] / 100 * record["sentences"])
    reasons = {row[0].split(":")[0]: row[2] for row in page.tables["search-errors"][0][1:]}
    assert reasons["search errors"] == f"{by_search} ({100 * by_search / wrong:.1f} %)"


def test_a_baseline_that_is_better_is_said_at_the_top(tuned: Path, tmp_path: Path) -> None:
    test = tmp_path / "test.tsv"
    test.write_text("".join(f"{x}\t{x}\n" for x in ("abe", "eki", "odu", "bad")))
    page = report(tuned, str(test), "--baselines", "identity,rules")
    rows = {row[0].removesuffix(" (decode uses this)"): row for row in page.table("systems", "system")}
    best = max((row for name, row in rows.items() if name not in ("identity", "rules")), key=lambda row: float(row[1]))
    assert float(best[1]) < 100
    assert "The baseline identity (100.00) is better here than every system of the run; the best" in page.texts[""]
    assert f"({best[1]})." in page.texts[""]
    assert rows["rules"][-1] == "made from the training pairs"


def test_disagreements_are_those_of_the_outputs(subject: Subject) -> None:
    table, references = subject.table, subject.held_out.references
    ours, alone = table.result(subject.shown.label).outputs, table.result("direct").outputs
    assert subject.base is not None
    found = {one.item: one.gain for one in find_disagreements(subject)}
    assert found == {
        n: float((a in references[n]) - (b in references[n]))
        for n, (a, b) in enumerate(zip(ours, alone, strict=True))
        if a != b
    }
    text = PageReader(disagreements_section(subject, "").body).texts[""]
    assert f"give different outputs for {len(found)} of {len(ours)} items" in text


def test_the_terms_of_an_example_add_up_to_its_objective(subject: Subject) -> None:
    body = PageReader(disagreements_section(subject, "").body)
    tables = [rows for rows in body.tables[""] if rows[0][0] == "output of"]
    best = {f"{output.hypothesis.score:.2f}" for output in subject.shown.best}
    assert tables, "the toy systems never disagree: choose other data"
    for rows in tables:
        for row in rows[1:]:
            assert sum(map(float, row[1:-1])) == pytest.approx(float(row[-1]), abs=0.03)
        assert rows[1][-1] in best


@pytest.fixture(scope="module")
def per_symbol(tuned: Path, test_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """The same models; one of the systems weighs terms per symbol."""
    run = RunDirectory.open(copied(tuned, tmp_path_factory.mktemp("per_symbol")))
    settings = SearchSettings(k1=6, k2=6, per_symbol=True)
    weights = Weights(channel=0.6, lm=0.3, length=0.5)
    write_systems(run, [TunedSystem("direct+channel+lm", weights, settings, {"metric": "accuracy"})])
    return make_subject(run, replace(FEW, test=str(test_file), limit=0), Remembering(Silent()))


def test_terms_per_symbol_add_up_to_the_objective(per_symbol: Subject) -> None:
    assert per_symbol.shown.models[0].settings.per_symbol
    test_the_terms_of_an_example_add_up_to_its_objective(per_symbol)
    model = per_symbol.shown.models[0]
    for n, rows in _tables_of_examples(per_symbol):
        for system, row in zip((per_symbol.shown, per_symbol.base), rows[1:], strict=True):
            assert system is not None
            (ours,) = model.score_ids([per_symbol.held_out.inputs[n]], [[system.best[n].hypothesis.tokens]], [()])[0]
            assert float(row[-1]) == pytest.approx(ours.score, abs=0.03)
    assert "terms per symbol" in per_symbol.caption(per_symbol.shown)


def _tables_of_examples(subject: Subject) -> list[tuple[int, list[list[str]]]]:
    """The tables of the section with the items that they are of, in its order."""
    found = find_disagreements(subject)
    right = subject.right(subject.shown)
    kinds = [
        [one for one in found if one.gain > 0],
        [one for one in found if one.gain < 0],
        [one for one in found if one.gain == 0 and not right[one.item]],
        [one for one in found if one.gain == 0 and right[one.item]],
    ]
    items = [one.item for some in kinds for one in spread(some, 3)]
    body = PageReader(disagreements_section(subject, "").body)
    tables = [rows for rows in body.tables[""] if rows[0][0] == "output of"]
    return list(zip(items, tables, strict=True))


def test_a_weight_curve_of_terms_per_symbol(per_symbol: Subject) -> None:
    test_a_weight_curve_is_what_ranking_again_by_hand_gives(per_symbol)


def test_search_errors_are_references_that_score_higher(subject: Subject) -> None:
    model = subject.shown.models[0]
    for one in scored_errors(subject):
        text = subject.held_out.inputs[one.item]
        outputs = [subject.held_out.references[one.item][0], subject.shown.best[one.item].text]
        ranked = model.rerank(text, outputs)
        assert ranked[0].hypothesis.score == pytest.approx(max(one.ours.score, one.reference.score), abs=1e-3)
        assert one.by_search is (one.reference.score > one.ours.score + 1e-3)


def test_a_weight_curve_is_what_ranking_again_by_hand_gives(subject: Subject) -> None:
    metric = subject.table.metrics[0]
    tuned, pool = subject.shown.tuned[0], make_pool(subject, metric)
    (free,) = (weight for weight in tuned.system.free if weight.name == "channel")
    candidates = pool.under(tuned.system)
    curve = weight_curve(candidates, tuned.system, tuned.weights, free, subject.evaluation.units, 50, 1)
    assert tuned.weights.channel in curve.values
    assert len(pool) > 2 * len(subject.held_out.inputs), "lists, not only the best outputs"
    for value, score in list(zip(curve.values, curve.scores, strict=True))[::16]:
        weights = Weights.of({**tuned.weights.by_name(), "channel": float(value)})
        right = 0
        for n, references in enumerate(subject.held_out.references):
            texts = {
                output.hypothesis.tokens: output.text
                for decoded in subject.evaluation.decoded
                for output in decoded.outputs[0][n]
            }
            ids = list(texts)
            model = subject.shown.models[0].reweighted(weights)
            scored = model.score_ids([subject.held_out.inputs[n]], [ids], [()])[0]
            best = max(scored, key=lambda hypothesis: hypothesis.score)
            right += texts[best.tokens] in references
        assert score == pytest.approx(100 * right / len(subject.held_out.inputs))


def test_bands_of_a_curve_are_the_intervals_of_each_point() -> None:
    rng = np.random.default_rng(3)
    metric, statistics = make_metric("accuracy"), rng.integers(0, 2, (4, 30, 1)).astype(float)
    units = [n // 2 for n in range(30)]
    own, differences = curve_intervals(metric, statistics, 2, 200, 5, groups=units)
    for k in range(4):
        assert tuple(own[k]) == pytest.approx(confidence_interval(metric, statistics[k], 200, 5, groups=units))
        expected = difference_interval(metric, statistics[k], statistics[2], 200, 5, groups=units)
        assert tuple(differences[k]) == pytest.approx(expected)


def test_a_grid_has_the_tuned_weight_and_none(subject: Subject) -> None:
    for free in subject.shown.tuned[0].system.free:
        values = grid(0.7, free)
        assert 0.7 in values
        assert values[0] <= 0 <= values[-1]
        assert (np.diff(values) > 0).all()


def test_confusions_are_counted_symbol_by_symbol() -> None:
    counts = confusions([("abc", "abd"), ("ac", "abc"), ("xab", "ab"), ("abd", "abc")])
    assert counts == Counter({("c", "d"): 1, ("", "b"): 1, ("x", ""): 1, ("d", "c"): 1})


def test_differences_are_marked() -> None:
    assert marked_text("ab<c", "abd", True).count("<mark>") == 1
    assert "&lt;c</mark>" in marked_text("ab<c", "abd", True)
    assert "missing" in marked_text("a c", "a b c", False)


@pytest.mark.parametrize("characters", [True, False])
def test_a_text_of_any_length_stays_short(characters: bool) -> None:
    word = "<" * 100_000
    for markup in (shown_text(word), marked_text(word, "b", characters), marked_text("b", word, characters)):
        assert len(markup) < 5000


def test_examples_are_spread_evenly() -> None:
    assert spread(range(10), 5) == [0, 2, 4, 6, 8]
    assert spread([1, 2], 5) == [1, 2]
    points = [(float(n), float((n - 777) ** 2)) for n in range(5000)]
    kept = thinned(points)
    assert len(kept) <= POINTS
    assert (777.0, 0.0) in kept
    assert points[-1] in kept


# --- the file


def test_it_is_one_safe_file_and_always_the_same(tuned: Path, tmp_path: Path) -> None:
    """What hostile data hold stays text."""
    hostile = ["<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>", "\"'&<!--", "]]></svg>"]
    file = tmp_path / "test.tsv"
    file.write_text("".join(f"{text}\t{text}{text}\n" for text in hostile) + "ab\taab\n")
    words = ["report", str(tuned), str(file), "--output", str(tmp_path / "page.html"), "--device", "cpu"]
    words += ["--samples", "20"]
    assert main(words) == 0
    first = (tmp_path / "page.html").read_bytes()
    assert main(words) == 0
    assert (tmp_path / "page.html").read_bytes() == first
    text = first.decode()
    page = PageReader(text)
    assert not {name for name, _ in page.tags} & {"script", "img", "iframe", "object", "link", "base", "form"}
    for _, attributes in page.tags:
        assert not any(name.startswith("on") or name in ("src", "srcset", "action") for name in attributes)
        assert (attributes.get("href") or "#").startswith("#")
    assert not re.search(r"@import|url\(|https?:", text)
    assert hostile[0] in "".join(page.texts.values())
    assert len(first) < 500_000


def test_every_section_says_where_its_numbers_come_from(tuned: Path) -> None:
    page = report(tuned)
    assert set(page.tables) - {""} == SECTIONS
    for section in SECTIONS - {"learning", "training", "words"}:
        for part in ("Data: dev data (", "60 items", "the weights were tuned on these data", "seed 1", "Reported by"):
            assert part in page.texts[section], section
    for section in ("weights", "disagreements", "search-errors", "errors", "symbols", "alignments", "coverage"):
        assert re.search(r"direct\+channel\+lm: weights direct 1, channel [\d.]+, lm", page.texts[section])
    assert "Measured on dev data." in page.texts[""]
    assert "noisychannel report" in page.texts[""]
    anchors = {attributes["id"] for name, attributes in page.tags if name == "section"}
    assert {(attributes["href"] or "")[1:] for name, attributes in page.tags if name == "a"} <= anchors


def test_words_that_a_reader_may_not_know_are_explained(tuned: Path) -> None:
    page = report(tuned)
    words = page.texts["words"]
    for word in (
        "channelThe channel model",
        "lmThe language model",
        "lengthThe number",
        "term, weight, score",
        "k1, k2",
    ):
        assert word in words
    assert "word_list" not in words, "this run has none"
    shown = "".join(page.texts.values())
    for jargon in ("O(output)", "equation (3)", "proposing model", "␄", "the objective"):
        assert jargon not in shown, jargon
    assert any("edit distance" in table[0] for table in page.tables["systems"])


def test_a_term_that_a_user_added_is_explained_too() -> None:
    body = words_section({"direct", "<news>"}).body
    assert "<dt>&lt;news&gt;</dt><dd>A term that was added to this run.</dd>" in body
    assert "language model:" not in body


@pytest.mark.long
def test_a_page_of_many_long_sentences_is_small(subject: Subject) -> None:
    """Three thousand outputs of forty words from a vocabulary of 30,000; none of them is right."""
    rng = np.random.default_rng(1)
    items = 3000
    texts = [[" ".join(f"word{n}" for n in rng.integers(0, 30_000, 40)) for _ in range(items)] for _ in range(4)]
    group = subject.evaluation.groups[0]
    held_out = replace(
        group.held_out, inputs=texts[0], features=[()] * items, references=[[text] for text in texts[1]],
        groups=[""] * items, columns={}, places=[],
    )  # fmt: skip
    evaluation = replace(
        subject.evaluation, groups=[replace(group, held_out=held_out)], units=list(range(items)),
        table=replace(subject.table, held_out=held_out),
    )  # fmt: skip
    terms = {"direct": -1.0, "channel": -2.0, "lm": -3.0}
    large = []
    for decoded, outputs in zip((subject.shown, subject.base), texts[2:], strict=True):
        assert decoded is not None
        found = [[Output(text, Hypothesis.of((n,), -4.0, terms, 41, True))] for n, text in enumerate(outputs)]
        large.append(replace(decoded, outputs=[found]))
    many = replace(subject, evaluation=evaluation, shown=large[0], base=large[1], total=items)
    sections = [symbols_section(many, ""), disagreements_section(many, ""), search_errors_section(many, "")]
    assert all(section.body for section in sections)
    assert sum(len(section.body.encode()) for section in sections) < 1_000_000


@pytest.mark.skipif(not CHROMIUM.exists(), reason="there is no /usr/bin/chromium")
def test_a_browser_opens_it_without_network_or_complaint(tuned: Path, tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    file = tmp_path / "page.html"
    file.write_text(make_page(RunDirectory.open(tuned), FEW), encoding="utf-8")
    flags = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync"]
    complaints: list[str] = []
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=str(CHROMIUM), args=flags)
        for width in (1200, 360):
            page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme="dark")
            page.on("console", lambda message: complaints.append(message.text))
            page.on("request", lambda asked: complaints.append(asked.url) if "file:" not in asked.url else None)
            page.goto(file.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            page.locator("#weights summary").first.click()
            assert page.locator("#weights figure table").first.is_visible()
        browser.close()
    assert not complaints


# --- any run


def copied(run: Path, place: Path) -> Path:
    return Path(shutil.copytree(run, place / "run"))


def test_a_run_that_was_never_tuned(tuned: Path, tmp_path: Path) -> None:
    run = copied(tuned, tmp_path)
    (run / "weights.json").unlink()
    page = report(run, "--limit", "5")
    assert "not tuned, so the direct model is evaluated alone" in page.texts[""]
    for section in ("weights", "disagreements", "coverage"):
        assert "Left out." in page.texts[section]
    assert "Left out." not in page.texts["alignments"] + page.texts["training"]


def test_outputs_that_are_better_or_worse_instead_of_right_or_wrong(tuned: Path, test_file: Path) -> None:
    page = report(tuned, str(test_file), "--metrics", "chrf", "--limit", "8")
    assert "Outputs are compared by chrf of the item." in page.texts["disagreements"]
    assert "Left out. Outputs are measured by chrf" in page.texts["errors"]
    assert "dev data" in page.texts["weights"]
    assert "test data" in page.texts["systems"]


@pytest.mark.parametrize("content", [None, "", "nonsense\n{}\n", '{"model": "direct", "kind": "dev", "step": 1}\n'])
def test_training_curves_that_cannot_be_drawn(tuned: Path, tmp_path: Path, content: str | None) -> None:
    run = copied(tuned, tmp_path)
    (run / "metrics.jsonl").unlink()
    if content is not None:
        (run / "metrics.jsonl").write_text(content)
    section = training_section(RunDirectory.open(run))
    assert "metrics.jsonl" in section.reason
    assert not section.body


def test_a_damaged_line_of_the_metrics_is_left_out(tuned: Path, tmp_path: Path) -> None:
    run = copied(tuned, tmp_path)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"model": "direct", "ki')
    losses, damaged = read_losses(RunDirectory.open(run))
    assert damaged == 1
    assert losses == read_losses(RunDirectory.open(tuned))[0]


def test_a_run_without_a_model_that_proposes(tuned: Path, tmp_path: Path) -> None:
    run = copied(tuned, tmp_path)
    header = json.loads((run / "run.json").read_text())
    header["files"] = {name: sum_ for name, sum_ in header["files"].items() if not name.startswith("direct/")}
    (run / "run.json").write_text(json.dumps(header))
    shutil.rmtree(run / "direct")
    page = report(run)
    assert "No model of this run proposes outputs" in page.texts[""]
    assert "lm" in page.texts["training"]


def test_a_run_whose_dev_data_are_gone(tuned: Path, tmp_path: Path) -> None:
    run = copied(tuned, tmp_path)
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("dev.tsv", "gone.tsv"))
    page = report(run)
    assert "The dev data of the run cannot be read" in page.texts[""]
    assert "weights" not in page.texts


def test_a_run_with_tags_and_a_word_list(tmp_path: Path) -> None:
    config = toy_config(tmp_path, models=("direct", "channel", "lm"), rows=60, longest=3, max_epochs=1)
    tag(config, "V;PST")
    config.lm = replace(config.lm, word_list=True)
    run = train(config, tmp_path)
    words = ["--systems", "direct+channel+lm+word_list", "--iterations", "0", "--k1", "2", "--k2", "1"]
    assert main(["tune", str(run), *words, "--limit", "20"]) == 0
    page = report(run, "--limit", "12")
    assert "word_list: about as good from" in page.texts["weights"]
    assert "<PST>" in page.texts["alignments"]


def test_a_run_with_groups(tmp_path: Path) -> None:
    config = toy_config(tmp_path, rows=60, longest=3, max_epochs=1)
    for file in map(Path, (*config.data.train, *config.data.dev)):
        lines = file.read_text().splitlines()
        file.write_text("".join(f"{line}\tpart {n % 2}\n" for n, line in enumerate(lines)))
    config.data.columns = "input,output,group"
    page = report(train(config, tmp_path), "--limit", "4")
    assert "8 items drawn from 60" in page.texts["systems"]
    assert [row[0] for row in page.table("training", "model")] == ["part 0: direct", "part 1: direct"]
    assert "Left out." not in page.texts["alignments"]


def fitted_with_folds(tuned: Path, directory: Path) -> Path:
    """A copy of a run, as ``fit`` would have left it: its dev data are its training pairs."""
    run = copied(tuned, directory)
    header = json.loads((run / "run.json").read_text())
    header["data"]["sources"]["dev"] = header["data"]["sources"]["train"]
    (run / "run.json").write_text(json.dumps(header))
    rows = list(DataSource(RunDirectory.open(run).data_config).rows("train"))
    facts = count_facts(rows, [])
    begun = Begun("0.6.0", 1, {"seed": 1}, {}, facts, make_plan(facts))
    estimates = (Estimate("rules", 40.5, 30.25, 50.0, True), Estimate("direct+channel+lm", 61.5, 52.0, 70.75))
    done = Done(begun, "direct+channel+lm", "accuracy", 200, estimates, ("more <pairs>",), 0, 1.0)
    Work(run).finish(done)
    return run


def test_a_run_that_fit_made_from_all_pairs(tuned: Path, tmp_path: Path) -> None:
    """Nothing is measured on its dev data, and the estimate of fit is shown."""
    run = fitted_with_folds(tuned, tmp_path)
    page = report(run)
    reason = f"This run was fitted with folds: it has no dev set. Give a test set: noisychannel report {run} TEST"
    assert [text.count(reason) for text in page.texts.values() if reason in text] == [1]
    assert reason in page.texts[""]
    assert "Left out, for the reason at the top: How the metric depends on each weight; Where" in page.texts[""]
    assert page.texts.keys() == {"", "systems", "training", "learning", "words"}
    assert "61.50 [52.00, 70.75]" in page.texts["systems"]
    assert "more <pairs>" in page.texts["systems"]
    assert "what is called dev here are training pairs" in page.texts["training"]
    assert "best dev perplexity, where the mark is" not in page.texts["training"]
    (run / "fit.json").write_text("{}")
    assert "fit.json: damaged" in report(run).texts["systems"]


def test_a_page_without_items_replaces_none_with_items(tuned: Path, test_file: Path, tmp_path: Path) -> None:
    run = fitted_with_folds(tuned, tmp_path)
    short = ["--limit", "2", "--samples", "5", "--device", "cpu"]
    # The first page says what it lacks, and can be replaced by any other.
    done = run_here(["report", str(run)], b"")
    assert done.returncode == 0
    told = done.stderr.decode()
    assert f"Give a test set: noisychannel report {run} TEST; the page is written without these sections: How " in told
    assert run_here(["report", str(run)], b"").returncode == 0
    assert run_here(["report", str(run), str(test_file), *short], b"").returncode == 0
    good = (run / "report.html").read_bytes()
    done = run_here(["report", str(run)], b"")
    assert done.returncode == 2
    [line] = done.stderr.decode().splitlines()
    for part in ("report.html is a report with items", "it has no dev set", f"report {run} TEST", "another file"):
        assert part in line
    assert (run / "report.html").read_bytes() == good
    assert run_here(["report", str(run), "--output", str(tmp_path / "other.html")], b"").returncode == 0
    assert run_here(["report", str(run), str(test_file), *short], b"").returncode == 0


def test_a_run_that_is_still_trained(tuned: Path, tmp_path: Path) -> None:
    run = copied(tuned, tmp_path)
    (run / "lm" / "training.safetensors").write_bytes(b"")
    page = report(run, "--limit", "3")
    assert "the training of lm is unfinished" in page.texts[""]
    assert ["lm", "unfinished"] in [[row[0], row[-1]] for row in page.table("training", "model")]


def test_a_run_of_attention_alone(tmp_path: Path) -> None:
    config = toy_config(tmp_path, models=("attention",), rows=60, longest=3, max_epochs=1)
    config.attention.hidden_size = 16
    page = report(train(config, tmp_path), "--limit", "10")
    assert "attention has no latent alignment" in page.texts["alignments"]
    assert page.table("systems", "system")[0][0] == "attention (decode uses this)"


def test_runs_of_several_sizes_make_a_learning_curve(tuned: Path, test_file: Path, tmp_path: Path) -> None:
    smaller = train(toy_config(tmp_path, rows=50, longest=4, max_epochs=1), tmp_path)
    page = report(tuned, str(test_file), "--curve", str(smaller))
    rows = page.table("learning", "run")
    assert [(row[1], row[2]) for row in rows] == [
        ("direct", "50"),
        ("direct", "200"),
        ("direct+channel+lm", "200"),
    ]
    table = {row[0].removesuffix(" (decode uses this)"): row[1] for row in page.table("systems", "system")}
    assert [row[3] for row in rows[1:]] == [table["direct"], table["direct+channel+lm"]]


# --- what is refused


def test_an_unknown_system_is_answered_with_those_of_the_run(tuned: Path, test_file: Path, capsys: Any) -> None:
    for words in (["decode", "--system"], ["evaluate", str(test_file), "--systems"], ["report", "--systems"]):
        assert main([words[0], str(tuned), *words[1:], "foo", "--device", "cpu"]) == 2
        complaint = capsys.readouterr().err.splitlines()[-1]
        assert complaint.endswith(f"{tuned}: unknown system 'foo'; the run has direct, direct+lm, direct+channel+lm")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "report needs a run directory"),
        (["RUN", "gone.tsv"], "gone.tsv"),
        (["RUN", "--systems", "direct+nothing"], "unknown system"),
        (["RUN", "--metrics", "bleurt"], "unknown metric"),
        (["RUN", "--output", "RUN/weights.json"], "is a file of the run"),
        (["RUN", "--output", "RUN/../config.yaml"], "report did not write it"),
        (["RUN", "--output", "RUN/none/page.html"], "cannot be a file"),
        (["RUN", "--columns", "input,output"], "would be ignored"),
        (["RUN", "--curve", "RUN"], "name one: noisychannel report RUN TEST"),
        (["demo"], "name a file for the page"),
        (["RUN", "--limit", "-1"], "limit"),
    ],
)
def test_bad_usage_is_one_line(tuned: Path, words: list[str], message: str) -> None:
    before = sorted(tuned.parent.rglob("*"))
    done = run_here(["report", *(word.replace("RUN", str(tuned)) for word in words), "--samples", "5"], b"")
    told = [line for line in done.stderr.decode().splitlines() if not line.startswith(("decode ", "sections"))]
    assert done.returncode == 2
    assert message in told[-1]
    assert "Traceback" not in done.stderr.decode()
    assert sorted(tuned.parent.rglob("*")) == before, "something was written"


def test_a_damaged_model_is_one_line(tuned: Path, tmp_path: Path) -> None:
    run = copied(tuned, tmp_path)
    model = run / "direct" / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-8] + b"\0" * 8)
    done = run_here(["report", str(run)], b"")
    assert done.returncode == 1
    assert "damaged" in done.stderr.decode().splitlines()[-1]
    assert not (run / "report.html").exists()


def test_an_earlier_report_is_replaced(tuned: Path, tmp_path: Path) -> None:
    run = copied(tuned, tmp_path)
    for _ in range(2):
        assert main(["report", str(run), "--limit", "2", "--samples", "5", "--device", "cpu"]) == 0
    assert (run / "report.html").exists()


def test_sections_without_a_subject_say_why(subject: Subject) -> None:
    assert weights_section(None, "why", 5, 1).reason == "why"
    assert kinds_section(None, "why").reason == "why"
    alone = replace(subject, shown=subject.base, base=None)
    assert "one model alone" in disagreements_section(alone, "").reason
