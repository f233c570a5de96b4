"""The place of llama-cpp-python's private classes, which pyggml does not have: import it, but do not use it."""

from __future__ import annotations

from typing import NoReturn


def __getattr__(name: str) -> NoReturn:
    """Name the way out."""
    raise AttributeError(
        f"llama_cpp._internals has no {name!r} in pyggml, which has other private classes: use Llama, or pyggml.Model, "
        "pyggml.Context and pyggml.Sampler"
    )
