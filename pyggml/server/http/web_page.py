"""The web page at ``/``: a chat and live metrics, as static files without external resources."""

from __future__ import annotations

import hashlib
from pathlib import Path

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

_FOLDER = Path(__file__).parents[1] / "static"
_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}

# No inline code, no external resources, no framing, and no conversion of text to HTML or scripts.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS = {
    "Cache-Control": "no-cache",  # revalidated each time, usually with 304: an upgrade is visible at once
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class _File:
    """A file of the page, as an ASGI application."""

    def __init__(self, path: Path) -> None:
        self._content = path.read_bytes()
        self._media_type = _TYPES[path.suffix]
        self._etag = f'"{hashlib.sha256(self._content).hexdigest()[:32]}"'

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {**_HEADERS, "ETag": self._etag}
        etags = Headers(scope=scope).get("if-none-match", "").split(",")
        if {self._etag, "*"} & {etag.strip().removeprefix("W/") for etag in etags}:
            response = Response(status_code=304, headers=headers)
        else:
            response = Response(self._content, headers=headers, media_type=self._media_type)
        await response(scope, receive, send)


def routes() -> list[Route]:
    """Return the routes of the page and its files, without API keys. Files are read once, never by a request's path."""
    paths = [path for path in sorted(_FOLDER.rglob("*")) if path.suffix in _TYPES]
    files = {f"/static/{path.relative_to(_FOLDER).as_posix()}": _File(path) for path in paths}
    files["/"] = files.pop("/static/index.html")
    return [
        *(Route(path, file, methods=["GET"]) for path, file in files.items()),
        Route("/static/{name:path}", _missing),
    ]


async def _missing(request: Request) -> Response:  # noqa: ARG001
    return PlainTextResponse("there is no such file", 404)
