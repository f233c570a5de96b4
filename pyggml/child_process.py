"""Child processes that run a module of this package."""

from __future__ import annotations

import sys


def child_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs ``main()`` of a module of this package.

    The child has this process's ``sys.path``, without the working directory that ``python -c`` would add.

    Args:
        module: the module's full name, such as "pyggml.isolation.worker".
        arguments: the arguments that its ``main()`` finds in ``sys.argv[1:]``.
    """
    program = f"import sys; sys.path[:] = {sys.path!r}; from {module} import main; sys.exit(main())"
    return [sys.executable, "-c", program, *arguments]
