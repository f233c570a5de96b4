"""The command ``pyggml``: needs the packages of the extra ``cli``.

Nothing here imports the library before a command runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import importlib.util
import sys

# What the extra installs, by the names of imports. Some may be installed for another package.
_EXTRA = ("click", "rich", "prompt_toolkit")


def main() -> None:
    """The entry point of the installed script and of ``python -m pyggml``.

    Raises:
        SystemExit: with 0; with 1 if something failed, 2 if the command line is wrong, 130 after Ctrl-C, and 128 and
            the signal's number after SIGTERM or SIGHUP.
    """
    missing = [name for name in _EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        print(f"pyggml: the command needs {' and '.join(missing)}: pip install {' '.join(missing)}", file=sys.stderr)
        raise SystemExit(1)

    from pyggml.cli.program import run

    run()
