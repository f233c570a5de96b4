"""Forwarding of the engine's log lines to ``logging.getLogger("pyggml")``.

The engine's threads never wait for Python: lines below the current level are dropped at once, the others go to a
bounded native queue that Python drains after every native call.
"""

from __future__ import annotations

import logging

from pyggml._core.ffi import ffi, lib
from pyggml._core.platforms import call_in_forked_child

logger = logging.getLogger("pyggml")
logger.addHandler(logging.NullHandler())  # silent unless the application sets up logging

_LINE_BYTES = 8192
_line = ffi.new("char[]", _LINE_BYTES)
# The current reader. There is only one at a time: native calls release the GIL, and all share one buffer. A dictionary
# admits exactly one without a lock, on which a signal handler would deadlock if its own thread held it.
_reader: dict[str, object] = {}


def sync_level() -> None:
    """Set the native log level to that of ``logging``. Call it before the engine can log."""
    listening = any(not isinstance(h, logging.NullHandler) for h in _handlers())
    lib.pyg_log_set_level(logger.getEffectiveLevel() if listening else lib.PYG_LOG_OFF)


def drain() -> None:
    """Pass all queued lines to the logger, unless another thread is already doing so."""
    me = object()
    try:  # from here on: a signal handler may raise between any two calls, such as on Ctrl-C
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
    """Return the handlers that a record of pyggml's logger reaches."""
    handlers: list[logging.Handler] = []
    node: logging.Logger | None = logger
    while node:
        handlers += node.handlers
        node = node.parent if node.propagate else None
    return handlers


# The thread that may be reading does not exist in a forked child.
call_in_forked_child(_reader.clear)
