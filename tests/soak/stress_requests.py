"""Requests of the stress test to a model, and checks of their answers."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyggml import LLM, Completion

STORY = (
    "Once upon a time there was a little girl who had a red ball. She went to the park with her dog. The dog saw "
    "a big bird and ran. The girl was sad, but her mother said that the dog would come back. They sat under a tree. "
)
STOP_STRINGS = (" the", ".", " and", "dog", "\n", " said", "happy")
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "ok": {"type": "boolean"},
    },
    "required": ["name", "age", "ok"],
}


@dataclass
class Ask:
    """A prompt and its parameters, and what its answer must be like."""

    prompt: str | list[int]
    params: dict[str, Any]
    well_formed: Callable[[str], bool] = lambda _text: True  # of a text that ended by itself
    repeatable: bool = True
    cancelled: bool = False  # somebody has cancelled it, or is about to

    @property
    def is_comparable(self) -> bool:
        """Return True if each token is the likeliest that is allowed."""
        return self.repeatable and not {"temperature", "repeat_penalty", "logit_bias"} & self.params.keys()

    @property
    def key(self) -> str:
        return repr((self.prompt, sorted(self.params.items(), key=str)))


Form = Callable[[random.Random, LLM, Ask], None]


def plain(_rng: random.Random, _llm: LLM, _ask: Ask) -> None:
    pass


def nothing(_rng: random.Random, _llm: LLM, ask: Ask) -> None:
    ask.params["max_tokens"] = 0


def endless(_rng: random.Random, _llm: LLM, ask: Ask) -> None:
    ask.params["ignore_eos"] = True


def sampled(rng: random.Random, _llm: LLM, ask: Ask) -> None:
    ask.params |= {"temperature": rng.choice([0.5, 1.0, 1.5]), "top_k": rng.choice([0, 20]), "top_p": 0.95}
    ask.params["seed"] = rng.choice([1, 2, None])
    ask.repeatable = ask.params["seed"] is not None


def penalised(_rng: random.Random, _llm: LLM, ask: Ask) -> None:
    ask.params |= {"repeat_penalty": 1.3, "presence_penalty": 0.2, "frequency_penalty": 0.1}


def stop_strings(rng: random.Random, _llm: LLM, ask: Ask) -> None:
    ask.params["stop"] = tuple(rng.sample(STOP_STRINGS, rng.randint(1, 3)))


def stop_ids(rng: random.Random, llm: LLM, ask: Ask) -> None:
    ask.params["stop_token_ids"] = tuple(rng.sample(sorted(set(llm.tokenize(STORY))), 2))


def biased(rng: random.Random, llm: LLM, ask: Ask) -> None:
    ids = rng.sample(sorted(set(llm.tokenize(STORY))), 5)
    ask.params["logit_bias"] = dict.fromkeys(ids, float("-inf")) | {ids[0]: 2.0}


def grammar(_rng: random.Random, _llm: LLM, ask: Ask) -> None:
    ask.params["grammar"] = 'root ::= "yes" | "no" | "the dog " [a-z]{2,6}'
    ask.well_formed = lambda text: text in ("yes", "no") or text.startswith("the dog ")


def schema(_rng: random.Random, _llm: LLM, ask: Ask) -> None:
    ask.params["json_schema"] = SCHEMA
    ask.params["max_tokens"] = 120
    ask.well_formed = lambda text: set(json.loads(text)) == {"name", "age", "ok"}


def deadline(rng: random.Random, _llm: LLM, ask: Ask) -> None:
    ask.params["timeout_s"] = rng.choice([0.0, 0.001, 0.05, 0.3])
    ask.repeatable = False


def told(rng: random.Random, _llm: LLM, ask: Ask) -> None:
    ask.params |= {"logprobs": rng.choice([1, 5]), "prompt_logprobs": rng.choice([0, 0, 2])}


FORMS: list[tuple[float, Form]] = [
    (8, plain),
    (1, nothing),
    (2, endless),
    (3, sampled),
    (1, penalised),
    (3, stop_strings),
    (1, stop_ids),
    (1, biased),
    (2, grammar),
    (2, schema),
    (2, deadline),
    (2, told),
]


def longest(llm: LLM) -> int:
    """Tokens that one request can have: the cells are there for all together."""
    return min(llm.n_ctx, llm.model.n_ctx_train)


def some_prompt(rng: random.Random, llm: LLM) -> str | list[int]:
    """Text or ids; half of them from a short list, the rest of any length and with a common beginning or without."""
    if rng.random() < 0.5:
        return STORY[: rng.choice([16, 30, 62, 104, 160, len(STORY)])].strip()
    n = min(int(rng.expovariate(1 / 80)) + 1, longest(llm))
    story = llm.tokenize(STORY)
    ids = list(itertools.islice(itertools.cycle(story), n))
    first_own = rng.choice([0, n // 2, n - 1])
    return ids[:first_own] + [rng.choice(story) for _ in range(n - first_own)]


def some_ask(rng: random.Random, llm: LLM) -> Ask:
    ask = Ask(some_prompt(rng, llm), {"max_tokens": rng.choice([1, 5, 20, 20, 60, 150])})
    chosen(rng, FORMS)(rng, llm, ask)
    return ask


def faults_of(ask: Ask, answer: Completion, llm: LLM) -> Iterator[str]:
    """Yield the faults of an answer."""
    params, reason, n = ask.params, answer.finish_reason, len(answer.token_ids)
    can_stop = not params.get("ignore_eos")
    allowed = {"length": True, "stop": can_stop, "timeout": "timeout_s" in params, "cancelled": ask.cancelled}
    if not allowed[reason]:
        yield f"finish_reason {reason!r} was not asked for"
    if n > params["max_tokens"]:
        yield f"{n} tokens, more than max_tokens"
    if reason == "length" and n < params["max_tokens"] and answer.prompt_tokens + n <= longest(llm):
        yield f"{n} tokens, and {reason!r} although there was room for more"
    if any(stop in answer.text for stop in params.get("stop", ())):
        yield "a stop string is in the text"
    stops = {*llm.stop_tokens, *params.get("stop", ()), *params.get("stop_token_ids", ())}
    if reason == "stop" and answer.stop_reason not in stops:
        yield f"stop_reason is {answer.stop_reason!r}"
    forbidden = {token_id for token_id, bias in params.get("logit_bias", {}).items() if bias < 0}
    if forbidden & set(answer.token_ids):
        yield "a forbidden token was generated"
    if "logprobs" in params and [one.token_id for one in answer.logprobs or []] != answer.token_ids:
        yield "its logprobs are not of its tokens"
    n_told = len(answer.prompt_logprobs or [])
    if params.get("prompt_logprobs") and reason in ("stop", "length") and n_told != answer.prompt_tokens:
        yield f"{n_told} logprobs of a prompt of {answer.prompt_tokens} tokens"
    if reason == "stop" and not ask.well_formed(answer.text):
        yield "the text does not have the form asked for"


def chosen(rng: random.Random, table: Sequence[tuple[float, Any]]) -> Any:
    """One of the things in a table of (weight, thing)."""
    weights, things = zip(*table, strict=True)
    return rng.choices(things, weights)[0]
