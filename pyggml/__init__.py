"""pyggml: ggml and llama.cpp inside a Python process.

>>> import pyggml
>>> llm = pyggml.load()                     # the demonstration model that ships with the package
>>> llm.generate("Once upon a time").text
>>> for chunk in llm.stream("Once upon a time"):
...     print(chunk.text, end="")

``pyggml.lib`` and ``pyggml.ffi`` are the raw cffi API of ggml and llama.cpp. They are unchecked: as in C, a mistake can
crash the process.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING

from pyggml._core import moved_modules
from pyggml._version import __version__ as __version__

if TYPE_CHECKING:
    # Modules that are used as attributes, without an explicit import.
    from pyggml import cache as cache
    from pyggml import errors as errors
    from pyggml import gguf as gguf
    from pyggml import hub as hub
    from pyggml import memory as memory
    from pyggml import options as options
    from pyggml import quant as quant
    from pyggml import schema as schema
    from pyggml import system as system
    from pyggml._api import *  # noqa: F403
    from pyggml._api import __all__ as __all__
    from pyggml._family_classes import *  # noqa: F403
    from pyggml.options import sampling as sampling

moved_modules.install()

# These load asyncio, which takes half as long as everything else.
_ASYNC = {"AsyncStream": "pyggml.generation.async_stream", "AsyncChatStream": "pyggml.chat.async_stream"}


if not TYPE_CHECKING:  # a type checker would take every name for one of these

    def __getattr__(name: str) -> object:
        """Import public names and modules on first use, so that a command's ``--help`` need not load them."""
        if name in _ASYNC:
            return getattr(importlib.import_module(_ASYNC[name]), name)
        if name.isidentifier() and not name.startswith("__") and importlib.util.find_spec(f"{__name__}.{name}"):
            return importlib.import_module(f"{__name__}.{name}")
        api = importlib.import_module("pyggml._api")
        if name == "__all__":
            return api.__all__
        if name not in api.__all__:
            from pyggml._core.hints import attribute_error, hints

            raise attribute_error(f"module {__name__!r}", name, hints("package"), api.__all__)
        value = globals()[name] = getattr(api, name)
        return value


def __dir__() -> list[str]:
    """The names that editors and ``help`` offer."""
    return [*importlib.import_module("pyggml._api").__all__, "__doc__", "__file__", "__name__", "__path__"]
