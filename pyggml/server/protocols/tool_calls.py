"""Tool calls of responses."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import pyggml


def complete_calls(calls: Iterable[pyggml.ToolCall]) -> Iterator[tuple[pyggml.ToolCall, dict[str, Any]]]:
    """Yield the calls that were not cut off, with their arguments: a client must not run a call without the rest."""
    for call in calls:
        with contextlib.suppress(pyggml.InvalidParameterError):
            yield call, call.arguments
