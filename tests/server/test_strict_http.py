"""Requests that HTTP parsers read differently: refused, and the connection is closed."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from support.servers import servers

POST = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
BODY = b'{"content":"a"}'
CHUNKED = b"f\r\n" + BODY + b"\r\n0\r\n\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Running]:
    with servers.running() as server:
        yield server


def responses(server: servers.Running, request: bytes) -> bytes:
    """Return all that the server sends until it closes the connection."""
    with socket.create_connection(server.host, 30) as client:
        client.sendall(request)
        received = b""
        while part := client.recv(65536):
            received += part
        return received


@pytest.mark.slow_except("length and coding", "a bare LF", "folded", "a bare LF in a chunk")
@pytest.mark.parametrize(
    "request_",
    [
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED,
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + CHUNKED,
        POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED,
        POST + b"Content-Length: 15\r\nContent-Length: 5\r\n\r\n" + BODY,
        POST.replace(b"\r\n", b"\n") + b"Content-Length: 15\n\n" + BODY,
        POST + b"X-A: b\nContent-Length: 15\r\n\r\n" + BODY,
        POST + b"Content-Length: 15\r\n\n" + BODY,
        POST + b"X-A: b\r\n c\r\nContent-Length: 15\r\n\r\n" + BODY,
        POST + b"X-A: b\r\n\tc\r\nContent-Length: 15\r\n\r\n" + BODY,
        POST + b"Content-Length : 15\r\n\r\n" + BODY,
        POST + b"Transfer-Encoding: chunked\r\n\r\nf\n" + BODY + b"\n0\n\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED[:-2] + b"X-A: b\r\n c\r\n\r\n",
    ],
    ids=[
        "length and coding",
        "coding and length",
        "coding in 1.0",
        "two lengths",
        "LF only",
        "a bare LF",
        "a bare LF at the end",
        "folded",
        "folded by a tab",
        "a space before the colon",
        "a bare LF in a chunk",
        "a folded trailer",
    ],
)
def test_an_ambiguous_request_is_refused(request_: bytes, server: servers.Running) -> None:
    # what follows would be a request of its own if the first one were misread
    received = responses(server, request_ + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert received.count(b"HTTP/1.1") == 1


def test_plain_requests_are_served_one_after_another(server: servers.Running) -> None:
    last = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    chunked = POST + b"Transfer-Encoding: Chunked\r\n\r\n" + CHUNKED[:-2] + b"X-A: b\r\n\r\n"
    received = responses(server, POST + b"Content-Length: 15\r\n\r\n" + BODY + chunked + last)
    assert received.count(b"HTTP/1.1 200 OK") == 3
