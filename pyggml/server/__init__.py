"""The HTTP server. It needs the packages of the extra ``server``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from pyggml.server.http.addresses import is_loopback
from pyggml.server.settings.environment import foreign_variable_hints
from pyggml.server.settings.options import LOAD_DEFAULTS, LOADING, SERVING, ModelSpec, Settings
from pyggml.server.settings.reader import read_settings
from pyggml.server.settings.tables import PartialSettings, parse_text

if TYPE_CHECKING:
    from pyggml.server.app import create_app, settings_of
    from pyggml.server.http.worker_proxy import ForwardedRequest, WorkerProxy, run_forwarded
    from pyggml.server.observability.logs import configure_logs
    from pyggml.server.serve import run

__all__ = [
    "LOADING",
    "LOAD_DEFAULTS",
    "SERVING",
    "ForwardedRequest",
    "ModelSpec",
    "PartialSettings",
    "Settings",
    "WorkerProxy",
    "configure_logs",
    "create_app",
    "foreign_variable_hints",
    "is_loopback",
    "parse_text",
    "read_settings",
    "run",
    "run_forwarded",
    "settings_of",
]

# Names that need packages of the extra. They are imported on first use, so that the command's help works without it.
_LAZY = {
    **dict.fromkeys(("create_app", "settings_of"), "pyggml.server.app"),
    **dict.fromkeys(("ForwardedRequest", "WorkerProxy", "run_forwarded"), "pyggml.server.http.worker_proxy"),
    "configure_logs": "pyggml.server.observability.logs",
    "run": "pyggml.server.serve",
}
_OLD_NAMES = {
    "Forwarded": "ForwardedRequest",
    "Given": "PartialSettings",
    "Relay": "WorkerProxy",
    "answers": "run_forwarded",
    "from_text": "parse_text",
    "hints": "foreign_variable_hints",
}


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        name = _OLD_NAMES.get(name, name)
        if name in globals():
            return globals()[name]
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            return getattr(importlib.import_module(_LAZY[name]), name)
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("pyggml"):
                raise
            from pyggml import MissingPackageError

            missing = (error.name or "").partition(".")[0]
            raise MissingPackageError(
                f'the server needs {missing}, which is not installed: pip install "pyggml[server]"'
            ) from error
