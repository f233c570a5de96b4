"""Readers of system files, such as those in /proc."""

from __future__ import annotations

import contextlib
from pathlib import Path


def read_pairs(file: Path, separator: str) -> dict[str, str]:
    """Read "name separator value" lines. The first value of a name counts; an unreadable file has none.

    Args:
        file: the file.
        separator: the text between a name and its value.
    """
    lines = [line.partition(separator) for line in reversed(read_text(file).splitlines())]
    return {name.strip(): value.strip() for name, _, value in lines}


def read_text(file: Path) -> str:
    """Read a file; return "" if that fails.

    Args:
        file: the file.
    """
    with contextlib.suppress(OSError):
        return file.read_text(errors="replace")
    return ""
