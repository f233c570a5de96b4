"""Logits processors and stopping criteria, which a loop over single tokens calls."""

from __future__ import annotations

import numpy as np

from pyggml.compat._llama.token_loop import Ids, LogitsProcessor, Scores, StoppingCriterion

StoppingCriteria = StoppingCriterion


class LogitsProcessorList(list[LogitsProcessor]):
    """Logits processors, applied in order."""

    def __call__(self, input_ids: Ids, scores: Scores) -> Scores:
        """Return the logits as all of them change them.

        Args:
            input_ids: the tokens so far, intc, (n,).
            scores: logits, float32, (n_vocab,).
        """
        for processor in self:
            scores = processor(input_ids, scores)
        return scores


class StoppingCriteriaList(list[StoppingCriteria]):
    """Stopping criteria, of which one is enough."""

    def __call__(self, input_ids: Ids, logits: Scores) -> bool:
        """Return True if one of them is met; all are called.

        Args:
            input_ids: the tokens so far, intc, (n,).
            logits: logits, float32, (n_vocab,).
        """
        met = [criterion(input_ids, logits) for criterion in self]
        return any(met)


class MinTokensLogitsProcessor:
    """A logits processor that forbids a token until a minimum number of tokens has been generated.

    Attributes:
        min_tokens: the minimum number of tokens.
        token_eos: the token.
        prompt_tokens: length of the prompt, once it is known.
    """

    def __init__(self, min_tokens: int, token_eos: int) -> None:
        """Keep the arguments, which are the attributes."""
        self.min_tokens = min_tokens
        self.token_eos = token_eos
        self.prompt_tokens: int | None = None

    def __call__(self, input_ids: Ids, scores: Scores) -> Scores:
        """Return the logits, without the token while there are too few.

        Args:
            input_ids: the tokens so far, intc, (n,).
            scores: logits, float32, (n_vocab,).
        """
        if self.prompt_tokens is None:
            self.prompt_tokens = len(input_ids)
        if len(input_ids) - self.prompt_tokens < self.min_tokens:
            scores[self.token_eos] = -np.inf
        return scores
