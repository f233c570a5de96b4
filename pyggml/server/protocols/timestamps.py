"""Timestamps in responses."""

from __future__ import annotations

from datetime import datetime, timezone


def rfc3339(seconds: float) -> str:
    """Return a time in seconds since 1970 as text."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat().replace("+00:00", "Z")
