"""Texts of one call in a forward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from pyggml._native.token_batch import TokenBatch

Floats = npt.NDArray[np.float32]
#: "pooled": a vector of each text; "tokens": the vectors of its tokens; "scores": the outputs of the model's head.
ResultKind = Literal["pooled", "tokens", "scores"]


@dataclass(frozen=True)
class PassTexts:
    """Texts of one call in a pass.

    Attributes:
        texts: their token ids.
        kind: what to compute for each text; the same for all texts of a pass.
        pooling: for "pooled": kinds of pooling, whose results are concatenated.
        n_skipped: for "pooled": tokens at the beginning of each text that are left out.
    """

    texts: TokenBatch
    kind: ResultKind
    pooling: tuple[str, ...] = ()
    n_skipped: int = 0

    @property
    def n_rows(self) -> int:
        """Number of rows of the result: one for each text, or for "tokens" one for each token."""
        return len(self.texts.ids if self.kind == "tokens" else self.texts.lengths)
