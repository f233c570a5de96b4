"""Ctrl-C, for commands that have something to stop."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from typing_extensions import Self


class Interrupts:
    """While it is entered, Ctrl-C raises nothing but calls what :meth:`stopping` was given.

    Attributes:
        pressed: whether Ctrl-C was pressed since :meth:`forget`.
    """

    def __init__(self) -> None:
        self.pressed = False
        self._cancel: Callable[[], None] | None = None
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        signal.signal(signal.SIGINT, self._before)

    def forget(self) -> None:
        """Forgets that it was pressed."""
        self.pressed = False

    @contextmanager
    def stopping(self, cancel: Callable[[], None]) -> Iterator[None]:
        """Calls ``cancel`` if Ctrl-C is pressed in the meantime, or was before."""
        self._cancel = cancel
        if self.pressed:
            cancel()
        try:
            yield
        finally:
            self._cancel = None

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Lets Ctrl-C raise KeyboardInterrupt in the meantime."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, self._note)

    def wait_for_line(self, terminal: TextIO) -> None:
        """Waits until a line has been typed, within :meth:`raising`.

        A read would miss a Ctrl-C that comes just before it, and wait for the next key.
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

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.pressed = True
        if self._cancel is not None:
            self._cancel()
