"""Questions that the shipped model is sure about.

What shares a batch, or is reused, changes the order of some sums, and where two tokens are nearly as likely that can
turn the choice. Here it cannot: at every token of these answers the likeliest leads by more than 4.8 in its logit,
some hundreds of times what the arithmetic moves.
"""

from __future__ import annotations

import pyggml

#: Question -> the model's greedy answer.
ANSWERS = {
    "What colour is the sky?": "The sky is blue.",
    "What colour is grass?": "Grass is green.",
    "How many legs does a dog have?": "A dog has four legs.",
    "What does a cow say?": "A cow moos.",
    "Where do fish live?": "A fish lives in a pond.",
    "How do I boil an egg?": "I am only a small demonstration model, and I do not know that.",
}


def prompts(llm: pyggml.LLM, n: int) -> list[list[int]]:
    """The questions as the model reads them, again and again, until there are ``n``."""
    return [_prompt(llm, question) for question in _first(list(ANSWERS), n)]


def answers(n: int) -> list[str]:
    """Return the answers to :func:`prompts`."""
    return _first(list(ANSWERS.values()), n)


def _first(texts: list[str], n: int) -> list[str]:
    return [texts[i % len(texts)] for i in range(n)]


def _prompt(llm: pyggml.LLM, question: str) -> list[int]:
    text = llm.apply_chat_template([{"role": "user", "content": question}])
    return llm.tokenize(text)
