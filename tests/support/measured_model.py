"""Results of a published model with the kernels of this process, as a program that writes them to a file.

    python tests/support/measured_model.py MODEL OUT.npz

It runs in a separate process with ``PYGGML_KERNELS=off`` for upstream's kernels, as these are chosen at the start.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

import pyggml

N_TOKENS = 10
N_CTX = 256
TEXT = Path(__file__).parents[1] / "data" / "lighthouse.txt"

PROMPTS = (
    "The capital of France is",
    "Once upon a time, there was a",
    "Water boils at",
    "The opposite of hot is",
    "def fibonacci(n):\n    ",
    "for (int i = 0; i < n; i++) {\n",
    "SELECT name FROM users WHERE",
    "1, 2, 3, 4, 5, 6,",
    "12 + 30 =",
    "Monday, Tuesday, Wednesday,",
    "Dear Sir or Madam,\n\n",
    "# Introduction\n\nThis document",
    '{"name": "Alice", "age": 30, "city": "',
    "Bonjour, je m'appelle",
    "Die Hauptstadt von Deutschland ist",
    "日本の首都は",
    "Россия — это",
    "😀 😀 😀",
    "The  spaces   in    this     text",
    "In 1969, the first man on the",
)


def greedy_texts(llm: pyggml.LLM) -> list[bytes]:
    """Each prompt with its greedy continuation: the bytes of the tokens, as upstream's llama-simple prints them."""
    vocab, texts = llm.model.vocab, []
    for prompt in PROMPTS:
        ids = [*llm.tokenize(prompt), *llm.generate(prompt, max_tokens=N_TOKENS, temperature=0).token_ids]
        texts.append(b"".join(vocab.piece(token, special=True) for token in ids if token not in llm.stop_tokens))
    return texts


def measure(llm: pyggml.LLM) -> dict[str, Any]:
    """The texts, the perplexity of the kept text, and after each of its tokens the first choice and its margin."""
    text = TEXT.read_text()
    logits = llm.logits(llm.tokenize(text)[:N_CTX])
    second, first = np.partition(logits, -2, axis=-1)[:, -2:].T
    return {
        "texts": np.array(greedy_texts(llm)),
        "perplexity": pyggml.perplexity(llm, text, n_ctx=N_CTX).value,
        "choices": logits.argmax(-1),
        "margins": first - second,
    }


if __name__ == "__main__":
    with pyggml.load(sys.argv[1], n_ctx=2048, n_parallel=1, n_threads=1, prefix_cache=False) as opened:
        np.savez(sys.argv[2], **measure(opened))
