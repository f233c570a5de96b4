"""Vectors of texts, for every protocol that has them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]


def shortened(vectors: Vectors, dimensions: int | None) -> Vectors:
    """The first numbers of each vector, scaled to length 1 again; None: all of them, as they are."""
    if dimensions is None or dimensions == vectors.shape[1]:
        return vectors
    short = vectors[:, :dimensions]
    lengths = np.linalg.norm(short, axis=1, keepdims=True)
    return np.asarray(short / np.where(lengths == 0, 1, lengths), np.float32)
