"""Differences between operating systems. Windows has never been tested (docs/reference/platforms.md)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from pyggml.errors import InvalidParameterError


def call_in_forked_child(callback: Callable[[], object]) -> None:
    """Call a function in every child that Python forks from now on. Windows has no fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=callback)


def require_inherited_sockets(feature: str, system: str = sys.platform) -> None:
    """Refuse a feature where child processes cannot inherit sockets and shared memory by their numbers.

    Args:
        feature: as the user knows it, such as ``isolate=True``.
        system: as in ``sys.platform``.

    Raises:
        InvalidParameterError: the system is Windows.
    """
    if system == "win32":
        raise InvalidParameterError(
            f"{feature} does not work on Windows: it passes sockets to a child process by their descriptors. Leave it "
            "out, or run the program on Linux or macOS, such as in WSL."
        )
