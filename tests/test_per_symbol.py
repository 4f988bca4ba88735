"""Terms per symbol: the objective of later work, computed by hand from the terms, in both decoders and in tuning."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from decoder_oracles import every_output, random_models
from noisychannel import Hypothesis, NoisyChannel, NoisyChannelDecoder, OnlineDecoder, Weights
from noisychannel.cli.main import main
from noisychannel.decode.beam import beam_search
from noisychannel.decode.beam_decoder import BeamDecoder
from noisychannel.decode.reference import ReferenceDecoder
from noisychannel.decode.settings import SearchSettings
from noisychannel.evaluation.metrics import make_metric
from noisychannel.ids import EOS
from noisychannel.models.seq2seq import Seq2Seq
from noisychannel.models.word_list import WordList
from noisychannel.runs import RunDirectory
from noisychannel.systems import make_system
from noisychannel.training.run import train_run
from noisychannel.tuning import CandidatePool
from noisychannel.weights import read_system
from test_word_list import listed
from toys import toy_config

INPUTS = [[EOS], [4, EOS], [6, 5, EOS], [3, 4, 5, 6, EOS], [5, 5, 4, 4, 5, 6, EOS]]
WEIGHTS = Weights(1.0, channel=0.7, lm=0.9, length=0.4)
SETTINGS = SearchSettings(k1=8, k2=6, per_symbol=True)


def by_hand(hypothesis: Hypothesis, x: Sequence[int], weights: Weights) -> float:
    """Each term divided by its own length; EOS counts in both lengths."""
    out, read = len(hypothesis.tokens) + 1, len(x)
    total = weights.direct * hypothesis.direct / out + weights.length * out / read
    if weights.channel:
        assert hypothesis.channel is not None
        total += weights.channel * hypothesis.channel / read
    if weights.lm:
        assert hypothesis.lm is not None
        total += weights.lm * hypothesis.lm / out
    return total


def check(found: Sequence[Hypothesis], x: Sequence[int], weights: Weights) -> None:
    assert [h.score for h in found] == pytest.approx([len(x) * by_hand(h, x, weights) for h in found])
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)


def test_given_outputs_are_ranked_by_terms_over_lengths() -> None:
    models, outputs = random_models(1, 6), every_output([4, 5], 4)
    plain = NoisyChannelDecoder(models.direct, models.channel, models.lm, WEIGHTS)
    decoder = plain.reweighted(WEIGHTS, SETTINGS)
    changed = 0
    for x in INPUTS:
        (found,) = decoder.rerank([x], [outputs])
        check(found, x, WEIGHTS)
        (unlike,) = plain.rerank([x], [outputs])
        by_tokens = {h.tokens: h for h in unlike}
        for h in found:  # the terms themselves are those of the models
            same = by_tokens[h.tokens]
            assert (h.direct, h.channel, h.lm) == (same.direct, same.channel, same.lm)
        changed += [h.tokens for h in found] != [h.tokens for h in unlike]
    assert changed > 2


@pytest.mark.parametrize("weights", [WEIGHTS, Weights(1.0), Weights(0.0, channel=1.0, lm=0.8, length=-0.3)])
def test_what_the_proposing_model_finds_is_ranked(weights: Weights) -> None:
    models = random_models(2, 6)
    direct = NoisyChannelDecoder(models.direct, models.channel, models.lm, weights, settings=SETTINGS)
    torch.manual_seed(0)
    attention = Seq2Seq(7, 6, 5).double().eval()
    beam = BeamDecoder(attention, models.channel, models.lm, weights, settings=SETTINGS)
    alone = NoisyChannelDecoder(models.direct, settings=replace(SETTINGS, per_symbol=False))
    proposed = {
        direct: alone.decode(INPUTS, 6),
        beam: beam_search(attention, INPUTS, replace(SETTINGS, per_symbol=False), 6),
    }
    for decoder, lists in proposed.items():
        for x, found, candidates in zip(INPUTS, decoder.decode(INPUTS, 3), lists, strict=True):
            check(found, x, weights)
            (every,) = decoder.score([x], [[h.tokens for h in candidates]])
            best = sorted(every, key=lambda h: -by_hand(h, x, weights))
            assert [h.tokens for h in found] == [h.tokens for h in best[:3]]
        together, apart = decoder.decode(INPUTS, 2), [decoder.decode([x], 2)[0] for x in INPUTS]
        assert [[h.tokens for h in best] for best in together] == [[h.tokens for h in best] for best in apart]


def test_a_word_list_is_no_sum_over_symbols() -> None:
    models, term = random_models(3, 6), WordList(listed([(4,), (4, 5)], 6))
    weights = Weights(1.0, lm=0.5, extra={"word_list": 2.0})
    decoder = NoisyChannelDecoder(models.direct, lm=models.lm, weights=weights, extra={"word_list": term}, settings=SETTINGS)  # fmt: skip  # noqa: E501
    x = [6, 5, EOS]
    (found,) = decoder.rerank([x], [[(4,), (5, 5, 5)]])
    for h in found:
        expected = (h.direct + 0.5 * h.lm) / h.length + 2.0 * h.extra["word_list"] / len(x)  # type: ignore[operator]
        assert h.score == pytest.approx(len(x) * expected)


def test_the_pool_of_the_tuner_weighs_what_the_decoder_weighs() -> None:
    models = random_models(4, 6)
    decoder = NoisyChannelDecoder(models.direct, models.channel, models.lm, WEIGHTS, settings=SETTINGS)
    lists = decoder.decode(INPUTS, 5)
    pool = CandidatePool(make_metric("accuracy"), [["a"]] * len(INPUTS), [str] * len(INPUTS))
    for n, found in enumerate(lists):
        pool.add(n, found)
    system = make_system("direct+channel+lm")
    objective = pool.under(system).objective(system.vector(WEIGHTS))
    assert objective.tolist() == pytest.approx([h.score for found in lists for h in found])


def test_searches_that_compare_prefixes_refuse_it() -> None:
    direct = random_models(5, 6).direct
    with pytest.raises(ValueError, match="per_symbol must be off for online decoding"):
        OnlineDecoder(NoisyChannelDecoder(direct, settings=SETTINGS))
    with pytest.raises(ValueError, match="per_symbol and channel_words must be off"):
        ReferenceDecoder(direct, settings=SETTINGS)
    with pytest.raises(ValueError, match="per_symbol"):
        SearchSettings(per_symbol=1)  # type: ignore[arg-type]


def test_the_setting_is_recorded_only_if_it_is_on() -> None:
    assert "per_symbol" not in SearchSettings().record()
    assert SETTINGS.record()["per_symbol"] is True
    assert not SETTINGS.finds_all_of(replace(SETTINGS, per_symbol=False))
    assert not SETTINGS.for_direct().per_symbol


def test_a_run_is_tuned_and_decoded_per_symbol(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = toy_config(tmp_path, rows=40, models=("direct", "lm"), max_epochs=1)
    train_run(config, listen=lambda event: None, say=lambda line: None)
    run, dev = config.run_dir, tmp_path / "dev.tsv"
    assert main(["tune", run, "--systems", "direct+lm", "--per_symbol", "--k1", "4", "--k2", "4"]) == 0
    tuned = read_system(RunDirectory(Path(run)), "direct+lm")
    assert tuned.settings.per_symbol
    model = NoisyChannel.load(run)
    texts = [line.split("\t")[0] for line in dev.read_text().splitlines()][:5]
    for text, outputs in zip(texts, model.batch(texts, n_best=2), strict=True):
        check([output.hypothesis for output in outputs], model.input_codec.encode(text), tuned.weights)
    capsys.readouterr()
    lists = tmp_path / "lists.tsv"
    lists.write_text("bad\tbaad\nbad\tb\nbad\tbaadbaad\n")
    printed = {}
    for per_symbol in ("false", "true"):
        options = ["--json", "--n-best", "3", "--weights", "1,0,1,0", "--per_symbol", per_symbol]
        assert main(["decode", run, "--rerank", str(lists), *options]) == 0
        printed[per_symbol] = [h["output"] for h in json.loads(capsys.readouterr().out)["hypotheses"]]
    assert sorted(printed["false"]) == sorted(printed["true"])
    assert printed["false"].index("baadbaad") == 2, "the longest has the lowest sum"
    assert printed["true"].index("baadbaad") < 2
