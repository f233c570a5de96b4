"""Random requests, with and without guessed tokens, whose results must be equal bit for bit."""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np

import pyggml
from pyggml import LLM, Completion

FORMATS: tuple[dict[str, Any], ...] = (
    {"regex": "(the name is |the colour is )[a-z]{3,8}(, thank you)?\\."},
    {"choices": ["yes, of course", "yes, but later", "no"]},
    {"grammar": 'root ::= "begin " ("one " | "two ")* "the end"'},
    {
        "json_schema": {
            "type": "object",
            "properties": {
                "first_name": {"type": "string", "maxLength": 5},
                "children": {"type": "array", "items": {"enum": ["Amelia", "Amadeus"]}, "maxItems": 4},
                "is_married": {"type": "boolean"},
            },
            "required": ["first_name", "children", "is_married"],
            "additionalProperties": False,
        }
    },
)


def random_request(rng: random.Random, texts: list[str] | None = None) -> tuple[list[int] | str, dict[str, Any]]:
    """A prompt that repeats itself, and parameters. With ``texts``, the prompt is text."""
    params: dict[str, Any] = {"max_tokens": rng.choice((1, 2, 7, 20, 40)), "seed": rng.randrange(1000)}
    params["temperature"] = rng.choice((0, 0, 0.3, 0.7, 1.0, 1.5))
    if params["temperature"]:
        params |= rng.choice(
            ({}, {}, {"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.2}, {"xtc_probability": 0.5}, {"mirostat": 2})
        )
    if "mirostat" not in params:
        params |= rng.choice(({}, {}, {"frequency_penalty": 0.5}, {"repeat_penalty": 1.3}, {"dry_multiplier": 0.8}))
    if rng.random() < 0.6:
        params |= {"logprobs": rng.choice((1, 4)), "logprobs_mode": rng.choice(("raw", "processed")) + "_logprobs"}
    kind = rng.random()
    if kind < 0.3:
        params |= rng.choice(FORMATS)
    elif kind < 0.5:
        params["ignore_eos"] = True
    elif kind < 0.6:
        params["min_tokens"] = min(5, params["max_tokens"])
    if rng.random() < 0.2 and kind >= 0.3:
        params["stop"] = [rng.choice("aeth")]
    if rng.random() < 0.6:  # few likely tokens, so that many repeat what came before
        params["logit_bias"] = {rng.randrange(1, 250): rng.choice((5.0, 8.0)) for _ in range(rng.randrange(1, 4))}
    if rng.random() < 0.1:
        params["stop_token_ids"] = [rng.randrange(250)]
    if rng.random() < 0.1:
        params["bad_words"] = [[rng.randrange(250)]]
    if texts:
        return rng.choice(texts) * rng.randrange(1, 4), params
    block = [rng.randrange(1, 250) for _ in range(rng.randrange(1, 12))]
    return (block * rng.randrange(1, 8))[: rng.randrange(1, 70)], params


def facts(done: Completion) -> tuple[Any, ...]:
    """Everything that must be equal, logprobs as their bits."""
    bits = [
        np.array([each.token_id, each.logprob, *(n for other in each.top for n in other)]).tobytes()
        for each in done.logprobs or ()
    ]
    return done.text, done.token_ids, bits, done.finish_reason, done.stop_reason


def answer(llm: LLM, prompt: list[int] | str, params: dict[str, Any]) -> tuple[Any, ...]:
    """The facts of a generation, or its error: parameters may leave no token."""
    try:
        return facts(llm.generate(prompt, **params))
    except pyggml.InferError as error:
        return type(error), str(error)


def check(
    expected: LLM,
    found: LLM,
    rng: random.Random,
    n: int,
    texts: list[str] | None = None,
    speculative: str | None = None,
) -> None:
    """Ask for ``n`` random generations, in batches of random sizes, each with and without guesses.

    ``speculative`` is the parameter of all of them; None: a random one of each.
    """
    asked = [random_request(rng, texts) for _ in range(n)]
    guessing = [
        params | {"num_speculative_tokens": rng.choice((1, 2, 4, 8, 15, None))} | _proposer(rng, params, speculative)
        for _, params in asked
    ]
    alone = [answer(expected, prompt, params) for prompt, params in asked]
    together: list[tuple[Any, ...]] = [()] * n
    todo = list(range(n))
    lock = threading.Lock()

    def caller() -> None:
        while True:
            with lock:
                if not todo:
                    return
                i = todo.pop()
            together[i] = answer(found, asked[i][0], guessing[i])

    callers = [threading.Thread(target=caller) for _ in range(rng.choice((1, 4, 10)))]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    for i in range(n):
        assert together[i] == alone[i], (asked[i], guessing[i])


def _proposer(rng: random.Random, params: dict[str, Any], speculative: str | None) -> dict[str, str]:
    if speculative:
        return {"speculative": speculative}
    has_format = any(name in params for form in FORMATS for name in form)
    return {"speculative": rng.choice(("auto", "lookup", "forced") if has_format else ("auto", "lookup"))}
