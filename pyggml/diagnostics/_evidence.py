"""What was found out about a model, before it is put together as a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyggml.diagnostics.report import FileReport, Problem, Severity, VocabularyReport
from pyggml.families import Match
from pyggml.files.model_files import Format
from pyggml.survey import Survey


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as it is stored.

    Attributes:
        name: in its file.
        type: of its elements, as the format calls it.
        n_params: weights in it.
        n_bytes: of its data.
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
class Evidence:
    """All of it.

    Attributes:
        path: of the file or directory.
        format: what that is.
        files: with weights.
        names: what the model is called, its own name first.
        tensors: as they are stored.
        n_params: weights of the model.
        metadata: of a GGUF file, or what would be in one.
        match: the family.
        survey: what the engine says.
        vocabulary: what is known of it; None: nothing.
        storage: how the weights are stored.
        is_tied: the output has no weights of its own.
        import_type: of most weights, were they imported; None: nothing is imported.
        rope: what else is known of its rotations: "scaling", "factor", "n_ctx_original".
        problems: that were met on the way.
    """

    path: Path
    format: Format
    files: Sequence[FileReport]
    names: Sequence[str]
    tensors: Sequence[StoredTensor]
    n_params: int
    metadata: Mapping[str, object]
    match: Match
    survey: Survey
    vocabulary: VocabularyReport | None
    storage: Storage
    is_tied: bool
    import_type: str | None = None
    rope: Mapping[str, Any] = field(default_factory=dict)
    problems: Sequence[Problem] = field(default_factory=tuple)


class Problems(list[Problem]):
    """Problems, as they are met."""

    def error(self, code: str, message: str) -> None:
        """Adds what keeps the model from working."""
        self._add("error", code, message)

    def warning(self, code: str, message: str) -> None:
        """Adds what may surprise."""
        self._add("warning", code, message)

    def _add(self, severity: Severity, code: str, message: str) -> None:
        self.append(Problem(severity, code, message))


def listed(names: Sequence[str], n: int = 3) -> str:
    """The first few of them."""
    more = f" and {len(names) - n} more" if len(names) > n else ""
    return ", ".join(map(repr, names[:n])) + more
