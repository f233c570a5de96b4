"""Ctrl-C handling for commands that cancel a generation."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from typing_extensions import Self


class Interrupts:
    """Context in which Ctrl-C calls the callback of :meth:`cancelling` instead of raising KeyboardInterrupt.

    Attributes:
        pressed: True after Ctrl-C. Callers reset it.
    """

    def __init__(self) -> None:
        self.pressed = False
        self._cancel: Callable[[], None] | None = None
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    @contextmanager
    def cancelling(self, cancel: Callable[[], None]) -> Iterator[None]:
        """Call ``cancel`` on Ctrl-C within this context, or at once if it was pressed before."""
        self._cancel = cancel
        if self.pressed:
            cancel()
        try:
            yield
        finally:
            self._cancel = None

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Let Ctrl-C raise KeyboardInterrupt within this context."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, self._handle)

    def wait_for_line(self, terminal: TextIO) -> None:
        """Wait for a line of input, within :meth:`raising`.

        A blocking read would miss a Ctrl-C that arrives just before it.
        """
        pressed, signals = os.pipe()
        os.set_blocking(signals, False)
        before = signal.set_wakeup_fd(signals, warn_on_full_buffer=False)
        try:
            while terminal.fileno() not in select.select([terminal.fileno(), pressed], [], [])[0]:
                os.read(pressed, 1)
        finally:
            signal.set_wakeup_fd(before)
            os.close(signals)
            os.close(pressed)

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.pressed = True
        if self._cancel is not None:
            self._cancel()
