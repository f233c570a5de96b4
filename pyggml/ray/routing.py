"""Prefix-aware routing policy: prefer the replica with the longest cached prefix, unless others are idle. Without Ray.

The router assumes that a replica still caches the prompts recently sent to it. If it does not, the prompt is computed
again, as with any other routing.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from hashlib import blake2b
from itertools import accumulate
from typing import Any, Generic, TypeVar

R = TypeVar("R", bound=Hashable)

#: A prefix of a prompt: its length in bytes, and its hash. A prompt's prefixes grow, and the last is the whole prompt.
PrefixHash = tuple[int, bytes]

# The lengths of hashed prefixes grow by this ratio: some 40 hashes for the longest prompt, and at least four fifths of
# a common prefix are found.
_MIN_PREFIX_BYTES = 128
_PREFIX_RATIO = 1.25
# Limits of the index, over all replicas.
_MAX_CONVERSATIONS = 2**14
_MAX_HASHES = 2**18


def prefix_hashes(fields: Mapping[str, Any]) -> tuple[PrefixHash, ...]:
    """Hash the prefixes of a request's prompt, in the fields of any protocol; (): it has no prompt.

    A prefix ends after each message, to find the previous request of a conversation, and at fixed lengths, to find
    other prompts with a common prefix.
    """
    parts = [part.encode(errors="surrogatepass") for part in _prompt_parts(fields)]
    text, ends = b"".join(parts), {*accumulate(map(len, parts))}
    length = float(_MIN_PREFIX_BYTES)
    while length < len(text):
        ends.add(int(length))
        length *= _PREFIX_RATIO
    found, digest, begin = [], blake2b(digest_size=16), 0
    for end in sorted(ends):
        digest.update(text[begin:end])
        found.append((end, digest.copy().digest()))
        begin = end
    return tuple(found)


def _prompt_parts(fields: Mapping[str, Any]) -> Iterable[str]:
    """Return the parts of a prompt, in the order in which chat templates render them."""
    for name in ("tools", "system", "instructions"):
        if fields.get(name):
            yield json.dumps(fields[name])
    for name in ("messages", "prompt", "input"):
        value = fields.get(name)
        if isinstance(value, list):
            yield from map(_message_text, value)
        elif isinstance(value, str):
            yield value


def _message_text(message: Any) -> str:
    """Return a message without fields that change between requests, such as cache_control."""
    if not isinstance(message, Mapping):
        return json.dumps(message)
    content = message.get("content")
    if isinstance(content, list):
        content = [part["text"] if isinstance(part, Mapping) and "text" in part else part for part in content]
        content = content[0] if len(content) == 1 else content
    return json.dumps([message.get("role"), content, message.get("tool_calls")])


class PrefixIndex(Generic[R]):
    """The prefixes that each replica caches, as far as one router knows."""

    def __init__(self, slack: float) -> None:
        """Let a replica have ``slack`` more requests than the idlest before a conversation moves away."""
        self._slack = slack
        # Hash of the last request of each conversation -> its replica, and its length.
        self._conversations: OrderedDict[bytes, tuple[R, int]] = OrderedDict()
        self._conversation_bytes = Counter[R]()  # by replica
        self._replicas_of: OrderedDict[bytes, set[R]] = OrderedDict()  # by hash

    def rank(self, hashes: tuple[PrefixHash, ...], loads: Mapping[R, int]) -> list[R]:
        """Rank the replicas for a request, best first.

        A conversation stays on its replica. A new prompt goes to the replica with the lowest cost: its number of
        requests, plus the fraction of the prompt that it has to compute, plus the size of its conversations relative to
        the mean. So prompts with a common prefix meet, and do not evict each other from one cache while another is
        empty.

        Args:
            hashes: the request's prefix hashes.
            loads: number of requests on each available replica.
        """
        sizes = {replica: self._conversation_bytes[replica] for replica in loads}
        mean = sum(sizes.values()) / max(len(sizes), 1) or 1
        cached = {replica: n for n, digest in hashes for replica in self._replicas_of.get(digest, ())}  # the longest
        n_bytes = hashes[-1][0] if hashes else 1

        def cost(replica: R) -> float:
            return loads[replica] + 1 - cached.get(replica, 0) / n_bytes + sizes[replica] / mean

        order = sorted(loads, key=cost)
        if (conversation := self._conversation_of(hashes)) is not None:
            replica, _ = self._conversations[conversation]
            if replica in loads and loads[replica] <= min(loads.values()) + self._slack:
                order.remove(replica)
                order.insert(0, replica)
        return order

    def record(self, hashes: tuple[PrefixHash, ...], replica: R) -> None:
        """Record that a request was sent to a replica."""
        if not hashes:
            return
        if (conversation := self._conversation_of(hashes)) is not None:
            self._evict(conversation)
        n_bytes, whole = hashes[-1]
        self._conversations[whole] = replica, n_bytes
        self._conversation_bytes[replica] += n_bytes
        if len(self._conversations) > _MAX_CONVERSATIONS:
            self._evict(next(iter(self._conversations)))
        for _, digest in hashes:
            self._replicas_of.setdefault(digest, set()).add(replica)
            self._replicas_of.move_to_end(digest)
        while len(self._replicas_of) > _MAX_HASHES:
            self._replicas_of.popitem(last=False)

    def _conversation_of(self, hashes: tuple[PrefixHash, ...]) -> bytes | None:
        """Return the longest recorded request that this one continues; None: there is none."""
        return next((digest for _, digest in reversed(hashes) if digest in self._conversations), None)

    def _evict(self, conversation: bytes) -> None:
        replica, n_bytes = self._conversations.pop(conversation)
        self._conversation_bytes[replica] -= n_bytes
        if not self._conversation_bytes[replica]:
            del self._conversation_bytes[replica]
