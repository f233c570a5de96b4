"""Token sequences as trees of their common prefixes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Item(NamedTuple):
    """A sequence to score.

    Attributes:
        token_ids: context and continuation.
        n_scored: number of tokens of the continuation, at the end; at least 1 and fewer than all.
    """

    token_ids: Sequence[int]
    n_scored: int


@dataclass
class Node:
    """A run of tokens that follows its parent's.

    Attributes:
        token_ids: the run.
        start: position of its first token.
        targets: offset in the run -> (index of the item, token that follows there).
        children: the runs that may follow.
        seq: its sequence in the KV cache, while it is there.
    """

    token_ids: list[int]
    start: int
    targets: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    children: list[Node] = field(default_factory=list)
    seq: int = -1


def chunks(order: Sequence[int], items: Sequence[Item], n_ctx: int, n_leaves: int) -> Iterator[list[int]]:
    """Split sorted items into runs whose trees fit into ``n_ctx`` cells and have at most ``n_leaves`` leaves."""
    chunk: list[int] = []
    n_cells = 0
    before: Sequence[int] = ()
    for index in order:
        read = items[index].token_ids[:-1]
        n_new = len(read) - n_common(before, read)
        if chunk and (n_cells + n_new > n_ctx or len(chunk) >= n_leaves):
            yield chunk
            chunk, n_cells, n_new = [], 0, len(read)
        chunk.append(index)
        n_cells += n_new
        before = read
    if chunk:
        yield chunk


def tree(chunk: Sequence[int], items: Sequence[Item]) -> Node:
    """The tree of the prefixes of sorted items, without their last tokens, which only are targets."""
    reads = [(index, list(items[index].token_ids[:-1])) for index in chunk]
    root = _grown(reads, 0)
    for index in chunk:
        _aim(root, index, items[index])
    return root


def n_common(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the common prefix."""
    for n, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return n
    return min(len(first), len(second))


def _grown(reads: Sequence[tuple[int, list[int]]], start: int) -> Node:
    """A node of the tokens from ``start`` on that all sequences have in common, and its children."""
    shortest = min(len(read) for _, read in reads)
    first, last = reads[0][1], reads[-1][1]  # sorted: what these share, all share
    n = start + n_common(first[start:shortest], last[start:shortest])
    node = Node(first[start:n], start)
    groups: dict[int, list[tuple[int, list[int]]]] = {}
    for index, read in reads:
        if len(read) > n:
            groups.setdefault(read[n], []).append((index, read))
    node.children = [_grown(group, n) for group in groups.values()]
    return node


def _aim(root: Node, index: int, item: Item) -> None:
    """Enter an item's targets at the positions that predict them."""
    token_ids, first = item.token_ids, len(item.token_ids) - item.n_scored - 1
    node, position = root, 0
    while True:
        for offset in range(len(node.token_ids)):
            if position >= first:
                node.targets.setdefault(offset, []).append((index, token_ids[position + 1]))
            position += 1
            if position == len(token_ids) - 1:
                return
        node = next(child for child in node.children if child.token_ids[0] == token_ids[position])
