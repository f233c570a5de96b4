"""Requests that fill in text."""

from __future__ import annotations

import dataclasses

from pyggml.generation.infill.prompt import InfillPrompts, InfillTexts
from pyggml.generation.pending_request import LONG_TEXT, PromptRequest
from pyggml.tokenizer import Tokenizer
from pyggml.types import SamplingParams


class InfillRequest(PromptRequest):
    """A request to fill in the text between two others, which are tokenized when it is submitted."""

    def __init__(
        self,
        texts: InfillTexts,
        prompts: InfillPrompts,
        params: SamplingParams,
        tokenizer: Tokenizer,
        *,
        max_prompt_tokens: int | None,
        waits_for_capacity: bool,
    ) -> None:
        """Keep the texts; ``prompts`` makes a prompt of them, of at most ``max_prompt_tokens``."""
        super().__init__((), params, tokenizer, parse_special=True, waits_for_capacity=waits_for_capacity)
        self._texts = texts
        self._prompts = prompts
        self._max_prompt_tokens = max_prompt_tokens

    @property
    def is_slow(self) -> bool:
        """True if submitting it may take more than a millisecond or two."""
        return self._texts.n_chars > LONG_TEXT or super().is_slow

    def _prompt_and_params(self) -> tuple[list[int], SamplingParams]:
        prompt = self._prompts.prompt(self._texts, self._max_prompt_tokens)
        stop_token_ids = (*self.params.stop_token_ids, *prompt.stop_token_ids)
        return prompt.token_ids, dataclasses.replace(self.params, stop_token_ids=stop_token_ids)
