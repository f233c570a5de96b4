"""The methods of ``Llama`` that deal in token ids: tokenization, the loop over tokens, and its state."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

import pyggml
from pyggml.compat._llama.arguments import reject_unknown
from pyggml.compat._llama.generation import log_softmax
from pyggml.compat._llama.model import LlamaModel
from pyggml.compat._llama.sampling import Sampling
from pyggml.compat._llama.token_loop import (
    Ids,
    LogitsProcessor,
    Scores,
    Steps,
    StoppingCriterion,
    TokenLoop,
    as_processors,
    common_prefix,
)
from pyggml.compat.llama_cpp.llama_grammar import LlamaGrammar
from pyggml.compat.llama_cpp.llama_speculative import LlamaDraftModel
from pyggml.compat.llama_cpp.llama_tokenizer import BaseLlamaTokenizer


class LlamaState:
    """The state of the loop over tokens, from :meth:`Llama.save_state`.

    Attributes:
        input_ids: the tokens, intc, (n_ctx,).
        scores: logits by position, float32, (n_tokens, n_vocab).
        n_tokens: number of tokens that count.
        llama_state: the context's state, bytes of the engine.
        llama_state_size: their number.
        seed: the seed of the next completion.
    """

    def __init__(
        self, input_ids: Ids, scores: Scores, n_tokens: int, llama_state: bytes, llama_state_size: int, seed: int
    ) -> None:
        """Keep the parts; the arguments are the attributes."""
        self.input_ids = input_ids
        self.scores = scores
        self.n_tokens = n_tokens
        self.llama_state = llama_state
        self.llama_state_size = llama_state_size
        self.seed = seed


class LlamaContext:
    """The context of the loop over tokens, as ``llama._ctx``, which many programs reach for."""

    def __init__(self, llama: TokenMethods) -> None:
        """Show the context of a model, made when it is needed."""
        self._llama = llama

    @property
    def ctx(self) -> ctypes.c_void_p:
        """The address of the ``struct llama_context``; that of a model without weights is NULL."""
        return ctypes.c_void_p(None) if self._llama.is_vocabulary else self._llama._own_loop.address

    def n_ctx(self) -> int:
        """Return the context size in tokens."""
        return self._llama._own_loop.n_ctx

    def kv_cache_clear(self) -> None:
        """Remove all tokens."""
        self._llama._own_loop.reset()

    def kv_cache_seq_rm(self, seq_id: int, p0: int, p1: int) -> bool:
        """Remove the tokens from ``p0`` on, and return True.

        Args:
            seq_id: the only sequence: 0, or -1 for all.
            p0: the first position; below 0: the beginning.
            p1: below 0: the end, the only possibility.

        Raises:
            InvalidParameterError: there is another sequence, or tokens in the middle were to be removed.
        """
        loop = self._llama._own_loop
        if seq_id not in (-1, 0) or 0 <= p1 < loop.n_tokens:
            raise pyggml.InvalidParameterError("only the last tokens of sequence 0 can be removed: use pyggml.Context")
        loop.n_tokens = min(loop.n_tokens, max(0, p0))
        return True


class TokenMethods:
    """The methods of ``Llama`` that deal in token ids.

    The loop has a context of its own, made by the first method that needs it. One thread at a time may use it.
    """

    draft_model: LlamaDraftModel | None
    last_n_tokens_size: int
    tokenizer_: BaseLlamaTokenizer
    _model: LlamaModel
    _seed: int
    _loop: TokenLoop | None
    _idle_loops: list[TokenLoop]
    _make_loop: Callable[[], TokenLoop]
    is_vocabulary: bool

    # --- text ---------------------------------------------------------------------------------------------

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        """Convert text to token ids.

        Args:
            text: the text, UTF-8.
            add_bos: add the special tokens that the model expects around a text.
            special: read the texts of special tokens as those tokens.

        Raises:
            InvalidParameterError: the text is not bytes.
        """
        if isinstance(text, str):
            raise pyggml.InvalidParameterError("the text must be bytes, not str: text.encode() makes them")
        return self.tokenizer_.tokenize(text, add_bos, special)

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        """Convert token ids to text, UTF-8.

        Args:
            tokens: the tokens.
            prev_tokens: the tokens before them, where the text depends on those.
            special: write special tokens as their texts; otherwise they are left out.
        """
        return self.tokenizer_.detokenize(tokens, prev_tokens=prev_tokens, special=special)

    # --- the loop over tokens -----------------------------------------------------------------------------

    def reset(self) -> None:
        """Drop the tokens of :meth:`eval`. Completions need no reset: each has a context of its own."""
        if self._loop is not None:
            self._loop.reset()

    def eval(self, tokens: Sequence[int]) -> None:
        """Compute tokens after those that are there.

        Args:
            tokens: token ids.

        Raises:
            ContextOverflowError: they do not fit the context.
            InvalidParameterError: a token is outside the vocabulary.
        """
        self._own_loop.eval(tokens)

    def sample(  # noqa: D417  # create_completion describes the rest
        self,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        temp: float = 0.80,
        repeat_penalty: float = 1.0,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_eta: float = 0.1,
        mirostat_tau: float = 5.0,
        penalize_nl: bool = True,
        logits_processor: Sequence[LogitsProcessor] | None = None,
        grammar: LlamaGrammar | None = None,
        idx: int | None = None,
        **unknown: Any,
    ) -> int:
        """Choose the token after the last one of :meth:`eval`, without adding it.

        Args of samplers as :meth:`Llama.create_completion`; each call starts its samplers anew.

        Args:
            temp: the temperature.
            penalize_nl: must be True: the penalties count line ends, too.
            idx: a position of the last batch; None: the last.
            **unknown: raises UnknownParameterError.

        Raises:
            EngineError: nothing was evaluated.
            InferError: a parameter is out of range, or no token is left.
        """
        reject_unknown(type(self).sample, unknown)
        given = {name: value for name, value in locals().items() if name in _SAMPLING}
        loop = self._own_loop
        if loop.n_tokens == 0:
            raise pyggml.EngineError("sample() needs tokens before the one to choose: call eval() first")
        with self._sampling(penalize_nl, temp, **given).chain(self._model.native) as chain:
            return loop.sample(Steps(chain, as_processors(logits_processor)), loop.n_tokens - 1 if idx is None else idx)

    def generate(  # noqa: D417  # create_completion describes the rest
        self,
        tokens: Sequence[int],
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        temp: float = 0.80,
        repeat_penalty: float = 1.0,
        reset: bool = True,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        penalize_nl: bool = True,
        logits_processor: Sequence[LogitsProcessor] | None = None,
        stopping_criteria: StoppingCriterion | None = None,
        grammar: LlamaGrammar | None = None,
        **unknown: Any,
    ) -> Generator[int, Sequence[int] | None, None]:
        """Yield tokens that continue a text, without end; the caller stops at the token it wants.

        Args of samplers as :meth:`Llama.create_completion`. Tokens sent to the generator are added to the text.

        Args:
            tokens: the text.
            temp: the temperature.
            penalize_nl: must be True: the penalties count line ends, too.
            reset: replace the tokens that are there, but reuse a common beginning; False: append.
            stopping_criteria: called with the tokens so far, the chosen one not included, and the logits; True ends.
            **unknown: raises UnknownParameterError.

        Raises:
            InferError: as :meth:`eval` and :meth:`sample`.
        """
        reject_unknown(type(self).generate, unknown)
        given = {name: value for name, value in locals().items() if name in _SAMPLING}
        with self._sampling(penalize_nl, temp, **given).chain(self._model.native) as chain:
            steps = Steps(chain, as_processors(logits_processor), stopping_criteria, self.draft_model)
            yield from self._own_loop.generate(tokens, steps, keep=not reset)

    # --- state --------------------------------------------------------------------------------------------

    def save_state(self) -> LlamaState:
        """Return the tokens of the loop, what the model computed for them, and the seed of the next completion."""
        loop = self._own_loop
        state = loop.save()
        return LlamaState(loop.input_ids.copy(), self._scores.copy(), loop.n_tokens, state, len(state), self._seed)

    def load_state(self, state: LlamaState) -> None:
        """Continue from a state of this model.

        Args:
            state: from :meth:`save_state`.

        Raises:
            InvalidParameterError: the state is of another model, or does not fit the context.
        """
        loop = self._own_loop
        loop.restore(state.llama_state, state.input_ids, state.n_tokens)
        loop.scores[: state.n_tokens] = state.scores
        self._seed = state.seed

    @property
    def n_tokens(self) -> int:
        """Number of tokens evaluated; set a smaller one to drop the last ones."""
        return 0 if self._loop is None else self._loop.n_tokens

    @n_tokens.setter
    def n_tokens(self, n_tokens: int) -> None:
        self._own_loop.n_tokens = n_tokens

    @property
    def input_ids(self) -> Ids:
        """The tokens of the loop, intc, (n_ctx,); the first :attr:`n_tokens` count."""
        return self._own_loop.input_ids

    @property
    def scores(self) -> Scores:
        """Logits by position, float32, (n_ctx, n_vocab): of all tokens with ``logits_all``, else of the last ones."""
        return self._own_loop.scores

    @property
    def eval_tokens(self) -> deque[int]:
        """The tokens evaluated."""
        return deque(self._input_ids.tolist(), maxlen=self._own_loop.n_ctx)

    @property
    def eval_logits(self) -> deque[list[float]]:
        """The logits of the tokens evaluated; without ``logits_all``, of the last."""
        rows = self._scores if self._own_loop.logits_all else self._scores[-1:]
        return deque(rows.tolist(), maxlen=max(1, len(rows)))

    @property
    def _input_ids(self) -> Ids:
        return self._own_loop.input_ids[: self.n_tokens]

    @property
    def _scores(self) -> Scores:
        return self._own_loop.scores[: self.n_tokens]

    @staticmethod
    def logits_to_logprobs(logits: npt.ArrayLike, axis: int = -1) -> Scores:
        """Return log probabilities.

        Args:
            logits: any shape.
            axis: the axis of the vocabulary.
        """
        return log_softmax(np.asarray(logits, np.single), axis)

    @staticmethod
    def longest_token_prefix(a: Sequence[int], b: Sequence[int]) -> int:
        """Return the length of the longest common beginning.

        Args:
            a: token ids.
            b: token ids.
        """
        return common_prefix(a, b)

    # --- inside -------------------------------------------------------------------------------------------

    @property
    def _own_loop(self) -> TokenLoop:
        if self._loop is None:
            self._loop = self._make_loop()
        return self._loop

    @contextmanager
    def idle_loop(self) -> Iterator[TokenLoop]:
        """Borrow a loop for one completion, so that several may run at once."""
        loop = self._idle_loops.pop() if self._idle_loops else self._make_loop()
        try:
            yield loop
        finally:
            if self._idle_loops:
                loop.close()
            else:
                self._idle_loops.append(loop)

    def _sampling(self, penalize_nl: bool, temperature: float, **given: Any) -> Sampling:
        if not penalize_nl:
            raise pyggml.InvalidParameterError("penalize_nl=False is not supported: use logit_bias, or leave it out")
        options = {"logit_bias": None, "seed": self._seed, "penalty_last_n": self.last_n_tokens_size, **given}
        return Sampling(temperature=temperature, **options)


_SAMPLING = frozenset(Sampling.__dataclass_fields__)
