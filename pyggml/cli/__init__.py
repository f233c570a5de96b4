"""The command ``pyggml``: needs the extra ``pyggml[cli]``.

Nothing here imports the library before a command runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import sys

# What the extra installs, as it is imported.
_EXTRA = {"click", "rich", "prompt_toolkit"}


def main() -> None:
    """What the installed script and ``python -m pyggml`` run.

    Raises:
        SystemExit: with 0, with 1 when something failed, 2 when the command line is wrong, 130 when interrupted.
    """
    try:
        from pyggml.cli.program import run
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        print(f"pyggml: the command needs {error.name}: pip install 'pyggml[cli]'", file=sys.stderr)
        raise SystemExit(1) from None
    run()
