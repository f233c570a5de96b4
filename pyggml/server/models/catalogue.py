"""The models that a server offers, by the names that requests may use."""

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

#: Always means the first model, as no name does.
DEFAULT = "default"

Kind = Literal["shipped", "local", "hub", "open"]

# What ollama's clients write after a name that has no tag.
_ANY_TAG = ":latest"
# The first file of a split set is named after all of them.
_PART = re.compile(r"-\d{5}-of-\d{5}$")


@dataclass(frozen=True, eq=False)
class Offer:
    """A model that the server offers, loaded or not.

    Attributes:
        spec: what the server was told.
        name: what answers call it.
        kind: where it comes from: it ships with pyggml, is a local file or directory, is downloaded from the hub, or
            was open before the server started.
    """

    spec: ModelSpec
    name: str
    kind: Kind

    @property
    def path(self) -> Path | None:
        """Its file or directory; None: wherever a download goes."""
        source = self.spec.source
        if isinstance(source, pyggml.LLM):
            return Path(source.model.path)
        if source is None:
            return pyggml.SHIPPED_MODEL
        return None if self.kind == "hub" else Path(source)


class Catalogue:
    """What is offered, the first being the default."""

    def __init__(self, specs: Sequence[ModelSpec]) -> None:
        """Names the models.

        Raises:
            InvalidParameterError: two have the same name.
        """
        self.offers = tuple(_offer(spec) for spec in specs or (ModelSpec(),))
        self._by_name: dict[str, Offer] = {}
        for offer in self.offers:
            for name in (offer.name, *offer.spec.aliases):
                self._enter(name, offer)

    def __iter__(self) -> Iterator[Offer]:
        return iter(self.offers)

    @property
    def first(self) -> Offer:
        """The default."""
        return self.offers[0]

    @property
    def names(self) -> list[str]:
        """The models' own names, without aliases."""
        return [offer.name for offer in self.offers]

    def find(self, name: str) -> Offer:
        """The model that a request names.

        Raises:
            RequestError: 404, there is none of that name.
        """
        for each in (name, name.removesuffix(_ANY_TAG)):
            if each in ("", DEFAULT):
                return self.first
            if each in self._by_name:
                return self._by_name[each]
        there_is = ", ".join(map(repr, self.names))
        message = f"there is no model {name!r:.200}; there is {there_is}, and {DEFAULT!r} means the first"
        raise RequestError(Failure(404, "not_found", message, "model_not_found", "model"))

    def _enter(self, name: str, offer: Offer) -> None:
        other = self._by_name.setdefault(name, offer)
        if other is not offer:
            raise pyggml.InvalidParameterError(
                f"{_shown(other)} and {_shown(offer)} would both be called {name!r}: give one of them another name"
            )


def _offer(spec: ModelSpec) -> Offer:
    source = spec.source
    if isinstance(source, pyggml.LLM):
        return Offer(spec, spec.name or _name_of(source.source), "open")
    if source is None:
        return Offer(spec, spec.name or _name_of(pyggml.SHIPPED_MODEL), "shipped")
    return Offer(spec, spec.name or _name_of(source), "hub" if pyggml.hub.is_reference(source) else "local")


def _name_of(source: str | os.PathLike[str]) -> str:
    """``org/repo`` of a reference; of a path, the name of the file or directory."""
    if pyggml.hub.is_reference(source):
        return pyggml.hub.parse_reference(os.fspath(source)).repo_id
    name = Path(os.path.abspath(source)).name  # noqa: PTH100 - without following links, whose targets may be hashes
    return _PART.sub("", name.removesuffix(".gguf")) or name


def _shown(offer: Offer) -> str:
    source = offer.spec.source
    return repr(source.source if isinstance(source, pyggml.LLM) else offer.name if source is None else str(source))
