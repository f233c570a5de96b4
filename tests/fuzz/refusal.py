"""Requirements for every error: a message that is not empty, and not too long."""

from __future__ import annotations

from pyggml.errors import InferError

MAX_MESSAGE = 4000


def refused(error: InferError) -> str:
    """The name of an error that may come, for the outcome of a case."""
    words = str(error)
    assert words, "an error without words"
    assert len(words) < MAX_MESSAGE, f"an error of {len(words)} characters"
    return type(error).__name__
