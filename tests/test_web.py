"""What both servers share, before an application of two lines: large heads, names of hosts, and how connections end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="no uvicorn: servers are not tested")
from noisychannel.errors import NoisyChannelError
from noisychannel.web.guard import LOOPBACK_NAMES, Guard, allowed_hosts
from noisychannel.web.messages import ASGIApp, Receive, Scope, Send, host_name, is_loopback, refuse
from noisychannel.web.server import Server, bind


async def hasty(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that answers before it has read anything."""
    await refuse(send, 404, "nothing")


@contextlib.contextmanager
def connection_to(app: ASGIApp) -> Iterator[socket.socket]:
    """A connection to a server in a thread."""
    started = threading.Event()
    with bind("127.0.0.1", 0) as bound:
        server = Server(app, 5.0, started.set)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([bound])))
        thread.start()
        try:
            assert started.wait(30)
            with socket.create_connection(bound.getsockname(), timeout=10) as connection:
                yield connection
        finally:
            server.should_exit = True
            thread.join(30)


def guarded() -> Guard:
    return Guard(hasty, max_body=1000, body_seconds=5.0, hosts=LOOPBACK_NAMES)


def answer(connection: socket.socket) -> bytes:
    """What the server says next: the JSON of ``refuse`` ends with a brace."""
    told = b""
    while not told.endswith(b"}"):
        more = connection.recv(65536)
        assert more, "the connection was closed"
        told += more
    return told


def post(host: str, body: bytes, announced: int | None = None) -> bytes:
    length = len(body) if announced is None else announced
    head = f"POST / HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    return head.encode() + body


UNREAD = {
    "GET": b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n",
    "in chunks": b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
    "another host": post("evil.example", b"", announced=1000),
    "another type": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n",
    "too large": post("localhost", b"", announced=1001),
}
"""Requests whose body is not read."""


@pytest.mark.parametrize("sent", UNREAD.values(), ids=UNREAD)
def test_an_answer_that_leaves_the_body_ends_the_connection(sent: bytes) -> None:
    """A client could otherwise hold it for ever with one byte of the body."""
    with connection_to(guarded()) as connection:
        connection.sendall(sent)
        assert b"\r\nconnection: close\r\n" in answer(connection)
        with contextlib.suppress(ConnectionError):
            connection.sendall(b"x")
            assert connection.recv(1) == b""


def test_a_connection_goes_on_after_a_body_that_was_read_or_is_empty() -> None:
    with connection_to(guarded()) as connection:
        for host, body, status in (("localhost", b"{}", 404), ("evil.example", b"", 421), ("localhost", b"{}", 404)):
            connection.sendall(post(host, body))
            told = answer(connection)
            assert told.startswith(f"HTTP/1.1 {status} ".encode())
            assert b"connection: close" not in told


def test_the_protocol_ends_connections_whose_body_was_left_whatever_the_answer_says() -> None:
    """Also those that had used a connection well before, with requests that did not wait for answers."""
    with connection_to(hasty) as connection:
        whole, part = post("localhost", b"{}"), post("localhost", b"{", announced=2)
        connection.sendall(whole + whole + part)
        told = b"".join(iter(lambda: connection.recv(65536), b""))
        assert told.count(b"HTTP/1.1 404 ") == 3
        assert b"connection: close" not in told


@pytest.mark.parametrize(("headers", "target"), [(3000, 1), (1, 20_000)])
def test_a_large_head_that_comes_at_once_is_refused(headers: int, target: int) -> None:
    """Or behind a request that is still answered: then the protocol has it as a whole, too."""
    small = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    large = b"GET /" + b"x" * target + b" HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * headers + b"\r\n"
    with connection_to(guarded()) as connection:
        connection.sendall(small + large)
        told = b""
        while told.count(b"}") < 2:
            more = connection.recv(65536)
            assert more
            told += more
        assert told.startswith(b"HTTP/1.1 404 ")
        assert b"HTTP/1.1 431 " in told


@pytest.mark.parametrize(
    ("host", "name"),
    [("LocalHost:80", "localhost"), ("[::1]:80", "::1"), ("[::1]", "::1"), ("[0::01]", "::1"), ("1.2.3.4", "1.2.3.4"),
     ("localhost:", "localhost"), ("a-b.example:1", "a-b.example")],
)  # fmt: skip
def test_names_of_hosts(host: str, name: str) -> None:
    assert host_name(host) == name


@pytest.mark.parametrize(
    "host",
    ["", ":80", "[localhost", "[localhost]", "[]", "[::1]evil.com", "[::1]:80@evil.com", "[::1", "::1", "[::1%lo]",
     "localhost:x@evil", "localhost:80:80", "localhost:x", "localhost@evil", "localhost/", "localhost ", "localhost\n",
     "localhost:٣", "127.0.0.1, evil.com"],
)  # fmt: skip
def test_what_is_no_host_has_no_name(host: str) -> None:
    assert host_name(host) == ""


@pytest.mark.parametrize("given", ["localhost", "127.0.0.1", "127.1", "0x7f.1", "127.0.0.2", "::1", "::ffff:127.0.0.1"])
def test_every_spelling_of_loopback_is_loopback(given: str) -> None:
    """A server on loopback must check names: a page of another site could use one of its own (DNS rebinding)."""
    try:
        bound = bind(given, 0)
    except (OSError, NoisyChannelError):
        pytest.skip(f"this machine does not listen on {given}")
    with bound:
        hosts = allowed_hosts(given, bound)
    assert hosts is not None
    assert hosts >= LOOPBACK_NAMES
    assert "" not in hosts
    assert host_name(f"[{given}]:80" if ":" in given else f"{given}:80") in hosts


def test_a_name_is_what_it_resolves_to(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo

    def resolved(host: str, port: int, **options: Any) -> Any:
        return resolve({"Mine": "127.0.0.1", "localhost": "0.0.0.0"}[host], port, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    with bind("Mine", 0) as bound:
        assert allowed_hosts("Mine", bound) == LOOPBACK_NAMES | {"mine"}
    with bind("localhost", 0) as bound:
        assert allowed_hosts("localhost", bound) is None, "others can reach it"


def test_addresses_of_loopback() -> None:
    for address in ("127.0.0.1", "127.255.0.1", "::1", "::ffff:127.0.0.1"):
        assert is_loopback(address)
    for address in ("10.0.0.1", "0.0.0.0", "::", "::ffff:10.0.0.1", "localhost", ""):
        assert not is_loopback(address)
