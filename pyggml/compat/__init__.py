"""Other libraries' interfaces, for programs that are written for them.

:mod:`pyggml.compat.llama_cpp` has that of llama-cpp-python. :func:`install` makes ``import llama_cpp`` mean it, for
packages that import it by that name.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys

import pyggml

__all__ = ["install"]

_OURS = f"{__name__}.llama_cpp"
_THEIRS = "llama_cpp"


def install() -> None:
    """Make ``import llama_cpp`` mean :mod:`pyggml.compat.llama_cpp`, in this process. Safe to call again.

    Call it before anything imports llama_cpp. It makes no difference whether llama-cpp-python is installed.

    Raises:
        InvalidParameterError: llama-cpp-python has been imported already.
    """
    package = importlib.import_module(_OURS)
    imported = sys.modules.get(_THEIRS)
    if imported is not None and imported is not package:
        raise pyggml.InvalidParameterError(
            f"llama_cpp has been imported already, from {imported.__file__}: call pyggml.compat.install() before that"
        )
    for module in pkgutil.iter_modules(package.__path__):
        sys.modules[f"{_THEIRS}.{module.name}"] = importlib.import_module(f"{_OURS}.{module.name}")
    sys.modules[_THEIRS] = package
