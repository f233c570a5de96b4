"""Vectors in the form that the caller wants, and how similar they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from pyggml._core.c_values import any_array
from pyggml._core.checks import choice, flag, integer, shown
from pyggml._native.pooling import normalize
from pyggml.errors import InvalidParameterError
from pyggml.options.embedding_profile import DenseLayer, EmbeddingProfile, Similarity, activate

Floats = npt.NDArray[np.float32]
#: Vectors of any type: float32, float16, int8, or uint8 with a bit for each dimension.
Vectors = npt.NDArray[Any]
DType = Literal["float32", "float16", "int8", "binary"]

_INT8_MAX = 127
_BITS = 8


@dataclass(frozen=True)
class VectorForm:
    """Form of a caller's vectors.

    Attributes:
        n_columns: width of the model's vectors.
        dimensions: number of dimensions, the first ones.
        normalize: True: scale vectors to length 1.
        dtype: type of the numbers.
    """

    n_columns: int
    dimensions: int
    normalize: bool
    dtype: DType

    @classmethod
    def checked(
        cls, profile: EmbeddingProfile, n_columns: int, dimensions: int | None, normalize: bool | None, dtype: DType
    ) -> VectorForm:
        """Return the form for the arguments of a call; None: as the model's file says.

        Raises:
            InvalidParameterError: an argument is invalid, or contradicts another one.
        """
        choice("dtype", dtype, get_args(DType))
        n = n_columns
        if dimensions is not None:
            n = integer("dimensions", dimensions, 1, n_columns, f": the model's vectors have {n_columns} numbers")
        if dtype == "binary" and n % _BITS:
            raise InvalidParameterError(
                f'dtype="binary" packs eight dimensions into a byte, and {n} is no multiple of 8: pass '
                f"dimensions={n // _BITS * _BITS or _BITS}"
            )
        if normalize is None:
            return cls(n_columns, n, bool(profile.normalize), dtype)
        if flag("normalize", normalize) and dtype in ("int8", "binary"):
            raise InvalidParameterError(
                f'normalize=True needs floats: vectors of dtype="{dtype}" have no length 1. Leave normalize out; '
                "similarity() compares their directions"
            )
        return cls(n_columns, n, flag("normalize", normalize), dtype)

    def of_type(self, dtype: DType) -> VectorForm:
        """Return the same form with another type of numbers."""
        return dataclasses.replace(self, dtype=dtype)

    def __call__(self, vectors: Floats) -> Vectors:
        """Return vectors in this form, for float32, (n, n_columns), which is unchanged."""
        if self.dimensions < self.n_columns:
            vectors = np.ascontiguousarray(vectors[:, : self.dimensions])
        if self.dtype == "int8":
            return _int8(vectors)
        if self.dtype == "binary":
            return np.packbits(vectors > 0, axis=1)
        if self.normalize:
            vectors = normalize(np.array(vectors, order="C"))
        return vectors.astype(np.float16) if self.dtype == "float16" else vectors


def _int8(vectors: Floats) -> npt.NDArray[np.int8]:
    """Scale each vector so that its largest number is 127 or -127, and round."""
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0)
    return np.rint(vectors * (_INT8_MAX / np.where(largest == 0, 1, largest))).astype(np.int8)


class DenseLayers:
    """The dense layers behind a model's pooling. Each row's result does not depend on the other rows."""

    def __init__(self, layers: Sequence[tuple[DenseLayer, Floats, Floats | None]]) -> None:
        """Take each layer with its weight, (n_out, n_in), and its bias, (n_out,)."""
        self._layers = layers

    def __call__(self, vectors: Floats) -> Floats:
        """Return the output for float32, (n, n_in)."""
        for layer, weight, bias in self._layers:
            # One product per row: the sums of a product of matrices may depend on their number of rows.
            output = np.matmul(vectors[:, np.newaxis, :], weight.T)[:, 0, :]
            output = activate(layer.activation, output if bias is None else output + bias)
            vectors = np.asarray(output + vectors if layer.is_residual else output, np.float32)
        return vectors


# --- similarity -------------------------------------------------------------------------------------------------


def similarity(a: npt.ArrayLike | Sequence[Floats], b: Any, kind: Similarity) -> Floats:
    """Return the similarity of each vector of ``a`` with each of ``b``; see :meth:`LLM.similarity`."""
    if kind == "maxsim":
        return _maxsim(_matrices("a", a), _matrices("b", b))
    left, right = _rows("a", a), _rows("b", b)
    if left.shape[-1] != right.shape[-1] or (left.dtype == np.uint8) != (right.dtype == np.uint8):
        raise InvalidParameterError(
            f"a has vectors of {left.shape[-1]} {left.dtype}, and b of {right.shape[-1]} {right.dtype}: both must have "
            "the same number of dimensions, and both or neither be binary"
        )
    rows = _compare(_signs(left), _signs(right), kind)
    rows = rows if right.ndim == 2 else rows[:, 0]
    return rows if left.ndim == 2 else rows[0]


def _compare(a: Floats, b: Floats, kind: Similarity) -> Floats:
    if kind == "dot":
        return np.asarray(a @ b.T, np.float32)
    if kind == "cosine":
        return np.asarray(_unit(a) @ _unit(b).T, np.float32)
    power = 1 if kind == "manhattan" else 2
    distances = [(np.abs(b - row) ** power).sum(axis=1) ** (1 / power) for row in a]
    return np.asarray(-np.reshape(distances, (len(a), len(b))), np.float32)


def _maxsim(queries: list[Floats], documents: list[Floats]) -> Floats:
    """Sum, over the tokens of each query, the largest product with a token of the document (arXiv:2004.12832)."""
    scores = [[(query @ document.T).max(axis=1).sum() for document in documents] for query in queries]
    return np.reshape(np.asarray(scores, np.float32), (len(queries), len(documents)))


def _rows(name: str, vectors: npt.ArrayLike) -> Vectors:
    rows = any_array(name, vectors)
    if rows.ndim not in (1, 2) or rows.dtype.kind not in "iuf":
        raise InvalidParameterError(
            f"{name} must be a vector, or vectors in rows, not {rows.dtype} of shape {rows.shape}: embed texts first"
        )
    return rows


def _matrices(name: str, texts: Any) -> list[Floats]:
    """Return the token vectors of each text; a single matrix is one text."""
    rows = [texts] if isinstance(texts, np.ndarray) and texts.ndim == 2 else texts
    if not isinstance(rows, (list, tuple)) or any(np.ndim(each) != 2 for each in rows):
        raise InvalidParameterError(
            f"{name} must be token vectors of texts, a list of arrays of shape (n_tokens, n), not {shown(texts)}"
        )
    return [np.asarray(each, np.float32) for each in rows]


def _signs(rows: Vectors) -> Floats:
    """Return vectors in rows as floats; those of bits as -1 and 1."""
    rows = np.atleast_2d(rows)
    if rows.dtype == np.uint8:
        return np.unpackbits(rows, axis=1).astype(np.float32) * 2 - 1
    return np.array(rows, np.float32, order="C")


def _unit(rows: Floats) -> Floats:
    return normalize(rows.copy())
