"""Checks of single sampling parameters, which convert their values to those that the engine takes."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any

from pyggml._core.checks import INT32_MAX, c_string, integer, invalid, real, shown

#: The samplers in their default order. Each does nothing until its parameter is set.
DEFAULT_SAMPLERS = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typical_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)

#: What may guess a request's next tokens; see ``speculative`` of SamplingParams.
SPECULATIVE_MODES = ("auto", "forced", "lookup", "draft", "off")

_MAX_BREAKER_BYTES = 40  # upstream truncates longer ones


def schema_of(response_format: Mapping[str, Any] | type) -> Any:
    """Return the JSON schema of a response format; None: any text."""
    if not isinstance(response_format, (Mapping, str)):
        return response_format
    form = {} if isinstance(response_format, str) else response_format
    kind = form.get("type")
    if kind == "text":
        return None
    if kind == "json_object":  # with a schema, as llama-cpp-python takes it
        return {"type": "object"} if form.get("schema") is None else form["schema"]
    form = form.get("json_schema", form)
    if kind == "json_schema" and isinstance(form, Mapping) and form.get("schema") is not None:
        return form["schema"]
    raise invalid(
        "response_format must be {'type': 'text'}, {'type': 'json_object'} or {'type': 'json_schema', 'json_schema': "
        f"{{'schema': ...}}}}, not {shown(response_format)}"
    )


def require_text(name: str, text: object) -> None:
    """Check text for a NUL-terminated C string; ``name`` is that of the parameter, here and below."""
    if not isinstance(text, str):
        way_out = ""
        if isinstance(text, os.PathLike):
            way_out = ": files are not read here, so pass path.read_text()"
        elif isinstance(text, re.Pattern):
            way_out = ": pass its .pattern, without flags"
        raise invalid(f"{name} must be text, not {type(text).__name__}{way_out}")
    c_string(name, text)


def token_ids(name: str, token_ids: Sequence[int]) -> tuple[int, ...]:
    """Return token ids, which must be 32-bit integers."""
    if isinstance(token_ids, tuple) and not token_ids:
        return ()  # the default, without importing numpy, which is too slow for a command's --help
    from pyggml._core.c_values import int32_array

    return tuple(int32_array(name, token_ids).tolist())


def stop_strings(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the strings of ``stop``, which may be a single one."""
    if stop is None:
        return ()
    if isinstance(stop, str) and stop:
        stop = (stop,)
    if (
        isinstance(stop, str)
        or not isinstance(stop, Sequence)
        or not all(isinstance(string, str) and string for string in stop)
    ):
        raise invalid(f"stop must be a non-empty string or a sequence of non-empty strings, not {shown(stop)}")
    return tuple(stop)


def texts(name: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Return a list of at least one text."""
    if isinstance(texts, str) or not isinstance(texts, Sequence) or not texts:
        raise invalid(f"{name} must be a sequence of at least one string, not {shown(texts)}")
    for text in texts:
        require_text(f"each of {name}", text)
    return tuple(texts)


def bad_words(words: Sequence[str | Sequence[int]]) -> tuple[str | tuple[int, ...], ...]:
    """Return texts and sequences of token ids, none of them empty."""
    if isinstance(words, str) or not isinstance(words, Sequence):
        raise invalid(f"bad_words must be a sequence of texts or of sequences of token ids, not {shown(words)}")
    if any(isinstance(word, Integral) for word in words):
        raise invalid(f"bad_words has a token id by itself: put it into a list, as in [[7]], not {shown(words)}")
    checked = tuple(word if isinstance(word, str) else token_ids("a sequence of bad_words", word) for word in words)
    if not all(checked):
        raise invalid("each of bad_words must have at least one character or token id")
    return checked


def logit_bias(bias: Mapping[int, float]) -> dict[int, float]:
    """Return a bias as a dictionary of floats."""
    if not isinstance(bias, Mapping):
        raise invalid(f"logit_bias must be a mapping from token ids to numbers, not {type(bias).__name__}")
    return {
        integer("a token id of logit_bias", token_id, 0, INT32_MAX): real("a value of logit_bias", value)
        for token_id, value in bias.items()
    }


def breakers(breakers: Sequence[str]) -> tuple[str, ...]:
    """Return the sequence breakers of DRY."""
    if isinstance(breakers, str) or not isinstance(breakers, Sequence):
        raise invalid(f"dry_sequence_breakers must be a sequence of strings, not {shown(breakers)}")
    for breaker in breakers:
        require_text("a string of dry_sequence_breakers", breaker)
        if not 1 <= len(c_string("a string of dry_sequence_breakers", breaker)) <= _MAX_BREAKER_BYTES:
            raise invalid(
                f"dry_sequence_breakers must be 1 to {_MAX_BREAKER_BYTES} bytes long each, not {shown(breaker)}"
            )
    return tuple(breakers)


def functions(name: str, given: object) -> tuple[Callable[..., Any], ...]:
    """Return a function, or a sequence of functions, as a tuple."""
    if callable(given):
        return (given,)
    if not isinstance(given, Sequence) or not all(callable(each) for each in given):
        raise invalid(f"{name} must be a function or a sequence of functions, not {shown(given)}")
    return tuple(given)


def sampler_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return names of samplers, each known and named once."""
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise invalid(f"samplers must be a sequence of names, not {shown(names)}")
    for i, name in enumerate(names):
        if name not in DEFAULT_SAMPLERS:
            raise invalid(f"unknown sampler {shown(name)}; known are {', '.join(DEFAULT_SAMPLERS)}")
        if name in names[:i]:
            raise invalid(f"samplers lists {name!r} twice")
    return tuple(names)
