"""Pooling of token vectors to vectors of texts, and their normalisation, in native code without the GIL."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pyggml._core import c_calls
from pyggml._core.c_values import pointer
from pyggml._core.ffi import ffi, lib

Floats = npt.NDArray[np.float32]

_KINDS: dict[str, int] = {
    "cls": lib.PYG_POOLING_CLS,
    "last": lib.PYG_POOLING_LAST,
    "mean": lib.PYG_POOLING_MEAN,
    "max": lib.PYG_POOLING_MAX,
    "mean_sqrt_len": lib.PYG_POOLING_MEAN_SQRT_LEN,
    "weighted_mean": lib.PYG_POOLING_WEIGHTED_MEAN,
}


def pooled(rows: Floats, lengths: npt.NDArray[np.int32], kinds: Sequence[str], n_skipped: int = 0) -> Floats:
    """Pool the token vectors of texts. The result for a text does not depend on the other texts, to the bit.

    Args:
        rows: vectors of all texts' tokens, one text after the other, float32, (sum of lengths, n_columns).
        lengths: number of tokens of each text, at least 1, int32, (n_texts,).
        kinds: kinds of pooling (``pyggml.options.embedding_profile.Pooling``), whose results are concatenated.
        n_skipped: number of tokens at the beginning of each text to leave out; its last token is never left out.

    Returns:
        float32, (n_texts, n_columns * len(kinds)).
    """
    rows, lengths = np.ascontiguousarray(rows, np.float32), np.ascontiguousarray(lengths, np.int32)
    n_columns, n_texts = rows.shape[1], len(lengths)
    vectors = np.empty((n_texts, n_columns * len(kinds)), np.float32)
    if n_texts:
        source, sizes, target = pointer("float[]", rows), pointer("int32_t[]", lengths), pointer("float[]", vectors)
        for index, kind in enumerate(kinds):
            numbers = n_skipped, _KINDS[kind], target + index * n_columns, vectors.shape[1]
            c_calls.call(lib.pyg_pool, source, n_columns, sizes, n_texts, *numbers)
    return vectors


def normalize(vectors: Floats) -> Floats:
    """Scale vectors to length 1 in place and return them; zero vectors stay unchanged.

    Args:
        vectors: contiguous float32, (n, n_columns).
    """
    if vectors.size:
        lib.pyg_normalize_rows(ffi.from_buffer("float[]", vectors), vectors.shape[0], vectors.shape[1])
    return vectors
