"""The values that go in and come out: frozen dataclasses, no behaviour beyond checking themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pyggml.sampling import DEFAULT_SAMPLERS as DEFAULT_SAMPLERS
from pyggml.sampling import Grammar as Grammar
from pyggml.sampling import SamplingParams as SamplingParams

FinishReason = Literal["stop", "length", "tool_calls", "cancelled", "timeout"]


@dataclass(frozen=True)
class Timings:
    """Where one request's time went, by the engine's clock.

    Attributes:
        queue_s: from submission until the engine took it up.
        prefill_s: from there until the first token.
        decode_s: from the first token until the last.
        prompt_tokens: prompt tokens computed, without those reused; once more for each preemption.
        generated_tokens: tokens produced; with a stop string, a few more than were needed to complete it.
        n_preemptions: how often it had to give its room to others and was computed again.
    """

    queue_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    n_preemptions: int = 0

    @property
    def ttft_s(self) -> float:
        """Time to first token, from submission."""
        return self.queue_s + self.prefill_s

    @property
    def itl_s(self) -> float:
        """Mean inter-token latency; 0 with fewer than two tokens."""
        return self.decode_s / (self.generated_tokens - 1) if self.generated_tokens > 1 else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Decode speed; 0 with fewer than two tokens."""
        return 1.0 / self.itl_s if self.itl_s > 0 else 0.0


class TokenLogprob(NamedTuple):
    """A token and the natural logarithm of its probability; ``llm.tokenizer.piece(token_id)`` are its bytes."""

    token_id: int
    logprob: float


class TokenLogprobs(NamedTuple):
    """What the model thought of one token of a text, by log-softmax of its logits as they came.

    Attributes:
        token_id: the token that stands there.
        logprob: the natural logarithm of its probability.
        top: the likeliest tokens in its place, likeliest first; often it is one of them.
    """

    token_id: int
    logprob: float
    top: list[TokenLogprob]


@dataclass(frozen=True)
class Completion:
    """A finished generation.

    Attributes:
        text: what was generated, without stop tokens or stop strings.
        token_ids: the tokens generated, without the stop token; with a stop string, up to the token that
            completed it.
        finish_reason: "stop", "length" (max_tokens or the context's end), "cancelled" or "timeout".
        stop_reason: with "stop", the stop string or the stop token's id.
        prompt_tokens: length of the prompt in tokens.
        cached_tokens: prompt tokens whose computation was reused.
        timings: where the time went.
        logprobs: of each of ``token_ids``; None unless asked for.
        prompt_logprobs: of each token of the prompt, None for the first, which follows nothing; shorter when it ended
            inside the prompt; None unless asked for.
    """

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    stop_reason: str | int | None
    prompt_tokens: int
    cached_tokens: int
    timings: Timings
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: list[TokenLogprobs | None] | None = None


@dataclass(frozen=True)
class Chunk:
    """A piece of a running generation.

    The texts of all chunks join to exactly the completion's text, and each is valid UTF-8 on its own.

    Attributes:
        text: new text; may be empty while a character or a possible stop string is incomplete.
        token_ids: the new tokens.
        finish_reason: None until the last chunk, then as in Completion.
        stop_reason: as in Completion.
        logprobs: of the new tokens; None unless asked for.
    """

    text: str
    token_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    logprobs: list[TokenLogprobs] | None = None


@dataclass(frozen=True)
class EngineStats:
    """Counters of one engine since it started, and what it does now.

    Attributes:
        n_queued: requests waiting now.
        n_running: requests being computed now.
        n_parallel: requests that can be computed at once.
        n_threads: compute threads now, for steps that generate; the engine changes it when it adapts.
        n_threads_batch: the same for steps that read prompts.
        n_cells: room in the context, in tokens.
        n_cells_running: of these, held by running requests.
        n_cells_cached: held for prompts that begin alike, and given up when room is needed.
        n_requests: submitted so far.
        n_finished: ended so far, in whatever way.
        n_prompt_tokens: prompt tokens computed.
        n_cached_tokens: prompt tokens reused instead.
        n_generated_tokens: tokens produced.
        n_decode_steps: forward passes.
        n_preemptions: times that a request had to give its room to others and was computed again.
        n_grammars: grammars compiled for the model; one that is used again is not compiled again.
        prefill_s: seconds in forward passes with prompt tokens among them.
        decode_s: seconds in those without.
        sample_s: seconds spent choosing tokens.
    """

    n_queued: int
    n_running: int
    n_parallel: int
    n_threads: int
    n_threads_batch: int
    n_cells: int
    n_cells_running: int
    n_cells_cached: int
    n_requests: int
    n_finished: int
    n_prompt_tokens: int
    n_cached_tokens: int
    n_generated_tokens: int
    n_decode_steps: int
    n_preemptions: int
    n_grammars: int
    prefill_s: float
    decode_s: float
    sample_s: float

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens of a forward pass, prompts included: how full the batches are; 0 before the first."""
        n_tokens = self.n_prompt_tokens + self.n_generated_tokens
        return n_tokens / self.n_decode_steps if self.n_decode_steps else 0.0

    @property
    def cached_fraction(self) -> float:
        """Share of all prompt tokens that needed no computing, 0 to 1."""
        n_tokens = self.n_prompt_tokens + self.n_cached_tokens
        return self.n_cached_tokens / n_tokens if n_tokens else 0.0
