"""Reads the small files in which the system describes itself."""

from __future__ import annotations

import contextlib
from pathlib import Path


def pairs(file: Path, separator: str) -> dict[str, str]:
    """The names and values in the lines of a file, of several values the first; empty where it cannot be read."""
    lines = [line.partition(separator) for line in reversed(text_of(file).splitlines())]
    return {name.strip(): value.strip() for name, _, value in lines}


def text_of(file: Path) -> str:
    """What is in a file; nothing where it cannot be read."""
    with contextlib.suppress(OSError):
        return file.read_text(errors="replace")
    return ""
