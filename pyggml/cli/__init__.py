"""The command ``pyggml``. Needs the packages of the extra ``cli``.

The library is imported only when a command runs, so that ``--help`` is fast. Functions raise click.ClickException, or
the library's InferError, for input that they reject.
"""

from __future__ import annotations

import importlib.util
import sys

# Import names of the extra's packages. Some may be installed for another package.
_EXTRA = ("click", "rich", "prompt_toolkit")


def main() -> None:
    """Run the command line: the entry point of the installed script and of ``python -m pyggml``.

    Raises:
        SystemExit: with 0 on success, 1 after an error, 2 for an invalid command line, 130 after Ctrl-C, and 128 plus
            the signal number after SIGTERM or SIGHUP.
    """
    missing = [name for name in _EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        print(f"pyggml: the command needs {' and '.join(missing)}: pip install {' '.join(missing)}", file=sys.stderr)
        raise SystemExit(1)

    from pyggml.cli.program import run

    run()
