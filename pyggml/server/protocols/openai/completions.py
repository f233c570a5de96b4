"""``/v1/completions``: continues texts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import Field as BodyField
from starlette.responses import Response

from pyggml import Chunk, Completion, TokenLogprobs
from pyggml.server.http.generation import Generation
from pyggml.server.http.request import Call
from pyggml.server.models.pool import Served
from pyggml.server.protocols.endpoint import EVENTS, Endpoint, Event
from pyggml.server.protocols.openai.errors import invalid, unsupported
from pyggml.server.protocols.openai.generation_request import Generating
from pyggml.server.protocols.openai.generation_response import (
    DONE,
    Answer,
    envelope,
    pieces,
    respond,
    timings,
    usage,
    whole,
)

Json = dict[str, Any]

#: Most texts in one request.
MAX_TEXTS = 2048

_Ids = Annotated[list[int], BodyField(fail_fast=True)]
_Texts = Annotated[list[str | _Ids], BodyField(min_length=1, max_length=MAX_TEXTS, fail_fast=True)]

#: One text or several, each a string or token ids.
Texts = str | _Ids | _Texts


def as_list(texts: Texts) -> list[str | list[int]]:
    """The texts, even if it is one."""
    is_several = isinstance(texts, list) and not isinstance(texts[0] if texts else 0, int)
    return cast("list[str | list[int]]", texts if is_several else [texts])


class Complete(Generating):
    """Texts to continue.

    Attributes:
        prompt: one text or several, each a string or token ids.
        echo: begin the answer with the prompt.
        best_of: compute this many answers and return the ``n`` likeliest; not for streams.
        logprobs: send how likely each token was, and this many of the likeliest in its place.
    """

    refused: ClassVar[Mapping[str, str]] = {
        **Generating.refused,
        "suffix": "there is no filling in; write the model's own tokens for it into prompt",
    }

    prompt: Texts
    echo: bool | None = None
    best_of: Annotated[int, BodyField(ge=1)] | None = None
    logprobs: Annotated[int, BodyField(ge=0, le=20)] | None = None

    @property
    def computed(self) -> int:
        """Number of answers to each prompt that are computed."""
        return max(self.choices, self.best_of or 1)

    def own(self) -> Json:
        """The fields of SamplingParams that only this endpoint sets.

        Raises:
            RequestError: fields contradict each other.
        """
        if self.best_of is not None and self.best_of < self.choices:
            raise invalid("best_of", f"it is {self.best_of}, and n is {self.choices}: it must be at least n")
        if self.stream and self.computed > self.choices:
            raise invalid("best_of", "it is not for streams, which cannot wait for the best")
        if self.stream and self.echo and self.logprobs is not None:
            raise unsupported("echo", "the logprobs of a prompt are not streamed; set stream=false")
        n_logprobs = max(1, self.logprobs or 0)
        return {
            "logprobs": n_logprobs if self.logprobs is not None or self.computed > self.choices else 0,
            "prompt_logprobs": n_logprobs if self.echo and self.logprobs is not None else 0,
        }


class CompletionAnswer(Answer):
    """The continuations."""

    object: Literal["text_completion"]


async def complete(call: Call, body: Complete) -> Response:
    """Continues texts."""
    served = await call.model(body.model)
    sampling = await call.prepared(body.sampling, served, **body.own())
    prompts = as_list(body.prompt)
    echoes = await call.aside(_echoes, served, prompts) if body.echo else None
    generation = await call.complete(served, prompts, sampling, n=body.computed)
    if body.stream:
        return call.events(_events(call, generation, body, echoes))
    done = await call.finish(generation)
    return await respond(call, done, lambda: _whole(call, generation, body, echoes))


# --- the answer ---------------------------------------------------------------------------------------------------

#: A prompt as an answer repeats it: its text and its tokens.
_Echo = tuple[str, list[int]]


def _whole(call: Call, generation: Generation[Chunk, Completion], body: Complete, echoes: list[_Echo] | None) -> Json:
    computed = generation.completions
    done = _best(computed, body)
    if echoes is not None:
        done = [_echoed(each, *echoes[index // body.choices]) for index, each in enumerate(done)]
    found = whole(done, body.choices, envelope(call, generation, "cmpl"))
    for choice, each in zip(found["choices"], done, strict=True):
        _adapt(choice, each, body)
    return found | {"usage": usage(computed, body.computed)}


async def _events(
    call: Call, generation: Generation[Chunk, Completion], body: Complete, echoes: list[_Echo] | None
) -> AsyncIterator[Event]:
    about = envelope(call, generation, "cmpl")
    no_usage: Json = {"usage": None} if body.wants_usage else {}
    form: Json = {}
    if echoes is not None:
        for index in range(len(echoes) * body.choices):
            yield Event.of(Chunk(echoes[index // body.choices][0]).to_dict("openai", index=index, **about) | no_usage)
    lengths = [0] * len(generation)
    async for index, chunk in generation:
        form = chunk.to_dict("openai", index=index, **about) | no_usage
        _adapt(form["choices"][0], chunk, body, lengths[index])
        lengths[index] += len(chunk.text)
        for piece in pieces(chunk, form, {"text": "", **body.no_token_ids}):
            yield piece
    if body.wants_usage:
        done = generation.completions
        yield Event.of(form | {"choices": [], "usage": usage(done, body.choices), **timings(done)})
    yield DONE


def _echoes(served: Served, prompts: Sequence[str | list[int]]) -> list[_Echo]:
    tokenizer = served.llm.tokenizer
    return [
        (each, tokenizer.encode(each)) if isinstance(each, str) else (tokenizer.decode(each), each) for each in prompts
    ]


def _echoed(done: Completion, text: str, token_ids: list[int]) -> Completion:
    """A completion that begins with its prompt. Nothing came before the first token, so it has no probability."""
    if done.logprobs is None or done.prompt_logprobs is None:
        return replace(done, text=text + done.text)
    nothing: Any = None
    first = TokenLogprobs(token_ids[0], nothing, [])
    prompt = [each or first for each in done.prompt_logprobs]
    return replace(done, text=text + done.text, logprobs=[*prompt, *done.logprobs])


def _best(computed: list[Completion], body: Complete) -> list[Completion]:
    """The likeliest answers to each prompt, by the mean of their tokens' log probabilities."""
    if body.computed == body.choices:
        return computed
    found = []
    for first in range(0, len(computed), body.computed):
        found += sorted(computed[first : first + body.computed], key=_likelihood, reverse=True)[: body.choices]
    return found


def _likelihood(done: Completion) -> float:
    logprobs = [each.logprob for each in done.logprobs or ()]
    return sum(logprobs) / len(logprobs) if logprobs else float("-inf")


def _adapt(choice: Json, result: Completion | Chunk, body: Complete, length: int = 0) -> None:
    """Changes a choice to what the request asked for; ``length`` is that of the text before it."""
    if body.return_token_ids:
        choice["token_ids"] = result.token_ids
    logprobs = choice["logprobs"]
    if body.logprobs is None:
        choice["logprobs"] = None
    elif logprobs is not None:
        logprobs["text_offset"] = [length + offset for offset in logprobs["text_offset"]]
        logprobs["top_logprobs"] = [top or None for top in logprobs["top_logprobs"]] if body.logprobs else None


COMPLETIONS = (
    Endpoint("POST", "/v1/completions", complete, "Continue texts", Complete, CompletionAnswer, events=EVENTS),
)
