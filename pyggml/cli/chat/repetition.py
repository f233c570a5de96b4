"""Answers that the repetition guard ended."""

from __future__ import annotations

# Size of the suffix whose previous occurrence gives the length of the block that repeats.
_SUFFIX_BYTES = 200


def without_repetition(text: str) -> str:
    """Remove all but one copy of the block that repeats at the end of a text."""
    data = text.encode()
    before = data.rfind(data[-_SUFFIX_BYTES:], 0, -1)
    if before < 0:
        return text
    period = len(data) - min(_SUFFIX_BYTES, len(data)) - before
    end = len(data) - period
    while end > 0 and data[end - 1] == data[end - 1 + period]:
        end -= 1
    return data[: end + period].decode(errors="ignore")
