"""Embedding vectors, as all protocols need them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]

#: Terms in messages of the library for endpoints that do not truncate texts.
NO_TRUNCATION: Mapping[str, str] = {", pass truncate=True": "", ", or pass truncate=True": ""}


def truncate_dimensions(vectors: Vectors, dimensions: int | None) -> Vectors:
    """Return the first ``dimensions`` of each vector, scaled to length 1 again; None: the vectors unchanged."""
    if dimensions is None or dimensions == vectors.shape[1]:
        return vectors
    short = vectors[:, :dimensions]
    lengths = np.linalg.norm(short, axis=1, keepdims=True)
    return np.asarray(short / np.where(lengths == 0, 1, lengths), np.float32)
