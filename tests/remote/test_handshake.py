"""The handshake, in which both ends prove that they know the key: over real sockets, with honest and hostile peers."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import pyggml
from pyggml.remote.address import Address
from pyggml.remote.handshake import (
    MAGIC,
    HandshakeError,
    PeerInfo,
    Wire,
    WrongKeyError,
    authenticate_as_client,
    authenticate_as_server,
    reject,
)
from pyggml.remote.keys import create_key, default_key_file, find_key
from pyggml.server.settings.environment import read_environment

KEY = b"the key of these tests, 32 bytes"
OTHER = b"another key, just as long as one"
LIMIT_S = 5.0


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def outcome(part: Callable[[], None], over: socket.socket) -> Exception | None:
    try:
        part()
        return None
    except HandshakeError as error:
        over.shutdown(socket.SHUT_RDWR)
        return error


def meet(client_key: bytes, server_key: bytes) -> tuple[Exception | None, Exception | None]:
    """Run a handshake; return its outcome for the client and for the server."""
    ends: dict[str, Exception | None] = {}
    with pair() as (client, server):

        def serve() -> None:
            try:
                authenticate_as_server(Wire(server, LIMIT_S), server_key)
                ends["server"] = None
            except WrongKeyError as error:
                reject(server)
                ends["server"] = error

        thread = threading.Thread(target=serve)
        thread.start()
        ends["client"] = outcome(lambda: authenticate_as_client(Wire(client, LIMIT_S), client_key), client)
        thread.join()
    return ends["client"], ends["server"]


def test_both_accept_the_same_key() -> None:
    assert meet(KEY, KEY) == (None, None)


def test_both_refuse_another_key() -> None:
    client, server = meet(OTHER, KEY)
    assert isinstance(client, WrongKeyError)
    assert isinstance(server, WrongKeyError)


def test_the_key_is_never_sent() -> None:
    with pair() as (client, server):
        server.sendall(MAGIC + bytes(32) + b"\1" + bytes(32))
        with pytest.raises(WrongKeyError, match="does not know the key"):
            authenticate_as_client(Wire(client, LIMIT_S), KEY)
        sent = server.recv(4096)
    assert sent.startswith(MAGIC)
    assert KEY not in sent


def recorded() -> bytes:
    """All that a client sends in a handshake that succeeds."""
    with pair() as (client, middle), pair() as (onward, server):
        said = b""

        def relay() -> None:
            nonlocal said
            hello = middle.recv(4096)
            onward.sendall(hello)
            middle.sendall(onward.recv(4096))
            proof = middle.recv(4096)
            onward.sendall(proof)
            middle.sendall(onward.recv(4096))
            said = hello + proof

        threads = [
            threading.Thread(target=relay),
            threading.Thread(target=lambda: authenticate_as_server(Wire(server, LIMIT_S), KEY)),
        ]
        for thread in threads:
            thread.start()
        authenticate_as_client(Wire(client, LIMIT_S), KEY)
        for thread in threads:
            thread.join()
        return said


def test_a_recording_is_of_no_use() -> None:
    said = recorded()
    assert len(said) == len(MAGIC) + 32 + 32
    with pair() as (client, server):
        client.sendall(said)
        with pytest.raises(WrongKeyError):
            authenticate_as_server(Wire(server, LIMIT_S), KEY)


def test_a_proof_cannot_be_sent_back() -> None:
    """A peer without the key that answers with the client's own words is refused."""
    with pair() as (client, mirror):

        def reflect() -> None:
            mirror.sendall(mirror.recv(len(MAGIC) + 32))
            mirror.sendall(b"\1" + mirror.recv(32))

        thread = threading.Thread(target=reflect)
        thread.start()
        with pytest.raises(WrongKeyError):
            authenticate_as_client(Wire(client, LIMIT_S), KEY)
        thread.join()


@pytest.mark.parametrize("is_server", [True, False])
def test_random_bytes_are_refused(is_server: bool) -> None:
    """Whatever comes is refused by one of the two errors, and at once."""
    draw = random.Random(int(is_server))
    for _ in range(300):
        noise = draw.randbytes(draw.choice([0, 1, 11, 12, 44, 76, 200]))
        data = (MAGIC + noise if draw.random() < 0.5 else noise)[: draw.randrange(300)]
        with pair() as (peer, own):
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)
            prove = authenticate_as_server if is_server else authenticate_as_client
            with pytest.raises(HandshakeError):
                prove(Wire(own, LIMIT_S), KEY)


@pytest.mark.parametrize(
    "data",
    [b"", b"\0\0\0\1", b"\0\0\0\2{}", b"\xff\xff\xff\xff", b"\0\0\0\4null", b"\0\0\0\2[]", b"\0\0\0\1\xff"],
)
def test_malformed_messages_are_refused(data: bytes) -> None:
    with pair() as (peer, own):
        peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
        with pytest.raises(HandshakeError):
            Wire(own, LIMIT_S).receive_info()


def test_deep_messages_are_refused() -> None:
    data = b"[" * 60_000
    with pair() as (peer, own):
        peer.sendall(len(data).to_bytes(4, "big") + data)
        with pytest.raises(HandshakeError):
            Wire(own, LIMIT_S).receive_info()


def test_the_deadline_holds_for_everything_together() -> None:
    """A peer that sends a byte now and then gets no more time by it."""
    with pair() as (peer, own):
        over = threading.Event()

        def dawdle() -> None:
            for byte in MAGIC:
                if over.wait(0.05):
                    return
                peer.sendall(bytes([byte]))

        thread = threading.Thread(target=dawdle)
        thread.start()
        with pytest.raises(HandshakeError, match="too long"):
            authenticate_as_server(Wire(own, 0.2), KEY)
        over.set()
        thread.join()


def test_what_an_end_is_travels_whole() -> None:
    about = PeerInfo.this((("CPU", "AMD EPYC"),))
    with pair() as (one, other):
        Wire(one, LIMIT_S).send_info(about)
        assert Wire(other, LIMIT_S).receive_info() == about


def test_another_engine_is_refused_by_name() -> None:
    with pytest.raises(HandshakeError, match=r"b1 .*b2 "):
        PeerInfo("0.2", "b2").require_same_engine(PeerInfo("0.1", "b1"))


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("gpu-box:1234", "gpu-box", 1234),
        ("gpu-box", "gpu-box", 50052),
        ("10.0.0.7:1", "10.0.0.7", 1),
        ("[::1]:7", "::1", 7),
        ("[::1]", "::1", 50052),
        ("::1", "::1", 50052),
    ],
)
def test_addresses(text: str, host: str, port: int) -> None:
    assert Address.parse(text) == (host, port)
    assert Address.parse(str(Address(host, port))) == (host, port)


@pytest.mark.parametrize("text", ["", " ", ":1", "a:0", "a:65536", "a:-1", "a:b", "a\0b", 7, None, "a:١"])
def test_bad_addresses_are_refused(text: object) -> None:
    with pytest.raises(pyggml.InvalidParameterError):
        Address.parse(text)


def test_a_made_key_is_its_owners_alone(tmp_path: Path) -> None:
    file = tmp_path / "new" / "key"
    key = create_key(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(key) == 64
    assert create_key(file) == key == find_key(file)


def test_where_a_key_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("PYGGML_RPC_KEY", raising=False)
    with pytest.raises(pyggml.InvalidParameterError, match="rpc_key"):
        find_key()
    own = create_key(default_key_file())
    assert find_key() == own
    monkeypatch.setenv("PYGGML_RPC_KEY", KEY.decode())
    assert find_key() == KEY
    assert read_environment({"PYGGML_RPC_KEY": KEY.decode()}).load == {}  # the key itself, where rpc_key names a file
    (tmp_path / "short").write_text("short\n")
    with pytest.raises(pyggml.InvalidParameterError, match="5 bytes"):
        find_key(tmp_path / "short")
