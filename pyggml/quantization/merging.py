"""Merging of LoRA adapters into the weights of a model that is written to another file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pyggml._core.checks import finite, is_path, items, shown
from pyggml.errors import InvalidParameterError, UnsupportedArchitectureError
from pyggml.files.weights import Floats, Rows, Weight
from pyggml.gguf import GGUFReader
from pyggml.importer.adapter import AdapterReport, BaseModel, check_adapter, gguf_adapter
from pyggml.importer.adapter.check import Pair, pairs_of
from pyggml.importer.plan import PlannedTensor
from pyggml.quant import GGMLType
from pyggml.units import counted

_Path = str | os.PathLike[str]
#: One adapter, several, or adapters with the factors of their changes.
Merge = _Path | Iterable[_Path] | Mapping[Any, float]


def scales_of(merge: Merge | None) -> list[tuple[_Path, float]]:
    """Return the adapters that the parameter ``merge`` names, each with its factor.

    Raises:
        InvalidParameterError: it is of another kind, a factor is not finite, or an adapter occurs twice.
    """
    if merge is None:
        return []
    if isinstance(merge, Mapping):
        pairs = [(path, finite(f"the factor of {shown(path)} in merge", scale)) for path, scale in merge.items()]
    else:
        paths = [merge] if isinstance(merge, (str, os.PathLike)) else items("merge", merge, "an adapter, or several")
        pairs = [(path, 1.0) for path in paths]
    for path, _ in pairs:
        if not is_path(path):
            raise InvalidParameterError(f"merge must name adapters by their paths, not {shown(path)}")
    names = [os.fspath(path) for path, _ in pairs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidParameterError(f"merge names {twice!r} twice; give it a factor: merge={{{twice!r}: 2.0}}")
    return pairs


@dataclass(frozen=True)
class LowRank:
    """A change of a matrix, or of a stack of them: the product of two matrices, with all factors.

    Attributes:
        left: (n_matrices, n_rows of one, rank).
        right: (n_matrices, rank, n_cols).
    """

    left: Floats
    right: Floats


class Merged(Weight):
    """A weight to which products of low rank are added. It is encoded anew, even in the type that it is stored in."""

    def __init__(self, source: Weight, changes: Sequence[LowRank]) -> None:
        """Take the weight, and changes of its shape."""
        self._source, self._changes = source, changes
        self.n_rows, self.n_cols, self.type = source.n_rows, source.n_cols, source.type

    def in_type(self, type: GGMLType) -> Weight | None:
        """None: what is stored is another weight."""
        del type
        return None

    def floats(self, rows: Rows) -> Floats:
        """See :class:`~pyggml.files.weights.Weight`."""
        if not isinstance(rows, slice):
            raise TypeError("rows of a merged weight must be read with a slice")
        start, stop, _ = rows.indices(self.n_rows)
        values: Floats = self._source.floats(rows).copy()
        for change in self._changes:
            n_each = change.left.shape[1]
            for matrix in range(start // n_each, -(-stop // n_each)):
                top = matrix * n_each
                first, last = max(start, top), min(stop, top + n_each)
                rows_of_matrix = change.left[matrix, first - top : last - top]
                with np.errstate(over="ignore", invalid="ignore"):  # checked below
                    values[first - start : last - start] += rows_of_matrix @ change.right[matrix]
        if not np.isfinite(values).all():
            raise InvalidParameterError("with the adapters merged into it, it has values that are infinite or NaN")
        return values


@contextlib.contextmanager
def merged(
    path: Path, tensors: Sequence[PlannedTensor], adapters: Sequence[tuple[_Path, float]]
) -> Iterator[tuple[list[PlannedTensor], list[str]]]:
    """Yield a model's tensors with adapters merged into them, and notes on what was merged.

    Args:
        path: the model's GGUF file.
        tensors: its tensors.
        adapters: the adapters, each with the factor of its change.

    Raises:
        ModelNotFoundError, ModelLoadError, ArchitectureMismatchError: as
            :func:`~pyggml.importer.adapter.check_adapter`.
        UnsupportedArchitectureError: as there, or the adapter takes effect only after certain tokens.
    """
    if not adapters:
        yield list(tensors), []
        return
    base = BaseModel.of_gguf(path)
    changes: dict[str, list[LowRank]] = {}
    notes = []
    for source, scale in adapters:
        with gguf_adapter(source, base) as file:
            report = check_adapter(file, base)
            _require_permanent(report, source)
            with GGUFReader(file) as reader:
                for pair in pairs_of(reader):
                    factor = scale * pair.target.scale(report.alpha)
                    changes.setdefault(pair.name, []).append(_low_rank(reader, pair, factor))
            times = "" if scale == 1 else f", times {scale:g}"
            notes.append(f"merged {os.fspath(source)} into {counted(len(report.targets), 'tensor')}{times}")
    yield [_with(tensor, changes.get(tensor.name)) for tensor in tensors], notes


def _require_permanent(report: AdapterReport, source: _Path) -> None:
    if report.invocation_tokens:
        raise UnsupportedArchitectureError(
            f"{os.fspath(source)} takes effect after certain tokens only (aLoRA), so it cannot be merged"
        )


def _low_rank(reader: GGUFReader, pair: Pair, scale: float) -> LowRank:
    a = reader.dequantized(pair.a.name).reshape(pair.shape_a)
    b = reader.dequantized(pair.b.name).reshape(pair.shape_b)
    left, right = (a, b.T) if pair.is_embedding else (b, a)
    with np.errstate(over="ignore"):  # checked where it is added
        left = np.multiply(left, np.float32(scale), dtype=np.float32)
    return LowRank(left.reshape(-1, *left.shape[-2:]), np.ascontiguousarray(right).reshape(-1, *right.shape[-2:]))


def _with(tensor: PlannedTensor, changes: list[LowRank] | None) -> PlannedTensor:
    if changes is None:
        return tensor
    if not tensor.weight.type.is_convertible:
        raise UnsupportedArchitectureError(
            f"tensor {shown(tensor.name)} is of type {tensor.weight.type.name}, to which nothing can be added"
        )
    return replace(tensor, weight=Merged(tensor.weight, changes))
