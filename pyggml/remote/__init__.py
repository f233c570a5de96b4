"""Devices of other hosts: connecting to them, and exporting the devices of this machine."""

import importlib
from typing import TYPE_CHECKING

from pyggml.remote.address import DEFAULT_PORT, Address
from pyggml.remote.keys import KEY_VARIABLE, create_key, default_key_file, find_key

if TYPE_CHECKING:
    from pyggml.remote.exported_devices import ExportedDevices
    from pyggml.remote.host import Host, connect, connected
    from pyggml.remote.supervisor import Supervisor, list_exported_devices

__all__ = [
    "DEFAULT_PORT",
    "KEY_VARIABLE",
    "Address",
    "ExportedDevices",
    "Host",
    "Supervisor",
    "connect",
    "connected",
    "create_key",
    "default_key_file",
    "find_key",
    "list_exported_devices",
]

# Names that need the compiled module. The help of commands must work without it.
_COMPILED = {
    **dict.fromkeys(("Host", "connect", "connected"), "pyggml.remote.host"),
    "ExportedDevices": "pyggml.remote.exported_devices",
    **dict.fromkeys(("Supervisor", "list_exported_devices"), "pyggml.remote.supervisor"),
}
_OLD_NAMES = {
    "Loan": "ExportedDevices",
    "VARIABLE": "KEY_VARIABLE",
    "default_file": "default_key_file",
    "found_key": "find_key",
    "lent_by": "list_exported_devices",
    "made_key": "create_key",
}


if not TYPE_CHECKING:  # a type checker would take every name for one of these

    def __getattr__(name: str) -> object:
        """Import names that need the compiled module on first use."""
        name = _OLD_NAMES.get(name, name)
        if name in globals():
            return globals()[name]
        if name not in _COMPILED:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_COMPILED[name]), name)
