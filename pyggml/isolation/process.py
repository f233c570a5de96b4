"""One process with an engine, started and waited for by a thread."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pyggml import errors
from pyggml._core import c_calls
from pyggml._core.c_values import pointer
from pyggml._core.ffi import ffi, lib
from pyggml._core.platforms import require_inherited_sockets
from pyggml.child_process import child_command
from pyggml.errors import EngineError
from pyggml.generation.waker import SIGNAL_CHECK_S
from pyggml.isolation import protocol

if TYPE_CHECKING:
    from pyggml._core.ffi import CData
    from pyggml.generation.waker import Waker

_WORKER = "pyggml.isolation.worker"
# Timeout for the exit status of a process whose socket is closed.
_EXIT_TIMEOUT_S = 2.0
_STDERR_TAIL_BYTES = 4096
_STDERR_TAIL_LINES = 3
_MAX_FIELDS_BYTES = 1 << 20


class EngineProcess:
    """One process with an engine. Any thread may call its methods.

    A dedicated thread starts the process, because Linux ends it with the thread that started it, and waits for its
    exit. That thread also acquires all resources, since signal handlers cannot raise exceptions there.

    Attributes:
        has_loaded: True if its model is loaded. Error messages depend on it.
    """

    has_loaded = False

    def __init__(self, n_parallel: int, max_queue: int | None) -> None:
        """Acquire nothing until :meth:`start`; arguments as for its engine."""
        self._owner = os.getpid()
        self._limits = (n_parallel, max_queue or 0)
        self._handle: CData = ffi.NULL
        self._is_closing = False
        self._has_started = threading.Event()
        self._failure: Exception | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="pyggml-isolated", daemon=True)

    def start(self) -> None:
        """Start the process, without a model. After any exception, even KeyboardInterrupt, :meth:`close` it.

        Raises:
            InvalidParameterError: the system is Windows.
            EngineError: the process cannot be started.
        """
        require_inherited_sockets("isolate=True")
        try:
            self._thread.start()
        except RuntimeError as error:  # too many threads
            raise EngineError(f"the engine's process could not be started: {error}") from None
        self._has_started.wait()
        if self._failure is not None:
            raise EngineError(f"the engine's process could not be started: {self._failure}")

    @property
    def pid(self) -> int:
        """Process id; 0 if the process could not be started."""
        return 0 if self._child is None else self._child.pid

    def has_exited(self) -> bool:
        """Return True if the process has exited.

        Raises:
            EngineError: this is a forked child, and the process belongs to its parent.
            ClosedError: the process was closed.
        """
        out = ffi.new("bool *")
        c_calls.call(lib.pyg_engine_client_has_exited, self._handle, out)
        return bool(out[0])

    def is_exiting(self) -> bool:
        """Return True if the process exits within a short timeout, once it has."""
        self._thread.join(_EXIT_TIMEOUT_S)
        return not self._thread.is_alive()

    # --- requests -----------------------------------------------------------------------------------------------

    def submit(self, model: CData, n_ctx: int, prompt: npt.NDArray[np.int32], options: CData, request: bytes) -> CData:
        """Queue a generation and return the native request; see ``pyg_engine_client_submit``."""
        return c_calls.create(
            "pyg_request",
            lib.pyg_request_free,
            lib.pyg_engine_client_submit,
            self._handle,
            model,
            n_ctx,
            pointer("int32_t[]", prompt),
            len(prompt),
            options,
            request,
            len(request),
        )

    def notify_when_queue_has_capacity(self, waker: Waker, tag: int) -> None:
        """See :meth:`pyggml.Engine.notify_when_queue_has_capacity`."""
        c_calls.call(lib.pyg_engine_client_notify_when_queue_has_capacity, self._handle, waker.handle, tag)

    def call(
        self, request: bytes, token_ids: npt.NDArray[np.int32] | None = None, n_bytes: int = 0
    ) -> tuple[dict[str, Any], memoryview]:
        """Send a request and return the reply: fields and the bytes of an array. Waits without the GIL.

        Args:
            request: from :func:`protocol.encode_request`.
            token_ids: its tokens, if it has any.
            n_bytes: size of the reply's array.

        Raises:
            InferError: the request failed; EngineError: the process exited.
        """
        *_, reply = self.stream_replies(request, token_ids, n_bytes)
        return reply

    def stream_replies(
        self, request: bytes, token_ids: npt.NDArray[np.int32] | None = None, n_bytes: int = 0
    ) -> Iterator[tuple[dict[str, Any], memoryview]]:
        """As :meth:`call`, for requests with several replies."""
        token_ids = np.empty(0, np.int32) if token_ids is None else token_ids
        call_id, last = ffi.new("uint64_t *"), ffi.new("bool *")
        try:
            c_calls.call(
                lib.pyg_engine_client_call,
                self._handle,
                pointer("int32_t[]", token_ids),
                len(token_ids),
                request,
                len(request),
                n_bytes + _MAX_FIELDS_BYTES,
                call_id,
            )
            while not last[0]:
                if (data := self._receive(call_id[0], last)) is not None:
                    yield protocol.decode_reply(data)
        finally:
            lib.pyg_engine_client_discard(self._handle, call_id[0])

    def _receive(self, call_id: int, last: CData) -> memoryview | None:
        """Return the next reply to a request; None if there is none yet."""
        n_data = ffi.new("size_t *")

        def receive(out: CData, err: CData) -> Any:
            return lib.pyg_engine_client_reply(self._handle, call_id, SIGNAL_CHECK_S, out, n_data, last, err)

        data = c_calls.create("char", lib.pyg_string_free, receive)
        return None if data == ffi.NULL else memoryview(ffi.buffer(data, n_data[0]))

    def close(self) -> None:
        """End the process and wait until its memory is free. Safe to call again, and in a forked child."""
        if os.getpid() != self._owner:
            return
        self._is_closing = True
        self._stop()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _stop(self) -> None:
        try:
            c_calls.call(lib.pyg_engine_client_close, self._handle)
        finally:
            if self._child is not None:
                self._child.kill()  # it has nothing to save

    # --- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with contextlib.ExitStack() as stack:
            try:
                stderr = stack.enter_context(tempfile.TemporaryFile(prefix="pyggml-"))
                child = self._spawn(stderr)
            except (OSError, errors.InferError) as error:  # too many processes or files, out of memory, disk full
                self._failure = error
                return
            finally:
                self._has_started.set()
            if self._is_closing:  # close() may not have seen the new process
                self._stop()
            reason = self._relay()
            status = self._wait(child)
            why = reason or _exit_reason(status, _stderr_tail(stderr))
            with contextlib.suppress(errors.ClosedError):
                why += ": the next call starts another" if self.has_loaded else ", while it loaded the model"
                c_calls.call(lib.pyg_engine_client_fail, self._handle, why.encode())

    def _spawn(self, stderr: IO[bytes]) -> subprocess.Popen[bytes]:
        memory, socket = ffi.new("int32_t *"), ffi.new("int32_t *")
        self._handle = c_calls.create(
            "pyg_engine_client", lib.pyg_engine_client_free, lib.pyg_engine_client_new, *self._limits, memory, socket
        )
        try:
            task = {"memory": memory[0], "socket": socket[0], "parent": os.getpid()}
            # In a session of its own, so that a terminal's Ctrl-C reaches only the program.
            self._child = subprocess.Popen(
                child_command(_WORKER, json.dumps(task)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                pass_fds=(memory[0], socket[0]),
                env={**os.environ, "GGML_NO_BACKTRACE": "1"},  # otherwise upstream starts a debugger
                start_new_session=True,
            )
        finally:
            os.close(memory[0])
            os.close(socket[0])
        return self._child

    def _relay(self) -> str | None:
        """Relay messages until the process exits, or sends an invalid one; then return the error."""
        try:
            c_calls.call(lib.pyg_engine_client_run, self._handle)
        except errors.ClosedError:
            return None
        except errors.InferError as error:
            return str(error)
        return None

    def _wait(self, child: subprocess.Popen[bytes]) -> int:
        """Wait for the process to exit, kill it if necessary, and return its status."""
        if not self._is_closing:
            try:
                return child.wait(_EXIT_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                pass
        child.kill()
        return child.wait()


def _exit_reason(status: int, output: str) -> str:
    """Describe how the process ended."""
    if status >= 0:
        how = f"with status {status}"
    else:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        how = f"by {name}"
        if -status == signal.SIGKILL:
            how += " (possibly out of memory)"
    quoted = f"; its last output: {output}" if output else ""
    return f"the engine's process was ended {how}{quoted}"


def _stderr_tail(stderr: IO[bytes]) -> str:
    """Return the last lines of the process's standard error."""
    size = stderr.seek(0, os.SEEK_END)
    stderr.seek(max(0, size - _STDERR_TAIL_BYTES))
    text = stderr.read(_STDERR_TAIL_BYTES).decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip() and line.isprintable()]
    return "; ".join(lines[-_STDERR_TAIL_LINES:])
