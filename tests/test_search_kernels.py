"""The kernels of a search against the portable code: on the GPU, or else interpreted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from interpreter import DEVICE, MARKS, interpreted, portable_is_portable  # noqa: F401 (used by every test)
from noisychannel import SSNT, LanguageModel, NoisyChannelDecoder, Weights, kernels
from noisychannel.decode import lattices, proposals
from noisychannel.decode.columns import ChannelColumn, advance_channel, reach_both
from noisychannel.decode.lateness import LARGE
from noisychannel.decode.lattices import emissions
from noisychannel.decode.packing import Packing
from noisychannel.decode.proposals import RankedScores, propose
from noisychannel.decode.settings import Alignments, SearchSettings
from noisychannel.ids import EOS
from noisychannel.joint import Scaled, log_normaliser
from noisychannel.precision import SearchProducts
from noisychannel.semirings import Log, Max, Semiring
from oracles import joint_log_normaliser

with interpreted():
    from noisychannel.kernels import joint as fused_joint
    from noisychannel.kernels import search as fused
    from noisychannel.kernels import states as fused_states

pytestmark = MARKS

SEMIRINGS: list[Semiring] = [Log(), Max()]


def random(*shape: int, scale: float = 3.0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (scale * torch.randn(*shape, dtype=dtype)).to(DEVICE)


@pytest.mark.parametrize(("I", "G"), [(1, 3), (5, 64), (18, 70)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_emission_logits(I: int, G: int, dtype: torch.dtype) -> None:
    """As the model's own, with the gates of each prefix's sentence."""
    torch.manual_seed(0)
    model = SSNT(5, 5, G).to(DEVICE).eval()
    known, built = random(3, I, G, dtype=dtype), random(7, G, dtype=dtype)
    filled = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=torch.bool, device=DEVICE)
    packing = Packing.of(filled)
    built = built[: len(packing.sentence)]
    with torch.no_grad():
        expected = emissions(model, known.float(), built.float(), packing, built_is_output=True)
        found = fused.emit_logits(known, packing.sentence, built, model.emit.weight[0], model.emit.bias)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("semiring", SEMIRINGS, ids=["log", "max"])
@pytest.mark.parametrize("I", [1, 9])
def test_reach(semiring: Semiring, I: int) -> None:
    torch.manual_seed(1)
    logits, objective, direct = random(3, 15, I), random(3, 15, I).double(), random(3, 15, I).double()
    objective[torch.rand_like(objective) < 0.6] = -torch.inf
    objective[0, 0] = -torch.inf
    logits[1, 2] = 60.0
    lengths = torch.tensor([I, max(1, I - 4), 1], device=DEVICE)
    expected = reach_both(logits, objective, direct, lengths, semiring)
    found = fused.reach(logits, objective, direct, lengths, isinstance(semiring, Max))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("semiring", SEMIRINGS, ids=["log", "max"])
def test_advancing_the_channel(semiring: Semiring) -> None:
    """Three symbols after the empty prefix."""
    torch.manual_seed(2)
    shape = 2, 17, 6
    expected = ChannelColumn.empty(torch.zeros(shape, dtype=torch.float64, device=DEVICE))
    found = expected
    for _ in range(3):
        logits, words = random(*shape), -random(*shape).abs()
        expected, leave = advance_channel(expected, logits, words, semiring)
        onward, written, left = fused.advance_channel(*found, logits, words, isinstance(semiring, Max))
        found = ChannelColumn(onward, written, torch.full_like(found.start, -torch.inf))
        torch.testing.assert_close((*found, left), (*expected, leave), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("products", "tolerance"), [("ieee", 1e-5), ("tf32", 1e-3), ("bf16", 1e-2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_normalisers_of_lower_precision(products: SearchProducts, tolerance: float, dtype: torch.dtype) -> None:
    """Factors are rounded, sums are not; the portable code does the same."""
    torch.manual_seed(4)
    scores = random(2, 5, 40, dtype=dtype), random(2, 3, 40, dtype=dtype)
    exact = joint_log_normaliser(*(x.cpu() for x in scores)).float()
    for found in (fused_joint.log_normaliser(*scores, products), log_normaliser(*scores, products)):
        torch.testing.assert_close(found.cpu(), exact, rtol=0, atol=tolerance)
    if products == "bf16":
        assert not torch.equal(log_normaliser(*scores, "bf16"), log_normaliser(*scores))


@pytest.mark.parametrize("room", [1, 48])
@pytest.mark.parametrize("at_once", [1, 1 << 20])
@pytest.mark.parametrize("ties", [False, True])
def test_proposals_above_a_threshold(room: int, at_once: int, ties: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as block by block, in the same order, also if more extensions are above than there is room for."""
    torch.manual_seed(6)
    B, P, I, V, k1 = 2, 3, 2, LARGE + 5, 4
    inputs, outputs, reach = random(B, I, V), random(B, P, V), random(B, P, I, scale=1.0).double()
    if ties:  # many extensions of a cell are equal, and so are two prefixes
        inputs, outputs = inputs.round(), outputs.round()
        outputs[:, 1], reach[:, 1] = outputs[:, 0], reach[:, 0]
    inputs[0, 0, ::2] = -torch.inf
    reach[1, 2] = -torch.inf
    reach[0, :, 1] = -torch.inf
    normaliser = log_normaliser(inputs.clamp(min=-30.0), outputs)

    expected = propose(reach, RankedScores.of(inputs), RankedScores.of(outputs), normaliser, k1, at_once)
    monkeypatch.setattr(kernels, "usable", lambda *_: True)
    monkeypatch.setattr(proposals, "COLLECTED", room)
    of_outputs = RankedScores.of_outputs(outputs)
    assert of_outputs.symbols is None
    for least in (None, expected.score[..., -1] - 1e-4, expected.score[..., -1] - 4.0):
        found = propose(reach, RankedScores.of(inputs), of_outputs, normaliser, k1, at_once, least_BI=least)
        there = expected.score > -torch.inf
        assert torch.equal(found.score, expected.score)
        for ours, theirs in zip(found[1:], expected[1:], strict=True):
            assert torch.equal(ours[there], theirs[there])
    assert there.any()
    assert not there.all()


def test_proposals_with_a_normaliser_that_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then an extension can be above the bound of its prefix; once found, it is not lost in the next round."""
    monkeypatch.setattr(proposals, "COLLECTED", 4)
    for seed in range(2):
        torch.manual_seed(seed)
        inputs, outputs = random(1, 2, LARGE, scale=8.0), random(1, 6, LARGE, scale=8.0)
        reach = random(1, 6, 2, scale=1e-3).double()
        normaliser = log_normaliser(inputs, outputs) - 4e-3
        with monkeypatch.context() as patch:
            expected = propose(reach, RankedScores.of(inputs), RankedScores.of(outputs), normaliser, 3)
            patch.setattr(kernels, "usable", lambda *_: True)
            of_outputs = RankedScores.of_outputs(outputs)
            found = propose(reach, RankedScores.of(inputs), of_outputs, normaliser, 3)
        assert bool((found.score > -torch.inf).all())
        torch.testing.assert_close(found.score, expected.score, rtol=0, atol=5e-3)


@pytest.mark.parametrize(("Q", "I"), [(3, 5), (70, 20), (130, 70)])
@pytest.mark.parametrize("copying", [False, True])
def test_normalisers_from_states(Q: int, I: int, copying: bool) -> None:
    torch.manual_seed(8)
    B, H, V = 2, 20, 300
    states, words, other = random(B, Q, H, scale=1.0), random(V, H, scale=1.0), random(B, I, V, scale=1.0)
    scores, copied = states @ words.T, None
    if copying:
        copied = torch.randint(-1, V, (B, Q), device=DEVICE), random(B, Q)
        amount = torch.where(copied[0] < 0, 0.0, copied[1])
        scores = scores.scatter_add(2, copied[0].clamp(min=0)[..., None], amount[..., None])
    prepared = Scaled.of(other)
    found = fused_states.log_normaliser(states, words, prepared.exp, prepared.max.squeeze(2), copied)
    expected = joint_log_normaliser(scores.cpu(), other.cpu()).float()
    torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=2e-2)


def test_a_normaliser_that_underflows_is_no_number() -> None:
    """Each side is sure of another symbol."""
    states, words = torch.eye(2, 16, device=DEVICE)[None] * 200.0, torch.eye(40, 16, device=DEVICE)
    other = Scaled.of(torch.eye(3, 40, device=DEVICE)[None] * 200.0)
    found = fused_states.log_normaliser(states, words, other.exp, other.max.squeeze(2), None)
    assert found[0, 0, 0].item() == pytest.approx(400.0)
    assert found.isnan()[0].tolist() == [[False, True, True], [True, False, True]]


@pytest.mark.parametrize(("products", "scale"), [("ieee", 1.0), ("tf32", 1.0), ("tf32", 500.0)])
def test_a_whole_search_of_a_large_vocabulary(
    products: SearchProducts, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With copying, and with a channel so sure of its words that normalisers underflow."""
    torch.manual_seed(7)
    V = LARGE
    copies = [-1] * 5 + [*range(5, V)]
    models = SSNT(V, V, 6, bidirectional=True), SSNT(V, V, 6, copies=copies), LanguageModel(V, 6, 1)
    with torch.no_grad():
        models[0].output_word.weight *= 20.0
        models[1].input_word.weight *= scale
        models[1].output_word.weight *= scale
    settings = SearchSettings(k1=3, k2=2, max_length=3, products=products)
    weights, inputs = Weights(1.0, 0.7, 0.5, 4.0), [[5, 600, EOS], [8, EOS]]
    decoder = NoisyChannelDecoder(*(model.to(DEVICE) for model in models), weights, settings=settings)
    portable = decoder.decode(inputs, n_best=2, align=False)
    monkeypatch.setattr(kernels, "usable", lambda *_: True)
    lost = []
    normalise = fused_states.log_normaliser

    def normaliser(*arguments: Any) -> torch.Tensor:
        result = normalise(*arguments)
        lost.append(bool(result.isnan().any()))
        return result

    monkeypatch.setattr(fused_states, "log_normaliser", normaliser)
    monkeypatch.setattr(lattices, "SCORES_AT_ONCE", 2 * V)  # what underflows is computed for two candidates at a time
    found = decoder.decode(inputs, n_best=2, align=False)
    for ours, theirs in zip(found, portable, strict=True):
        assert [h.tokens for h in ours] == [h.tokens for h in theirs]
        assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], rel=1e-4, abs=1e-4)
    assert max(len(h.tokens) for best in found for h in best) > 1
    assert (any(lost), bool(lost)) == ((scale > 1.0, True) if products == "tf32" else (False, False))


def test_empty_tables() -> None:
    nothing = torch.zeros(0, 2, 3, dtype=torch.float64, device=DEVICE)
    assert fused.advance_channel(nothing, nothing, nothing[..., :1], nothing, nothing, True)[0].shape == nothing.shape
    none = torch.zeros(0, 4, device=DEVICE)
    where = torch.zeros(0, dtype=torch.long, device=DEVICE)
    assert fused.emit_logits(torch.zeros(1, 3, 4, device=DEVICE), where, none, none.sum(0), none.sum(0)[:1]).shape == (
        0,
        3,
    )


def test_scores_in_slots() -> None:
    """The channel's states in their slots, then projected, are its scores in their slots."""
    torch.manual_seed(3)
    channel = SSNT(7, 9, 6, copies=[-1, -1, -1, -1, 4, 5, 8]).eval()
    packing = Packing.of(torch.tensor([[True, True, False], [True, False, False]]))
    symbols, parents = torch.tensor([4, 5, 6]), torch.tensor([0, 0, 1])
    with torch.no_grad():
        _, state = channel.step_inputs(torch.tensor([4, 6]), channel.start_inputs(2))
        portable, _ = channel.step_inputs(symbols, state, parents)
        states, gate, _ = channel.advance_inputs(symbols, state, parents)
        scores = channel.input_scores(packing.spread(states), packing.spread(symbols))
    torch.testing.assert_close(packing.gather(scores), portable.scores)
    torch.testing.assert_close(gate, portable.gate)


@pytest.mark.parametrize("search", ["viterbi", "marginal"])
@pytest.mark.parametrize("products", ["ieee", "bf16"])
def test_a_whole_search_with_kernels(
    search: Alignments, products: SearchProducts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds the same outputs with the same scores as the portable code; in bfloat16 that rounds the gates more."""
    torch.manual_seed(5)
    models = SSNT(12, 12, 6, bidirectional=True), SSNT(12, 12, 6), LanguageModel(12, 6, 1)
    weights, inputs = Weights(1.0, 0.7, 0.5, 1.5), [[5, 6, 7, EOS], [8, EOS]]
    settings = SearchSettings(k1=4, k2=2, max_length=4, search=search, products=products)
    decoder = NoisyChannelDecoder(*(model.to(DEVICE) for model in models), weights, settings=settings)
    portable = decoder.decode(inputs, n_best=2, align=False)
    monkeypatch.setattr(kernels, "usable", lambda *_: True)
    found = decoder.decode(inputs, n_best=2, align=False)
    tolerance = 1e-4 if products == "ieee" else 0.05
    for ours, theirs in zip(found, portable, strict=True):
        assert [h.tokens for h in ours] == [h.tokens for h in theirs]
        assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], abs=tolerance)


def test_a_gpu_compiler_takes_them(tmp_path: Path) -> None:
    script = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from noisychannel.kernels import joint_kernels, search, states
assert not triton.knobs.runtime.interpret
single = "logit_ptr", "word_ptr", "known_ptr", "built_ptr", "weight_ptr", "bias_ptr"
kinds = dict.fromkeys((*single, "max_ptr"), "*fp32") | {"sentence_ptr": "*i64", "length_ptr": "*i64"}
kinds |= {"inputs_ptr": "*fp32", "outputs_ptr": "*fp32", "found_ptr": "*i32"}
kinds |= {"states_ptr": "*fp16", "words_ptr": "*fp16", "other_ptr": "*fp32"}
kinds |= dict.fromkeys(("prefix_ptr", "number_ptr", "cell_ptr", "place_ptr", "symbol_ptr"), "*i64")
for kernel, constants, kind in (
    (search._emit, search.GATES, "*fp32"),
    (search._reach, {**search.ROWS, "BEST": False}, "*fp64"),
    (search._advance, {**search.ROWS, "BEST": True}, "*fp64"),
    (search._collect, search.WORDS, "*fp64"),
    (joint_kernels.exponentiate, {"BLOCK_W": 1024, "num_warps": 4}, "*bf16"),
    (states._walk, {**states.TILE, "BLOCK_Q": 128, "BLOCK_I": 64}, "*fp32"),
):
    constants = dict(constants)
    options = {name: constants.pop(name) for name in ("num_warps", "num_stages") if name in constants}
    signature = {}
    for name in kernel.arg_names:
        pointer = kinds.get(name, kind if name.endswith("_ptr") else "i32")
        signature[name] = "constexpr" if name in constants else pointer
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert compiled.asm["cubin"]
"""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, env=environment)
