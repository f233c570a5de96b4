"""Warnings that point to the caller's line."""

from __future__ import annotations

import sys
import warnings


def warn(message: str) -> None:
    """Issue a UserWarning for the line that called the package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "pyggml":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UserWarning, stacklevel=level)
