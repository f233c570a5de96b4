"""Token ids of many texts in one array."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]


class TokenBatch(NamedTuple):
    """Token ids of several texts, one after the other.

    Attributes:
        ids: the tokens of all texts, int32, (n_tokens,).
        lengths: number of tokens of each text, int32, (n_texts,).
    """

    ids: Ids
    lengths: Ids

    @classmethod
    def join(cls, texts: Iterable[Sequence[int] | Ids]) -> TokenBatch:
        """Join the token ids of separate texts."""
        rows = [np.asarray(text, np.int32) for text in texts]
        lengths = np.fromiter(map(len, rows), np.int32, len(rows))
        return cls(np.concatenate(rows) if rows else np.empty(0, np.int32), lengths)

    def split(self) -> list[Ids]:
        """Return the token ids of each text: views, int32."""
        return np.split(self.ids, np.cumsum(self.lengths)[:-1]) if len(self.lengths) else []

    def take(self, order: npt.NDArray[np.intp]) -> TokenBatch:
        """Return the texts with these indices, in this order."""
        starts = np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])[:-1]
        lengths = self.lengths[order]
        # The index of each token: that of its text's first token, plus the distance from it.
        firsts = np.cumsum(lengths, dtype=np.int64) - lengths
        index = np.arange(len(self.ids) if len(order) == len(starts) else int(lengths.sum()), dtype=np.int64)
        return TokenBatch(self.ids[index + np.repeat(starts[order] - firsts, lengths)], lengths)
