"""``/v1/completions``: continue texts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator
from pydantic import Field as BodyField
from pydantic_core import PydanticCustomError
from starlette.responses import Response

from pyggml import Chunk, Completion, TokenLogprobs
from pyggml.server.http.generation import Generation, submit_prompts, whole_response
from pyggml.server.http.request import ServerRequest
from pyggml.server.http.sse import EVENTS, Event
from pyggml.server.http.streaming import stream_events
from pyggml.server.models.pool import LoadedModel
from pyggml.server.protocols.endpoint import Endpoint
from pyggml.server.protocols.infilling import infill_prompts
from pyggml.server.protocols.openai.errors import invalid, unsupported
from pyggml.server.protocols.openai.generation_request import GenerationRequest
from pyggml.server.protocols.openai.generation_response import (
    GenerationResponse,
    chunk_events,
    common_fields,
    completion,
    fingerprint,
    last_events,
    usage,
)
from pyggml.types import TextOffsets

Json = dict[str, Any]

#: Maximum number of texts in one request.
MAX_TEXTS = 2048

_Ids = Annotated[list[int], BodyField(fail_fast=True)]
_Texts = Annotated[list[str | _Ids], BodyField(min_length=1, max_length=MAX_TEXTS, fail_fast=True)]


def _require_texts(texts: Any) -> Any:
    if texts == []:
        raise PydanticCustomError("empty", "The list is empty: send at least one text")
    return texts


#: One text or several, each a string or token IDs.
Texts = Annotated[str | _Ids | _Texts, BeforeValidator(_require_texts)]


def as_list(texts: Texts) -> list[str | list[int]]:
    """Return the texts as a list."""
    is_several = isinstance(texts, list) and not isinstance(texts[0] if texts else 0, int)
    return cast("list[str | list[int]]", texts if is_several else [texts])


class CompletionRequest(GenerationRequest):
    """Texts to continue.

    Attributes:
        prompt: one text or several, each a string or token IDs.
        suffix: text after the one to generate, for models with tokens for infilling; each prompt is the text before it.
        echo: start the response with the prompt.
        best_of: generate this many choices and return the ``n`` most likely ones; not for streams.
        logprobs: return the log probabilities of each token and of this many most likely ones at its position.
    """

    prompt: Texts
    suffix: str | None = None
    echo: bool | None = None
    best_of: Annotated[int, BodyField(ge=1)] | None = None
    logprobs: Annotated[int, BodyField(ge=0, le=20)] | None = None

    @property
    def n_generated(self) -> int:
        """Number of generated choices of each prompt."""
        return max(self.n_choices, self.best_of or 1)

    def to_sampling(self, model: LoadedModel) -> Mapping[str, Any]:
        """Return the fields of SamplingParams that the request sets.

        Raises:
            RequestError: fields contradict each other.
        """
        if self.best_of is not None and self.best_of < self.n_choices:
            raise invalid("best_of", f"it is {self.best_of}, and n is {self.n_choices}: it must be at least n")
        if self.stream and self.n_generated > self.n_choices:
            raise invalid("best_of", "it cannot be combined with stream=true")
        if self.suffix and self.echo:
            raise invalid("suffix", "it cannot be combined with echo=true")
        if self.stream and self.echo and self.logprobs is not None:
            raise unsupported("echo", "the logprobs of a prompt are not streamed; set stream=false")
        n_logprobs = max(1, self.logprobs or 0)
        return self.sampling(
            model,
            logprobs=n_logprobs if self.logprobs is not None or self.n_generated > self.n_choices else 0,
            prompt_logprobs=n_logprobs if self.echo and self.logprobs is not None else 0,
        )


class CompletionResponse(GenerationResponse):
    """The continued texts."""

    object: Literal["text_completion"]


async def complete(request: ServerRequest, body: CompletionRequest) -> Response:
    """Continue texts."""
    model = await request.lease_model(body.model, takes_adapter=True)
    sampling = await request.run_in_thread_if_long(body.to_sampling, model)
    prompts = as_list(body.prompt)
    if body.suffix:
        prompts, sampling = await request.run_in_thread(infill_prompts, model, prompts, body.suffix, sampling)
    echoes = await request.run_in_thread(_echoes, model, prompts) if body.echo else None
    generation = await submit_prompts(request, model, prompts, sampling, body.n_generated)
    if body.stream:
        return stream_events(request, _chunks(request.id, body, generation, echoes))
    return await whole_response(request, generation, lambda: _completion(request.id, body, generation, echoes))


# --- the response -------------------------------------------------------------------------------------------------

#: An echoed prompt: its text and its tokens.
_Echo = tuple[str, list[int]]


def _completion(
    request_id: str, body: CompletionRequest, generation: Generation[Chunk, Completion], echoes: list[_Echo] | None
) -> Json:
    generated = generation.completions
    best = _best(generated, body)
    if echoes is not None:
        best = [_with_echo(each, *echoes[index // body.n_choices]) for index, each in enumerate(best)]
    response = completion(best, body.n_choices, common_fields(request_id, generation, "cmpl"))
    for choice, each in zip(response["choices"], best, strict=True):
        _adjust(choice, each, body)
    return response | {**fingerprint(generation.model), "usage": usage(generated, body.n_generated)}


async def _chunks(
    request_id: str, body: CompletionRequest, generation: Generation[Chunk, Completion], echoes: list[_Echo] | None
) -> AsyncIterator[Event]:
    common = common_fields(request_id, generation, "cmpl")
    more = fingerprint(generation.model) | ({"usage": None} if body.wants_usage else {})
    form: Json = {}
    if echoes is not None:
        for index in range(len(echoes) * body.n_choices):
            echo, _ = echoes[index // body.n_choices]
            yield Event.of(Chunk(echo).to_dict("openai", index=index, **common) | more)
    offsets = [TextOffsets(common["tokenizer"]) for _ in range(len(generation))]
    async for index, chunk in generation:
        form = chunk.to_dict("openai", index=index, **common) | more
        _adjust(form["choices"][0], chunk, body)
        if form["choices"][0]["logprobs"] is not None:
            form["choices"][0]["logprobs"]["text_offset"] = offsets[index].of(chunk.logprobs or ())
        for event in chunk_events(chunk, form, {"text": "", **body.empty_token_ids}):
            yield event
    for event in last_events(form, generation.completions, body):
        yield event


def _echoes(model: LoadedModel, prompts: Sequence[str | list[int]]) -> list[_Echo]:
    tokenizer = model.llm.tokenizer
    return [
        (each, tokenizer.encode(each)) if isinstance(each, str) else (tokenizer.decode(each), each) for each in prompts
    ]


def _with_echo(done: Completion, text: str, token_ids: list[int]) -> Completion:
    """Prepend the prompt to a completion. The first token has no log probability."""
    if done.logprobs is None or done.prompt_logprobs is None:
        return replace(done, text=text + done.text)
    no_logprob: Any = None
    first = TokenLogprobs(token_ids[0], no_logprob, [])
    prompt = [each or first for each in done.prompt_logprobs]
    return replace(done, text=text + done.text, logprobs=[*prompt, *done.logprobs])


def _best(generated: list[Completion], body: CompletionRequest) -> list[Completion]:
    """Return the most likely choices of each prompt, by the mean log probability of their tokens."""
    n = body.n_generated
    if n == body.n_choices:
        return generated
    best = []
    for first in range(0, len(generated), n):
        best += sorted(generated[first : first + n], key=_likelihood, reverse=True)[: body.n_choices]
    return best


def _likelihood(done: Completion) -> float:
    logprobs = [each.logprob for each in done.logprobs or ()]
    return sum(logprobs) / len(logprobs) if logprobs else float("-inf")


def _adjust(choice: Json, result: Completion | Chunk, body: CompletionRequest) -> None:
    """Adjust a choice to the options of the request."""
    if body.return_token_ids:
        choice["token_ids"] = result.token_ids
    logprobs = choice["logprobs"]
    if body.logprobs is None:
        choice["logprobs"] = None
    elif logprobs is not None:
        logprobs["top_logprobs"] = [top or None for top in logprobs["top_logprobs"]] if body.logprobs else None


# The second path is for clients whose base URL has no /v1.
COMPLETIONS = tuple(
    Endpoint("POST", path, complete, CompletionResponse, EVENTS) for path in ("/v1/completions", "/completions")
)
