"""The process with a model and its engine, which is started again when it has ended."""

from __future__ import annotations

import dataclasses
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pyggml._core.locks import Turns
from pyggml._core.log import logger
from pyggml._native.model import Progress
from pyggml.errors import ClosedError, EngineError, ModelLoadError
from pyggml.isolation import messages
from pyggml.isolation.isolated_embedding import IsolatedPasses
from pyggml.isolation.isolated_engine import IsolatedEngine
from pyggml.isolation.isolated_model import IsolatedModel
from pyggml.isolation.process import Process
from pyggml.memory.search import DeviceMemory
from pyggml.options import LoadOptions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyggml.generation.embedding_batches import BatchEncoder, Kind

T = TypeVar("T")


class Isolated:
    """A model and its engine in a process of their own. Any thread may call its methods.

    Attributes:
        model: what of the model is in this process: vocabulary, metadata and properties.
        n_ctx: context size in tokens.
        memory: what model and context take on each device.
        not_batch_invariant: as in :class:`~pyggml.types.EngineStats`.
        n_restarts: how often the process was started again.
    """

    def __init__(self, path: Path, options: LoadOptions) -> None:
        """Starts the process and loads the model there.

        Args:
            path: the GGUF file.
            options: as for :func:`pyggml.load`; ``source`` and what concerns only texts are not looked at.

        Raises:
            As :func:`pyggml.load`; EngineError: the process ended while it was loading.
        """
        self._path, self._options = path, options
        self._starting = Turns("a method that starts the engine's process again")
        self._is_closed = False
        self.n_restarts = 0
        self._running = [Process(options.n_parallel, options.max_queue)]
        self._end = weakref.finalize(self, _close_all, self._running)
        try:
            about = self._load(self.last, options.progress)
            self.model = IsolatedModel(path, _checked(about, "model", dict))
            self.n_ctx = _checked(about, "n_ctx", int)
            self.memory = tuple(DeviceMemory(**fields) for fields in _checked(about, "memory", list))
            self.not_batch_invariant = tuple(map(str, _checked(about, "not_batch_invariant", list)))
        except BaseException:
            self.close()
            raise
        self._options = dataclasses.replace(options, n_ctx=self.n_ctx, progress=None)  # the same size again

    def engine(self, stop_token_ids: Iterable[int]) -> IsolatedEngine:
        """An engine's face for the process."""
        return IsolatedEngine(self, self._options.n_parallel, stop_token_ids)

    def passes(self, pooling: Kind) -> BatchEncoder:
        """The forward passes that embed."""
        return IsolatedPasses(self, pooling)

    @property
    def last(self) -> Process:
        """The process that was started last, which may have ended."""
        return self._running[-1]

    def process(self) -> Process:
        """The process, with the model loaded; another, if the last has ended.

        Raises:
            As the constructor; EngineError: this is a forked child; ClosedError: it was closed;
            InvalidParameterError: this interrupts a call that is starting another.
        """
        process = self.last
        if not process.is_gone():
            return process
        with self._starting.mine():
            if self._is_closed:
                raise ClosedError("the model was closed")
            if self.last.is_gone():
                self._start_again()
            return self.last

    def close(self) -> None:
        """Ends the process, and with it every request (their readers get ClosedError). Safe to call again."""
        self._is_closed = True
        self._end()

    def _start_again(self) -> None:
        process = Process(self._options.n_parallel, self._options.max_queue)
        try:
            self._load(process, None)
        except BaseException:
            process.close()
            raise
        self.n_restarts += 1
        self._running[:] = [process]
        if self._is_closed:
            process.close()

    def _load(self, process: Process, progress: Progress | None) -> dict[str, Any]:
        """Starts it and loads the model there; returns what it says about it."""
        process.start()
        options = messages.loading(self._options)
        said = messages.said(do="load", path=str(self._path), options=options, level=logger.getEffectiveLevel())
        about: dict[str, Any] = {}
        for about, _ in process.messages(said):
            if "log" in about:
                logger.log(_checked(about, "level", int), "%s", _checked(about, "log", str))
            elif progress is not None and "progress" in about and progress(float(about["progress"])) is False:
                raise ModelLoadError(f"loading {self._path} was stopped by its progress callback")
        process.has_loaded = True
        return about


def _close_all(running: list[Process]) -> None:
    for process in running:
        process.close()


def _checked(about: dict[str, Any], name: str, kind: type[T]) -> T:
    value = about.get(name)
    if type(value) is not kind:
        raise EngineError(f"the engine's process sent what makes no sense ({name})")
    return value
