"""The smallest part of a case of which the same comes."""

from __future__ import annotations

from collections.abc import Callable

from fuzz.fuzzer import Part


def minimised(parts: list[Part], still: Callable[[list[Part]], bool]) -> list[Part]:
    """Leaves out as much as can be left out, first halves, then quarters, then single parts."""
    n = len(parts)
    size = max(n // 2, 1)
    while parts and size:
        kept, at = parts, 0
        while at < len(kept):
            without = kept[:at] + kept[at + size :]
            if still(without):
                kept = without
            else:
                at += size
        if size == 1 and len(kept) == len(parts):
            break
        parts, size = kept, max(size // 2, 1)
    return parts
