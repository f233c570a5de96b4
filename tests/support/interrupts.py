"""Ctrl-C, or the handler of another signal, at every point of a call at which it can arrive.

Python runs the handlers of signals where a function begins and when C code has returned to Python. A profiler is
called at the same points, and what it raises comes from there: between two steps of a statement, too. (Handlers also
run when a loop goes round, which is next to a call in each of our loops.)
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pyggml

_PACKAGE = str(Path(pyggml.__file__).parent)
_WHERE = (_PACKAGE, contextlib.__file__)  # what `with` runs may be written in Python
_RESUMED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def ctrl_c() -> None:
    """Raise KeyboardInterrupt, as Python's own handler does."""
    raise KeyboardInterrupt


class _Interrupt:
    """Calls a handler at the n-th point, once."""

    def __init__(self, n: int, handler: Callable[[], object]) -> None:
        self._left = n
        self._handler = handler
        self.place = ""

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if self.place or event not in ("call", "c_return", "return") or not code.co_filename.startswith(_WHERE):
            return
        if event != "c_return" and code.co_flags & _RESUMED:
            return  # it may be closed, which no handler interrupts
        if event == "return" and code.co_name == "_on_progress":
            return  # to C, where no handler runs
        if self._left == 0:
            self.place = f"{code.co_filename.removeprefix(_PACKAGE)}:{frame.f_lineno}, {event}"
            self._handler()
        self._left -= 1


def interrupted(
    work: Callable[[], object],
    step: int = 1,
    handler: Callable[[], object] = ctrl_c,
    prepare: Callable[[], object] = lambda: None,
) -> Iterator[tuple[str, BaseException | None]]:
    """Does the work, and then again and again, interrupted at each point or every `step`-th, until it comes to its end.

    `prepare` is called before each time. Yields the place, and what came out of the work: None if nothing did, or if
    the interpreter had no caller to raise it in, as in a finalizer.
    """
    prepare()
    work()  # what is imported late, or made once, is now there
    n = 0
    while True:
        prepare()
        interrupt, raised, before = _Interrupt(n, handler), None, sys.getprofile()
        sys.setprofile(interrupt)
        try:
            work()
        except BaseException as error:
            raised = error
        finally:
            sys.setprofile(before)
        if not interrupt.place:
            assert raised is None, raised
            return
        yield interrupt.place, raised
        n += step
