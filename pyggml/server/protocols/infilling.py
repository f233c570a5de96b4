"""Infilling: ``suffix`` of several protocols, and llama-server's ``/infill``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, cast

from pydantic import BaseModel, ConfigDict
from pydantic import Field as BodyField
from starlette.responses import Response

from pyggml import ChatChunk, Chunk, Completion, InvalidParameterError
from pyggml.server.http import errors
from pyggml.server.http.generation import Generation, submit_prompts, whole_response
from pyggml.server.http.request import ServerRequest
from pyggml.server.http.request_body import Body
from pyggml.server.http.sse import EVENTS, Event
from pyggml.server.http.streaming import stream_events
from pyggml.server.models.pool import DEFAULT, LoadedModel
from pyggml.server.protocols.endpoint import Endpoint
from pyggml.server.protocols.sampling_fields import Sampling, sampling_overrides

Json = dict[str, Any]

_STOP_TYPES = {"length": "limit", "timeout": "limit", "cancelled": "limit"}


def infill_prompts(
    model: LoadedModel, prefixes: Sequence[str | list[int]], suffix: str, sampling: Mapping[str, Any]
) -> tuple[list[str | list[int]], Mapping[str, Any]]:
    """Return the prompts for infilling between each prefix and a suffix, and the sampling parameters for them.

    Raises:
        RequestError: 400, the model has no tokens for it, or a prefix is not a text.
    """
    if not all(isinstance(prefix, str) for prefix in prefixes):
        raise errors.invalid("suffix: it takes prompts that are texts, not token IDs", "suffix")
    try:
        prompts = [model.llm.infill_prompt(cast("str", prefix), suffix) for prefix in prefixes]
    except InvalidParameterError as error:
        message = errors.in_request_terms(f"suffix: {error}", {})
        raise errors.invalid(message, "suffix", "unsupported_value") from None
    return [each.token_ids for each in prompts], _with_stop_ids(sampling, prompts[0].stop_token_ids)


class ExtraFile(Body):
    """Another file, or a part of one.

    Attributes:
        text: its text.
        filename: its path.
    """

    text: str = ""
    filename: str = "tmp"


class Infill(Sampling):
    """A gap to fill in, as editors send it.

    Attributes:
        input_prefix: the text before the gap.
        input_suffix: the text after it.
        input_extra: other files; if there are too many for the context, the first ones are left out.
        prompt: text that follows the prefix, such as the beginning of the line.
        stream: stream the response as events.
        model: name of the model.
    """

    input_prefix: str = ""
    input_suffix: str = ""
    input_extra: list[ExtraFile] = BodyField(default_factory=list)
    prompt: str = ""
    stream: bool = False
    model: str = DEFAULT


class Infilled(BaseModel):
    """A text that fills the gap, or in a stream its next part; then only ``stop`` says that more follows."""

    model_config = ConfigDict(extra="allow")

    content: str
    stop: bool


async def infill(request: ServerRequest, body: Infill) -> Response:
    """Fill in text between a prefix and a suffix."""
    model = await request.lease_model(body.model, takes_adapter=True)
    sampling = sampling_overrides(body)
    token_ids, stop_ids, truncated = await request.run_in_thread(_prompt, model, body, sampling)
    generation = await submit_prompts(request, model, [token_ids], _with_stop_ids(sampling, stop_ids))
    if body.stream:
        return stream_events(request, llama_server_events(generation, truncated))
    return await whole_response(
        request, generation, lambda: llama_server_response(generation, generation.completions[0], truncated)
    )


def _prompt(model: LoadedModel, body: Infill, sampling: Mapping[str, Any]) -> tuple[list[int], tuple[int, ...], bool]:
    """Return the prompt, its stop tokens, and True if it was truncated to fit."""
    llm = model.llm
    n_generated = sampling.get("max_tokens", model.defaults.max_tokens)
    limit = max(llm.n_ctx - (n_generated if n_generated >= 0 else llm.n_ctx // 4), 1)
    files = [(each.filename, each.text) for each in body.input_extra]
    prefix = body.input_prefix + body.prompt
    prompt = llm.infill_prompt(prefix, body.input_suffix, extra_files=files, max_tokens=limit)
    return prompt.token_ids, prompt.stop_token_ids, prompt.is_truncated


def _with_stop_ids(sampling: Mapping[str, Any], stop_ids: Sequence[int]) -> Mapping[str, Any]:
    return {**sampling, "stop_token_ids": (*sampling.get("stop_token_ids", ()), *stop_ids)}


async def llama_server_events(generation: Generation[Chunk, Completion], truncated: bool) -> AsyncIterator[Event]:
    """Yield the events of a stream in llama-server's format."""
    async for index, chunk in generation:
        if chunk.text or chunk.logprobs:
            form = {"index": index, "content": chunk.text, "tokens": chunk.token_ids, "stop": False}
            yield Event.of(form | _probabilities(chunk, generation))
    for index, done in enumerate(generation.completions):
        form = llama_server_response(generation, done, truncated, index)
        form.pop("completion_probabilities", None)
        yield Event.of({**form, "content": "", "tokens": []})


def _probabilities(result: Chunk | Completion, generation: Generation[Chunk, Completion]) -> Json:
    if not result.logprobs:
        return {}
    form = ChatChunk("", logprobs=result.logprobs).to_dict("openai", tokenizer=generation.model.llm.tokenizer)
    entries = form["choices"][0]["logprobs"]["content"]
    found = []
    for entry, logprobs in zip(entries, result.logprobs, strict=True):
        top = [{"id": each.token_id, **named} for each, named in zip(logprobs.top, entry["top_logprobs"], strict=True)]
        found.append({"id": logprobs.token_id, **entry, "top_logprobs": top})
    return {"completion_probabilities": found}


def llama_server_response(
    generation: Generation[Chunk, Completion], done: Completion, truncated: bool, index: int = 0
) -> Json:
    """Return a whole response in llama-server's format."""
    timings, n_generated = done.timings, len(done.token_ids)
    is_word = isinstance(done.stop_reason, str) and done.finish_reason == "stop"
    return {
        "index": index,
        "content": done.text,
        "tokens": done.token_ids,
        "id_slot": -1,
        "stop": True,
        "model": generation.model.name,
        "tokens_predicted": n_generated,
        "tokens_evaluated": done.prompt_tokens,
        "tokens_cached": done.cached_tokens,
        "truncated": truncated,
        "stop_type": "word" if is_word else _STOP_TYPES.get(done.finish_reason, "eos"),
        "stopping_word": done.stop_reason if is_word else "",
        "timings": {
            "cache_n": done.cached_tokens,
            "prompt_n": done.prompt_tokens - done.cached_tokens,
            "prompt_ms": timings.prefill_s * 1000,
            "predicted_n": n_generated,
            "predicted_ms": timings.decode_s * 1000,
        },
        **_probabilities(done, generation),
    }


INFILL = Endpoint("POST", "/infill", infill, Infilled, EVENTS)
