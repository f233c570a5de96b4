"""Handshake of a connection: mutual authentication by a shared key, and a check of versions.

::

    client -> server   MAGIC, 32 random bytes
    server -> client   MAGIC, 32 random bytes
    client -> server   HMAC-SHA256(key, "client" + both random parts)
    server -> client   1 byte (1: accepted), HMAC-SHA256(key, "server" + both random parts)
    client -> server   PeerInfo (JSON)
    server -> client   PeerInfo, with the exported devices (JSON)

The key is never sent. Replay attacks fail, since each peer chooses half of the signed bytes, and reflection attacks,
since the proofs of client and server differ. The connection after the handshake is neither encrypted nor signed; use a
tunnel for that (docs/how-to/split-a-model-across-hosts.md).
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import socket
import time
from dataclasses import asdict, dataclass

from pyggml._core.ffi import ffi, lib

#: The last byte is the version of this handshake.
MAGIC = b"pyggml-rpc\0\1"

_RANDOM_BYTES, _PROOF_BYTES = 32, 32
_ACCEPTED, _REJECTED = b"\1", b"\0"
_MAX_MESSAGE = 64 * 1024


class HandshakeError(Exception):
    """The peer violated the protocol, timed out or disconnected. Messages begin with "it" for the peer."""


class WrongKeyError(HandshakeError):
    """The peer has another key, or none."""


@dataclass(frozen=True)
class PeerInfo:
    """Version of pyggml, build of the engine, and the names and descriptions of the devices that a server exports.

    The build determines the wire format and the operations of graphs.
    """

    version: str
    engine: str
    devices: tuple[tuple[str, str], ...] = ()

    @classmethod
    def this(cls, devices: tuple[tuple[str, str], ...] = ()) -> PeerInfo:
        """Return the info of this process."""
        version, engine = (ffi.string(text).decode() for text in (lib.pyg_version(), lib.pyg_engine_build()))
        return cls(version, engine, devices)

    def require_same_engine(self, other: PeerInfo) -> None:
        """Check that the peer has the same build of the engine, or raise HandshakeError."""
        if self.engine != other.engine:
            raise HandshakeError(
                f"it has engine {other.engine} (pyggml {other.version}), and this is engine {self.engine} "
                f"(pyggml {self.version}): both ends need the same build"
            )


class Wire:
    """A socket with one deadline for all reads and writes."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._socket = connection
        self._deadline = time.monotonic() + seconds

    def send(self, data: bytes) -> None:
        """Send all of the data."""
        self._set_timeout()
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise HandshakeError(_describe(error)) from None

    def receive(self, n_bytes: int) -> bytes:
        """Receive exactly ``n_bytes`` bytes."""
        data = b""
        while len(data) < n_bytes:
            self._set_timeout()
            try:
                part = self._socket.recv(n_bytes - len(data))
            except OSError as error:
                raise HandshakeError(_describe(error)) from None
            if not part:
                raise HandshakeError("it has closed the connection")
            data += part
        return data

    def send_info(self, info: PeerInfo) -> None:
        """Send the info of this process."""
        data = json.dumps(asdict(info)).encode()
        self.send(len(data).to_bytes(4, "big") + data)

    def receive_info(self) -> PeerInfo:
        """Receive the peer's info."""
        size = int.from_bytes(self.receive(4), "big")
        if size > _MAX_MESSAGE:
            raise HandshakeError("it sent an invalid message")
        try:
            fields = json.loads(self.receive(size))
            devices = tuple((str(name), str(description)) for name, description in fields["devices"])
            return PeerInfo(str(fields["version"]), str(fields["engine"]), devices)
        except (ValueError, TypeError, KeyError, RecursionError):
            raise HandshakeError("it sent an invalid message") from None

    def _set_timeout(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise HandshakeError("it takes too long to respond")
        self._socket.settimeout(left)


def authenticate_as_client(wire: Wire, key: bytes) -> None:
    """Authenticate both peers, as the client, or raise HandshakeError or WrongKeyError."""
    mine = secrets.token_bytes(_RANDOM_BYTES)
    wire.send(MAGIC + mine)
    theirs = _receive_random(wire)
    wire.send(_proof(key, b"client", mine, theirs))
    if wire.receive(1) != _ACCEPTED:
        raise WrongKeyError("it has another key")
    if not hmac.compare_digest(wire.receive(_PROOF_BYTES), _proof(key, b"server", mine, theirs)):
        raise WrongKeyError("it does not know the key, although it accepted ours: it is not the expected server")


def authenticate_as_server(wire: Wire, key: bytes) -> None:
    """Authenticate both peers, as the server, or raise HandshakeError or WrongKeyError.

    The caller rejects a wrong key with :func:`reject`, after a delay.
    """
    theirs = _receive_random(wire)
    mine = secrets.token_bytes(_RANDOM_BYTES)
    wire.send(MAGIC + mine)
    if not hmac.compare_digest(wire.receive(_PROOF_BYTES), _proof(key, b"client", theirs, mine)):
        raise WrongKeyError("it does not know the key")
    wire.send(_ACCEPTED + _proof(key, b"server", theirs, mine))


def reject(connection: socket.socket) -> None:
    """Tell a client that its key is wrong, unless it has disconnected."""
    with contextlib.suppress(OSError):
        connection.send(_REJECTED)


def _receive_random(wire: Wire) -> bytes:
    # The version byte of MAGIC is read last, so that garbage is rejected as soon as possible.
    if wire.receive(len(MAGIC) - 1) != MAGIC[:-1]:
        raise HandshakeError("it does not speak pyggml's protocol (is it llama.cpp's rpc-server, or another program?)")
    if wire.receive(1) != MAGIC[-1:]:
        raise HandshakeError("it speaks another version of pyggml's protocol: both ends need the same pyggml")
    return wire.receive(_RANDOM_BYTES)


def _proof(key: bytes, role: bytes, client_random: bytes, server_random: bytes) -> bytes:
    return hmac.digest(key, role + client_random + server_random, "sha256")


def _describe(error: OSError) -> str:
    return "it takes too long to respond" if isinstance(error, TimeoutError) else str(error.strerror or error)
