"""What the server tells those who watch it: metrics, logs and traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyggml import Completion
    from pyggml.server.call import Call
    from pyggml.server.failures import Failure


class Observer:
    """Hears of every call. These do nothing."""

    def call_began(self, call: Call) -> None:
        """A request has arrived."""

    def generated(self, call: Call, model: str, completion: Completion) -> None:
        """One choice of a generation has ended, however it did."""

    def failed(self, call: Call, error: Exception) -> None:
        """The server could not answer, through no fault of the client's."""

    def call_ended(self, call: Call, failure: Failure | None, error: BaseException | None) -> None:
        """The answer has been sent, or nobody reads it any more."""
