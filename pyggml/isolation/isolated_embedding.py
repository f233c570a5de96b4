"""The forward passes of an Embedder, in another process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pyggml.generation.embedding_batches import BatchEncoder, Floats, Ids, Kind, n_texts
from pyggml.isolation import messages
from pyggml.isolation.isolated_engine import matrix_of

if TYPE_CHECKING:
    from pyggml.isolation.supervisor import Isolated


class IsolatedPasses(BatchEncoder):
    """Passes whose contexts are in another process."""

    def __init__(self, isolated: Isolated, pooling: Kind) -> None:
        """Computes with a process; ``pooling`` as for :class:`~pyggml.generation.embedding_batches.GrowingContext`."""
        super().__init__(n_texts(isolated.model))
        self._isolated = isolated
        self._pooling = pooling

    def token_embeddings(self, texts: Sequence[Ids]) -> list[Floats]:
        """As the base class."""
        lengths = [len(text) for text in texts]
        rows = self._computed(texts, lengths, sum(lengths), self._isolated.model.n_embd_out)
        return np.split(rows, np.cumsum(lengths)[:-1])

    def head_outputs(self, texts: Sequence[Ids]) -> Floats:
        """As the base class."""
        return self._computed(texts, [len(text) for text in texts], len(texts), self._isolated.model.n_cls_out)

    def close(self) -> None:
        """Leaves the contexts to the process, which keeps them for the next texts."""

    def _computed(self, texts: Sequence[Ids], lengths: list[int], n_rows: int, n_columns: int) -> Floats:
        said = messages.said(do="vectors", pooling=self._pooling, lengths=lengths)
        numbers = np.concatenate(texts).astype(np.int32)
        _, data = self._isolated.process().call(said, numbers, n_rows * n_columns * 4)
        return matrix_of(data, n_rows, n_columns)
