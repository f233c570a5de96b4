"""Checks of requests: API keys, the Host and Origin headers, and the query."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from hashlib import sha256
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from pyggml.server.http import errors
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
        given = api_key(headers)
        digest = _digest(given)
        if not sum(hmac.compare_digest(digest, each) for each in self._digests):
            wrong = "the API key is wrong" if given else "this server needs an API key"
            message = f"{wrong}: send it in the header 'Authorization: Bearer KEY' or 'x-api-key: KEY'"
            raise RequestError(Failure(401, "authentication", message, "invalid_api_key"))


def api_key(headers: Headers) -> str:
    """Return the API key in the header of OpenAI's or Anthropic's clients; empty: there is none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")


def require_utf8_query(scope: Scope) -> None:
    """Refuse a query that is not UTF-8. Starlette could not redirect it to a path without a trailing slash.

    Raises:
        RequestError: 400.
    """
    try:
        scope.get("query_string", b"").decode()
    except UnicodeDecodeError:
        message = "the query of the URL is not UTF-8: percent-encode it as %XX"
        raise errors.invalid(message, code="invalid_query") from None


class HostOriginCheck:
    """Check of the Host and Origin headers.

    By DNS rebinding, a foreign web page can reach a server on loopback under the page's own name, but it cannot change
    the Host header that the browser sends, nor the Origin header of a cross-origin request.
    """

    def __init__(self, allowed_hosts: Sequence[str], origins: Sequence[str]) -> None:
        """Allow host names without ports, and in addition some origins, as in ``Settings``."""
        self._allowed = frozenset(host.lower() for host in allowed_hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    def __call__(self, scope: Scope) -> None:
        """Refuse a request whose headers are not allowed.

        Raises:
            RequestError: 403.
        """
        reaches_loopback = is_loopback((scope.get("server") or ("",))[0])
        if ANY in self._allowed or not (reaches_loopback or self._allowed):
            return
        for name, value in scope["headers"]:
            if name == b"host" and not self._is_allowed(_host_of("//" + value.decode("latin-1")), reaches_loopback):
                host = value.decode("latin-1")
                raise _forbidden(f"the Host header {host!r:.200}", "allowed_hosts")
            if name == b"origin":
                origin = value.decode("latin-1").lower()
                is_known = ANY in self._origins or origin in self._origins
                if not is_known and not self._is_allowed(_host_of(origin), reaches_loopback):
                    raise _forbidden(f"the origin {origin!r:.200}", "cors_origins")

    def _is_allowed(self, host: str | None, reaches_loopback: bool) -> bool:
        return host is not None and (host in self._allowed or (reaches_loopback and is_loopback(host)))


def _forbidden(header: str, option: str) -> RequestError:
    message = f"{header} is not allowed: add it to the server's option {option}"
    return RequestError(Failure(403, "authentication", message, "forbidden_origin"))


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogateescape")).digest()


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
