"""Evaluate the written file: held-out questions, and a few sample texts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from tokenizers import Tokenizer

from . import held_out
from .corpus import END_OF_TEXT, END_OF_TURN, chat_prompt
from .held_out import Asked
from .network import Llama
from .vocabulary import special_id


def greedy(network: Llama, tokenizer: Tokenizer, prompts: Sequence[str], n_max: int = 200) -> list[str]:
    """The greedy continuation of each prompt, up to and including the special token that ends it."""
    end = special_id(tokenizer, END_OF_TEXT)
    stops = {end, special_id(tokenizer, END_OF_TURN)}
    encoded = [[end, *tokenizer.encode(prompt, add_special_tokens=False).ids] for prompt in prompts]
    alike: dict[int, list[int]] = defaultdict(list)
    for i, prompt in enumerate(encoded):
        alike[len(prompt)].append(i)
    texts = [""] * len(prompts)
    for length, rows in alike.items():
        ids = torch.tensor([encoded[i] for i in rows])
        for _ in range(min(n_max, network.config.n_ctx - length)):
            with torch.no_grad():
                ids = torch.cat([ids, network(ids)[:, -1].argmax(-1, keepdim=True)], dim=1)
            if all(stops & set(row) for row in ids[:, length:].tolist()):
                break
        for i, row in zip(rows, ids[:, length:].tolist(), strict=True):
            stop = next((n + 1 for n, token in enumerate(row) if token in stops), len(row))
            texts[i] = tokenizer.decode(row[:stop], skip_special_tokens=False)
    return texts


def wrong_answers(network: Llama, tokenizer: Tokenizer, asked: Sequence[Asked]) -> list[tuple[str, str]]:
    """The questions whose greedy reply is not exactly the expected one, ended by an end-of-turn token."""
    replies = greedy(network, tokenizer, [chat_prompt(one.question, one.system) for one in asked], n_max=48)
    return [
        (one.question, reply) for one, reply in zip(asked, replies, strict=True) if reply != one.answer + END_OF_TURN
    ]


def report(network: Llama, tokenizer: Tokenizer) -> float:
    """Print the model's scores, and return the lowest share of right answers among the held-out questions."""
    shares = []
    for name, asked in (
        ("facts", held_out.fact_questions()),
        ("sums", held_out.sum_questions()),
        ("system messages", held_out.styled_questions()),
    ):
        wrong = wrong_answers(network, tokenizer, asked)
        shares.append(1 - len(wrong) / len(asked))
        print(f"held-out {name}: {len(asked) - len(wrong)} of {len(asked)} right ({shares[-1]:.1%})")
        for question, reply in wrong[:40]:
            print(f"  {question} -> {reply}")
    samples = [
        "",
        "Once upon a time",
        "One day, a little cat",
        "The capital of France is",
        "Hello, my name is",
    ]
    samples += [chat_prompt(text) for text in ("Hello!", "Tell me a story about a fox.", "How do I boil an egg?")]
    samples += [chat_prompt(text) for text in ("Tell me a story about Lily.", "Repeat: red fox Tom")]
    samples.append(chat_prompt("What is the capital of Italy?", system="Answer briefly."))
    for prompt, text in zip(samples, greedy(network, tokenizer, samples), strict=True):
        print(f"--- {prompt!r}\n{text}")
    return min(shares)
