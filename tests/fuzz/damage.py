"""Changes to what was good, whatever it is: bytes, and values of JSON."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

#: What a value of a JSON file may be found to be.
STRANGE: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 2**31, 2**63, 10**30, 0.5, -0.0, 1e300, float("nan"), float("inf"), "", "a",
    "\ud800", "\0", "../x", "x" * 100_000, [], [[]], [0], [None], ["a", 1], {}, {"a": {}}, {"": 0}, {"type": "BPE"},
)  # fmt: skip

#: What a text of JSON may have that no value has.
STRANGE_TEXTS = (
    "NaN", "-Infinity", "1e999", "-0", "1" * 5000, "1." + "0" * 400 + "1", "[" * 5000, "{\"a\":" * 5000, "\\ud800",
    '"\\ud800\\udc00"', "\ufeff", "//", "/**/", "'", "00", "0x10", ",", "}", "]", '"', "\\", "\0", "\x1b[31m",
    "9" * 400, "1e-400", "[" * 300 + "]" * 300,
)  # fmt: skip


def with_changed_bytes(content: bytes, random: np.random.Generator) -> bytes:
    """The same with up to three other bytes."""
    changed = bytearray(content)
    for position in random.integers(0, len(content), int(random.integers(1, 4))) if content else ():
        changed[position] = int(random.integers(256))
    return bytes(changed)


def with_changed_span(content: bytes, random: np.random.Generator) -> bytes:
    """The same cut off, or without a part, or with a part twice, or with something strange in the middle."""
    begin, end = sorted(int(each) for each in random.integers(0, len(content) + 1, 2))
    kind = random.integers(5)
    if kind == 0:
        return content[:begin]
    if kind == 1:
        return content[:begin] + content[end:]
    if kind == 2:
        return content[:end] + content[begin:]
    if kind == 3:
        return content[:begin] + bytes(random.integers(0, 256, int(random.integers(1, 20)), np.uint8)) + content[begin:]
    strange = STRANGE_TEXTS[int(random.integers(len(STRANGE_TEXTS)))]
    return content[:begin] + strange.encode("utf-8", "surrogatepass") + content[begin:]


def with_changed_value(value: Any, random: np.random.Generator, is_key: bool) -> Any:
    """The same with one strange value, or without a key."""
    places = list(places_of(value))
    if not places:
        return value
    holder, key = places[int(random.integers(len(places)))]
    if is_key and isinstance(holder, dict):
        del holder[key]
    else:
        holder[key] = copy.deepcopy(STRANGE[int(random.integers(len(STRANGE)))])  # which may be changed in its turn
    return value


def places_of(value: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """Yield the places of values: all near the top, and a few further down."""
    pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    for key, inner in pairs if depth < 2 or len(pairs) < 12 else [*pairs[:4], *pairs[-4:]]:
        yield value, key
        if isinstance(inner, (dict, list)):
            yield from places_of(inner, depth + 1)


def copied(value: Any) -> Any:
    """The same value of JSON, which may be changed."""
    return json.loads(json.dumps(value))
