"""Targets of requests: absolute URLs, and paths with a trailing slash."""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

# Some clients send the absolute URL, as if the server were a proxy. RFC 9112 requires every server to accept it.
_ABSOLUTE = re.compile(rb"https?://[^/?#]*", re.IGNORECASE)


def in_origin_form(scope: Scope) -> Scope:
    """Return a request's scope with the path of its target, if the target is an absolute URL."""
    path: str = scope["path"]
    root_path: str = scope.get("root_path", "")
    target = path.removeprefix(root_path).encode("utf-8", "surrogateescape")
    if (absolute := _ABSOLUTE.match(target)) is None:
        return scope
    rest = target[absolute.end() :].decode("utf-8", "surrogateescape") or "/"
    raw = _ABSOLUTE.sub(b"", scope.get("raw_path") or b"", count=1) or b"/"
    return {**scope, "path": f"{root_path}{rest}", "raw_path": raw}


def redirect_without_slash(scope: Scope, routes: Sequence[BaseRoute]) -> Response | None:
    """Return a redirect to the path without its trailing slash; None: there is no such path, or no slash.

    The redirect is relative, because proxies may offer the server under another host and path.
    """
    path: str = scope["path"]
    if not path.endswith("/"):
        return None
    bare = {**scope, "path": path[:-1]}
    if all(route.matches(bare)[0] is Match.NONE for route in routes):
        return None
    query = scope.get("query_string", b"").decode()
    return RedirectResponse(f"../{path[:-1].rpartition('/')[2]}{'?' if query else ''}{query}")
