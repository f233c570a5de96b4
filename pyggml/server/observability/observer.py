"""Observers: the events of the server, for metrics, logs and traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import Scope

    from pyggml.server.http.errors import Failure
    from pyggml.server.http.request import ServerRequest


class Observer:
    """Receiver of the server's events. The methods of this base class do nothing."""

    def request_started(self, request: ServerRequest) -> None:
        """Handle the arrival of a request."""

    def request_failed(self, request: ServerRequest, error: Exception) -> None:
        """Handle a server error, with a status from 500 on."""

    def request_ended(self, request: ServerRequest) -> None:
        """Handle the end of a request, whose outcome is then complete."""

    def request_refused(self, scope: Scope, failure: Failure) -> None:
        """Handle a request that was refused before it reached an endpoint: by middleware, or with 404 or 405."""

    def model_loaded(self, name: str, seconds: float) -> None:
        """Handle a model that has been loaded."""

    def model_failed(self, name: str, error: Exception) -> None:
        """Handle a model that could not be loaded."""

    def model_unloaded(self, name: str) -> None:
        """Handle a model that has been evicted, or unloaded at shutdown."""

    def close(self) -> None:
        """Handle the end of the server; no event follows."""


def _forward(event: str) -> Callable[..., None]:
    def forward(self: Observers, *args: Any) -> None:
        for observer in self.observers:
            getattr(observer, event)(*args)

    return forward


class Observers(Observer):
    """Several observers as one."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.observers = observers


for _event in vars(Observer):
    if not _event.startswith("_"):
        setattr(Observers, _event, _forward(_event))
