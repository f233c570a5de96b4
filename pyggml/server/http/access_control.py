"""Access control: API keys, and the Host and Origin headers."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from pyggml.server.http.addresses import is_loopback
from pyggml.server.http.errors import Failure, RequestError

#: Allows any host or origin.
ANY = "*"


class ApiKeys:
    """The accepted API keys, compared in constant time."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    @property
    def are_required(self) -> bool:
        """True if there are any."""
        return bool(self._digests)

    def check(self, headers: Headers) -> None:
        """Require one of the keys, if there are any, in the header of OpenAI's or Anthropic's clients.

        Raises:
            RequestError: 401, the key is missing or wrong.
        """
        if not self._digests:
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        digest = _digest(given)
        if not sum(hmac.compare_digest(digest, each) for each in self._digests):
            wrong = "the API key is wrong" if given else "this server needs an API key"
            message = f"{wrong}: send it in the header 'Authorization: Bearer KEY' or 'x-api-key: KEY'"
            raise RequestError(Failure(401, "authentication", message, "invalid_api_key"))


class HostOriginMiddleware:
    """ASGI middleware for the Host and Origin headers.

    By DNS rebinding, a foreign web page can reach a server on loopback under the page's own name, but it cannot change
    the Host header that the browser sends, nor the Origin header of a cross-origin request.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        allowed_hosts: Sequence[str],
        origins: Sequence[str],
        refuse: Callable[[Scope, Failure], Response],
    ) -> None:
        """Wrap an application.

        Args:
            app: the application.
            allowed_hosts: names without ports, as in ``Settings``.
            origins: origins that are allowed in addition.
            refuse: makes the error response in the protocol of the request.
        """
        self._app = app
        self._allowed = frozenset(host.lower() for host in allowed_hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the request, or respond with 403."""
        if scope["type"] != "http" or (refusal := self._refusal(scope)) is None:
            await self._app(scope, receive, send)
            return
        failure = Failure(403, "authentication", refusal, "forbidden_origin")
        await self._refuse(scope, failure)(scope, receive, send)

    def _refusal(self, scope: Scope) -> str | None:
        """Return why the request is refused; None: it is allowed."""
        if ANY in self._allowed:
            return None
        reaches_loopback = is_loopback((scope.get("server") or ("",))[0])
        if not (reaches_loopback or self._allowed):
            return None
        for name, value in scope["headers"]:
            if name == b"host" and not self._is_allowed(_host_of("//" + value.decode("latin-1")), reaches_loopback):
                host = value.decode("latin-1")
                return f"the Host header {host!r:.200} is not allowed: add it to the server's option allowed_hosts"
            if name == b"origin":
                origin = value.decode("latin-1").lower()
                is_known = ANY in self._origins or origin in self._origins
                if not is_known and not self._is_allowed(_host_of(origin), reaches_loopback):
                    return f"the origin {origin!r:.200} is not allowed: add it to the server's option cors_origins"
        return None

    def _is_allowed(self, host: str | None, reaches_loopback: bool) -> bool:
        return host is not None and (host in self._allowed or (reaches_loopback and is_loopback(host)))


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogateescape")).digest()


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
