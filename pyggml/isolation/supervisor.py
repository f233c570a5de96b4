"""Supervisor of the engine's process: starts it, and restarts it after a crash."""

from __future__ import annotations

import dataclasses
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pyggml._core.locks import NonReentrantLock
from pyggml._core.log import logger
from pyggml.errors import ClosedError, EngineError, ModelLoadError
from pyggml.isolation import protocol
from pyggml.isolation.isolated_adapters import IsolatedAdapters
from pyggml.isolation.isolated_embedding import IsolatedPasses
from pyggml.isolation.isolated_engine import IsolatedEngine
from pyggml.isolation.isolated_model import IsolatedModel
from pyggml.isolation.process import EngineProcess
from pyggml.memory.search import DeviceMemory
from pyggml.options import LoadOptions
from pyggml.progress import Progress, progress_function

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyggml.generation.embedding.encoder import BatchEncoder, Kind

T = TypeVar("T")


class Isolated:
    """A model and its engine in a separate process. Any thread may call its methods.

    Attributes:
        model: the model's vocabulary, metadata and properties in this process.
        n_ctx: context size in tokens.
        memory: memory of the model and the context on each device.
        adapters: the adapters of the model.
        not_batch_invariant: as in :class:`~pyggml.types.EngineStats`.
        n_restarts: number of restarts of the process.
    """

    def __init__(self, path: Path, options: LoadOptions) -> None:
        """Start the process and load a GGUF file there. Of the options, ``source`` and those for texts are ignored.

        Raises:
            As :func:`pyggml.load`; EngineError: the process exited while loading.
        """
        self._path, self._options = path, options
        self._restart_lock = NonReentrantLock("a method that starts the engine's process again")
        self._is_closed = False
        self.n_restarts = 0
        self._running = [EngineProcess(options.n_parallel, options.max_queue)]
        self._end = weakref.finalize(self, _close_all, self._running)
        try:
            info = self._load(self.last, progress_function(options.progress))
            self.model = IsolatedModel(path, _checked(info, "model", dict))
            self.n_ctx = _checked(info, "n_ctx", int)
            self.memory = tuple(DeviceMemory(**fields) for fields in _checked(info, "memory", list))
            self.not_batch_invariant = tuple(map(str, _checked(info, "not_batch_invariant", list)))
        except BaseException:
            self.close()
            raise
        self._options = dataclasses.replace(options, n_ctx=self.n_ctx, progress=None)  # the same size after a restart
        self.adapters = IsolatedAdapters(self)

    def engine(self, stop_token_ids: Iterable[int]) -> IsolatedEngine:
        """Create a proxy of the engine."""
        return IsolatedEngine(self, self._options.n_parallel, stop_token_ids)

    def passes(self, _kind: Kind) -> BatchEncoder:
        """Create a proxy of the contexts for embedding."""
        return IsolatedPasses(self)

    @property
    def last(self) -> EngineProcess:
        """The process that was started last. It may have exited."""
        return self._running[-1]

    def process(self) -> EngineProcess:
        """Return the process, with the model loaded; restart it if it has exited.

        Raises:
            As the constructor; EngineError: this is a forked child; ClosedError: it was closed;
            InvalidParameterError: this interrupts a call that is restarting the process.
        """
        process = self.last
        if not process.has_exited():
            return process
        with self._restart_lock.hold():
            if self._is_closed:
                raise ClosedError("the model was closed")
            if self.last.has_exited():
                self._restart()
            return self.last

    def close(self) -> None:
        """End the process and all requests, whose readers get ClosedError. Safe to call again."""
        self._is_closed = True
        self._end()

    def _restart(self) -> None:
        process = EngineProcess(self._options.n_parallel, self._options.max_queue)
        try:
            self._load(process, None)
            self.adapters.load_again(process)
        except BaseException:
            process.close()
            raise
        self.n_restarts += 1
        self._running[:] = [process]
        if self._is_closed:
            process.close()

    def _load(self, process: EngineProcess, progress: Progress | None) -> dict[str, Any]:
        """Start a process, load the model there and return its reply."""
        process.start()
        options, level = protocol.load_options(self._options), logger.getEffectiveLevel()
        request = protocol.encode_request("load", path=str(self._path), options=options, level=level)
        info: dict[str, Any] = {}
        for info, _ in process.stream_replies(request):
            if "log" in info:
                logger.log(_checked(info, "level", int), "%s", _checked(info, "log", str))
            elif progress is not None and "progress" in info and progress(float(info["progress"])) is False:
                raise ModelLoadError(f"loading {self._path} was stopped by its progress callback")
        process.has_loaded = True
        return info


def _close_all(running: list[EngineProcess]) -> None:
    for process in running:
        process.close()


def _checked(info: dict[str, Any], name: str, kind: type[T]) -> T:
    value = info.get(name)
    if type(value) is not kind:
        raise EngineError(f"the engine's process sent an invalid reply ({name})")
    return value
