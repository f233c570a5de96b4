"""Sampling parameters under llama-cpp-python's names, for the engine and for the loop over single tokens."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyggml
from pyggml.compat.llama_cpp.llama_grammar import LlamaGrammar

#: The seed that stands for a random one: ``LLAMA_DEFAULT_SEED``.
RANDOM_SEED = 0xFFFFFFFF


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Sampling parameters. Their meanings, and what turns each off, are those of llama-cpp-python.

    Attributes:
        temperature: below 0: sample from all tokens; 0: take the likeliest one.
        penalty_last_n: how many tokens count for the penalties.
        seed: any integer; its lower 32 bits count, and if all are set the seed is random.
    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    repeat_penalty: float
    frequency_penalty: float
    presence_penalty: float
    penalty_last_n: int
    tfs_z: float
    mirostat_mode: int
    mirostat_tau: float
    mirostat_eta: float
    grammar: LlamaGrammar | None
    logit_bias: Mapping[Any, float] | None
    seed: int

    def __post_init__(self) -> None:
        if self.tfs_z != 1.0:
            message = f"tfs_z={self.tfs_z!r} has no effect: llama.cpp has no tail-free sampling any more"
            warnings.warn(message, UserWarning, stacklevel=6)
        if not isinstance(self.grammar, (LlamaGrammar, type(None))):
            found = type(self.grammar).__name__
            raise pyggml.InvalidParameterError(
                f"grammar must be a LlamaGrammar, not {found}: LlamaGrammar.from_string(text)"
            )

    def params(self, *, max_tokens: int, stop: Sequence[str] = (), **others: Any) -> pyggml.SamplingParams:
        """Return the parameters of a request to the engine.

        Raises:
            InvalidParameterError: a parameter is out of range.
        """
        if self.grammar is not None:
            others["grammar"] = pyggml.Grammar(self.grammar._grammar, self.grammar._root)
        return pyggml.SamplingParams(
            max_tokens=max_tokens,
            stop=tuple(stop),
            repeat_penalty=self.repeat_penalty,
            frequency_penalty=self.frequency_penalty,
            presence_penalty=self.presence_penalty,
            penalty_last_n=self.penalty_last_n,
            logit_bias=self._bias or None,
            seed=self._seed,
            repetition_guard=False,
            **self._choice(),
            **others,
        )

    def chain(self, model: pyggml.Model) -> pyggml.Sampler:
        """Return a chain of samplers with the same effect, which the caller closes.

        Raises:
            InvalidParameterError, GrammarError: a parameter is out of range, or the grammar cannot be used.
        """
        chain = pyggml.Sampler(model)
        try:
            self._fill(chain)
        except BaseException:
            chain.close()
            raise
        return chain

    def _fill(self, chain: pyggml.Sampler) -> None:
        if self._bias:
            chain.logit_bias(self._bias)
        chain.penalties(self.penalty_last_n, self.repeat_penalty, self.frequency_penalty, self.presence_penalty)
        if self.grammar is not None:
            chain.grammar(self.grammar._grammar, self.grammar._root)
        if self.temperature < 0:
            chain.dist(self._seed)
        elif self.temperature == 0:
            chain.greedy()
        elif self.mirostat_mode == 1:
            chain.mirostat(self.mirostat_tau, self.mirostat_eta, seed=self._seed)
        elif self.mirostat_mode == 2:
            chain.mirostat_v2(self.mirostat_tau, self.mirostat_eta, seed=self._seed)
        else:
            chain.top_k(max(0, self.top_k)).typical(self.typical_p).top_p(self.top_p).min_p(self.min_p)
            chain.temp(self.temperature).dist(self._seed)

    def _choice(self) -> dict[str, Any]:
        """Return the parameters of the samplers that drop tokens and choose one."""
        if self.temperature < 0:
            return {"temperature": 1.0}
        if self.temperature == 0:
            return {"temperature": 0.0}
        if self.mirostat_mode in (1, 2):  # it ignores the temperature
            names = {"mirostat_tau": self.mirostat_tau, "mirostat_eta": self.mirostat_eta}
            return {"temperature": 1.0, "mirostat": self.mirostat_mode, **names}
        return {
            "temperature": self.temperature,
            "top_k": max(0, self.top_k),
            "top_p": self.top_p,
            "min_p": self.min_p,
            "typical_p": self.typical_p,
            "min_keep": 1,
        }

    @property
    def _bias(self) -> dict[int, float]:
        return {int(token): float(bias) for token, bias in (self.logit_bias or {}).items()}

    @property
    def _seed(self) -> int | None:
        seed = self.seed & RANDOM_SEED
        return None if seed == RANDOM_SEED else seed
