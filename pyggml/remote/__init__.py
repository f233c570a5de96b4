"""Devices of other hosts: connecting to them, and lending this machine's."""

import importlib
from typing import TYPE_CHECKING

from pyggml.remote.address import DEFAULT_PORT, Address
from pyggml.remote.keys import VARIABLE, default_file, found_key, made_key

if TYPE_CHECKING:
    from pyggml.remote.exported_devices import Loan
    from pyggml.remote.host import Host, connect, connected
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

# What needs the compiled module, which the command's help does without.
_COMPILED = {
    **dict.fromkeys(("Host", "connect", "connected"), "pyggml.remote.host"),
    "Loan": "pyggml.remote.exported_devices",
    **dict.fromkeys(("Supervisor", "lent_by"), "pyggml.remote.supervisor"),
}


if not TYPE_CHECKING:  # a type checker would take every name for one of these

    def __getattr__(name: str) -> object:
        """Imports what needs the compiled module on first use."""
        if name not in _COMPILED:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_COMPILED[name]), name)
