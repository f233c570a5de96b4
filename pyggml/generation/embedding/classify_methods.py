"""The methods of LLM that classify."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from pyggml._core.checks import choice
from pyggml.generation.embedding.embedder import Embedder, in_thread, is_long
from pyggml.generation.embedding.job import Job
from pyggml.generation.embedding.pass_texts import Floats
from pyggml.generation.embedding.texts import Text
from pyggml.types import Classification

#: Functions that turn the head's outputs into scores.
ClassifierActivation = Literal["softmax", "sigmoid", "none"]


class ClassifyMethods:
    """The methods of :class:`pyggml.LLM` that classify."""

    _embedder: Embedder

    if TYPE_CHECKING:

        @overload
        def classify(  # type: ignore[overload-overlap]
            self,
            texts: str,
            *,
            activation: ClassifierActivation | None = None,
            truncate: bool = False,
            max_tokens: int | None = None,
            parse_special: bool = True,
        ) -> Classification: ...

        @overload
        def classify(
            self,
            texts: Iterable[Text],
            *,
            activation: ClassifierActivation | None = None,
            truncate: bool = False,
            max_tokens: int | None = None,
            parse_special: bool = True,
        ) -> list[Classification]: ...

    def classify(
        self,
        texts: str | Iterable[Text],
        *,
        activation: ClassifierActivation | None = None,
        truncate: bool = False,
        max_tokens: int | None = None,
        parse_special: bool = True,
    ) -> Classification | list[Classification]:
        """Classify texts with the model's classification head. Concurrent calls share passes, as for :meth:`embed`.

        Args:
            texts: a text, or several; token ids work too.
            activation: function from the head's outputs to scores: "softmax" over the labels, "sigmoid" of each, which
                then are independent, or "none". None: "sigmoid" for a head of one output, else "softmax".
            truncate: cut off texts that are too long instead of raising ContextOverflowError.
            max_tokens: most tokens of a text; None: as many as the model and the context allow.
            parse_special: interpret special tokens in texts. False: they are plain text.

        Returns:
            A Classification for a single text, else a list of them in the order of the texts. The labels are those of
            the model's file, or LABEL_0, LABEL_1 ...

        Raises:
            InvalidParameterError: the model has no classification head, or an argument is invalid.
            InferError: as :meth:`embed`.
        """
        request = self._classify_request(texts, activation, truncate, max_tokens, parse_special)
        self._embedder.queue.run(request.job)
        return request.result()

    async def aclassify(
        self,
        texts: str | Iterable[Text],
        *,
        activation: ClassifierActivation | None = None,
        truncate: bool = False,
        max_tokens: int | None = None,
        parse_special: bool = True,
    ) -> Classification | list[Classification]:
        """As :meth:`classify`, for coroutines."""
        prepare = functools.partial(self._classify_request, texts, activation, truncate, max_tokens, parse_special)
        request = await in_thread(is_long(texts), prepare)
        await self._embedder.queue.arun(request.job)
        return request.result()

    def _classify_request(self, texts: str | Iterable[Text], activation: Any, *limits: Any) -> _ClassifyRequest:
        if activation is not None:
            choice("activation", activation, ("softmax", "sigmoid", "none"))
        labels, job = self._embedder.prepare_labels(texts, *limits)
        return _ClassifyRequest(
            labels, job, activation or ("sigmoid" if len(labels) == 1 else "softmax"), isinstance(texts, str)
        )


class _ClassifyRequest:
    """Texts that are tokenized and checked."""

    def __init__(self, labels: tuple[str, ...], job: Job, activation: ClassifierActivation, is_single: bool) -> None:
        self.job = job
        self._labels, self._activation, self._is_single = labels, activation, is_single

    def result(self) -> Classification | list[Classification]:
        scores = _activated(np.asarray(self.job.results, np.float32), self._activation)
        found = []
        for row in scores:
            best = int(np.argmax(row))
            by_label = {label: float(score) for label, score in zip(self._labels, row, strict=True)}
            found.append(Classification(self._labels[best], float(row[best]), by_label))
        return found[0] if self._is_single else found


def _activated(outputs: Floats, activation: ClassifierActivation) -> Floats:
    if activation == "sigmoid":
        return np.asarray(0.5 * (1 + np.tanh(0.5 * outputs)), np.float32)
    if activation == "softmax":
        powers = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True), np.float32)
    return outputs
