"""Throughput of a Ray Data actor: metrics and progress lines."""

from __future__ import annotations

import sys
import time
from typing import Any

from ray.util.metrics import Counter

from pyggml.batch import usage
from pyggml.units import counted


class ThroughputMeter:
    """Counters of a process's answers in Ray's metrics, and a printer of throughput, which Ray forwards to the driver.

    Each line covers the time since the previous one, because a pipeline may pause.
    """

    def __init__(self, column: str, *, prints: bool, every_s: float = 10.0) -> None:
        """Start counting answers in ``column``; print a line every ``every_s`` seconds if ``prints``."""
        self._column = column
        self._prints, self._every_s = prints, every_s
        self._rows = Counter("pyggml_batch_rows", "Rows answered")
        self._prompt_tokens = Counter("pyggml_batch_prompt_tokens", "Tokens of the prompts of answered rows")
        self._generated_tokens = Counter("pyggml_batch_generated_tokens", "Tokens generated")
        self._n_rows = self._n_new = 0
        self._since_s = time.monotonic()

    def count(self, answer: dict[str, Any]) -> None:
        """Count the answer to a row."""
        _, n_prompt, n_generated = usage(answer, self._column)
        for counter, n in ((self._rows, 1), (self._prompt_tokens, n_prompt), (self._generated_tokens, n_generated)):
            if n:  # Counter rejects zero
                counter.inc(n)
        self._n_rows += 1
        self._n_new += n_generated
        elapsed_s = time.monotonic() - self._since_s
        if self._prints and elapsed_s >= self._every_s:
            speed = f"{self._n_new / elapsed_s:,.0f} tokens/s"
            print(f"{counted(self._n_rows, 'row')} answered here, {speed}", file=sys.stderr)
            self._n_new, self._since_s = 0, time.monotonic()
