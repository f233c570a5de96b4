"""The methods of LLM that score continuations."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pyggml._core.c_values import int32_array
from pyggml._core.checks import flag, iterate
from pyggml._core.hints import with_hints
from pyggml.errors import ClosedError, ContextOverflowError, EmptyPromptError, InvalidParameterError
from pyggml.generation.adapters import ScaledAdapters
from pyggml.generation.batch_generation import Batch
from pyggml.generation.engine import Engine
from pyggml.generation.pending_request import Prompt, PromptRequest, TokenIds, prompt_ids
from pyggml.generation.scoring.loop_locks import LoopLocks
from pyggml.generation.scoring.prefix_tree import Item
from pyggml.generation.scoring.scorer import Scorer, score_of
from pyggml.options.adapter_choice import AdapterChoice
from pyggml.tokenizer import Tokenizer
from pyggml.types import SamplingParams, Score

if TYPE_CHECKING:
    from pyggml._native.adapter import Adapter
    from pyggml._native.model import Model

#: Cells of a KV cache for short texts, of which several chunks are in a batch then.
_MIN_CELLS = 2048


class SharedScorer:
    """A scorer that threads share, one at a time, and that is replaced by a larger one for longer texts."""

    def __init__(self, make: Callable[[int], Scorer], n_ctx: int) -> None:
        """Create it without allocating anything, for sequences of at most ``n_ctx`` tokens."""
        self._make = make
        self._n_ctx = n_ctx
        self._scorer: Scorer | None = None
        self._n_cells = 0
        self._lock = threading.RLock()  # a signal handler may interrupt a call by another
        self._is_busy = False
        self._is_closed = False

    def scores(self, items: Sequence[Item], adapters: ScaledAdapters, is_cancelled: Callable[[], bool]) -> list[Score]:
        """Score sequences; between two batches, stop if it is cancelled."""
        with self._lock:
            if self._is_busy:
                raise InvalidParameterError("llm.score() was called in a signal handler that interrupts llm.score()")
            self._is_busy = True
            try:
                return self._scores(items, dict(adapters), is_cancelled)
            finally:
                self._is_busy = False
                if self._is_closed:
                    self._free()

    def close(self) -> None:
        """Free the context once its batch has ended. Safe to call again."""
        self._is_closed = True
        with self._lock:
            if not self._is_busy:
                self._free()
            elif self._scorer is not None:  # this thread's call of scores() is interrupted, and goes on only after this
                self._scorer.release_adapters()

    def _scores(
        self, items: Sequence[Item], adapters: Mapping[Adapter, float], is_cancelled: Callable[[], bool]
    ) -> list[Score]:
        self._require_open()
        if is_cancelled():  # while it waited
            return []
        scores: dict[int, Score] = {}
        scorer = self._of_size(max((len(item.token_ids) for item in items), default=0))
        for index, score in scorer.scores(items, adapters):
            scores[index] = score
            if is_cancelled():
                return []
            self._require_open()
        return [scores[index] for index in range(len(items))]

    def _free(self) -> None:
        if self._scorer is not None:
            self._scorer.close()
            self._scorer = None

    def _of_size(self, n_needed: int) -> Scorer:
        if self._scorer is None or self._n_cells < n_needed:
            self._free()
            n_cells = _MIN_CELLS
            while n_cells < n_needed:
                n_cells *= 2
            self._n_cells = max(min(n_cells, self._n_ctx), n_needed)
            self._scorer = self._make(self._n_cells)
        return self._scorer

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the model was closed")


class ScoringMethods:
    """The methods of :class:`pyggml.LLM` that score continuations."""

    if TYPE_CHECKING:
        model: Model
        tokenizer: Tokenizer
        n_ctx: int
        _shared_scorer: SharedScorer | None
        _score_locks: LoopLocks

        @property
        def _engine(self) -> Engine: ...

    @with_hints("scoring")
    def score(
        self,
        prompt: Prompt,
        continuations: Iterable[str | TokenIds],
        *,
        adapter: AdapterChoice | None = None,
        parse_special: bool = True,
    ) -> list[Score]:
        """Compute how likely each continuation of a prompt is: its log probability, and that of each token.

        Prefixes that sequences share, such as the prompt, are computed once, and many sequences in a batch, in a
        context of its own, so that generation continues meanwhile. Concurrent calls wait for one another.

        Args:
            prompt: text or token ids, at least one token.
            continuations: texts or token ids. A text after a text is tokenized together with it, as in
                lm-evaluation-harness: blanks at the end of the prompt count as the continuation's.
            adapter: the adapters, as in SamplingParams: None means the defaults.
            parse_special: as for :meth:`LLM.generate <pyggml.LLM.generate>`.

        Returns:
            A score for each continuation, in their order.

        Raises:
            EmptyPromptError: the prompt or a continuation has no tokens.
            ContextOverflowError: prompt and continuation together are longer than ``n_ctx``; names its index.
            InvalidParameterError: an argument is invalid, a token id is outside the vocabulary, or there is no adapter
                of that name.
            UnsupportedArchitectureError: the model does not generate text.
            OutOfMemoryError: the context does not fit.
            ClosedError: the model or an adapter was closed.
        """
        return self._scores(self._items(prompt, continuations, parse_special), adapter, lambda: False)

    @with_hints("scoring")
    async def ascore(
        self,
        prompt: Prompt,
        continuations: Iterable[str | TokenIds],
        *,
        adapter: AdapterChoice | None = None,
        parse_special: bool = True,
    ) -> list[Score]:
        """As :meth:`score`, for coroutines. Cancelling the task gives up what is in no batch yet."""
        from asyncio import to_thread

        cancelled = threading.Event()

        def run() -> list[Score]:
            return self._scores(self._items(prompt, continuations, parse_special), adapter, cancelled.is_set)

        try:
            async with self._score_locks.of_running_loop():
                return await to_thread(run)
        finally:
            cancelled.set()

    def _scores(
        self, items: Sequence[Item], adapter: AdapterChoice | None, is_cancelled: Callable[[], bool]
    ) -> list[Score]:
        adapters = self._engine.resolve_adapters(adapter)
        if self._shared_scorer is not None:
            return self._shared_scorer.scores(items, adapters, is_cancelled)
        make_request = partial(_prompt_request, self.tokenizer, adapter)
        batch: Batch[Any] = Batch(items, make_request, noun="continuation", progress=False)
        return [_score_of_prompt(item, done) for item, done in zip(items, batch.run(self._engine), strict=True)]

    def _items(self, prompt: Prompt, continuations: Iterable[str | TokenIds], parse_special: bool) -> list[Item]:
        """Tokenize and check the sequences of a call."""
        _ = self._engine  # raises for models that do not generate
        parse_special = flag("parse_special", parse_special)
        each_continuation = iterate(
            "continuations", continuations, "an iterable of texts or of token ids (put a single one in a list)"
        )
        tokens = Tokens(self.tokenizer, prompt, parse_special)
        items = []
        for index, continuation in enumerate(each_continuation):
            item = tokens.item(index, continuation)
            if len(item.token_ids) > self.n_ctx:
                raise ContextOverflowError(
                    f"continuation {index} and the prompt have {len(item.token_ids)} tokens, but the context holds "
                    f"only {self.n_ctx}: shorten them or load with a larger n_ctx"
                )
            items.append(item)
        return items


class Tokens:
    """The tokens of a prompt with one continuation or another."""

    def __init__(self, tokenizer: Tokenizer, prompt: Prompt, parse_special: bool) -> None:
        """Tokenize the prompt.

        Raises:
            InferError: as :meth:`ScoringMethods.score`.
        """
        self._encode = partial(tokenizer.encode, parse_special=parse_special)
        self._text = prompt if isinstance(prompt, str) else None
        # Most tokenizers join blanks with the word that follows, so these belong to the continuation.
        kept = prompt.rstrip() or prompt if isinstance(prompt, str) else prompt
        self._ids: list[int] = int32_array("the prompt", prompt_ids(kept, tokenizer, parse_special)).tolist()
        if not self._ids:
            raise EmptyPromptError("the prompt has no tokens: a score needs at least one before the continuation")

    def item(self, index: int, continuation: str | TokenIds) -> Item:
        """Return the sequence of prompt and continuation; ``index`` names it in messages."""
        if not isinstance(continuation, str):
            after: list[int] = int32_array(f"continuation {index}", continuation).tolist()
            return self._checked(index, self._ids if self._text is None else self._encode(self._text), after)
        if self._text is None:
            return self._checked(index, self._ids, self._encode(continuation, add_special=False))
        whole, n = self._encode(self._text + continuation), len(self._ids)
        return self._checked(index, whole[:n], whole[n:] if continuation else [])

    def _checked(self, index: int, before: list[int], after: list[int]) -> Item:
        if not after:
            raise EmptyPromptError(f"continuation {index} has no tokens: give at least one")
        return Item(before + after, len(after))


def _prompt_request(tokenizer: Tokenizer, adapter: AdapterChoice | None, item: Item) -> PromptRequest:
    """A request for the log probabilities of a sequence, for an engine in another process."""
    params = SamplingParams(max_tokens=0, prompt_logprobs=1, adapter=adapter)
    flags = {"is_streamed": False, "waits_for_capacity": True}
    return PromptRequest(item.token_ids, params, tokenizer, parse_special=True, **flags)


def _score_of_prompt(item: Item, completion: Any) -> Score:
    tokens = completion.prompt_logprobs[-item.n_scored :]
    return score_of(item, [(each.logprob, each.top[0].token_id == each.token_id) for each in tokens])
