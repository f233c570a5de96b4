"""A connected host, on whose devices this process computes."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Sequence

from pyggml import errors
from pyggml._core import c_calls
from pyggml._core.ffi import ffi, lib
from pyggml._core.owner import Owner
from pyggml._native.backend import Device, device_of
from pyggml.remote.address import Address, parse_addresses
from pyggml.remote.handshake import HandshakeError, PeerInfo, Wire, authenticate_as_client
from pyggml.remote.keys import find_key

#: Timeouts for connecting to a host, and for the start of its worker.
CONNECT_S = 10.0
START_S = 60.0

#: Timeout for a host's heartbeats, which it sends every second while this process waits for it.
SILENCE_S = 20.0


def connect(address: str, key: bytes) -> Host:
    """Connect to a host that runs ``pyggml rpc-serve``.

    Args:
        address: "host:port", or "host" for the default port.
        key: the server's key, from :func:`find_key`.

    Raises:
        DeviceError: the host cannot be reached, has another key or another build of the engine.
        InvalidParameterError: the address is malformed.
        HostLostError: the connection was lost in the meantime.
    """
    return Host(Address.parse(address), key)


class Host(Owner, contextlib.AbstractContextManager["Host"]):
    """A connected host. Its devices have names until it is closed; models on them keep the connection open.

    Attributes:
        address: the host's address.
        info: its version and devices.
        devices: its devices at the time of connecting, with their names in this process.
    """

    _instead_of_a_copy = "connect again"

    def __init__(self, address: Address, key: bytes) -> None:
        """Connect; see :func:`connect`.

        Args:
            address: the host's address.
            key: the server's key, from :func:`find_key`.
        """
        self.address = address
        connection, self.info = _open_connection(address, key)
        connection.settimeout(None)
        self._handle = c_calls.create(
            "pyg_remote",
            lib.pyg_remote_free,
            lib.pyg_remote_connect,
            connection.detach(),
            str(address).encode(),
            SILENCE_S,
        )
        n_devices, device = ffi.new("int32_t *"), ffi.new("pyg_device *")
        c_calls.call(lib.pyg_remote_device_count, self._handle, n_devices)
        devices = []
        for index in range(n_devices[0]):
            c_calls.call(lib.pyg_remote_device_get, self._handle, index, device)
            devices.append(device_of(device))
        self.devices = tuple(devices)

    def check(self) -> None:
        """Check that the host is not known to be lost, without waiting.

        Raises:
            HostLostError: the host is lost.
            ClosedError: the connection was closed here.
        """
        c_calls.call(lib.pyg_remote_require, self._handle)

    def close(self) -> None:
        """Release the devices' names, and the connection as soon as no model uses it. Safe to call again."""
        c_calls.call(lib.pyg_remote_close, self._handle)
        self._is_closed = True

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        names = [device.name for device in self.devices]
        return f"Host({str(self.address)!r}, devices={names}{', closed' * self._is_closed})"


@contextlib.contextmanager
def connected(
    hosts: str | Sequence[str] | None, key_file: str | os.PathLike[str] | None
) -> Iterator[tuple[Device, ...]]:
    """Yield the devices of hosts. The connections close at the end, unless a loaded model uses them.

    Args:
        hosts: addresses, as a string separated by commas or a sequence; None: none.
        key_file: as for :func:`find_key`.
    """
    addresses = parse_addresses(hosts)
    key = find_key(key_file) if addresses else b""
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(Host(address, key)) for address in addresses]
        yield tuple(device for host in connections for device in host.devices)


def _open_connection(address: Address, key: bytes) -> tuple[socket.socket, PeerInfo]:
    try:
        connection = socket.create_connection(address, CONNECT_S)
    except (OSError, UnicodeError) as error:  # UnicodeError: an invalid name such as "a..b"
        reason = "it does not respond" if isinstance(error, TimeoutError) else getattr(error, "strerror", "") or error
        raise errors.DeviceError(
            f'the host {address} cannot be reached ({reason}). Check that it runs "pyggml rpc-serve" on an open port'
        ) from None
    try:
        authenticate_as_client(Wire(connection, CONNECT_S), key)
        wire, mine = Wire(connection, START_S), PeerInfo.this()
        wire.send_info(mine)
        theirs = wire.receive_info()
        mine.require_same_engine(theirs)
        return connection, theirs
    except BaseException as error:
        connection.close()
        if isinstance(error, HandshakeError):
            raise errors.DeviceError(f"the host {address} cannot be used: {error}") from None
        raise
