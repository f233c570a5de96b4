"""Hidden states of chosen layers: the vectors of tokens between the layers of a model."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import numpy as np

from pyggml._core.checks import integer, items
from pyggml._core.locks import NonReentrantLock
from pyggml._native.adapter import Adapter
from pyggml._native.model import Model
from pyggml._native.pooling import pooled
from pyggml._native.token_batch import Ids, TokenBatch
from pyggml.errors import ClosedError, InvalidParameterError
from pyggml.generation.embedding.encoder import BatchEncoder, GrowingContext
from pyggml.generation.embedding.pass_texts import Floats


def checked_layers(model: Model, layers: object) -> tuple[int, ...]:
    """Return the numbers of layers, 0 to n_layer; negative ones count from the last.

    Raises:
        InvalidParameterError: it is no sequence of such numbers, or empty.
    """
    n = model.n_layer + 1
    numbers = items("layers", layers, "numbers of layers, such as [0, -1]")
    if not numbers:
        raise InvalidParameterError("layers is empty: give the number of at least one layer, such as [-1]")
    return tuple(integer("a number of layers", number, -n, n - 1) % n for number in numbers)


class LayerStates:
    """Computes hidden states, one text after the other. Thread-safe: callers take turns after each text."""

    def __init__(self, model: Model, encoder: BatchEncoder) -> None:
        """Compute with an encoder of token vectors of its own, which it closes."""
        self._model, self._encoder, self._is_closed = model, encoder, False
        self._lock = NonReentrantLock("embed() with layers")

    def compute(
        self,
        texts: TokenBatch,
        layers: Sequence[int],
        pooling: Sequence[str],
        n_skipped: int,
        adapters: Mapping[Adapter, float],
        cancelled: threading.Event,
    ) -> list[Floats]:
        """Compute the hidden states of each text.

        Args:
            texts: token ids.
            layers: numbers of layers, 0 to n_layer.
            pooling: kinds of pooling, whose results are concatenated; () for the vectors of all tokens.
            n_skipped: tokens at the beginning of each text that pooling leaves out.
            adapters: LoRA adapters to compute the texts with, and their scales.
            cancelled: is set when the caller gives up the texts that are not computed yet.

        Returns:
            float32, (n_layers, n_columns) each; without pooling (n_layers, n_tokens, n_embd).

        Raises:
            ClosedError: the model or an adapter was closed, or the call was cancelled.
            EngineError: this is a forked child, and the model belongs to its parent.
            InvalidParameterError: the model is in another process, or what interrupted a text in this thread calls it.
            UnsupportedArchitectureError: the engine does not expose the states of this architecture.
        """
        if not isinstance(self._encoder, GrowingContext):
            raise InvalidParameterError("layers does not work with isolate=True: load the model without it")
        results = []
        for ids in texts.split():
            if cancelled.is_set():
                raise ClosedError("the call was cancelled")
            rows = self._states(self._encoder, ids, layers, adapters)
            if pooling:
                length = np.array([len(ids)], np.int32)
                rows = np.stack([pooled(layer, length, pooling, n_skipped)[0] for layer in rows])
            results.append(rows)
        return results

    def close(self) -> None:
        """Free the context once the text that is being computed is done. Safe to call again."""
        self._is_closed = True  # before it waits, so that no other text goes first
        with self._lock.hold_reentrant():
            self._encoder.close()

    def _states(
        self, encoder: GrowingContext, ids: Ids, layers: Sequence[int], adapters: Mapping[Adapter, float]
    ) -> Floats:
        with self._lock.hold():
            try:
                self._require_open()
                rows = encoder.layer_states(ids, layers, adapters)
                self._require_open()
                return rows
            finally:
                if self._is_closed:  # by a signal handler in this thread, after which a context may have been made
                    encoder.close()

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the model was closed")
