"""The values that go in and come out: frozen dataclasses, no behaviour beyond checking themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from pyggml._native import INT32_MAX, UINT32_MAX, c_string, int32_array, integer, real
from pyggml.errors import InvalidParameterError

FinishReason = Literal["stop", "length", "tool_calls", "cancelled", "timeout"]

_MAX_SEED = UINT32_MAX - 1  # the largest one means "choose one" to the engine
_MAX_LOGPROBS = 1000

#: The samplers in the order they work. Each does nothing until its parameter is set.
DEFAULT_SAMPLERS = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typical_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)

_MAX_BREAKER_BYTES = 40  # upstream would cut a longer one

_INTEGERS = {
    "max_tokens": (0, INT32_MAX),
    "top_k": (0, INT32_MAX),
    "penalty_last_n": (0, INT32_MAX),
    "dry_allowed_length": (0, INT32_MAX),
    "dry_penalty_last_n": (0, INT32_MAX),
    "mirostat": (0, 2),
    "min_keep": (0, INT32_MAX),
}
_NUMBERS = {
    "temperature": (0.0, math.inf),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "typical_p": (0.0, 1.0),
    "repeat_penalty": (0.0, math.inf),
    "frequency_penalty": (-math.inf, math.inf),
    "presence_penalty": (-math.inf, math.inf),
    "dynatemp_range": (0.0, math.inf),
    "dynatemp_exponent": (0.0, math.inf),
    "top_n_sigma": (0.0, math.inf),
    "xtc_probability": (0.0, 1.0),
    "xtc_threshold": (0.0, 1.0),
    "dry_multiplier": (0.0, math.inf),
    "dry_base": (1.0, math.inf),
    "mirostat_tau": (0.0, math.inf),
    "mirostat_eta": (0.0, math.inf),
    "adaptive_decay": (0.0, 0.99),
}

# What switches each sampler on: fields, and the values that leave it off.
_SWITCHES: dict[str, dict[str, float]] = {
    "penalties": {"repeat_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0},
    "dry": {"dry_multiplier": 0.0},
    "top_n_sigma": {"top_n_sigma": 0.0},
    "top_k": {"top_k": 0},
    "typical_p": {"typical_p": 1.0},
    "top_p": {"top_p": 1.0},
    "min_p": {"min_p": 0.0},
    "xtc": {"xtc_probability": 0.0},
    "temperature": {"dynatemp_range": 0.0},
}
_BESIDE_MIROSTAT = ("penalties", "dry", "temperature")


@dataclass(frozen=True)
class Grammar:
    """A GBNF grammar that the output must match, from its beginning or from where a trigger appears.

    Checked when made; raises InvalidParameterError naming the field. Compiled once for each model, when first used.

    Attributes:
        text: GBNF.
        root: the rule to start with.
        prefix: what of it was written before the output begins, such as the end of a chat's prompt; not with ``lazy``.
        lazy: generate freely until a trigger appears, and only then begin to follow the grammar.
        trigger_patterns: regular expressions (ECMAScript), with ``lazy``. The grammar begins where the first group
            that is not empty begins, or the whole match; what was generated from there on must match it. One with
            ``^`` and ``$`` around it is matched with the complete output so far, others are searched in it.
        trigger_tokens: token ids, with ``lazy``; the grammar begins with the token itself.
    """

    text: str
    root: str = "root"
    prefix: str = ""
    lazy: bool = False
    trigger_patterns: Sequence[str] = ()
    trigger_tokens: Sequence[int] = ()

    def __post_init__(self) -> None:
        c_string("grammar", self.text)
        c_string("the grammar's root", self.root)
        c_string("the grammar's prefix", self.prefix)
        if self.prefix and self.lazy:
            raise InvalidParameterError("a lazy grammar begins with its trigger, so it has no prefix")
        if isinstance(self.trigger_patterns, str) or not isinstance(self.trigger_patterns, Sequence):
            raise InvalidParameterError("trigger_patterns must be a sequence of regular expressions")
        for pattern in self.trigger_patterns:
            c_string("a trigger pattern", pattern)
        object.__setattr__(self, "trigger_patterns", tuple(self.trigger_patterns))
        token_ids = tuple(int32_array("trigger_tokens", self.trigger_tokens).tolist())
        object.__setattr__(self, "trigger_tokens", token_ids)
        if bool(self.lazy) != bool(self.trigger_patterns or token_ids):
            raise InvalidParameterError(
                "a lazy grammar waits for trigger_patterns or trigger_tokens: give some of them, and lazy=True"
            )


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
        penalty_last_n: how many tokens the three penalties look back, into the prompt too; 0 turns them off.
        dynatemp_range: lets the temperature go so far to either side, up where the model is undecided and down where
            it is sure (llama.cpp pull request 4972); 0: off.
        dynatemp_exponent: bends the curve between the two.
        top_n_sigma: keep tokens whose logits are within this many standard deviations of the best
            (arXiv:2411.07641); 0: off.
        xtc_probability: how often to drop all the likeliest tokens but the last that is above ``xtc_threshold``
            (oobabooga/text-generation-webui pull request 6335); 0: off.
        xtc_threshold: 0 to 1; above 0.5 there are never two such tokens.
        dry_multiplier: strength of the DRY penalty on what would repeat a sequence (oobabooga/text-generation-webui
            pull request 5677); 0: off.
        dry_base: the penalty grows by this factor with each token of the repetition, 1 or more.
        dry_allowed_length: repetitions up to this length are free.
        dry_penalty_last_n: how many tokens it looks back; 0 turns it off.
        dry_sequence_breakers: strings that no repetition reaches across, of at most 40 bytes.
        mirostat: 1 or 2: choose tokens so that the surprise stays at ``mirostat_tau`` (arXiv:2007.14966), instead of
            top_k, top_p and the like; 0: off.
        mirostat_tau: the surprise aimed at, in bits.
        mirostat_eta: how fast it is corrected.
        adaptive_target: choose tokens near this probability, 0 to 1 (llama.cpp pull request 17927); None: off.
        adaptive_decay: how slowly it adapts, 0 to 0.99.
        min_keep: top_k, top_p, min_p, typical_p and xtc leave at least so many tokens; 0: no minimum.
        samplers: names of samplers in the order they work, instead of ``DEFAULT_SAMPLERS``. One that is switched on
            must be among them.
        seed: of the random numbers, 0 to 2**32 - 2; None chooses a new one each time.
        stop: strings that end generation; none of them, nor a part, appears in the text.
        stop_token_ids: token ids that end generation, beside the model's own.
        ignore_eos: never end on the model's own end-of-generation tokens, but go on to ``max_tokens``; not with
            ``grammar`` or ``json_schema``.
        logit_bias: token id -> number added to its logit; ``-inf`` forbids the token.
        grammar: what the output must match: GBNF text with a rule ``root``, or a Grammar.
        json_schema: what JSON output must match: a JSON schema (a dict, or its JSON text), or a type that stands for
            one (a pydantic model, a dataclass, ``list[int]`` ...; see :func:`schema_of`); not with ``grammar``.
        timeout_s: seconds from submission after which the request ends with what it has; None: no limit. Time spent
            waiting for room in a full queue counts (``queue_full="wait"``).
        logprobs: tell of each generated token how likely it was and which ``logprobs`` tokens, 1 to 1,000, were the
            likeliest in its place; 0: off. They are the model's own distribution, the log-softmax of its logits before
            temperature, penalties, bias, samplers and grammar.
        prompt_logprobs: the same for the tokens of the prompt. All of it is computed then, a few rows at a time,
            whatever a cached prefix could save.
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
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    top_n_sigma: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: Sequence[str] = ("\n", ":", '"', "*")
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    adaptive_target: float | None = None
    adaptive_decay: float = 0.9
    min_keep: int = 0
    samplers: Sequence[str] | None = None
    seed: int | None = None
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    logit_bias: Mapping[int, float] | None = None
    grammar: str | Grammar | None = None
    json_schema: Mapping[str, Any] | str | type | object | None = None
    timeout_s: float | None = None
    logprobs: int = 0
    prompt_logprobs: int = 0

    def __post_init__(self) -> None:
        for name, (least, most) in _INTEGERS.items():
            self._set(**{name: integer(name, getattr(self, name), least, most)})
        for name, (low, high) in _NUMBERS.items():
            self._set(**{name: _number(name, getattr(self, name), low, high)})
        if self.seed is not None:
            self._set(seed=integer("seed", self.seed, 0, _MAX_SEED))
        if self.timeout_s is not None:
            self._set(timeout_s=_number("timeout_s", self.timeout_s, 0.0))
        if self.adaptive_target is not None:
            self._set(adaptive_target=_number("adaptive_target", self.adaptive_target, 0.0, 1.0))
        self._set(dry_sequence_breakers=_breakers(self.dry_sequence_breakers))
        if self.samplers is not None:
            self._set(samplers=_sampler_names(self.samplers))
        self._set(stop=_stop_strings(self.stop))
        self._set(stop_token_ids=tuple(int32_array("stop_token_ids", self.stop_token_ids).tolist()))
        self._set(logprobs=integer("logprobs", self.logprobs, 0, _MAX_LOGPROBS))
        self._set(prompt_logprobs=integer("prompt_logprobs", self.prompt_logprobs, 0, _MAX_LOGPROBS))
        if self.logit_bias is not None:
            self._set(logit_bias=_logit_bias(self.logit_bias))
        self._require_one_form()
        self._require_consistent_samplers()

    def _set(self, **fields: object) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def _require_one_form(self) -> None:
        """At most one of the ways to say what the output looks like, and none that contradict each other."""
        if self.repeat_penalty == 0:
            raise InvalidParameterError("repeat_penalty divides logits, so it must be above 0")
        if self.grammar is not None and self.json_schema is not None:
            raise InvalidParameterError("grammar and json_schema were both given; one output can follow only one")
        if self.ignore_eos and (self.grammar is not None or self.json_schema is not None):
            raise InvalidParameterError("ignore_eos forbids the end that a grammar or json_schema asks for")
        if self.grammar is not None and not isinstance(self.grammar, Grammar):
            c_string("grammar", self.grammar)

    def _require_consistent_samplers(self) -> None:
        """No sampler that is asked for and would have no effect."""
        if self.dynatemp_range > 0 and self.temperature == 0:
            raise InvalidParameterError("dynatemp_range varies the temperature, which is 0: set temperature too")
        on = [name for name, fields in _SWITCHES.items() if any(getattr(self, f) != off for f, off in fields.items())]
        if self.mirostat and self.adaptive_target is not None:
            raise InvalidParameterError("mirostat and adaptive_target each choose the token: give one of them")
        if self.mirostat:
            idle = [name for name in on if name not in _BESIDE_MIROSTAT]
            if idle or self.samplers is not None:
                raise InvalidParameterError(
                    f"{', '.join(idle) or 'samplers'} would have no effect: mirostat takes their place"
                )
        if self.samplers is not None:
            on += ["temperature"] if self.temperature not in (0.0, 1.0) else []
            missing = [name for name in dict.fromkeys(on) if name not in self.samplers]
            if missing:
                raise InvalidParameterError(
                    f"samplers leaves out {', '.join(missing)}, which other parameters switch on: name it, or leave "
                    "those alone"
                )


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


def _number(name: str, value: float, low: float = -math.inf, high: float = math.inf) -> float:
    number = real(name, value)
    if not math.isfinite(number) or not low <= number <= high:
        bounds = (
            "" if math.isinf(low) else f" of at least {low:g}" if math.isinf(high) else f" from {low:g} to {high:g}"
        )
        raise InvalidParameterError(f"{name} must be a finite number{bounds}, not {value!r}")
    return number


def _stop_strings(stop: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(stop, str):
        stop = (stop,)
    if not isinstance(stop, Sequence) or not all(isinstance(string, str) and string for string in stop):
        raise InvalidParameterError(f"stop must be a non-empty string or a sequence of such, not {stop!r}")
    return tuple(stop)


def _logit_bias(bias: Mapping[int, float]) -> dict[int, float]:
    if not isinstance(bias, Mapping):
        raise InvalidParameterError(f"logit_bias must map token ids to numbers, not be {type(bias).__name__}")
    return {
        integer("a token id of logit_bias", token_id, 0, INT32_MAX): real("a value of logit_bias", value)
        for token_id, value in bias.items()
    }


def _breakers(breakers: Sequence[str]) -> tuple[str, ...]:
    if isinstance(breakers, str) or not isinstance(breakers, Sequence):
        raise InvalidParameterError(f"dry_sequence_breakers must be a sequence of strings, not {breakers!r}")
    for breaker in breakers:
        if not 1 <= len(c_string("a string of dry_sequence_breakers", breaker)) <= _MAX_BREAKER_BYTES:
            raise InvalidParameterError(
                f"dry_sequence_breakers must have 1 to {_MAX_BREAKER_BYTES} bytes each, unlike {breaker!r}"
            )
    return tuple(breakers)


def _sampler_names(names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise InvalidParameterError(f"samplers must be a sequence of names, not {names!r}")
    for i, name in enumerate(names):
        if name not in DEFAULT_SAMPLERS:
            raise InvalidParameterError(f"there is no sampler {name!r}; there are {', '.join(DEFAULT_SAMPLERS)}")
        if name in names[:i]:
            raise InvalidParameterError(f"samplers names {name!r} twice")
    return tuple(names)
