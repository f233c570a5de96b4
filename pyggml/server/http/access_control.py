"""Who may use the server: keys, the Host header, and pages of other origins."""

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


class Keys:
    """The keys that let requests in. No comparison takes longer the more of a key is right."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    @property
    def are_needed(self) -> bool:
        """Whether there are any."""
        return bool(self._digests)

    def check(self, headers: Headers) -> None:
        """Requires one of the keys, if there are any, as OpenAI's or as Anthropic's clients send them.

        Raises:
            RequestError: 401, there is none, or a wrong one.
        """
        if not self._digests:
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        digest = _digest(given)
        if not sum(hmac.compare_digest(digest, each) for each in self._digests):
            wrong = "the API key is wrong" if given else "this server needs an API key"
            message = f"{wrong}: send one in the header Authorization, as Bearer KEY, or in x-api-key"
            raise RequestError(Failure(401, "authentication", message, "invalid_api_key"))


class Guard:
    """Refuses requests by the Host and Origin headers, around an ASGI application.

    A page of somebody else's can have its own name point to this machine, and then speak to a server on loopback as if
    it came from there (DNS rebinding); but it cannot choose the name that the browser sends. Nor can it hide its origin
    when it sends a request whose answer it may not read.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        allowed_hosts: Sequence[str],
        origins: Sequence[str],
        refuse: Callable[[Scope, Failure], Response],
    ) -> None:
        """Wraps an application.

        Args:
            app: the application.
            allowed_hosts: names without ports, as in ``Settings``.
            origins: origins that may use the server all the same.
            refuse: says what was wrong with a request in the words of its protocol.
        """
        self._app = app
        self._allowed = frozenset(host.lower() for host in allowed_hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or refuses it."""
        if scope["type"] != "http" or (refusal := self._refusal(scope)) is None:
            await self._app(scope, receive, send)
            return
        failure = Failure(403, "authentication", refusal, "forbidden_origin")
        await self._refuse(scope, failure)(scope, receive, send)

    def _refusal(self, scope: Scope) -> str | None:
        """Why a request is refused; None: it is not."""
        if ANY in self._allowed:
            return None
        reaches_loopback = is_loopback((scope.get("server") or ("",))[0])
        if not (reaches_loopback or self._allowed):
            return None
        for name, value in scope["headers"]:
            if name == b"host" and not self._is_allowed(_host_of("//" + value.decode("latin-1")), reaches_loopback):
                host = value.decode("latin-1")
                return f"this server is not called {host!r:.200}: its option allowed_hosts says what it may be called"
            if name == b"origin":
                origin = value.decode("latin-1").lower()
                is_known = ANY in self._origins or origin in self._origins
                if not is_known and not self._is_allowed(_host_of(origin), reaches_loopback):
                    return f"pages of {origin!r:.200} may not use this server: its option cors_origins says which may"
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
