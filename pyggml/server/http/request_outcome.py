"""How the answer of a call goes, and what that comes to once the call has ended."""

from __future__ import annotations

from collections.abc import Sequence

from pyggml.server.http.errors import Failure
from pyggml.server.observability.observer import Answer, Ended, Outcome


class Course:
    """How the answer of a call goes.

    Attributes:
        status: the HTTP status that is sent; None: none so far.
        failure: what went wrong last; None: nothing so far.
        is_streaming: whether pieces of it are still to come, as they are for good when the client leaves.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self.failure: Failure | None = None
        self.is_streaming = False

    def ended(self, answers: Sequence[Answer], duration_s: float, error: BaseException | None) -> Ended:
        """What there is to tell of the call.

        Args:
            answers: what was generated for it.
            duration_s: how long it took.
            error: what came out of it all the same; None: nothing, as it should be.
        """
        return Ended(self._outcome(answers, error), self.status, self.failure, duration_s, answers)

    def _outcome(self, answers: Sequence[Answer], error: BaseException | None) -> Outcome:
        if self.failure is not None and self.failure.kind == "timeout":
            return "timeout"
        status = self.status if self.failure is None else self.failure.status
        if self.is_streaming or status is None:
            return "disconnected"
        if status >= 500 or error is not None:
            return "server_error"
        if status >= 400:
            return "client_error"
        reasons = {answer.completion.finish_reason for answer in answers}
        return "timeout" if "timeout" in reasons else "cancelled" if "cancelled" in reasons else "ok"
