"""Notices an answer that has begun to repeat itself and will not end."""

from __future__ import annotations

# How much of an end must repeat itself, in bytes of UTF-8, and how often: more than tables, rulers, lists of numbers,
# code and refrains do. It is some 500 tokens, whatever the language.
_LEAST_BYTES = 2000
_LEAST_COPIES = 4
# Looked for, to find out after how many bytes the end was there before.
_KEY_BYTES = 200
# How far back to look: a longer block would have to be repeated for more tokens than most contexts have.
_WINDOW_BYTES = 64_000
# How much must have come before it is worth looking again.
_STEP_BYTES = 100


class RepetitionGuard:
    """Watches a text as it comes."""

    def __init__(self) -> None:
        """Begins with an empty text."""
        self._tail = b""
        self._n_new = 0

    def repeats(self, text: str) -> bool:
        """Adds more of the text, and returns whether its end is one block over and over."""
        data = text.encode()
        self._tail = (self._tail + data)[-_WINDOW_BYTES:]
        self._n_new += len(data)
        if self._n_new < _STEP_BYTES:
            return False
        self._n_new = 0
        return _period(self._tail) > 0


def said_once(text: str) -> str:
    """The text without the copies at its end, if it repeats itself there."""
    data = text.encode()
    period = _period(data[-_WINDOW_BYTES:])
    if not period:
        return text
    end = len(data) - period
    while end > 0 and data[end - 1] == data[end - 1 + period]:
        end -= 1
    return data[: end + period].decode(errors="ignore")


def _period(data: bytes) -> int:
    """After how many bytes the end repeats itself, if it does so for long enough; otherwise 0."""
    before = data.rfind(data[-_KEY_BYTES:], 0, -1)
    if before < 0:
        return 0
    period = len(data) - _KEY_BYTES - before
    n_repeated = max(_LEAST_BYTES, _LEAST_COPIES * period)
    if n_repeated > len(data):
        return 0
    return period if data[-n_repeated:-period] == data[period - n_repeated :] else 0
