"""Headers that control access: API keys, Host and Origin; and checks of the query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from pyggml.server.http import errors
from pyggml.server.http.addresses import is_local, is_loopback
from pyggml.server.http.errors import Failure, RequestError

#: Allows any host or origin.
ANY = "*"


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

    By DNS rebinding, a foreign web page can reach a server under the page's own name, but it cannot change the Host
    header that the browser sends, nor the Origin header of a cross-origin request. So without API keys, which a page
    does not have, Host must be an address or a name that no one can register, and Origin one of the same host. On
    loopback it must be a loopback name, also with keys.
    """

    def __init__(
        self, allowed_hosts: Sequence[str], origins: Sequence[str], needs_key: Callable[[], bool] = lambda: False
    ) -> None:
        """Allow host names without ports, and in addition some origins, as in ``Settings``.

        ``needs_key`` returns True if requests need an API key.
        """
        self._allowed = frozenset(host.lower() for host in allowed_hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self._needs_key = needs_key

    def __call__(self, scope: Scope) -> None:
        """Refuse a request whose headers are not allowed.

        Raises:
            RequestError: 403.
        """
        reaches_loopback = is_loopback((scope.get("server") or ("",))[0])
        if ANY in self._allowed or not (reaches_loopback or self._allowed or not self._needs_key()):
            return
        own: set[str | None] = set()
        for name, value in scope["headers"]:
            if name == b"host":
                host = value.decode("latin-1")
                own.add(_host_of("//" + host))
                if not self._is_allowed(_host_of("//" + host), reaches_loopback):
                    raise _forbidden(f"the Host header {host!r:.200}", "allowed_hosts")
        for name, value in scope["headers"]:
            if name == b"origin":
                origin = value.decode("latin-1").lower()
                host_of_page = _host_of(origin)
                is_known = ANY in self._origins or origin in self._origins or host_of_page in self._allowed
                is_own = host_of_page in own or (reaches_loopback and is_loopback(host_of_page or ""))
                if not is_known and (host_of_page is None or not is_own):
                    raise _forbidden(f"the origin {origin!r:.200}", "cors_origins")

    def _is_allowed(self, host: str | None, reaches_loopback: bool) -> bool:
        if host is None or host in self._allowed:
            return host is not None
        if reaches_loopback:
            return is_loopback(host)
        return not self._allowed and is_local(host)


def _forbidden(header: str, option: str) -> RequestError:
    message = f"{header} is not allowed: add it to the server's option {option}"
    return RequestError(Failure(403, "authentication", message, "forbidden_origin"))


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
