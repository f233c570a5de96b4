"""Owners of what the server stores: API keys, without the keys themselves."""

from __future__ import annotations

from hashlib import sha256

from starlette.datastructures import Headers

from pyggml.server.http.access_control import api_key


def owner_of(headers: Headers) -> str:
    """Return a digest of a request's API key; without keys, all requests have the same owner."""
    return sha256(api_key(headers).encode("utf-8", "surrogateescape")).hexdigest()
