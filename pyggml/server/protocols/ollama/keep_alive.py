"""``keep_alive`` of ollama's requests: how long a model stays loaded while no request uses it."""

from __future__ import annotations

from pyggml.server.http.request import ServerRequest
from pyggml.server.protocols.ollama.requests import KeepAlive, seconds_of


def keep_loaded(request: ServerRequest, name: str, keep_alive: KeepAlive) -> None:
    """Keep a model loaded for as long as a request says, if the server allows it.

    Raises:
        RequestError: 400, ``keep_alive`` is not a time.
    """
    if keep_alive is None:
        return
    request.worker.models.keep_loaded(request.worker.models.split(name)[0], seconds_of(keep_alive))


def unloads(keep_alive: KeepAlive) -> bool:
    """Return True if an empty request asks to unload its model."""
    return keep_alive is not None and seconds_of(keep_alive) == 0
