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


# Names that public DNS does not resolve.
_LOCAL_SUFFIXES = (".local", ".internal", ".lan", ".home.arpa")


def is_local(host: str) -> bool:
    """Return True for addresses, and for names that no one can register in public DNS.

    Args:
        host: the name or address, without a port.
    """
    try:
        return not ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return is_loopback(host) or (host != "" and "." not in host) or host.endswith(_LOCAL_SUFFIXES)
