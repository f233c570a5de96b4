"""Asks the engine how much memory a model would take, without loading the weights."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from pyggml._core import c_calls
from pyggml._core.ffi import ffi, lib
from pyggml._native.context import Context
from pyggml._native.context_options import ContextOptions, native_options
from pyggml._native.model import Model
from pyggml._native.placement import Placement
from pyggml.files.model_files import ModelFiles
from pyggml.generation import embedding_batches
from pyggml.importer.encoding import require_outtype
from pyggml.memory.gguf_header import header_of
from pyggml.memory.llm_context import context_options, generates, longest_n_ctx
from pyggml.memory.search import OUTTYPES, DeviceMemory, Limits, Settings

if TYPE_CHECKING:
    from typing_extensions import Self

    from pyggml._core.ffi import CData


class Planner:
    """Answers how much memory a model would take. A context manager, for use by one thread.

    The engine itself plans each answer, with the model as it would load it, but without the weights.
    """

    def __init__(self, files: ModelFiles, placement: Placement) -> None:
        """Plans for a model in a place; settings say only how many of its layers go there."""
        self.path = files.path
        self._source = files
        self._placement = placement
        self._stack = contextlib.ExitStack()
        self._folder: Path | None = None
        self._files: dict[str, Path] = {"auto": files.path} if files.format == "gguf" else {}
        self._models: dict[tuple[Placement, str], Model] = {}

    def model(self, settings: Settings | None = None, outtype: str = "auto") -> Model:
        """The model without weights, as the settings place and convert it; without settings, of the type ``outtype``.

        Raises:
            As :func:`pyggml.load`.
        """
        placement = self._placement if settings is None else self.placement_of(settings)
        key = placement, require_outtype(outtype if settings is None else settings.outtype)
        if key not in self._models:
            model = Model(self._file(key[1]), placement=placement, shape_only=True)
            self._models[key] = self._stack.enter_context(model)
        return self._models[key]

    def placement_of(self, settings: Settings) -> Placement:
        """Where the model goes with these settings."""
        return dataclasses.replace(self._placement, n_gpu_layers=settings.n_gpu_layers, n_cpu_moe=settings.n_cpu_moe)

    def memory_of(self, settings: Settings) -> tuple[DeviceMemory, ...]:
        """How much memory the model takes with these settings, in main memory and on each GPU.

        Raises:
            InvalidParameterError: a setting is out of range.
        """
        model = self.model(settings)
        memory = ffi.new("pyg_memory *")
        options = native_options(_context_options(model, settings))
        c_calls.call(lib.pyg_context_estimate, model._handle, options, memory)
        return device_memories(memory)

    def limits(self, settings: Settings) -> Limits:
        """The limits of a search for settings that fit."""
        model = self.model(settings)
        return Limits(longest_n_ctx(model), model.n_layer + 1, OUTTYPES)

    def close(self) -> None:
        """Closes the models and removes temporary files. Safe to call again."""
        self._stack.close()
        self._models.clear()

    def _file(self, outtype: str) -> Path:
        if outtype not in self._files:
            target = self._scratch() / f"{outtype}.gguf"
            header_of(self._source, outtype).write(target)
            self._files[outtype] = target
        return self._files[outtype]

    def _scratch(self) -> Path:
        if self._folder is None:
            self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="pyggml-")))
        return self._folder

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def taken_by(context: Context) -> tuple[DeviceMemory, ...]:
    """What a context and its model take in the engine's buffers, main memory first; the vocabulary is not known.

    Raises:
        ClosedError: the context was closed.
    """
    memory = ffi.new("pyg_memory *")
    c_calls.call(lib.pyg_context_memory, context._handle, memory)
    return device_memories(memory)


def device_memories(memory: CData) -> tuple[DeviceMemory, ...]:
    """Converts a ``pyg_memory *``."""
    return tuple(
        DeviceMemory(
            name=ffi.string(share.name).decode(errors="replace"),
            weights_bytes=share.weights_bytes,
            cache_bytes=share.context_bytes,
            compute_bytes=share.compute_bytes,
            vocabulary_bytes=share.vocabulary_bytes,
            repacked_bytes=share.repacked_bytes,
            originals_bytes=share.originals_bytes,
            available_bytes=share.available_bytes,
        )
        for share in memory.shares[0 : memory.n_shares]
    )


def _context_options(model: Model, settings: Settings) -> ContextOptions:
    """The options of the context that an LLM creates or, for other models, of the largest for embedding or ranking."""
    if generates(model):
        return context_options(settings, settings.n_ctx)
    return embedding_batches.context_options(
        model, "rank" if model.n_cls_out else "none", n_ctx=settings.n_ctx, n_tokens=settings.n_ctx
    )
