"""Detection of answers that repeat themselves endlessly."""

from __future__ import annotations

# Minimum size of the repetition in bytes of UTF-8, some 500 tokens, and minimum number of copies: more than tables,
# rulers, lists of numbers, code and refrains have.
_MIN_BYTES = 2000
_MIN_COPIES = 4
# Size of the suffix whose previous occurrence gives the period.
_SUFFIX_BYTES = 200
# Search window: a longer period would need more tokens than most contexts have.
_WINDOW_BYTES = 64_000
# New bytes between two checks.
_STEP_BYTES = 100


class RepetitionGuard:
    """Incremental detector of repetition in generated text."""

    def __init__(self) -> None:
        self._tail = b""
        self._n_new = 0

    def repeats(self, text: str) -> bool:
        """Append text, and return True if the whole ends with copies of one block."""
        data = text.encode()
        self._tail = (self._tail + data)[-_WINDOW_BYTES:]
        self._n_new += len(data)
        if self._n_new < _STEP_BYTES:
            return False
        self._n_new = 0
        return _period(self._tail) > 0


def without_repetition(text: str) -> str:
    """Remove all but one copy of the block that repeats at the end of a text."""
    data = text.encode()
    period = _period(data[-_WINDOW_BYTES:])
    if not period:
        return text
    end = len(data) - period
    while end > 0 and data[end - 1] == data[end - 1 + period]:
        end -= 1
    return data[: end + period].decode(errors="ignore")


def _period(data: bytes) -> int:
    """Return the length of the block that repeats at the end; 0: none repeats for long enough."""
    before = data.rfind(data[-_SUFFIX_BYTES:], 0, -1)
    if before < 0:
        return 0
    period = len(data) - _SUFFIX_BYTES - before
    n_repeated = max(_MIN_BYTES, _MIN_COPIES * period)
    if n_repeated > len(data):
        return 0
    return period if data[-n_repeated:-period] == data[period - n_repeated :] else 0
