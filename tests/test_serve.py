"""The JSON interface of ``noisychannel serve``, over real sockets."""

from __future__ import annotations

import json
import random
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from noisychannel import NoisyChannel, Weights
from noisychannel.decode.settings import SearchSettings
from noisychannel.decode.watch import SearchStep
from noisychannel.errors import BadInputError
from noisychannel.ids import EOS
from noisychannel.packaged import EXAMPLES
from noisychannel.reporting import Silent
from noisychannel.serve import schema
from noisychannel.serve.limits import Limits
from noisychannel.serve.served_run import ServedRun
from noisychannel.serve.tasks import Task
from noisychannel.weights import TermSource, TunedSystem, write_systems
from serving import GatedRun, Running, demo, running, toy_run, until


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as one:
        yield one


@pytest.fixture(scope="module")
def model() -> NoisyChannel:
    return NoisyChannel.load("demo", device="cpu")


def words(number: int, seed: int = 1) -> list[str]:
    """Made-up nouns, all different."""
    rng = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < number:
        found["".join(rng.choice(part) for part in ("BDFGHKLMNRST", "aeiou", "lmnrst", "aeiou", "bdgklmnrst"))] = None
    return list(found)


def test_decode_gives_what_the_library_gives(server: Running, model: NoisyChannel) -> None:
    for text in EXAMPLES[:3]:
        answer = server.post("/api/decode", {"input": text, "n_best": 4}).json()
        (result,) = answer["results"]
        outputs = model(text, n_best=4)
        assert [one["output"] for one in result["hypotheses"]] == [output.text for output in outputs]
        for one, output in zip(result["hypotheses"], outputs, strict=True):
            h = output.hypothesis
            got = [one[name] for name in ("score", "direct", "channel", "lm", "length", "confidence")]
            assert got == pytest.approx([h.score, h.direct, h.channel, h.lm, h.length, h.confidence], abs=1e-4)
            assert (tuple(one["alignment"]), tuple(one["channel_alignment"])) == (h.alignment, h.channel_alignment)
        assert answer["weights"] == model.weights.by_name()
        assert answer["system"] == "direct+channel+lm"


def test_a_batch_gives_what_single_requests_give(server: Running) -> None:
    texts = words(12)
    together = server.post("/api/decode", {"inputs": [{"text": text} for text in texts], "n_best": 3}).json()["results"]
    assert [result["input"] for result in together] == texts
    for text, result in zip(texts, together, strict=True):
        (alone,) = server.post("/api/decode", {"input": text, "n_best": 3}).json()["results"]
        assert [one["output"] for one in alone["hypotheses"]] == [one["output"] for one in result["hypotheses"]]
        for one, other in zip(alone["hypotheses"], result["hypotheses"], strict=True):
            assert one["score"] == pytest.approx(other["score"], abs=1e-4)


def test_each_of_many_concurrent_requests_gets_its_own_answer(server: Running, model: NoisyChannel) -> None:
    """With several settings at once, so that batches must be told apart."""
    texts = words(24, seed=2)
    expected = {text: outputs[0].text for text, outputs in zip(texts, model.batch(texts), strict=True)}
    plain = model.reweighted(model.weights.of({"direct": 1.0}))
    direct = {text: outputs[0].text for text, outputs in zip(texts, plain.batch(texts), strict=True)}
    asked = [(text, system) for text in texts for system in ("direct+channel+lm", "direct")]
    random.Random(0).shuffle(asked)

    def ask(one: tuple[str, str]) -> httpx.Response:
        return server.post("/api/decode", {"input": one[0], "system": one[1], "n_best": 1 + len(one[0]) % 2})

    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(ask, asked))
    for (text, system), response in zip(asked, answers, strict=True):
        assert response.status_code == 200
        (result,) = response.json()["results"]
        assert result["input"] == text
        assert result["hypotheses"][0]["output"] == (expected if "lm" in system else direct)[text]
    sizes = re.search(r'noisychannel_batch_inputs_bucket\{run="demo",le="1"\} (\d+)', server.get("/metrics").text)
    total = re.search(r'noisychannel_batch_inputs_count\{run="demo"\} (\d+)', server.get("/metrics").text)
    assert sizes
    assert total
    assert int(sizes[1]) < int(total[1]), "no batch had more than one input"


def test_explanations_are_what_models_say_from_scratch(server: Running, model: NoisyChannel) -> None:
    answer = server.post("/api/explain", {"input": "Land", "n_best": 3, "system": "direct"}).json()
    (result,) = answer["results"]
    assert answer["weights"] == {"direct": 1.0, "channel": 0.0, "lm": 0.0, "length": 0.0}
    (ids,) = [model.input_codec.encode("Land")]
    for one in result["hypotheses"]:
        out = model.output_codec.encode(one["output"])
        x, y = torch.tensor([ids]), torch.tensor([out])
        lengths = torch.tensor([len(ids)]), torch.tensor([len(out)])
        with torch.no_grad():
            assert one["channel"] == pytest.approx(
                model.models["channel"].log_prob(y, lengths[1], x, lengths[0]), abs=1e-4
            )
            assert one["lm"] == pytest.approx(model.models["lm"].log_prob(y, lengths[1]), abs=1e-4)
            direct = model.models["direct"].alignments(x, lengths[0], y, lengths[1])[0]
            channel = model.models["channel"].alignments(y, lengths[1], x, lengths[0])[0].T
        assert torch.tensor(one["posteriors"]["direct"]) == pytest.approx(direct, abs=1e-3)
        assert torch.tensor(one["posteriors"]["channel"]) == pytest.approx(channel, abs=1e-3)
        assert one["output_symbols"] == list(one["output"])


def test_the_tree_is_the_search(server: Running, model: NoisyChannel) -> None:
    (result,) = server.post("/api/explain", {"input": "Tal", "n_best": 3}).json()["results"]
    nodes, spelt = result["tree"]["nodes"], [""]
    for node in nodes[1:]:
        assert node["parent"] < len(spelt), "parents come first"
        spelt.append(spelt[node["parent"]] + node["symbol"])
    assert len(set(spelt)) == len(spelt)
    survivors: set[str] = set()

    def watch(step: SearchStep) -> None:
        for ids in (*(one.tokens for one in step.survivors()), *((*one.tokens, EOS) for one in step.answers())):
            survivors.add("".join("␄" if i == EOS else model.output_codec.names[i] for i in ids))

    kept = 10  # as long a list as the confidence of the system needs
    model.decoder.decode([model.input_codec.encode("Tal")], kept, watch=watch)
    assert len(survivors) > 50
    assert set(spelt[1:]) == survivors
    assert result["tree"]["left_out"] == 0
    for one, path in zip(result["hypotheses"], result["tree"]["paths"], strict=True):
        assert spelt[path] == one["output"] + "␄"
        assert nodes[path]["score"] == pytest.approx(one["score"], abs=1e-4)


def test_score_and_rerank(server: Running, model: NoisyChannel) -> None:
    outputs = ["Lands", "Ländern", "Landen", "xyz"]
    ranked = model.rerank("Land", outputs)
    (result,) = server.post("/api/rerank", {"items": [{"input": "Land", "outputs": outputs}]}).json()["results"]
    assert [one["output"] for one in result["hypotheses"]] == [output.text for output in ranked]
    pairs = [{"input": "Land", "output": output} for output in outputs]
    scored = server.post("/api/score", {"pairs": pairs}).json()["results"]
    by_output = {output.text: output.hypothesis.score for output in ranked}
    for output, one in zip(outputs, scored, strict=True):
        (hypothesis,) = one["hypotheses"]
        assert hypothesis["output"] == output
        assert hypothesis["score"] == pytest.approx(by_output[output], abs=1e-4)
    first = server.post("/api/rerank", {"items": [{"input": "Land", "outputs": outputs}], "n_best": 1}).json()
    assert [one["output"] for one in first["results"][0]["hypotheses"]] == [ranked[0].text]


def test_weights_are_those_of_the_request(server: Running, model: NoisyChannel) -> None:
    changed = {"input": "Land", "n_best": 3, "weights": {"lm": 0.0, "channel": 0.0, "length": 0.0}}
    (one,), (other,) = (
        server.post("/api/decode", body).json()["results"]
        for body in (changed, {"input": "Land", "n_best": 3, "system": "direct"})
    )
    assert [h["output"] for h in one["hypotheses"]] == [h["output"] for h in other["hypotheses"]]
    assert one["hypotheses"][0]["confidence"] is None, "it was fitted for the tuned weights"
    tuned = server.post("/api/decode", {"input": "Land", "weights": model.weights.by_name()}).json()
    assert tuned["results"][0]["hypotheses"][0]["confidence"] is not None


def test_answers_have_the_documented_shape(server: Running) -> None:
    documented = server.get("/openapi.json").json()
    schemas = documented["components"]["schemas"]
    kinds = {"decode": schema.DecodeAnswer, "explain": schema.ExplainAnswer, "score": schema.ExplainAnswer,
             "rerank": schema.DecodeAnswer}  # fmt: skip
    for name, kind in kinds.items():
        body = documented["paths"][f"/api/{name}"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        examples = schemas[body["$ref"].rpartition("/")[2]]["examples"]
        assert examples
        for example in examples:
            response = server.post(f"/api/{name}", example)
            assert response.status_code == 200, response.text
            kind.model_validate(response.json())
            assert kind.model_validate(response.json()).model_dump() == response.json() | {
                "results": [
                    {**({"tree": None} if kind is schema.ExplainAnswer else {}), **one}
                    for one in response.json()["results"]
                ]
            }
    runs = server.get("/api/runs").json()
    assert schema.Runs.model_validate(runs).model_dump() == runs
    assert runs["runs"][0]["default_system"] == "direct+channel+lm"


GOOD = {"input": "Baum"}


@pytest.mark.parametrize(
    ("path", "body", "status", "told"),
    [
        ("decode", b'{"input"', 400, "the body is not JSON: "),
        ("decode", b"", 422, "the body is empty; send JSON"),
        ("decode", b"\xff\xfe", 400, "not JSON"),
        ("decode", b"[" * 50_000, 400, "not JSON"),
        ("decode", b'{"input": "a", "n_best": ' + b"9" * 5000 + b"}", 400, "not JSON"),
        ("decode", b'{"input": "\\ud800"}', 422, "input: must be Unicode text"),
        ("decode", b'{"input": "a", "\\ud800": 1}', 422, "unicode"),
        ("decode", b'{"input": "a", "run": "\\ud800"}', 422, "run: must be Unicode text"),
        ("decode", b'{"input": "a", "weights": {"lm": NaN}}', 422, "the weight lm must be a finite number"),
        ("decode", b'{"input": "a", "weights": {"lm": 1e999}}', 422, "the weight lm must be a finite number"),
        ("decode", [], 422, "the body must be a JSON object; see /docs"),
        ("decode", {"input": "a", "features": "PL"}, 422, 'features: must be a list of texts, such as ["N"'),
        ("decode", {"inputs": ["a"]}, 422, 'inputs.0: must be an object with text, such as {"text": "Baum"}'),
        ("decode", {"inputs": [{}]}, 422, "inputs.0.text: is missing"),
        ("decode", {}, 422, "give either input or a list of inputs"),
        ("decode", {"input": "a", "inputs": [{"text": "a"}]}, 422, "give either input or a list of inputs"),
        ("decode", {"inputs": [{"text": "a"}], "features": ["X"]}, 422, "features belong to input"),
        ("decode", {"input": 3}, 422, "input: must be a text"),
        ("decode", {"input": None}, 422, "give either"),
        ("decode", {"input": " "}, 422, "input: the input is blank"),
        ("decode", {"input": "a\0b"}, 422, "input: the input must not contain a NUL"),
        ("decode", {"inputs": [{"text": "a"}, {"text": "b" * 101}]}, 422, "inputs.1: the input has 101 symbols"),
        ("decode", {"inputs": [{"text": "a"}] * 101}, 422, "inputs: there are 101; at most 100"),
        ("explain", {"inputs": [{"text": "a"}] * 17}, 422, "inputs: there are 17; at most 16"),
        ("decode", {"input": "a", "n_best": 0}, 422, "n_best: must be at least 1"),
        ("decode", {"input": "a", "n_best": 51}, 422, "n_best: is 51; at most 50"),
        ("decode", {"input": "a", "n_best": 1.5}, 422, "n_best: must be a whole number"),
        ("decode", {"input": "a", "n_best": True}, 422, "n_best: must be a whole number"),
        ("decode", {"input": "a", "nbest": 1}, 422, "nbest: there is no such key; did you mean n_best?"),
        ("explain", {"input": "a", "tags": ["PL"]}, 422, "tags: there is no such key; did you mean features?"),
        ("decode", {"inputs": [{"text": "a", "tags": []}]}, 422, "inputs.0.tags: there is no such key; did you mean f"),
        ("score", {"pairs": [{"input": "a", "outputs": ["b"]}]}, 422, "pairs.0.output"),
        ("decode", {"input": "a", "run": "dema"}, 404, "there is no run 'dema'; did you mean demo?"),
        ("decode", {"input": "a", "system": "direct+ml"}, 404, "did you mean direct+lm?"),
        ("decode", {"input": "a", "weights": {"ml": 1.0}}, 422, "weights: there is no term 'ml'; did you mean lm?"),
        ("decode", {"input": "a", "weights": {"lm": "1"}}, 422, "weights.lm: must be a number"),
        ("decode", {"input": "a", "weights": [1]}, 422, "weights: must be an object with a number for each term"),
        ("decode", {"input": "a", "weights": {"lm": 1e31}}, 422, "weights: the weight lm must be between"),
        ("decode", {"input": "a", "weights": {"direct": 0, "channel": 0, "lm": 0}}, 422, "all weights of models"),
        ("decode", {"input": "a", "features": ["PL"]}, 422, "trained without features"),
        ("score", {"pairs": []}, 422, "pairs: must not be empty"),
        ("score", {"pairs": "ab"}, 422, "pairs: must be a list"),
        ("score", {"pairs": ["ab"]}, 422, "pairs.0: must be an object"),
        ("score", {"pairs": [{"input": "a", "output": "b" * 101}]}, 422, "pairs.0: an output has 101 symbols"),
        ("rerank", {"items": [{"input": "a", "outputs": []}]}, 422, "items.0.outputs: must not be empty"),
        ("rerank", {"items": [{"input": "a", "outputs": ["b"] * 101}]}, 422, "outputs: there are 101; at most 100"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_in_one_line(
    server: Running, path: str, body: Any, status: int, told: str
) -> None:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    with server.client() as client:
        response = client.post(f"/api/{path}", content=sent, headers={"content-type": "application/json"})
    assert (response.status_code, list(response.json())) == (status, ["error"]), response.text
    assert told in response.json()["error"]
    assert "\n" not in response.json()["error"]
    assert len(response.json()["error"]) < 300
    assert server.get("/healthz").status_code == 200


def test_paths_and_methods(server: Running) -> None:
    assert server.get("/api/decode").status_code == 405
    assert server.get("/nothing").json() == {"error": "there is no such path; see /docs"}
    assert server.get("/healthz").json()["status"] == "ok"
    assert server.get("/favicon.ico").status_code == 204
    reference = server.get("/docs").text
    assert f"curl {server.address}api/decode" in reference, "the address that it was asked at"
    for path in ("/api/decode", "/api/explain", "/api/score", "/api/rerank", "/api/runs"):
        assert path in reference
    assert not re.search(r'(src|href)="(?![/#])', reference), "no external assets"


def test_metrics_are_in_the_text_format(server: Running) -> None:
    server.post("/api/decode", GOOD)
    response = server.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    name, label = r"[a-zA-Z_:][a-zA-Z0-9_:]*", r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
    kinds: dict[str, str] = {}
    counts: dict[str, list[float]] = {}
    for line in response.text.removesuffix("\n").split("\n"):
        if line.startswith("# TYPE "):
            _, _, measure, kind = line.split()
            assert measure not in kinds, "each name is described once"
            kinds[measure] = kind
        elif not line.startswith("# HELP "):
            match = re.fullmatch(rf"({name})(\{{({label}(?:,{label})*)\}})? (\S+)", line)
            assert match, line
            base = re.sub(r"_(bucket|sum|count)$", "", match[1])
            assert match[1] in kinds or kinds[base] == "histogram"
            value = float(match[4])
            if match[1].endswith("_bucket"):
                others = re.sub(r',?le="[^"]*"', "", match[3])
                series = counts.setdefault(f"{base} {others}", [])
                assert not series or value >= series[-1], "buckets are cumulative"
                series.append(value)
            elif match[1].endswith("_count") and kinds.get(base) == "histogram":
                assert counts[f"{base} {match[3]}"][-1] == value, "the last bucket has everything"
    assert {"counter", "gauge", "histogram"} == set(kinds.values())
    assert counts


def test_a_run_with_features_that_was_never_tuned(tmp_path: Path) -> None:
    run = toy_run(tmp_path, "characters", "N;PL")
    with running([demo(), run]) as server:
        info = server.get("/api/runs").json()["runs"][1]
        assert (info["needs_features"], info["features"], info["default_system"]) == (True, ["N", "PL"], "direct")
        assert info["systems"][0]["terms"] == ["direct", "channel", "lm", "length", "seen"]
        assert info["examples"][0]["features"] == ["N", "PL"]
        body = {"run": "toy", "input": "ab", "features": ["N", "PL", "X"], "weights": {"channel": 0.5, "lm": 0.5}}
        answer = server.post("/api/explain", body).json()
        (result,) = answer["results"]
        assert result["input_symbols"] == ["<N>", "<PL>", "<unk>", "a", "b"]
        assert result["unknown_features"] == ["X"]
        assert result["context_symbols"] == ["<N>", "<PL>", "<unk>"]
        (best, *_) = result["hypotheses"]
        assert len(best["posteriors"]["direct"]) == 6
        assert len(best["posteriors"]["channel"][0]) == 3 + len(best["output_symbols"]) + 1
        assert best["score"] == pytest.approx(best["direct"] + 0.5 * best["channel"] + 0.5 * best["lm"], abs=1e-3)
        assert set(best["extra"]) == {"seen"}
        assert server.post("/api/decode", {"input": "Baum"}).json()["run"] == "demo", "the first is the default"
        tagged, bare = {"text": "ab", "features": ["N", "PL"]}, {"input": "ab", "outputs": ["b"]}
        for path, body, where in (
            ("decode", {"input": "ab"}, "input"),
            ("explain", {"input": "ab", "features": []}, "input"),
            ("decode", {"inputs": [tagged, {"text": "ba"}]}, "inputs.1"),
            ("score", {"pairs": [{"input": "ab", "output": "b"}]}, "pairs.0"),
            ("rerank", {"items": [{**bare, "features": ["N", "PL"]}, bare]}, "items.1"),
        ):
            refused = server.post(f"/api/{path}", {"run": "toy", **body})
            assert (refused.status_code, refused.json()["error"]) == (
                422,
                f"{where}: the run toy was trained with features, and there are none; give them in the order of the "
                'training data, such as "features": ["N", "PL"]',
            )


def test_terms_are_weighed_as_the_objective_weighs_them(tmp_path: Path) -> None:
    """The page ranks by them: it must not need to know of lengths."""
    served = toy_run(tmp_path, "characters", "N;PL")
    weights = Weights(channel=0.7, lm=0.4, length=-0.3)
    tuned = TunedSystem(
        "direct+channel+lm", weights, SearchSettings(k1=8, k2=6, per_symbol=True), {"metric": "accuracy"}
    )
    write_systems(served.run, [tuned])
    run = ServedRun("toy", served.run, "cpu", Limits(), Silent())
    with running([run]) as server:
        body = {"input": "abde", "features": ["N", "PL"], "n_best": 4, "system": "direct+channel+lm"}
        (result,) = server.post("/api/explain", body).json()["results"]
        for one in result["hypotheses"]:
            terms, length = one["weighed"], one["length"]
            assert sum(weight * terms[name] for name, weight in weights.by_name().items()) == pytest.approx(
                one["score"], abs=1e-4
            )
            factor = (len(result["input_symbols"]) + 1) / length
            assert terms["direct"] == pytest.approx(factor * one["direct"], abs=1e-4)
            assert (terms["channel"], terms["length"]) == (one["channel"], length)
        assert len({one["length"] for one in result["hypotheses"]}) > 1, "else the order would be that of plain sums"


def test_tags_are_symbols_of_the_input(tmp_path: Path) -> None:
    run = toy_run(tmp_path, "characters", "N;PL")
    run.check(Task("a" * 60, ("N",) * 40), "input")
    with pytest.raises(BadInputError, match="input: the input has 101 symbols; at most 100"):
        run.check(Task("a" * 60, ("N",) * 41), "input")


def test_a_system_whose_term_is_gone_is_left_out(tmp_path: Path) -> None:
    run, told = toy_run(tmp_path, "characters").run, list[str]()
    terms = {"news": TermSource("lm", tmp_path / "gone")}
    weights, record = Weights(extra={"news": 1.0}), {"metric": "accuracy"}
    write_systems(run, [TunedSystem("direct+news", weights, SearchSettings(), record, terms)])

    class Listening(Silent):
        def warn(self, message: str) -> None:
            told.append(message)

    served = ServedRun("toy", run, "cpu", Limits(), Listening())
    assert list(served.systems) == ["direct"]
    assert told == [f"{run.path}: the system direct+news is not served: there is no news"]
    write_systems(run, [], default="direct+news")
    with pytest.raises(BadInputError, match=r"its system direct\+news cannot be loaded"):
        ServedRun("toy", run, "cpu", Limits(), Silent())


def test_a_run_of_words(tmp_path: Path) -> None:
    with running([toy_run(tmp_path, "words")]) as server:
        (result,) = server.post("/api/explain", {"input": "a zzz", "n_best": 2}).json()["results"]
        assert result["unknown_symbols"] == ["zzz"]
        schema.Explained.model_validate(result)


def test_what_waits_is_decoded_together_and_what_nobody_waits_for_is_not() -> None:
    gated = GatedRun()
    with running([gated]) as server, ThreadPoolExecutor(8) as pool:
        first = pool.submit(server.post, "/api/decode", {"input": "Baum"})
        assert gated.working.wait(30)
        others = [pool.submit(server.post, "/api/decode", {"input": text}) for text in ("Tal", "Land")]
        different = pool.submit(server.post, "/api/decode", {"input": "Hund", "n_best": 2})
        waiting = server.app.service.workers["demo"]
        until(lambda: waiting.waiting == 3)
        head = b"POST /api/decode HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", server.port)) as leaving:
            leaving.sendall(head + b'Content-Length: 17\r\n\r\n{"input": "Gans"}')
            until(lambda: waiting.waiting == 4)
        until(lambda: "noisychannel_dropped_inputs_total{" in server.get("/metrics").text)
        assert 'noisychannel_waiting_inputs{run="demo"} 3' in server.get("/metrics").text
        gated.gate.set()
        for future in (first, *others, different):
            assert future.result().status_code == 200
        assert sorted(map(sorted, gated.batches)) == [["Baum"], ["Hund"], ["Land", "Tal"]]


def test_a_full_queue_is_refused_and_told_when_to_come_back() -> None:
    gated = GatedRun()
    with running([gated], Limits(queue=3)) as server, ThreadPoolExecutor(8) as pool:
        first = pool.submit(server.post, "/api/decode", {"input": "Baum"})
        assert gated.working.wait(30)
        waiting = pool.submit(server.post, "/api/decode", {"inputs": [{"text": "Tal"}, {"text": "Land"}]})
        until(lambda: 'noisychannel_waiting_inputs{run="demo"} 2' in server.get("/metrics").text)
        refused = server.post("/api/decode", {"inputs": [{"text": "Hund"}, {"text": "Gans"}]})
        assert refused.status_code == 503, "all inputs of a request are accepted, or none"
        assert int(refused.headers["retry-after"]) >= 1
        assert "too many inputs are waiting" in refused.json()["error"]
        last = pool.submit(server.post, "/api/decode", {"input": "Gans"})
        until(lambda: 'noisychannel_waiting_inputs{run="demo"} 3' in server.get("/metrics").text)
        gated.gate.set()
        assert [future.result().status_code for future in (first, waiting, last)] == [200, 200, 200]
        assert 'noisychannel_refused_total{reason="queue"} 1' in server.get("/metrics").text


def test_one_input_that_fails_does_not_fail_the_others() -> None:
    class Failing(GatedRun):
        def answer(self, settings: Any, tasks: Any) -> list[Any]:
            answers = super().answer(settings, tasks)
            if any(task.text == "Hund" for task in tasks):
                raise RuntimeError("made up")
            return answers

    failing, told = Failing(), list[str]()
    with running([failing], warn=told.append) as server, ThreadPoolExecutor(4) as pool:
        first = pool.submit(server.post, "/api/decode", {"input": "Baum"})
        assert failing.working.wait(30)
        futures = [pool.submit(server.post, "/api/decode", {"input": text}) for text in ("Tal", "Hund", "Land")]
        until(lambda: 'noisychannel_waiting_inputs{run="demo"} 3' in server.get("/metrics").text)
        failing.gate.set()
        assert [future.result().status_code for future in (first, *futures)] == [200, 200, 500, 200]
        assert futures[1].result().json() == {"error": "internal error (RuntimeError)"}
    assert told == ["demo: decode failed (RuntimeError: made up)"]


def test_an_input_that_needs_too_much_memory_is_refused() -> None:
    from dataclasses import replace

    from noisychannel.serve.served_run import ServedSystem

    run = GatedRun()
    run.gate.set()
    run.systems = {
        name: ServedSystem(replace(one.tuned, settings=replace(one.tuned.settings, memory=1e-6)), one.model)
        for name, one in run.systems.items()
    }
    run._model = run._make_model  # type: ignore[assignment]
    with running([run]) as server:
        response = server.post("/api/decode", {"inputs": [{"text": "Baum"}]})
    assert response.status_code == 422
    assert response.json()["error"].startswith("inputs.0: ")
    assert "GiB" in response.json()["error"]
