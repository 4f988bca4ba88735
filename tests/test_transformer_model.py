"""The transformer baseline: against PyTorch's layers, steps against whole outputs, and in a run."""

from __future__ import annotations

import itertools
import json
import math
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from noisychannel import NoisyChannel, Weights
from noisychannel.arguments import dump_config
from noisychannel.cli.main import main
from noisychannel.decode.beam import beam_search
from noisychannel.decode.settings import SearchSettings
from noisychannel.errors import NoisyChannelError
from noisychannel.ids import BOS, EOS, PAD
from noisychannel.models.registry import ROLES
from noisychannel.models.transformer import Attention, Transformer, sinusoids
from noisychannel.runs import RunDirectory
from noisychannel.training.config import TransformerConfig
from noisychannel.training.run import train_run
from noisychannel.weights import read_system
from toys import reverse, toy_config

INPUTS = [[4, 5, 6, 4, EOS], [6, EOS], [EOS], [5, 5, 4, EOS]]
OUTPUTS = [[4, 3, EOS], [5, 4, 4, 5, 3, EOS], [4, 4, EOS], [EOS]]


def model_of(seed: int = 0, **more: object) -> Transformer:
    """A random model in float64, with weights far enough from zero that everything it computes matters."""
    torch.manual_seed(seed)
    model = Transformer(7, 6, 8, num_layers=2, num_heads=2, feedforward_size=12, **more).double().eval()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def padded(rows: list[list[int]], extra: int = 0) -> tuple[Tensor, Tensor]:
    ids = pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)
    return torch.nn.functional.pad(ids, (0, extra), value=PAD), torch.tensor([len(row) for row in rows])


def copy_attention(ours: Attention, theirs: nn.MultiheadAttention) -> None:
    parts = (ours.query, ours.key, ours.value)
    theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
    theirs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    theirs.out_proj.load_state_dict(ours.out.state_dict())


@torch.no_grad()
def by_pytorch(model: Transformer, u: list[int], v: list[int]) -> float:
    """log p(v | u) of one pair, by ``nn.TransformerEncoderLayer`` and ``nn.TransformerDecoderLayer``."""
    options = {"batch_first": True, "norm_first": True, "dropout": 0.0, "dtype": torch.float64}
    x = model.input_embedding(torch.tensor([u])) * math.sqrt(8)
    x = x + torch.tensor([[[f(p / 1e4 ** (2 * k / 8)) for k in range(4) for f in (math.sin, math.cos)] for p in range(9)]])[:, : len(u)]  # fmt: skip  # noqa: E501
    for layer in model.reader:
        theirs = nn.TransformerEncoderLayer(8, 2, 12, **options).eval()
        copy_attention(layer.attention, theirs.self_attn)
        for name, part in (("linear1", layer.feed_forward[0]), ("linear2", layer.feed_forward[3])):
            getattr(theirs, name).load_state_dict(part.state_dict())
        for n, norm in enumerate(layer.norms):
            getattr(theirs, f"norm{n + 1}").load_state_dict(norm.state_dict())
        x = theirs(x)
    memory = model.read_norm(x)
    y = model.output_embedding(torch.tensor([[BOS, *v[:-1]]])) * math.sqrt(8) + sinusoids(0, len(v), memory)
    for layer in model.writer:
        theirs = nn.TransformerDecoderLayer(8, 2, 12, **options).eval()
        copy_attention(layer.own, theirs.self_attn)
        copy_attention(layer.across, theirs.multihead_attn)
        for name, part in (("linear1", layer.feed_forward[0]), ("linear2", layer.feed_forward[3])):
            getattr(theirs, name).load_state_dict(part.state_dict())
        for n, norm in enumerate(layer.norms):
            getattr(theirs, f"norm{n + 1}").load_state_dict(norm.state_dict())
        y = theirs(y, memory, tgt_mask=torch.ones(len(v), len(v), dtype=torch.bool).triu(1))
    logits = model.written_norm(y)[0] @ model.output_embedding.weight.T + model.word_bias
    return float(logits.log_softmax(-1)[torch.arange(len(v)), torch.tensor(v)].sum())


@pytest.mark.parametrize("grad", [False, True])
def test_log_prob_is_that_of_pytorchs_layers_and_ignores_padding(grad: bool) -> None:
    model = model_of()
    expected = [by_pytorch(model, u, v) for u, v in zip(INPUTS, OUTPUTS, strict=True)]
    for extra in (0, 3):
        with torch.set_grad_enabled(grad):
            found = model.log_prob(*padded(INPUTS, extra), *padded(OUTPUTS, extra))
        assert found.tolist() == pytest.approx(expected, rel=1e-6)  # their positions are those of float32


@torch.no_grad()
def test_steps_are_whole_outputs_and_states_are_rows() -> None:
    model = model_of(1)
    whole = model.log_prob(*padded(INPUTS), *padded(OUTPUTS)).tolist()
    start = model.start(*padded(INPUTS))
    for n, v in enumerate(OUTPUTS):
        state, total = start.select(torch.tensor([n, 1])), 0.0
        for before, symbol in itertools.pairwise([BOS, *v]):
            log_prob, state = model.step(torch.tensor([before, 5]), state)
            assert log_prob[0].exp().sum().item() == pytest.approx(1)
            total += float(log_prob[0, symbol])
            state = state.select(torch.tensor([0, 0]))._replace(row=torch.tensor([n, 1]))
        assert total == pytest.approx(whole[n], abs=1e-9)


def test_all_outputs_and_what_has_not_ended_sum_to_one() -> None:
    model = model_of(2)
    ended = [[*v, EOS] for length in range(3) for v in itertools.product([0, 1, 3, 4, 5], repeat=length)]
    mass = model.log_prob(*padded([INPUTS[0]] * len(ended)), *padded(ended)).exp().sum().item()
    state, unended = model.start(*padded([INPUTS[0]])), torch.zeros(1, dtype=torch.float64)
    symbols = torch.tensor([BOS])
    others = torch.tensor([0, 1, 3, 4, 5])
    for _ in range(3):
        log_prob, state = model.step(symbols, state)
        unended = (unended[:, None] + log_prob[:, others]).flatten()
        state = state.select(torch.arange(len(log_prob)).repeat_interleave(5))
        symbols = others.repeat(len(log_prob))
    assert mass + unended.exp().sum().item() == pytest.approx(1, abs=1e-12)


def test_in_float32_the_batch_does_not_change_a_bit() -> None:
    model = model_of(3).float()
    with torch.no_grad():
        together = model.log_prob(*padded(INPUTS), *padded(OUTPUTS)).tolist()
        apart = [model.log_prob(*padded([u]), *padded([v])).item() for u, v in zip(INPUTS, OUTPUTS, strict=True)]
    assert together == pytest.approx(apart, rel=1e-6)
    settings = SearchSettings(k2=3, max_length=6)
    every = beam_search(model, INPUTS, settings, n_best=3)
    for u, found in zip(INPUTS, every, strict=True):
        (alone,) = beam_search(model, [u], settings, n_best=3)
        assert [h.tokens for h in found] == [h.tokens for h in alone]
        assert [h.direct for h in found] == pytest.approx([h.direct for h in alone], rel=1e-6)


@torch.no_grad()
def test_a_wide_beam_finds_the_best_output() -> None:
    model = model_of(4)
    outputs = [[*v, EOS] for length in range(4) for v in itertools.product([4, 5], repeat=length)]
    for u in INPUTS:
        scores = model.log_prob(*padded([u] * len(outputs)), *padded(outputs))
        best = outputs[int(scores.argmax())][:-1]
        found = beam_search(model, [u], SearchSettings(k1=40, k2=40, max_length=4), n_best=1)[0][0]
        assert found.tokens == tuple(best)
        assert found.direct == pytest.approx(float(scores.max()))


def test_training_smooths_labels_and_log_prob_does_not() -> None:
    smoothed, plain = model_of(5, label_smoothing=0.2).train(), model_of(5).train()
    pairs = (*padded(INPUTS), *padded(OUTPUTS))
    exact = plain(*pairs)
    assert torch.equal(smoothed.log_prob(*pairs), exact)
    assert torch.equal(smoothed.eval()(*pairs), exact)
    logits = plain._logits(*pairs[:3])
    loss = [
        nn.functional.cross_entropy(row[:n], ids[:n], reduction="sum", label_smoothing=0.2)
        for row, ids, n in zip(logits, pairs[2], pairs[3].tolist(), strict=True)
    ]
    assert (-smoothed.train()(*pairs)).tolist() == pytest.approx([one.item() for one in loss])


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="hidden_size 8 must be a multiple of num_heads 3"):
        Transformer(7, 6, 8, num_heads=3)
    with pytest.raises(ValueError, match="label_smoothing"):
        Transformer(7, 6, 8, label_smoothing=1.0)


def test_the_registry_counts_its_parameters() -> None:
    sizes = TransformerConfig(hidden_size=12, num_layers=2, num_heads=3, feedforward_size=20)
    description = ROLES["transformer"].describe(sizes, {"input": 9, "output": 11})
    assert description.parameters == sum(parameter.numel() for parameter in description.build().parameters())


# --- in a run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reversed strings: what an SSNT cannot do, and attention can."""
    directory = tmp_path_factory.mktemp("transformer")
    training = {"max_epochs": 12, "learning_rate": 0.01, "batch_size": 50, "patience": 30}
    config = toy_config(directory, reverse, rows=800, models=("transformer",), longest=4, **training)
    config.transformer = TransformerConfig(
        hidden_size=32, num_layers=1, num_heads=2, dropout=0.0, learning_rate=None, warmup=40, label_smoothing=0.05
    )
    (directory / "config.yaml").write_text(dump_config(config))
    train_run(config, listen=lambda event: None, say=lambda line: None)
    return Path(config.run_dir)


def test_a_toy_task_is_learnt_and_decoded(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = NoisyChannel.load(trained)
    assert model.proposer == "transformer"
    assert isinstance(model.models["transformer"], Transformer)
    pairs = [line.split("\t") for line in (trained.parent / "dev.tsv").read_text().splitlines()]
    right = sum(
        best[0].text == y for best, (_, y) in zip(model.batch([x for x, _ in pairs], n_best=2), pairs, strict=True)
    )
    assert right > 0.7 * len(pairs)
    found = model("bad", n_best=3)
    assert model.rerank("bad", [found[1].text, found[0].text])[0].text == found[0].text
    assert main(["evaluate", str(trained), str(trained.parent / "dev.tsv")]) == 0
    assert "transformer" in capsys.readouterr().out


def test_the_learning_rate_rises_during_the_warm_up(trained: Path) -> None:
    records = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    rates = {record["step"]: record["learning_rate"] for record in records if record["kind"] == "train"}
    assert rates[5] == pytest.approx(0.01 * 6 / 40)
    assert rates[35] == pytest.approx(0.01 * 36 / 40)
    assert max(rates.values()) == pytest.approx(0.01)


def test_a_length_bias_is_tuned_like_that_of_other_baselines(trained: Path) -> None:
    assert main(["tune", str(trained), "--systems", "transformer+length", "--k2", "2", "--iterations", "1"]) == 0
    tuned = read_system(RunDirectory(trained), "transformer+length")
    assert tuned.weights.direct == 1.0
    found = NoisyChannel.load(trained, system="transformer+length")("bad")[0].hypothesis
    assert found.score == pytest.approx(tuned.weights.by_name()["length"] * found.length + found.direct)
    again = NoisyChannel.load(trained, weights=Weights(1.0))
    assert again.proposer == "transformer"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--transformer.num_heads", "3"), r"transformer.num_heads: 3 does not divide transformer.hidden_size 32"),
        (("--transformer.embedding_size", "8"), r"transformer.embedding_size: .*; leave it out"),
        (("--transformer.bidirectional", "true"), r"transformer.bidirectional: .*; set it to false"),
        (("--transformer.label_smoothing", "1"), r"transformer.label_smoothing"),
    ],
)
def test_bad_keys_are_one_line(
    trained: Path, option: tuple[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", str(trained.parent / "config.yaml"), *option]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_a_damaged_configuration_is_one_line(trained: Path) -> None:
    file = trained / "transformer" / "config.json"
    good = file.read_text()
    try:
        record = json.loads(good)
        record["arguments"]["num_heads"] = 5
        file.write_text(json.dumps(record))
        with pytest.raises(NoisyChannelError, match="hidden_size: must be a multiple of num_heads"):
            RunDirectory(trained).load_model("transformer")
    finally:
        file.write_text(good)
