"""Proxy of an Embedder's contexts in the engine's process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pyggml.generation.embedding_batches import BatchEncoder, Floats, Ids, Kind, n_texts
from pyggml.isolation import protocol
from pyggml.isolation.isolated_engine import decode_matrix

if TYPE_CHECKING:
    from pyggml.isolation.supervisor import Isolated


class IsolatedPasses(BatchEncoder):
    """Forward passes in the engine's process."""

    def __init__(self, isolated: Isolated, pooling: Kind) -> None:
        """Use a process; ``pooling`` as for :class:`~pyggml.generation.embedding_batches.GrowingContext`."""
        super().__init__(n_texts(isolated.model))
        self._isolated = isolated
        self._pooling = pooling

    def token_embeddings(self, texts: Sequence[Ids]) -> list[Floats]:
        """See the base class."""
        lengths = [len(text) for text in texts]
        rows = self._embed(texts, lengths, sum(lengths), self._isolated.model.n_embd_out)
        return np.split(rows, np.cumsum(lengths)[:-1])

    def head_outputs(self, texts: Sequence[Ids]) -> Floats:
        """See the base class."""
        return self._embed(texts, [len(text) for text in texts], len(texts), self._isolated.model.n_cls_out)

    def close(self) -> None:
        """Do nothing: the process keeps its contexts for the next texts."""

    def _embed(self, texts: Sequence[Ids], lengths: list[int], n_rows: int, n_columns: int) -> Floats:
        request = protocol.encode_request("embed", pooling=self._pooling, lengths=lengths)
        token_ids = np.concatenate(texts).astype(np.int32)
        _, data = self._isolated.process().call(request, token_ids, n_rows * n_columns * 4)
        return decode_matrix(data, n_rows, n_columns)
