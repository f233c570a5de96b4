"""Devices of other hosts: connecting to them, and lending this machine's."""

from pyggml.remote.address import DEFAULT_PORT, Address
from pyggml.remote.host import Host, connect, connected
from pyggml.remote.keys import VARIABLE, default_file, found_key, made_key
from pyggml.remote.loan import Loan
from pyggml.remote.supervisor import Supervisor, lent_by

__all__ = [
    "DEFAULT_PORT",
    "VARIABLE",
    "Address",
    "Host",
    "Loan",
    "Supervisor",
    "connect",
    "connected",
    "default_file",
    "found_key",
    "lent_by",
    "made_key",
]
