"""A requested generation: checked at once, but prepared and queued only when its caller is ready to wait."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pyggml._checks import flag
from pyggml._native import int32_array
from pyggml.errors import EmptyPromptError, InvalidParameterError
from pyggml.generation.engine import Engine, Request, TokenIds
from pyggml.generation.waker import Waker
from pyggml.schema import grammar as schema_grammar
from pyggml.tokenizer import Tokenizer
from pyggml.types import SamplingParams

if TYPE_CHECKING:
    from typing_extensions import Self

Prompt = str | TokenIds

# From these sizes on, submitting takes longer than about a millisecond and must not run in an event loop.
_LONG_TEXT = 4_000  # characters to tokenize
_LONG_LIST = 8_000  # token ids to convert
_LONG_BIAS = 1_000  # entries

#: With stop strings, the text has to be checked as it grows, this many tokens at a time.
TOKENS_PER_LOOK = 8
# Otherwise it is read in chunks this large, which an event loop handles in no noticeable time.
_TOKENS_PER_READ = 256


class Job:
    """One generation that has not been submitted yet. Any one thread may submit it.

    Attributes:
        engine: the engine that will run it.
        tokenizer: encodes the prompt and decodes the answer.
        params: the caller's sampling parameters, merged.
        waits: whether to wait for room if the queue is full.
        min_tokens: number of new tokens for which to wake the reader.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        stop_tokens: Iterable[int],
        prompt: Prompt,
        params: SamplingParams,
        *,
        parse_special: bool,
        waits: bool,
    ) -> None:
        """Checks only what is cheap to check.

        Args:
            engine: the engine that will run it.
            tokenizer: the model's tokenizer.
            stop_tokens: the model's own stop tokens.
            prompt: text or token ids.
            params: sampling parameters, merged.
            parse_special: whether special tokens that a text spells are tokens.
            waits: if the queue is full, wait for room.

        Raises:
            EmptyPromptError: the prompt is an empty text.
            InvalidParameterError: ``parse_special`` is not a bool.
        """
        _require_text(prompt)
        self._parse_special = flag("parse_special", parse_special)
        self.engine = engine
        self.tokenizer = tokenizer
        self.params = params
        self.waits = waits
        self.min_tokens = 1
        self._stop_tokens = frozenset(stop_tokens)
        self._prompt = prompt
        self._ready: _Ready | None = None

    def unwatched(self) -> Self:
        """Makes the reader wake rarely, because nobody looks before the end. Returns the job itself."""
        self.min_tokens = TOKENS_PER_LOOK if self.params.stop else _TOKENS_PER_READ
        return self

    @property
    def stop(self) -> tuple[str, ...]:
        """The stop strings."""
        return tuple(self.params.stop)

    @property
    def is_slow(self) -> bool:
        """Whether :meth:`submit` may take more than a millisecond or two."""
        return (
            _size(self._prompt) > (_LONG_TEXT if isinstance(self._prompt, str) else _LONG_LIST)
            or self.params.grammar is not None
            or self.params.json_schema is not None
            or len(self.params.logit_bias or ()) > _LONG_BIAS
            or self.params.dry_multiplier != 0  # at first, its breakers are looked for in the whole vocabulary
        )

    def submit(self, waker: Waker | None = None, tag: int = 0, deadline: float | None = None) -> Request:
        """Queues the job, if there is room.

        Args:
            waker: notified with ``tag`` when there is news.
            tag: identifies the request to the waker.
            deadline: the result of :meth:`deadline`, if it was called earlier; None: ``timeout_s`` starts now.

        Raises:
            QueueFullError: there is no room; try again.
            InferError: as :meth:`Engine.submit <pyggml.generation.engine.Engine.submit>`, and errors of tokenizers.
        """
        if self._ready is None:
            self._ready = self._work_out()
        timeout_s = self.params.timeout_s if deadline is None else max(0.0, deadline - time.monotonic())
        return self.engine.submit(
            self._ready.token_ids,
            self._ready.params,
            self._ready.stop_token_ids,
            timeout_s=timeout_s,
            waker=waker,
            tag=tag,
        )

    def queue(self) -> Request:
        """Queues the job, waiting for room if :attr:`waits` is set.

        Raises:
            As :meth:`submit`; RequestTimeout: ``timeout_s`` passed before there was room.
        """
        deadline = self.deadline()
        if not self.waits:
            return self.submit()
        return self.engine.when_there_is_room(lambda: self.submit(deadline=deadline), deadline)

    def deadline(self) -> float | None:
        """When ``timeout_s``, counted from now, ends, by :func:`time.monotonic`; None: there is no limit."""
        return None if self.params.timeout_s is None else time.monotonic() + self.params.timeout_s

    def _work_out(self) -> _Ready:
        token_ids, params = self._prompt_and_params()
        ids, params = int32_array("the prompt", token_ids), without_schema(params)
        stop = set(params.stop_token_ids)
        if params.ignore_eos:
            bias = dict(params.logit_bias or {}) | dict.fromkeys(self._stop_tokens, float("-inf"))
            params = dataclasses.replace(params, logit_bias=bias)
        else:
            stop |= self._stop_tokens
        if params.grammar is not None:
            # Once the grammar is complete, the engine allows only end-of-generation tokens, whichever it knows.
            stop.update(self.tokenizer.vocab.eog_ids)
        return _Ready(ids, params, sorted(stop))

    def _prompt_and_params(self) -> tuple[TokenIds, SamplingParams]:
        """The prompt as token ids, and the sampling parameters to use with it."""
        return prompt_ids(self._prompt, self.tokenizer, self._parse_special), self.params


@dataclasses.dataclass(frozen=True)
class _Ready:
    """A job in the engine's terms: token ids instead of text, a grammar instead of a schema, a bias for ignore_eos."""

    token_ids: npt.NDArray[np.int32]
    params: SamplingParams
    stop_token_ids: list[int]


def prompt_ids(prompt: Prompt, tokenizer: Tokenizer, parse_special: bool) -> TokenIds:
    """Token ids of a prompt: text is encoded with ``add_special``; token ids are returned unchanged.

    Args:
        prompt: text or token ids.
        tokenizer: the model's tokenizer.
        parse_special: whether special tokens that a text spells are tokens.

    Raises:
        EmptyPromptError: the prompt is an empty text.
        InvalidParameterError, ClosedError: as :meth:`Tokenizer.encode <pyggml.tokenizer.Tokenizer.encode>`.
    """
    _require_text(prompt)
    return tokenizer.encode(prompt, parse_special=parse_special) if isinstance(prompt, str) else prompt


def merge(params: SamplingParams | None, overrides: Mapping[str, Any]) -> SamplingParams:
    """``params``, or the defaults, with fields replaced.

    Raises:
        InvalidParameterError: ``params`` is not SamplingParams, or an override is unknown or invalid.
    """
    if params is not None and not isinstance(params, SamplingParams):
        raise InvalidParameterError(f"params must be SamplingParams, not {type(params).__name__}")
    known = SamplingParams.__dataclass_fields__.keys()
    unknown = overrides.keys() - known
    if unknown:
        raise InvalidParameterError(
            f"unknown sampling parameter {', '.join(sorted(unknown))}; known are {', '.join(sorted(known))}"
        )
    params = params or SamplingParams()
    return dataclasses.replace(params, **overrides) if overrides else params


def without_schema(params: SamplingParams) -> SamplingParams:
    """The parameters with the JSON schema, if any, replaced by a grammar.

    Raises:
        GrammarError, InvalidParameterError: as :func:`pyggml.schema.grammar.grammar_of`.
    """
    if params.json_schema is None:
        return params
    return dataclasses.replace(params, json_schema=None, grammar=schema_grammar.grammar_of(params.json_schema))


def _require_text(prompt: Prompt) -> None:
    if isinstance(prompt, str) and not prompt:
        raise EmptyPromptError("the prompt is empty: give some text or token ids")


def _size(prompt: Prompt) -> int:
    try:
        return len(prompt)
    except TypeError:
        return 0  # not a prompt, which is refused later
