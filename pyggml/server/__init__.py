"""The HTTP worker: the engine for programs that speak HTTP."""

from __future__ import annotations

from pyggml.server.app import create_app
from pyggml.server.settings import Settings

__all__ = ["Settings", "create_app"]
