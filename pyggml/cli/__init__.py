"""The command ``pyggml``: needs the extra ``pyggml[cli]``.

Nothing here imports the library before a command runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import importlib.util
import sys

# What the extra installs, as it is imported. Some of it may be there for others' sake.
_EXTRA = ("click", "rich", "prompt_toolkit")


def main() -> None:
    """What the installed script and ``python -m pyggml`` run.

    Raises:
        SystemExit: with 0, with 1 when something failed, 2 when the command line is wrong, 130 when interrupted, and
            with 128 and the signal's number when told to end.
    """
    missing = [name for name in _EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        print(f"pyggml: the command needs {' and '.join(missing)}: pip install 'pyggml[cli]'", file=sys.stderr)
        raise SystemExit(1)

    from pyggml.cli.program import run

    run()
