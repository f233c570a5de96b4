"""Log likelihoods of many token sequences, with every shared prefix computed once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyggml._core.c_values import int32_array
from pyggml._core.checks import UINT32_MAX, integer
from pyggml._core.owner import ClosableOwner
from pyggml._native.adapter import Adapter
from pyggml._native.context import Context
from pyggml._native.model import Model
from pyggml.errors import ContextOverflowError, InvalidParameterError
from pyggml.generation.scoring.prefix_tree import Item, Node, chunks, n_common, tree
from pyggml.types import Score

#: Sequences in the KV cache, for the leaves of one tree and the path to them.
_N_SEQ = 64
#: Output rows of a batch, each as long as the vocabulary.
_N_OUTPUTS = 256
_N_BATCH = 512
_ROOT_SEQ = 0


class Scorer(ClosableOwner):
    """Log likelihoods of many token sequences, in a context of its own. One thread at a time.

    For a few texts, :meth:`LLM.score <pyggml.LLM.score>` is easier. Close it, or use it as a context manager.
    """

    _instead_of_a_copy = "make another one for the same model"

    def __init__(self, model: Model, n_ctx: int, **options: Any) -> None:
        """Create the context.

        Args:
            model: the model, with its weights in this process.
            n_ctx: length of the longest sequence in tokens, and number of cells of the KV cache.
            **options: options of :class:`pyggml.Context`, such as ``cache_type``.

        Raises:
            InferError: as :class:`pyggml.Context`.
        """
        n_batch = min(integer("n_ctx", n_ctx, 1, UINT32_MAX), _N_BATCH)
        self._context = Context(
            model,
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
        self._resident_adapters: dict[Adapter, float] = {}  # with which its cells were computed
        self._free = list(range(_ROOT_SEQ + 1, _N_SEQ))

    def close(self) -> None:
        """Free the context. Safe to call again."""
        self._context.close()
        self._is_closed = True

    def scores(
        self, sequences: Iterable[tuple[Sequence[int], int]], adapters: Mapping[Adapter, float] | None = None
    ) -> Iterator[tuple[int, Score]]:
        """Yield the index and the score of each sequence, in an order of their tokens.

        Args:
            sequences: pairs of token ids and the number of tokens to score, at the end; at least 1, and fewer than all.
            adapters: adapter -> factor of its low-rank products. None: the model is not adapted.

        Raises:
            InvalidParameterError: a pair is not like this, an adapter belongs to another model, or a factor is not a
                finite number.
            ContextOverflowError: a sequence is longer than the context.
            EngineError: the computation failed.
            ClosedError: it or an adapter was closed.
        """
        adapters = dict(adapters or {})
        items = [self._item(index, *pair) for index, pair in enumerate(sequences)]
        order = sorted(range(len(items)), key=lambda index: tuple(items[index].token_ids))
        # At most half of the sequences, since a wave's nodes and their children are there together.
        for chunk in chunks(order, items, self._n_ctx, _N_SEQ // 2 - 1):
            yield from self._chunk(chunk, items, adapters)

    def _item(self, index: int, token_ids: Sequence[int], n_scored: int) -> Item:
        ids: list[int] = int32_array(f"sequence {index}", token_ids).tolist()
        if not 1 <= n_scored < len(ids):
            raise InvalidParameterError(
                f"sequence {index} has {len(ids)} tokens, of which {n_scored} cannot be scored: at least one is, and "
                "at least one precedes it"
            )
        if len(ids) > self._n_ctx + 1:
            raise ContextOverflowError(
                f"sequence {index} has {len(ids)} tokens, but the context has {self._n_ctx}: shorten it, or enlarge "
                "n_ctx"
            )
        return Item(ids, n_scored)

    def release_adapters(self) -> None:
        """Use no adapters any more, so that they can be closed, in a handler that interrupts this thread."""
        self._context.set_adapters({})

    def _chunk(
        self, chunk: Sequence[int], items: Sequence[Item], adapters: dict[Adapter, float]
    ) -> Iterator[tuple[int, Score]]:
        """Score items whose tree fits into the KV cache."""
        found: dict[int, list[tuple[float, bool]]] = {index: [] for index in chunk}
        try:
            if adapters != self._resident_adapters:
                self._reset()
                self._resident_adapters = adapters
            with self._context.adapted(adapters):
                self._compute(tree(chunk, items), found)
        except BaseException:
            self._reset()
            raise
        for index in chunk:
            yield index, score_of(items[index], found[index])

    def _compute(self, root: Node, found: dict[int, list[tuple[float, bool]]]) -> None:
        """Compute a tree in waves, from the root to the leaves."""
        self._begin(root)
        wave = [root]
        while wave:
            self._decode(wave, found)
            wave = [child for node in wave for child in self._branch(node)]

    def _reset(self) -> None:
        if not self._is_closed:
            self._context.memory_clear(data=False)
        self._resident = []
        self._free = list(range(_ROOT_SEQ + 1, _N_SEQ))

    def _begin(self, root: Node) -> None:
        """Keep what the last tree's root has in common with this one, and leave out what is computed.

        Positions that are needed as outputs are computed again.
        """
        needed = min(root.targets, default=len(root.token_ids))
        n = min(n_common(self._resident, root.token_ids), needed)
        if not self._context.seq_rm(_ROOT_SEQ, n):
            n = 0  # recurrent states cannot be cut
            self._context.seq_rm(_ROOT_SEQ)
        self._resident = list(root.token_ids)
        root.seq = _ROOT_SEQ
        root.targets = {offset - n: targets for offset, targets in root.targets.items()}
        root.token_ids, root.start = root.token_ids[n:], n

    def _branch(self, node: Node) -> list[Node]:
        """Give each child a sequence that begins with its parent's cells, and release the parent's."""
        for child in node.children:
            child.seq = self._free.pop()
            if child.start:
                self._context.seq_cp(node.seq, child.seq)
        if node.seq != _ROOT_SEQ:
            self._context.seq_rm(node.seq)
            self._free.append(node.seq)
        return node.children

    def _decode(self, wave: Sequence[Node], found: dict[int, list[tuple[float, bool]]]) -> None:
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

    def _decode_batch(self, places: Sequence[tuple[Node, int]], found: dict[int, list[tuple[float, bool]]]) -> None:
        wanted = [node.targets.get(offset, []) for node, offset in places]
        self._context.decode(
            [node.token_ids[offset] for node, offset in places],
            pos=[node.start + offset for node, offset in places],
            seq_id=[node.seq for node, _ in places],
            output=[bool(targets) for targets in wanted],
        )
        targets = [(row, *target) for row, each in enumerate(filter(None, wanted)) for target in each]
        if targets:
            rows, indices, token_ids = zip(*targets, strict=True)
            scores = self._context.scores(rows, token_ids)
            for index, logprob, is_likeliest in zip(indices, *(each.tolist() for each in scores), strict=True):
                found[index].append((logprob, is_likeliest))


def score_of(item: Item, tokens: Sequence[tuple[float, bool]]) -> Score:
    """Join the log probabilities of an item's scored tokens, each with whether it is the likeliest."""
    logprobs, likeliest = [logprob for logprob, _ in tokens], [is_likeliest for _, is_likeliest in tokens]
    return Score(sum(logprobs), list(item.token_ids[-item.n_scored :]), logprobs, all(likeliest))
