"""``config.json`` with strict accounting: no key that changes what the model computes is ignored.

Every key is read by name. At the end, :meth:`Config.require_all_known` rejects the remaining keys if the reference
computes with them, and ignores them if the reference does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pyggml.errors import ModelLoadError, ModelNotFoundError, UnsupportedArchitectureError
from pyggml.files.json_file import read_object
from pyggml.files.model_files import CONFIG, PARAMS, QUANTIZATION, ModelFiles

# Values of an unknown key that switch nothing on.
_OFF: tuple[Any, ...] = (None, False, 0, 1, "", [], {})


@dataclass(frozen=True)
class Keys:
    """The keys of an object that the reference computes with or ignores.

    Attributes:
        computes: the keys that its results depend on -> the default; None: no default, or one that follows from other
            keys.
        inert: the other keys that it knows.
        is_complete: True if it ignores every other key; otherwise their effect is unknown.
    """

    computes: Mapping[str, Any] = field(default_factory=dict)
    inert: frozenset[str] = frozenset()
    is_complete: bool = True


class Config:
    """The object in a ``config.json``, or one nested in it.

    A missing key and null mean the default. The readers raise ModelLoadError for a value of another type or range.

    Attributes:
        path: the file.
        values: the raw values; only the methods below mark a key as known.
        where: the object's key with a trailing dot; empty at the top level.
        ignored: full names of keys, in this object and those nested in it, that the reference does not know.
    """

    def __init__(
        self, path: Path, values: Mapping[str, Any], where: str = "", ignored: list[str] | None = None
    ) -> None:
        """Wrap the values, all unread; None for ``ignored``: a new list."""
        self.path = path
        self.values: Mapping[str, Any] = MappingProxyType(dict(values))
        self.where = where
        self.ignored: list[str] = [] if ignored is None else ignored
        self._known: set[str] = set()

    def get(self, key: str) -> Any:
        """Return the raw value of a key, None if it is missing."""
        self._known.add(key)
        return self.values.get(key)

    def integer(self, key: str, default: int | None = None) -> int:
        """Read an integer of 1 or more; without a default, the key is required."""
        value = self._or_default(key, default)
        if type(value) is not int or not 1 <= value < 2**31:
            raise self.error(key, "a positive integer")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Read a positive number that float32 can hold; without a default, the key is required."""
        value = self._or_default(key, default)
        if type(value) not in (int, float) or not 2.0**-126 <= value < 2.0**127:
            raise self.error(key, "a positive number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """Read a boolean."""
        value = self._or_default(key, default)
        if type(value) is not bool:
            raise self.error(key, "true or false")
        return value

    def strings(self, key: str) -> list[str]:
        """Read a list of strings, empty if it is missing."""
        value = self.get(key) or []
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self.error(key, "a list of texts")
        return value

    def section(self, key: str) -> Config | None:
        """Read a nested object, None if it is missing."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(key, "an object")
        return Config(self.path, value, f"{self.where}{key}.", self.ignored)

    def with_values(self, values: Mapping[str, Any]) -> Config:
        """Return the same object with other values, all unread."""
        return Config(self.path, values, self.where, self.ignored)

    def require(self, key: str, allowed: tuple[Any, ...]) -> None:
        """Reject a value that the engine does not support; the first allowed one is that of a missing key or null."""
        value = self._or_default(key, allowed[0])
        if not any(value == each and type(value) is type(each) for each in allowed):
            listed = " or ".join(repr(each) for each in allowed)
            raise UnsupportedArchitectureError(
                f"{self.path}: {self.where}{key} is {value!r:.80}; for this architecture, the engine only supports "
                f"{listed}"
            )

    def require_each(self, key: str, allowed: tuple[str, ...]) -> None:
        """Apply :meth:`require` to every value of a list, which must exist."""
        for value in self.get(key):
            if value not in allowed:
                raise UnsupportedArchitectureError(
                    f"{self.path}: {self.where}{key} has {value!r:.80}; the engine only supports "
                    f"{' and '.join(allowed)}"
                )

    @property
    def unread(self) -> list[str]:
        """The keys that were not read."""
        return [key for key in self.values if key not in self._known]

    def require_all_known(self, keys: Keys) -> None:
        """Reject unread keys that change what the reference computes, and record those that it ignores."""
        for key in self.unread:
            value = self.values[key]
            if key in keys.computes:
                # Null means the same as a missing value, unless it switches something off.
                default = keys.computes[key]
                if value != default and (value is not None or default is True):
                    raise UnsupportedArchitectureError(
                        f"{self.path}: {self.where}{key} is {value!r:.80}, which changes what such a model computes; "
                        "pyggml does not support it"
                    )
            elif key in keys.inert or key.startswith("_") or (value is not True and value in _OFF):
                continue
            elif keys.is_complete:
                self.ignored.append(f"{self.where}{key}")
            else:
                raise UnsupportedArchitectureError(
                    f"{self.path}: pyggml does not know what {self.where}{key:.80} = {value!r:.80} does to this model. "
                    "If it does not change what the model computes, remove it from a copy of the file"
                )

    def error(self, key: str, expected: str) -> ModelLoadError:
        """Return the error to raise for a missing or invalid value."""
        if self.values.get(key) is None:
            return ModelLoadError(f"{self.path} has no {self.where}{key}; {expected} was expected")
        return ModelLoadError(f"{self.path}: {self.where}{key} is {self.values[key]!r:.80}; {expected} was expected")

    def _or_default(self, key: str, default: Any) -> Any:
        value = self.get(key)
        return default if value is None else value


def read_config(files: ModelFiles) -> Config:
    """Read a directory's ``config.json``, or its ``params.json`` with the file name as the model type.

    The result includes a ``quantization_config`` from a separate file.
    """
    if files.config is None:
        raise ModelNotFoundError(f"{files.path} has no {CONFIG}")
    values = read_object(files.config)
    if files.config.name == PARAMS:
        values["model_type"] = PARAMS
    elsewhere = read_object(files.path / QUANTIZATION).get("quantization")
    if isinstance(elsewhere, dict) and values.get("quantization_config") is None:
        values["quantization_config"] = {"quant_method": "modelopt", **elsewhere}
    return Config(files.config, values)
