"""Facts read from a model, the input of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pyggml._native.metadata_check import MetadataCheck
from pyggml.diagnostics.report import FileReport, Problem, VocabularyReport
from pyggml.families import Match
from pyggml.files.model_files import Format


@dataclass(frozen=True)
class TensorFacts:
    """A tensor as it is stored. ``type`` is its elements' type, as the format calls it."""

    name: str
    type: str
    n_params: int
    n_bytes: int


class Storage(NamedTuple):
    """Storage form of the weights: the first fields of :class:`~pyggml.diagnostics.report.QuantizationReport`."""

    name: str
    method: str
    bits: int | None = None
    group_size: int | None = None


@dataclass(frozen=True)
class ModelFacts:
    """All facts read from a model.

    Attributes:
        path: path of the file or directory.
        names: names of the model, its own name first.
        metadata: metadata of the GGUF file, or of the one that an import would make.
        check: the engine's metadata check of the model.
        is_tied: True if the output shares the embedding's weights.
        import_type: type that most weights would get in an import; None: the model is not imported.
        ignored_keys: keys of the configuration that an import ignores.
        rope: further facts about the rotations: "scaling", "factor", "n_ctx_original".
    """

    path: Path
    format: Format
    files: Sequence[FileReport]
    names: Sequence[str]
    tensors: Sequence[TensorFacts]
    n_params: int
    metadata: Mapping[str, object]
    match: Match
    check: MetadataCheck
    vocabulary: VocabularyReport | None
    storage: Storage
    is_tied: bool
    import_type: str | None = None
    ignored_keys: Sequence[str] = ()
    rope: Mapping[str, Any] = field(default_factory=dict)
    problems: Sequence[Problem] = ()


class Problems(list[Problem]):
    """The problems found so far."""

    def error(self, code: str, message: str) -> None:
        """Add a problem that prevents the model from working."""
        self.append(Problem("error", code, message))

    def warning(self, code: str, message: str) -> None:
        """Add a problem with which the model works."""
        self.append(Problem("warning", code, message))


def listed(names: Sequence[str], n: int = 3) -> str:
    """Format the first names, with the number of the others."""
    more = f" and {len(names) - n} more" if len(names) > n else ""
    return ", ".join(map(repr, names[:n])) + more
