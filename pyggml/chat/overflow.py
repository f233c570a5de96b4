"""Conversations that are too long for the context: the oldest turns are left out, as ``overflow="shift"`` asks for."""

from __future__ import annotations

import dataclasses
import json
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise

from pyggml.chat.conversation import Conversation
from pyggml.chat.messages import JSONMessage

# Most characters for each token of the context that are rendered to see whether they fit. Text has four; more than this
# has only white space.
_MAX_TOKEN_CHARS = 64
# Characters of text for each token, on average.
_TOKEN_CHARS = 4
# A conversation is cut at the same turns while it grows by this part of the context, so that the prompts of the next
# turns begin like this one and are found in the prefix cache.
_STEPS_PER_CONTEXT = 4


def fitted(
    conversation: Conversation, n_ctx: int, max_tokens: int, n_tokens: Callable[[Conversation], int]
) -> Conversation:
    """Return the conversation without its oldest turns, as few as it takes for the prompt and ``max_tokens`` to fit.

    The messages before the first turn (the system's) and the last turn always stay, so the prompt may still be too
    long. A turn begins with a message of the user and ends before the next one that follows another role.

    Args:
        conversation: the conversation.
        n_ctx: size of the context in tokens.
        max_tokens: number of tokens to keep free, at most half of the context; -1: half of it.
        n_tokens: returns the length of a conversation's prompt.
    """
    messages = conversation.messages
    limit = n_ctx - (n_ctx // 2 if max_tokens < 0 else min(max_tokens, n_ctx // 2))
    turns = _turns(messages)
    if len(turns) < 2:
        return conversation
    sizes = [len(json.dumps(message, ensure_ascii=False)) for message in messages]

    def cut(start: int) -> Conversation:
        kept = [*messages[: turns[0]], *messages[start:]]
        return conversation if start == turns[0] else dataclasses.replace(conversation, messages=kept)

    def fits(start: int) -> bool:
        n_chars = sum(sizes[: turns[0]]) + sum(sizes[start:])
        return n_chars <= n_ctx * _MAX_TOKEN_CHARS and n_tokens(cut(start)) <= limit

    if fits(turns[0]):
        return conversation
    for starts in (_stable_starts(turns, sizes, n_ctx), turns):
        index = bisect_left(starts, True, key=fits)
        if index < len(starts):
            return cut(starts[index])
    return cut(turns[-1])


def _turns(messages: Sequence[JSONMessage]) -> list[int]:
    """Return the index of each turn's first message."""
    return [
        i
        for i, message in enumerate(messages)
        if message["role"] == "user" and (i == 0 or messages[i - 1]["role"] != "user")
    ]


def _stable_starts(turns: Sequence[int], sizes: Sequence[int], n_ctx: int) -> list[int]:
    """Return the turns that are the first to begin after some multiple of a step, in characters of the conversation."""
    step = max(1, n_ctx * _TOKEN_CHARS // _STEPS_PER_CONTEXT)
    starts, n_chars, n_steps = [], 0, 0
    for turn, next_turn in pairwise(turns):
        n_chars += sum(sizes[turn:next_turn])
        if n_chars // step > n_steps:
            n_steps = n_chars // step
            starts.append(next_turn)
    return starts
