"""Wake-ups of one thread or event loop by any number of requests."""

from __future__ import annotations

from pyggml._core import c_calls
from pyggml._core.ffi import ffi, lib

_MAX_TAGS = 256
# Waiting calls return to Python this often, so that it can run signal handlers (Ctrl-C).
SIGNAL_CHECK_S = 0.05


class Waker:
    """Collects the tags of requests with new tokens, for one thread to take. Freed with its last reference.

    Attributes:
        handle: the native waker, for calls that notify it.
        fd: a descriptor that is readable while there are tags to take; closed when this object is freed.
    """

    def __init__(self) -> None:
        self.handle = c_calls.create("pyg_waker", lib.pyg_waker_free, lib.pyg_waker_new)
        fd = ffi.new("int32_t *")
        c_calls.call(lib.pyg_waker_fd, self.handle, fd)
        self.fd = int(fd[0])
        self._tags = ffi.new("uint64_t[]", _MAX_TAGS)
        self._n_out = ffi.new("int32_t *")

    def take(self, timeout_s: float = 0.0) -> list[int]:
        """Take up to 256 tags; wait without the GIL up to ``timeout_s`` for the first."""
        c_calls.call(lib.pyg_waker_take, self.handle, timeout_s, self._tags, _MAX_TAGS, self._n_out)
        return list(self._tags[0 : self._n_out[0]])
