"""Properties of a model, loaded or not, from the header of its file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyggml
from pyggml.server.models.catalogue import CatalogueEntry, Kind
from pyggml.server.models.model_state import LoadedModel


@dataclass(frozen=True)
class ModelInfo:
    """Properties of a model. None: unknown, because it has not been downloaded or its file is broken.

    Attributes:
        name: its name in responses.
        aliases: its other names.
        kind: its origin.
        is_loaded: True if it is loaded.
        created: time of its file, or of its loading, in seconds since 1970.
        size_bytes: size of its tensors.
        file_bytes: size of its files.
        architecture: the engine's name of its architecture.
        n_params: number of weights.
        file_type: format of its weights: "Q8_0", "Q4_K - Medium", "BF16" ...
        n_ctx: context size in tokens; if it is not loaded, the size that it would be loaded with.
        memory_bytes: estimated memory; None: it is not loaded, or was opened before the server.
        report: its metadata.
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


class HeaderInfo:
    """Properties from the header of a model's file; read again when the file has changed."""

    def __init__(self) -> None:
        self._report: pyggml.ModelReport | None = None
        self._modified: int | None = None
        self._signature: tuple[Path, int, int] | None = None

    @property
    def is_known(self) -> bool:
        """True if the header has been read."""
        return self._report is not None

    def read(self, path: Path) -> None:
        """Read the header, unless the file is unchanged. May take tenths of a second."""
        try:
            found = path.stat()
        except OSError:
            return  # keep what was read before
        signature = path, found.st_mtime_ns, found.st_size
        if signature == self._signature:
            return
        try:
            report = pyggml.inspect(path)
        except pyggml.InferError:  # the file is broken; loading it reports the error
            report = None
        self._report, self._modified, self._signature = report, int(found.st_mtime), signature

    def info(self, entry: CatalogueEntry, loaded: LoadedModel | None, n_ctx: object) -> ModelInfo:
        """Return the properties of the model; ``n_ctx`` is its option, and not a number for the model's own size."""
        created = self._modified or (0 if loaded is None else loaded.created)
        known = {} if self._report is None else _from_header(self._report, n_ctx)
        known |= {} if loaded is None else _from_loaded(loaded)
        return ModelInfo(entry.name, entry.spec.aliases, entry.kind, loaded is not None, created, **known)


def _from_header(report: pyggml.ModelReport, n_ctx: object) -> dict[str, Any]:
    return {
        "size_bytes": report.n_bytes or None,
        "file_bytes": sum(file.n_bytes for file in report.files),
        "architecture": report.architecture or None,
        "n_params": report.n_params or None,
        "file_type": report.quantization.name,
        "n_ctx": n_ctx if isinstance(n_ctx, int) else report.plan.n_ctx or None,
        "report": report,
    }


def _from_loaded(loaded: LoadedModel) -> dict[str, Any]:
    llm = loaded.llm
    return {
        "size_bytes": llm.model.size_bytes,
        "architecture": llm.model.arch,
        "n_params": llm.model.n_params,
        "n_ctx": llm.n_ctx,
        "memory_bytes": None if loaded.memory is None else loaded.memory.total_bytes,
    }
