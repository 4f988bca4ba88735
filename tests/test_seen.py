"""Seen inputs: the term against counts, in a search against all outputs one by one, in runs and in tuning."""

from __future__ import annotations

import json
import math
import random
import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decoder_oracles import Tokens, assert_same, pairs, random_input, random_models, reluctant
from noisychannel import NoisyChannel, NoisyChannelDecoder, Weights
from noisychannel.arguments import dump_config
from noisychannel.cli.main import main
from noisychannel.data.augment import AugmentConfig
from noisychannel.data.corpus import Sequences
from noisychannel.data.prepare import DataConfig
from noisychannel.decode.beam_decoder import BeamDecoder
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.reference import ReferenceDecoder
from noisychannel.errors import BadInputError, NoisyChannelError
from noisychannel.evaluation.metrics import make_metric
from noisychannel.ids import BOS, EOS, UNK
from noisychannel.models.seen import ADDED, Seen
from noisychannel.models.seq2seq import Seq2Seq
from noisychannel.runs import RunDirectory
from noisychannel.systems import FreeWeight, make_system
from noisychannel.tuning import CandidatePool, tune
from noisychannel.weights import own_terms, read_system
from test_terms import INPUTS, SEARCHES, UNBOUNDED, check_values, everyone, online, ranked
from toys import toy_config

V = 7
Pair = tuple[Tokens, Tokens]
SIDE = st.lists(st.integers(4, V - 1), max_size=2).map(tuple)
OUTPUT = st.lists(st.sampled_from([UNK, *range(4, V)]), max_size=2).map(tuple)
PAIRS = st.lists(st.tuples(SIDE, OUTPUT), max_size=12)


def counted(seen_pairs: Sequence[Pair], vocab_size: int = V, **options: int) -> Seen:
    """The term of pairs without EOS."""
    inputs, outputs = (Sequences.of([(*pair[side], EOS) for pair in seen_pairs]) for side in (0, 1))
    return Seen.of(*inputs, *outputs, vocab_size, **options)


def of_counts(pairs: int, inputs: int) -> float:
    return math.log((pairs + ADDED) / (inputs + ADDED))


def by_definition(seen_pairs: Sequence[Pair], x: Tokens, prefix: Tokens) -> float:
    """The term of a prefix, with EOS if it is a whole output."""
    outputs = [(*y, EOS) for other, y in seen_pairs if other == x]
    if not outputs:
        return 0.0
    begin = sum(y[: len(prefix)] == prefix for y in outputs if UNK not in y)
    return of_counts(begin, len(outputs))


# --- the term


@settings(max_examples=80, deadline=None)
@given(PAIRS, st.lists(st.tuples(SIDE, OUTPUT), min_size=1, max_size=5))
def test_steps_and_whole_outputs_are_as_defined(seen_pairs: list[Pair], asked: list[Pair]) -> None:
    term, asked = counted(seen_pairs), [*asked, *seen_pairs[:3]]
    sides = [[torch.tensor([*pair[side], EOS]) for pair in asked] for side in (0, 1)]
    (x, x_lengths), (y, y_lengths) = (
        (torch.nn.utils.rnn.pad_sequence(side, batch_first=True), torch.tensor([*map(len, side)])) for side in sides
    )
    whole = term.log_prob(x, x_lengths, y, y_lengths).tolist()
    assert whole == pytest.approx([by_definition(seen_pairs, x, (*y, EOS)) for x, y in asked])
    starts = term.start_for(x, x_lengths)
    for n, (x_ids, y_ids) in enumerate(asked):
        state, total, previous = starts.select(torch.tensor([n])), 0.0, BOS
        for k, symbol in enumerate((*y_ids, EOS)):
            distribution, state = term.step(torch.tensor([previous]), state)
            assert distribution is None
            growth = float(term.score(state, torch.tensor([symbol])))
            assert growth <= 0
            total += growth
            assert total == pytest.approx(by_definition(seen_pairs, x_ids, (*y_ids, EOS)[: k + 1]))
            previous = symbol


@given(PAIRS)
def test_attested_outputs_are_those_of_the_input_most_frequent_first(seen_pairs: list[Pair]) -> None:
    term = counted(seen_pairs)
    assert term.size == (len(seen_pairs), len({(x, (UNK,) if UNK in y else y) for x, y in seen_pairs}))
    restored = Seen.restored(V, term.pairs.keys, term.counts)
    assert restored.counts.tolist() == term.counts.tolist()
    for x in {(), (4,), (4, 5), *(x for x, _ in seen_pairs)}:
        often = Counter(y for other, y in seen_pairs if other == x and UNK not in y)
        found = term.attested((*x, EOS), 100)
        assert Counter(found) == Counter(often.keys())
        assert [often[y] for y in found] == sorted(often.values(), reverse=True)
        assert term.attested((*x, EOS), 1) == found[:1]


def test_an_unknown_symbol_is_not_an_input_that_was_seen() -> None:
    term = counted([((4, UNK), (5,)), ((4,), (UNK,))])
    assert term.size == (1, 1)
    assert term.attested((4, UNK, EOS), 9) == []


def test_an_output_with_an_unknown_symbol_is_no_evidence_for_any_output() -> None:
    x = (4,)
    term = counted([*[(x, (UNK,))] * 60, *[(x, (5, UNK))] * 10, (x, (5,))])
    assert term.attested((*x, EOS), 9) == [(5,)]
    outputs: dict[Tokens, int] = {(UNK,): 0, (5, UNK): 0, (6,): 0, (): 0, (5,): 1}
    for y, often in outputs.items():
        found = term.log_prob(
            torch.tensor([[*x, EOS]]), torch.tensor([2]), torch.tensor([[*y, EOS]]), torch.tensor([len(y) + 1])
        )
        assert float(found) == pytest.approx(math.log((often + 0.1) / 71.1))
    # Elsewhere than at the end of a side, all go on.
    counts = term.counts.clone()
    counts[0] += 1
    with pytest.raises(ValueError, match="counts do not add up"):
        Seen.restored(V, term.pairs.keys, counts)


def test_with_very_many_pairs_rare_inputs_are_not_counted() -> None:
    often, rare = [((4,), (5,))] * 6, [((5,), (4, 4)), ((6,), (4,))]
    term = counted([*often, *rare], most_symbols=30)
    assert term.size == (6, 1)
    assert counted([*often, *rare], most_symbols=100).size == (8, 3)


def test_states_are_rows() -> None:
    term = counted([((4,), (5, 6)), ((5,), (6,))])
    inputs = torch.tensor([[4, EOS], [5, EOS], [6, EOS]])
    state = term.start_for(inputs, torch.tensor([2, 2, 2]))
    symbols, parents = torch.tensor([6, 5, 5]), torch.tensor([1, 0, 2])
    _, together = term.step(symbols, state, parents)
    _, apart = term.step(symbols, state.select(parents))
    assert together.node_N.tolist() == apart.node_N.tolist()
    assert (together.node_N >= 0).tolist() == [True, True, False]
    put = together.put(torch.tensor([0]), apart.select(torch.tensor([2])))
    assert put.node_N.tolist() == [-1, together.node_N[1], -1]
    assert put.concat(together).node_N.tolist() == [*put.node_N.tolist(), *together.node_N.tolist()]


# --- in a search

SEEN: list[Pair] = [
    *[((4,), (4, 5))] * 3, ((4,), (5,)), *[((6, 5), (5, 4, 4))] * 2, ((5, 5, 4), (4, 4)), ((5, 5, 4), (5, 4)),
]  # fmt: skip
"""Of the inputs of the searches below some are seen and some are not."""


def value(x: Sequence[int], tokens: Tokens) -> float:
    return by_definition(SEEN, tuple(x[:-1]), (*tokens, EOS))


@pytest.mark.parametrize("search", SEARCHES)
def test_unbounded_beams_find_the_exact_n_best(search: str) -> None:
    rng = random.Random(search)
    changed = 0
    for seed in range(5):
        models = reluctant(random_models(seed, 6))
        weights = Weights(0.8, rng.choice([0.0, 0.6]), rng.choice([0.0, 0.5]), 0.4, extra={"seen": rng.uniform(1, 30)})
        arguments = everyone(models, weights, {"seen": counted(SEEN)}, **UNBOUNDED, max_length=4, search=search)
        for x, found in zip(INPUTS, NoisyChannelDecoder(**arguments).decode(INPUTS, n_best=6), strict=True):
            expected = ranked(models, x, 6, weights, 4, search, {"seen": value})
            assert_same(found, expected[:6])
            check_values(x, found, weights, {"seen": value})
            plain = replace(weights, extra={})
            changed += expected[0][0] != ranked(models, x, 6, plain, 4, search, {})[0][0]
    assert changed > 5, "a term that changes nothing tests nothing"


def test_narrow_beams_are_the_reference_and_the_attested_outputs() -> None:
    rng = random.Random(5)
    lost = 0
    for seed in range(16):
        models = random_models(40 + seed, 6)
        weights = Weights(1.0, rng.choice([0.0, 0.7]), 0.4, rng.uniform(-1, 1), extra={"seen": rng.uniform(0.2, 3)})
        k1 = rng.choice([2, 4])
        arguments = everyone(
            models, weights, {"seen": counted(SEEN)}, k1=k1, k2=2, max_length=4, search=SEARCHES[seed % 2]
        )
        decoder = NoisyChannelDecoder(**arguments)
        x = random_input(rng) if seed % 4 == 0 else INPUTS[1 + seed % 4]
        met = pairs(ReferenceDecoder(**arguments).decode(x))
        known = [y for y in dict.fromkeys(y for other, y in SEEN if other == tuple(x[:-1])) if len(y) < 4]
        missing = [y for y in known if y not in dict(met)]
        lost += len(missing)
        expected = met + pairs(decoder.score([x], [missing])[0])
        (found,) = decoder.decode([x], 1000)
        if expected:
            assert_same(found, sorted(expected, key=lambda pair: -pair[1]))
            check_values(x, found, weights, {"seen": value})
        (batched, _) = decoder.decode([x, [4, 4, 4, 5, EOS]], 1000)
        assert_same(batched, pairs(found))
    assert lost > 3, "a search that loses nothing tests nothing"


def test_outputs_that_a_search_may_not_find_are_not_added() -> None:
    direct, weights = random_models(3, 6).direct, Weights(1.0, extra={"seen": 50.0})

    def found(y: Tokens, **options: object) -> set[Tokens]:
        term = counted([((4, 5), y)])
        decoder = NoisyChannelDecoder(direct, weights=weights, extra={"seen": term}, k1=2, k2=1, **options)  # type: ignore[arg-type]
        return {hypothesis.tokens for hypothesis in decoder.decode([[4, 5, EOS]], 50)[0]}

    assert (5,) * 5 in found((5,) * 5)
    assert (5,) * 5 not in found((5,) * 5, max_length=5)
    assert (5,) * 5 in found((5,) * 5, max_length=6)
    assert (4, 5) not in found((4, 5), barred=[5])
    assert (UNK,) not in found((UNK,))
    assert (UNK,) not in found((UNK,), allow_unk=True)


def test_a_complete_output_that_is_known_takes_the_place_of_a_partial_one() -> None:
    decoder = NoisyChannelDecoder(
        random_models(3, 6).direct, weights=Weights(1.0, extra={"seen": 1.0}), extra={"seen": counted(SEEN)},
        max_length=2, k1=2, k2=2, barred=[EOS],
    )  # fmt: skip
    partial, whole = decoder.decode([[6, EOS], [4, EOS]], 5)
    assert [hypothesis.complete for hypothesis in partial] == [False]
    assert [(hypothesis.tokens, hypothesis.complete) for hypothesis in whole] == [((5,), True)]


def test_beam_search_ranks_with_the_term_and_knows_attested_outputs() -> None:
    torch.manual_seed(0)
    attention = Seq2Seq(7, 7, 5).double().eval()
    weights = Weights(1.0, extra={"seen": 30.0})
    decoder = BeamDecoder(attention, weights=weights, extra={"seen": counted(SEEN)}, k2=2, max_length=4)
    for x, found in zip(INPUTS, decoder.decode(INPUTS, 2), strict=True):
        check_values(x, found, weights, {"seen": value})
        known = Counter(y for other, y in SEEN if other == tuple(x[:-1]))
        assert not known or known[found[0].tokens]


def test_online_decoding_refuses_the_term() -> None:
    weights = Weights(1.0, extra={"seen": 1.0})
    arguments = {"direct": random_models(1, 6).direct, "weights": weights, "extra": {"seen": counted(SEEN)}}
    with pytest.raises(ValueError, match=r"^the term seen reads the whole input first[^\n]*without seen$"):
        online(arguments, [4, EOS], 1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_says_the_same() -> None:
    term = counted(SEEN).cuda()
    x, y = torch.tensor([[4, EOS, 0], [6, 5, EOS]]), torch.tensor([[4, 5, EOS], [4, EOS, 0]])
    found = term.log_prob(x.cuda(), torch.tensor([2, 3]), y.cuda(), torch.tensor([3, 2]))
    assert found.tolist() == pytest.approx([value((4, EOS), (4, 5)), value((6, 5, EOS), (4,))])
    assert term.attested((4, EOS), 5) == [(4, 5), (5,)]


# --- in a run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Running text: inputs come again, one of them with two outputs; beside it pairs that must not be counted."""
    directory = tmp_path_factory.mktemp("seen")
    config = toy_config(directory, models=("direct", "channel", "lm"), max_epochs=1)
    lines = ["vnd\tund"] * 6 + ["jn\tin"] * 3 + ["jn\tihn"] + ["haus\thaus", "vmb\tum"]
    (directory / "train.tsv").write_text("\n".join(lines) + "\n")
    (directory / "dev.tsv").write_text("vnd\tund\njn\tihn\nvns\tuns\n")
    (directory / "further.tsv").write_text("vnd\tvnd\nneu\tneu\n")
    config.data.further = [str(directory / "further.tsv")]
    config.data.augment = AugmentConfig(made_up=20, repeat=3)
    (directory / "config.yaml").write_text(dump_config(config))
    assert main(["train", str(directory / "config.yaml")]) == 0
    return Path(config.run_dir)


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def term_of(run: RunDirectory, text: str, output: str, features: Sequence[str] = ()) -> float:
    input_codec, output_codec = run.codecs()
    x, y = torch.tensor([input_codec.encode(text, features)]), torch.tensor([output_codec.encode(output)])
    return float(run.load_seen().log_prob(x, torch.tensor([x.shape[1]]), y, torch.tensor([y.shape[1]])))


def test_a_run_counts_its_real_pairs_once_each(trained: Path) -> None:
    run = RunDirectory(trained)
    assert run.load_seen().size == (12, 5)
    assert run.repeated_pairs == pytest.approx(7 / 12)
    assert "seen" in own_terms(run)
    expected = {
        ("vnd", "und"): (6, 6), ("vnd", "vnd"): (0, 6), ("jn", "in"): (3, 4), ("jn", "ihn"): (1, 4),
        ("haus", "haus"): (1, 1), ("neu", "neu"): (0, 0), ("neu", "um"): (0, 0),
    }  # fmt: skip
    for (text, output), counts in expected.items():
        assert term_of(run, text, output) == pytest.approx(of_counts(*counts))


def test_decoding_uses_the_counts(trained: Path) -> None:
    model = NoisyChannel.load(trained, weights=Weights(1.0, lm=0.2, extra={"seen": 30.0}))
    found = model.batch(["vnd", "jn", "vns"], n_best=2)
    assert [best[0].text for best in found[:2]] == ["und", "in"]
    assert [best[0].hypothesis.extra["seen"] for best in found] == pytest.approx([0.0, of_counts(3, 4), 0.0])
    assert model.rerank("jn", ["in", "ihn"])[1].hypothesis.extra["seen"] == pytest.approx(of_counts(1, 4))


def test_features_and_groups_are_counted_apart(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("a\tab\tone\n" * 3 + "a\tbb\ttwo\n" * 3)
    for column in ("group", "features"):
        config = toy_config(tmp_path / column, max_epochs=1)
        files = {"train": [str(tmp_path / "train.tsv")], "dev": [str(tmp_path / "train.tsv")]}
        config.data = DataConfig(**files, columns=f"input,output,{column}")
        (tmp_path / column / "config.yaml").write_text(dump_config(config))
        assert main(["train", str(tmp_path / column / "config.yaml")]) == 0
        for name, listed, other in (("one", "ab", "bb"), ("two", "bb", "ab")):
            run = RunDirectory(Path(config.run_dir)).group(name if column == "group" else "")
            tags = [name] if column == "features" else []
            assert term_of(run, "a", listed, tags) == 0
            assert term_of(run, "a", other, tags) == pytest.approx(of_counts(0, 3))
            model = NoisyChannel.load(run.path, weights=Weights(1.0, extra={"seen": 30.0}))
            assert model("a", features=tags)[0].text == listed


def test_a_run_of_an_earlier_version_has_no_counts_until_it_is_trained_again(
    run: Path, capsys: pytest.CaptureFixture[str], trained: Path
) -> None:
    directory = RunDirectory(run)
    kept = directory.seen_file.read_bytes()
    directory.seen_file.unlink()
    with pytest.raises(NoisyChannelError, match=r"seen\.safetensors: missing; restore it from a copy, or count again"):
        directory.load_seen()
    header = json.loads(directory.header_file.read_text())
    del header["files"]["seen.safetensors"]
    directory.header_file.write_text(json.dumps(header))
    old = RunDirectory.open(run)
    assert "seen" not in own_terms(old)
    assert NoisyChannel.load(run)("vnd")
    with pytest.raises(
        BadInputError, match=r"no counts of its training pairs \(seen\); count them, .*noisychannel train"
    ):
        old.load_seen()
    for words in (["tune", str(run), "--systems", "direct+seen"], ["decode", str(run), "--weights", "direct=1,seen=2"]):
        capsys.readouterr()
        assert main(words) == 2
        assert "no counts of its training pairs" in capsys.readouterr().err
    models = {file: file.read_bytes() for file in run.glob("*/model.safetensors")}
    assert main(["train", str(run / "config.yaml"), "--run_dir", str(run)]) == 0
    assert "pairs were counted" in capsys.readouterr().err
    assert {file: file.read_bytes() for file in run.glob("*/model.safetensors")} == models
    assert RunDirectory(run).seen_file.read_bytes() == kept
    assert RunDirectory(run).load_seen().size == (12, 5)
    assert not (run / ".data").exists()


def test_counts_that_are_damaged_are_refused(run: Path) -> None:
    directory = RunDirectory(run)
    kept = directory.seen_file.read_bytes()
    directory.seen_file.write_bytes(kept[:100])
    with pytest.raises(
        NoisyChannelError, match=r"damaged or truncated .* or count again: rm -f \S*seen\.safetensors &&"
    ):
        directory.load_seen()
    with pytest.raises(NoisyChannelError, match="or count again"):
        _ = directory.repeated_pairs
    directory.write_seen(counted(SEEN))
    with pytest.raises(NoisyChannelError, match=r"not the counts of this run \(7 symbols instead of"):
        directory.load_seen()
    directory.write_seen(counted([((4,), (5,))], max(map(len, directory.codecs()))))
    with pytest.raises(NoisyChannelError, match="damaged"):
        directory.load_seen()
    with pytest.raises(ValueError, match="counts do not add up"):
        Seen.restored(V, counted(SEEN).pairs.keys, counted(SEEN).counts.flip(0))


FEW = ["--k1", "4", "--k2", "2", "--iterations", "1", "--device", "cpu"]


@pytest.mark.parametrize("damage", ["missing", "truncated", "changed"])
def test_training_counts_again_if_the_counts_are_lost(
    run: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    file, config = run / "seen.safetensors", run / "config.yaml"
    kept = file.read_bytes()
    contents = {"missing": None, "truncated": kept[:100], "changed": kept[:-1] + bytes([kept[-1] ^ 1])}
    file.unlink()
    if (content := contents[damage]) is not None:
        file.write_bytes(content)
    # What does not need them works; what does says what to do.
    assert main(["tune", str(run), "--systems", "direct+lm", *FEW]) == 0
    capsys.readouterr()
    assert main(["tune", str(run), *FEW]) == 1
    remedy = capsys.readouterr().err.strip().splitlines()[-1].partition("count again: ")[2]
    removing, _, training = remedy.partition(" && ")
    assert training == f"noisychannel train {config} --run-dir {run}"
    assert main(shlex.split(training)[1:]) == 0
    assert "pairs were counted" in capsys.readouterr().err
    assert file.read_bytes() == kept
    file.unlink()
    subprocess.run(removing, shell=True, check=True)
    assert main(shlex.split(training)[1:]) == 0
    assert RunDirectory(run).load_seen().size == (12, 5)
    capsys.readouterr()
    assert main(shlex.split(training)[1:]) == 0
    assert "pairs were counted" not in capsys.readouterr().err


def test_lost_counts_stay_lost_without_the_pairs(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "seen.safetensors").unlink()
    words = ["train", str(run / "config.yaml"), "--run_dir", str(run), "--data.train", str(run / "absent.tsv")]
    assert main(words) == 0
    assert "pairs were not counted (seen), because files of its data are missing" in capsys.readouterr().err
    assert not (run / "seen.safetensors").exists()


def test_a_run_without_a_model_of_pairs_has_no_counts(tmp_path: Path) -> None:
    config = toy_config(tmp_path, models=("lm",), max_epochs=1)
    (tmp_path / "config.yaml").write_text(dump_config(config))
    assert main(["train", str(tmp_path / "config.yaml")]) == 0
    assert not RunDirectory(Path(config.run_dir)).has_seen


def test_running_text_is_tuned_with_its_counts(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", str(run), *FEW]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[0] == "direct+channel+lm+seen"
    tuned = read_system(RunDirectory(run))
    assert (tuned.name, tuned.terms["seen"].kind) == ("direct+channel+lm+seen", "seen")
    assert set(tuned.models) == {"direct", "channel", "lm", "seen"}
    assert main(["tune", str(run), "--systems", '["direct+seen+lm"]', *FEW]) == 0
    inputs = run.with_name("inputs.txt")
    inputs.write_text("jn\n")
    assert main(["decode", str(run), str(inputs), "--explain", "--weights", "direct=1,seen=90"]) == 0
    shown = capsys.readouterr().out
    assert "seen 90" in shown
    assert "in" in shown.split()


# --- tuning


def test_a_term_that_is_zero_everywhere_keeps_its_weight_and_changes_no_other() -> None:
    metric, rng = make_metric("accuracy", None), random.Random(2)
    lists = []
    for _ in range(40):
        right = Hypothesis.of(
            (4,), 0.0, {"direct": -2.0 - rng.random(), "lm": -1.0 - rng.random(), "seen": 0.0}, 2, True
        )
        wrong = Hypothesis.of(
            (5,), 0.0, {"direct": -1.0 - rng.random(), "lm": -2.0 - rng.random(), "seen": 0.0}, 2, True
        )
        lists.append([right, wrong])

    def decode(weights: Weights) -> list[list[Hypothesis]]:
        asked.append(weights)

        def score(hypothesis: Hypothesis) -> float:
            return sum(w * (hypothesis.terms()[name] or 0.0) for name, w in weights.by_name().items())

        return [sorted(hypotheses, key=score, reverse=True) for hypotheses in lists]

    asked: list[Weights] = []

    def tuned(name: str, known: Sequence[Weights] = ()) -> Weights:
        system = make_system(name, {"seen": FreeWeight("seen", start=1.5, spread=1.0)})
        pool = CandidatePool(metric, [["r"]] * 40, [{(4,): "r", (5,): "w"}.__getitem__] * 40)
        asked.clear()
        result = tune(system, decode, pool, known=known)
        assert [step.weights for step in result.history] == asked, "the history is what was decoded"
        return result.weights

    plain = tuned("direct+lm")
    assert plain != make_system("direct+lm").start, "a tuning that does nothing tests nothing"
    with_seen = tuned("direct+lm+seen")
    assert with_seen.extra == {"seen": 1.5}
    assert replace(with_seen, extra={}) == plain
    again = tuned("direct+lm+seen", [replace(plain, extra={"seen": 0.0})])
    assert again.extra == {"seen": 1.5}


def test_the_name_of_a_system_without_counts_says_why() -> None:
    with pytest.raises(BadInputError, match=r"^unknown system 'direct\+seen': there is no term 'seen': the run has no"):
        make_system("direct+seen")
    seen = FreeWeight("seen", start=1.0, spread=1.0)
    listed = FreeWeight("word_list", start=1.0, spread=1.0)
    system = make_system("direct+seen+lm+word_list", {"seen": seen, "word_list": listed})
    assert system.name == "direct+lm+word_list+seen"
    fixed = system.fixing({"seen": 3.0})
    assert fixed.weights({"lm": 1.0}).extra == {"word_list": 0.0, "seen": 3.0}
    assert fixed.from_vector(fixed.vector(fixed.start)) == fixed.start
    fixed.check(fixed.start)
