"""The HTTP worker: the engine for programs that speak HTTP. Needs the packages of the extra ``server``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from pyggml.server.http.addresses import is_loopback
from pyggml.server.settings.environment import hints
from pyggml.server.settings.options import LOAD_DEFAULTS, LOADING, SERVING, ModelSpec, Settings
from pyggml.server.settings.reader import read_settings
from pyggml.server.settings.sources import Given, from_text

if TYPE_CHECKING:
    from pyggml.server.app import create_app, settings_of
    from pyggml.server.http.worker_proxy import Forwarded, Relay, answers
    from pyggml.server.observability.logs import configure_logs
    from pyggml.server.serve import run

__all__ = [
    "LOADING",
    "LOAD_DEFAULTS",
    "SERVING",
    "Forwarded",
    "Given",
    "ModelSpec",
    "Relay",
    "Settings",
    "answers",
    "configure_logs",
    "create_app",
    "from_text",
    "hints",
    "is_loopback",
    "read_settings",
    "run",
    "settings_of",
]

# What needs packages of the extra. The rest does without, so that the command's help does.
_OF_THE_EXTRA = {
    **dict.fromkeys(("create_app", "settings_of"), "pyggml.server.app"),
    **dict.fromkeys(("Forwarded", "Relay", "answers"), "pyggml.server.http.worker_proxy"),
    "configure_logs": "pyggml.server.observability.logs",
    "run": "pyggml.server.serve",
}


if not TYPE_CHECKING:  # a type checker would take every name for one of these

    def __getattr__(name: str) -> object:
        """Imports what needs the extra on first use."""
        if name not in _OF_THE_EXTRA:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            return getattr(importlib.import_module(_OF_THE_EXTRA[name]), name)
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("pyggml"):
                raise
            from pyggml import MissingPackageError

            missing = (error.name or "").partition(".")[0]
            raise MissingPackageError(
                f'the server needs {missing}, which is not installed: pip install "pyggml[server]"'
            ) from error
