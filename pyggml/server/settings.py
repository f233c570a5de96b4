"""What a server is told before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Settings:
    """How a server serves.

    Attributes:
        models: paths and references of the models, the first being the default; (): the one that ships with pyggml.
        load: options of :func:`pyggml.load` for every model.
        sampling: fields of SamplingParams for requests that do not set them.
        host: address to listen on.
        port: port to listen on; 0: any free one.
        request_timeout: seconds that a request may take; None: no limit.
        max_body_bytes: size of the largest body that is read.
        ping_s: seconds of silence after which a stream gets a comment, so that proxies keep it open.
    """

    models: tuple[str, ...] = ()
    load: Mapping[str, Any] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 8080
    request_timeout: float | None = None
    max_body_bytes: int = 8 * 2**20
    ping_s: float = 15.0
