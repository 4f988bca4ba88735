"""``fit`` from end to end on a toy task: what it leaves, what it never sees, how it resumes, what it refuses."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from noisychannel import NoisyChannel
from noisychannel.cli.main import main
from noisychannel.errors import BadInputError
from noisychannel.evaluation.run import EvaluateOptions, evaluate_run
from noisychannel.fitting import fit as fitting
from noisychannel.fitting import inputs, reverse, rules, timing
from noisychannel.fitting.estimate import Estimate
from noisychannel.fitting.facts import count_facts
from noisychannel.fitting.fit import FitResult, fit
from noisychannel.fitting.options import FitOptions, UserData
from noisychannel.fitting.progress import Progress
from noisychannel.fitting.report import describe
from noisychannel.fitting.work import Done, Work
from noisychannel.reporting import Silent
from noisychannel.runs import RunDirectory
from noisychannel.tuning.run import tune_run
from noisychannel.weights import read_system
from toys import LETTERS, double_vowels


class Listener(Silent):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.shares: list[float] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    def progress(self, progress: Progress) -> None:
        self.shares.append(progress.share)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)


def shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings of a second."""
    for name, value in {
        "HIDDEN": 16, "EMBEDDING": 8, "UPDATES": 25, "EPOCHS": 1, "BATCH": 8, "LEARNING_RATE": 0.03, "MADE_UP": 100,
        "MADE_UP_BESIDE_WORDS": 50, "REVERSE_UPDATES": 1.0,
        "GIVEN_INPUTS": 40, "LEAST_WORDS": 10, "K1": 2, "K2": 1, "LM_HIDDEN": ((0, 16),), "LM_LEAST": 10,
        "LM_MOST": 20, "WORDS_ALONE": 50, "FOLDS": 2,
    }.items():  # fmt: skip
        monkeypatch.setattr(rules, name, value)
    monkeypatch.setattr(inputs, "LEAST_CONFIDENCE", -100.0)
    monkeypatch.setattr(fitting, "ITERATIONS", 1)
    monkeypatch.setattr(timing, "LEAST_UPDATES", 10)
    monkeypatch.setattr(timing, "MEASURED", 1)


def write_data(directory: Path, pairs: int = 24, words: int = 60, seed: int = 1) -> FitOptions:
    """Options for pairs and words of a toy task."""
    rng = random.Random(seed)
    some = sorted({"".join(rng.choices(LETTERS, k=rng.randint(3, 6))) for _ in range(pairs + words)})
    rng.shuffle(some)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "pairs.tsv").write_text("".join(f"{x}\t{double_vowels(x)}\n" for x in some[:pairs]))
    (directory / "words.txt").write_text("".join(f"{double_vowels(x)}\n" for x in some[pairs - 4 :]))
    return FitOptions(
        pairs=str(directory / "pairs.tsv"),
        words=[str(directory / "words.txt")],
        run_dir=str(directory / "run"),
        device="cpu",
        jobs=1,
    )


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[FitOptions, FitResult, Listener]:
    """One fit whose work directory is kept."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        shrink(monkeypatch)
        options = replace(write_data(tmp_path_factory.mktemp("fit")), keep_work=True)
        listener = Listener()
        return options, fit(replace(options, test=options.pairs), listener), listener


def rows_of(file: Path) -> list[list[str]]:
    return [line.split("\t") for line in file.read_text().splitlines()]


def test_the_run_is_an_ordinary_one(fitted: tuple[FitOptions, FitResult, Listener]) -> None:
    options, result, _ = fitted
    run = RunDirectory.open(options.place)
    assert all(run.has_model(role) for role in ("direct", "channel", "lm"))
    assert run.data_config.vocabularies is None
    assert all(Path(file).is_relative_to(options.place / "data") for file in run.data_config.train)
    tuned = read_system(run)
    assert tuned.name == result.done.default
    assert tuned.name in ("direct+lm", "direct+channel+lm", "direct+channel+lm+word_list")
    output = NoisyChannel.load(run.path, device="cpu")("abi")[0]
    assert output.hypothesis.complete
    assert output.confidence is not None
    assert 0 <= output.confidence <= 1
    assert tuned.confidence is not None
    assert tuned.confidence.calibration is not None
    assert tuned.confidence.calibration.items == 24  # each pair was held out once
    table = evaluate_run(run, EvaluateOptions(file=options.pairs, baselines=["rules"], device="cpu", samples=10))
    assert {row.system for row in table.results} >= {"rules", "direct", "direct+channel+lm"}
    assert result.table is not None
    assert len(result.table.held_out.inputs) == 24


def test_the_end_says_what_a_person_needs(fitted: tuple[FitOptions, FitResult, Listener]) -> None:
    options, result, listener = fitted
    assert [one.system for one in result.done.estimates][:2] == ["identity", "rules"]
    assert all(one.low <= one.score <= one.high for one in result.done.estimates)
    text = "\n".join(describe(result))
    for wanted in ("each held out once", "decode uses this", f"decode {options.place}", "what would help most"):
        assert wanted in text
    # The plan and the time come before the work.
    assert any(line.startswith("estimated time") for line in listener.lines)
    assert any("made-up pairs" in line for line in listener.lines)
    assert f"first word: {Path(options.words[0]).read_text().split()[0]!r}" in listener.lines
    assert listener.shares == sorted(listener.shares)
    assert listener.shares[-1] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("rules_score", "updates", "verdict"),
    [
        (53.0, 1.0, "rules (53.00) is better than DEFAULT (29.00) here: the models do not pay"),
        (29.0, 1.0, "rules (29.00) is as good as DEFAULT (29.00) here: the models do not pay"),
        (53.0, 0.1, "rules (53.00) is better than DEFAULT (29.00) here, but the models had only 10 % of the updates"),
        (28.0, 0.1, None),
    ],
)
def test_the_end_compares_with_what_is_simple(
    fitted: tuple[FitOptions, FitResult, Listener], rules_score: float, updates: float, verdict: str | None
) -> None:
    result = fitted[1]
    done, default = result.done, result.done.default
    begun = replace(done.begun, plan=replace(done.begun.plan, updates=round(updates * rules.updates(24))))
    estimates = (Estimate("rules", rules_score, 0.0, 90.0, True), Estimate(default, 29.0, 0.0, 90.0))
    lines = list(describe(replace(result, done=replace(done, begun=begun, estimates=estimates))))
    found = [line for line in lines if line.startswith("rules (")]
    if verdict is None:
        assert not found
    else:
        assert found[0].startswith(verdict.replace("DEFAULT", default))
        assert ("more time first" in found[0]) == (updates < 1)


@pytest.mark.parametrize("default", ["direct+channel+lm+word_list", "direct+channel+lm+word_list+seen"])
def test_the_end_says_what_an_estimate_with_a_list_assumes(
    fitted: tuple[FitOptions, FitResult, Listener], default: str
) -> None:
    result = fitted[1]
    smaller = default.replace("+word_list", "")
    begun = replace(result.done.begun, facts=replace(result.done.begun.facts, listed=0.98))
    begun = replace(begun, plan=replace(begun.plan, without_outputs=False))
    estimates = (Estimate(smaller, 23.0, 0.0, 90.0), Estimate(default, 99.0, 97.0, 100.0))
    done = replace(result.done, begun=begun, estimates=estimates, default=default)

    def lines(done: Done) -> list[str]:
        return [line for line in describe(replace(result, done=done)) if "--lexicon false" in line]

    (line,) = lines(done)
    assert line.startswith("98 % of the outputs of the pairs are on the list of words.")
    assert f"({smaller}: 23.00)" in line
    assert not lines(replace(done, default=smaller))
    assert not lines(replace(done, begun=replace(begun, facts=replace(begun.facts, listed=0.1))))
    assert not lines(replace(done, begun=replace(begun, plan=replace(begun.plan, without_outputs=True))))


def test_nothing_that_is_held_out_is_trained_on(fitted: tuple[FitOptions, FitResult, Listener]) -> None:
    options, _, _ = fitted
    work = options.place / ".fit"
    held_out_inputs: list[str] = []
    for fold in ("fold1", "fold2"):
        train, held_out = rows_of(work / f"{fold}.train.tsv"), rows_of(work / f"{fold}.dev.tsv")
        assert not {row[0] for row in train} & {row[0] for row in held_out}
        assert sorted(train + held_out) == sorted(rows_of(Path(options.pairs)))
        held_out_inputs += [row[0] for row in held_out]
        for run in (work / fold, work / f"{fold}-reverse"):
            config = RunDirectory.open(run).data_config
            assert config.train == [str(work / f"{fold}.train.tsv")]
            assert config.further in ([], [str(work / f"{fold}.further.tsv")])
        # The words that were given inputs are listed ones, and no outputs of training pairs.
        given = {row[1] for row in rows_of(work / f"{fold}.further.tsv")}
        assert given
        assert given <= set(Path(options.words[0]).read_text().split())
        assert not given & {row[1] for row in train}
        assert RunDirectory.open(work / fold).header().data.sources["further"]
    assert sorted(held_out_inputs) == sorted(row[0] for row in rows_of(Path(options.pairs)))
    # The language model has seen words alone, and is shared.
    assert RunDirectory.open(options.place).data_config.lm_data == "unpaired"
    assert not RunDirectory.open(work / "fold1").has_model("lm")


def test_dev_that_was_trained_on_is_not_tuned_on(fitted: tuple[FitOptions, FitResult, Listener]) -> None:
    with pytest.raises(BadInputError, match="fit has tuned it"):
        tune_run(RunDirectory.open(fitted[0].place))


def test_a_finished_fit_is_not_repeated(fitted: tuple[FitOptions, FitResult, Listener]) -> None:
    options, result, _ = fitted
    before = RunDirectory(options.place).model_file("direct").stat().st_mtime_ns
    assert fit(options, Listener()).done == result.done
    assert RunDirectory(options.place).model_file("direct").stat().st_mtime_ns == before
    with pytest.raises(BadInputError, match="--seed"):
        fit(replace(options, seed=2), Listener())
    listener = Listener()
    assert fit(replace(options, minutes=30), listener).done == result.done
    said = (
        f"{options.place}: finished before with --minutes 15, so --minutes 30 changes nothing; --overwrite starts over"
    )
    assert listener.lines == [said]


def test_an_interrupted_fit_resumes(
    fitted: tuple[FitOptions, FitResult, Listener],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = write_data(tmp_path)
    with monkeypatch.context() as interrupting:
        interrupting.setattr(reverse, "do_tasks", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            fit(options, Listener())
    assert not RunDirectory(options.place).header_file.exists()
    refuse_all(options.place, capsys)
    reversing = RunDirectory(options.place / ".fit" / "fold1-reverse").model_file("direct")
    before = reversing.stat().st_mtime_ns
    with monkeypatch.context() as interrupting:
        interrupting.setattr(fitting.FoldTuning, "tune", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            fit(options, Listener())
    assert reversing.stat().st_mtime_ns == before
    with pytest.raises(BadInputError, match="--made-up"):
        fit(replace(options, made_up=5), Listener())
    refuse_all(options.place, capsys)
    direct = RunDirectory(options.place).model_file("direct")
    before = direct.stat().st_mtime_ns
    listener = Listener()
    resumed = fit(replace(options, minutes=30), listener)
    kept = "resuming the plan that was made for --minutes 15; --overwrite makes another one"
    assert f"{options.place}: {kept}" in listener.lines
    assert resumed.done.begun.minutes == 15
    assert direct.stat().st_mtime_ns == before
    assert not (options.place / ".fit").exists()
    # As if nothing had happened.
    assert resumed.done.estimates == fitted[1].done.estimates
    assert (options.place / "data" / "inputs.tsv").read_bytes() == (
        fitted[0].place / "data" / "inputs.tsv"
    ).read_bytes()
    # Starting over removes what was there, and nothing else.
    (options.place / "letter.txt").write_text("dear")
    Work(options.place).clear()
    assert [path.name for path in options.place.iterdir()] == ["letter.txt"]


def refuse_all(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No other command takes an unfinished fit for a run."""
    commands = [["decode", "RUN"], ["evaluate", "RUN", "test.tsv"], ["score", "RUN"], ["tune", "RUN"]]
    commands += [["serve", "RUN"], ["report", "RUN"]]
    for words in commands:
        assert main([str(run) if word == "RUN" else word for word in words]) == 2, words
        complaint = capsys.readouterr().err
        assert (
            f"{run}: its fit is running, or was interrupted; wait, or continue it: noisychannel fit … --run-dir {run}\n"
            in complaint
        )
        assert complaint.count("\n") == 1
    with pytest.raises(BadInputError, match="its fit is running, or was interrupted"):
        NoisyChannel.load(run)


def _interrupt(*arguments: object) -> None:
    raise KeyboardInterrupt


def test_more_pairs_are_split_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "FEW", 30)
    monkeypatch.setattr(rules, "LEAST_DEV", 8)
    options = replace(write_data(tmp_path, pairs=40, words=0), words=[], made_up=0)
    result = fit(options, Listener())
    assert result.done.held_out == 8
    run = RunDirectory.open(options.place)
    assert run.header().data.dev["lines"] == 8
    assert run.header().data.train["lines"] == 32
    assert run.data_config.further == []
    assert not run.has_word_list
    # Its dev is held out, so it may be tuned again.
    assert tune_run(run)


def test_running_text_keeps_the_start_weight_of_its_counts(tmp_path: Path) -> None:
    """Held-out inputs are never among the other pairs, so nothing can be said about the weight of seen."""
    options = write_data(tmp_path, pairs=20, words=20)
    file = Path(options.pairs)
    file.write_text(file.read_text() + "abi\tzzz\n" * 3)
    listener = Listener()
    result = fit(options, listener)
    run = RunDirectory.open(options.place)
    tuned = read_system(run)
    assert tuned.name == result.done.default
    assert tuned.name.endswith("+seen")
    assert tuned.weights.extra["seen"] == tuned.terms["seen"].weight("seen").start
    assert (tuned.terms["seen"].run, run.load_seen().size) == (run.path.resolve(), (23, 21))
    assert any("(seen)" in line for line in listener.lines)
    assert any("for inputs that are not among the pairs" in line for line in describe(result))
    found = NoisyChannel.load(run.path, device="cpu")("abi", n_best=20)
    assert "zzz" in [output.text for output in found], "no model would find it"


def test_words_without_tags_are_given_tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "UPDATES", 60)
    options = replace(write_data(tmp_path, pairs=30), columns="unimorph", keep_work=True)
    pairs = [(x, f"{'sz'[n % 2]}{y}", f"N;{'AB'[n % 2]}") for n, (x, y) in enumerate(rows_of(Path(options.pairs)))]
    Path(options.pairs).write_text("".join("\t".join(row) + "\n" for row in pairs))
    words = [f"{'sz'[n % 2]}{word}" for n, word in enumerate(Path(options.words[0]).read_text().split())]
    Path(options.words[0]).write_text("".join(f"{word}\n" for word in words))
    listener = Listener()
    fit(options, listener)
    assert any("words are given tags and inputs" in line for line in listener.lines)
    work = options.place / ".fit"
    for part in ("fold1", "fold2", "all"):
        given = rows_of(work / f"{part}.further.tsv")
        assert len(given) > 10
        assert {tags for _, _, tags in given} <= {"N;A", "N;B"}
        assert {word for _, word, _ in given} <= set(words)
        assert rows_of(work / f"{part}.words.tsv") == [[word, tags] for _, word, tags in given]
    right = sum(("N;A" if word.startswith("s") else "N;B") == tags for _, word, tags in given)
    assert right > 0.6 * len(given), "the first letter tells the tags"
    # Its tags come from the pairs of the fold, so each fold has a language model of its own.
    run = RunDirectory.open(options.place)
    assert RunDirectory.open(work / "fold1").has_model("lm")
    assert run.data_config.unpaired == [str(options.place / "data" / "words.tsv")]
    assert NoisyChannel.load(run.path, device="cpu")("abi", features=["N", "A"])[0].hypothesis.complete


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pairs": ""}, "needs pairs"),
        ({"pairs": "nowhere.tsv"}, "no such file"),
        ({"pairs": "nowhere.tsv", "word_columns": "nonsense"}, "^nowhere.tsv: no such file"),
        ({"pairs": "nowhere.tsv", "words": [], "word_columns": "output,features"}, "^nowhere.tsv: no such file"),
        ({"words": ["nowhere.txt"]}, "no such file"),
        ({"columns": "input,output,group"}, "fit makes one run"),
        ({"test": "nowhere.tsv"}, "no such file"),
        ({"words": [], "word_columns": "output,features"}, "would be ignored"),
        ({"columns": "input,output,features"}, "3 are expected"),
    ],
)
def test_impossible_wishes_are_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    options = replace(write_data(tmp_path), **change)  # type: ignore[arg-type]
    with pytest.raises(BadInputError, match=message):
        fit(options, Listener())
    assert not options.place.exists()


def test_bad_data_is_refused(tmp_path: Path) -> None:
    options = write_data(tmp_path)
    few = tmp_path / "few.tsv"
    few.write_text("a\tb\n" * 30)
    with pytest.raises(BadInputError, match="30 pairs of 1 different inputs"):
        fit(replace(options, pairs=str(few)), Listener())
    tagged = tmp_path / "tagged.txt"
    tagged.write_text("N;SG\tab\n")
    with pytest.raises(BadInputError, match=r"tagged.txt:1: 2 columns.*--word-columns"):
        fit(replace(options, words=[str(tagged)]), Listener())
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(BadInputError, match="not empty"):
        fit(replace(options, run_dir=str(tmp_path / "mine"), overwrite=True), Listener())
    with pytest.raises(BadInputError, match=r"0 .* or at least 2"):
        FitOptions(folds=1)


def test_the_command_takes_words_twice_and_dashes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = write_data(tmp_path, words=10)
    more = tmp_path / "more.txt"
    more.write_text("eekiid\nmoodu\n")
    words = [options.pairs, "--words", options.words[0], "--words", str(more), "--run-dir", str(tmp_path / "run")]
    assert main(["fit", *words, "--folds", "0", "--inputs", "0", "--jobs", "1", "--device", "cpu"]) == 2
    complaint = capsys.readouterr().err
    assert "too few to hold out" in complaint
    assert complaint.count("\n") == 1
    words += ["--inputs", "0", "--made-up", "0", "--lexicon", "false"]
    assert main(["fit", *words, "--jobs", "1", "--device", "cpu"]) == 0
    printed = capsys.readouterr()
    assert "what would help most" in printed.out
    assert "stage 1 of 3" in printed.err
    record = json.loads((tmp_path / "run" / "fit.json").read_text())
    assert record["begun"]["facts"]["words"] == 16
    # The outputs of pairs are no words.
    left = {row[0] for row in rows_of(tmp_path / "run" / "data" / "words.tsv")}
    assert len(left) == 12
    assert not left & {row[1] for row in rows_of(Path(options.pairs))}
    assert RunDirectory.open(tmp_path / "run").data_config.unpaired == [str(tmp_path / "run" / "data" / "words.tsv")]


def test_words_need_their_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "pairs.tsv", "words.txt"]) == 2
    assert "unexpected argument 'words.txt'; did you mean --words words.txt?" in capsys.readouterr().err


def test_files_of_the_user_are_never_removed(tmp_path: Path) -> None:
    options = write_data(tmp_path / "run" / "data")
    for overwrite in (False, True):
        inside = replace(options, run_dir=str(tmp_path / "run"), overwrite=overwrite)
        with pytest.raises(BadInputError, match="which fit would replace"):
            fit(inside, Listener())
    work = Work(tmp_path / "run")
    work.path.mkdir()
    (work.path / "plan.json").write_text("")
    (tmp_path / "run" / "data" / "train.tsv").write_text("")
    work.clear()
    assert sorted(path.name for path in (tmp_path / "run" / "data").iterdir()) == ["pairs.tsv", "words.txt"]


def test_texts_are_compared_as_the_models_see_them(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"w{n}\tK  AE{n} T \n" for n in range(24)) + "w3\tK AE3 T\n")
    words = tmp_path / "words.txt"
    words.write_text("".join(f"K AE{n} T\n" for n in range(24)))
    data = UserData.read(FitOptions(pairs=str(pairs), words=[str(words)]))
    facts = count_facts(data.pairs, data.words)
    assert facts.output_units == "words"
    assert facts.listed == 1.0
    assert {row.output for row in data.pairs} == {f"K AE{n} T" for n in range(24)}


def test_pairs_that_are_much_longer_than_the_others_are_left_out(tmp_path: Path) -> None:
    options = write_data(tmp_path)
    with Path(options.pairs).open("a") as file:
        file.write("a" * 3000 + "\tb\n")
    data = UserData.read(options)
    assert (len(data.pairs), data.left_out) == (24, 1)
    assert data.config.input.max_length == 40


def test_a_word_without_tags_among_tagged_ones_is_refused(tmp_path: Path) -> None:
    options = write_data(tmp_path)
    tagged = tmp_path / "tagged.tsv"
    tagged.write_text("".join(f"{x}\t{y}\tN\n" for x, y in rows_of(Path(options.pairs))))
    words = tmp_path / "words.tsv"
    words.write_text("ab\tN\ncd\t\n")
    mixed = replace(options, pairs=str(tagged), columns="unimorph", words=[str(words)], word_columns="output,features")
    with pytest.raises(BadInputError, match=r"words\.tsv:2: a word without tags"):
        fit(mixed, Listener())


def test_columns_of_words_in_the_wrong_order_are_refused(tmp_path: Path) -> None:
    options = write_data(tmp_path)
    tagged = tmp_path / "tagged.tsv"
    tagged.write_text("".join(f"{x}\t{y}\tN;PL\n" for x, y in rows_of(Path(options.pairs))))
    words = tmp_path / "words.tsv"
    words.write_text("N;PL\tabba\nN;SG\tabbu\n")
    options = replace(
        options, pairs=str(tagged), columns="unimorph", words=[str(words)], word_columns="output,features"
    )
    message = (
        r"words\.tsv:1: --word-columns output,features .* 'N;PL' with the tags 'abba'.*--word-columns features,output$"
    )
    with pytest.raises(BadInputError, match=message):
        fit(options, Listener())
    assert len(UserData.read(replace(options, word_columns="features,output")).words) == 2
    # Other names of the tags are as useless.
    words.write_text("abba\tnoun|plural\nabbu\tnoun|singular\n")
    with pytest.raises(BadInputError, match=r"no word has a tag of the pairs \(such as 'N;PL'\); name the columns"):
        fit(options, Listener())
    # One tag that both have is enough.
    words.write_text("abba\tnoun\nabbu\tPL\n")
    assert len(UserData.read(options).words) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [({"made_up": 5}, "--made-up: the symbols are characters in the input and words"), ({"inputs": 5}, "no words")],
)
def test_choices_that_the_data_does_not_allow_leave_no_plan(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"word{n}\tK AE{n} T\n" for n in range(24)))
    options = FitOptions(pairs=str(pairs), run_dir=str(tmp_path / "run"), device="cpu", **change)  # type: ignore[arg-type]
    with pytest.raises(BadInputError, match=message):
        fit(options, Listener())
    assert not (tmp_path / "run" / ".fit" / "plan.json").exists()
