"""Responses that the server keeps in memory, so that clients can read and continue them."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from pyggml.server.http import errors
from pyggml.server.http.errors import Failure, RequestError

Json = dict[str, Any]

# Bytes of a reference to an item, which several responses of one conversation share.
_REFERENCE_BYTES = 8


@dataclass(eq=False)
class Item:
    """An item of a conversation. Responses that continue the conversation share it.

    Attributes:
        value: the item, as the client sent or received it.
    """

    value: Json
    _n_bytes: int | None = None

    @property
    def n_bytes(self) -> int:
        """Size as JSON, measured once; takes long for a long item that was never stored."""
        if self._n_bytes is None:
            self._n_bytes = len(json.dumps(self.value))
        return self._n_bytes

    @property
    def id(self) -> str | None:
        """ID by which requests can name the item; None: it has none."""
        id = self.value.get("id")
        return id if isinstance(id, str) else None


@dataclass(frozen=True)
class StoredResponse:
    """A response and the conversation that it ends.

    Attributes:
        response: the response, as the client received it.
        items: the items of the conversation with the response.
        n_input: number of items before the response.
        n_bytes: size of the response, and of the references to the items.
        whole_bytes: size with the items, each counted once.
    """

    response: Json
    items: list[Item]
    n_input: int
    n_bytes: int
    whole_bytes: int

    @classmethod
    def of(cls, response: Json, given: list[Item]) -> StoredResponse:
        """Measure a response and the items before it that were never stored; takes long for long ones."""
        items = [*given, *(Item(value) for value in response["output"])]
        n_bytes = len(json.dumps(response)) + _REFERENCE_BYTES * len(items)
        return cls(response, items, len(given), n_bytes, n_bytes + sum(item.n_bytes for item in set(items)))

    @property
    def id(self) -> str:
        """ID of the response."""
        return str(self.response["id"])


class ResponseStore:
    """The stored responses of all API keys, the least recently used first. Used in the event loop only."""

    def __init__(self, max_bytes: int) -> None:
        """Keep at most ``max_bytes`` of JSON; 0: no responses."""
        self.max_bytes = max_bytes
        self._n_bytes = 0
        self._stored: OrderedDict[tuple[str, str], StoredResponse] = OrderedDict()
        self._n_references: dict[Item, int] = {}
        self._named: dict[tuple[str, str], Item] = {}

    @property
    def n_bytes(self) -> int:
        """Size of all responses and their items, each counted once."""
        return self._n_bytes

    def of(self, owner: str) -> OwnResponses:
        """Return the responses of an API key's account."""
        return OwnResponses(self, owner)

    def add(self, owner: str, stored: StoredResponse) -> None:
        """Add a response, and drop the least recently used ones beyond the limit."""
        if (owner, stored.id) in self._stored:
            self.remove(owner, stored.id)
        if stored.whole_bytes > self.max_bytes:
            return
        self._stored[owner, stored.id] = stored
        self._n_bytes += stored.n_bytes
        for item in set(stored.items):
            n_references = self._n_references.get(item, 0)
            self._n_references[item] = n_references + 1
            if not n_references:
                self._n_bytes += item.n_bytes
            if item.id is not None:
                self._named[owner, item.id] = item
        while self._n_bytes > self.max_bytes:
            self.remove(*next(iter(self._stored)))

    def get(self, owner: str, id: str) -> StoredResponse | None:
        """Return a response; None: there is none of this owner and ID."""
        stored = self._stored.get((owner, id))
        if stored is not None:
            self._stored.move_to_end((owner, id))
        return stored

    def remove(self, owner: str, id: str) -> None:
        """Drop a response, and the items that no other response has."""
        stored = self._stored.pop((owner, id))
        self._n_bytes -= stored.n_bytes
        for item in set(stored.items):
            self._n_references[item] -= 1
            if self._n_references[item]:
                continue
            del self._n_references[item]
            self._n_bytes -= item.n_bytes
            if item.id is not None and self._named.get((owner, item.id)) is item:
                del self._named[owner, item.id]

    def item(self, owner: str, id: str) -> Item | None:
        """Return an item of a stored response; None: there is none of this owner and ID."""
        return self._named.get((owner, id))


@dataclass(frozen=True)
class OwnResponses:
    """The stored responses of one API key's account."""

    store: ResponseStore
    owner: str

    def find(self, id: str) -> StoredResponse:
        """Return a response.

        Raises:
            RequestError: 404, it is not stored.
        """
        stored = self.store.get(self.owner, id)
        if stored is None:
            message = f"there is no stored response {id!r:.200}: it was never stored, or dropped for newer ones"
            raise RequestError(Failure(404, "not_found", message, "response_not_found"))
        return stored

    def conversation(self, given: list[Json], previous_id: str | None) -> tuple[list[Item], int]:
        """Return the items of a conversation, and how many bytes of them come from stored responses.

        Args:
            given: the items that a request sends; references stand for items of stored responses.
            previous_id: the response that it continues; None: none.

        Raises:
            RequestError: 400, a response or an item is not stored.
        """
        items: list[Item] = []
        if previous_id is not None:
            items += self._previous(previous_id).items
        n_bytes = sum(item.n_bytes for item in items)
        for index, value in enumerate(given):
            is_bare = value.keys() == {"id"}  # the type may be left out
            if value.get("type") == "item_reference" or is_bare:
                items.append(self._named(index, value.get("id")))
                n_bytes += items[-1].n_bytes
            else:
                items.append(Item(value))
        return items, n_bytes

    def add(self, stored: StoredResponse) -> None:
        """Store a response."""
        self.store.add(self.owner, stored)

    def remove(self, id: str) -> None:
        """Drop a response.

        Raises:
            RequestError: 404, it is not stored.
        """
        self.find(id)
        self.store.remove(self.owner, id)

    def _previous(self, id: str) -> StoredResponse:
        stored = self.store.get(self.owner, id)
        if stored is None:
            message = f"there is no stored response {id!r:.200}: send the whole conversation in 'input' instead"
            raise errors.invalid(message, "previous_response_id", "previous_response_not_found")
        return stored

    def _named(self, index: int, id: Any) -> Item:
        found = self.store.item(self.owner, str(id))
        if found is None:
            message = f"input[{index}] refers to the item {id!r:.200}, which is not stored: send it itself"
            raise errors.invalid(message, "input", "item_not_found")
        return found
