"""Words outside the vocabulary: scored as UNK by every model, and copied from the input in the text of an output."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from noisychannel import NoisyChannel, Weights
from noisychannel.arguments import dump_config
from noisychannel.cli.main import main
from noisychannel.data.codec import Codec
from noisychannel.data.prepare import DataConfig
from noisychannel.data.rows import Row
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.memory import SearchTooLargeError
from noisychannel.decode.settings import SearchSettings
from noisychannel.evaluation.decoding import search_errors
from noisychannel.evaluation.held_out import HeldOut
from noisychannel.evaluation.metrics import make_metric
from noisychannel.evaluation.run import EvaluateOptions, evaluate_run
from noisychannel.fitting.tuning import FoldTuning, HeldOutPart
from noisychannel.ids import EOS, UNK
from noisychannel.models import SSNT, LanguageModel
from noisychannel.models.registry import Role
from noisychannel.models.seq2seq import Seq2Seq
from noisychannel.outputs import Output, Speller
from noisychannel.runs import RunDirectory
from noisychannel.systems import should_look_ahead
from noisychannel.text import Characters, TextConfig, Words, normalise
from noisychannel.training.config import ModelConfig, RunConfig, TrainingConfig
from noisychannel.training.learner import _copies
from noisychannel.tuning.loop import TuningResult
from noisychannel.tuning.run import TuneOptions, tune_run, tuned_system
from noisychannel.weights import read_system

KNOWN = ["der", "ein", "Hund", "rief", "sah"]
DEFAULT = SearchSettings()


def names(rng: random.Random) -> str:
    """A name that no other sentence has."""
    return "".join(rng.choices("ABCDEFGHIJKLMNOP", k=1)) + "".join(rng.choices("abcdefghijklmnop", k=7))


def write_sentences(file: Path, rows: int, seed: int) -> Path:
    """Sentences of known words and names, which are copied word by word."""
    rng = random.Random(seed)
    lines = []
    for _ in range(rows):
        words = [names(rng) if rng.random() < 0.4 else rng.choice(KNOWN) for _ in range(rng.randint(1, 5))]
        lines.append(f"{' '.join(words)}\t{' '.join(words)}\n")
    file.write_text("".join(lines), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copying sentences of words, of which only five are in the vocabularies."""
    directory = tmp_path_factory.mktemp("words")
    text, model = TextConfig(units="words", max_size=len(KNOWN)), ModelConfig(hidden_size=24, dropout=0.0)
    config = RunConfig(
        run_dir=str(directory / "run"),
        models=["direct"],
        jobs=1,
        device="cpu",
        data=DataConfig(
            train=[str(write_sentences(directory / "train.tsv", 500, 1))],
            dev=[str(write_sentences(directory / "dev.tsv", 30, 2))],
            input=text,
            output=text,
        ),
        direct=model,
        training=TrainingConfig(batch_size=25, max_epochs=6, learning_rate=0.02, evaluate_every=60),
    )
    (directory / "config.yaml").write_text(dump_config(config))
    assert main(["train", str(directory / "config.yaml")]) == 0
    return Path(config.run_dir)


SENTENCE = "der Zorro sah Kanu"


def test_names_are_copied_and_scored_as_unk(trained: Path) -> None:
    plain = NoisyChannel.load(trained)
    torch.manual_seed(1)
    channel = SSNT(len(plain.output_codec), len(plain.input_codec), 8)
    models = {**plain.models, "channel": channel}
    model = NoisyChannel(plain.input_codec, plain.output_codec, models, Weights(1.0, 0.1))
    (output,) = model(SENTENCE)
    assert output.text == SENTENCE
    assert output.unknown == (1, 3)
    assert [n for n, token in enumerate(output.hypothesis.tokens) if token == UNK] == [1, 3]
    (given,) = model.rerank(SENTENCE, [SENTENCE])
    assert output.hypothesis.score == pytest.approx(given.hypothesis.score, abs=1e-4)
    assert output.hypothesis.channel == pytest.approx(given.hypothesis.channel, abs=1e-4)


def test_the_text_does_not_depend_on_whether_alignments_are_asked_for(trained: Path) -> None:
    model = NoisyChannel.load(trained)
    texts = [line.split("\t")[0] for line in (trained.parent / "dev.tsv").read_text().splitlines()]
    with_them, without = (model.batch(texts, n_best=3, batch_size=7, align=align) for align in (True, False))
    assert [[o.text for o in best] for best in with_them] == [[o.text for o in best] for best in without]
    assert without[0][0].hypothesis.alignment is None


def test_it_can_be_switched_off(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = NoisyChannel.load(trained)
    assert model.settings.allow_unk is True
    off = model.reweighted(Weights(), SearchSettings(allow_unk=False))
    assert UNK not in off(SENTENCE)[0].hypothesis.tokens
    assert model.reweighted(Weights(), SearchSettings(k1=5, k2=5)).settings.allow_unk is True
    (tmp_path / "in.txt").write_text(SENTENCE + "\n")
    assert main(["decode", str(trained), str(tmp_path / "in.txt"), "--allow_unk", "false"]) == 0
    assert set(capsys.readouterr().out.split()) <= set(KNOWN)
    assert main(["decode", str(trained), str(tmp_path / "in.txt"), "--json"]) == 0
    (hypothesis,) = json.loads(capsys.readouterr().out)["hypotheses"]
    assert (hypothesis["output"], hypothesis["unknown"]) == (SENTENCE, [1, 3])
    assert main(["decode", str(trained), str(tmp_path / "in.txt"), "--explain"]) == 0
    grid = capsys.readouterr().out.rstrip().splitlines()[-6:]
    assert grid[0].split() == [*SENTENCE.split(), "␄"], "what was copied"
    assert [line.split()[0] for line in grid[1:]] == ["der", "<unk>", "sah", "<unk>", "␄"], "what the models read"


def test_a_proposer_without_alignments_proposes_no_unk(trained: Path) -> None:
    input_codec, output_codec = RunDirectory.open(trained).codecs()
    seq2seq = Seq2Seq(len(input_codec), len(output_codec), 8, attention=False)
    model = NoisyChannel(input_codec, output_codec, {"seq2seq": seq2seq})
    assert model.settings.allow_unk is False
    assert UNK not in model(SENTENCE)[0].hypothesis.tokens


def test_attention_copies_the_word_that_it_looks_at(trained: Path) -> None:
    """A model that writes UNK alone, and looks at the position after that of the step before."""
    input_codec, output_codec = RunDirectory.open(trained).codecs()
    attention = Seq2Seq(len(input_codec), len(output_codec), 8, attention=True)
    with torch.no_grad():
        attention.word.bias[UNK] += 50.0
    looked = []

    def attended(inputs: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        outputs = others[1]
        looked.append(inputs.shape)
        return torch.arange(outputs.shape[1]).expand_as(outputs).clone().clamp(max=inputs.shape[1] - 1)

    attention.attended = attended  # type: ignore[method-assign]
    model = NoisyChannel(input_codec, output_codec, {"attention": attention})
    assert model.settings.allow_unk is True
    model = model.reweighted(model.weights, SearchSettings(max_length=5))
    (output,) = model(SENTENCE)
    assert set(output.hypothesis.tokens) == {UNK}
    assert output.text.split()[: len(SENTENCE.split())] == SENTENCE.split()[: len(output.hypothesis.tokens)]
    assert looked


def test_metrics_see_the_copied_words(trained: Path) -> None:
    """Every dev sentence with a name can be right only if its name is there."""
    run = RunDirectory.open(trained)
    dev = str(trained.parent / "dev.tsv")
    lines = Path(dev).read_text().splitlines()
    plain = sum(set(line.split("\t")[0].split()) <= set(KNOWN) for line in lines)
    (result,) = tune_run(run, TuneOptions(systems=["direct+length"], iterations=1))
    assert result.dev_score > 100 * plain / len(lines) + 30
    assert read_system(run).settings.allow_unk is None, "so another proposer of the run can decide otherwise"
    table = evaluate_run(run, EvaluateOptions(file=dev, systems=["direct+length"], search_errors=True))
    system = next(row for row in table.results if row.system == "direct+length")
    assert system.measured["accuracy"].score == pytest.approx(result.dev_score)
    assert system.search["allow_unk"] is True
    assert "<unk>" not in " ".join(system.outputs)


def test_words_are_searched_with_look_ahead_if_a_channel_is_tuned(trained: Path) -> None:
    run = RunDirectory.open(trained)
    units = run.codecs()[0].config.units
    assert should_look_ahead(units)
    assert not should_look_ahead("characters")
    result = TuningResult("direct+channel", Weights(1.0, 0.5), 50.0, "accuracy", "", ())
    settings = SearchSettings(look_ahead=should_look_ahead(units))
    assert tuned_system(result, settings, 30, {}).settings.look_ahead is True
    assert tuned_system(result, replace(settings, per_symbol=True), 30, {}).settings.look_ahead is None
    assert tuned_system(replace(result, system="direct+lm"), settings, 30, {}).settings.look_ahead is None
    assert tuned_system(replace(result, system="channel+lm"), settings, 30, {}).settings.look_ahead is True
    assert tuned_system(replace(result, system="attention+channel"), settings, 30, {}).settings.look_ahead is None
    assert settings.record()["look_ahead"] is True
    for off in (SearchSettings(), SearchSettings(look_ahead=False)):
        assert "look_ahead" not in off.record(), "as in the records of earlier versions"
        assert off.finds_all_of(SearchSettings())
        assert not off.finds_all_of(settings)


@pytest.mark.parametrize("margin", [1.0, float("inf")])
def test_online_text_has_the_words_and_what_is_stable_stays(trained: Path, margin: float) -> None:
    model = NoisyChannel.load(trained, settings=SearchSettings(max_length=12, k1=6, k2=4))
    online = model.online(margin)
    stable = []
    for word in SENTENCE.split():
        partial = online.read(word + " ")
        assert partial.text.startswith(partial.stable)
        stable.append(partial.stable)
    (output,) = online.finish()
    assert output.text == SENTENCE
    for earlier, later in zip(stable, [*stable[1:], output.text], strict=True):
        assert later.startswith(earlier)
    assert ("Zorro" in stable[-1]) == (margin < 2.0)


class Fixed:
    """A model whose alignment is given."""

    def __init__(self, *alignment: int) -> None:
        self.alignment = alignment

    def viterbi(self, *_: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.zeros(1), torch.tensor([self.alignment])


def codec(words: str, features: tuple[str, ...] = (), **config: object) -> Codec:
    return Codec(TextConfig(units="words", **config), Words(), words.split(), features)  # type: ignore[arg-type]


def hypothesis(*tokens: int, complete: bool = True) -> Hypothesis:
    return Hypothesis.of(tokens, -1.0, {"direct": -1.0}, len(tokens) + complete, complete)


def spelt(speller: Speller, text: str, found: Hypothesis, features: tuple[str, ...] = ()) -> str:
    ids = speller.input_codec.encode(text, features)
    ((output,),) = speller.spell([text], [ids], [[found]], DEFAULT)
    return output.text


@pytest.mark.parametrize(
    ("position", "copy"),
    [(0, ""), (1, ""), (2, "Rex "), (3, "sah "), (4, "Mia "), (5, "Mia ")],
    ids=["feature", "feature", "first", "known", "last", "EOS"],
)
def test_positions_without_a_word(position: int, copy: str) -> None:
    """Two features, one of them unknown, stand before the words, EOS after them. A feature copies nothing."""
    speller = Speller(codec("sah", ("A", "B")), codec("sah"), Fixed())
    aligned = replace(hypothesis(UNK, 4), alignment=(position, 5, 5))
    assert spelt(speller, "Rex sah Mia", aligned, ("A", "Z")) == f"{copy}sah"
    assert spelt(speller, "", aligned, ("A", "Z")) == "sah", "nothing to copy"


@pytest.mark.parametrize(("word", "config"), [("UNK", {}), ("<unk>", {}), ("UNK", {"lowercase": True})])
def test_a_placeholder_for_unknown_words_is_unknown_and_never_copied(word: str, config: dict) -> None:
    """Texts that others have prepared, such as Gigaword, have them on both sides."""
    text = TextConfig(units="words", **config)
    made = Codec.build(text, Words(), Counter({normalise(word, text): 9, "sah": 3}), ())
    assert made.symbols == ("sah",)
    speller = Speller(made, made, Fixed())
    for position, expected in ((0, "sah"), (1, "sah sah"), (2, "Mia sah")):
        aligned = replace(hypothesis(UNK, 4), alignment=(position, 3, 3))
        assert spelt(speller, f"{word} sah Mia", aligned) == normalise(expected, text)
    characters = Codec.build(TextConfig(), Characters(), Counter({"UNK": 2}), ())
    assert characters.symbols == ("UNK",), "only words"


def test_the_copy_is_the_text_as_the_output_side_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noisychannel.outputs.best_alignments", lambda model, *_: [model.alignment])
    lower, plain = {"lowercase": True, "digits_to_hash": True}, {}
    for inputs, outputs, expected in ((lower, plain, "Rex-7"), (plain, lower, "rex-#"), (plain, plain, "Rex-7")):
        speller = Speller(codec("sah", **inputs), codec("sah", **outputs), Fixed(1, 2))
        assert spelt(speller, "Sah Rex-7", hypothesis(UNK)) == expected
        assert spelt(speller, "Sah Rex-7", hypothesis(UNK, complete=False)) == expected, "also of a partial output"


def test_only_words_are_copied() -> None:
    """UNK of other units, or of a model without alignments, has no text."""
    letters = Codec(TextConfig(units="characters"), Characters(), ["a", "b"], ())
    speller = Speller(letters, letters, Fixed(0, 1))
    assert not speller.copies
    assert spelt(speller, "aX", hypothesis(4, UNK)) == "a"
    assert not Speller(codec("sah"), letters, Fixed()).copies
    assert not Speller(codec("sah"), codec("sah"), SimpleNamespace()).copies


def test_outputs_that_look_the_same_stay_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """A known word, and UNK aligned to the same word: other ids and scores, so both are listed."""
    monkeypatch.setattr("noisychannel.outputs.best_alignments", lambda model, *_: [model.alignment])
    speller = Speller(codec("sah"), codec("sah"), Fixed(0, 1))
    (best,) = speller.spell(["sah"], [[4, EOS]], [[hypothesis(4), hypothesis(UNK)]], DEFAULT)
    assert [(output.text, output.unknown) for output in best] == [("sah", ()), ("sah", (0,))]


LITTLE = SearchSettings(k1=1, k2=1, memory=0.0006, max_length=61)


@pytest.mark.parametrize("align", [True, False])
def test_only_the_input_whose_alignment_does_not_fit_is_refused(trained: Path, align: bool) -> None:
    """The search of both inputs fits, and so does the alignment of the short one. No output ends."""
    plain = NoisyChannel.load(trained)
    torch.manual_seed(0)
    direct = SSNT(len(plain.input_codec), len(plain.output_codec), 8)
    with torch.no_grad():
        direct.output_word.bias[UNK], direct.output_word.bias[EOS] = 8.0, -20.0
    model = NoisyChannel(plain.input_codec, plain.output_codec, {"direct": direct}, settings=LITTLE)
    reasons: dict[int, str] = {}
    texts = ["der Zorro " * 50, "Zorro"]
    refused, kept = model.batch(texts, align=align, refuse=lambda n, error: reasons.update({n: str(error)}))
    assert (refused, list(reasons)) == ([], [0])
    assert "scoring" in reasons[0]
    assert set(kept[0].text.split()) == {"Zorro"}
    with pytest.raises(SearchTooLargeError, match="scoring"):
        model.batch(texts, align=align)


def test_an_output_that_ended_but_cannot_be_aligned_is_refused_alone(trained: Path) -> None:
    decoder = NoisyChannel.load(trained, settings=LITTLE).decoder
    inputs, found = [[*[UNK] * 100, EOS], [UNK, EOS]], [[hypothesis(*[UNK] * 100)], [hypothesis(UNK)]]
    reasons: dict[int, str] = {}
    refuse = lambda n, error: reasons.update({n: str(error)})  # noqa: E731
    refused, (kept,) = decoder.finished(inputs, [(), ()], found, 1, True, refuse)
    assert (refused, list(reasons)) == ([], [0])
    assert kept.alignment is not None


def test_a_name_that_the_input_lacks_is_no_search_error(trained: Path) -> None:
    """No output has it, whatever the search."""
    model = NoisyChannel.load(trained, settings=SearchSettings(k1=1, k2=1, max_length=2))
    partial = [[Output("?", hypothesis(UNK, complete=False))]]
    for reference, errors in (("Zorro", 1), ("Kanu", 0), ("der", 1)):
        held_out = HeldOut("test", ["Zorro sah"], [()], [[reference]])
        assert search_errors(model, held_out, partial) == errors, reference
    off = model.reweighted(Weights(), SearchSettings(allow_unk=False))
    assert search_errors(off, HeldOut("test", ["Zorro"], [()], [["Zorro"]]), partial) == 0


def test_fit_sees_the_copied_words(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FoldTuning, "_load", lambda *_: NoisyChannel.load(trained))
    rows = [Row(text, text, (), "", "") for text in ("der Zorro", "Kanu sah", "Mia", "ein Hund")]
    parts = [HeldOutPart(trained, trained, some) for some in (rows[:2], rows[2:])]
    metric = make_metric("accuracy", None, TextConfig(units="words"))
    tuning = FoldTuning(parts, ["direct+length"], DEFAULT, metric, "cpu", seed=1, iterations=1)
    assert tuning.direct().texts == [row.output for row in rows]
    (result,) = tuning.tune()
    assert result.dev_score == 100.0
    (decoded,) = tuning.cross_fitted([[0, 2], [1, 3]])
    assert decoded.texts == [row.output for row in rows]


@pytest.mark.parametrize("role", ["direct", "channel"])
def test_a_model_copies_unk_only_between_words(role: Role) -> None:
    letters = Codec(TextConfig(units="characters"), Characters(), ["a", "b"], ())
    words = codec("a b")
    for sides, copy in (((words, words), UNK), ((words, letters), -1), ((letters, words), -1)):
        assert _copies(role, *sides)[UNK] == copy


def test_no_system_of_a_run_writes_unk(trained: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Whatever proposes, in n-best lists, with proposals of the language model, and when given outputs are ranked."""
    plain = NoisyChannel.load(trained)
    torch.manual_seed(2)
    codecs = plain.input_codec, plain.output_codec
    sizes = len(codecs[0]), len(codecs[1])
    channel, lm = SSNT(sizes[1], sizes[0], 8), LanguageModel(sizes[1], 8)
    for proposer in ("direct", "attention", "seq2seq"):
        made = plain.models["direct"] if proposer == "direct" else Seq2Seq(*sizes, 8, attention=proposer == "attention")
        with torch.no_grad():
            for name, parameter in made.named_parameters():
                if proposer != "direct" and parameter.shape == (sizes[1],):
                    parameter[UNK] += 5.0  # it would write nothing else
                    assert "bias" in name
        weights, wide = Weights(1.0, 0.3, 0.3), SearchSettings(lm_proposals=2 if proposer == "direct" else 0)
        models = {proposer: made, "channel": channel, "lm": lm}
        found = NoisyChannel(*codecs, models, weights, wide).batch([SENTENCE, "Zorro", "der"], n_best=5)
        assert all("<unk>" not in output.text for best in found for output in best)
        unknown = [output for best in found for output in best if output.unknown]
        assert bool(unknown) == (proposer != "seq2seq")
        assert all(len(output.text.split()) == len(output.hypothesis.tokens) for output in unknown)
    file = tmp_path / "given.tsv"
    file.write_text(f"{SENTENCE}\tder Kanu\n{SENTENCE}\tQuux sah\n")
    assert main(["decode", str(trained), "--rerank", str(file), "--n-best", "2"]) == 0
    given = {line.split("\t")[1] for line in capsys.readouterr().out.splitlines()}
    assert given == {"der Kanu", "Quux sah"}, "as they were given"


def test_words_that_are_copied_do_not_make_a_system_unsure(trained: Path) -> None:
    model = NoisyChannel.load(trained)
    assert len(model.input_codec.unknown(SENTENCE).symbols) > 1
    assert model.unknown_symbols(SENTENCE) == 0
    barred = model.reweighted(model.weights, SearchSettings(allow_unk=False))
    assert barred.unknown_symbols(SENTENCE) == len(model.input_codec.unknown(SENTENCE).symbols)
