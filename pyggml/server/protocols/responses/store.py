"""Responses that the server keeps in memory, so that clients can read and continue them."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from pyggml.server.http import errors
from pyggml.server.http.errors import Failure, RequestError

Item = dict[str, Any]


@dataclass(frozen=True)
class StoredResponse:
    """A response and the conversation that it ends.

    Attributes:
        response: the response, as the client received it.
        input: the items of the conversation before the response.
        n_bytes: size of both as JSON.
    """

    response: Item
    input: list[Item]
    n_bytes: int

    @classmethod
    def of(cls, response: Item, given: list[Item]) -> StoredResponse:
        """Measure a response and the conversation before it; takes long for long ones."""
        return cls(response, given, len(json.dumps(response)) + len(json.dumps(given)))

    @property
    def id(self) -> str:
        """ID of the response."""
        return str(self.response["id"])

    @property
    def items(self) -> list[Item]:
        """The items of the conversation with the response."""
        return [*self.input, *self.response["output"]]


class ResponseStore:
    """The stored responses of all API keys, the least recently used first. Used in the event loop only."""

    def __init__(self, max_bytes: int) -> None:
        """Keep at most ``max_bytes`` of JSON; 0: no responses."""
        self._max_bytes = max_bytes
        self._n_bytes = 0
        self._stored: OrderedDict[tuple[str, str], StoredResponse] = OrderedDict()
        self._items: dict[tuple[str, str], Item] = {}

    def of(self, owner: str) -> KeyResponses:
        """Return the responses of an API key's account."""
        return KeyResponses(self, owner)

    def add(self, key: str, stored: StoredResponse) -> None:
        """Add a response, and drop the least recently used ones beyond the limit."""
        if stored.n_bytes > self._max_bytes:
            return
        self._stored[key, stored.id] = stored
        self._n_bytes += stored.n_bytes
        for item in stored.items:
            if isinstance(item.get("id"), str):
                self._items[key, item["id"]] = item
        while self._n_bytes > self._max_bytes:
            self.remove(*next(iter(self._stored)))

    def get(self, key: str, id: str) -> StoredResponse | None:
        """Return a response; None: there is none of this key and ID."""
        stored = self._stored.get((key, id))
        if stored is not None:
            self._stored.move_to_end((key, id))
        return stored

    def remove(self, key: str, id: str) -> None:
        """Drop a response, and the items that no other response of the key has."""
        stored = self._stored.pop((key, id))
        self._n_bytes -= stored.n_bytes
        for item in stored.items:
            if self._items.get((key, str(item.get("id")))) is item:
                del self._items[key, str(item["id"])]

    def item(self, key: str, id: str) -> Item | None:
        """Return an item of a stored response; None: there is none of this key and ID."""
        return self._items.get((key, id))


@dataclass(frozen=True)
class KeyResponses:
    """The stored responses of one API key."""

    store: ResponseStore
    key: str

    def find(self, id: str) -> StoredResponse:
        """Return a response.

        Raises:
            RequestError: 404, it is not stored.
        """
        stored = self.store.get(self.key, id)
        if stored is None:
            message = f"there is no stored response {id!r:.200}: it was never stored, or dropped for newer ones"
            raise RequestError(Failure(404, "not_found", message, "response_not_found"))
        return stored

    def previous(self, id: str) -> StoredResponse:
        """Return the response that a request continues.

        Raises:
            RequestError: 400, it is not stored.
        """
        stored = self.store.get(self.key, id)
        if stored is None:
            message = f"there is no stored response {id!r:.200}: send the whole conversation in 'input' instead"
            raise errors.invalid(message, "previous_response_id", "previous_response_not_found")
        return stored

    def resolved(self, items: list[Item]) -> list[Item]:
        """Replace references to items of stored responses by the items.

        Raises:
            RequestError: 400, an item is not stored.
        """
        return [self._item(index, item) for index, item in enumerate(items)]

    def add(self, stored: StoredResponse) -> None:
        """Store a response."""
        self.store.add(self.key, stored)

    def remove(self, id: str) -> None:
        """Drop a response.

        Raises:
            RequestError: 404, it is not stored.
        """
        self.find(id)
        self.store.remove(self.key, id)

    def _item(self, index: int, item: Item) -> Item:
        is_bare = item.keys() == {"id"}  # the type may be left out
        if item.get("type") != "item_reference" and not is_bare:
            return item
        found = self.store.item(self.key, str(item.get("id")))
        if found is None:
            message = f"input[{index}] refers to the item {item.get('id')!r:.200}, which is not stored: send it itself"
            raise errors.invalid(message, "input", "item_not_found")
        return found
