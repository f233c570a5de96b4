"""What the answers of chats and completions have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from pyggml import ChatCompletion, Chunk, Completion
from pyggml.server.http.generation import Generation
from pyggml.server.http.request import Call
from pyggml.server.protocols.endpoint import Event

#: The last event of a stream.
DONE = Event("[DONE]")


class CachedTokens(BaseModel):
    """How many tokens of a prompt need not be computed."""

    cached_tokens: int


class Usage(BaseModel):
    """Numbers of tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens


class Answer(BaseModel):
    """An answer, or several."""

    id: str
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: Usage


def pieces(chunk: Chunk, form: dict[str, Any], nothing: dict[str, Any]) -> Iterator[Event]:
    """The events of a chunk. How the answer ended comes after its last text, in a chunk of its own, as OpenAI sends it.

    Args:
        chunk: the chunk.
        form: its form.
        nothing: what a choice has in place of news: an empty delta or text.
    """
    choice = form["choices"][0]
    reason = choice["finish_reason"]
    if chunk.logprobs or any(choice[name] for name in nothing):
        choice["finish_reason"] = None
        yield Event.of(form)
    if reason is not None:
        end = {**choice, **nothing, "logprobs": None, "finish_reason": reason}
        yield Event.of({**form, "choices": [end]})


def envelope(call: Call, generation: Generation[Any, Any], prefix: str) -> dict[str, Any]:
    """What all chunks of an answer share, as :meth:`Completion.to_dict` takes it."""
    return {
        "id": f"{prefix}-{call.id}",
        "model": generation.served.name,
        "created": generation.created,
        "tokenizer": generation.served.llm.tokenizer,
    }


def whole(completions: Sequence[Completion], n: int, about: dict[str, Any]) -> dict[str, Any]:
    """The object of a finished answer with all its choices.

    Args:
        completions: the choices, those of the first prompt first.
        n: number of choices of each prompt.
        about: its :func:`envelope`.
    """
    forms = [each.to_dict("openai", index=index, **about) for index, each in enumerate(completions)]
    choices = [form["choices"][0] for form in forms]
    return {**forms[0], "choices": choices, "usage": usage(completions, n), **timings(completions)}


def usage(completions: Sequence[Completion], n: int) -> dict[str, Any]:
    """The numbers of tokens, in which the prompt of several choices counts once."""
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


def timings(completions: Sequence[Completion]) -> dict[str, Any]:
    """How long an answer took, under llama-server's names; nothing for several choices, which share their time."""
    if len(completions) > 1:
        return {}
    took = completions[0].timings
    n_prompt, n_predicted = took.computed_tokens, took.generated_tokens
    return {
        "timings": {
            "cache_n": completions[0].cached_tokens,
            "prompt_n": n_prompt,
            "prompt_ms": 1000 * took.prefill_s,
            "prompt_per_token_ms": 1000 * took.prefill_s / n_prompt if n_prompt else 0.0,
            "prompt_per_second": n_prompt / took.prefill_s if took.prefill_s else 0.0,
            "predicted_n": n_predicted,
            "predicted_ms": 1000 * took.decode_s,
            "predicted_per_token_ms": 1000 * took.itl_s,
            "predicted_per_second": took.tokens_per_s,
        }
    }


async def respond(
    call: Call, completions: Sequence[Completion | ChatCompletion], make: Callable[[], dict[str, Any]]
) -> Response:
    """Sends an object that ``make()`` makes: beside the event loop if it has logprobs, or may repeat a long prompt."""

    def response() -> Response:
        return JSONResponse(make())

    return await (call.prepared if completions[0].logprobs is None else call.aside)(response)
