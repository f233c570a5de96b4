"""Typed access to a JSON file of settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyggml.errors import ModelLoadError


@dataclass(frozen=True)
class Settings:
    """The content of a file; empty if there is no such file."""

    path: Path
    values: Mapping[str, Any]

    def flag(self, key: str, default: bool = False) -> bool:
        """Read a boolean."""
        value = self._value(key, default)
        if type(value) is not bool:
            raise self.error(key, "true or false")
        return value

    def count(self, key: str) -> int | None:
        """Read a positive integer, None if it is missing."""
        value = self._value(key, None)
        if value is not None and (type(value) is not int or not 1 <= value < 2**31):
            raise self.error(key, "a positive integer")
        return value

    def text(self, key: str) -> str | None:
        """Read a text, None if it is missing."""
        value = self._value(key, None)
        if value is not None and not _is_text(value):
            raise self.error(key, "a text")
        return None if value is None else str(value)

    def texts(self, key: str) -> dict[str, str]:
        """Read an object of texts, empty if it is missing."""
        value = self._value(key, {})
        if not isinstance(value, dict) or not all(_is_text(each) for pair in value.items() for each in pair):
            raise self.error(key, "an object of texts")
        return value

    def words(self, key: str) -> list[str] | None:
        """Read a list of texts, None if it is missing."""
        value = self._value(key, None)
        if value is not None and not (isinstance(value, list) and all(map(_is_text, value))):
            raise self.error(key, "a list of texts")
        return value

    def error(self, key: str, expected: str) -> ModelLoadError:
        """Return the error to raise for a missing or invalid value."""
        if self.values.get(key) is None:
            return ModelLoadError(f"{self.path} has no {key}; {expected} was expected")
        return ModelLoadError(f"{self.path}: {key} is {self.values[key]!r:.80}; {expected} was expected")

    def _value(self, key: str, default: Any) -> Any:
        value = self.values.get(key)
        return default if value is None else value


def _is_text(value: object) -> bool:
    """Check for a text that a GGUF file can hold."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return False
    return True
