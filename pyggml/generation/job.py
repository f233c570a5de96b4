"""A requested generation: checked at once, but prepared and queued only when its caller is ready to wait."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyggml._core.checks import flag
from pyggml.errors import EmptyPromptError, InvalidParameterError
from pyggml.generation.engine import Engine, Prepared, TokenIds
from pyggml.generation.request import TOKENS_PER_READ, Request
from pyggml.generation.waker import Waker
from pyggml.tokenizer import Tokenizer
from pyggml.types import SamplingParams

if TYPE_CHECKING:
    from typing_extensions import Self

    from pyggml.generation.event_loops import Line

Prompt = str | TokenIds

# From these sizes on, submitting takes longer than about a millisecond and must not run in an event loop.
_LONG_TEXT = 4_000  # characters to tokenize
_LONG_LIST = 8_000  # token ids to convert
_LONG_BIAS = 1_000  # entries

#: With stop strings, the text has to be checked as it grows, this many tokens at a time.
TOKENS_PER_LOOK = 8


class Job:
    """One generation that has not been submitted yet. Any one thread may submit it.

    Attributes:
        engine: the engine that will run it.
        tokenizer: encodes the prompt and decodes the answer.
        params: the caller's sampling parameters, merged.
        waits: whether to wait for room if the queue is full.
        submitted_s: when the engine was given the request, by :func:`time.monotonic`; None: not yet.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
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
        self.submitted_s: float | None = None
        self._is_watched = True
        self._prompt = prompt
        self._prepared: Prepared | None = None

    def unwatched(self) -> Self:
        """Makes the reader wake rarely, and lets tokens come late, because nobody looks before the end.

        Returns:
            The job itself.
        """
        self._is_watched = False
        return self

    @property
    def min_tokens(self) -> int:
        """Number of new tokens for which to wake the reader."""
        if self._is_watched:
            return 1
        return TOKENS_PER_LOOK if self._may_end_early else TOKENS_PER_READ

    @property
    def stop(self) -> tuple[str, ...]:
        """The stop strings."""
        return tuple(self.params.stop or ())

    @property
    def is_slow(self) -> bool:
        """Whether :meth:`submit` may take more than a millisecond or two."""
        return (
            _size(self._prompt) > (_LONG_TEXT if isinstance(self._prompt, str) else _LONG_LIST)
            or self.params.grammar is not None
            or self.params.json_schema is not None
            or len(self.params.logit_bias or ()) > _LONG_BIAS
            or self.params.dry_multiplier != 0  # at first, its breakers are looked for in the whole vocabulary
            or self.engine.starts_slowly
        )

    def submit(
        self, deadline: float | None = None, *, waker: Waker | None = None, tag: int = 0, line: Line | None = None
    ) -> Request:
        """Queues the job, if there is room.

        Args:
            deadline: the result of :meth:`deadline`, if it was called earlier; None: ``timeout_s`` starts now.
            waker: notified with ``tag`` when there is news.
            tag: identifies the request to the waker.
            line: to the event loop that reads it, in place of a waker and a tag.

        Raises:
            QueueFullError: there is no room; try again.
            InferError: as :meth:`Engine.submit <pyggml.Engine.submit>`, and errors of tokenizers.
        """
        if self._prepared is None:
            self._prepared = self.engine.prepared(*self._prompt_and_params())
        timeout_s = self.params.timeout_s if deadline is None else max(0.0, deadline - time.monotonic())
        self.submitted_s = time.monotonic()
        return self.engine.start(self._prepared, timeout_s, waker=waker, tag=tag, line=line, watched=self._is_watched)

    def queue(self) -> Request:
        """Queues the job, waiting for room if :attr:`waits` is set.

        Raises:
            As :meth:`submit`; RequestTimeout: ``timeout_s`` passed before there was room.
        """
        deadline = self.deadline()
        if not self.waits:
            return self.submit()
        return self.engine.when_there_is_room(lambda: self.submit(deadline), deadline)

    def deadline(self) -> float | None:
        """When ``timeout_s``, counted from now, ends, by :func:`time.monotonic`; None: there is no limit."""
        return None if self.params.timeout_s is None else time.monotonic() + self.params.timeout_s

    @property
    def _may_end_early(self) -> bool:
        """Whether what is generated may end the generation, which the engine does not know."""
        return bool(self.stop)

    def _prompt_and_params(self) -> tuple[TokenIds, SamplingParams]:
        """The prompt as token ids, and the sampling parameters to use with it."""
        return prompt_ids(self._prompt, self.tokenizer, self._parse_special), self.params


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


def _require_text(prompt: Prompt) -> None:
    """Refuses an empty text, and what other libraries take for a prompt."""
    if isinstance(prompt, str) and not prompt:
        raise EmptyPromptError("the prompt is empty: give some text or token ids")
    if _is_message(prompt):
        raise InvalidParameterError("the prompt is a message: chat([message]) answers it")
    if isinstance(prompt, (bytes, Mapping)) or not hasattr(prompt, "__len__"):
        what = "None" if prompt is None else type(prompt).__name__
        way_out = ": llm.generate(text) takes it directly" if isinstance(prompt, Mapping) else ""
        raise InvalidParameterError(f"the prompt must be text or token ids, not {what}{way_out}")
    if isinstance(prompt, (list, tuple)) and prompt:
        if _is_message(prompt[0]):
            raise InvalidParameterError("the prompt is a list of messages: chat takes those")
        if isinstance(prompt[0], (str, list, tuple)):
            raise InvalidParameterError("the prompt is a list of prompts: generate_batch takes those")


def _is_message(value: object) -> bool:
    return (isinstance(value, Mapping) and "role" in value) or hasattr(value, "role")


def _size(prompt: Prompt) -> int:
    try:
        return len(prompt)
    except TypeError:
        return 0  # not a prompt, which is refused later
