"""Passes the engine's log lines to ``logging.getLogger("pyggml")``.

The engine's threads never wait for Python: lines below the current level are dropped at once, the others wait in a
bounded native queue that Python empties after every native call.
"""

from __future__ import annotations

import logging
import os

from pyggml._core.ffi import ffi, lib

logger = logging.getLogger("pyggml")
logger.addHandler(logging.NullHandler())  # silent unless the application sets up logging

_LINE_BYTES = 8192
_line = ffi.new("char[]", _LINE_BYTES)
# Who reads, only one at a time: native calls release the GIL, and all share one buffer. A dictionary lets exactly one
# in without a lock, for which the handler of a signal would wait for ever if its own thread held it.
_reader: dict[str, object] = {}


def sync_level() -> None:
    """Sets the native log level to that of ``logging``; call it before the engine may log."""
    listening = any(not isinstance(h, logging.NullHandler) for h in _handlers())
    lib.pyg_log_set_level(logger.getEffectiveLevel() if listening else lib.PYG_LOG_OFF)


def drain() -> None:
    """Passes all waiting lines to the logger, unless another thread is already doing so."""
    me = object()
    try:  # from here on: the handler of a signal may raise between any two calls, Ctrl-C for example
        if _reader.setdefault("", me) is not me:
            return
        while level := lib.pyg_log_read(_line, _LINE_BYTES):
            logger.log(level, "%s", ffi.string(_line).decode("utf-8", "replace"))
    finally:  # without a call, so that it cannot be left out
        try:
            if _reader[""] is me:
                del _reader[""]
        except KeyError:
            pass  # another thread was the reader, and has ended


def _handlers() -> list[logging.Handler]:
    """The handlers that a record of pyggml's logger would reach."""
    handlers: list[logging.Handler] = []
    node: logging.Logger | None = logger
    while node:
        handlers += node.handlers
        node = node.parent if node.propagate else None
    return handlers


# The thread that may be reading does not exist in a forked child.
os.register_at_fork(after_in_child=_reader.clear)
