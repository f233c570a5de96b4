"""What is known of a model, loaded or not: read from its header, which takes no longer for large ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyggml
from pyggml.server.models.catalogue import Kind, Offer
from pyggml.server.models.loaded_model import Served


@dataclass(frozen=True)
class ModelInfo:
    """What is known of a model. None: nothing, as of a reference that has not been downloaded, or of a broken file.

    Attributes:
        name: what answers call it.
        aliases: its other names.
        kind: where it comes from.
        is_loaded: whether it is loaded now.
        created: when it was made, in seconds since 1970: its file's time; when it was loaded if that is unknown.
        size_bytes: size of its tensors.
        file_bytes: size of its files.
        architecture: the engine's name for its architecture.
        n_params: number of weights.
        file_type: how its weights are stored: "Q8_0", "Q4_K - Medium", "BF16" ...
        n_ctx: context size in tokens, as it is loaded or would be.
        memory_bytes: what it takes while it is loaded, as planned; None: it is not, or others loaded it.
        report: everything that its metadata says.
    """

    name: str
    aliases: tuple[str, ...]
    kind: Kind
    is_loaded: bool
    created: int
    size_bytes: int | None = None
    file_bytes: int | None = None
    architecture: str | None = None
    n_params: int | None = None
    file_type: str | None = None
    n_ctx: int | None = None
    memory_bytes: int | None = None
    report: pyggml.ModelReport | None = None


class Facts:
    """What a model's header says; read again when its file has changed."""

    def __init__(self) -> None:
        self._report: pyggml.ModelReport | None = None
        self._modified: int | None = None
        self._signature: tuple[Path, int, int] | None = None

    @property
    def are_known(self) -> bool:
        """Whether they have been read."""
        return self._report is not None

    def read(self, path: Path) -> None:
        """Reads what is at a path, unless it is what was read last. May take tenths of a second."""
        try:
            found = path.stat()
        except OSError:
            return  # what it was is the best that is known
        signature = path, found.st_mtime_ns, found.st_size
        if signature == self._signature:
            return
        try:
            report = pyggml.inspect(path)
        except pyggml.InferError:  # it is broken; whoever loads it hears how
            report = None
        self._report, self._modified, self._signature = report, int(found.st_mtime), signature

    def info(self, offer: Offer, served: Served | None, n_ctx: object) -> ModelInfo:
        """What is known of the model.

        Args:
            offer: the model.
            served: it, if it is loaded.
            n_ctx: the context size that it would be loaded with; no number: its own.
        """
        created = self._modified or (0 if served is None else served.created)
        known = {} if self._report is None else _reported(self._report, n_ctx)
        known |= {} if served is None else _loaded(served)
        return ModelInfo(offer.name, offer.spec.aliases, offer.kind, served is not None, created, **known)


def _reported(report: pyggml.ModelReport, n_ctx: object) -> dict[str, Any]:
    return {
        "size_bytes": report.n_bytes or None,
        "file_bytes": sum(file.n_bytes for file in report.files),
        "architecture": report.architecture or None,
        "n_params": report.n_params or None,
        "file_type": report.quantization.name,
        "n_ctx": n_ctx if isinstance(n_ctx, int) else report.plan.n_ctx or None,
        "report": report,
    }


def _loaded(served: Served) -> dict[str, Any]:
    llm = served.llm
    return {
        "size_bytes": llm.model.size_bytes,
        "architecture": llm.model.arch,
        "n_params": llm.model.n_params,
        "n_ctx": llm.n_ctx,
        "memory_bytes": None if served.memory is None else served.memory.total_bytes,
    }
