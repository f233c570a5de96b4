"""What the server tells those who watch it: metrics, logs and traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from starlette.types import Scope

    from pyggml import Completion
    from pyggml.server.http.errors import Failure
    from pyggml.server.http.request import Call

Outcome = Literal["ok", "client_error", "server_error", "timeout", "cancelled", "disconnected"]


@dataclass(frozen=True)
class Answer:
    """One choice of a generation that has ended, however it did.

    Attributes:
        model: what answered.
        completion: the choice.
        submitted_s: seconds from the arrival of the request until the engine had it: loading, templates, tokenizing;
            None: it never had.
    """

    model: str
    completion: Completion
    submitted_s: float | None

    @property
    def ttft_s(self) -> float | None:
        """Seconds from the arrival of the request until the first token; None: there was none."""
        timings = self.completion.timings
        if self.submitted_s is None or not timings.generated_tokens:
            return None
        return self.submitted_s + timings.ttft_s


@dataclass(frozen=True)
class Ended:
    """How a call ended.

    Attributes:
        outcome: in one word.
        status: the HTTP status that was sent; None: the client left before there was one.
        failure: what went wrong; None: nothing, as far as the server knows.
        duration_s: seconds from the arrival of the request until the end of the answer.
        answers: what was generated.
    """

    outcome: Outcome
    status: int | None
    failure: Failure | None
    duration_s: float
    answers: Sequence[Answer]


class Observer:
    """Hears of every call, and of the models. These do nothing."""

    def call_began(self, call: Call) -> None:
        """A request has arrived."""

    def failed(self, call: Call, error: Exception) -> None:
        """The server could not answer, through no fault of the client's."""

    def call_ended(self, call: Call, ended: Ended) -> None:
        """The answer has been sent, or nobody reads it any more."""

    def refused(self, scope: Scope, failure: Failure) -> None:
        """A request was turned away before it became a call: by a guard, or because nothing has its path."""

    def model_loaded(self, name: str, seconds: float) -> None:
        """A model can be used."""

    def model_failed(self, name: str, error: Exception) -> None:
        """A model could not be loaded."""

    def model_unloaded(self, name: str) -> None:
        """A model has made room for others, or the server ends."""

    def close(self) -> None:
        """The server has ended; nothing more will be heard."""


class Observers(Observer):
    """Tells several."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._all = observers

    def call_began(self, call: Call) -> None:
        """Passes it on, as all of these do."""
        for each in self._all:
            each.call_began(call)

    def failed(self, call: Call, error: Exception) -> None:  # noqa: D102
        for each in self._all:
            each.failed(call, error)

    def call_ended(self, call: Call, ended: Ended) -> None:  # noqa: D102
        for each in self._all:
            each.call_ended(call, ended)

    def refused(self, scope: Scope, failure: Failure) -> None:  # noqa: D102
        for each in self._all:
            each.refused(scope, failure)

    def model_loaded(self, name: str, seconds: float) -> None:  # noqa: D102
        for each in self._all:
            each.model_loaded(name, seconds)

    def model_failed(self, name: str, error: Exception) -> None:  # noqa: D102
        for each in self._all:
            each.model_failed(name, error)

    def model_unloaded(self, name: str) -> None:  # noqa: D102
        for each in self._all:
            each.model_unloaded(name)

    def close(self) -> None:  # noqa: D102
        for each in self._all:
            each.close()
