"""The process of an engine: started, listened to by one thread, and seen off."""

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
from pyggml.child_process import child_command
from pyggml.errors import EngineError
from pyggml.generation.waker import SIGNAL_CHECK_S
from pyggml.isolation import messages

if TYPE_CHECKING:
    from pyggml._core.ffi import CData
    from pyggml.generation.waker import Waker

_WORKER = "pyggml.isolation.worker"
# A process that has gone silent is ending: until then the system closes its files, and its status is not there yet.
_ENDING_S = 2.0
_LAST_WORDS_BYTES = 4096
_LAST_LINES = 3
_SMALL_BYTES = 1 << 20


class Process:
    """One process with an engine. Any thread may call its methods.

    A thread of its own starts it, because Linux ends it with the thread that started it, and waits for its end. That
    thread also makes everything that would have to be given back: no handler of a signal can raise there.

    Attributes:
        has_loaded: whether its model is loaded, which says what to do when it ends.
    """

    has_loaded = False

    def __init__(self, n_parallel: int, max_queue: int | None) -> None:
        """Holds nothing until :meth:`start`.

        Args:
            n_parallel: number of requests that its engine will compute together.
            max_queue: maximum number of waiting requests; None: no limit.
        """
        self._owner = os.getpid()
        self._limits = (n_parallel, max_queue or 0)
        self._handle: CData = ffi.NULL
        self._is_closing = False
        self._has_started = threading.Event()
        self._failure: Exception | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._attend, name="pyggml-isolated", daemon=True)

    def start(self) -> None:
        """Starts it, without a model. Whatever this raises, Ctrl-C too, :meth:`close` it.

        Raises:
            EngineError: it cannot be started.
        """
        try:
            self._thread.start()
        except RuntimeError as error:  # too many threads
            raise EngineError(f"the engine's process could not be started: {error}") from None
        self._has_started.wait()
        if self._failure is not None:
            raise EngineError(f"the engine's process could not be started: {self._failure}")

    @property
    def pid(self) -> int:
        """Its number in the system; 0 if it could not be started."""
        return 0 if self._child is None else self._child.pid

    def is_gone(self) -> bool:
        """Whether it has ended.

        Raises:
            EngineError: this is a forked child, and the process is its parent's.
            ClosedError: it was closed.
        """
        out = ffi.new("bool *")
        c_calls.call(lib.pyg_relay_is_gone, self._handle, out)
        return bool(out[0])

    def is_ending(self) -> bool:
        """Whether it has ended or does so now; in that case, returns when it has."""
        self._thread.join(_ENDING_S)
        return not self._thread.is_alive()

    # --- what it does -------------------------------------------------------------------------------------------

    def submit(self, model: CData, n_ctx: int, prompt: npt.NDArray[np.int32], options: CData, said: bytes) -> CData:
        """Queues a generation; see ``pyg_relay_submit``. Returns the native request."""
        return c_calls.create(
            "pyg_request",
            lib.pyg_request_free,
            lib.pyg_relay_submit,
            self._handle,
            model,
            n_ctx,
            pointer("int32_t[]", prompt),
            len(prompt),
            options,
            said,
            len(said),
        )

    def ask_for_room(self, waker: Waker, tag: int) -> None:
        """As :meth:`pyggml.Engine.notify_when_queue_has_capacity`."""
        c_calls.call(lib.pyg_relay_ask_for_room, self._handle, waker.handle, tag)

    def call(
        self, said: bytes, numbers: npt.NDArray[np.int32] | None = None, n_bytes: int = 0
    ) -> tuple[dict[str, Any], memoryview]:
        """Asks for something, and returns the answer: fields and the bytes of an array. Waits without the GIL.

        Args:
            said: what to do, from :func:`messages.said`.
            numbers: numbers that go with it.
            n_bytes: size of the array.

        Raises:
            InferError: it cannot be done; EngineError: the process ended.
        """
        *_, answer = self.messages(said, numbers, n_bytes)
        return answer

    def messages(
        self, said: bytes, numbers: npt.NDArray[np.int32] | None = None, n_bytes: int = 0
    ) -> Iterator[tuple[dict[str, Any], memoryview]]:
        """As :meth:`call`, for answers of several messages."""
        numbers = np.empty(0, np.int32) if numbers is None else numbers
        number, last = ffi.new("uint64_t *"), ffi.new("bool *")
        try:
            c_calls.call(
                lib.pyg_relay_call,
                self._handle,
                pointer("int32_t[]", numbers),
                len(numbers),
                said,
                len(said),
                n_bytes + _SMALL_BYTES,
                number,
            )
            while not last[0]:
                if (data := self._reply(number[0], last)) is not None:
                    yield messages.taken_apart(data)
        finally:
            lib.pyg_relay_forget(self._handle, number[0])

    def _reply(self, number: int, last: CData) -> memoryview | None:
        """The next message of an answer; None if there is none yet."""
        n_data = ffi.new("size_t *")

        def take(out: CData, err: CData) -> int:
            status: int = lib.pyg_relay_reply(self._handle, number, SIGNAL_CHECK_S, out, n_data, last, err)
            return status

        data = c_calls.create("char", lib.pyg_string_free, take)
        return None if data == ffi.NULL else memoryview(ffi.buffer(data, n_data[0]))

    def close(self) -> None:
        """Ends it, and waits until the system has its memory back. Safe to call again, and in a forked child."""
        if os.getpid() != self._owner:
            return
        self._is_closing = True
        self._stop()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _stop(self) -> None:
        try:
            c_calls.call(lib.pyg_relay_close, self._handle)
        finally:
            if self._child is not None:
                self._child.kill()  # it has nothing to save

    # --- the thread ---------------------------------------------------------------------------------------------

    def _attend(self) -> None:
        with contextlib.ExitStack() as kept:
            try:
                said = kept.enter_context(tempfile.TemporaryFile(prefix="pyggml-"))
                child = self._begin(said)
            except (OSError, errors.InferError) as error:  # too many processes or files, no memory or room on the disk
                self._failure = error
                return
            finally:
                self._has_started.set()
            if self._is_closing:  # meanwhile, and what there is now may not have been stopped
                self._stop()
            reason = self._listen()
            status = self._seen_off(child)
            why = reason or _how(status, _last_words(said))
            with contextlib.suppress(errors.ClosedError):
                why += ": the next call starts another" if self.has_loaded else ", while it loaded the model"
                c_calls.call(lib.pyg_relay_lose, self._handle, why.encode())

    def _begin(self, said: IO[bytes]) -> subprocess.Popen[bytes]:
        memory, socket = ffi.new("int32_t *"), ffi.new("int32_t *")
        self._handle = c_calls.create("pyg_relay", lib.pyg_relay_free, lib.pyg_relay_new, *self._limits, memory, socket)
        try:
            self._child = self._spawned(memory[0], socket[0], said)
        finally:
            os.close(memory[0])
            os.close(socket[0])
        return self._child

    def _spawned(self, memory: int, socket: int, said: IO[bytes]) -> subprocess.Popen[bytes]:
        task = {"memory": memory, "socket": socket, "parent": os.getpid()}
        # In a session of its own, a terminal's Ctrl-C is the program's alone.
        return subprocess.Popen(
            child_command(_WORKER, json.dumps(task)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            pass_fds=(memory, socket),
            env={**os.environ, "GGML_NO_BACKTRACE": "1"},  # for which upstream would start a debugger
            start_new_session=True,
        )

    def _listen(self) -> str | None:
        """Returns when the process ends, or sends what makes no sense, and then why it has to end."""
        try:
            c_calls.call(lib.pyg_relay_run, self._handle)
        except errors.ClosedError:
            return None
        except errors.InferError as error:
            return str(error)
        return None

    def _seen_off(self, child: subprocess.Popen[bytes]) -> int:
        """Its status, once it has ended."""
        if not self._is_closing:
            try:
                return child.wait(_ENDING_S)
            except subprocess.TimeoutExpired:
                pass
        child.kill()
        return child.wait()


def _how(status: int, last_words: str) -> str:
    """How the process ended, for a message."""
    if status >= 0:
        how = f"with status {status}"
    else:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        how = f"by {name}"
        if -status == signal.SIGKILL:
            how += ", as the system does when memory runs out"
    said = f", and said: {last_words}" if last_words else ""
    return f"the process of the engine was ended {how}{said}"


def _last_words(said: IO[bytes]) -> str:
    """The last lines that it wrote on its standard error."""
    size = said.seek(0, os.SEEK_END)
    said.seek(max(0, size - _LAST_WORDS_BYTES))
    text = said.read(_LAST_WORDS_BYTES).decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip() and line.isprintable()]
    return "; ".join(lines[-_LAST_LINES:])
