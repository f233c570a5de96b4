"""What was read of a model, before it becomes a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyggml._native.metadata_check import MetadataCheck
from pyggml.diagnostics.report import FileReport, Problem, Severity, VocabularyReport
from pyggml.families import Match
from pyggml.files.model_files import Format


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as it is stored.

    Attributes:
        name: name in the file.
        type: type of its elements, as the format calls it.
        n_params: number of weights.
        n_bytes: size of its data.
    """

    name: str
    type: str
    n_params: int
    n_bytes: int


@dataclass(frozen=True)
class Storage:
    """How the weights are stored; see :class:`~pyggml.diagnostics.report.QuantizationReport`."""

    name: str
    method: str
    bits: int | None = None
    group_size: int | None = None


@dataclass(frozen=True)
class ModelFacts:
    """Everything that was read of a model.

    Attributes:
        path: path of the file or directory.
        format: "gguf" or "huggingface".
        files: the files with weights.
        names: names of the model, its own name first.
        tensors: the tensors as they are stored.
        n_params: number of weights.
        metadata: metadata of the GGUF file, or of the one that an import would make.
        match: the family.
        survey: what the engine says about the model.
        vocabulary: what is known of the vocabulary; None: nothing.
        storage: how the weights are stored.
        is_tied: whether the output shares the embedding's weights.
        import_type: type that most weights would get in an import; None: the model is not imported.
        ignored_keys: keys of the configuration that an import ignores.
        rope: what else is known about the rotations: "scaling", "factor", "n_ctx_original".
        problems: problems found so far.
    """

    path: Path
    format: Format
    files: Sequence[FileReport]
    names: Sequence[str]
    tensors: Sequence[StoredTensor]
    n_params: int
    metadata: Mapping[str, object]
    match: Match
    survey: MetadataCheck
    vocabulary: VocabularyReport | None
    storage: Storage
    is_tied: bool
    import_type: str | None = None
    ignored_keys: Sequence[str] = ()
    rope: Mapping[str, Any] = field(default_factory=dict)
    problems: Sequence[Problem] = field(default_factory=tuple)


class Problems(list[Problem]):
    """The problems found so far."""

    def error(self, code: str, message: str) -> None:
        """Adds something that keeps the model from working."""
        self._add("error", code, message)

    def warning(self, code: str, message: str) -> None:
        """Adds something that may surprise."""
        self._add("warning", code, message)

    def _add(self, severity: Severity, code: str, message: str) -> None:
        self.append(Problem(severity, code, message))


def listed(names: Sequence[str], n: int = 3) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - n} more" if len(names) > n else ""
    return ", ".join(map(repr, names[:n])) + more
