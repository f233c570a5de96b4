"""Parameters and results of a generation: frozen dataclasses with validation and JSON conversion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import InitVar, dataclass, field
from typing import Any, Literal, NamedTuple

from pyggml._core import json_forms
from pyggml._core.cached_property import cached_property
from pyggml._core.checks import shown
from pyggml._core.hints import hints
from pyggml._core.html_forms import HTMLReady, Section
from pyggml._core.json_forms import JSONReady, NamesTokens, Origin, Result
from pyggml._core.json_forms import TextOffsets as TextOffsets
from pyggml.errors import OutputParsingError
from pyggml.options.grammar import Grammar as Grammar
from pyggml.options.sampling import SamplingParams as SamplingParams
from pyggml.options.sampling_values import DEFAULT_SAMPLERS as DEFAULT_SAMPLERS
from pyggml.schema.typed_values import parse_output
from pyggml.units import seconds_text

FinishReason = Literal["stop", "length", "tool_calls", "cancelled", "timeout"]


@dataclass(frozen=True)
class Timings(JSONReady):
    """Duration of each phase of a request, by the engine's clock.

    Attributes:
        queue_s: from submission until the engine started the request.
        prefill_s: from then until the first token.
        decode_s: from the first token until the last.
        prompt_tokens: length of the prompt in tokens.
        computed_tokens: prompt tokens computed, without those from the cache; counted again after each preemption.
        generated_tokens: tokens generated; with a stop string, a few more than were needed to complete it.
        n_preemptions: number of times that the request was preempted, and computed again.
        n_drafted_forced: tokens computed as guesses of the text that the grammar forces (``speculative``).
        n_accepted_forced: those of them that were right, and part of the output.
        n_drafted_lookup: tokens computed as guesses of prompt lookup.
        n_accepted_lookup: those of them that were right, and part of the output.
        n_drafted_model: tokens computed as guesses of the draft model.
        n_accepted_model: those of them that were right, and part of the output.
    """

    queue_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    prompt_tokens: int = 0
    computed_tokens: int = 0
    generated_tokens: int = 0
    n_preemptions: int = 0
    n_drafted_forced: int = 0
    n_accepted_forced: int = 0
    n_drafted_lookup: int = 0
    n_accepted_lookup: int = 0
    n_drafted_model: int = 0
    n_accepted_model: int = 0

    _derived = ("ttft_s", "itl_s", "tokens_per_s")

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
    """A token and the natural logarithm of its probability. ``llm.tokenizer.piece(token_id)`` gives its bytes.

    Attributes:
        token_id: the token.
        logprob: the natural logarithm of its probability.
    """

    token_id: int
    logprob: float


class TokenLogprobs(NamedTuple):
    """The log probability of one token of a text and of its alternatives; see ``logprobs_mode``.

    Attributes:
        token_id: the token in the text.
        logprob: the natural logarithm of its probability.
        top: the likeliest tokens at this position, likeliest first, often including the token itself.
    """

    token_id: int
    logprob: float
    top: list[TokenLogprob]


@dataclass(frozen=True)
class RankedDocument:
    """A document that a reranker scored; see :meth:`LLM.rerank <pyggml.LLM.rerank>`.

    Attributes:
        index: its index among the documents.
        score: its score; higher is better.
        document: the document, as it was passed.
    """

    index: int
    score: float
    document: Any


@dataclass(frozen=True)
class Classification:
    """The label of a text; see :meth:`LLM.classify <pyggml.LLM.classify>`.

    Attributes:
        label: the label with the highest score.
        score: its score.
        scores: label -> score of all labels, in the order of the head's outputs.
    """

    label: str
    score: float
    scores: Mapping[str, float]


@dataclass(frozen=True)
class Slot:
    """A slot of the KV cache, with the tokens of one request.

    Attributes:
        index: its index.
        is_running: True while a request runs in it. Otherwise its tokens are cached for requests that begin with them.
        n_tokens: number of tokens that have cells in it.
    """

    index: int
    is_running: bool
    n_tokens: int


@dataclass(frozen=True)
class Score:
    """The likelihood of a continuation; see :meth:`LLM.score <pyggml.LLM.score>`.

    Attributes:
        logprob: sum of the log probabilities of its tokens (natural logarithms).
        token_ids: its tokens.
        token_logprobs: the log probability of each, after the prompt and the tokens before it.
        is_greedy: each token is the likeliest at its position, so that greedy sampling would generate them.
    """

    logprob: float
    token_ids: list[int]
    token_logprobs: list[float]
    is_greedy: bool


@dataclass(frozen=True)
class Completion(HTMLReady, Result):
    """A finished generation. A notebook shows its text, how it ended, token counts and speed.

    Attributes:
        text: the generated text, without stop tokens or stop strings.
        token_ids: the generated tokens, without the stop token; with a stop string, up to the token that
            completed it.
        finish_reason: "stop", "length", "cancelled" or "timeout".
        stop_reason: with "stop", the stop string or the stop token's id; with "length", the limit that was reached:
            "max_tokens", "context" or "repetition" (the repetition guard); else None.
        prompt_tokens: length of the prompt in tokens.
        cached_tokens: number of prompt tokens taken from the cache instead of being computed.
        timings: duration of each phase.
        logprobs: log probabilities of ``token_ids``; None unless requested.
        prompt_logprobs: log probabilities of the prompt's tokens, with None for the first, which follows nothing;
            shorter if the generation ended within the prompt; None unless requested.
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
    _json_schema: InitVar[Any] = field(default=None, kw_only=True)
    _origin: InitVar[Origin | None] = field(default=None, kw_only=True)

    _hints = hints("completion")
    _openai = ("text_completion", "cmpl")

    def __post_init__(self, _json_schema: Any, _origin: Origin | None) -> None:
        """Keep what is no field, so that tools which convert dataclasses to JSON do not see it."""
        self._keep(_json_schema=_json_schema, _origin=_origin)

    @cached_property
    def parsed(self) -> Any:
        """The output in the form that ``json_schema`` or ``response_format`` requested, parsed on first access.

        With a type, an object of this type (a pydantic model, a dataclass, ``list[int]`` ...); with a schema, the JSON
        value; without, or if the model called tools instead, None.

        Raises:
            OutputParsingError: the output was cut off, so that ``finish_reason`` is not "stop", or the type's own
                checks, such as a pydantic validator, reject it.
        """
        if self._json_schema is None or self.finish_reason == "tool_calls":
            return None
        if self.finish_reason != "stop":
            advice = ": raise max_tokens" if self.finish_reason == "length" else ""
            raise OutputParsingError(f"the output was cut off (finish_reason {self.finish_reason!r}){advice}")
        try:
            return parse_output(self._json_schema, self._content)
        except OutputParsingError as error:
            if not isinstance(self.stop_reason, str):
                raise
            raise OutputParsingError(
                f"the stop string {shown(self.stop_reason)} ended the output, perhaps too early: leave it out of stop; "
                f"{error}"
            ) from error.__cause__

    @property
    def _content(self) -> str:
        """The text that follows the requested form."""
        return self.text

    def _html_sections(self) -> Iterator[Section]:
        yield Section(text=self._content)
        yield Section(rows=tuple(self._facts()))

    def _facts(self) -> Iterator[tuple[str, str]]:
        """Names and values of what a notebook shows below the text."""
        yield "finish reason", f"{self.finish_reason}{self._stop_detail()}"
        cached = f", {self.cached_tokens:,} from the cache" if self.cached_tokens else ""
        yield "tokens", f"{len(self.token_ids):,} generated, {self.prompt_tokens:,} in the prompt{cached}"
        if self.timings.tokens_per_s:
            speed = f"{self.timings.tokens_per_s:,.1f} tokens/s after it"
            yield "time", f"{seconds_text(self.timings.ttft_s)} to the first token, {speed}"

    def _stop_detail(self) -> str:
        if self.stop_reason is None:
            return ""
        if isinstance(self.stop_reason, int):
            return f" (token {self.stop_reason})"
        return f" ({self.stop_reason!r})" if self.finish_reason == "stop" else f" ({self.stop_reason})"

    def _choice(self, tokenizer: NamesTokens | None) -> dict[str, Any]:
        return _text_choice(self, tokenizer)

    def _usage(self) -> dict[str, Any]:
        n_generated = len(self.token_ids)
        return {
            "usage": {
                "prompt_tokens": self.prompt_tokens,
                "completion_tokens": n_generated,
                "total_tokens": self.prompt_tokens + n_generated,
                "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            }
        }


@dataclass(frozen=True)
class Chunk(Result):
    """A chunk of a running generation.

    The texts of all chunks add up to exactly the completion's text, and each is valid UTF-8 on its own.

    Attributes:
        text: new text; may be empty while a character or a possible stop string is incomplete.
        token_ids: new tokens.
        finish_reason: None until the last chunk, then as in Completion.
        stop_reason: as in Completion.
        logprobs: log probabilities of the new tokens; None unless requested.
    """

    text: str
    token_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    logprobs: list[TokenLogprobs] | None = None
    _origin: InitVar[Origin | None] = field(default=None, kw_only=True)

    _hints = hints("chunk")
    _openai = ("text_completion", "cmpl")

    def __post_init__(self, _origin: Origin | None) -> None:
        """Keep what is no field."""
        self._keep(_origin=_origin)

    def _choice(self, tokenizer: NamesTokens | None) -> dict[str, Any]:
        return _text_choice(self, tokenizer)


def _text_choice(result: Completion | Chunk, tokenizer: NamesTokens | None) -> dict[str, Any]:
    return {
        "text": result.text,
        "logprobs": json_forms.text_logprobs(result.logprobs, tokenizer),
        **json_forms.end(result.finish_reason, result.stop_reason),
    }


@dataclass(frozen=True)
class EngineStats(JSONReady):
    """An engine's current state and its counters since it started.

    Attributes:
        n_queued: requests waiting now.
        n_running: requests being computed now.
        n_parallel: maximum number of requests in a batch.
        n_threads: compute threads used now for decoding; the engine changes the number when it adapts.
        n_threads_batch: compute threads used now for prefill.
        n_cells: size of the KV cache, in cells; each holds a token.
        n_cells_running: cells used by running requests.
        n_cells_cached: cells used by the prefix cache, evicted when running requests need them.
        n_kv_streams: parts of the KV cache: 1 if all requests share it, else ``n_parallel`` (``kv_unified``).
        n_requests: requests submitted so far.
        n_finished: requests ended so far, for whatever reason.
        n_prompt_tokens: prompt tokens computed.
        n_cached_tokens: prompt tokens taken from the cache instead.
        n_generated_tokens: tokens generated.
        n_sampled_on_device: tokens sampled from what the device found (``backend_sampling``), stop tokens too. 0: it is
            off, or the device does not support it.
        n_decode_steps: forward passes.
        n_preemptions: number of times that a request was preempted, and computed again.
        n_grammars: grammars compiled for the model; reusing one does not count.
        n_checkpoints: checkpoints kept now, in models with sliding windows or recurrent layers; see
            ``prefix_cache_bytes`` of :func:`pyggml.load`.
        checkpoint_bytes: main memory that they take.
        n_snapshots: copies of evicted sequences in main memory now; see ``prefix_cache_bytes`` of :func:`pyggml.load`.
        snapshot_bytes: main memory that they take, with saved prefixes that no request has used yet, whatever
            ``prefix_cache_bytes`` is.
        n_snapshot_hits: requests that started from one, after a preemption, too.
        n_snapshot_tokens: tokens found in them; ``n_cached_tokens`` counts these, too.
        n_disk_snapshots: files in ``prefix_cache_dir`` that the engine can use, as of its last look.
        disk_snapshot_bytes: their size.
        n_disk_hits: requests that started from such a file.
        n_disk_tokens: tokens found in them; ``n_cached_tokens`` counts these, too.
        prefill_s: seconds in forward passes that include prompt tokens.
        decode_s: seconds in forward passes that do not.
        sample_s: seconds spent sampling, and passing the tokens to their readers.
        schedule_s: seconds spent choosing the requests of each step and building its batch.
        n_drafted_forced: tokens computed as guesses of text that grammars force (``speculative``).
        n_accepted_forced: those of them that were right.
        n_drafted_lookup: tokens computed as guesses of prompt lookup.
        n_accepted_lookup: those of them that were right.
        n_drafted_model: tokens computed as guesses of the draft model.
        n_accepted_model: those of them that were right.
        not_batch_invariant: names of the operations that may give a request other bits in a batch than alone; see
            :meth:`pyggml.Context.not_batch_invariant`. (): each request gets the same bits in any batch as alone.
        n_restarts: number of restarts of the engine's process (``isolate``). The counters are those of the current
            process.
    """

    n_queued: int
    n_running: int
    n_parallel: int
    n_threads: int
    n_threads_batch: int
    n_cells: int
    n_cells_running: int
    n_cells_cached: int
    n_kv_streams: int
    n_requests: int
    n_finished: int
    n_prompt_tokens: int
    n_cached_tokens: int
    n_generated_tokens: int
    n_sampled_on_device: int
    n_decode_steps: int
    n_preemptions: int
    n_grammars: int
    n_checkpoints: int
    checkpoint_bytes: int
    n_snapshots: int
    snapshot_bytes: int
    n_snapshot_hits: int
    n_snapshot_tokens: int
    n_disk_snapshots: int
    disk_snapshot_bytes: int
    n_disk_hits: int
    n_disk_tokens: int
    prefill_s: float
    decode_s: float
    sample_s: float
    schedule_s: float
    n_drafted_forced: int
    n_accepted_forced: int
    n_drafted_lookup: int
    n_accepted_lookup: int
    n_drafted_model: int
    n_accepted_model: int
    not_batch_invariant: tuple[str, ...] = ()
    n_restarts: int = 0

    _derived = ("tokens_per_step", "cached_fraction")

    @property
    def tokens_per_step(self) -> float:
        """Mean number of tokens per forward pass, prompts included: how full the batches are; 0 before the first."""
        n_tokens = self.n_prompt_tokens + self.n_generated_tokens
        return n_tokens / self.n_decode_steps if self.n_decode_steps else 0.0

    @property
    def cached_fraction(self) -> float:
        """Share of prompt tokens that were taken from the cache, 0 to 1."""
        n_tokens = self.n_prompt_tokens + self.n_cached_tokens
        return self.n_cached_tokens / n_tokens if n_tokens else 0.0


@dataclass(frozen=True)
class EmbeddingStats(JSONReady):
    """A model's texts that wait to be embedded or reranked, and its counters since it was loaded.

    Attributes:
        n_waiting: texts and pairs that are in no forward pass yet.
        n_passes: forward passes begun.
        n_texts: texts and pairs in these passes.
        n_tokens: their tokens.
    """

    n_waiting: int
    n_passes: int
    n_texts: int
    n_tokens: int
