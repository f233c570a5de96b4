"""Common parts of the responses of chats and completions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

from pydantic import BaseModel

import pyggml
from pyggml import Chunk, Completion
from pyggml.server.http.generation import Generation
from pyggml.server.http.sse import Event
from pyggml.server.models.pool import LoadedModel
from pyggml.server.protocols.openai.generation_request import GenerationRequest

Json = dict[str, Any]


class CachedTokens(BaseModel):
    """Number of prompt tokens found in the prefix cache."""

    cached_tokens: int


class Usage(BaseModel):
    """Numbers of tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens


class GenerationResponse(BaseModel):
    """One or more choices."""

    id: str
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: Usage


def common_fields(request_id: str, generation: Generation[Any, Any], prefix: str) -> Json:
    """Return the common fields of all chunks of a response, as :meth:`Completion.to_dict` takes them."""
    return {
        "id": f"{prefix}-{request_id}",
        "model": generation.model.name,
        "created": generation.created,
        "tokenizer": generation.model.llm.tokenizer,
    }


def fingerprint(model: LoadedModel) -> Json:
    """Return OpenAI's field for the system, whose value changes with the model and with pyggml's version."""
    facts = (pyggml.__version__, model.name, model.llm.model.size_bytes, model.llm.model.n_params)
    return {"system_fingerprint": f"fp_{sha256(repr(facts).encode()).hexdigest()[:16]}"}


def chunk_events(chunk: Chunk, form: Json, empty: Json) -> Iterator[Event]:
    """Yield the events of a chunk. As in OpenAI's API, the finish reason comes in a separate event after the text.

    ``form`` is the chunk's JSON object; ``empty`` has the fields of a choice without new text, such as an empty delta.
    """
    choice = form["choices"][0]
    end = {name: choice.pop(name) for name in ("finish_reason", "stop_reason") if name in choice}
    if chunk.logprobs or any(choice[name] for name in empty):
        yield Event.of({**form, "choices": [{**choice, "finish_reason": None}]})
    if chunk.finish_reason is not None:
        end = {**choice, **empty, "logprobs": None, **end}
        yield Event.of({**form, "choices": [end]})


def last_events(form: Json, completions: Sequence[Completion], body: GenerationRequest) -> Iterator[Event]:
    """Yield the last events of a stream: the usage, if it is requested, and OpenAI's end marker."""
    if body.wants_usage:
        yield Event.of(form | {"choices": [], "usage": usage(completions, body.n_choices), **timings(completions)})
    yield Event("[DONE]")


def completion(completions: Sequence[Completion], n: int, common: Json) -> Json:
    """Return the whole response: ``n`` choices of each prompt, those of the first prompt first."""
    forms = [each.to_dict("openai", index=index, **common) for index, each in enumerate(completions)]
    choices = [form["choices"][0] for form in forms]
    return {**forms[0], "choices": choices, "usage": usage(completions, n), **timings(completions)}


def usage(completions: Sequence[Completion], n: int) -> Json:
    """Return the numbers of tokens. The prompt of several choices counts once."""
    prompts = [completions[first : first + n] for first in range(0, len(completions), n)]
    n_prompt = sum(choices[0].prompt_tokens for choices in prompts)
    n_generated = sum(len(each.token_ids) for each in completions)
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_generated,
        "total_tokens": n_prompt + n_generated,
        "prompt_tokens_details": {
            "cached_tokens": sum(min(each.cached_tokens for each in choices) for choices in prompts)
        },
    }


def timings(completions: Sequence[Completion]) -> Json:
    """Return llama-server's timings; nothing for several choices, which share their time."""
    if len(completions) > 1:
        return {}
    times = completions[0].timings
    n_prompt, n_predicted = times.computed_tokens, times.generated_tokens
    return {
        "timings": {
            "cache_n": completions[0].cached_tokens,
            "prompt_n": n_prompt,
            "prompt_ms": 1000 * times.prefill_s,
            "prompt_per_token_ms": 1000 * times.prefill_s / n_prompt if n_prompt else 0.0,
            "prompt_per_second": n_prompt / times.prefill_s if times.prefill_s else 0.0,
            "predicted_n": n_predicted,
            "predicted_ms": 1000 * times.decode_s,
            "predicted_per_token_ms": 1000 * times.itl_s,
            "predicted_per_second": times.tokens_per_s,
        }
    }
