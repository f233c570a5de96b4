"""How the ends of a connection prove that they know the key, and find out whether they fit.

::

    client -> server   MAGIC, 32 random bytes
    server -> client   MAGIC, 32 random bytes
    client -> server   HMAC-SHA256(key, "client" + both random parts)
    server -> client   1 byte (1: accepted), HMAC-SHA256(key, "server" + both random parts)
    client -> server   what it is (JSON)
    server -> client   what it is, and what it lends (JSON)

The key is never sent. A recording of one handshake is of no use in another, since each end has chosen half of what is
signed, and neither end's proof can be sent back to it as the other's. What follows is neither encrypted nor signed:
that takes a tunnel (docs/how-to/split-a-model-across-hosts.md).
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import time
from dataclasses import asdict, dataclass
from typing import Any

from pyggml._core.ffi import ffi, lib

#: The last byte is the version of this handshake.
MAGIC = b"pyggml-rpc\0\1"

_RANDOM_BYTES = 32
_PROOF_BYTES = 32
_ACCEPTED = b"\1"
_REFUSED = b"\0"
_MAX_MESSAGE = 64 * 1024


class HandshakeError(Exception):
    """The other end did not do its part. The message is what to say of it."""


class WrongKeyError(HandshakeError):
    """The other end knows another key, or none."""


@dataclass(frozen=True)
class About:
    """What one end is.

    Attributes:
        version: of pyggml.
        engine: upstream's build; the wire format and the graphs' operations are its own.
        devices: what a server lends: the devices' names on that host and their descriptions.
    """

    version: str
    engine: str
    devices: tuple[tuple[str, str], ...] = ()

    @classmethod
    def this(cls, devices: tuple[tuple[str, str], ...] = ()) -> About:
        """This process."""
        version, engine = (ffi.string(text).decode() for text in (lib.pyg_version(), lib.pyg_engine_build()))
        return cls(version, engine, devices)

    def require_same_engine(self, other: About) -> None:
        """Refuses another build of the engine.

        Raises:
            HandshakeError: says which builds.
        """
        if self.engine != other.engine:
            raise HandshakeError(
                f"it has engine {other.engine} (pyggml {other.version}), and this is engine {self.engine} "
                f"(pyggml {self.version}): both ends need the same one"
            )


class Wire:
    """A socket with one deadline for everything that is read and written."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._socket = connection
        self._deadline = time.monotonic() + seconds

    def send(self, data: bytes) -> None:
        """Sends all of it."""
        self._limit_time()
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise HandshakeError(_words(error)) from None

    def receive(self, n_bytes: int) -> bytes:
        """Receives exactly so much."""
        data = b""
        while len(data) < n_bytes:
            self._limit_time()
            try:
                part = self._socket.recv(n_bytes - len(data))
            except OSError as error:
                raise HandshakeError(_words(error)) from None
            if not part:
                raise HandshakeError("it has closed the connection")
            data += part
        return data

    def send_about(self, about: About) -> None:
        """Says what this end is."""
        data = json.dumps(asdict(about)).encode()
        self.send(len(data).to_bytes(4, "big") + data)

    def receive_about(self) -> About:
        """What the other end is."""
        size = int.from_bytes(self.receive(4), "big")
        if size > _MAX_MESSAGE:
            raise HandshakeError("what it sends makes no sense")
        try:
            return _about(json.loads(self.receive(size)))
        except (ValueError, TypeError, KeyError, RecursionError):
            raise HandshakeError("what it sends makes no sense") from None

    def _limit_time(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise HandshakeError("it takes too long to answer")
        self._socket.settimeout(left)


def prove_as_client(wire: Wire, key: bytes) -> None:
    """The client's side, up to where both have proved that they know the key.

    Raises:
        HandshakeError: the other end is no server of ours, or goes away.
        WrongKeyError: the keys differ.
    """
    mine = secrets.token_bytes(_RANDOM_BYTES)
    wire.send(MAGIC + mine)
    theirs = _random_part(wire)
    wire.send(_proof(key, b"client", mine, theirs))
    if wire.receive(1) != _ACCEPTED:
        raise WrongKeyError("it has another key")
    if not hmac.compare_digest(wire.receive(_PROOF_BYTES), _proof(key, b"server", mine, theirs)):
        raise WrongKeyError("it does not know the key, whatever it says: it is not the server it should be")


def prove_as_server(wire: Wire, key: bytes) -> None:
    """The server's side. A refusal is left to the caller, who may take its time: see :func:`refuse`.

    Raises:
        HandshakeError: the other end is no client of ours, or goes away.
        WrongKeyError: the keys differ.
    """
    theirs = _random_part(wire)
    mine = secrets.token_bytes(_RANDOM_BYTES)
    wire.send(MAGIC + mine)
    if not hmac.compare_digest(wire.receive(_PROOF_BYTES), _proof(key, b"client", theirs, mine)):
        raise WrongKeyError("it does not know the key")
    wire.send(_ACCEPTED + _proof(key, b"server", theirs, mine))


def refuse(connection: socket.socket) -> None:
    """Tells a client that it does not know the key, if it still listens."""
    try:
        connection.send(_REFUSED)
    except OSError:
        return


def _random_part(wire: Wire) -> bytes:
    # The end of MAGIC comes last, so that garbage is refused at once and not when enough of it has come.
    if wire.receive(len(MAGIC) - 1) != MAGIC[:-1]:
        raise HandshakeError("it does not speak pyggml's protocol (is it llama.cpp's rpc-server, or another program?)")
    if wire.receive(1) != MAGIC[-1:]:
        raise HandshakeError("it speaks another version of pyggml's protocol: both ends need the same pyggml")
    return wire.receive(_RANDOM_BYTES)


def _proof(key: bytes, who: bytes, of_client: bytes, of_server: bytes) -> bytes:
    return hmac.digest(key, who + of_client + of_server, "sha256")


def _about(message: Any) -> About:
    devices = tuple((str(name), str(description)) for name, description in message["devices"])
    return About(str(message["version"]), str(message["engine"]), devices)


def _words(error: OSError) -> str:
    return "it takes too long to answer" if isinstance(error, TimeoutError) else str(error.strerror or error)
