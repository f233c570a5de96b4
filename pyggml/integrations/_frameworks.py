"""The error for a framework that is not installed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pyggml import MissingPackageError


@contextlib.contextmanager
def needs(packages: str) -> Iterator[None]:
    """Name the command that installs a framework if an import inside the block does not find it.

    Args:
        packages: what ``pip install`` takes.

    Raises:
        MissingPackageError: a module was not found. It is an ImportError.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        name = str(error.name).partition(".")[0]
        raise MissingPackageError(f"{name} is not installed: pip install {packages}") from error
