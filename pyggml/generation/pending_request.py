"""Generation requests that are checked, but not queued yet."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pyggml._core.c_values import int32_array
from pyggml._core.checks import flag
from pyggml._native.vocab import Vocab
from pyggml.errors import EmptyPromptError, InvalidParameterError, RequestTimeout
from pyggml.generation.param_merging import in_token_ids
from pyggml.generation.request import TOKENS_PER_READ
from pyggml.generation.request_options import ReasoningTokens
from pyggml.generation.stream import ChunkBuilder
from pyggml.options.sampling import FORMATS
from pyggml.tokenizer import Tokenizer
from pyggml.types import SamplingParams

TokenIds = Sequence[int] | npt.NDArray[np.integer[Any]]
Prompt = str | TokenIds

# From these sizes on, submitting takes longer than about a millisecond and must not run in an event loop.
LONG_TEXT = 4_000  # characters to tokenize
_LONG_LIST = 8_000  # token ids to convert
_LONG_BIAS = 1_000  # entries

#: With stop strings, the text is checked as it grows, this many tokens at a time.
TOKENS_PER_STOP_CHECK = 8


class PendingRequest:
    """A request to complete token ids. Any one thread may submit it, again if the queue was full.

    Attributes:
        params: sampling parameters; after :meth:`encode` in the engine's terms, without a schema and ``ignore_eos``.
        json_schema: the parameter of this name, which the output is parsed with.
        token_ids: the prompt, set by :meth:`encode`.
        stop_token_ids: all tokens that end the generation, set by :meth:`encode`.
        reasoning: the tokens around reasoning, set by :meth:`encode` of a chat with ``reasoning_budget``.
        is_streamed: the reader takes tokens as they come. False: it waits for the end, so tokens may come late.
        waits_for_capacity: if the queue is full, wait instead of raising QueueFullError.
        saves_prefix: copies the prompt's KV cells; see :meth:`Engine.save_prefix <pyggml.Engine.save_prefix>`.
        submitted_s: time of submission, by :func:`time.monotonic`; None: not submitted yet.
    """

    token_ids: npt.NDArray[np.int32]
    stop_token_ids: list[int]
    reasoning: ReasoningTokens | None = None

    def __init__(
        self,
        prompt: Prompt,
        params: SamplingParams,
        *,
        is_streamed: bool = True,
        waits_for_capacity: bool = False,
        saves_prefix: bool = False,
    ) -> None:
        self.params = params
        self.json_schema = params.json_schema
        self.is_streamed = is_streamed
        self.waits_for_capacity = waits_for_capacity
        self.saves_prefix = saves_prefix
        self.submitted_s: float | None = None
        self._prompt = prompt
        self._is_encoded = False

    @property
    def is_slow(self) -> bool:
        """True if submitting it may take more than a millisecond or two."""
        return (
            _size(self._prompt) > (LONG_TEXT if isinstance(self._prompt, str) else _LONG_LIST)
            or any(getattr(self.params, name) is not None for name in FORMATS)
            or len(self.params.logit_bias or ()) > _LONG_BIAS
            or self.params.dry_multiplier != 0  # at first, its breakers are searched in the whole vocabulary
        )

    @property
    def size(self) -> int:
        """Number of characters or token ids of the prompt."""
        return _size(self._prompt)

    @property
    def grammar_sources(self) -> list[Any]:
        """Values that a grammar is made from; []: the request has no grammar."""
        return [value for name in FORMATS if (value := getattr(self.params, name)) is not None]

    def encode(self, model_stop_ids: Iterable[int], vocab: Vocab) -> None:
        """Convert prompt and parameters to the engine's terms. Later calls change nothing.

        Raises:
            InvalidParameterError, GrammarError: as :meth:`Engine.submit <pyggml.Engine.submit>`, and errors of
                tokenizers.
        """
        if not self._is_encoded:
            prompt, params = self._prompt_and_params()
            self.token_ids = int32_array("the prompt", prompt)
            if params.reasoning_budget is not None and self.reasoning is None:
                raise InvalidParameterError(
                    "reasoning_budget needs a chat, whose template says where reasoning begins and ends: use "
                    "chat(messages, reasoning_budget=...)"
                )
            if params.bad_words:
                params = dataclasses.replace(params, bad_words=self._bad_sequences(params.bad_words))
            self.params, self.stop_token_ids = in_token_ids(params, model_stop_ids, vocab)
            self._is_encoded = True

    def deadline(self) -> float | None:
        """The end of ``timeout_s``, counted from now, by :func:`time.monotonic`; None: no limit."""
        return None if self.params.timeout_s is None else time.monotonic() + self.params.timeout_s

    def _prompt_and_params(self) -> tuple[TokenIds, SamplingParams]:
        """The prompt as token ids, and the sampling parameters for it."""
        if isinstance(self._prompt, (str, bytes)):
            raise InvalidParameterError("an engine takes token ids, not text: tokenize it first, or use an LLM")
        if self.params.stop:
            raise InvalidParameterError(
                "an engine has no tokenizer to find stop strings with: pass stop_token_ids, or read the tokens and "
                "cancel() the request"
            )
        return self._prompt, self.params

    def _bad_sequences(self, words: Sequence[str | Sequence[int]]) -> list[Sequence[int]]:
        """Token ids of ``bad_words``."""
        if any(isinstance(word, str) for word in words):
            raise InvalidParameterError(
                "an engine has no tokenizer for bad_words: pass sequences of token ids, or use an LLM"
            )
        return cast("list[Sequence[int]]", list(words))


class PromptRequest(PendingRequest):
    """A request to complete a prompt, with a tokenizer for its text and that of the completion.

    Attributes:
        tokenizer: encodes the prompt and decodes the completion.
    """

    def __init__(
        self, prompt: Prompt, params: SamplingParams, tokenizer: Tokenizer, *, parse_special: bool, **flags: bool
    ) -> None:
        """Check the prompt without tokenizing it; ``flags`` as for PendingRequest.

        Raises:
            EmptyPromptError: the prompt is an empty text.
            InvalidParameterError: the prompt is neither text nor token ids, or ``parse_special`` is not a bool.
        """
        _require_prompt(prompt)
        self._parse_special = flag("parse_special", parse_special)
        super().__init__(prompt, params, **flags)
        self.tokenizer = tokenizer

    @property
    def min_tokens(self) -> int:
        """Number of new tokens for which to wake the reader."""
        if self.is_streamed:
            return 1
        return TOKENS_PER_STOP_CHECK if self._may_end_early else TOKENS_PER_READ

    @property
    def stop(self) -> tuple[str, ...]:
        """The stop strings."""
        return tuple(self.params.stop or ())

    def builder(self) -> ChunkBuilder:
        """A new builder of the chunks and the completion."""
        return ChunkBuilder(self)

    @property
    def _may_end_early(self) -> bool:
        """True if the generated text may end the generation, which the engine does not see."""
        return bool(self.stop)

    def _prompt_and_params(self) -> tuple[TokenIds, SamplingParams]:
        return prompt_ids(self._prompt, self.tokenizer, self._parse_special), self.params

    def _bad_sequences(self, words: Sequence[str | Sequence[int]]) -> list[Sequence[int]]:
        """Token ids of ``bad_words``: as in vLLM, those of each text with and without a space before it."""
        sequences: list[Sequence[int]] = []
        for word in words:
            spellings = {word, word.lstrip() or word, f" {word.lstrip()}"} if isinstance(word, str) else ()
            sequences += [self.tokenizer.encode(each, add_special=False) for each in spellings]
            sequences += [] if isinstance(word, str) else [word]
        return list(filter(None, dict.fromkeys(map(tuple, sequences))))


def prompt_ids(prompt: Prompt, tokenizer: Tokenizer, parse_special: bool) -> TokenIds:
    """Token ids of a prompt: text is encoded with ``add_special``; token ids are returned unchanged.

    Raises:
        EmptyPromptError: the prompt is an empty text.
        InvalidParameterError, ClosedError: as :meth:`Tokenizer.encode <pyggml.tokenizer.Tokenizer.encode>`.
    """
    _require_prompt(prompt)
    return tokenizer.encode(prompt, parse_special=parse_special) if isinstance(prompt, str) else prompt


def time_left(deadline: float | None) -> float | None:
    """Seconds until a request's deadline; None without one.

    Raises:
        RequestTimeout: the deadline passed before the request was queued.
    """
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise RequestTimeout(
            "timeout_s passed while the queue was full: allow more time, send fewer requests at once, or load the "
            "model with a larger max_queue"
        )
    return left


def _require_prompt(prompt: Prompt) -> None:
    """Refuse an empty text, and objects that other libraries take as a prompt."""
    if isinstance(prompt, str) and not prompt:
        raise EmptyPromptError("the prompt is empty: give some text or token ids")
    if is_message(prompt):
        raise InvalidParameterError("the prompt is a message: chat([message]) answers it")
    if isinstance(prompt, (bytes, Mapping)) or not hasattr(prompt, "__len__"):
        what = "None" if prompt is None else type(prompt).__name__
        way_out = ": llm.generate(text) takes it directly" if isinstance(prompt, Mapping) else ""
        raise InvalidParameterError(f"the prompt must be text or token ids, not {what}{way_out}")
    if isinstance(prompt, (list, tuple)) and prompt:
        if is_message(prompt[0]):
            raise InvalidParameterError(
                "the prompt is a list of messages: chat(messages) takes those, with n=3 for 3 answers"
            )
        if isinstance(prompt[0], (str, list, tuple)):
            raise InvalidParameterError("the prompt is a list of prompts: generate_batch takes those")


def is_message(value: object) -> bool:
    """Return True for a message of a chat."""
    return (isinstance(value, Mapping) and "role" in value) or hasattr(value, "role")


def _size(prompt: Prompt) -> int:
    try:
        return len(prompt)
    except TypeError:
        return 0  # not a prompt, which is refused later
