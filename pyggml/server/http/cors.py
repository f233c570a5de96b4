"""Cross-origin requests of web pages."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

# Pages of this machine, on any port, such as http://localhost:3000, may read responses without being configured.
_LOOPBACK = r"https?://(localhost|[a-z0-9.-]+\.localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]{1,5})?"


# Headers of an API key's limits.
_LIMITS = (
    *(f"x-ratelimit-{what}-requests" for what in ("limit", "remaining")),
    *(f"x-ratelimit-{what}-tokens" for what in ("limit", "remaining", "reset")),
)


def cors(origins: Sequence[str]) -> Middleware:
    """Return the middleware that lets browsers show responses to pages of this machine and of other ``origins``."""
    return Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_origin_regex=_LOOPBACK,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
        expose_headers=["Retry-After", "X-Request-Id", *_LIMITS],
    )
