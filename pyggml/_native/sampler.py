"""Sampler chains, which choose the next token."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from pyggml import errors
from pyggml._core import c_calls
from pyggml._core.c_values import float32_array, int32_array, pointer
from pyggml._core.checks import INT32_MAX, c_string, integer, items, real
from pyggml._core.ffi import ffi, lib
from pyggml._core.owner import ClosableOwner
from pyggml._native.context import Context
from pyggml._native.model import Model

_SIZE_MAX = 2**63 - 1
# Lets the engine choose a seed: the largest 32-bit number, so callers' seeds stop one below it.
_RANDOM_SEED: int = lib.LLAMA_DEFAULT_SEED
_DRY_BREAKERS = ("\n", ":", '"', "*")


@dataclass(frozen=True)
class Candidates:
    """The remaining candidates of a chain, in its order.

    Attributes:
        token_ids: int32, (n,).
        logits: float32, (n,), as changed by the chain.
        probs: float32, (n,); 0 if no sampler of the chain computed them.
        selected: index of the chosen token, None if the chain does not choose one.
    """

    token_ids: npt.NDArray[np.int32]
    logits: npt.NDArray[np.float32]
    probs: npt.NDArray[np.float32]
    selected: int | None


class Sampler(ClosableOwner):
    """A chain of samplers: each filters or reweights the candidates, and the last one chooses a token.

    >>> sampler = Sampler(model).top_k(40).top_p(0.95).temp(0.8).dist(seed=1)
    >>> token_id = sampler.sample(context)

    Methods that add a sampler return the chain. They raise InvalidParameterError for values out of range, and for
    samplers that need a vocabulary in a chain without a model; ClosedError after :meth:`close`. Thread-safe: calls run
    one at a time, without the GIL. Close it, or use it as a context manager.
    """

    _instead_of_a_copy = "clone() returns a copy; another process makes its own"

    def __init__(self, model: Model | None = None) -> None:
        """Create an empty chain.

        Args:
            model: the model, whose vocabulary ``grammar``, ``dry``, ``mirostat`` and ``infill`` need and all token ids
                are checked against. None: a chain for any vocabulary.

        Raises:
            ClosedError: the model was closed.
        """
        if model is not None and not isinstance(model, Model):
            raise errors.InvalidParameterError(f"a Model or None was expected, not {type(model).__name__}")
        of_model = ffi.NULL if model is None else model._handle
        self._handle = c_calls.create("pyg_sampler", lib.pyg_sampler_free, lib.pyg_sampler_new, of_model)

    # --- samplers that choose -------------------------------------------------------------------------------
    # A seed is 0 to 2**32 - 2; None lets the engine pick one.

    def greedy(self) -> Sampler:
        """Choose the most likely token."""
        return self._add(lib.pyg_sampler_add_greedy)

    def dist(self, seed: SupportsIndex | None = None) -> Sampler:
        """Choose at random, by probability.

        Args:
            seed: seed of its random numbers, 0 to 2**32 - 2; None: the engine picks one.
        """
        return self._add(lib.pyg_sampler_add_dist, _seed(seed))

    def mirostat(self, tau: float = 5.0, eta: float = 0.1, m: int = 100, seed: SupportsIndex | None = None) -> Sampler:
        """Mirostat (arXiv:2007.14966): chooses so that the text's surprise stays near ``tau``.

        Args:
            tau: target surprise in bits, at least 0.
            eta: learning rate, at least 0.
            m: number of tokens for estimating the shape of the distribution, at least 1.
            seed: seed of its random numbers.
        """
        return self._add(
            lib.pyg_sampler_add_mirostat,
            _seed(seed),
            real("tau", tau),
            real("eta", eta),
            integer("m", m, 1, INT32_MAX),
        )

    def mirostat_v2(self, tau: float = 5.0, eta: float = 0.1, seed: SupportsIndex | None = None) -> Sampler:
        """Mirostat 2.0: as :meth:`mirostat`, without the estimate.

        Args:
            tau: target surprise in bits, at least 0.
            eta: learning rate, at least 0.
            seed: seed of its random numbers, 0 to 2**32 - 2; None: the engine picks one.
        """
        return self._add(lib.pyg_sampler_add_mirostat_v2, _seed(seed), real("tau", tau), real("eta", eta))

    def adaptive_p(self, target: float, decay: float = 0.9, seed: SupportsIndex | None = None) -> Sampler:
        """Choose tokens near a probability (llama.cpp pull request 17927), best right after ``min_p``.

        Args:
            target: target probability, at most 1; negative: plain random choice.
            decay: weight of earlier tokens, 0 to 0.99: averages over about 1 / (1 - decay) tokens.
            seed: seed of its random numbers.
        """
        return self._add(lib.pyg_sampler_add_adaptive_p, real("target", target), real("decay", decay), _seed(seed))

    # --- samplers that filter -------------------------------------------------------------------------------
    # At least `min_keep` tokens are always kept.

    def top_k(self, k: int) -> Sampler:
        """Keep the ``k`` most likely tokens (arXiv:1904.09751); 0: all.

        Args:
            k: number of tokens; 0: all.
        """
        return self._add(lib.pyg_sampler_add_top_k, integer("k", k, 0, INT32_MAX))

    def top_p(self, p: float, min_keep: int = 1) -> Sampler:
        """Keep the smallest set of tokens with total probability ``p`` (arXiv:1904.09751); 1: all.

        Args:
            p: total probability, 0 to 1; 1: all tokens.
            min_keep: fewest tokens to keep.
        """
        return self._add(lib.pyg_sampler_add_top_p, real("p", p), _min_keep(min_keep))

    def min_p(self, p: float, min_keep: int = 1) -> Sampler:
        """Drop tokens less likely than ``p`` times the most likely one (llama.cpp pull request 3841); 0: none.

        Args:
            p: a fraction of the highest probability, 0 to 1; 0: no token is dropped.
            min_keep: fewest tokens to keep.
        """
        return self._add(lib.pyg_sampler_add_min_p, real("p", p), _min_keep(min_keep))

    def typical(self, p: float, min_keep: int = 1) -> Sampler:
        """Keep tokens with about the expected surprise, of total probability ``p`` (arXiv:2202.00666); 1: all.

        Args:
            p: total probability, 0 to 1; 1: all tokens.
            min_keep: fewest tokens to keep.
        """
        return self._add(lib.pyg_sampler_add_typical, real("p", p), _min_keep(min_keep))

    def top_n_sigma(self, n: float) -> Sampler:
        """Keep logits within ``n`` standard deviations of the largest (arXiv:2411.07641); 0: all.

        Args:
            n: number of standard deviations; 0: all tokens.
        """
        return self._add(lib.pyg_sampler_add_top_n_sigma, real("n", n))

    def xtc(self, p: float, t: float, min_keep: int = 1, seed: SupportsIndex | None = None) -> Sampler:
        """Exclude top choices at random (XTC, text-generation-webui pull request 6335).

        Args:
            p: probability of excluding them, 0 to 1.
            t: of the tokens with at least this probability, only the least likely is kept; above 0.5: off.
            min_keep: fewest tokens to keep.
            seed: seed of its random numbers.
        """
        return self._add(lib.pyg_sampler_add_xtc, real("p", p), real("t", t), _min_keep(min_keep), _seed(seed))

    def infill(self) -> Sampler:
        """Merge tokens with a common prefix and favour ending, for fill-in-the-middle. Use it after ``top_k``.

        It compares every pair of tokens, which is slow for many candidates.
        """
        return self._add(lib.pyg_sampler_add_infill)

    def grammar(self, grammar: str, root: str = "root") -> Sampler:
        """Keep tokens that a GBNF grammar allows to follow.

        As in requests, a special token does not match as its text, unless the grammar mentions that text.

        Args:
            grammar: the grammar's text.
            root: the rule to start from.

        Raises:
            GrammarError: the grammar cannot be used; the message says where and why.
        """
        return self._add(lib.pyg_sampler_add_grammar, c_string("grammar", grammar), c_string("root", root))

    def grammar_lazy(
        self,
        grammar: str,
        root: str = "root",
        *,
        trigger_patterns: Sequence[str] = (),
        trigger_tokens: npt.ArrayLike = (),
    ) -> Sampler:
        """Add a grammar that is inactive until the text matches a pattern or a token appears.

        Args:
            grammar: the grammar's text.
            root: the rule to start from.
            trigger_patterns: regular expressions (ECMAScript), searched for in the text so far; the grammar then
                applies from the first nonempty group on, or else from the whole match.
            trigger_tokens: token ids; the grammar then applies from that token on.

        Raises:
            GrammarError: the grammar or a pattern cannot be used.
        """
        tokens = int32_array("trigger_tokens", trigger_tokens)
        patterns = [
            ffi.new("char[]", c_string("a trigger pattern", pattern))
            for pattern in items("trigger_patterns", trigger_patterns)
        ]
        return self._add(
            lib.pyg_sampler_add_grammar_lazy,
            c_string("grammar", grammar),
            c_string("root", root),
            ffi.new("const char *[]", patterns),
            len(patterns),
            pointer("int32_t[]", tokens),
            len(tokens),
        )

    # --- samplers that reweight -----------------------------------------------------------------------------

    def temp(self, t: float) -> Sampler:
        """Divide logits by ``t``: less random below 1, more random above; 0: the most likely token only.

        Args:
            t: the temperature, at least 0; 1: no change.
        """
        return self._add(lib.pyg_sampler_add_temp, real("t", t))

    def temp_ext(self, t: float, delta: float, exponent: float = 1.0) -> Sampler:
        """Dynamic temperature (arXiv:2309.02772): from ``t - delta`` if the model is certain to ``t + delta``.

        Args:
            t: the middle of the range of temperatures.
            delta: half the width of the range; 0: the temperature is ``t``.
            exponent: exponent of the distribution's normalised entropy, which sets the place in the range.
        """
        return self._add(lib.pyg_sampler_add_temp_ext, real("t", t), real("delta", delta), real("exponent", exponent))

    def penalties(
        self, last_n: int = 64, repeat: float = 1.0, frequency: float = 0.0, presence: float = 0.0
    ) -> Sampler:
        """Make recent tokens less likely.

        Args:
            last_n: number of recent tokens to consider, up to 2**20; 0: off.
            repeat: divisor of positive logits and factor of negative ones, above 0; 1: off.
            frequency: subtracted for each occurrence; 0: off.
            presence: subtracted once if the token occurs; 0: off.
        """
        return self._add(
            lib.pyg_sampler_add_penalties,
            integer("last_n", last_n, 0, INT32_MAX),
            real("repeat", repeat),
            real("frequency", frequency),
            real("presence", presence),
        )

    def dry(
        self,
        multiplier: float,
        base: float = 1.75,
        allowed_length: int = 2,
        last_n: int = 4096,
        breakers: Sequence[str] = _DRY_BREAKERS,
    ) -> Sampler:
        """Penalise continuing a repetition (DRY, text-generation-webui pull request 5677).

        A token that would extend a repeated sequence of n tokens loses ``multiplier * base ** (n - allowed_length)``.

        Args:
            multiplier: at least 0; 0: off.
            base: at least 1.
            allowed_length: longest repetition without a penalty.
            last_n: number of recent tokens to consider, up to 2**20; 0: off.
            breakers: strings of 1 to 40 bytes that end a repetition.
        """
        texts = [ffi.new("char[]", c_string("a breaker", breaker)) for breaker in items("breakers", breakers)]
        return self._add(
            lib.pyg_sampler_add_dry,
            real("multiplier", multiplier),
            real("base", base),
            integer("allowed_length", allowed_length, 0, INT32_MAX),
            integer("last_n", last_n, 0, INT32_MAX),
            ffi.new("const char *[]", texts),
            len(texts),
        )

    def logit_bias(self, biases: Mapping[int, float]) -> Sampler:
        """Add biases to the logits of tokens; ``-inf`` forbids a token.

        Args:
            biases: token id -> number that is added to its logit; ``-inf`` forbids the token.
        """
        if not isinstance(biases, Mapping):
            raise errors.InvalidParameterError(
                f"biases must be a mapping from token ids to numbers, not {type(biases).__name__}"
            )
        ids = int32_array("token ids", list(biases))
        values = float32_array("biases", list(biases.values()))
        return self._add(
            lib.pyg_sampler_add_logit_bias, pointer("int32_t[]", ids), pointer("float[]", values), len(ids)
        )

    # --- using the chain ------------------------------------------------------------------------------------

    def sample(self, context: Context, row: int = -1) -> int:
        """Choose a token from one output row of the context's last batch, and accept it.

        Args:
            context: the context with the logits.
            row: the output row; negative numbers count from the end.

        Raises:
            EngineError: there is no such row, the chain chooses no token or rules out all of them, its grammar is at a
                dead end, or the logits are NaN.
            InvalidParameterError: the context has another vocabulary than the chain.
            ClosedError: chain or context was closed.
        """
        if not isinstance(context, Context):
            raise errors.InvalidParameterError(f"a Context was expected, not {type(context).__name__}")
        index = integer("row", row, -INT32_MAX, INT32_MAX)
        return int(c_calls.call_for_value("int32_t", lib.pyg_sampler_sample, self._handle, context._handle, index))

    def accept(self, token_id: SupportsIndex) -> None:
        """Record that a token was chosen; :meth:`sample` does this itself.

        Args:
            token_id: the token.

        Raises:
            InvalidParameterError: the token is outside the vocabulary, or the grammar does not allow it here.
            EngineError: the grammar is at a dead end; call :meth:`reset`.
        """
        c_calls.call(lib.pyg_sampler_accept, self._handle, integer("token_id", token_id, 0, INT32_MAX))

    def apply(self, logits: npt.ArrayLike, token_ids: npt.ArrayLike | None = None) -> Candidates:
        """Run the chain over given logits, without accepting the chosen token.

        Args:
            logits: numbers or -inf, (n,).
            token_ids: their tokens, (n,); None: 0 to n - 1.

        Returns:
            The remaining tokens, in new arrays.

        Raises:
            InvalidParameterError: there are no logits, one is NaN or +inf, or a token is outside the vocabulary.
            EngineError: the grammar is at a dead end.
        """
        values = float32_array("logits", logits)
        n = len(values)
        ids = np.arange(n, dtype=np.int32) if token_ids is None else int32_array("token_ids", token_ids).copy()
        if len(ids) != n:
            raise errors.InvalidParameterError(f"there are {n} logits but {len(ids)} token ids")
        probs = np.zeros(n, np.float32)
        n_out, selected = ffi.new("int32_t *"), ffi.new("int32_t *")
        c_calls.call(
            lib.pyg_sampler_apply,
            self._handle,
            pointer("int32_t[]", ids),
            pointer("float[]", values),
            pointer("float[]", probs),
            n,
            n_out,
            selected,
        )
        left = n_out[0]
        chosen = None if selected[0] < 0 else int(selected[0])
        return Candidates(ids[:left], values[:left], probs[:left], chosen)

    def reset(self) -> None:
        """Clear the accepted tokens, and restart seeded random numbers."""
        c_calls.call(lib.pyg_sampler_reset, self._handle)

    def clone(self) -> Sampler:
        """Return a copy of the chain in the same state."""
        copy = Sampler.__new__(Sampler)
        copy._handle = c_calls.create("pyg_sampler", lib.pyg_sampler_free, lib.pyg_sampler_clone, self._handle)
        return copy

    def remove(self, index: int) -> None:
        """Remove the sampler at ``index``.

        Args:
            index: its place in the chain, counted from 0.

        Raises:
            InvalidParameterError: there is no such sampler.
        """
        c_calls.call(lib.pyg_sampler_remove, self._handle, integer("index", index, 0, INT32_MAX))

    @property
    def names(self) -> list[str]:
        """The engine's names of the chain's samplers; a leading "?" marks one that its settings switch off."""
        return [self._name(index) for index in range(len(self))]

    def _name(self, index: int) -> str:
        return (c_calls.call_for_text(lib.pyg_sampler_name, self._handle, index) or b"").decode()

    @property
    def seed(self) -> int | None:
        """The seed of the last sampler that reports one (dist, mirostat); None if there is none."""
        seed = int(c_calls.call_for_value("uint32_t", lib.pyg_sampler_seed, self._handle))
        return None if seed == _RANDOM_SEED else seed

    def close(self) -> None:
        """Free the chain once a running call ends. Can be called repeatedly."""
        c_calls.call(lib.pyg_sampler_close, self._handle)

    def _add(self, function: Callable[..., int], *args: object) -> Sampler:
        c_calls.call(function, self._handle, *args)
        return self

    def __len__(self) -> int:
        return int(c_calls.call_for_value("int32_t", lib.pyg_sampler_count, self._handle))

    def __bool__(self) -> bool:
        return True  # an empty chain is a chain

    def __repr__(self) -> str:
        try:
            return f"Sampler({' -> '.join(self.names)})"
        except errors.ClosedError:
            return "Sampler(closed)"


def _seed(seed: SupportsIndex | None) -> int:
    return _RANDOM_SEED if seed is None else integer("seed", seed, 0, _RANDOM_SEED - 1)


def _min_keep(min_keep: int) -> int:
    return integer("min_keep", min_keep, 0, _SIZE_MAX)
