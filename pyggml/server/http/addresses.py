"""Loopback names and addresses."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Return True if a host name or address reaches only this machine.

    Args:
        host: the name or address, without a port.
    """
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
