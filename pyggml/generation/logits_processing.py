"""Logits processors: functions of the caller that change the logits of a request before each token is sampled.

The engine calls :func:`_process_logits` once per step, for all requests that have processors, on its own thread, which
holds no lock and waits for it. So the calls of an engine come one after another, and each takes the GIL.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from pyggml._core.checks import choice, integer
from pyggml._core.ffi import ffi, lib
from pyggml.errors import InvalidParameterError

if TYPE_CHECKING:
    from pyggml._core.ffi import CData
    from pyggml.generation.engine import Engine

#: Of the token ids so far, int32, (n,), and the logits, float32, (n_vocab,).
LogitsProcessor = Callable[[npt.NDArray[np.int32], npt.NDArray[np.float32]], Any]

_MIN_IDS = 256

_numbers = itertools.count(1)
# By number. The engine may call for a request that Python has dropped; then its entry is gone.
_running: weakref.WeakValueDictionary[int, LogitsProcessing] = weakref.WeakValueDictionary()


class LogitsProcessing:
    """The processors of one request, and the arrays that they see: memory of Python, which is valid after the request.

    Attributes:
        number: identifies it to the engine.
        error: what a processor raised, which ended the request.
    """

    def __init__(self, processors: Sequence[LogitsProcessor], engine: Engine) -> None:
        """Create it for one request to an engine, which must not be freed while it waits for this."""
        self.number = next(_numbers)
        self.error: BaseException | None = None
        self._processors = processors
        self._engine = engine
        self._ids = np.empty(_MIN_IDS, np.int32)
        self._n_ids = 0
        self._logits = np.empty(engine.n_vocab, np.float32)
        _running[self.number] = self

    def request_options(self, options: CData) -> None:
        """Set the fields of a ``pyg_request_options *``."""
        options.logits_callback, options.processor = lib.pyg_python_process_logits, self.number

    def process(self, row: CData) -> bool:
        """Let the processors change a ``pyg_logits_row &``. Returns False if one raised an exception."""
        try:
            n_bytes = self._logits.nbytes
            self._logits[:] = np.frombuffer(memoryview(ffi.buffer(row.logits, n_bytes)), np.float32)
            row.token_id = self._call(self._token_ids(row))
            np.frombuffer(memoryview(ffi.buffer(row.processed, n_bytes)), np.float32)[:] = self._logits
            return True
        except BaseException as error:
            self.error = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
            return False

    def _call(self, token_ids: npt.NDArray[np.int32]) -> int:
        """Call the processors in their order. Returns the token that one of them chose, or -1."""
        logits = self._logits
        for processor in self._processors:
            result = processor(token_ids, logits)
            if isinstance(result, (int, np.integer)):
                return integer("the token that logits_processor returns", result, 0, len(logits) - 1)
            if result is not None and result is not logits:
                logits[:] = _row(result, len(logits))
        return -1

    def _token_ids(self, row: CData) -> npt.NDArray[np.int32]:
        """Append the tokens since the last step. Returns all tokens."""
        first, n = self._n_ids, row.n_tokens
        if n <= first:  # the context was full, and the older tokens were dropped
            first = 0
        if n > len(self._ids):
            self._ids = np.concatenate([self._ids[:first], np.empty(2 * n - first, np.int32)])
        new = memoryview(ffi.buffer(row.token_ids + first, 4 * (n - first)))
        self._ids[first:n] = np.frombuffer(new, np.int32)
        self._n_ids = n
        token_ids = self._ids[:n]
        token_ids.flags.writeable = False
        return token_ids


class BatchedLogitsProcessor:
    """A logits processor of transformers or Outlines, which takes batches, as ``logits_processor`` of a request.

    >>> from transformers import NoRepeatNGramLogitsProcessor
    >>> llm.generate(prompt, logits_processor=pyggml.BatchedLogitsProcessor(NoRepeatNGramLogitsProcessor(3)))

    It is called with the token ids, int64, (1, n), and the logits, float32, (1, n_vocab), and returns logits. Make one
    for each request if the processor keeps a state, as those of Outlines do.
    """

    def __init__(self, processor: Callable[[Any, Any], Any], tensors: Literal["torch", "numpy"] = "torch") -> None:
        """Adapt a processor.

        Args:
            processor: the processor, such as a ``LogitsProcessorList`` of transformers.
            tensors: the kind of arrays that it takes: "torch", or "numpy".

        Raises:
            InvalidParameterError: it is not callable, or ``tensors`` is neither.
            ModuleNotFoundError: torch is not installed.
        """
        if not callable(processor):
            raise InvalidParameterError(f"a logits processor must be callable, not {type(processor).__name__}")
        choice("tensors", tensors, ("torch", "numpy"))
        self._processor = processor
        self._torch: ModuleType | None = None
        if tensors == "torch":
            import torch

            self._torch = torch

    def __call__(self, token_ids: npt.NDArray[np.int32], logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the logits as the processor changes them: float32, (1, n_vocab).

        Args:
            token_ids: prompt and output so far, int32, (n,).
            logits: float32, (n_vocab,).
        """
        ids, rows = token_ids[None].astype(np.int64), logits[None]
        if self._torch is None:
            return np.asarray(self._processor(ids, rows), np.float32)
        with self._torch.inference_mode():
            found = self._processor(self._torch.from_numpy(ids), self._torch.from_numpy(rows))
        result: npt.NDArray[np.float32] = found.float().numpy()
        return result


def _row(result: Any, n_vocab: int) -> npt.NDArray[np.float32]:
    """Return logits that a processor returned, (n_vocab,) or (1, n_vocab)."""
    try:
        row = np.asarray(result, np.float32)
    except (TypeError, ValueError):
        row = None
    if row is None or row.size != n_vocab:
        what = type(result).__name__ if row is None else f"an array of the shape {row.shape}"
        raise InvalidParameterError(
            f"logits_processor must return {n_vocab} logits, a token id, or None after changing them in place, not "
            f"{what}"
        )
    return row.reshape(-1)


@ffi.def_extern(name="pyg_python_process_logits")
def _process_logits(rows: CData, n_rows: int) -> None:
    for i in range(n_rows):
        row = rows[i]
        processing = _running.get(row.processor)
        row.is_done = processing is not None and processing.process(row)
