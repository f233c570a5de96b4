"""Constants, types and functions of llama.cpp's C API, by their own names.

Functions and structs are those that pyggml declares, for ctypes, and as unchecked as ``pyggml.lib``.
``llama.model`` and ``llama.ctx`` are the addresses that they take.
"""

from __future__ import annotations

import ctypes
from typing import Any

import pyggml
from pyggml.compat._llama import bindings

llama_token = ctypes.c_int32
llama_pos = ctypes.c_int32
llama_seq_id = ctypes.c_int32
# Addresses of opaque structs.
llama_model_p = llama_context_p = llama_vocab_p = llama_sampler_p = llama_memory_t = ctypes.c_void_p

#: Decorates a function for :func:`llama_log_set`.
llama_log_callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)

LLAMA_MAX_DEVICES: int = pyggml.lib.llama_max_devices()


def llama_log_set(log_callback: Any, user_data: Any) -> None:
    """Do nothing: the engine's messages go to ``logging.getLogger("pyggml")``, and by default nowhere.

    Args:
        log_callback: not called.
        user_data: not used.
    """


def llama_backend_init(numa: bool = False) -> None:
    """Do nothing: the engine initializes itself.

    Args:
        numa: not used.
    """


def llama_backend_free() -> None:
    """Do nothing: the engine stays, for models that are still open."""


class _Library:
    """The functions as attributes, as a library of ctypes has them."""

    def __getattr__(self, name: str) -> Any:
        return bindings.function(name)


_lib = _Library()


def __getattr__(name: str) -> Any:
    """Return a constant, a function or a struct on first use."""
    if name.startswith(("LLAMA_", "GGML_")) and hasattr(pyggml.lib, name):
        return getattr(pyggml.lib, name)
    if name.startswith("llama_token_") and not hasattr(pyggml.lib, name):
        name = name.replace("llama_token_", "llama_vocab_")  # a former name, such as llama_token_get_attr
    if name.startswith(("llama_", "ggml_", "gguf_")):
        found = bindings.function if hasattr(pyggml.lib, name) else bindings.struct
        try:
            return found(name)
        except AttributeError:
            pass
    raise AttributeError(f"pyggml.compat.llama_cpp has no {name!r}; see docs/how-to/use-llama-cpp-python-code.md")
