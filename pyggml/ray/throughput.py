"""How fast a process of a pipeline answers."""

from __future__ import annotations

import sys
import time
from typing import Any

from ray.util.metrics import Counter

from pyggml.batch import usage
from pyggml.units import counted


class Rate:
    """Counts the answers of a process, in Ray's metrics and in a line now and then, which Ray shows where the job runs.

    Each line says what came since the last one: a pipeline may have begun with other steps, or have paused.
    """

    def __init__(self, column: str, *, is_shown: bool, every_s: float = 10.0) -> None:
        """Begins to count.

        Args:
            column: name of the answers' column.
            is_shown: whether there are lines.
            every_s: seconds between two lines.
        """
        self._column = column
        self._is_shown, self._every_s = is_shown, every_s
        self._rows = Counter("pyggml_batch_rows", "Rows answered")
        self._prompt_tokens = Counter("pyggml_batch_prompt_tokens", "Tokens of the prompts of answered rows")
        self._generated_tokens = Counter("pyggml_batch_generated_tokens", "Tokens generated")
        self._n_rows = self._n_new = 0
        self._since_s = time.monotonic()

    def count(self, answer: dict[str, Any]) -> None:
        """Counts the answer to a row."""
        _, n_prompt, n_generated = usage(answer, self._column)
        for counter, n in ((self._rows, 1), (self._prompt_tokens, n_prompt), (self._generated_tokens, n_generated)):
            if n:  # a counter takes no zero
                counter.inc(n)
        self._n_rows += 1
        self._n_new += n_generated
        elapsed_s = time.monotonic() - self._since_s
        if self._is_shown and elapsed_s >= self._every_s:
            print(
                f"{counted(self._n_rows, 'row')} answered here, {self._n_new / elapsed_s:,.0f} tokens/s",
                file=sys.stderr,
            )
            self._n_new, self._since_s = 0, time.monotonic()
