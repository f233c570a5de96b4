"""Processes of our own that run a part of this package."""

from __future__ import annotations

import sys


def child_command(module: str, *arguments: str) -> list[str]:
    """The command that runs ``main()`` of a module of this package.

    It finds the package where this process did, and nothing in the working directory that this one does not.
    """
    program = f"import sys; sys.path[:] = {sys.path!r}; from {module} import main; sys.exit(main())"
    return [sys.executable, "-c", program, *arguments]
