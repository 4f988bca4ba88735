"""Translation on made-up sentences: layouts of the data, rows and runs, claims, and a whole small experiment."""

from __future__ import annotations

import io
import random
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import sacrebleu

from noisychannel.cli.main import main
from noisychannel.decode.settings import SearchSettings
from noisychannel.errors import BadInputError
from noisychannel.experiments.blocks import read_blocks
from noisychannel.experiments.design import Design
from noisychannel.experiments.items import Part
from noisychannel.experiments.measuring import all_rows, is_smaller, rows_to_tune
from noisychannel.experiments.plots import curves, search_points
from noisychannel.experiments.registry import find_experiments
from noisychannel.experiments.report import markdown
from noisychannel.experiments.results import merge
from noisychannel.experiments.running import block_estimate, needed_runs, run_blocks
from noisychannel.experiments.sentences.pairs import SentenceData
from noisychannel.experiments.settings import Setup
from noisychannel.experiments.translation import scale as scales
from noisychannel.experiments.translation.cited import APPENDIX, APPENDIX_PART, TABLE_4
from noisychannel.experiments.translation.data import MULTI30K, read_chinese, read_multi30k
from noisychannel.experiments.translation.design import CHINESE as DESIGN
from noisychannel.experiments.translation.design import CHINESE_SMALL as CHINESE_SMALL_DESIGN
from noisychannel.experiments.translation.design import MULTI30K as MULTI30K_DESIGN
from noisychannel.experiments.translation.design import SMALL as SMALL_DESIGN
from noisychannel.experiments.translation.experiment import Multi30k, Translation, make_chinese_small, make_small
from noisychannel.experiments.translation.punctuation import without_punctuation
from noisychannel.experiments.translation.rows import (
    ATTENTION,
    BLOCKS,
    CHINESE_SMALL_BLOCKS,
    DIRECT,
    FEW,
    FULL,
    MULTI30K_BLOCKS,
    NOISY,
    PAPER,
    PLAIN,
    REFERENCES,
    WIDEST,
    WITH_BIAS,
    WITH_LM,
)
from noisychannel.experiments.translation.scale import TranslationScale
from noisychannel.runs import RunDirectory
from noisychannel.training.config import ModelConfig, TransformerConfig

LEXICON = {"我": "i", "你": "you", "爱": "love", "看": "see", "书": "books", "茶": "tea", "不": "not", "谁": "who"}
SEARCH = SearchSettings(k1=3, k2=2, max_length=8, allow_unk=False)
TINY = TranslationScale(
    share=0.0005,
    valid=12,
    dev=8,
    min_count=2,
    subwords=24,
    hidden_size=8,
    updates=6,
    least_passes=0,
    batch_size=8,
    evaluate_every=6,
    precision="fp32",
    lm=ModelConfig(hidden_size=8, num_layers=2, learning_rate=1e-3, batch_size=16),
    lm_updates=4,
    transformer=TransformerConfig(hidden_size=8, num_layers=1, num_heads=2, warmup=2, batch_size=16),
    ngram_order=2,
    back_translated=20,
    seeds=(1, 2),
    search=SEARCH,
    tuning=SEARCH,
    iterations=1,
)


def write(folder: Path, name: str, lines: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def made_up(rng: random.Random, number: int) -> list[tuple[str, str]]:
    """Word by word; the English ends in a full stop."""
    sentences = [rng.choices(list(LEXICON), k=rng.randint(1, 6)) for _ in range(number)]
    return [(" ".join(words), " ".join([*(LEXICON[word] for word in words), "."])) for words in sentences]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, rng = tmp_path_factory.mktemp("data"), random.Random(1)
    for name, number in (("train184k", 80), ("hdev", 20), ("htest", 9)):
        pairs = made_up(rng, number)
        pairs[2] = ("我 看 24 书", "I see 24 Books .")
        write(root / "translation", f"tvsub.{name}.zh", [source for source, _ in pairs])
        write(root / "translation", f"tvsub.{name}.en", [target for _, target in pairs])
    tests = made_up(rng, 4)
    write(root / "translation", "tvsub.test.zh", ["我 , 看 书 ?", "...", *(source for source, _ in tests[2:])])
    for n in range(3):
        write(root / "translation", f"tvsub.test.en.ref{n}", [f"{target} {n}" for _, target in tests])
    write(root / "translation", "tvsub.rest.en", sorted(target for _, target in made_up(rng, 60)))
    with tarfile.open(root / "translation" / MULTI30K, "w:xz") as archive:
        for name, number in (("train", 50), ("val", 12), ("test_2016_flickr", 6), ("test_2018_flickr", 3)):
            pairs = made_up(rng, number)
            for language, lines in zip(("de", "en", "fr"), (*zip(*pairs, strict=True), ["x"]), strict=True):
                content = "".join(f"{line}\n" for line in lines).encode()
                member = tarfile.TarInfo(f"m30k/{name}.{language}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return root


@pytest.fixture(scope="module")
def data(folder: Path) -> SentenceData:
    return read_chinese(folder)


@pytest.fixture(scope="module")
def experiment(data: SentenceData, tmp_path_factory: pytest.TempPathFactory) -> Translation:
    setup = Setup(Path(), tmp_path_factory.mktemp("work"), "cpu", jobs=1, say=lambda line: None)
    return Translation(replace(DESIGN, resamples=20), data, setup, TINY, [Part(APPENDIX_PART, (), APPENDIX[:1])])


@pytest.fixture(scope="module")
def captions(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Multi30k:
    setup = Setup(folder, tmp_path_factory.mktemp("captions"), "cpu", jobs=1, say=lambda line: None)
    return Multi30k(replace(MULTI30K_DESIGN, resamples=20), read_multi30k(folder), setup, replace(TINY, share=0.004))


# --- data


def test_english_is_lower_cased_and_digits_are_hashes(data: SentenceData) -> None:
    assert data.train[2] == ("我 看 ## 书", "i see ## books .")
    assert (len(data.train), len(data.valid), len(data.unpaired)) == (80, 20, 60)
    assert {name: len(items) for name, items in data.tests.items()} == {"tvsub.htest": 9, "tvsub.test": 4}


def test_the_official_set_has_three_references_and_no_punctuation_in_its_sources(data: SentenceData) -> None:
    first, second = data.tests["tvsub.test"][:2]
    assert (first.input, len(first.references)) == ("我 看 书", 3)
    assert second.input == "...", "a source is never empty"
    assert first.references[1].endswith(" #")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("你 , 看 ?", "你 看"),
        ("安娜 · 李", "安娜 · 李"),
        ('" 茶 " ! ?', '" 茶 "'),
        ("a.b c...", "a.b c..."),
        ("。", "。"),
    ],
)
def test_only_tokens_that_are_sentence_punctuation_are_removed(text: str, kept: str) -> None:
    assert without_punctuation(text) == kept


def test_the_appendix_is_as_the_paper_prints_it_without_punctuation() -> None:
    assert [len(item.input.split()) for item in APPENDIX] == [11, 10, 8, 16]
    assert not any(sign in item.input for item in APPENDIX for sign in "。,，")


def test_your_own_folder_with_any_number_of_references(folder: Path, tmp_path: Path) -> None:
    pairs = made_up(random.Random(2), 6)
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    for name in ("train", "dev", "mt03"):
        write(tmp_path, f"{name}.zh", sources)
    write(tmp_path, "train.en", targets)
    write(tmp_path, "dev.en.ref0", targets)
    with pytest.raises(BadInputError, match=r"mt03.en: no such file"):
        read_chinese(tmp_path)
    for n in range(4):
        write(tmp_path, f"mt03.ref{n}", targets)
    data = read_chinese(tmp_path)
    assert (len(data.train), len(data.valid), data.unpaired, list(data.tests)) == (6, 6, [], ["mt03"])
    assert len(data.tests["mt03"][0].references) == 4
    (tmp_path / "mt03.zh").unlink()
    with pytest.raises(BadInputError, match="no test set"):
        read_chinese(tmp_path)
    with pytest.raises(BadInputError, match=r"neither translation/tvsub.train184k.zh nor train.zh"):
        read_chinese(folder / "translation")


def write_own(folder: Path, sources: list[str], targets: list[str], dev: list[str] | None = None) -> None:
    for name, of_name in (("train", sources), ("dev", dev or sources), ("mt03", dev or sources)):
        write(folder, f"{name}.zh", of_name)
        write(folder, f"{name}.en", targets)


def test_long_pairs_of_your_own_are_counted_and_dev_is_tuned_on_whole(tmp_path: Path) -> None:
    pairs = made_up(random.Random(2), 6)
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    sources[1:3] = ["茶 " * 60, "茶 " * 120]
    write_own(tmp_path, sources, targets)
    write(tmp_path, "unpaired.en", ["tea " * 101, "books"])
    said: list[str] = []
    setup = Setup(tmp_path, tmp_path / "work", "cpu", jobs=1, say=said.append)
    experiment = Translation(DESIGN, read_chinese(tmp_path), setup, TINY)
    assert said[:1] == [
        "left out, because longer than 100 words or 100 words: 1 of 6 training pairs, 1 of 2 unpaired outputs, "
        "1 of 6 dev pairs (from early stopping; weights are tuned on all)"
    ]
    assert (len(experiment.data.train), len(experiment.parts[0].dev)) == (5, 6)
    config = experiment.config("direct.bi.all.1")
    assert len(Path(config.data.dev[0]).read_text(encoding="utf-8").splitlines()) == 5
    assert (config.data.input.max_length, config.training.batch_symbols) == (100, 8 * 100)
    record = experiment.data_record()
    assert record["pairs that were too long"] == {"train": 1, "valid": 0, "unpaired": 1}
    assert record["early stopping"] == 5


def test_chinese_that_is_not_segmented_is_read_as_characters(tmp_path: Path) -> None:
    pairs = made_up(random.Random(2), 8)
    sources, targets = [source.replace(" ", "") for source, _ in pairs], [target for _, target in pairs]
    write_own(tmp_path, sources, targets)
    said: list[str] = []
    setup = Setup(tmp_path, tmp_path / "work", "cpu", jobs=1, say=said.append)
    experiment = Translation(DESIGN, read_chinese(tmp_path), setup, TINY)
    assert "the symbols of inputs are characters" in said[0]
    assert experiment.data_record()["inputs"] == "characters"
    assert experiment.parts[0].test[0].input == pairs[0][0], "lengths and baselines count characters"
    for vocabulary, units in (("words", "characters"), ("count2", "characters"), ("subwords", "subwords")):
        source, target = experiment.sides(vocabulary)
        assert (source.units, source.remove_spaces) == (units, True)
        assert target.units == ("subwords" if vocabulary == "subwords" else "words")
    experiment.train(["direct.bi.all.1"])
    codec = RunDirectory(experiment.runs / "direct.bi.all.1").codecs()[0]
    for (segmented, _), plain in zip(pairs, sources, strict=True):
        assert codec.encode(plain) == codec.encode(segmented)
        assert len(codec.encode(plain)) == len(plain) + 1, "EOS ends it"
    with_spaces = [source for source, _ in pairs]
    write_own(tmp_path, with_spaces, targets, dev=sources)
    with pytest.raises(BadInputError, match=r"dev\.zh: it is not segmented into words, but train\.zh is"):
        read_chinese(tmp_path)
    write_own(tmp_path, with_spaces, targets)
    assert not read_chinese(tmp_path).characters


def test_multi30k_is_read_from_its_archive(folder: Path, tmp_path: Path) -> None:
    data = read_multi30k(folder)
    assert (len(data.train), len(data.valid), data.unpaired) == (50, 12, [])
    assert {name: len(items) for name, items in data.tests.items()} == {"test_2016_flickr": 6, "test_2018_flickr": 3}
    assert len(read_multi30k(folder, most=7).train) == 7
    with pytest.raises(BadInputError, match="no such file"):
        read_multi30k(tmp_path)
    whole = (folder / "translation" / MULTI30K).read_bytes()
    (tmp_path / "translation").mkdir()
    (tmp_path / "translation" / MULTI30K).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInputError, match="not a tar archive"):
        read_multi30k(tmp_path)


# --- rows and runs


def test_rows_are_labelled_as_in_the_paper() -> None:
    assert [row.label for row in PAPER] == list(TABLE_4)
    measured = {row.label for block in ("table", "attention", "seq2seq") for row in BLOCKS[block]}
    assert {row.label for row in PAPER} < measured
    assert list(MULTI30K_BLOCKS)[:2] == ["all", "few"]
    assert [entry.design for name in ("translation", "translation-multi30k") for entry in find_experiments(name)] == [
        DESIGN,
        MULTI30K_DESIGN,
    ]


def test_models_have_the_settings_of_the_paper(tmp_path: Path, data: SentenceData) -> None:
    many = replace(data, train=data.train * 2_300, unpaired=data.unpaired * 33_000)
    experiment = Translation(DESIGN, many, Setup(Path(), tmp_path, "cpu"), TranslationScale())
    experiment._file = lambda name, lines: name  # type: ignore[method-assign]
    experiment.pairs = lambda n: range(n or 184_000)  # type: ignore[method-assign,assignment,return-value]
    config = experiment.config("direct.bi.all.1")
    direct, channel = config.direct, experiment.config("channel.plain.all.1").channel
    for model in (direct, channel):
        assert (model.hidden_size, model.num_layers, model.dropout) == (512, 1, 0.5)
        assert model.paced_updates == 1_000
    assert experiment.config("attention.bi.all.1").attention.paced_updates == 0
    assert (direct.bidirectional, channel.bidirectional, config.training.learning_rate) == (True, False, 1e-3)
    lm = experiment.config("lm.paper.all").lm
    assert (lm.hidden_size, lm.num_layers, lm.dropout, lm.learning_rate) == (1024, 2, 0.5, 1e-4)
    assert experiment.config("lm.better.all").lm.learning_rate == 1e-3
    assert experiment.config("direct.better.all.1").direct.learning_rate == 2e-3
    search = experiment.scale.search
    assert (search.k1, search.k2, search.allow_unk) == (20, 10, False)
    source, target = experiment.sides("words")
    assert (source.max_size, source.min_count, source.lowercase) == (30_000, 5, False)
    assert (target.max_size, target.min_count, target.lowercase, target.digits_to_hash) == (20_000, 5, True, True)
    assert [side.min_count for side in experiment.sides("count2")] == [2, 2]
    source, target = experiment.sides("characters")
    assert (source.units, source.remove_spaces, target.units) == ("characters", True, "words")


def test_blocks_share_models_and_begin_with_an_estimate(experiment: Translation) -> None:
    table = set(needed_runs(experiment, experiment.rows("table")))
    better = set(needed_runs(experiment, experiment.rows("better-lm")))
    assert table == {"direct.bi.all.1", "channel.plain.all.1", "lm.paper.all"}
    assert better == table - {"lm.paper.all"} | {"lm.better.all"}
    assert set(needed_runs(experiment, experiment.rows("attention"))) == {"attention.bi.all.1"}
    assert set(needed_runs(experiment, experiment.rows("search"))) <= table
    assert set(needed_runs(experiment, experiment.rows("bias"))) <= better
    units = set(needed_runs(experiment, experiment.rows("units")))
    assert "lm.paper.all" in units, "the Chinese as characters leaves the English as it is"
    assert "lm.characters.all" not in units
    assert {"lm.count2.all", "lm.subwords.all"} <= units
    minutes = block_estimate(experiment, "table")
    assert minutes is not None
    assert "min on one NVIDIA H200" in str(minutes)


def test_estimates_of_all_blocks_without_measuring(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["reproduce", "translation-multi30k", "--data", str(folder), "--estimate"]
    assert main(words) == 0
    rows = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("| `")]
    names = [row[0].strip(" `") for row in rows]
    assert names == [name for name in MULTI30K_DESIGN.blocks if "few" not in name], "there are no 5,000 pairs here"
    for _, total, training, decoding in rows:
        assert max(int(training), int(decoding)) <= int(total) <= int(training) + int(decoding)
    assert int(rows[0][1]) > int(rows[-1][1]) == 0, "baselines take no time"
    assert not list(tmp_path.iterdir())
    assert main([*words, "--blocks", "all"]) == 2
    assert "--blocks would be ignored" in capsys.readouterr().err


def test_two_cores_have_the_rows_of_multi30k_with_the_better_lm_and_one_test_set(folder: Path, tmp_path: Path) -> None:
    of_multi30k = {row.label: row for row in MULTI30K_DESIGN.rows}
    for row in SMALL_DESIGN.rows:
        if "reranked" not in row.name:
            assert of_multi30k[row.label] == row
    assert {"reranked" in row.name for row in SMALL_DESIGN.blocks["all"]} == {False}
    small = make_small(Setup(folder, tmp_path, "cpu"), quick=False)
    assert set(needed_runs(small, small.rows("all-reranked"))) < set(needed_runs(small, small.rows("all")))
    assert [part.name for part in small.parts] == ["test_2016_flickr"]
    assert {run.split(".")[1] for run in needed_runs(small, small.rows("all")) if run.startswith("lm")} == {"better"}
    direct, lm = (small.config(run) for run in ("direct.bi.all.1", "lm.better.all"))
    assert (direct.training.precision, direct.direct.hidden_size, lm.lm.hidden_size) == ("bf16", 256, 512)


def test_two_cores_have_the_rows_of_chinese_with_the_better_lm_and_the_held_out_episodes(
    folder: Path, tmp_path: Path
) -> None:
    of_chinese = {row.label: row for row in DESIGN.rows}
    for row in CHINESE_SMALL_BLOCKS["table"]:
        if "reranked" not in row.name:
            assert of_chinese[row.label] == row
    assert set(CHINESE_SMALL_DESIGN.published) < {row.label for row in CHINESE_SMALL_DESIGN.rows}
    small = make_chinese_small(Setup(folder, tmp_path, "cpu"), quick=False)
    assert [part.name for part in small.parts] == ["tvsub.htest", APPENDIX_PART]
    assert len(small.parts[0].test) == 9
    table = {"direct.bi.all.1", "attention.bi.all.1", "channel.plain.all.1", "lm.better.all"}
    assert set(needed_runs(small, small.rows("table"))) == table
    assert set(needed_runs(small, small.rows("search"))) <= table
    assert "lm.better.all+0" in needed_runs(small, small.rows("lm-data"))
    direct, lm = (small.config(run) for run in ("direct.bi.all.1", "lm.better.all"))
    assert (direct.data.input.min_count, direct.direct.hidden_size, lm.lm.hidden_size) == (5, 256, 512)
    assert not small.search(small.rows("table")[0]).allow_unk


@pytest.mark.parametrize(
    ("design", "sizes"),
    [
        (DESIGN, (scales.TranslationScale(), scales.QUICK)),
        (CHINESE_SMALL_DESIGN, (scales.CHINESE_SMALL, scales.QUICK)),
        (MULTI30K_DESIGN, (scales.MULTI30K, scales.QUICK_MULTI30K)),
        (SMALL_DESIGN, (scales.SMALL, scales.QUICK_MULTI30K)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_every_model_has_a_rate_for_estimates(design: Design, sizes: tuple[TranslationScale, ...]) -> None:
    roles = {row.model_of(name) for row in design.rows for name in row.used_models()}
    for scale in sizes:
        assert scale.rates is not None
        assert roles <= scale.rates.updates.keys()


def test_rows_with_less_english_have_weights_of_their_own(experiment: Translation) -> None:
    """Those of another amount of data were tuned with another language model."""
    assert {row.unpaired for row in experiment.rows("lm-data")} == {0}, "there are 60, and a row of more is left out"
    rows = list(BLOCKS["lm-data"])
    tuned = rows_to_tune(rows, all_rows(experiment, rows))
    own = [row for row in tuned.values() if row.unpaired is not None]
    assert sorted(row.label for row in own) == sorted(row.label for row in rows)
    assert not any(is_smaller(WITH_LM, row) for row in own)


# --- the whole experiment


@pytest.fixture(scope="module")
def results(experiment: Translation) -> dict:
    def named(block: str, *names: str) -> tuple:
        return tuple(row for row in BLOCKS[block] if any(name in row.name for name in names))

    blocks = {
        "table": (ATTENTION, DIRECT, WITH_BIAS, NOISY, WITH_LM, FULL),
        "lm-data": named("lm-data", f"{FULL.name}, 184000"),
        "bias": BLOCKS["bias"],
        "search": (PLAIN, WIDEST, REFERENCES),
        "models": named("models", "reranked"),
        "units": named("units", "characters", f"{DIRECT.name}, subwords"),
        "back-translation": BLOCKS["back-translation"][:1],
        "later": BLOCKS["later"],
        "transformer": BLOCKS["transformer"],
    }
    experiment.rows = lambda block: list(blocks.get(block, BLOCKS[block]))  # type: ignore[method-assign]
    run_blocks(experiment, list(blocks), experiment.setup.work, "translation")
    return merge(experiment.design, read_blocks(experiment.setup.work, "translation"))


def row_of(results: dict, name: str) -> dict:
    (row,) = (row for row in results["rows"] if row["name"] == name)
    return row


def test_scores_are_those_of_sacrebleu(results: dict, experiment: Translation) -> None:
    """With one reference and with three."""
    block = next(b for b in read_blocks(experiment.setup.work, "translation") if b.name == "table")
    number = [row["name"] for row in block.rows].index(ATTENTION.name)
    for part in ("tvsub.htest", "tvsub.test"):
        keys = [key for key in block.items if key[0] == part]
        texts = [block.n_best[number][1][key][0].text for key in keys]
        references = [list(column) for column in zip(*(block.items[key].references for key in keys), strict=True)]
        recorded = row_of(results, ATTENTION.name)["scores"]
        bleu = sacrebleu.BLEU(tokenize="none").corpus_score(texts, references).score
        assert recorded["bleu"]["parts"][part]["score"] == pytest.approx(bleu)
        chrf = sacrebleu.CHRF().corpus_score(texts, references).score
        assert recorded["chrf"]["parts"][part]["score"] == pytest.approx(chrf)
    assert "tok:none" in results["metrics"]["bleu"]
    assert "case:lc|digits:#" in results["metrics"]["bleu"]


def test_the_results_say_how_models_were_trained(results: dict, experiment: Translation) -> None:
    block = next(b for b in read_blocks(experiment.setup.work, "translation") if b.name == "table")
    trainings = {(each["run"], each["model"]): each for each in block.record["trainings"]}
    assert {run for run, _ in trainings} == set(needed_runs(experiment, experiment.rows("table")))
    lm = trainings["lm.paper.all", "lm"]
    assert lm["dev perplexity"] == pytest.approx(RunDirectory(experiment.runs / "lm.paper.all").dev_perplexity("lm"))
    assert (lm["steps"], lm["noisychannel"]) == (4, block.record["noisychannel"])


def test_models_of_other_data_or_settings_are_not_used(results: dict, experiment: Translation) -> None:
    """Their directories have the same names."""
    setup, shown = experiment.setup, [Part(APPENDIX_PART, (), APPENDIX[:1])]
    same = Translation(experiment.design, experiment.data, setup, TINY, shown)
    same.train(["direct.bi.all.1", "lm.paper.all"])
    other = replace(experiment.data, train=experiment.data.train[:-1])
    for run in ("direct.bi.all.1", "lm.paper.all"):
        with pytest.raises(BadInputError, match=r"other data or settings \(data.train has changed .*another --work"):
            Translation(experiment.design, other, setup, TINY, shown).train([run])
    larger = replace(TINY, hidden_size=9)
    with pytest.raises(BadInputError, match=r"direct.hidden_size: 8, not 9\); choose another --work"):
        Translation(experiment.design, experiment.data, setup, larger, shown).train(["direct.bi.all.1"])
    same.train(["direct.bi.all.1"])


def test_rows_of_later_work(results: dict, experiment: Translation) -> None:
    known = {run for block in ("table", "attention") for run in needed_runs(experiment, BLOCKS[block])}
    assert set(needed_runs(experiment, BLOCKS["later"])) <= known
    for row in BLOCKS["later"][2:]:
        assert "ngram_pairs" in row_of(results, row.name)["weights"]
    narrow = row_of(results, BLOCKS["later"][1].name)
    assert narrow["weights"] == row_of(results, FULL.name)["weights"]
    runs = set(needed_runs(experiment, BLOCKS["transformer"]))
    assert {"transformer.bi.all.1", "transformer.back.all.1"} <= runs
    for row in BLOCKS["transformer"]:
        assert 0 <= row_of(results, row.name)["scores"]["bleu"]["score"] <= 100


def test_systems_without_the_bias_have_no_length_weight(results: dict) -> None:
    for row in BLOCKS["bias"]:
        assert "bias" not in row.name
        assert row_of(results, row.name)["weights"]["length"] == 0
        assert row_of(results, row.name)["bias"] is False
    assert row_of(results, "direct + bias")["weights"]["channel"] == 0


def test_lengths_by_the_length_of_the_input(results: dict, experiment: Translation) -> None:
    lengths, items = results["lengths"], experiment.parts[0].test
    short = [item for item in items if len(item.input.split()) <= 3]
    assert lengths["items"][0] == len(short)
    assert sum(lengths["items"]) == len(items)
    assert lengths["items"][2:] == [0, 0, 0, 0]
    block = next(b for b in read_blocks(experiment.setup.work, "translation") if b.name == "table")
    texts = dict(zip(block.items, block.outputs(1)[1], strict=True))
    written = [len(texts["tvsub.htest", n].split()) for n in range(len(items)) if items[n] in short]
    expected = sum(len(item.references[0].split()) for item in short)
    found = lengths["rows"][block.rows[1]["name"]]
    assert found["ratios"][0] == pytest.approx(sum(written) / expected)
    early = sum(
        len(texts["tvsub.htest", n].split()) < 0.5 * len(item.references[0].split()) for n, item in enumerate(items)
    )
    assert found["early"] == pytest.approx(100 * early / len(items))


def test_references_that_score_higher_are_search_errors(results: dict, experiment: Translation) -> None:
    """Against the scores that the models give when they are asked again."""
    from noisychannel.decode.objective import Weights
    from noisychannel.experiments.decoding import load
    from noisychannel.ids import UNK

    weights = row_of(results, PLAIN.name)["weights"]
    part = experiment.parts[0]
    model = load(experiment.models(FULL, 1, part), Weights.of(weights), SEARCH, "cpu")
    block = next(b for b in read_blocks(experiment.setup.work, "translation") if b.name == "search")
    outputs = block.outputs(0)[1]
    errors = known = 0
    for item, output in zip(part.test, outputs, strict=True):
        (reference,) = item.references
        if UNK in model.output_codec.encode(reference):
            continue
        known += 1
        score = {found.text: found.hypothesis.score for found in model.rerank(item.input, [reference, output])}
        errors += output != reference and score[reference] > score[output] + 1e-3
    record = results["search errors"][0]
    assert (record["row"], record["better"]) == (PLAIN.label, "references")
    assert (record["items"], record["errors"]) == (known, errors)
    assert 0 < known < len(part.test)
    lines = list(markdown(results))
    assert not any(line.startswith(f"| {REFERENCES.name} |") for line in lines), "the references are no system"
    assert sum("| references |" in line for line in lines) >= 2


def test_the_report_shows_the_appendix_and_what_is_not_measured(results: dict) -> None:
    lines = list(markdown(results))
    assert sum(line.startswith(f"| {APPENDIX_PART} | 欧盟 和") for line in lines) == 1
    assert any(
        line.startswith("Not measured, of the block seeds (`noisychannel reproduce translation ") for line in lines
    )
    assert row_of(results, FULL.name)["published"] == TABLE_4[FULL.label]
    claims = {claim["claim"]: claim for claim in results["claims"]}
    goal = claims["goal: full - direct"]
    assert goal["value"] == pytest.approx(
        row_of(results, FULL.name)["scores"]["bleu"]["score"] - row_of(results, DIRECT.name)["scores"]["bleu"]["score"]
    )


def test_plots_of_english_and_searches(results: dict) -> None:
    assert list(curves(DESIGN.plots[0], results)[FULL.name]) == [60.0, 92.0], (
        "numbers of names are multiplied by 0.0005"
    )
    assert [point.amount for point in search_points(DESIGN.search_plots[0], results)] == [20, 200]
    assert WITH_LM.name in DESIGN.plots[0].lines


def test_multi30k_has_a_plot_of_its_pairs() -> None:
    for design, missing in ((MULTI30K_DESIGN, set()), (SMALL_DESIGN, {"full"})):
        (plot,) = design.plots
        lines = {"full, better LM", "full", "attention", "direct + bias", "direct"}
        assert set(plot.lines) == lines - missing
        for name in plot.lines.values():
            amounts = {row.pairs for row in design.rows if row.base == name and row.unpaired is None}
            assert amounts == {None, 5_000}


def test_a_folder_without_data_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, missing in (("translation", "neither translation/"), ("translation-multi30k", MULTI30K)):
        words = ["reproduce", name, "--quick", "--data", str(tmp_path), "--work", str(tmp_path / "work")]
        assert main(words) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert missing in line
        assert "--data" in line
    assert not (tmp_path / "work").exists()


def test_back_translated_sentences_are_further_pairs(results: dict, experiment: Translation) -> None:
    (file,) = experiment.config("direct.back.all.1").data.further
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    assert lines
    assert {line.split("\t")[1] for line in lines} <= set(experiment.data.unpaired)


def test_characters_share_the_language_model_of_words(results: dict) -> None:
    row = row_of(results, f"{FULL.name}, Chinese as characters")
    assert row["models"] == {
        "direct": "direct.characters.all.1",
        "channel": "channel.characters.all.1",
        "lm": "lm.paper.all",
    }


def test_few_captions_have_a_german_vocabulary_of_their_own_and_share_the_language_model(captions: Multi30k) -> None:
    rows = [row for row in MULTI30K_BLOCKS["few"] if row.name in (DIRECT.name, FULL.name)]
    rows += MULTI30K_BLOCKS["few-back-translation"][:1]
    assert all(row.setting == FEW for row in rows)
    captions.rows = lambda block: rows if block == "few" else []  # type: ignore[method-assign]
    run_blocks(captions, ["few"], captions.setup.work, "translation-multi30k")
    results = merge(captions.design, read_blocks(captions.setup.work, "translation-multi30k"))
    assert results["data"]["unpaired"][FEW] == {"captions": 30}
    assert row_of(results, FULL.name)["models"]["lm"] == "lm.paper.all"
    drawn = (captions.setup.work / "data" / "back-20.1.tsv").read_text(encoding="utf-8").splitlines()
    assert {line.split("\t")[1] for line in drawn} <= set(captions.left_outputs(20))
    goal = results["claims"][0]
    assert (goal["minus"], goal["holds"]) == ((), None)
