"""Generations as chunks: by the engine, or token by token if a function of the caller's ends them or guesses tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

import pyggml
from pyggml.compat._llama.sampling import Sampling
from pyggml.compat._llama.token_loop import LogitsProcessor, Scores, Steps, StoppingCriterion, TokenLoop
from pyggml.compat.llama_cpp.llama_speculative import LlamaDraftModel, LlamaPromptLookupDecoding
from pyggml.tokenizer import StopStrings, StreamDecoder
from pyggml.types import Chunk, FinishReason

if TYPE_CHECKING:
    from pyggml.compat.llama_cpp.llama import Llama


@dataclass(frozen=True, kw_only=True)
class Generation:
    """A prompt and how to continue it.

    Attributes:
        prompt_ids: the prompt.
        sampling: how tokens are chosen.
        max_tokens: maximum number of tokens.
        stop: strings that end the text.
        n_logprobs: number of alternatives with log probabilities; None: no log probabilities.
        scores_prompt: log probabilities of the prompt's tokens, too.
        processors: change the logits before each choice.
        criteria: end the text after a token.
    """

    prompt_ids: Sequence[int]
    sampling: Sampling
    max_tokens: int
    stop: Sequence[str] = ()
    n_logprobs: int | None = None
    scores_prompt: bool = False
    processors: Sequence[LogitsProcessor] = ()
    criteria: StoppingCriterion | None = None


@dataclass
class Output:
    """A generated text.

    Attributes:
        text: the text, without stop strings.
        token_ids: the tokens, without the stop token.
        finish_reason: "stop" or "length".
        logprobs: log probabilities of the tokens; empty unless requested.
        prompt_logprobs: those of the prompt, None for the first token; empty unless requested.
    """

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str = "length"
    logprobs: list[pyggml.TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[pyggml.TokenLogprobs | None] = field(default_factory=list)


def run(llama: Llama, generation: Generation) -> Output:
    """Generate, and return the whole output.

    Raises:
        InferError: as :meth:`pyggml.LLM.generate`.
    """
    if not _in_python(llama, generation):
        return as_output(llama.llm.generate(generation.prompt_ids, _params(generation)))
    output = Output()
    for chunk in _loop_chunks(llama, generation, output):
        output.text += chunk.text
        output.token_ids += chunk.token_ids
        output.logprobs += chunk.logprobs or []
        output.finish_reason = chunk.finish_reason or output.finish_reason
    return output


def chunks(llama: Llama, generation: Generation) -> Iterator[Chunk]:
    """Generate, and yield chunks; the last one has a finish reason. Errors as :func:`run`."""
    if _in_python(llama, generation):
        yield from _loop_chunks(llama, generation, Output())
        return
    with llama.llm.stream(generation.prompt_ids, _params(generation)) as stream:
        yield from stream


def as_output(completion: pyggml.Completion) -> Output:
    """Return the output of a completion."""
    return Output(
        completion.text,
        completion.token_ids,
        completion.finish_reason,
        completion.logprobs or [],
        completion.prompt_logprobs or [],
    )


def guesses_in_python(draft_model: LlamaDraftModel | None) -> bool:
    """Return True if a draft model has to be called; instead of prompt lookup in Python the engine has its own."""
    return draft_model is not None and type(draft_model) is not LlamaPromptLookupDecoding


def _in_python(llama: Llama, generation: Generation) -> bool:
    return generation.criteria is not None or guesses_in_python(llama.draft_model)


def _params(generation: Generation) -> pyggml.SamplingParams:
    others: dict[str, Any] = {"logits_processor": generation.processors or None}
    if generation.n_logprobs is not None:
        others["logprobs"] = max(1, generation.n_logprobs)  # 0 would report none
        if generation.scores_prompt:
            others["prompt_logprobs"] = others["logprobs"]
    return generation.sampling.params(max_tokens=generation.max_tokens, stop=generation.stop, **others)


# --- token by token -----------------------------------------------------------------------------------------------


def _loop_chunks(llama: Llama, generation: Generation, output: Output) -> Iterator[Chunk]:
    """Yield a chunk for each token, and then an empty one with the finish reason."""
    with llama.idle_loop() as loop, generation.sampling.chain(llama.llm.model) as chain:
        steps = Steps(chain, generation.processors, generation.criteria, llama.draft_model)
        if generation.scores_prompt and generation.n_logprobs is not None:
            output.prompt_logprobs = _prompt_logprobs(loop, generation)
        with closing(loop.generate(generation.prompt_ids, steps)) as tokens:
            yield from _text_chunks(llama, loop, generation, tokens)


def _text_chunks(llama: Llama, loop: TokenLoop, generation: Generation, tokens: Iterator[int]) -> Iterator[Chunk]:
    decoder, stop = StreamDecoder(llama.llm.tokenizer), StopStrings(generation.stop)
    reason: FinishReason = "stop"  # the criteria may end the loop
    for n, token in enumerate(tokens, start=1):
        if token in llama.llm.stop_tokens:
            break
        text = stop.feed(decoder.feed([token]))
        logprobs = None
        if generation.n_logprobs is not None:
            logprobs = [_logprobs(loop.logits(len(generation.prompt_ids) + n - 2), token, generation.n_logprobs)]
        yield Chunk(text, [token], logprobs=logprobs)
        if stop.found is not None:
            break
        if n >= generation.max_tokens:
            reason = "length"
            break
    rest = "" if stop.found is not None else stop.feed(decoder.feed([], last=True), last=True)
    yield Chunk(rest, [], reason if stop.found is None else "stop")


def _logprobs(logits: Scores, token: int, n: int) -> pyggml.TokenLogprobs:
    """Return the log probability of a token and of the ``n`` likeliest ones."""
    found = log_softmax(logits)
    top = np.argsort(-found, kind="stable")[:n]
    alternatives = [pyggml.TokenLogprob(int(each), float(found[each])) for each in top]
    return pyggml.TokenLogprobs(token, float(found[token]), alternatives)


def _prompt_logprobs(loop: TokenLoop, generation: Generation) -> list[pyggml.TokenLogprobs | None]:
    """Evaluate the prompt token by token, for the logits after each."""
    loop.reset()
    found: list[pyggml.TokenLogprobs | None] = [None]
    for token, following in zip(generation.prompt_ids, generation.prompt_ids[1:], strict=False):
        loop.eval([token])
        found.append(_logprobs(loop.logits(loop.n_tokens - 1), following, generation.n_logprobs or 0))
    return found


def log_softmax(logits: Scores, axis: int = -1) -> Scores:
    """Return log probabilities: float32, the shape of ``logits``."""
    highest = np.max(logits, axis=axis, keepdims=True)
    shifted = logits - np.where(np.isfinite(highest), highest, 0)
    with np.errstate(divide="ignore"):
        found: Scores = (shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))).astype(np.single)
    return found
