"""Checks of arguments that pyggml does not have, or that have no effect."""

from __future__ import annotations

import difflib
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyggml


def reject_unknown(function: Callable[..., Any], unknown: Iterable[str]) -> None:
    """Raise for keywords that a function does not have, and suggest its nearest one.

    Raises:
        UnknownParameterError: there is one.
    """
    for name in unknown:
        known = [each.name for each in inspect.signature(function).parameters.values() if each.kind != each.VAR_KEYWORD]
        nearest = difflib.get_close_matches(name, known, n=1)
        advice = f": did you mean {nearest[0]!r}?" if nearest else ""
        called = "Llama" if function.__name__ == "__init__" else f"Llama.{function.__name__}"
        raise pyggml.UnknownParameterError(f"{called}() has no parameter {name!r}{advice}")


def warn_without_effect(given: Mapping[str, Any], reasons: Mapping[str, tuple[Any, str]]) -> None:
    """Warn of arguments that change nothing, unless they have their default.

    Args:
        given: the arguments by name.
        reasons: name -> its default, and the reason.
    """
    for name, (default, reason) in reasons.items():
        if name in given and given[name] != default:
            warnings.warn(f"{name}={given[name]!r} has no effect in pyggml: {reason}", UserWarning, stacklevel=4)
