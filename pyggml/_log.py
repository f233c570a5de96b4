"""Passes the engine's log lines to ``logging.getLogger("pyggml")``.

The engine's threads never wait for Python: lines below the current level are dropped at once, the others wait in a
bounded native queue that Python empties after every native call.
"""

from __future__ import annotations

import logging
import os
import threading

from pyggml._ffi import ffi, lib

logger = logging.getLogger("pyggml")
logger.addHandler(logging.NullHandler())  # silent unless the application sets up logging

_LINE_BYTES = 8192
_line = ffi.new("char[]", _LINE_BYTES)
_reader: object | None = None  # only one at a time: native calls release the GIL, and all share one buffer
_door = threading.Lock()  # held for a moment, to become the reader


def sync_level() -> None:
    """Sets the native log level to that of ``logging``; call it before the engine may log."""
    listening = any(not isinstance(h, logging.NullHandler) for h in _handlers())
    lib.pyg_log_set_level(logger.getEffectiveLevel() if listening else lib.PYG_LOG_OFF)


def drain() -> None:
    """Passes all waiting lines to the logger, unless another thread is already doing so."""
    global _reader
    me = object()
    try:  # from here on: the handler of a signal may raise between any two calls, Ctrl-C for example
        with _door:
            _reader = _reader or me
        if _reader is not me:
            return
        while level := lib.pyg_log_read(_line, _LINE_BYTES):
            logger.log(level, "%s", ffi.string(_line).decode("utf-8", "replace"))
    finally:
        if _reader is me:
            _reader = None


def _handlers() -> list[logging.Handler]:
    """The handlers that a record of pyggml's logger would reach."""
    handlers: list[logging.Handler] = []
    node: logging.Logger | None = logger
    while node:
        handlers += node.handlers
        node = node.parent if node.propagate else None
    return handlers


def _forget_reader_in_child() -> None:
    """The thread that may be reading does not exist in a forked child."""
    global _door, _reader
    _door, _reader = threading.Lock(), None


os.register_at_fork(after_in_child=_forget_reader_in_child)
