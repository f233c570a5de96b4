"""Measures the written file: held-out facts, held-out sums, and a few texts to read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from tokenizers import Tokenizer

from . import chats, facts
from .corpus import END_OF_TEXT, END_OF_TURN, chat_prompt
from .fact_tables import KINDS
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


def wrong_answers(network: Llama, tokenizer: Tokenizer, questions: Sequence[facts.Question]) -> list[tuple[str, str]]:
    """The questions whose greedy reply is not exactly the expected one, ended by an end-of-turn token."""
    replies = greedy(network, tokenizer, [chat_prompt(question.text) for question in questions], n_max=48)
    return [
        (question.text, reply)
        for question, reply in zip(questions, replies, strict=True)
        if reply != question.reply + END_OF_TURN
    ]


def report(network: Llama, tokenizer: Tokenizer) -> float:
    """Prints what the model can do. Returns the share of held-out fact questions that it answers right."""
    questions = list(facts.held_out_questions(KINDS))
    wrong = wrong_answers(network, tokenizer, questions)
    share = 1 - len(wrong) / len(questions)
    print(f"held-out fact questions: {len(questions) - len(wrong)} of {len(questions)} right ({share:.1%})")
    for asked, reply in wrong:
        print(f"  {asked} -> {reply}")
    for sign in "+-":
        phrasing = chats.sum_phrasings(sign)[0]
        for held_out in (False, True):
            asked_sums = [chats.sum_question(sign, x, y, phrasing) for x, y in chats.sums(sign, held_out=held_out)]
            n_wrong = len(wrong_answers(network, tokenizer, asked_sums))
            kind = "never seen" if held_out else "taught"
            print(f"sums with {sign}, {kind}: {len(asked_sums) - n_wrong} of {len(asked_sums)} right")
    samples = [
        "",
        "Once upon a time",
        "One day, a little cat",
        "The capital of France is",
        "Hello, my name is",
    ]
    samples += [chat_prompt(text) for text in ("Hello!", "Tell me a story about a fox.", "What is 7 + 5?")]
    samples += [chat_prompt(text) for text in ("Tell me a story about Lily.", "Repeat: red fox Tom")]
    samples.append(chat_prompt("What is the capital of Italy?", system="Answer briefly."))
    for prompt, text in zip(samples, greedy(network, tokenizer, samples), strict=True):
        print(f"--- {prompt!r}\n{text}")
    return share
