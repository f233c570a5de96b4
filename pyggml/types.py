"""The values that go in and come out: frozen dataclasses, no behaviour beyond checking themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pyggml._native import INT32_MAX, UINT32_MAX, integer
from pyggml.errors import InvalidParameterError

FinishReason = Literal["stop", "length", "tool_calls", "cancelled", "timeout"]

_MAX_SEED = UINT32_MAX - 1  # the largest one means "choose one" to the engine


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are chosen, and when generation ends. The defaults are greedy.

    Checked when made; raises InvalidParameterError naming the field.

    Attributes:
        max_tokens: tokens to generate at most, 0 or more.
        temperature: 0 always takes the likeliest token; above, logits are divided by it before sampling.
        top_k: sample among the k likeliest tokens only; 0: off.
        top_p: nucleus sampling, the smallest set of tokens with this probability (arXiv:1904.09751); 1: off.
        min_p: drop tokens less likely than this fraction of the likeliest (llama.cpp pull request 3841); 0: off.
        typical_p: locally typical sampling (arXiv:2202.00666); 1: off.
        repeat_penalty: divides the logits of recent tokens; 1: off.
        frequency_penalty: subtracted once per recent occurrence of a token; 0: off.
        presence_penalty: subtracted from each token that occurred recently; 0: off.
        penalty_last_n: how many tokens the three penalties look back; 0 turns them off.
        seed: of the random numbers, 0 to 2**32 - 2; None chooses a new one each time.
        stop: strings that end generation; none of them, nor a part, appears in the text.
        stop_token_ids: token ids that end generation, beside the model's own.
        ignore_eos: never end on the model's own end-of-generation tokens, but go on to ``max_tokens``.
        logit_bias: token id -> number added to its logit; ``-inf`` forbids the token.
        grammar: GBNF text with a rule ``root`` that the output must match.
        json_schema: JSON schema (a dict, or its JSON text) that the output must match; not with ``grammar``.
        timeout_s: seconds from submission after which the request ends with what it has; None: no limit.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_last_n: int = 64
    seed: int | None = None
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    logit_bias: Mapping[int, float] | None = None
    grammar: str | None = None
    json_schema: Mapping[str, Any] | str | None = None
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        integer("max_tokens", self.max_tokens, 0, INT32_MAX)
        _require_number("temperature", self.temperature, 0.0, math.inf)
        integer("top_k", self.top_k, 0, INT32_MAX)
        _require_number("top_p", self.top_p, 0.0, 1.0)
        _require_number("min_p", self.min_p, 0.0, 1.0)
        _require_number("typical_p", self.typical_p, 0.0, 1.0)
        _require_number("repeat_penalty", self.repeat_penalty, 0.0, math.inf, low_included=False)
        _require_number("frequency_penalty", self.frequency_penalty, -math.inf, math.inf)
        _require_number("presence_penalty", self.presence_penalty, -math.inf, math.inf)
        integer("penalty_last_n", self.penalty_last_n, 0, INT32_MAX)
        if self.seed is not None:
            integer("seed", self.seed, 0, _MAX_SEED)
        if self.timeout_s is not None:
            _require_number("timeout_s", self.timeout_s, 0.0, math.inf)
        if self.grammar is not None and self.json_schema is not None:
            raise InvalidParameterError("grammar and json_schema were both given; one output can follow only one")
        _require_text("grammar", self.grammar)
        object.__setattr__(self, "stop", _stop_strings(self.stop))


@dataclass(frozen=True)
class Timings:
    """Where one request's time went, by the engine's clock.

    Attributes:
        queue_s: from submission until the engine took it up.
        prefill_s: from there until the first token.
        decode_s: from the first token until the last.
        prompt_tokens: tokens prefilled.
        generated_tokens: tokens produced.
    """

    queue_s: float
    prefill_s: float
    decode_s: float
    prompt_tokens: int
    generated_tokens: int

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
    """

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    stop_reason: str | int | None
    prompt_tokens: int
    cached_tokens: int
    timings: Timings


@dataclass(frozen=True)
class Chunk:
    """A piece of a running generation.

    The texts of all chunks join to exactly the completion's text, and each is valid UTF-8 on its own.

    Attributes:
        text: new text; may be empty while a character or a possible stop string is incomplete.
        token_ids: the new tokens.
        finish_reason: None until the last chunk, then as in Completion.
        stop_reason: as in Completion.
    """

    text: str
    token_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None


@dataclass(frozen=True)
class EngineStats:
    """Counters of one engine since it started.

    Attributes:
        n_queued: requests waiting now.
        n_running: requests being computed now.
        n_requests: submitted so far.
        n_prompt_tokens: prompt tokens computed.
        n_cached_tokens: prompt tokens reused instead.
        n_generated_tokens: tokens produced.
        n_decode_steps: forward passes.
        prefill_s: seconds in forward passes over prompts.
        decode_s: seconds in forward passes over generated tokens.
    """

    n_queued: int
    n_running: int
    n_requests: int
    n_prompt_tokens: int
    n_cached_tokens: int
    n_generated_tokens: int
    n_decode_steps: int
    prefill_s: float
    decode_s: float


def _require_number(name: str, value: object, low: float, high: float, *, low_included: bool = True) -> None:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InvalidParameterError(f"{name} must be a number, not {value!r}") from None
    if not math.isfinite(number) or not low <= number <= high or (number == low and not low_included):
        ends = f"{'at least' if low_included else 'above'} {low:g}" if math.isinf(high) else f"{low:g} to {high:g}"
        raise InvalidParameterError(f"{name} must be a finite number, {ends}; not {value!r}")


def _require_text(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        raise InvalidParameterError(f"{name} must be a string, not {type(value).__name__}")
    if "\0" in value:
        raise InvalidParameterError(f"{name} must not contain a NUL character")


def _stop_strings(stop: str | Sequence[str]) -> tuple[str, ...]:
    strings = (stop,) if isinstance(stop, str) else tuple(stop)
    for string in strings:
        if not isinstance(string, str) or not string:
            raise InvalidParameterError(f"stop must hold non-empty strings, not {string!r}")
    return strings
