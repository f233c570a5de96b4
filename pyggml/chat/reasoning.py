"""Limits of the tokens that a model spends on reasoning."""

from __future__ import annotations

import dataclasses

from pyggml.chat import ChatPrompt
from pyggml.chat.conversation import Conversation
from pyggml.generation.request_options import ReasoningTokens
from pyggml.tokenizer import Tokenizer
from pyggml.types import SamplingParams


def with_reasoning_tokens(
    params: SamplingParams, prompt: ChatPrompt, conversation: Conversation, tokenizer: Tokenizer
) -> tuple[SamplingParams, ReasoningTokens | None]:
    """Find the tokens that begin and end the reasoning of an answer, for ``reasoning_budget``.

    Returns:
        The parameters, without the budget if the template has no reasoning to limit; and the tokens, None without a
        budget.
    """
    if params.reasoning_budget is None or not (prompt.thinking_start and prompt.thinking_ends):
        return dataclasses.replace(params, reasoning_budget=None, reasoning_budget_message=None), None

    def ids(text: str) -> list[int]:
        return tokenizer.encode(text, add_special=False, parse_special=True)

    message, end = params.reasoning_budget_message or "", prompt.thinking_ends[0]
    tokens = ReasoningTokens(
        begun=_is_begun(prompt, continues=conversation.continues),
        start=ids(prompt.thinking_start.strip()),
        ends=[ids(each.strip()) for each in prompt.thinking_ends],
        forced=ids(message + end),
    )
    return params, tokens


def _is_begun(prompt: ChatPrompt, *, continues: bool) -> bool:
    """Return True if the prompt ends within reasoning: with the text that begins it, or in a message to continue."""
    text, start = str(prompt.text), prompt.thinking_start.strip()
    if not continues:
        return text.rstrip().endswith(start)
    return text.rfind(start) > max(text.rfind(end.strip()) for end in prompt.thinking_ends)
