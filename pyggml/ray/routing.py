"""Which replica gets a request: the one that has computed its beginning, unless others are idle. Without Ray.

What a replica has computed is believed, not known: what was sent to it lately. A belief that is wrong costs what
sending requests anywhere costs, a prompt that is computed anew.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from hashlib import blake2b
from itertools import accumulate
from typing import Any, Generic, TypeVar

R = TypeVar("R", bound=Hashable)

#: A beginning of a prompt: how many bytes it has, and their hash. Those of a prompt grow, and the last is all of it.
Mark = tuple[int, bytes]

# Marks lie this far apart, relative to what comes before them: some 40 for the longest prompt, and no common beginning
# counts for less than four fifths of its length.
_SHORTEST_MARK_BYTES = 128
_MARK_RATIO = 1.25
# What is remembered, over all replicas.
_MAX_CONVERSATIONS = 2**14
_MAX_MARKS = 2**18


def marks(fields: Mapping[str, Any]) -> tuple[Mark, ...]:
    """The marks of a request's prompt, by the fields that the protocols have for one; (): it has none.

    After each message there is one, so that the request before this one in a conversation is found, besides those at
    certain lengths, for texts that begin alike.
    """
    parts = [part.encode(errors="surrogatepass") for part in _parts(fields)]
    text, ends = b"".join(parts), {*accumulate(map(len, parts))}
    length = float(_SHORTEST_MARK_BYTES)
    while length < len(text):
        ends.add(int(length))
        length *= _MARK_RATIO
    found, digest, begin = [], blake2b(digest_size=16), 0
    for end in sorted(ends):
        digest.update(text[begin:end])
        found.append((end, digest.copy().digest()))
        begin = end
    return tuple(found)


def _parts(fields: Mapping[str, Any]) -> Iterable[str]:
    """The prompt in the order in which templates write it."""
    for name in ("tools", "system", "instructions"):
        if fields.get(name):
            yield json.dumps(fields[name])
    for name in ("messages", "prompt", "input"):
        value = fields.get(name)
        if isinstance(value, list):
            yield from map(_message, value)
        elif isinstance(value, str):
            yield value


def _message(message: Any) -> str:
    """What stays the same when a client repeats a message later: not where it wants a cache to begin, for example."""
    if not isinstance(message, Mapping):
        return json.dumps(message)
    content = message.get("content")
    if isinstance(content, list):
        content = [part["text"] if isinstance(part, Mapping) and "text" in part else part for part in content]
        content = content[0] if len(content) == 1 else content
    return json.dumps([message.get("role"), content, message.get("tool_calls")])


class Beginnings(Generic[R]):
    """What each replica has computed, as far as one router knows."""

    def __init__(self, slack: float) -> None:
        """Knows nothing yet.

        Args:
            slack: how many more requests than the idlest a replica may have before a conversation leaves it.
        """
        self._slack = slack
        self._homes: OrderedDict[bytes, tuple[R, int]] = OrderedDict()  # of the last request of each conversation
        self._kept: dict[R, int] = {}  # bytes of the conversations that a replica is the home of
        self._seen: OrderedDict[bytes, set[R]] = OrderedDict()

    def ranked(self, request: tuple[Mark, ...], loads: Mapping[R, int]) -> list[R]:
        """The replicas, the best for a request first.

        A conversation goes on where it is. A new text goes where it costs the least: a request that is there already
        counts as much as computing all of the text, and so does an average share of what replicas keep. So texts that
        begin alike meet, and yet do not push each other out of one cache while another has room.

        Args:
            request: its marks.
            loads: the replicas there are, and how many requests each has.
        """
        kept = {replica: self._kept.get(replica, 0) for replica in loads}
        mean = sum(kept.values()) / max(len(kept), 1) or 1
        known = self._known(request)
        n_bytes = request[-1][0] if request else 1

        def cost(replica: R) -> float:
            return loads[replica] + 1 - known.get(replica, 0) / n_bytes + kept[replica] / mean

        order = sorted(loads, key=cost)
        home = self._home(request)
        if home is not None:
            replica, _ = self._homes[home]
            if replica in loads and loads[replica] <= min(loads.values()) + self._slack:
                order.remove(replica)
                order.insert(0, replica)
        return order

    def note(self, request: tuple[Mark, ...], replica: R) -> None:
        """Remembers that a replica has got a request."""
        if not request:
            return
        home = self._home(request)
        if home is not None:
            self._leave(home)
        n_bytes, whole = request[-1]
        self._homes[whole] = replica, n_bytes
        self._kept[replica] = self._kept.get(replica, 0) + n_bytes
        if len(self._homes) > _MAX_CONVERSATIONS:
            self._leave(next(iter(self._homes)))
        for _, mark in request:
            self._seen.setdefault(mark, set()).add(replica)
            self._seen.move_to_end(mark)
        while len(self._seen) > _MAX_MARKS:
            self._seen.popitem(last=False)

    def _home(self, request: tuple[Mark, ...]) -> bytes | None:
        """The latest request that this one goes on from; None: there is none."""
        return next((mark for _, mark in reversed(request) if mark in self._homes), None)

    def _leave(self, home: bytes) -> None:
        replica, n_bytes = self._homes.pop(home)
        self._kept[replica] -= n_bytes
        if not self._kept[replica]:
            del self._kept[replica]

    def _known(self, request: tuple[Mark, ...]) -> dict[R, int]:
        """How many bytes of a prompt each replica has computed."""
        known: dict[R, int] = {}
        for n_bytes, mark in request:
            for replica in self._seen.get(mark, ()):
                known[replica] = n_bytes
        return known
