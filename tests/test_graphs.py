"""Training steps as CUDA graphs: the gradients and the training that there would have been without them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from noisychannel.data.batches import Batch
from noisychannel.models import SSNT, LanguageModel
from noisychannel.symbols import EOS, PAD
from noisychannel.training.graphs import GraphedLoss, _padded, can_be_captured
from noisychannel.training.run import train_run
from toys import toy_config

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")


def random_ids(rng: random.Random, rows: int, longest: int) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = [rng.randint(1, longest) for _ in range(rows)]
    ids = torch.full((rows, max(lengths)), PAD)
    for row, length in zip(ids, lengths, strict=True):
        row[: length - 1] = torch.tensor([rng.randrange(4, 12) for _ in range(length - 1)], dtype=torch.long)
        row[length - 1] = EOS
    return ids, torch.tensor(lengths)


def test_what_fills_up_is_a_valid_batch() -> None:
    ids, lengths = random_ids(random.Random(1), rows=5, longest=6)
    padded, padded_lengths = _padded(ids), _padded(lengths)
    assert padded.shape[0] == 8
    assert padded.shape[1] % 4 == 0
    assert torch.equal(padded[:5, : ids.shape[1]], ids)
    assert padded_lengths.tolist() == [*lengths.tolist(), 1, 1, 1]
    assert (padded[5:, 0] == EOS).all()
    assert (padded[:5, ids.shape[1] :] == PAD).all()


@on_a_gpu
@pytest.mark.parametrize("role", ["direct", "channel", "lm"])
def test_losses_and_gradients_are_those_of_single_launches(role: str) -> None:
    torch.manual_seed(0)
    make: dict[str, Callable[[], nn.Module]] = {
        "direct": lambda: SSNT(12, 12, 16, bidirectional=True),
        "channel": lambda: SSNT(12, 12, 16),
        "lm": lambda: LanguageModel(12, 16),
    }
    model, plain = (make[role]().cuda().train() for _ in range(2))
    plain.load_state_dict(model.state_dict())
    graphed, rng = GraphedLoss(model), random.Random(2)
    for step in range(12):
        rows = rng.choice([3, 8, 13])
        inputs, outputs = random_ids(rng, rows, 7), random_ids(rng, rows, 9)
        batch = Batch(None, None, *outputs) if role == "lm" else Batch(*inputs, *outputs)
        loss = graphed(batch, scale=0.25)
        expected = -plain(*batch.to(torch.device("cuda")).arguments).sum()
        (0.25 * expected).backward()
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-5, atol=1e-5)
        for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)
        if step % 3 == 2:
            for parameter in (*model.parameters(), *plain.parameters()):
                parameter.grad.zero_()


def test_what_cannot_be_captured() -> None:
    assert not can_be_captured(SSNT(12, 12, 16)), "there is no graph on a CPU"
    if torch.cuda.is_available():
        assert can_be_captured(SSNT(12, 12, 16, dropout=0.5).cuda())
        assert can_be_captured(LanguageModel(12, 16, num_layers=2).cuda())
        assert not can_be_captured(LanguageModel(12, 16, num_layers=2, dropout=0.5).cuda())


@on_a_gpu
def test_dropout_follows_the_seed() -> None:
    model = SSNT(12, 12, 16, dropout=0.5).cuda().train()
    graphed, rng = GraphedLoss(model), random.Random(3)
    batch = Batch(*random_ids(rng, 8, 7), *random_ids(rng, 8, 9))
    losses = []
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        losses.append(float(graphed(batch, scale=1.0)))
    assert losses[0] == pytest.approx(losses[2], rel=1e-6)
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=on_a_gpu)])
def test_training_with_graphs_learns_as_well(device: str, tmp_path: Path) -> None:
    """On a CPU the setting changes nothing at all; on a GPU batches are padded further, which moves rounding only."""
    losses = []
    for graphs in (False, True):
        config = toy_config(tmp_path / str(graphs), models=("direct", "lm"), max_epochs=2, cuda_graphs=graphs)
        config.device = device
        train_run(config, lambda event: None, lambda line: None, overwrite=False)
        records = map(json.loads, (tmp_path / str(graphs) / "run" / "metrics.jsonl").read_text().splitlines())
        losses.append([record["loss"] for record in records if record["kind"] == "dev"])
    assert len(losses[0]) == 4
    assert losses[1] == (losses[0] if device == "cpu" else pytest.approx(losses[0], rel=0.02))
