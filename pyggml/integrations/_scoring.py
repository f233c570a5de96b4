"""Log likelihoods of many token sequences, with every shared prefix computed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyggml import LLM, Context, ContextOverflowError

#: Sequences in the KV cache, for the leaves of one tree and the path to them.
_N_SEQ = 64
#: Output rows of a batch, each as long as the vocabulary.
_N_OUTPUTS = 256
_ROOT_SEQ = 0


class Score(NamedTuple):
    """The likelihood of a continuation.

    Attributes:
        logprob: sum of the natural logarithms of its tokens' probabilities.
        is_greedy: each token is the likeliest one at its position.
    """

    logprob: float
    is_greedy: bool


class Item(NamedTuple):
    """A sequence to score.

    Attributes:
        token_ids: context and continuation.
        n_scored: number of tokens of the continuation, at the end; at least 1 and fewer than all.
    """

    token_ids: Sequence[int]
    n_scored: int


@dataclass
class _Node:
    """A run of tokens that follows its parent's, in a tree of prefixes.

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
    children: list[_Node] = field(default_factory=list)
    seq: int = -1


class Scorer:
    """Scores sequences with a model, in a context of its own. Not thread-safe.

    Args:
        llm: the model. It must not be isolated.
        n_ctx: longest sequence in tokens, and cells of the KV cache.
        **options: options of :class:`pyggml.Context`, such as ``cache_type``.
    """

    def __init__(self, llm: LLM, n_ctx: int, **options: Any) -> None:
        n_batch = min(n_ctx, 512)
        self._context = Context(
            llm.model,
            n_ctx=n_ctx,
            n_batch=n_batch,
            n_ubatch=n_batch,
            n_seq_max=_N_SEQ,
            n_outputs_max=min(_N_OUTPUTS, n_batch),
            kv_unified=True,
            swa_full=True,  # sequences are cut and continued
            **options,
        )
        self._n_ctx = n_ctx
        self._resident: list[int] = []  # the tokens of _ROOT_SEQ
        self._free = list(range(_ROOT_SEQ + 1, _N_SEQ))

    def close(self) -> None:
        """Free the context."""
        self._context.close()

    def scores(self, items: Sequence[Item]) -> Iterator[tuple[int, Score]]:
        """Yield the index and the score of each item, in an order of their tokens.

        Raises:
            ContextOverflowError: an item is longer than the context.
            EngineError: the computation failed.
        """
        for index, item in enumerate(items):
            if len(item.token_ids) > self._n_ctx + 1:
                raise ContextOverflowError(
                    f"sequence {index} has {len(item.token_ids)} tokens, but the context has {self._n_ctx}"
                )
        order = sorted(range(len(items)), key=lambda index: tuple(items[index].token_ids))
        for chunk in _chunks(order, items, self._n_ctx):
            yield from self._chunk(chunk, items)

    def _chunk(self, chunk: Sequence[int], items: Sequence[Item]) -> Iterator[tuple[int, Score]]:
        """Score items whose tree fits into the KV cache."""
        found: dict[int, list[Score]] = {index: [] for index in chunk}
        try:
            self._compute(_tree(chunk, items), found)
        except BaseException:
            self._reset()
            raise
        for index in chunk:
            parts = found[index]
            yield index, Score(float(sum(part.logprob for part in parts)), all(part.is_greedy for part in parts))

    def _compute(self, root: _Node, found: dict[int, list[Score]]) -> None:
        """Compute a tree in waves, from the root to the leaves."""
        self._begin(root)
        wave = [root]
        while wave:
            self._decode(wave, found)
            wave = [child for node in wave for child in self._branch(node)]

    def _reset(self) -> None:
        self._context.memory_clear(data=False)
        self._resident = []
        self._free = list(range(_ROOT_SEQ + 1, _N_SEQ))

    def _begin(self, root: _Node) -> None:
        """Keep what the last tree's root has in common with this one, and leave out what is computed.

        Positions that are needed as outputs are computed again.
        """
        needed = min(root.targets, default=len(root.token_ids))
        n = min(_n_common(self._resident, root.token_ids), needed)
        if not self._context.seq_rm(_ROOT_SEQ, n):
            n = 0  # recurrent states cannot be cut
            self._context.seq_rm(_ROOT_SEQ)
        self._resident = list(root.token_ids)
        root.seq = _ROOT_SEQ
        root.targets = {offset - n: targets for offset, targets in root.targets.items()}
        root.token_ids, root.start = root.token_ids[n:], n

    def _branch(self, node: _Node) -> list[_Node]:
        """Give each child a sequence that begins with its parent's cells, and release the parent's."""
        for child in node.children:
            child.seq = self._free.pop()
            if child.start:
                self._context.seq_cp(node.seq, child.seq)
        if node.seq != _ROOT_SEQ:
            self._context.seq_rm(node.seq)
            self._free.append(node.seq)
        return node.children

    def _decode(self, wave: Sequence[_Node], found: dict[int, list[Score]]) -> None:
        """Compute the runs of a wave of nodes in as few batches as possible."""
        places = [(node, offset) for node in wave for offset in range(len(node.token_ids))]
        while places:
            n, n_outputs = 0, 0
            for node, offset in places[: self._context.n_batch]:
                n_outputs += offset in node.targets
                if n_outputs > self._context.n_outputs_max:
                    break
                n += 1
            self._decode_batch(places[:n], found)
            places = places[n:]

    def _decode_batch(self, places: Sequence[tuple[_Node, int]], found: dict[int, list[Score]]) -> None:
        wanted = [node.targets.get(offset, []) for node, offset in places]
        self._context.decode(
            [node.token_ids[offset] for node, offset in places],
            pos=[node.start + offset for node, offset in places],
            seq_id=[node.seq for node, _ in places],
            output=[bool(targets) for targets in wanted],
        )
        for row, targets in enumerate(filter(None, wanted)):
            logits = self._context.logits(row, 1)[0].astype(np.float64)
            _record(logits, targets, found)


def _record(logits: npt.NDArray[np.float64], targets: Sequence[tuple[int, int]], found: dict[int, list[Score]]) -> None:
    """Add the likelihood of each target token under a row of logits, float64, (n_vocab,)."""
    likeliest = int(logits.argmax())
    normaliser = float(logits[likeliest]) + float(np.log(np.exp(logits - logits[likeliest]).sum()))
    for index, token_id in targets:
        found[index].append(Score(float(logits[token_id]) - normaliser, token_id == likeliest))


def _chunks(order: Sequence[int], items: Sequence[Item], n_ctx: int) -> Iterator[list[int]]:
    """Split sorted items into runs whose trees fit into the KV cache, with a sequence for every leaf."""
    chunk: list[int] = []
    n_cells = 0
    before: Sequence[int] = ()
    for index in order:
        read = items[index].token_ids[:-1]
        n_new = len(read) - _n_common(before, read)
        # At most half of the sequences, since a wave's nodes and their children are there together.
        if chunk and (n_cells + n_new > n_ctx or len(chunk) >= _N_SEQ // 2 - 1):
            yield chunk
            chunk, n_cells, n_new = [], 0, len(read)
        chunk.append(index)
        n_cells += n_new
        before = read
    if chunk:
        yield chunk


def _tree(chunk: Sequence[int], items: Sequence[Item]) -> _Node:
    """The tree of the prefixes of sorted items, without their last tokens, which only are targets."""
    reads = [(index, list(items[index].token_ids[:-1])) for index in chunk]
    root = _grown(reads, 0)
    for index in chunk:
        _aim(root, index, items[index])
    return root


def _grown(reads: Sequence[tuple[int, list[int]]], start: int) -> _Node:
    """A node of the tokens from ``start`` on that all sequences have in common, and its children."""
    shortest = min(len(read) for _, read in reads)
    first, last = reads[0][1], reads[-1][1]  # sorted: what these share, all share
    n = start + _n_common(first[start:shortest], last[start:shortest])
    node = _Node(first[start:n], start)
    groups: dict[int, list[tuple[int, list[int]]]] = {}
    for index, read in reads:
        if len(read) > n:
            groups.setdefault(read[n], []).append((index, read))
    node.children = [_grown(group, n) for group in groups.values()]
    return node


def _aim(root: _Node, index: int, item: Item) -> None:
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


def _n_common(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the common prefix."""
    for n, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return n
    return min(len(first), len(second))
