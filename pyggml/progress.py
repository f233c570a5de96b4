"""Progress of long work: the place that decides how the library shows it.

Functions that take ``progress`` report to the caller's function. If there is none and the program runs in the kernel of
a notebook, they show a bar in the cell's output: a widget of ipywidgets if that is installed, else a line of text.
Elsewhere they show nothing; commands draw their own bars. Neither IPython nor ipywidgets is imported outside a kernel.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, ParamSpec, TypeVar, cast

from pyggml._core.checks import callback
from pyggml.units import percent_text, seconds_text

#: Is called with a fraction from 0 to 1, and returns False to stop the work.
Progress = Callable[[float], bool | None]
#: The parameter of functions that show a bar in a notebook; False: no bar.
ProgressOption = Progress | Literal[False] | None

_P = ParamSpec("_P")
_R = TypeVar("_R")

#: Seconds until a bar appears, so that short work shows none, and between its updates.
DELAY_S, INTERVAL_S = 0.5, 0.1


def progress_function(progress: ProgressOption) -> Progress | None:
    """Return the function that a parameter ``progress`` names, or None.

    Args:
        progress: the value of the parameter.

    Raises:
        InvalidParameterError: neither a function nor False or None.
    """
    if progress is None or progress is False:
        return None
    callback("progress", progress)
    return progress


def in_kernel() -> bool:
    """Return True if this process is the kernel of a notebook, or of another front end of Jupyter."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    kernel = getattr(shell, "kernel", None)  # IPython in a terminal has none
    session = getattr(kernel, "session", None)
    return kernel is not None and getattr(session, "pid", None) in (None, os.getpid())  # else a forked child


@contextlib.contextmanager
def progress_bar(what: str, progress: Any, *, counts: bool = False) -> Iterator[Any]:
    """Yield the function to report progress to, or None.

    Args:
        what: the work: the label of the bar.
        progress: the caller's function, which is yielded unchanged; None: a bar in a notebook; False: no bar.
        counts: the function takes the number of finished items and of all of them, or None, instead of a fraction.
    """
    if progress is not None or not in_kernel():
        yield None if progress is False else progress
        return
    bar = _Bar(what)
    try:
        yield bar.count if counts else bar.advance
    except BaseException:
        bar.end("stopped")
        raise
    bar.end("done")


def shows_progress(what: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Decorate a function with a parameter ``progress`` to show a bar in a notebook, as :func:`progress_bar` does.

    Args:
        what: the label of the bar; ``{}`` in it is the name of the file in the first argument.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            try:
                given = signature.bind(*args, **kwargs)
            except TypeError:
                return function(*args, **kwargs)  # which raises it, with its name
            first = next(iter(given.arguments.values()), None)
            with progress_bar(what.format(source_name(first)), given.arguments.get("progress")) as report:
                given.arguments["progress"] = report
                return cast("Callable[..., _R]", function)(*given.args, **given.kwargs)

        return wrapper

    return decorate


def source_name(source: object) -> str:
    """Return a short name of a model's source: a reference, the name of a file or directory, or "the model".

    Args:
        source: the source, as for :func:`pyggml.load`.
    """
    if not isinstance(source, (str, os.PathLike)):
        return "the model"
    text = os.fspath(source)
    return str(text) if str(text).startswith("hf:") else os.path.basename(os.path.normpath(text))  # noqa: PTH119


class _Bar:
    """A bar that appears after a moment, and ends as a line of text. Any thread may report to it."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._view: _Text | None = None
        self._has_ended = False
        self._start_s = self._phase_s = time.monotonic()
        self._next_s = self._start_s + DELAY_S
        self._fraction = 0.0
        self._done = ""

    def advance(self, fraction: float) -> None:
        """Show a fraction. Work with several phases starts again at 0 in each."""
        now = time.monotonic()
        if fraction < self._fraction:
            self._phase_s = now
        self._fraction = fraction
        left_s = (now - self._phase_s) * (1 - fraction) / fraction if fraction > 0 else 0.0
        left = f", {seconds_text(round(left_s))} left" if left_s >= 0.5 else ""
        self._show(fraction, percent_text(fraction), left, now)

    def count(self, n_done: int, n_total: int | None) -> None:
        """Show a number of finished items."""
        text = f"{n_done:,}" if n_total is None else f"{n_done:,} of {n_total:,}"
        self._show(n_done / n_total if n_total else None, text, "", time.monotonic())

    def end(self, how: str) -> None:
        """Replace the bar by a line of text, which a saved notebook shows without widgets."""
        self._has_ended = True
        if self._view is not None:
            where = "" if how == "done" else f" at {self._done}"
            self._view.end(f"{how}{where} after {seconds_text(time.monotonic() - self._start_s)}")

    def _show(self, fraction: float | None, done: str, left: str, now: float) -> None:
        self._done = done
        if now < self._next_s or self._has_ended:
            return
        self._next_s = now + INTERVAL_S
        if self._view is None:
            self._view = (_Widget if importlib.util.find_spec("ipywidgets") else _Text)(self._what)
        self._view.update(fraction, done + left)


class _Text:
    """A line of text in the cell's output, which is replaced by the next."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._handle = self._display({"text/plain": what})

    def update(self, fraction: float | None, text: str) -> None:  # noqa: ARG002
        """Show how much is done; ``fraction`` is None if that is not known."""
        self._handle.update({"text/plain": f"{self._what}: {text}"}, raw=True)

    def end(self, text: str) -> None:
        """Show the last line."""
        self._handle.update({"text/plain": f"{self._what}: {text}"}, raw=True)

    @staticmethod
    def _display(bundle: dict[str, Any]) -> Any:
        from IPython.display import display

        return display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]


class _Widget(_Text):
    """A widget with a bar between two labels."""

    def __init__(self, what: str) -> None:
        from ipywidgets import FloatProgress, HBox, Label

        self._what = what
        self._bar, self._label = FloatProgress(max=1.0), Label()
        self._box = HBox([Label(what), self._bar, self._label])
        self._handle = self._display({**self._box._repr_mimebundle_(), "text/plain": what})

    def update(self, fraction: float | None, text: str) -> None:
        """Move the bar, and show how much is done."""
        self._bar.value = fraction or 0.0
        self._bar.bar_style = "info" if fraction is None else ""
        self._label.value = text

    def end(self, text: str) -> None:
        """Replace the widget by the last line."""
        super().end(text)
        for widget in (*self._box.children, self._box):
            widget.close()
