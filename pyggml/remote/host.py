"""A host that this process has connected to, to compute on its devices."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from pyggml import errors
from pyggml._core import c_calls
from pyggml._core.ffi import ffi, lib
from pyggml._core.owner import Owner
from pyggml._native.backend import Device, device_of
from pyggml.remote.address import Address, addresses_of
from pyggml.remote.handshake import About, HandshakeError, Wire, prove_as_client
from pyggml.remote.keys import found_key

if TYPE_CHECKING:
    from typing_extensions import Self

#: How long a host may take to accept a connection, and then to start a worker for it.
CONNECT_S = 10.0
START_S = 60.0

#: How long a host may show no sign of life, of which it gives one a second, while this process waits for it.
SILENCE_S = 20.0


def connect(address: str, key: bytes) -> Host:
    """Connects to a host that runs ``pyggml rpc-serve``.

    Args:
        address: "host:port", or "host" for the default port.
        key: the key that the server has, from :func:`found_key`.

    Raises:
        DeviceError: the host cannot be reached, has another key or another build of the engine.
        InvalidParameterError: it is no address.
        HostLostError: it went away in the meantime.
    """
    return Host(Address.parse(address), key)


class Host(Owner):
    """A connected host. Its devices can be named as long as it is open; what uses them keeps the connection.

    Attributes:
        address: where it listens.
        about: what it is.
        devices: its devices, by their names in this process, as they were when it was connected.
    """

    _instead_of_a_copy = "connect again"

    def __init__(self, address: Address, key: bytes) -> None:
        """Connects; see :func:`connect`."""
        self.address = address
        connection, self.about = _connected(address, key)
        connection.settimeout(None)
        self._handle = c_calls.create(
            "pyg_remote",
            lib.pyg_remote_free,
            lib.pyg_remote_connect,
            connection.detach(),
            str(address).encode(),
            SILENCE_S,
        )
        self.devices = self._found()

    def check(self) -> None:
        """Raises an exception if the host is known to be lost. Does not wait for it.

        Raises:
            HostLostError: it is.
            ClosedError: the connection was closed here.
        """
        c_calls.call(lib.pyg_remote_require, self._handle)

    def close(self) -> None:
        """Gives the devices' names back, and the connection as soon as no model uses it. Can be called repeatedly."""
        c_calls.call(lib.pyg_remote_close, self._handle)
        self._is_closed = True

    def _found(self) -> tuple[Device, ...]:
        n_devices, about = ffi.new("int32_t *"), ffi.new("pyg_device *")
        c_calls.call(lib.pyg_remote_device_count, self._handle, n_devices)
        devices = []
        for index in range(n_devices[0]):
            c_calls.call(lib.pyg_remote_device_get, self._handle, index, about)
            devices.append(device_of(about))
        return tuple(devices)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"Host({str(self.address)!r}, devices={[each.name for each in self.devices]}{', closed' * self._is_closed})"
        )


@contextlib.contextmanager
def connected(
    hosts: str | Sequence[str] | None, key_file: str | os.PathLike[str] | None
) -> Iterator[tuple[Device, ...]]:
    """Connects to hosts while a model is placed on their devices, which it yields, and loaded.

    Args:
        hosts: addresses, as one text with commas or in a sequence; None: none.
        key_file: as for :func:`found_key`.

    Raises:
        As :func:`connect`, and as :func:`found_key`.
    """
    addresses = addresses_of(hosts)
    key = found_key(key_file) if addresses else b""
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(Host(address, key)) for address in addresses]
        yield tuple(device for host in connections for device in host.devices)


def _connected(address: Address, key: bytes) -> tuple[socket.socket, About]:
    try:
        connection = socket.create_connection(address, CONNECT_S)
    except (OSError, UnicodeError) as error:  # the latter of a name that no network has, such as "a..b"
        reason = "it does not answer" if isinstance(error, TimeoutError) else getattr(error, "strerror", "") or error
        raise errors.DeviceError(
            f'the host {address} cannot be reached ({reason}): does "pyggml rpc-serve" run there, and is the port open?'
        ) from None
    try:
        prove_as_client(Wire(connection, CONNECT_S), key)
        wire, mine = Wire(connection, START_S), About.this()
        wire.send_about(mine)
        theirs = wire.receive_about()
        mine.require_same_engine(theirs)
        return connection, theirs
    except HandshakeError as error:
        connection.close()
        raise errors.DeviceError(f"the host {address} cannot be used: {error}") from None
    except BaseException:
        connection.close()
        raise
