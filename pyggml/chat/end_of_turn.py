"""Texts with which a template ends an answer.

A model that was not trained with a template has no stop token for its end of turn, so the text becomes a stop string.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyggml._native.model import Model
from pyggml.errors import InferError, TokenizerError
from pyggml.families import of_model, stop_tokens

Render = Callable[[list[dict[str, Any]]], str]

_TEXTS = ("pyggmlasks", "pyggmlanswers", "pyggmlreplies")
_CONVERSATION = [
    {"role": role, "content": text} for role, text in zip(("user", "assistant", "user"), _TEXTS, strict=True)
]


def turn_end_texts(render: Render, model: Model) -> tuple[str, ...]:
    """Return the texts with which a model that may not know the template ends an answer.

    The first is the end of the turn, such as ``<|im_end|>``. If it is a stop token of the model, no text is needed.
    Otherwise the model may continue with the user's turn, so the second is the start of that turn, such as a line break
    and ``USER:``; some templates have only that. ``render`` renders a conversation without the beginning of an answer.
    """
    ends = _stop_texts(model)
    end, beginning = _between_turns(render)
    if end in ends:
        return ()
    is_token = model.vocab.find(beginning.strip()) is not None
    texts = (end, beginning.strip() if is_token else beginning)
    return tuple(text for text in texts if text.strip() and text not in ends)


def _between_turns(render: Render) -> tuple[str, str]:
    """Return the end of an answer's turn and the start of the next one; "" for a text that the template lacks."""
    _, answer, reply = _TEXTS
    try:
        _, ended, end = render(_CONVERSATION[:2]).rpartition(answer)
        _, continued, more = render(_CONVERSATION).rpartition(answer)
    except InferError:
        return "", ""
    between, replied, _ = more.partition(reply)
    if not (ended and continued and replied):
        return "", ""
    end = end.strip()
    return end, between.partition(end)[2].rstrip() if end else between.rstrip()


def _stop_texts(model: Model) -> set[str]:
    try:
        return set(stop_tokens(model, of_model(model).family).values())
    except TokenizerError:
        return set()  # generating with the model raises this error
