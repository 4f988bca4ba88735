"""Summarisation on made-up sentences: layouts of the data, rows and runs, claims, and a whole small experiment."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from noisychannel.decode.settings import SearchSettings
from noisychannel.errors import BadInputError
from noisychannel.experiments.blocks import read_blocks
from noisychannel.experiments.design import Claim
from noisychannel.experiments.plots import curves, search_points, write_plots
from noisychannel.experiments.registry import find_experiments
from noisychannel.experiments.report import markdown
from noisychannel.experiments.results import merge
from noisychannel.experiments.running import block_estimate, needed_runs, run_blocks
from noisychannel.experiments.sentences.pairs import SentenceData
from noisychannel.experiments.sentences.specs import RunSpec
from noisychannel.experiments.settings import Setup
from noisychannel.experiments.summarisation.cited import ALL, ALL_PAIRED, APPENDIX_PART, FEW, FEW_PAIRED, TABLE_1
from noisychannel.experiments.summarisation.data import read_data
from noisychannel.experiments.summarisation.design import DESIGN, SMALL_DESIGN
from noisychannel.experiments.summarisation.experiment import Summarisation, few_pairs, make_small, make_summarisation
from noisychannel.experiments.summarisation.rows import (
    BASELINES,
    BLOCKS,
    DIRECT,
    FULL,
    NOISY_UNI,
    OF_BI,
    OF_UNI,
    PAPER,
    PLAIN,
    REFERENCES,
    SEQ2SEQ,
    WITH_ATTENTION,
    WITH_BIAS,
    WITH_LM,
    better_lm,
    in_setting,
)
from noisychannel.experiments.summarisation.scale import QUICK, SummarisationScale
from noisychannel.experiments.translation.design import CHINESE, CHINESE_SMALL, MULTI30K, SMALL
from noisychannel.training.config import ModelConfig

WORDS = [f"{a}{b}" for a in ("ba", "ko", "li", "mu", "ne") for b in ("ra", "so", "ti", "vu")]
LONG = " ".join(["ba"] * 60)
SEARCH = SearchSettings(k1=3, k2=2, max_length=6)
TINY = SummarisationScale(
    share=0.0005,
    valid=12,
    dev=8,
    vocabulary=18,
    hidden_size=8,
    updates=4,
    least_passes=0,
    batch_size=8,
    large_batch=16,
    evaluate_every=4,
    precision="fp32",
    lm=ModelConfig(hidden_size=8, num_layers=2, learning_rate=1e-3, batch_size=16),
    lm_updates=4,
    back_translated=20,
    seeds=(1, 2),
    search=SEARCH,
    tuning=SEARCH,
    iterations=1,
)


def write(folder: Path, name: str, lines: list[str]) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def made_up(rng: random.Random, number: int) -> list[tuple[str, str]]:
    """The headline is every other word of its sentence."""
    sentences = [rng.choices(WORDS, k=rng.randint(4, 9)) for _ in range(number)]
    return [(" ".join(words), " ".join(words[::2])) for words in sentences]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, rng = tmp_path_factory.mktemp("data"), random.Random(1)
    for name, number in (("newsapi.train", 80), ("newsapi.valid", 20), ("newsapi.test", 9), ("giga.test1951", 4)):
        pairs = made_up(rng, number)
        if name != "giga.test1951":
            pairs[3] = (LONG, "ba 1")
        write(root / "summarisation", f"{name}.src", [source for source, _ in pairs])
        write(root / "summarisation", f"{name}.tgt", [headline for _, headline in pairs])
    duc = made_up(rng, 3)
    write(root / "summarisation", "duc2003.src", [source for source, _ in duc])
    for n in range(4):
        write(root / "summarisation", f"duc2003.ref{n}", [f"{headline} X{n}" for _, headline in duc])
    write(root / "summarisation", "newsapi.extra_headlines.txt", sorted(headline for _, headline in made_up(rng, 60)))
    return root


@pytest.fixture(scope="module")
def data(folder: Path) -> SentenceData:
    return read_data(folder)


@pytest.fixture(scope="module")
def experiment(data: SentenceData, tmp_path_factory: pytest.TempPathFactory) -> Summarisation:
    setup = Setup(Path(), tmp_path_factory.mktemp("work"), "cpu", jobs=1, say=lambda line: None)
    return Summarisation(replace(DESIGN, resamples=20), data, setup, TINY)


# --- data


def test_long_pairs_are_dropped_from_training_and_never_from_tests(data: SentenceData) -> None:
    assert (len(data.train), len(data.valid), data.dropped) == (79, 19, {"train": 1, "valid": 1})
    assert {name: len(items) for name, items in data.tests.items()} == {
        "newsapi.test": 9,
        "giga.test1951": 4,
        "duc2003": 3,
    }
    item = data.tests["newsapi.test"][3]
    assert (len(item.input.split()), item.references) == (60, ("ba #",))
    assert len(data.tests["duc2003"][0].references) == 4
    assert data.tests["duc2003"][0].references[2].endswith(" x#")


def test_the_usual_files_of_gigaword_are_found(folder: Path, tmp_path: Path) -> None:
    pairs = made_up(random.Random(2), 6)
    for split in ("train", "valid"):
        middle = ".filter" if split == "valid" else ""
        write(tmp_path / "train", f"{split}.article{middle}.txt", [source for source, _ in pairs])
        write(tmp_path / "train", f"{split}.title{middle}.txt", [headline for _, headline in pairs])
    with pytest.raises(BadInputError, match="no test set"):
        read_data(tmp_path)
    write(tmp_path / "giga", "input.txt", [source for source, _ in pairs])
    write(tmp_path / "giga", "task1_ref0.txt", [headline for _, headline in pairs])
    data = read_data(tmp_path)
    assert (len(data.train), list(data.tests), data.unpaired) == (6, ["giga"], [])
    (tmp_path / "giga").rename(tmp_path / "Giga")
    write(tmp_path, "test.article.txt", [source for source, _ in pairs])
    write(tmp_path, "test.title.txt", [headline for _, headline in pairs])
    assert list(read_data(tmp_path).tests) == ["test", "giga"]
    with pytest.raises(BadInputError, match=r"neither summarisation/newsapi.train.src nor train.article.txt"):
        read_data(folder / "summarisation")


def test_the_archive_of_the_hub_is_found_unpacked(tmp_path: Path) -> None:
    for split in ("train", "dev", "test"):
        write(tmp_path / "org_data", f"{split}.src.txt", ["ba <unk> 12", "ko so"])
        write(tmp_path / "org_data", f"{split}.tgt.txt", ["ba <unk>" if split == "train" else "ba UNK", "so"])
    data = read_data(tmp_path)
    assert data.train[0] == ("ba unk ##", "ba unk")
    assert (data.valid[0].target, data.tests["test"][0].references) == ("ba unk", ("ba unk",))
    assert read_data(tmp_path / "org_data").train == data.train


def test_references_that_are_not_parallel_are_named(folder: Path, tmp_path: Path) -> None:
    for file in (folder / "summarisation").iterdir():
        write(tmp_path / "summarisation", file.name, file.read_text(encoding="utf-8").splitlines())
    write(tmp_path / "summarisation", "duc2003.ref1", ["one"])
    with pytest.raises(BadInputError, match=r"duc2003.ref1: 1 lines.*parallel"):
        read_data(tmp_path)


def test_empty_references_are_left_out_and_lines_stay_together(folder: Path, tmp_path: Path) -> None:
    for file in (folder / "summarisation").iterdir():
        write(tmp_path / "summarisation", file.name, file.read_text(encoding="utf-8").splitlines())
    number = len((tmp_path / "summarisation" / "duc2003.src").read_text(encoding="utf-8").splitlines())
    sources = [f"source {n}" for n in range(number)]
    write(tmp_path / "summarisation", "duc2003.src", sources)
    for k in range(4):
        lines = [f"reference {n}, of (file {k})." for n in range(number)]
        lines[0] = "" if k == 1 else lines[0]
        write(tmp_path / "summarisation", f"duc2003.ref{k}", lines)
    items = read_data(tmp_path).tests["duc2003"]
    assert [item.input for item in items] == [
        text.replace("0", "#").replace("1", "#").replace("2", "#") for text in sources
    ]
    assert [len(item.references) for item in items] == [3, *[4] * (number - 1)]
    assert items[0].references[0] == "reference # , of -lrb- file # -rrb- ."
    write(tmp_path / "summarisation", "duc2003.src", ["", *sources[1:]])
    with pytest.raises(BadInputError, match=r"duc2003.src:1: an empty sentence; remove the line from all files"):
        read_data(tmp_path)


# --- rows and runs


def test_rows_are_labelled_as_in_the_paper() -> None:
    names = [row.name for row in (SEQ2SEQ, *WITH_ATTENTION, *PAPER)]
    assert names == [
        "seq2seq without attention",
        "seq2seq with attention",
        "seq2seq with attention + bias",
        "direct (uni)",
        "direct (bi)",
        "channel + LM + bias (uni)",
        "channel + LM + bias (bi)",
        "direct + LM + bias",
        "direct + channel + LM + bias (uni)",
        "direct + channel + LM + bias (bi)",
    ]
    labels = {row.label for row in DESIGN.rows}
    assert TABLE_1.keys() <= labels
    assert [row.name for row in PAPER if row.online] == ["direct (uni)", "channel + LM + bias (uni)"]
    assert list(BLOCKS)[:3] == ["table", "few", "paired"]


def test_settings_share_the_language_model_of_all_headlines(experiment: Summarisation) -> None:
    (few,), (paired,) = in_setting([FULL], FEW), in_setting([FULL], ALL_PAIRED)
    assert experiment.run_name(few, "lm", 1) == experiment.run_name(FULL, "lm", 2) == "lm.paper.all"
    assert experiment.run_name(paired, "lm", 1) == "lm.paper.all+0"
    assert experiment.run_name(few, "direct", 2) == "direct.bi.50.2"
    runs = needed_runs(experiment, experiment.rows("table"))
    assert set(runs) == {"direct.uni.all.1", "direct.bi.all.1", "channel.plain.all.1", "lm.paper.all"}
    alone = needed_runs(experiment, [row for block in ("attention", "seq2seq") for row in experiment.rows(block)])
    assert set(alone) == {"attention.bi.all.1", "seq2seq.bi.all.1", "seq2seq.bi.50.1"}
    for run in (*runs, *alone):
        assert RunSpec.parse(run).name == run


def test_models_have_the_settings_of_the_paper(folder: Path, tmp_path: Path, data: SentenceData) -> None:
    many = replace(data, train=data.train * 20_000)
    experiment = Summarisation(DESIGN, many, Setup(folder, tmp_path, "cpu"), SummarisationScale())
    experiment._file = lambda name, lines: name  # type: ignore[method-assign]
    experiment.pairs = lambda n: range(n or 500_000)  # type: ignore[method-assign,assignment,return-value]
    direct = experiment.config("direct.bi.all.1")
    model = direct.direct
    assert (model.hidden_size, model.num_layers, model.dropout, model.batch_size) == (256, 1, 0.2, 32)
    assert (model.bidirectional, model.max_updates, direct.training.learning_rate) == (True, 40_000, 1e-3)
    assert experiment.config("direct.bi.100000.1").direct.max_updates == 25_000
    assert experiment.config("direct.large.all.1").direct.max_updates == 5_000
    lm = experiment.config("lm.paper.all").lm
    assert (lm.hidden_size, lm.num_layers, lm.dropout, lm.learning_rate) == (1024, 2, 0.5, 1e-4)
    better, rate = experiment.config("lm.better.all"), experiment.config("lm.rate.all")
    assert (better.lm.learning_rate, better.lm.dropout, better.training.schedule) == (1e-3, 0.2, "linear")
    assert rate == replace(
        experiment.config("lm.paper.all"), run_dir=rate.run_dir, lm=replace(lm, learning_rate=1e-3)
    ), "the rate alone differs"
    assert rate.training.schedule == "plateau"
    assert (experiment.scale.search.k1, experiment.scale.search.k2) == (20, 10)
    assert direct.data.input.max_length == 50
    assert direct.data.output.max_length == 25


def test_two_cores_have_the_rows_of_few_pairs_with_the_better_lm_and_one_test_set(folder: Path, tmp_path: Path) -> None:
    """So every system of the paper is compared with attention, under one language model."""
    table = {row.label for row in SMALL_DESIGN.blocks["table"]}
    assert table >= {better_lm(row).label for row in in_setting((DIRECT, *OF_UNI, *OF_BI), FEW)[1:]}
    assert table >= {row.label for row in (*BASELINES, *in_setting(WITH_ATTENTION, FEW))}
    others = {row.label: row for row in DESIGN.rows}
    shared = [row for row in SMALL_DESIGN.rows if row.label in others]
    assert len(shared) >= 12
    assert all(others[row.label] == row for row in shared)
    assert set(SMALL_DESIGN.published) < {row.label for row in SMALL_DESIGN.rows}
    assert SMALL_DESIGN.published[better_lm(in_setting([FULL], FEW)[0]).label]["rouge1"] == "33.21"
    said: list[str] = []
    small = make_small(Setup(folder, tmp_path, "cpu", say=said.append), quick=False)
    assert [part.name for part in small.parts] == ["newsapi.test", APPENDIX_PART]
    assert "100,000 stands for 15" in " ".join(said), "a fifth of these 79"
    runs = {"direct.bi.15.1", "direct.uni.15.1", "attention.bi.15.1", "channel.plain.15.1", "lm.better.all"}
    assert set(needed_runs(small, small.rows("table"))) == runs
    assert (
        set(needed_runs(small, [row for block in ("lm-weight", "search", "reranked") for row in small.rows(block)]))
        <= runs
    )
    assert "lm.better.15+0" in needed_runs(small, small.rows("paired"))
    long, slow = (small.config(f"attention.{kind}.15.1") for kind in ("long", "better"))
    assert (long.attention.max_updates, slow.attention.learning_rate) == (8 * 15 // 32, 1e-3), "as names of rows say"
    assert small.scale.rates is not None
    assert {run.partition(".")[0] for run in needed_runs(small, small.design.rows)} <= small.scale.rates.updates.keys()


def test_more_data_than_ours_is_read_as_often(tmp_path: Path, data: SentenceData) -> None:
    scale = SummarisationScale()
    assert [scale.limit(pairs, 32) for pairs in (100_000, 503_197, 3_803_957)] == [25_000, 40_000, 297_184]
    assert scale.limit(3_803_957, 256) == 297_184 // 8
    assert [scale.lm_limit(outputs, 64) for outputs in (1_159_432, 3_803_957)] == [50_000, 148_592]
    assert [few_pairs(pairs) for pairs in (503_197, 3_803_957, 200_000, 3)] == [100_000, 1_000_000, 40_000, 1]
    said: list[str] = []
    setup = Setup(Path(), tmp_path, "cpu", jobs=1, say=said.append)
    experiment = Summarisation(DESIGN, data, setup, replace(TINY, share=10.0))
    assert "100,000 stands for 1,000,000" in said[-1]
    experiment.train(["direct.bi.all.1", "lm.paper.all"])
    # 4 updates of 8 of 79 pairs; 4 of 16 of these headlines and 60 others.
    assert "passes over the training data, at most: direct.bi.all.1 0.4, lm.paper.all 0.5" in said


def test_the_record_of_the_data_has_the_unpaired_headlines_of_each_setting(experiment: Summarisation) -> None:
    unpaired = experiment.data_record()["unpaired"]
    assert {setting: unpaired[setting]["headlines"] for setting in (ALL, FEW, ALL_PAIRED, FEW_PAIRED)} == {
        ALL: 60,
        FEW: 60 + 79 - 50,
        ALL_PAIRED: 0,
        FEW_PAIRED: 0,
    }


def own(experiment: Summarisation, pairs: int, unpaired: int, tmp_path: Path) -> Summarisation:
    """With so much data, and rows that count in thousandths: 100,000 pairs are 100."""
    data = replace(experiment.data, train=(experiment.data.train * 9)[:pairs], unpaired=["ba"] * unpaired)
    return Summarisation(DESIGN, data, Setup(Path(), tmp_path, "cpu"), replace(TINY, share=0.001))


def test_rows_that_need_more_data_than_there_is_are_left_out(experiment: Summarisation, tmp_path: Path) -> None:
    def kept(made: Summarisation, block: str) -> set[str]:
        return {row.label for row in made.rows(block)}

    gigaword = own(experiment, 500, 0, tmp_path)
    assert kept(gigaword, "paired") == {row.label for row in BLOCKS["paired"] if row.setting == FEW_PAIRED}
    assert f"{ALL}: {FULL.name}, 150000 unpaired" not in kept(gigaword, "curves")
    assert kept(gigaword, "table") == {row.label for row in BLOCKS["table"]}
    lms = {run for block in BLOCKS for run in needed_runs(gigaword, gigaword.rows(block)) if run.startswith("lm.paper")}
    assert lms == {"lm.paper.all", "lm.paper.100+0"}, "none is trained twice"
    record = gigaword.data_record()
    assert {setting: of["headlines"] for setting, of in record["unpaired"].items()} == {
        "": 0,
        ALL: 0,
        FEW: 400,
        FEW_PAIRED: 0,
    }
    assert f"{ALL_PAIRED}: {FULL.name}" in record["left out"]
    assert "(there are 0 unpaired headlines)" in gigaword.left_out("paired")

    few = own(experiment, 90, 200, tmp_path)
    assert kept(few, "few") == kept(few, "few-seeds") == set()
    assert few.left_out("few").endswith("(there are 90 pairs)")
    assert kept(few, "paired") == {row.label for row in BLOCKS["paired"] if row.setting == ALL_PAIRED}
    assert kept(few, "curves") == {
        row.label for row in BLOCKS["curves"] if row.pairs == 25_000 or row.unpaired == 150_000
    }
    assert own(experiment, 500, 700, tmp_path).left_out("curves") == ""


def test_smaller_samples_are_the_beginning_of_larger_ones(experiment: Summarisation) -> None:
    assert experiment.pairs(60)[:50] == experiment.pairs(50)
    assert len(experiment.pairs(None)) == 79


def test_blocks_begin_with_an_estimate(experiment: Summarisation) -> None:
    table, paired = (block_estimate(experiment, name) for name in ("table", "paired"))
    assert table is not None
    assert paired is not None
    assert "min on one NVIDIA H200" in str(table)
    assert table.training > 0
    assert table.decoding > 0


# --- the whole experiment


@pytest.fixture(scope="module")
def results(experiment: Summarisation) -> dict:
    blocks = {
        "table": (*BASELINES[:1], DIRECT, NOISY_UNI, WITH_LM, FULL),
        "back-translation": BLOCKS["back-translation"][:1],
        "search": (
            *(row for row in BLOCKS["search"] if "reranks" in row.name or "raised by 0.5" in row.name),
            PLAIN,
            REFERENCES,
        ),
    }
    experiment.rows = lambda block: list(blocks.get(block, BLOCKS[block]))  # type: ignore[method-assign]
    run_blocks(experiment, list(blocks), experiment.setup.work, "summarisation")
    return merge(experiment.design, read_blocks(experiment.setup.work, "summarisation"))


def row_of(results: dict, name: str) -> dict:
    (row,) = (row for row in results["rows"] if row["name"] == name)
    return row


def test_every_set_is_scored_by_itself(results: dict) -> None:
    assert results["parts"] == {"newsapi.test": 9, "giga.test1951": 4, "duc2003": 3}
    for row in results["rows"]:
        parts = row["scores"]["rouge1"]["parts"]
        assert parts.keys() >= ({"newsapi.test"} if row["block"] == "search" else set(results["parts"]))
        assert 0 <= row["scores"]["rougeL_stem"]["score"] <= 100
    assert row_of(results, FULL.name)["published"] == TABLE_1[FULL.label]


def test_raised_weights_and_reranked_lists(results: dict, experiment: Summarisation) -> None:
    (raised,) = (row for row in results["rows"] if "raised" in row["name"])
    tuned = next(row for row in read_blocks(experiment.setup.work, "summarisation") if row.name == "search")
    assert tuned.rows
    assert raised["raised"] == {"lm": 0.5}
    assert raised["weights"]["lm"] >= 0.5
    assert raised["dev"]["score"] is None, "its weights were tuned before they were raised"
    (reranked,) = (row for row in results["rows"] if "reranks" in row["name"])
    assert reranked["choose"] == "rerank"
    assert reranked["search"]["k1"] == 50


def test_the_block_of_searches_has_terms_to_count_its_errors(results: dict, experiment: Summarisation) -> None:
    blocks = {block.name: block for block in read_blocks(experiment.setup.work, "summarisation")}
    assert blocks["search"].record["settings"]["keep_terms"] is True
    assert all(score is None for score in blocks["table"].objectives(4)[1]), "the files of other blocks are small"
    references, _, wide = results["search errors"]
    assert (references["row"], references["better"]) == (PLAIN.label, "references")
    assert references["items"] > 0
    assert wide["items"] is None, "K1 200 is not measured"
    assert any(line.startswith(f"| {PLAIN.label} | references |") for line in markdown(results))


def test_the_n_best_of_attention_has_fifty_outputs() -> None:
    (row,) = (row for row in BLOCKS["models"] if row.name.startswith("seq2seq with attention, n-best"))
    assert row.search == {"k1": 50, "k2": 50}


def test_the_report_marks_online_rows_and_shows_the_appendix(results: dict) -> None:
    lines = list(markdown(results))
    assert sum(line.startswith(f"| {ALL} | channel + LM + bias (uni)* |") for line in lines) == 3
    assert sum(line.startswith(f"| {APPENDIX_PART} | ") for line in lines) == 4
    assert not any(line.startswith(f"**{APPENDIX_PART}**") for line in lines)
    assert lines[0].endswith("Numbers of pairs in names of rows are multiplied by 0.0005 in this data.")
    assert any(
        line.startswith("Not measured, of the block few (`noisychannel reproduce summarisation") for line in lines
    )
    assert sum("Gigaword: RAS-Elman" in line for line in lines) == 3


def test_rows_are_compared_with_the_bias_alone() -> None:
    """As many pairs, no language model, and a length bias."""
    for design in (DESIGN, SMALL_DESIGN, CHINESE, CHINESE_SMALL, MULTI30K, SMALL):
        rows = [row for row in design.rows if row.name == design.baselines["direct + bias"]]
        assert {row.system for row in rows} == {"direct+length"}
        direct = {row.pairs for row in design.rows if row.name == design.baselines["direct (bi)"]}
        assert {row.pairs for row in rows} == direct


def test_the_report_says_what_the_data_leaves_out(results: dict) -> None:
    label = f"{ALL}: {FULL.name}, 250000 pairs"
    (line,) = (line for line in markdown(results) if line.startswith("Left out, because the data has not so many"))
    assert label in line
    assert label not in results["not measured"]["curves"]
    assert f"{ALL}: {FULL.name}, 25000 pairs" in results["not measured"]["curves"]


def test_blocks_of_other_data_are_not_merged(experiment: Summarisation, results: dict) -> None:
    assert results["example systems"] == [DIRECT.label, FULL.label], "the first of the second systems that is measured"
    first, *others = read_blocks(experiment.setup.work, "summarisation")
    first.record["data"] = {**first.record["data"], "pairs": {"train": 7}}
    with pytest.raises(BadInputError, match="pairs of train; measure one of them again"):
        merge(experiment.design, [first, *others])


def test_back_translated_headlines_are_further_pairs(results: dict, experiment: Summarisation) -> None:
    config = experiment.config("direct.back.50.1")
    (file,) = config.data.further
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    assert {line.split("\t")[1] for line in lines} <= set(experiment.data.unpaired)
    assert row_of(results, f"{DIRECT.name}, back-translation")["pairs"] == 100_000


def test_a_quick_try_reads_the_beginning_of_the_data(folder: Path, tmp_path: Path) -> None:
    setup = Setup(folder, tmp_path, "cpu", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("noisychannel.experiments.summarisation.experiment.QUICK", replace(QUICK, lines=30))
        made = make_summarisation(setup, True)
    assert (len(made.data.train), len(made.data.unpaired)) == (29, 30)
    assert find_experiments("summarisation")[0].design is DESIGN


# --- claims


def test_claims_are_judged_on_the_first_set(results: dict) -> None:
    claims = {claim["claim"]: claim for claim in results["claims"]}
    measured = claims["goal: full - direct, with all pairs"]
    scores = [row_of(results, of.name)["scores"]["rouge1"]["score"] for of in (FULL, DIRECT)]
    assert measured["value"] == pytest.approx(scores[0] - scores[1])
    assert measured["interval"][0] <= measured["value"] <= measured["interval"][1]
    assert measured["holds"] == (measured["value"] >= 1.0 and measured["interval"][0] > 0)
    assert claims["goal: full - direct, with 100k pairs"]["holds"] is None
    lines = list(markdown(results))
    assert any(line.startswith("| goal: full - direct, with 100k pairs | at least 2 |") for line in lines)


@pytest.mark.parametrize(
    ("bounds", "value", "interval", "holds"),
    [
        ({"least": 1.0}, 1.2, (0.3, 2.0), True),
        ({"least": 1.0}, 1.2, (-0.1, 2.0), False),
        ({"least": 1.0}, 0.9, (0.3, 2.0), False),
        ({"least": -0.5}, -0.4, (-1.0, 0.2), True),
        ({"most": 0.5}, 0.3, (-0.1, 0.9), True),
        ({"most": 0.0}, -0.3, (-0.6, -0.1), True),
        ({"most": 0.0}, -0.3, (-0.6, 0.1), False),
    ],
)
def test_a_gain_or_a_loss_must_be_outside_its_interval(
    bounds: dict[str, float], value: float, interval: tuple[float, float], holds: bool
) -> None:
    assert Claim("", ("a",), ("b",), **bounds).holds(value, interval) == holds


def test_a_claim_about_no_row_is_refused() -> None:
    with pytest.raises(ValueError, match="'nothing', which is no row"):
        replace(DESIGN, claims=(Claim("x", ("nothing",), (DIRECT.label,)),))


def test_lines_of_plots_are_rows() -> None:
    for design in (DESIGN, SMALL_DESIGN):
        names = {row.base for row in design.rows}
        assert all(name in names for plot in design.plots for name in plot.lines.values())
        (beams,) = design.search_plots
        assert set(beams.rows) <= {row.label for row in design.blocks["search"]}, "all points are of one block"


def test_plots_of_headlines_pairs_and_searches(results: dict, tmp_path: Path) -> None:
    full = row_of(results, FULL.name)
    few = {**full, "setting": FEW, "pairs": 100_000}
    paired = {**few, "setting": FEW_PAIRED, "unpaired": 0}
    wide = {**full, "name": f"{FULL.name}, K1 200, K2 100", "base": "", "search": {"k1": 200}}
    better = [{**row, "base": better_lm(FULL).name} for row in (full, few)]
    more = {**results, "rows": [*results["rows"], few, paired, wide, *better]}
    unpaired_few = next(plot for plot in DESIGN.plots if plot.name == "unpaired-few")
    headlines = results["data"]["unpaired"][FEW]["headlines"]
    assert list(curves(unpaired_few, more)[FULL.name]) == [0.0, headlines]
    (beams,) = DESIGN.search_plots
    points = search_points(beams, more)
    assert [point.amount for point in points] == [20, 200]
    seconds = row_of(results, PLAIN.name)["seconds"]["1"]
    assert points[0].milliseconds == pytest.approx(1000 * seconds / 9), "of the first set, which the block has"
    pairs = next(plot for plot in DESIGN.plots if plot.name == "pairs")
    assert {label: list(curve) for label, curve in curves(pairs, more).items()} == {
        "full, better LM": [79.0, 100_000.0],
        "direct": [79.0],
        "full": [79.0, 100_000.0],
    }, "lines that are not measured are left out"
    assert pairs.lines["direct + bias"] == WITH_BIAS.name
    pytest.importorskip("matplotlib")
    files = write_plots(DESIGN, more, tmp_path)
    assert [file.name for file in files] == [f"summarisation-{name}.svg" for name in ("unpaired-few", "pairs", "beams")]
