"""The server of a page: what it stores, what it refuses, and what a kill leaves."""

from __future__ import annotations

import asyncio
import errno
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from commands import run_here
from noisychannel.errors import NoisyChannelError, missing_extra
from noisychannel.prefer.page import read_page
from noisychannel.prefer.ratings import Rating, read_ratings
from noisychannel.prefer.ratings_file import RatingsFile
from noisychannel.prefer.tally import LABELS
from preferring import artificial, toy_page

pytest.importorskip("fastapi", reason="no fastapi: the server of pages is not tested")
pytest.importorskip("uvicorn", reason="no uvicorn: the server of pages is not tested")
from noisychannel.prefer.app import make_app


@contextmanager
def server(page: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server in a process of its own, and its port."""
    command = [sys.executable, "-m", "noisychannel", "prefer", "serve", str(page), "--port", "0", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"at http://127\.0\.0\.1:(\d+)/", line)
        assert found is not None, line
        yield process, int(found[1])
    finally:
        process.kill()
        process.communicate()


def ask(
    port: int, method: str, path: str, body: bytes = b"", kind: str = "application/json", host: str = "127.0.0.1"
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, body, {"Content-Type": kind, "Host": host})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def body_of(*ratings: Rating) -> bytes:
    return json.dumps([asdict(rating) for rating in ratings]).encode()


def test_ratings_are_stored_refused_and_survive_a_kill(tmp_path: Path) -> None:
    """One server for all of it: to start one takes a second."""
    file, page, key = toy_page(tmp_path, hostile=True)
    (tmp_path / "page.key.json").rename(tmp_path / "kept-elsewhere.json")  # the server must not need it
    stored = tmp_path / "page.ratings.jsonl"
    good = artificial(key, key.items[0].id, "Ann", "both good")
    with server(file) as (process, port):
        status, shown = ask(port, "GET", "/")
        assert status == 200
        assert b'"stored": true' in shown
        assert [item.id.encode() in shown for item in page.items] == [True] * len(page.items)

        other = replace(good, page="0" * 16)
        refused = {
            (400, b"{"): "not JSON",
            (400, b"\xff\xfe"): "not JSON",
            (400, b"[" * 5000): "not JSON",
            (422, b"{}"): "array",
            (422, b"[1]"): "0",
            (422, b'[{"format": 1}]'): "page",
            (422, body_of(good, replace(good, item="nothing"))): "another page",
            (422, body_of(other)): "another page",
            (422, body_of(good).replace(b"both good", b"best")): "choice",
            (422, body_of(good).replace(b'"Ann"', b'"  "')): "rater",
            (413, b"[" + b" " * 70000 + b"]"): "bytes",
        }
        for (status, body), word in refused.items():
            answer = ask(port, "POST", "/ratings", body)
            assert answer[0] == status, (answer, body[:50])
            assert word in json.loads(answer[1])["error"]
        assert ask(port, "POST", "/ratings", body_of(good), "text/plain")[0] == 415
        assert [ask(port, "GET", path)[0] for path in ("/ratings", "/page.key.json", "/docs")] == [405, 404, 404]
        assert stored.read_bytes() == b"", "nothing of a refused body is stored"

        # Several raters at once; then a kill in the middle of everything.
        said = {
            rater: [artificial(key, item.id, rater, LABELS[n % 4]) for n, item in enumerate(key.items)]
            for rater in ("Ann", "Bob", "Cy")
        }
        confirmed: list[Rating] = []

        def rate(ratings: list[Rating]) -> None:
            for rating in ratings:
                try:
                    if ask(port, "POST", "/ratings", body_of(rating))[0] == 201:
                        confirmed.append(rating)
                except (OSError, http.client.HTTPException):
                    return
                if len(confirmed) == 20:
                    process.kill()

        threads = [threading.Thread(target=rate, args=(ratings,)) for ratings in said.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert 20 <= len(confirmed) < sum(map(len, said.values()))
    with stored.open("ab") as stream:
        stream.write(b'{"format": 1, "page": "hal')  # as a kill in the middle of a write would leave it
    with server(file) as (process, port):
        for ratings in said.values():  # the pages send again what was not confirmed; what was stored twice counts once
            assert ask(port, "POST", "/ratings", body_of(*ratings))[0] == 201
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=20)
        assert process.returncode == 143
        assert "every rating stored so far is kept" in told
        assert "Traceback" not in told
    lines = stored.read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["rater"] for line in lines} == set(said)
    found = read_ratings([str(stored)], key, allow_artificial=True)
    assert sorted(map(repr, found)) == sorted(repr(rating) for ratings in said.values() for rating in ratings)
    order = [rating.json() for rating in confirmed]
    assert set(order) <= set(lines)


def test_other_names_for_a_server_on_loopback_are_refused(tmp_path: Path) -> None:
    """A page of another site could otherwise read the items, and rate, by a host name of its own (DNS rebinding)."""
    file, _, key = toy_page(tmp_path)
    rating = body_of(artificial(key, key.items[0].id, "Ann", "both good"))
    with server(file) as (_, port):
        for host, status in {"evil.example": 421, f"evil.example:{port}": 421, f"localhost:{port}": 200}.items():
            assert ask(port, "GET", "/", host=host)[0] == status, host
        refused = ask(port, "POST", "/ratings", rating, host="evil.example")
        assert refused[0] == 421
        assert "Host header" in json.loads(refused[1])["error"]
    assert (tmp_path / "page.ratings.jsonl").read_bytes() == b""


def test_connections_that_say_nothing_keep_nobody_out(tmp_path: Path) -> None:
    file, _, _ = toy_page(tmp_path)
    with server(file) as (_, port), ExitStack() as idle:
        for _ in range(220):
            idle.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert ask(port, "GET", "/")[0] == 200


def test_a_page_runs_nothing_but_its_own_script(tmp_path: Path) -> None:
    _, page, _ = toy_page(tmp_path, hostile=True)
    with RatingsFile(tmp_path / "r.jsonl", page) as store:
        sent: list[dict[str, Any]] = []

        async def get() -> None:
            async def send(message: dict[str, Any]) -> None:
                sent.append(message)

            scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b""}
            await make_app(store)(scope, None, send)  # type: ignore[arg-type]

        asyncio.run(get())
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["content-security-policy"].count("'sha256-") == 3, "a style and two scripts"
    assert headers["cache-control"] == "no-store"


def test_a_full_disk_is_told_to_raters_and_to_who_runs_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, page, key = toy_page(tmp_path)
    told: list[str] = []

    def full(descriptor: int, content: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def rate(store: RatingsFile) -> httpx.Response:
        transport = httpx.ASGITransport(make_app(store, warn=told.append))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://host") as client:
            rating = body_of(artificial(key, key.items[0].id, "Ann", "both good"))
            with monkeypatch.context() as patch:
                patch.setattr(os, "write", full)
                return await client.post("/ratings", content=rating, headers={"content-type": "application/json"})

    with RatingsFile(tmp_path / "r.jsonl", page) as store:
        answer = asyncio.run(rate(store))
    assert answer.status_code == 507
    assert answer.json() == {"error": "the ratings could not be written; tell the person who runs the server"}
    assert len(told) == 1
    assert "No space left on device" in told[0]
    assert (tmp_path / "r.jsonl").read_bytes() == b""


def test_ratings_go_to_a_file_that_can_be_read_to_its_end(tmp_path: Path) -> None:
    file, _, _ = toy_page(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    for device in ("/dev/null", "/dev/full", str(tmp_path / "pipe")):
        done = run_here(["prefer", "serve", str(file), "--port", "0", "--ratings", device], b"")
        assert (done.returncode, done.stdout) == (2, b"")
        assert f"--ratings: {device} cannot be a file" in done.stderr.decode()


def test_a_port_in_use_and_a_file_in_use_are_one_line(tmp_path: Path) -> None:
    file, page, key = toy_page(tmp_path)

    def complaint(*words: str, code: int = 2) -> str:
        done = run_here(["prefer", "serve", str(file), *words], b"")
        assert (done.returncode, done.stdout) == (code, b"")
        return done.stderr.decode().splitlines()[-1]

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert (
            complaint("--port", port, code=1)
            == f"noisychannel: --port: {port} is in use on 127.0.0.1; choose another one, or 0 for any free port"
        )
    with RatingsFile(tmp_path / "page.ratings.jsonl", page):
        assert "another process is writing it" in complaint("--port", "0", code=1)
    assert "is not a host of this machine" in complaint("--host", "256.1.1.1")
    assert "at most 65535" in complaint("--port", "70000")
    other = replace(artificial(key, key.items[0].id, "Ann", "both bad"), page="0" * 16)
    (tmp_path / "other.jsonl").write_text(other.json() + "\n")
    assert "other.jsonl:1: a rating of another page" in complaint("--ratings", str(tmp_path / "other.jsonl"))


def test_a_missing_extra_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, _, _ = toy_page(tmp_path)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = run_here(["prefer", "serve", str(file)], b"")
    assert done.returncode == 2
    assert done.stderr.decode() == (
        "noisychannel: prefer serve needs the package uvicorn: pip install 'noisychannel[serve]'\n"
    )


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, _, key = toy_page(tmp_path)
    write = os.write
    ratings = [artificial(key, item.id, "Ann", "both bad") for item in key.items]
    with RatingsFile(tmp_path / "r.jsonl", read_page(file)) as store:
        store.add(ratings[:2])

        def full(descriptor: int, content: memoryview) -> int:
            if len(content) > 10:
                return write(descriptor, content[: len(content) - 10])
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(NoisyChannelError, match="No space left"):
                store.add(ratings[2:4])
        store.add(ratings[4:5])
    assert read_ratings([str(tmp_path / "r.jsonl")], key, True) == [*ratings[:2], ratings[4]]
    assert "needs the packages fastapi and uvicorn: " in str(missing_extra("fastapi and uvicorn", "serve", "serve"))
