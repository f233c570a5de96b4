"""The models of a server by name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyggml
from pyggml.server.http.errors import Failure, RequestError
from pyggml.server.settings.options import ModelSpec

#: Name of the first model, as is "".
DEFAULT = "default"

Kind = Literal["shipped", "local", "hub", "open"]

# Ollama's clients append it to names without a tag.
_DEFAULT_TAG = ":latest"
# Suffix of the first file of a split model.
_PART = re.compile(r"-\d{5}-of-\d{5}$")


@dataclass(frozen=True, eq=False)
class CatalogueEntry:
    """A model of the server, loaded or not.

    Attributes:
        spec: its settings.
        name: its name in responses.
        kind: its origin: it ships with pyggml, is a local file or directory, is downloaded from the hub, or was opened
            before the server started.
    """

    spec: ModelSpec
    name: str
    kind: Kind

    @property
    def path(self) -> Path | None:
        """Its file or directory; None: it is downloaded."""
        source = self.spec.source
        if isinstance(source, pyggml.LLM):
            return Path(source.model.path)
        if source is None:
            return pyggml.SHIPPED_MODEL
        return None if self.kind == "hub" else Path(source)


class Catalogue:
    """The models of a server; the first is the default."""

    def __init__(self, specs: Sequence[ModelSpec]) -> None:
        """Name the models.

        Raises:
            InvalidParameterError: two models have the same name.
        """
        self._entries = tuple(_entry(spec) for spec in specs or (ModelSpec(),))
        self._by_name: dict[str, CatalogueEntry] = {}
        for entry in self._entries:
            for name in (entry.name, *entry.spec.aliases):
                if (other := self._by_name.setdefault(name, entry)) is not entry:
                    both = f"{_origin(other)} and {_origin(entry)}"
                    message = f"{both} have the same name {name!r}: give one of them another name"
                    raise pyggml.InvalidParameterError(message)

    def add(self, spec: ModelSpec) -> CatalogueEntry | None:
        """Add a model; None: there is one of this name."""
        entry = _entry(spec)
        if entry.name in self._by_name:
            return None
        self._entries = (*self._entries, entry)
        self._by_name = {**self._by_name, entry.name: entry}
        return entry

    def __iter__(self) -> Iterator[CatalogueEntry]:
        return iter(self._entries)

    @property
    def default(self) -> CatalogueEntry:
        """The first model."""
        return self._entries[0]

    @property
    def names(self) -> list[str]:
        """The models' own names, without aliases."""
        return [entry.name for entry in self._entries]

    def split(self, name: str) -> tuple[str, str | None]:
        """Return the model and the adapter of a name "model:adapter"; None: the name is that of a model."""
        base, _, adapter = name.rpartition(":")
        known = {"", DEFAULT, *self._by_name}
        is_model = name in known or name.removesuffix(_DEFAULT_TAG) in known
        return (name, None) if is_model or not adapter or not base or base not in known else (base, adapter)

    def find(self, name: str) -> CatalogueEntry:
        """Return the model that a request names.

        Raises:
            RequestError: 404, there is no model of that name.
        """
        for each in (name, name.removesuffix(_DEFAULT_TAG)):
            if each in ("", DEFAULT):
                return self.default
            if each in self._by_name:
                return self._by_name[each]
        names = ", ".join(map(repr, self.names))
        message = f"there is no model {name!r:.200}: use one of {names}, or {DEFAULT!r} for the first"
        raise RequestError(Failure(404, "not_found", message, "model_not_found", "model"))


def _entry(spec: ModelSpec) -> CatalogueEntry:
    source = spec.source
    if isinstance(source, pyggml.LLM):
        return CatalogueEntry(spec, spec.name or _name_of(source.source), "open")
    if source is None:
        return CatalogueEntry(spec, spec.name or _name_of(pyggml.SHIPPED_MODEL), "shipped")
    return CatalogueEntry(spec, spec.name or _name_of(source), "hub" if pyggml.hub.is_reference(source) else "local")


def _name_of(source: str | os.PathLike[str]) -> str:
    """Return ``org/repo`` of a reference, or the name of a path's file or directory."""
    if pyggml.hub.is_reference(source):
        return pyggml.hub.parse_reference(os.fspath(source)).repo_id
    name = Path(os.path.abspath(source)).name  # noqa: PTH100 - do not follow links, whose targets may be hashes
    return _PART.sub("", name.removesuffix(".gguf")) or name


def _origin(entry: CatalogueEntry) -> str:
    source = entry.spec.source
    return repr(source.source if isinstance(source, pyggml.LLM) else entry.name if source is None else str(source))
