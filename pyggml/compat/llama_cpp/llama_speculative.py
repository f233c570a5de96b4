"""Draft models: guesses of the tokens that come next, which the model then checks in one forward pass."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.intc]


class LlamaDraftModel(abc.ABC):
    """A guesser of tokens: ``draft(input_ids)`` returns guesses of those that follow, intc, (n,)."""

    @abc.abstractmethod
    def __call__(self, input_ids: Ids, /, **kwargs: Any) -> Ids:
        """Return guesses of the tokens that follow ``input_ids``; an empty array: none."""


class LlamaPromptLookupDecoding(LlamaDraftModel):
    """Guesses that the text goes on as it did after an earlier occurrence of its last tokens (prompt lookup).

    Completions and chats do not call it: the engine looks up prompts, with as many guesses as pay.

    Attributes:
        max_ngram_size: number of last tokens to look for; fewer if those did not occur before.
        num_pred_tokens: maximum number of guesses.
    """

    def __init__(self, max_ngram_size: int = 2, num_pred_tokens: int = 10) -> None:
        self.max_ngram_size = max_ngram_size
        self.num_pred_tokens = num_pred_tokens

    def __call__(self, input_ids: Ids, /, **kwargs: Any) -> Ids:  # noqa: ARG002
        """Return guesses of the tokens that follow."""
        return self.find_candidate_pred_tokens(input_ids, self.max_ngram_size, self.num_pred_tokens)

    @staticmethod
    def find_candidate_pred_tokens(input_ids: Ids, max_ngram_size: int, num_pred_tokens: int) -> Ids:
        """Return the tokens after the first earlier occurrence of the longest possible n-gram at the end.

        Args:
            input_ids: the tokens so far, integers, (n,).
            max_ngram_size: length of the longest n-gram.
            num_pred_tokens: maximum number of tokens to return.
        """
        n_tokens = len(input_ids)
        for n in range(min(max_ngram_size, n_tokens - 1), 0, -1):
            # The last window is the end itself, which nothing follows.
            windows = np.lib.stride_tricks.sliding_window_view(input_ids, n)[:-1]
            (starts,) = np.nonzero((windows == input_ids[-n:]).all(axis=1))
            if len(starts):
                follows = int(starts[0]) + n
                return input_ids[follows : follows + num_pred_tokens]
        return np.array([], dtype=np.intc)
