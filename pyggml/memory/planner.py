"""Memory planning by the engine, without loading the weights."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pyggml._core import c_calls
from pyggml._core.ffi import ffi, lib
from pyggml._native.context import Context
from pyggml._native.context_options import ContextOptions, native_options
from pyggml._native.model import Model
from pyggml._native.placement import Placement
from pyggml.files.model_files import ModelFiles
from pyggml.generation.embedding import encoder
from pyggml.importer.encoding import require_outtype
from pyggml.memory.gguf_header import build_header
from pyggml.memory.llm_context import context_options, draft_context_options, generates, longest_n_ctx
from pyggml.memory.search import DeviceMemory, Limits, ResolvedOptions, memory_of_both
from pyggml.options.file_types import NO_IMATRIX_TYPES

if TYPE_CHECKING:
    from pyggml._core.ffi import CData


class Planner(contextlib.AbstractContextManager["Planner"]):
    """Plans the memory of a model. A context manager, for use by one thread.

    The engine itself plans, with the model as it would load it, but without the weights.
    """

    def __init__(self, files: ModelFiles, placement: Placement, draft: Planner | None = None) -> None:
        """Plan for a model with a placement, in which settings replace n_gpu_layers and n_cpu_moe.

        ``draft`` plans its draft model, whose memory is added; its placement is fixed. It is closed with this one.
        """
        self.path = files.path
        self._source = files
        self._placement = placement
        self._stack = contextlib.ExitStack()
        self._folder: Path | None = None
        self._files: dict[str, Path] = {"auto": files.path} if files.format == "gguf" else {}
        self._models: dict[tuple[Placement, str], Model] = {}
        self._draft = draft if draft is None else self._stack.enter_context(draft)

    def model(self, settings: ResolvedOptions | None = None, outtype: str = "auto") -> Model:
        """Return the model without weights, placed and converted as in the settings, else converted to ``outtype``."""
        placement = self._placement if settings is None else self.placement_of(settings)
        key = placement, require_outtype(outtype if settings is None else settings.outtype)
        if key not in self._models:
            model = Model(self._file(key[1]), placement=placement, shape_only=True)
            self._models[key] = self._stack.enter_context(model)
        return self._models[key]

    def placement_of(self, settings: ResolvedOptions) -> Placement:
        """Return the model's placement with these settings."""
        return dataclasses.replace(self._placement, n_gpu_layers=settings.n_gpu_layers, n_cpu_moe=settings.n_cpu_moe)

    def memory_of(self, settings: ResolvedOptions) -> tuple[DeviceMemory, ...]:
        """Plan the model's memory with these settings, in main memory and on each GPU."""
        model = self.model(settings)
        memories = _planned(model, _context_options(model, settings))
        return memories if self._draft is None else memory_of_both(memories, self._draft.memory_as_draft(settings))

    def memory_as_draft(self, settings: ResolvedOptions) -> tuple[DeviceMemory, ...]:
        """Plan the model's memory as the draft model of one with these settings."""
        return _planned(self.model(), draft_context_options(settings, settings.n_ctx))

    def limits(self, settings: ResolvedOptions) -> Limits:
        """Return the limits of a search for settings that fit."""
        model = self.model(settings)
        return Limits(longest_n_ctx(model, settings), model.n_layer + 1, NO_IMATRIX_TYPES)

    def close(self) -> None:
        """Close the models and remove temporary files. Safe to call again."""
        self._stack.close()
        self._models.clear()

    def _file(self, outtype: str) -> Path:
        if outtype not in self._files:
            if self._folder is None:
                self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="pyggml-")))
            target = self._folder / f"{outtype}.gguf"
            build_header(self._source, outtype).write(target)
            self._files[outtype] = target
        return self._files[outtype]

    def __exit__(self, *_: object) -> None:
        self.close()


def _planned(model: Model, options: ContextOptions) -> tuple[DeviceMemory, ...]:
    memory = ffi.new("pyg_memory *")
    c_calls.call(lib.pyg_context_estimate, model._handle, native_options(options), memory)
    return device_memories(memory)


def memory_used_by(context: Context) -> tuple[DeviceMemory, ...]:
    """Return the engine's buffer sizes for a context and its model, main memory first, without the vocabulary."""
    memory = ffi.new("pyg_memory *")
    c_calls.call(lib.pyg_context_memory, context._handle, memory)
    return device_memories(memory)


def device_memories(memory: CData) -> tuple[DeviceMemory, ...]:
    """Convert a ``pyg_memory *``."""
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


def _context_options(model: Model, settings: ResolvedOptions) -> ContextOptions:
    """Return the options of an LLM's context or, for other models, of the largest embedding or reranking context."""
    if generates(model):
        return context_options(settings, settings.n_ctx)
    return encoder.context_options(
        model, "rank" if model.n_cls_out else "none", n_ctx=settings.n_ctx, n_tokens=settings.n_ctx, rope=settings
    )
