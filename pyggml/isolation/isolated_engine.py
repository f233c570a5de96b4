"""The face of an engine in another process."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pyggml._core.c_values import int32_array
from pyggml._core.checks import flag
from pyggml.errors import EngineError
from pyggml.generation.engine import Engine
from pyggml.generation.pending_request import PendingRequest, TokenIds
from pyggml.isolation import messages
from pyggml.types import EngineStats

if TYPE_CHECKING:
    from pyggml._core.ffi import CData
    from pyggml.generation.waker import Waker
    from pyggml.isolation.process import Process
    from pyggml.isolation.supervisor import Isolated

_COUNTERS = {field.name: field.type for field in dataclasses.fields(EngineStats)}
_OURS = ("not_batch_invariant", "n_restarts")


class IsolatedEngine(Engine):
    """An engine in a process of its own. As :class:`pyggml.Engine`, with these differences.

    A request is checked here and queued there without waiting for an answer. If the process has ended, whatever needs
    it starts another. Prompts for :meth:`logits` are not counted by ``max_queue``.
    """

    def __init__(self, isolated: Isolated, n_parallel: int, stop_token_ids: Iterable[int]) -> None:
        """Computes with a process.

        Args:
            isolated: the process.
            n_parallel: number of requests computed together.
            stop_token_ids: tokens that end every generation.
        """
        self.model = isolated.model
        self.n_ctx = isolated.n_ctx
        self.n_parallel = n_parallel
        self.n_vocab = isolated.model.vocab.n_tokens
        self.stop_token_ids = self._checked_stop_ids(stop_token_ids)
        self._isolated = isolated

    @property
    def is_starting(self) -> bool:
        """Whether the process has to be started first."""
        return self._isolated.last.is_gone()

    def notify_when_queue_has_capacity(self, waker: Waker, tag: int = 0) -> None:
        """As the base class."""
        self._isolated.process().ask_for_room(waker, tag)

    def logits(self, token_ids: TokenIds, *, waits: bool = False) -> npt.NDArray[np.float32]:
        """As the base class."""
        flag("waits", waits)
        prompt = int32_array("the prompt", token_ids)
        n_bytes = self._n_logit_rows(len(prompt)) * self.n_vocab * 4
        _, data = self._isolated.process().call(messages.said(do="logits"), prompt, n_bytes)
        return matrix_of(data, len(prompt), self.n_vocab)

    def reset(self) -> None:
        """As the base class."""
        self._isolated.process().call(messages.said(do="reset"))

    def stats(self) -> EngineStats:
        """The counters of the running process; all 0 while there is none."""
        counted = self._counted(self._isolated.last)
        numbers: dict[str, Any] = {
            name: (float if kind == "float" else int)(counted.get(name, 0))
            for name, kind in _COUNTERS.items()
            if name not in _OURS
        }
        return EngineStats(
            **numbers | {"n_parallel": self.n_parallel},
            not_batch_invariant=self._isolated.not_batch_invariant,
            n_restarts=self._isolated.n_restarts,
        )

    def close(self) -> None:
        """Ends the process, and with it every request (their readers get ClosedError). Safe to call again."""
        self._isolated.close()
        self._is_closed = True

    def _counted(self, process: Process) -> dict[str, Any]:
        if process.is_gone():
            return {}
        try:
            return process.call(messages.said(do="stats"))[0]
        except EngineError:
            if not process.is_ending():
                raise
            return {}

    def _submit(self, request: PendingRequest, options: CData, timeout_s: float | None) -> CData:
        said = messages.asking(request, timeout_s)
        process = self._isolated.process()
        try:
            return self._submit_to(process, request, options, said)
        except EngineError:
            if not process.is_ending():
                raise
        # It ended before it was told, so that nothing has been computed.
        return self._submit_to(self._isolated.process(), request, options, said)

    def _submit_to(self, process: Process, request: PendingRequest, options: CData, said: bytes) -> CData:
        return process.submit(self.model._handle, self.n_ctx, request.token_ids, options, said)


def matrix_of(data: memoryview, n_rows: int, n_columns: int) -> npt.NDArray[np.float32]:
    """The array of an answer: float32, (n_rows, n_columns), which shares the answer's memory.

    Raises:
        EngineError: it has another size.
    """
    if len(data) != n_rows * n_columns * 4:
        raise EngineError("the engine's process sent what makes no sense (the size of an array)")
    return np.frombuffer(data, np.float32).reshape(n_rows, n_columns)
