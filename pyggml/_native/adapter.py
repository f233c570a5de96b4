"""LoRA adapters of a model, in memory."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

from pyggml._core import c_calls
from pyggml._core.checks import c_string, finite, invalid, is_path, shown
from pyggml._core.ffi import ffi, lib
from pyggml._core.owner import ClosableOwner
from pyggml._native.model import Model

# How often a wait lets Python handle signals, in seconds.
_SIGNAL_CHECK_S = 0.2


class Adapter(ClosableOwner):
    """A LoRA adapter that requests can name. Thread-safe.

    Requests that use it keep it in memory, and :meth:`close` waits for them.

    Attributes:
        name: its name in requests.
        path: its file or PEFT directory.
        scale: default factor of its low-rank products.
        rank: the largest rank of its products.
        alpha: numerator of their scale, alpha / rank; 0: the file has none, and they are not scaled.
        n_targets: number of weights that it changes.
        content: hash of its tensors, in 16 hexadecimal digits: equal for files with the same content.
        when_closed: called once it has been closed, by whoever lists it by name; None: nothing.
    """

    _instead_of_a_copy = "share this one between threads and tasks"

    def __init__(self, model: Model, path: str | os.PathLike[str], name: str | None = None, scale: float = 1.0) -> None:
        """Read a GGUF file, without the GIL.

        Args:
            model: the model that the adapter was made for.
            path: the file.
            name: its name in requests. None: the file's, without suffix.
            scale: factor of its low-rank products in requests that give no other.

        Raises:
            ModelNotFoundError: there is no such file.
            ModelLoadError: it is not a LoRA adapter, is damaged, or has tensors that are not supported.
            ArchitectureMismatchError: it belongs to another model.
            OutOfMemoryError: it does not fit.
            InvalidParameterError: an argument is of the wrong kind.
        """
        self.name = checked_name(path, name)
        self.scale = finite("scale", scale, -math.inf)
        if not isinstance(model, Model):
            raise invalid(f"a Model was expected, not {shown(model)}")
        self.path = os.fspath(path)
        self._handle = c_calls.create(
            "pyg_adapter", lib.pyg_adapter_free, lib.pyg_adapter_load, model._handle, c_string("path", self.path)
        )
        info = ffi.new("pyg_adapter_info *")
        c_calls.call(lib.pyg_adapter_info_get, self._handle, info)
        self.rank, self.alpha, self.n_targets = int(info.rank), float(info.alpha), int(info.n_targets)
        self.content = f"{info.content:016x}"
        self._is_closing = False
        self.when_closed: Callable[[], None] | None = None

    @property
    def size_bytes(self) -> int:
        """Memory of its tensors in bytes: about twice those of its file once the CPU's kernels have used it.

        Raises:
            ClosedError: it was closed.
        """
        info = ffi.new("pyg_adapter_info *")
        c_calls.call(lib.pyg_adapter_info_get, self._handle, info)
        return int(info.n_bytes)

    @property
    def is_open(self) -> bool:
        """True until :meth:`close` is called: new requests can name it."""
        return not self._is_closing

    def close(self) -> None:
        """Refuse new requests with this adapter, wait for the running ones without the GIL, and free its memory.

        Safe to call again.

        Raises:
            InvalidParameterError: this is a logits processor, for which requests with the adapter wait; it stays open.
                Or a logits processor has been running for more than five seconds: it may wait for this thread.
        """
        closed = ffi.new("bool *")
        c_calls.call(lib.pyg_adapter_close, self._handle, 0.0, closed)
        self._is_closing = True  # now that it is not refused
        while not closed[0]:
            c_calls.call(lib.pyg_adapter_close, self._handle, _SIGNAL_CHECK_S, closed)
        self._is_closed = True
        notify, self.when_closed = self.when_closed, None
        if notify is not None:
            notify()

    async def aclose(self) -> None:
        """As :meth:`close`, for coroutines: wait in a thread."""
        from asyncio import to_thread

        await to_thread(self.close)

    def __repr__(self) -> str:
        facts = f"rank {self.rank}, {self.n_targets} weights, scale {self.scale:g}"
        return f"Adapter({self.name!r}: {facts}{', closed' * self._is_closed})"


def checked_name(path: str | os.PathLike[str], name: str | None) -> str:
    """Return the name of an adapter in a file; None: the file's, without suffix.

    Raises:
        InvalidParameterError: the path is none, or the name is empty or not text.
    """
    if not is_path(path):
        raise invalid(f"an adapter must be given as a path, not {shown(path)}")
    given = Path(path).stem if name is None else name
    if not isinstance(given, str) or not given.strip():
        raise invalid(f"the name of an adapter must be text that is not empty, not {shown(given)}")
    c_string("the name of an adapter", given)
    return given
