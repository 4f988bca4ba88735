"""What a server refuses before anything is decoded, how it ends, and its command."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from commands import run_here
from noisychannel.serve import hosting
from noisychannel.serve import server as server_module
from noisychannel.serve.app import create_app
from noisychannel.serve.limits import Limits
from noisychannel.web import protocol
from serving import GatedRun, Running, demo, running, until

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def small() -> Iterator[Running]:
    """A server with small limits."""
    with running(limits=Limits(max_body=1000, body_seconds=0.5)) as one:
        yield one


def raw(server: Running, sent: bytes, seconds: float = 10.0) -> bytes:
    """Everything that the server says until it closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_a_large_body_is_refused_at_its_announcement(small: Running) -> None:
    head = b"POST /api/decode HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    told = raw(small, head + b"Content-Length: 999999999\r\n\r\n")
    assert told.startswith(b"HTTP/1.1 413 ")
    assert b"the request has more than 1,000 bytes" in told


def test_a_large_body_without_announcement_is_refused_while_it_arrives(small: Running) -> None:
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(2000):
            sent += 1000
            yield b"x" * 1000

    with small.client() as client:
        try:
            response = client.post("/api/decode", content=chunks(), headers=JSON)
            assert response.status_code == 413
        except (httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
            pass  # the connection was closed while this client was still sending
    head = b"POST /api/decode HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    chunk = b"400\r\n" + b"x" * 0x400 + b"\r\n"
    assert raw(small, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk).startswith(b"HTTP/1.1 413 ")
    assert small.get("/healthz").status_code == 200


def test_a_body_that_comes_too_slowly_is_refused(small: Running) -> None:
    head = (
        b"POST /api/decode HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n"
    )
    told = raw(small, head + b'{"in')
    assert told.startswith(b"HTTP/1.1 408 ")
    assert b"did not arrive within 0.5 s" in told


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: loc"])
def test_a_head_that_comes_too_slowly_closes_the_connection(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.3)
    with running() as server:
        assert raw(server, sent) == b""
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            told = b""
            while not told.endswith(b"}"):
                told += connection.recv(65536)
            assert told.startswith(b"HTTP/1.1 200")
            connection.sendall(sent or b"G")  # the next request of the same connection
            assert connection.recv(65536) == b""


def asking_for_much(server: Running) -> socket.socket:
    """A connection that has asked for more than the buffers of sockets hold."""
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(20)
    connection.connect(("127.0.0.1", server.port))
    connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5)
    return connection


def test_a_client_that_does_not_read_its_answer_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "READ_SECONDS", 0.2)
    with running() as server, asking_for_much(server):
        until(lambda: server.server.server_state.connections)
        until(lambda: not server.server.server_state.connections)
        assert server.get("/healthz").status_code == 200


def test_a_client_that_reads_slowly_gets_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "READ_SECONDS", 0.3)
    monkeypatch.setattr(protocol, "READ_BYTES", 100)
    with running() as server, asking_for_much(server) as connection:
        page, told = server.get("/").text, b""
        began, slowly = time.monotonic(), 1.0  # longer than a client that does not read has
        while told.count(b"</html>") < 5:
            told += connection.recv(4096)
            assert told
            time.sleep(0.02 if time.monotonic() - began < slowly else 0)
        assert told.count(page.encode()) == 5


def test_a_head_that_is_too_large_or_no_http_is_refused(small: Running) -> None:
    assert raw(small, b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000).startswith(b"HTTP/1.1 400")
    assert raw(small, b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n").startswith(b"HTTP/1.1 400")


def test_other_names_for_a_server_on_loopback_are_refused(small: Running) -> None:
    """A page of another site could otherwise name it by a host of its own (DNS rebinding)."""
    for host, status in {"localhost:1": 200, "127.0.0.1": 200, "[::1]:80": 200, "evil.example": 421, "": 421}.items():
        assert small.get("/healthz", headers={"host": host}).status_code == status, host


def test_other_sites_are_not_let_in(small: Running) -> None:
    asked = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    with small.client() as client:
        preflight = client.options("/api/decode", headers=asked)
        plain = client.post("/api/decode", content=b'{"input": "Baum"}', headers={"content-type": "text/plain"})
    assert preflight.status_code == 405
    assert not [name for name in preflight.headers if name.startswith("access-control")]
    assert plain.status_code == 415, "a form of another site can send this without asking"


def test_every_answer_has_the_headers_of_security(small: Running) -> None:
    for path in ("/", "/docs", "/healthz", "/api/runs", "/nothing", "/metrics", "/openapi.json"):
        headers = small.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert "unsafe" not in headers["content-security-policy"]
        assert "server" not in headers


def test_the_token() -> None:
    with running(token="a-Secret") as server:
        for path in ("/api/runs", "/metrics"):
            for given in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic a-Secret"},
                          {"authorization": "Bearer a-Secre"}, {"authorization": b"Bearer \xff"}):  # fmt: skip
                refused = server.get(path, headers=given)
                assert refused.status_code == 401
                assert refused.headers["www-authenticate"] == "Bearer"
            assert server.get(path, headers={"authorization": "Bearer a-Secret"}).status_code == 200
        assert server.post("/api/decode", {"input": "Baum"}).status_code == 401
        for path in ("/", "/healthz", "/docs"):
            assert server.get(path).status_code == 200


def test_a_client_with_too_many_requests_at_a_time_is_refused() -> None:
    """Clients on this machine are not counted: they share one address."""
    gated = GatedRun()
    app = create_app([gated], Limits(client_requests=2))

    async def ask(address: str) -> list[int]:
        transport = httpx.ASGITransport(app, client=(address, 1))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://host") as client:
            asked = [asyncio.create_task(client.post("/api/decode", json={"input": "Baum"})) for _ in range(4)]
            while sum(task.done() for task in asked) < (0 if address == "127.0.0.1" else 2):
                await asyncio.sleep(0.01)
            gated.gate.set()
            answers = await asyncio.gather(*asked)
            assert all(answer.headers["retry-after"] == "1" for answer in answers if answer.status_code == 429)
            again = await client.post("/api/decode", json={"input": "Baum"})
            return sorted([*(answer.status_code for answer in answers), again.status_code])

    assert asyncio.run(ask("10.0.0.1")) == [200, 200, 200, 429, 429]
    assert asyncio.run(ask("127.0.0.1")) == [200] * 5
    app.service.stop()


def test_what_was_accepted_is_answered_when_the_server_stops() -> None:
    gated = GatedRun()
    with running([gated]) as server, ThreadPoolExecutor(4) as pool, server.client() as open_client:
        assert open_client.get("/healthz").status_code == 200
        working = pool.submit(server.post, "/api/decode", {"input": "Baum"})
        assert gated.working.wait(30)
        waiting = pool.submit(server.post, "/api/decode", {"input": "Tal", "n_best": 2})
        until(lambda: server.app.service.workers["demo"].waiting)
        server.app.service.stop()
        refused = open_client.post("/api/decode", json={"input": "Land"})
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert open_client.get("/healthz").json()["status"] == "stopping"
        server.stop()
        end = time.monotonic() + 20
        while not is_closed(server):
            assert time.monotonic() < end
        gated.gate.set()
        assert [future.result().status_code for future in (working, waiting)] == [200, 200]
        server.thread.join(30)
        assert server.server.left == 0


def is_closed(server: Running) -> bool:
    try:
        server.get("/healthz")
    except httpx.ConnectError:
        return True
    except httpx.TransportError:  # it was just being closed
        return False
    return False


def test_a_server_stops_within_its_bound_although_a_search_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MARGIN", 0.5)
    gated = GatedRun()
    with running([gated], Limits(shutdown_seconds=0.5)) as server, ThreadPoolExecutor(4) as pool:
        working = pool.submit(server.post, "/api/decode", {"input": "Baum"})
        assert gated.working.wait(30)
        waiting = pool.submit(server.post, "/api/decode", {"input": "Tal"})
        until(lambda: server.app.service.workers["demo"].waiting)
        server.stop()
        server.thread.join(20)
        assert not server.thread.is_alive()
        assert server.server.left == 2
        gated.gate.set()
        for future in (working, waiting):
            assert future.result().status_code == 503, "also of what was worked on"


def test_the_command() -> None:
    command = [sys.executable, "-m", "noisychannel", "serve", "--port", "0"]
    environment = {**os.environ, "NOISYCHANNEL_TOKEN": "a-Secret", "PYTHONWARNINGS": "ignore"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        address = re.search(r"http://127\.0\.0\.1:\d+/", process.stderr.readline())
        assert address
        with httpx.Client(base_url=address[0], trust_env=False, timeout=30) as client:
            assert client.get("/api/runs").status_code == 401
            client.headers["authorization"] = "Bearer a-Secret"
            answer = client.post("/api/decode", json={"input": "Baum"}).json()
            assert answer["results"][0]["hypotheses"][0]["output"] == "Bäumen"
            with ThreadPoolExecutor(2) as pool:
                long = [{"input": "Gebirgsbach" * 4, "n_best": n} for n in (1, 2)]
                asked = [pool.submit(client.post, "/api/decode", json=body) for body in long]
                while 'noisychannel_waiting_inputs{run="demo"} 1' not in client.get("/metrics").text:
                    assert not all(future.done() for future in asked)
                process.send_signal(signal.SIGTERM)
                assert [future.result().status_code for future in asked] == [200, 200], "both had been accepted"
        assert process.wait(30) == 143
        told = process.stderr.read()
    assert told == "noisychannel: stopped by SIGTERM; no request is waiting\n"


@pytest.mark.parametrize(
    ("signals", "told"),
    [
        (1, "noisychannel: 1 inputs were not answered within 0.5 s\n"),
        pytest.param(2, "", marks=pytest.mark.long),
    ],
)
def test_the_command_ends_in_order_although_a_search_does_not(signals: int, told: str) -> None:
    """Without the end of the thread, torch aborts the process."""
    options = ["--port", "0", "--max_symbols", "2000", "--shutdown_seconds", "0.5" if signals == 1 else "60"]
    command = [sys.executable, "-m", "noisychannel", "serve", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process, ThreadPoolExecutor(1) as pool:
        assert process.stderr is not None
        address = re.search(r"http://127\.0\.0\.1:\d+/", process.stderr.readline())
        assert address
        body = {"input": "Gebirgsbach" * 100, "n_best": 50}
        asked = pool.submit(httpx.post, f"{address[0]}api/decode", json=body, timeout=60)
        time.sleep(0.5)
        began = time.monotonic()
        for _ in range(signals):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
        assert process.wait(30) == 143
        assert time.monotonic() - began < 10
        assert process.stderr.read() == f"{told}noisychannel: stopped by SIGTERM; no request is waiting\n"
        with contextlib.suppress(httpx.HTTPError):  # the second signal closes the connection
            assert asked.result().status_code == (503 if signals == 1 else 500)


def told_by(words: list[str], code: int) -> str:
    done = run_here(["serve", *words], b"")
    assert done.returncode == code, done.stderr
    assert done.stdout == b""
    lines = done.stderr.decode().strip().splitlines()
    assert len(lines) == 1
    return lines[0]


def test_a_port_in_use_takes_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert f"--port: {port} is in use on 127.0.0.1; choose another one" in told_by(["--port", str(port)], 1)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nothing"], "nothing: no such run directory"),
        (["demo", "demo"], "demo: there are two runs called demo; name one otherwise, such as other=demo"),
        (["a=demo", "a=demo"], "there are two runs called a"),
        (["=demo"], "give a run directory, or NAME=RUN"),
        (["--port", "70000"], "--port: must be at least 0 and at most 65535"),
        (["--host", "no such host"], "--host: 'no such host' is not a host of this machine"),
        (["--host", "192.0.2.1", "--token", "x"], "--host: 192.0.2.1 is not an address of this machine"),
        (["--token", "a b"], "--token: must be printable ASCII"),
        (["--queue", "0"], "--queue: must be at least 1"),
    ],
)
def test_bad_options_take_one_line(words: list[str], told: str) -> None:
    assert told in told_by(words, 2)


def test_a_missing_extra_takes_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "pip install 'noisychannel[serve]'" in told_by([], 2)


def test_a_server_that_others_can_reach_warns_without_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "ServedRun", lambda *given: demo())
    monkeypatch.setattr(hosting, "answer_requests", lambda server, bound: server.service.stop())
    warning = "noisychannel: --host 0.0.0.0: other machines can use this server, and there is no token"
    assert told_by(["--host", "0.0.0.0", "--port", "0"], 0) == warning
    for words in (["--host", "0.0.0.0", "--token", "x"], [], ["--host", "127.1"]):
        assert run_here(["serve", *words, "--port", "0"], b"").stderr == b""
