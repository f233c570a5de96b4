"""Addresses of hosts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyggml._core.checks import invalid, shown

#: The port of upstream's rpc-server, which people have opened in their firewalls.
DEFAULT_PORT = 50052


class Address(NamedTuple):
    """Where a host listens."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: object) -> Address:
        """Reads "host:port", "host" (the default port), or "[::1]:port".

        Raises:
            InvalidParameterError: it is none of these.
        """
        if not isinstance(text, str) or not text.strip() or "\0" in text:
            raise invalid(f'a host is named by a text such as "gpu-box:{DEFAULT_PORT}", not {shown(text)}')
        host, colon, port = text.strip().rpartition(":")
        if not colon or port.endswith("]") or (":" in host and not host.endswith("]")):
            host, port = text.strip(), str(DEFAULT_PORT)  # a name or an IPv6 address without a port
        if not host.strip("[]") or not (port.isascii() and port.isdigit() and 0 < int(port) < 2**16):
            raise invalid(f'{shown(text)} is no address of a host; "gpu-box:{DEFAULT_PORT}" is one')
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def addresses_of(hosts: str | Sequence[str] | None) -> list[Address]:
    """The addresses in ``rpc=``: one text, with commas between them, or a sequence.

    Raises:
        InvalidParameterError: one is no address, or is named twice.
    """
    if hosts is None:
        return []
    given = hosts.split(",") if isinstance(hosts, str) else hosts
    if not isinstance(given, (list, tuple)):
        raise invalid(f'rpc names hosts, such as ["gpu-box:{DEFAULT_PORT}"], not {shown(hosts)}')
    addresses = [Address.parse(each) for each in given]
    for index, address in enumerate(addresses):
        if address in addresses[:index]:
            raise invalid(f"rpc names {address} twice; a host that lends several devices needs one address")
    return addresses
