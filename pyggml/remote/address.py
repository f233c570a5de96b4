"""Addresses of hosts that export devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyggml._core.checks import invalid, shown

#: The port of upstream's rpc-server, which firewalls may already allow.
DEFAULT_PORT = 50052


class Address(NamedTuple):
    """The address of a host.

    Attributes:
        host: a name or an IP address, without brackets.
        port: the port, 1 to 65535.
    """

    host: str
    port: int

    @classmethod
    def parse(cls, text: object) -> Address:
        """Parse "host:port", "host" (the default port), or "[::1]:port".

        Args:
            text: the address.

        Raises:
            InvalidParameterError: the text is not an address.
        """
        if not isinstance(text, str) or not text.strip() or "\0" in text:
            raise invalid(f'a host must be a string such as "gpu-box:{DEFAULT_PORT}", not {shown(text)}')
        host, colon, port = text.strip().rpartition(":")
        if not colon or port.endswith("]") or (":" in host and not host.endswith("]")):
            host, port = text.strip(), str(DEFAULT_PORT)  # a name or an IPv6 address without a port
        if not host.strip("[]") or not (port.isascii() and port.isdigit() and 0 < int(port) < 2**16):
            raise invalid(f'{shown(text)} is not the address of a host, such as "gpu-box:{DEFAULT_PORT}"')
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(hosts: str | Sequence[str] | None) -> list[Address]:
    """Parse the addresses in ``rpc=``: a string, separated by commas, or a sequence.

    Raises:
        InvalidParameterError: an address is malformed or occurs twice.
    """
    if hosts is None:
        return []
    given = hosts.split(",") if isinstance(hosts, str) else hosts
    if not isinstance(given, (list, tuple)):
        raise invalid(f'rpc must be a list of hosts such as ["gpu-box:{DEFAULT_PORT}"], not {shown(hosts)}')
    addresses = [Address.parse(each) for each in given]
    if twice := [address for address in addresses if addresses.count(address) > 1]:
        raise invalid(f"rpc names {twice[0]} twice; one address is enough for all devices of a host")
    return addresses
