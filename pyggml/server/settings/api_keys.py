"""API keys with their labels and limits, as the lines of a file give them."""

from __future__ import annotations

import math
import re
import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyggml

# Plain, as labels are values in logs and in metrics.
_LABEL = re.compile(r"[A-Za-z0-9][\w.@+-]{0,63}", re.ASCII)
_MAX_SHARE = 1000


@dataclass(frozen=True, kw_only=True)
class KeyLimits:
    """Limits on the requests of one account.

    Attributes:
        share: weight of its share of the models while several accounts have requests.
        max_requests: maximum number of concurrent requests. None: the server's default.
        tokens_per_minute: maximum number of prompt and generated tokens per minute. None: the server's default.
    """

    share: float = 1.0
    max_requests: int | None = None
    tokens_per_minute: int | None = None


@dataclass(frozen=True)
class ApiKey:
    """An accepted API key.

    Attributes:
        key: the key.
        label: the name of its account in logs and metrics. Keys with the same label share an account.
        limits: the limits of the account.
    """

    key: str = field(repr=False)
    label: str = ""
    limits: KeyLimits = KeyLimits()


def check_key(key: str, where: str) -> None:
    """Check that a header can carry a key. The message does not show the key.

    Raises:
        InvalidParameterError: it cannot.
    """
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise pyggml.InvalidParameterError(f"{where}: a key has printable ASCII characters and no spaces")


def read_key_file(path: Path) -> list[ApiKey]:
    """Read a file of keys: a key per line, with optional fields such as ``label=alice share=2 max_requests=4``.

    Raises:
        InvalidParameterError: the file cannot be read, has no keys, or a line is invalid.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise pyggml.InvalidParameterError(f"the api_key_file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise pyggml.InvalidParameterError(
            f"the api_key_file {path} is not text: it must have one key per line"
        ) from None
    keys = [
        _parse(line.split(), f"line {number} of {path}")
        for number, line in enumerate(lines, 1)
        if line.strip() and line[0] != "#"
    ]
    if not keys:
        raise pyggml.InvalidParameterError(f"the api_key_file {path} has no key: it must have one per line")
    return keys


def with_labels(keys: Iterable[ApiKey]) -> tuple[ApiKey, ...]:
    """Return the keys, each once, with labels: "key-" and the start of the key's digest for those that have none.

    Such a label stays the same when the file's other lines change.

    Raises:
        InvalidParameterError: the same key or label has different limits.
    """
    found: dict[str, ApiKey] = {}
    for each in keys:
        known = found.setdefault(each.key, each)
        if known == ApiKey(each.key):
            found[each.key] = each  # it says more
        elif each not in (known, ApiKey(each.key)):
            labels = " and ".join(repr(one.label or "without a label") for one in (known, each))
            raise pyggml.InvalidParameterError(f"a key has different fields, with the labels {labels}: remove one line")
    labelled = tuple(ApiKey(each.key, each.label or _label_of(each.key), each.limits) for each in found.values())
    limits: dict[str, KeyLimits] = {}
    for each in labelled:
        if limits.setdefault(each.label, each.limits) != each.limits:
            raise pyggml.InvalidParameterError(
                f"the keys with the label {each.label} have different limits: they share an account, so each needs the "
                "same ones"
            )
    return labelled


def _label_of(key: str) -> str:
    return f"key-{sha256(key.encode()).hexdigest()[:8]}"


def is_readable_by_others(path: Path) -> bool:
    """Return True if users other than the owner and the group of a file can read it."""
    if sys.platform == "win32":
        return False
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def _parse(words: list[str], where: str) -> ApiKey:
    key, *fields = words
    check_key(key, where)
    label, limits = "", {}
    for each in fields:
        name, is_given, text = each.partition("=")
        if not is_given or name not in ("label", *_NUMBERS):
            raise pyggml.InvalidParameterError(
                f"{where}: after the key come fields: label=NAME, share=X, max_requests=N or tokens_per_minute=N"
            )
        if name == "label":
            label = text
            if not _LABEL.fullmatch(text) or text.startswith("key-"):
                raise pyggml.InvalidParameterError(
                    f"{where}: a label has up to 64 letters, digits and ._@+-, and does not begin with key-"
                )
        else:
            limits[name] = _number(name, text, where)
    return ApiKey(key, label, KeyLimits(**limits))


_NUMBERS: dict[str, Any] = {"share": float, "max_requests": int, "tokens_per_minute": int}


def _number(name: str, text: str, where: str) -> Any:
    kind = _NUMBERS[name]
    most = _MAX_SHARE if name == "share" else 2**31 - 1
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if not (0 < value <= most):
        what = "number" if kind is float else "whole number"
        raise pyggml.InvalidParameterError(f"{where}: {name} must be a {what} above 0 and at most {most}")
    return value
