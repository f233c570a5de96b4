"""The adapters of an engine, by name."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from types import MappingProxyType

from pyggml._native.adapter import Adapter, checked_name
from pyggml._native.model import Model
from pyggml.errors import InvalidParameterError
from pyggml.options.adapter_choice import AdapterChoice, checked_choice

#: Adapters of a request, with the scale of each.
ScaledAdapters = list[tuple[Adapter, float]]


class Adapters:
    """The adapters that an engine's requests can name. Thread-safe.

    Attributes:
        takes_sources: True if paths to load need not be GGUF files, and are checked when they are loaded.
    """

    takes_sources = False

    def __init__(self, model: Model) -> None:
        """Create an empty collection of adapters of ``model``."""
        self._model = model
        self._lock = threading.Lock()
        self._by_name: dict[str, Adapter | None] = {}  # None: being loaded
        self._defaults: ScaledAdapters = []

    def load(self, path: str | os.PathLike[str], name: str | None, scale: float) -> Adapter:
        """Load an adapter under a name that no other has; see :meth:`Engine.load_adapter`."""
        named = checked_name(path, name)
        with self._lock:
            self._forget_closed()
            if named in self._by_name:
                raise InvalidParameterError(
                    f"there is already an adapter {named!r}: close it first, or give this one another name, as in "
                    "load_adapter(path, name=...), and in lora= as NAME=FILE"
                )
            self._by_name[named] = None
        try:
            adapter = self._load(path, named, scale)
        except BaseException:
            with self._lock:
                del self._by_name[named]
            raise
        adapter.when_closed = self.forget_closed
        with self._lock:
            self._by_name[named] = adapter
        return adapter

    def forget_closed(self) -> None:
        """Drop adapters that were closed."""
        with self._lock:
            self._forget_closed()

    def by_name(self) -> dict[str, Adapter]:
        """Return the open adapters, in the order in which they were loaded."""
        with self._lock:
            self._forget_closed()
            return {name: adapter for name, adapter in self._by_name.items() if adapter is not None}

    @property
    def defaults(self) -> Mapping[str, float]:
        """Name -> scale of the adapters of requests that name none, without those that were closed."""
        return MappingProxyType({adapter.name: scale for adapter, scale in self._defaults if adapter.is_open})

    def set_defaults(self, choice: AdapterChoice | None) -> None:
        """Set the adapters of requests that name none.

        Raises:
            InvalidParameterError: there is no such adapter, or a scale is not a finite number.
        """
        chosen = {} if choice is None else checked_choice(choice)
        self._defaults = self._scaled(chosen)

    def resolve(self, choice: AdapterChoice | None) -> ScaledAdapters:
        """Return the adapters of a request, without those of a scale of 0; None: the defaults.

        Raises:
            InvalidParameterError: there is no adapter of that name.
        """
        if choice is not None:
            return [each for each in self._scaled(choice) if each[1] != 0]
        return [(adapter, scale) for adapter, scale in self._defaults if scale and adapter.is_open]

    def of_choice(self, choice: AdapterChoice | None) -> dict[Adapter, float]:
        """As :meth:`resolve`, for a choice that is not checked yet.

        Raises:
            InvalidParameterError: as :meth:`resolve`, or it is no name and no mapping of names and finite scales.
        """
        return dict(self.resolve(None if choice is None else checked_choice(choice)))

    def close(self) -> None:
        """Close all adapters."""
        for adapter in self.by_name().values():
            adapter.close()

    def _load(self, path: str | os.PathLike[str], name: str, scale: float) -> Adapter:
        return Adapter(self._model, path, name, scale)

    def _scaled(self, choice: AdapterChoice) -> ScaledAdapters:
        found = self.by_name()
        chosen = {choice: None} if isinstance(choice, str) else choice
        if unknown := [name for name in chosen if name not in found]:
            known = f"loaded are {', '.join(map(repr, found))}" if found else "none is loaded"
            raise InvalidParameterError(
                f"there is no adapter {unknown[0]!r}: {known}; load_adapter(path, name={unknown[0]!r}) loads one"
            )
        return [(found[name], found[name].scale if scale is None else scale) for name, scale in chosen.items()]

    def _forget_closed(self) -> None:
        for name in [name for name, adapter in self._by_name.items() if adapter is not None and not adapter.is_open]:
            del self._by_name[name]
