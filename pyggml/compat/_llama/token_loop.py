"""Generation in which Python sees every token: a context, its tokens, and the loop over them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import pyggml

Ids = npt.NDArray[np.intc]
Scores = npt.NDArray[np.single]
LogitsProcessor = Callable[[Ids, Scores], Scores]
StoppingCriterion = Callable[[Ids, Scores], bool]


@dataclass(frozen=True)
class Steps:
    """The steps of a loop over tokens.

    Attributes:
        chain: chooses tokens.
        processors: change the logits before each choice.
        criteria: end the loop after a choice.
        draft: guesses tokens, which are checked in one forward pass.
    """

    chain: pyggml.Sampler
    processors: Sequence[LogitsProcessor] = ()
    criteria: StoppingCriterion | None = None
    draft: Callable[[Ids], Ids] | None = None


class TokenLoop:
    """A context of one sequence and its tokens. For one thread at a time.

    Attributes:
        n_ctx: maximum number of tokens.
        n_tokens: number of tokens evaluated. Set it to a smaller number to drop the last ones.
        input_ids: the tokens, intc, (n_ctx,); the first ``n_tokens`` count.
        scores: logits by position, float32, (n_ctx, n_vocab): of all tokens with ``logits_all``, else of the last
            one of each :meth:`eval`; the other rows are zeros.
        logits_all: True if ``scores`` has the logits of all tokens.
        is_current: True if the context has the logits of the last token.
    """

    def __init__(self, model: pyggml.Model, options: dict[str, Any], *, logits_all: bool, drafts: bool = False) -> None:
        """Create the context.

        Args:
            model: the model, which the caller keeps open.
            options: the context's options.
            logits_all: keep the logits of all tokens.
            drafts: compute the logits of all tokens of a batch, so that guesses can be checked.
        """
        self.context = pyggml.Context(model, **options)
        self.n_ctx: int = options["n_ctx"]
        self.n_tokens = 0
        self.input_ids: Ids = np.zeros(self.n_ctx, np.intc)
        # The system provides the memory of a row when it is written.
        self.scores: Scores = np.zeros((self.n_ctx, self.context.n_vocab), np.single)
        self.is_current = False
        self.logits_all = logits_all
        self._has_all_rows = logits_all or drafts
        self._n_batch: int = options["n_batch"]
        self._first_row = 0

    @property
    def address(self) -> ctypes.c_void_p:
        """The address of the ``struct llama_context``, borrowed until :meth:`close`."""
        return ctypes.c_void_p(int(pyggml.ffi.cast("uintptr_t", self.context.handle)))

    def reset(self) -> None:
        """Drop all tokens."""
        self.n_tokens = 0
        self.is_current = False

    def eval(self, tokens: Sequence[int]) -> None:
        """Compute tokens after those that are there.

        Raises:
            ContextOverflowError: they do not fit.
            InvalidParameterError: a token is outside the vocabulary.
            EngineError: the computation failed.
        """
        if self.n_tokens + len(tokens) > self.n_ctx:
            raise pyggml.ContextOverflowError(
                f"Requested tokens ({self.n_tokens + len(tokens)}) exceed context window of {self.n_ctx}"
            )
        self._drop_computed()
        for start in range(0, len(tokens), self._n_batch):
            self._decode(tokens[start : start + self._n_batch], is_last=start + self._n_batch >= len(tokens))

    def logits(self, position: int) -> Scores:
        """Return the logits after the token at a position of the last batch: float32, (n_vocab,), a copy."""
        row: Scores = self.context.logits(position - self._first_row, 1)[0]
        return row

    def sample(self, steps: Steps, position: int) -> int:
        """Choose the token after a position of the last batch.

        Raises:
            InvalidParameterError: a processor returned NaN, +inf or the wrong number of logits.
            EngineError: there are no logits for the position, or no token is left.
        """
        if not steps.processors:
            return steps.chain.sample(self.context, position - self._first_row)
        logits = self.logits(position)
        for processor in steps.processors:
            logits = np.asarray(processor(self.input_ids[: position + 1], logits), np.single).reshape(-1)
        found = steps.chain.apply(logits)
        if found.selected is None:
            raise pyggml.EngineError("the logits processors and the grammar leave no token")
        token = int(found.token_ids[found.selected])
        steps.chain.accept(token)
        return token

    def generate(
        self, tokens: Sequence[int], steps: Steps, *, keep: bool = False
    ) -> Generator[int, Sequence[int] | None, None]:
        """Yield tokens that continue a text, without end. Tokens sent to the generator are appended to the text.

        Args:
            tokens: the text.
            steps: how each token is chosen.
            keep: append to the tokens that are there, instead of replacing them.
        """
        pending = list(tokens) if keep else self._reuse(tokens)
        position = self.n_tokens + len(pending) - 1
        while True:
            if pending:
                self.eval(pending)
            while position < self.n_tokens:
                token = self.sample(steps, position)
                position += 1
                if steps.criteria and steps.criteria(self.input_ids[:position], self.logits(position - 1)):
                    return
                sent = (yield token) or ()
                pending = [token, *sent]
                if sent or (position < self.n_tokens and token != self.input_ids[position]):
                    self.n_tokens = position  # the guesses from here on are wrong
                    position += len(sent)
                    break
            if steps.draft is not None:
                pending += self._guesses(pending, steps.draft)

    def close(self) -> None:
        """Free the context."""
        self.context.close()

    # --- state --------------------------------------------------------------------------------------------

    def save(self) -> bytes:
        """Return the state of the context."""
        self._drop_computed()
        return self.context.state_save()

    def restore(self, state: bytes, input_ids: Ids, n_tokens: int) -> None:
        """Replace the state, with the tokens that belong to it.

        Raises:
            InvalidParameterError: the state is damaged, or does not fit.
        """
        self.context.state_restore(state)
        self.input_ids[:] = 0
        self.input_ids[:n_tokens] = input_ids[:n_tokens]
        self.n_tokens = n_tokens
        self.is_current = False

    # --- inside -------------------------------------------------------------------------------------------

    def _decode(self, tokens: Sequence[int], *, is_last: bool) -> None:
        n, end = len(tokens), self.n_tokens + len(tokens)
        all_rows = self._has_all_rows
        self.context.decode(np.asarray(tokens, np.intc), output="all" if all_rows else "last" if is_last else "none")
        self.input_ids[self.n_tokens : end] = tokens
        self._first_row = self.n_tokens if all_rows else end - 1
        if self.logits_all:
            self.scores[self.n_tokens : end] = self.context.logits(0, n)
        elif is_last:
            self.scores[end - 1] = self.logits(end - 1)
        self.n_tokens = end
        self.is_current = is_last

    def _drop_computed(self) -> None:
        """Remove what the context has computed beyond ``n_tokens``."""
        last = self.context.seq_pos(0)
        n_computed = 0 if last is None else last[1] + 1
        if n_computed <= self.n_tokens:
            return
        self.is_current = False
        if not self.context.seq_rm(0, self.n_tokens, -1):  # a recurrent state cannot go back
            self.context.memory_clear()
            kept, self.n_tokens = self.input_ids[: self.n_tokens].tolist(), 0
            for start in range(0, len(kept), self._n_batch):
                self._decode(kept[start : start + self._n_batch], is_last=False)

    def _reuse(self, tokens: Sequence[int]) -> list[int]:
        """Keep the longest common beginning of the text and the tokens that are there; return the rest of the text."""
        given = list(tokens)
        n_common = common_prefix(self.input_ids[: self.n_tokens].tolist(), given)
        if n_common == len(given) == self.n_tokens and self.is_current:
            return []
        self.n_tokens = min(n_common, max(0, len(given) - 1))  # the last one again, for its logits
        return given[self.n_tokens :]

    def _guesses(self, pending: Sequence[int], draft: Callable[[Ids], Ids]) -> list[int]:
        end = self.n_tokens + len(pending)
        self.input_ids[self.n_tokens : end] = pending
        room = min(self.n_ctx - end, self._n_batch - len(pending))
        guesses: list[int] = np.asarray(draft(self.input_ids[:end])).astype(int).tolist()
        return guesses[: max(0, room)]


def as_processors(given: Sequence[LogitsProcessor] | LogitsProcessor | None) -> Sequence[LogitsProcessor]:
    """Return the logits processors of a list, or a single one."""
    if given is None:
        return ()
    return list(given) if isinstance(given, Sequence) else [given]


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the length of the longest common beginning of two sequences."""
    n = 0
    for left, right in zip(a, b, strict=False):
        if left != right:
            break
        n += 1
    return n
