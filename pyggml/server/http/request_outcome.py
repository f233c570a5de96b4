"""Outcome of a request, for metrics, logs and traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pyggml import Completion
from pyggml.server.http.errors import Failure

OutcomeName = Literal["ok", "client_error", "server_error", "timeout", "cancelled", "disconnected"]


@dataclass(frozen=True)
class GeneratedChoice:
    """One choice of a generation that has ended.

    Attributes:
        model: name of the model.
        completion: the choice.
        submitted_s: seconds from the arrival of the request to the submission to the engine: loading, templates,
            tokenizing; None: it was never submitted.
    """

    model: str
    completion: Completion
    submitted_s: float | None

    @property
    def ttft_s(self) -> float | None:
        """Seconds from the arrival of the request to the first token; None: no token was generated."""
        timings = self.completion.timings
        if self.submitted_s is None or not timings.generated_tokens:
            return None
        return self.submitted_s + timings.ttft_s


@dataclass
class RequestOutcome:
    """Outcome of a request; complete once the request has ended.

    Attributes:
        status: HTTP status of the response; None: the client disconnected before a response began.
        failure: the last error; None: no error.
        is_streaming: True while a streaming response is unfinished; it stays True if the client disconnects.
        has_crashed: True if an unexpected exception ended the request.
        duration_s: seconds from the arrival of the request to the end of the response.
        choices: the generated choices.
        n_tokens: number of tokens of the prompts, of the generated choices and of other texts.
    """

    status: int | None = None
    failure: Failure | None = None
    is_streaming: bool = False
    has_crashed: bool = False
    duration_s: float = 0.0
    choices: Sequence[GeneratedChoice] = ()
    n_tokens: int = 0

    @property
    def name(self) -> OutcomeName:
        """Label of the outcome in metrics and logs."""
        if self.failure is not None and self.failure.kind == "timeout":
            return "timeout"
        status = self.status if self.failure is None else self.failure.status
        if self.is_streaming or status is None:
            return "disconnected"
        if status >= 500 or self.has_crashed:
            return "server_error"
        if status >= 400:
            return "client_error"
        reasons = {choice.completion.finish_reason for choice in self.choices}
        return "timeout" if "timeout" in reasons else "cancelled" if "cancelled" in reasons else "ok"
