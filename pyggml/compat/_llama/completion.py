"""Completions as dictionaries and streams of dictionaries, in OpenAI's format."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pyggml
from pyggml.compat._llama import generation
from pyggml.compat._llama.generation import Generation, Output
from pyggml.compat.llama_cpp import llama_types as types
from pyggml.types import Chunk

if TYPE_CHECKING:
    from pyggml.compat.llama_cpp.llama import Llama


@dataclass(frozen=True, kw_only=True)
class Request:
    """A completion to make.

    Attributes:
        llama: the model.
        generation: prompt and parameters.
        prompt: the prompt as text, which precedes the output with ``echo`` and counts for offsets.
        echo: put the prompt before the text.
        suffix: text after the completion's; "": none.
        model: the model's name in the result.
        id: the result's id.
        created: when it was requested, in seconds since 1970.
    """

    llama: Llama
    generation: Generation
    prompt: str
    echo: bool
    suffix: str
    model: str
    id: str = field(default_factory=lambda: f"cmpl-{uuid.uuid4()}")
    created: int = field(default_factory=lambda: int(time.time()))


def complete(request: Request) -> types.CreateCompletionResponse:
    """Make a completion.

    Raises:
        InferError: as :meth:`pyggml.LLM.generate`.
    """
    output = generation.run(request.llama, request.generation)
    text = (request.prompt if request.echo else "") + output.text + request.suffix
    choice = _choice(text, _logprobs(request, output), output.finish_reason)
    n_prompt, n_generated = len(request.generation.prompt_ids), len(output.token_ids)
    return {**_envelope(request, choice), "usage": usage(n_prompt, n_generated)}


def stream(request: Request) -> Iterator[types.CreateCompletionStreamResponse]:
    """Make a completion, and yield its text token by token. Errors as :func:`complete`."""
    names = Names(request.llama, len(request.prompt))
    reason = "length"
    for chunk in generation.chunks(request.llama, request.generation):
        for part in by_token(chunk, request.llama.llm.tokenizer.piece):
            logprobs = None
            if request.generation.n_logprobs is not None and part.logprobs:
                logprobs = names.logprobs(part.logprobs, request.generation.n_logprobs)
            if part.text or logprobs:
                yield _envelope(request, _choice(part.text, logprobs, None))
        reason = chunk.finish_reason or reason
    if request.suffix:
        yield _envelope(request, _choice(request.suffix, None, None))
    yield _envelope(request, _choice("", None, reason))


def usage(n_prompt: int, n_generated: int) -> types.CompletionUsage:
    """Return the token counts of a completion."""
    return {"prompt_tokens": n_prompt, "completion_tokens": n_generated, "total_tokens": n_prompt + n_generated}


class Names:
    """Texts and offsets of consecutive tokens, as logprobs of completions have them."""

    def __init__(self, llama: Llama, offset: int) -> None:
        """Begin at an offset, in characters."""
        self._piece: Callable[[int], bytes] = llama.llm.tokenizer.piece
        self._offset = offset

    def logprobs(self, entries: Sequence[pyggml.TokenLogprobs | None], n: int) -> types.CompletionLogprobs:
        """Return the next tokens' logprobs, with ``n`` alternatives each and the token itself."""
        found: types.CompletionLogprobs = {"tokens": [], "text_offset": [], "token_logprobs": [], "top_logprobs": []}
        for entry in entries:
            if entry is not None:
                self._append(found, entry.token_id, entry.logprob, self._alternatives(entry, n))
        return found

    def first(self, token_id: int) -> types.CompletionLogprobs:
        """Return the logprobs of a token that follows nothing: none."""
        found: types.CompletionLogprobs = {"tokens": [], "text_offset": [], "token_logprobs": [], "top_logprobs": []}
        self._append(found, token_id, None, None)
        return found

    def _append(
        self, found: types.CompletionLogprobs, token_id: int, logprob: float | None, top: dict[str, float] | None
    ) -> None:
        text = self._text(token_id)
        found["tokens"].append(text)
        found["text_offset"].append(self._offset)
        found["token_logprobs"].append(logprob)
        found["top_logprobs"].append(top)
        self._offset += len(text)

    def _alternatives(self, entry: pyggml.TokenLogprobs, n: int) -> dict[str, float]:
        named: dict[str, float] = {}
        for top in entry.top[:n]:
            named.setdefault(self._text(top.token_id), top.logprob)
        return {**named, self._text(entry.token_id): entry.logprob}

    def _text(self, token_id: int) -> str:
        return self._piece(token_id).decode("utf-8", errors="ignore")


def _logprobs(request: Request, output: Output) -> types.CompletionLogprobs | None:
    n = request.generation.n_logprobs
    if n is None:
        return None
    if not request.echo:
        return Names(request.llama, len(request.prompt)).logprobs(output.logprobs, n)
    begins = request.generation.prompt_ids[0] == request.llama.token_bos()  # it has no text
    ids, entries = list(request.generation.prompt_ids)[begins:], output.prompt_logprobs[begins:]
    names = Names(request.llama, 0)
    first = names.first(ids[0]) if ids else names.logprobs([], n)
    rest = names.logprobs([*entries[1:], *output.logprobs], n)
    return cast("types.CompletionLogprobs", {name: first[name] + rest[name] for name in first})  # type: ignore[literal-required]


def by_token(chunk: Chunk, piece: Callable[[int], bytes]) -> Iterator[Chunk]:
    """Split a chunk of several tokens, unless some of its text belongs to tokens of other chunks."""
    pieces = [piece(token_id) for token_id in chunk.token_ids]
    if len(pieces) < 2 or b"".join(pieces) != chunk.text.encode():
        yield chunk
        return
    held, first = b"", 0
    for i, data in enumerate(pieces):
        held += data
        text = _decoded(held)
        if text is not None:  # no token ends within a character
            logprobs = chunk.logprobs[first : i + 1] if chunk.logprobs else None
            yield Chunk(text, chunk.token_ids[first : i + 1], logprobs=logprobs)
            held, first = b"", i + 1


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _choice(text: str, logprobs: types.CompletionLogprobs | None, finish_reason: str | None) -> types.CompletionChoice:
    choice = {"text": text, "index": 0, "logprobs": logprobs, "finish_reason": finish_reason}
    return cast("types.CompletionChoice", choice)


def _envelope(request: Request, choice: types.CompletionChoice) -> types.CreateCompletionResponse:
    return {
        "id": request.id,
        "object": "text_completion",
        "created": request.created,
        "model": request.model,
        "choices": [choice],
    }
