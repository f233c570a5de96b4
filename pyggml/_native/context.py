"""A context: a model's KV cache, and the computation of batches."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, SupportsIndex

import numpy as np
import numpy.typing as npt

from pyggml import errors
from pyggml._core import c_calls, log
from pyggml._core.c_values import int32_array, pointer
from pyggml._core.checks import INT32_MAX, flag, integer, real, shown
from pyggml._core.ffi import ffi, lib
from pyggml._core.fields import takes
from pyggml._core.owner import ClosableOwner
from pyggml._native.adapter import Adapter
from pyggml._native.batch import Batch, Output, seq_number
from pyggml._native.context_options import POOLING_NAMES, ContextOptions, native_options
from pyggml._native.model import Model
from pyggml._native.rope_effect import require_rope_effect

if TYPE_CHECKING:
    from pyggml._core.ffi import CData

_EVERY_SEQ = -1

_open_contexts: weakref.WeakSet[Context] = weakref.WeakSet()


class Context(ClosableOwner):
    """Batches of token ids run through a model, and their KV cache as numbered sequences.

    Thread-safe: calls run one at a time, without the GIL, and :meth:`cancel` interrupts them. Output rows belong to the
    last batch, whichever thread decoded it. Close it, or use it as a context manager; its methods then raise
    ClosedError. It keeps its model's weights alive.

    Attributes:
        model: its model.
        n_ctx: number of KV cache cells, one per token: the requested number rounded up to a multiple of 256.
        n_ctx_seq: cells that one sequence can use: all of them, or its share without ``kv_unified``.
        n_batch: maximum number of tokens in a batch; at most n_ctx with causal attention.
        n_ubatch: size of a micro-batch in tokens.
        n_seq_max: number of sequences, numbered 0 to n_seq_max - 1.
        n_outputs_max: maximum number of output rows of a batch.
        n_vocab: width of a row of logits.
        n_embd_out: width of an embedding.
        pooling: how a sequence's token embeddings are pooled: "none", "mean", "cls", "last" or "rank".
        can_shift: True if :meth:`seq_add` and :meth:`seq_div` can move positions.
        has_memory: True if it has a KV cache or a recurrent state; encoders have none.
    """

    _instead_of_a_copy = "make another one of the same model"

    @takes(ContextOptions)
    def __init__(self, model: Model, options: ContextOptions) -> None:  # noqa: D417
        """Plan the memory, and allocate it if there is enough.

        Args:
            model: the model, loaded with its weights.
            n_ctx: number of KV cache cells, one for each token of each sequence; 0: the context length of the model's
                training. Rounded up to a multiple of 256.
            n_batch: maximum number of tokens in one call of :meth:`decode`.
            n_ubatch: size of a micro-batch in tokens: a larger one is faster for prompts but needs more scratch memory.
                A model with bidirectional attention needs a micro-batch as large as the batch.
            n_seq_max: maximum number of sequences.
            n_outputs_max: maximum number of output rows of one call; 0: n_batch. Each needs n_vocab floats of scratch
                memory.
            n_threads: threads for single tokens; None: one per core that the process may use.
            n_threads_batch: threads for larger batches; None: n_threads.
            cache_type: element type of the KV cache: "f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0" or
                "iq4_nl".
            type_k: element type of the keys, if it differs.
            type_v: element type of the values, if it differs. Quantised values need flash attention.
            flash_attn: whether to use flash attention; "auto": if the device supports it.
            embeddings: compute embeddings in addition to logits, for every token. ``n_outputs_max`` is then ignored,
                and ``n_ubatch`` is rounded down to a multiple of ``n_seq_max``.
            pooling: pooling of a sequence's embeddings; None: the model's own.
            attention: kind of attention; None: the model's own.
            kv_unified: whether sequences share all cells. Otherwise each has its own part of n_ctx, which is faster if
                they have no prefix in common.
            swa_full: whether sliding-window layers keep all positions, so that sequences can be truncated.
            offload_kqv: keep the KV cache on the GPU, for layers that are there.
            op_offload: compute large batches on the GPU, for layers that are not there.
            collector: collects the input activations of the weights, for :func:`pyggml.compute_imatrix`.

        Raises:
            OutOfMemoryError: there is not enough memory; the message names required and available bytes.
            InvalidParameterError: an argument is out of range, or this model does not support it.
            ClosedError: the model was closed.
        """
        if not isinstance(model, Model):
            raise errors.InvalidParameterError(f"a Model was expected, not {type(model).__name__}")
        model.require_weights()
        require_rope_effect(model, options)
        log.sync_level()
        self._handle = c_calls.create(
            "pyg_context", lib.pyg_context_free, lib.pyg_context_new, model._handle, native_options(options)
        )
        self.model = model
        info = self._info()
        self.n_ctx: int = info.n_ctx
        self.n_ctx_seq: int = info.n_ctx_seq
        self.n_batch: int = info.n_batch
        self.n_ubatch: int = info.n_ubatch
        self.n_seq_max: int = info.n_seq_max
        self.n_outputs_max: int = info.n_outputs_max
        self.n_vocab: int = info.n_vocab
        self.n_embd_out: int = info.n_embd_out
        self.pooling: str = POOLING_NAMES[info.pooling]
        self.can_shift: bool = info.can_shift
        self.has_memory: bool = lib.llama_get_memory(self.handle) != ffi.NULL
        _open_contexts.add(self)

    @property
    def handle(self) -> CData:
        """The ``struct llama_context *`` for the raw API, borrowed until :meth:`close`."""
        context: CData = c_calls.call_for_value("struct llama_context *", lib.pyg_context_get, self._handle)
        return context

    # --- computing ------------------------------------------------------------------------------------------

    def decode(
        self,
        token_ids: npt.ArrayLike,
        *,
        pos: npt.ArrayLike | None = None,
        seq_id: SupportsIndex | npt.ArrayLike = 0,
        output: Output | npt.ArrayLike = "last",
    ) -> int:
        """Compute a batch and add it to the KV cache. Blocks until it is done.

        Args:
            token_ids: integers, shape (n,), n from 1 to n_batch; int32 arrays are not copied.
            pos: position of each token in its sequence, (n,); None: each sequence continues at its end. Positions must
                continue their sequence without gaps.
            seq_id: the sequence of all tokens, or of each, (n,).
            output: the tokens to compute logits (or embeddings) for: "last", "all", "none", or a bool for each, (n,).
                With ``embeddings``, and for models without a memory, all tokens have output regardless.

        Returns:
            The number of rows that :meth:`logits` or :meth:`embeddings` now have, in the batch's order.

        Raises:
            InvalidParameterError: an argument is out of range or inconsistent; the context is unchanged.
            ContextOverflowError: there are not enough free cells; the context is unchanged.
            EngineError: cancelled, or the computation failed. Tokens computed until then stay in the KV
                cache: see :meth:`seq_pos`.
        """
        return self._run(lib.pyg_context_decode, token_ids, pos, seq_id, output)

    def encode(
        self,
        token_ids: npt.ArrayLike,
        *,
        pos: npt.ArrayLike | None = None,
        seq_id: SupportsIndex | npt.ArrayLike = 0,
    ) -> int:
        """Run a model's encoder over a batch of at most n_ubatch tokens, all with output.

        Encoder-only models also support :meth:`decode`; encoder-decoder models need this call first.

        Arguments, result and errors as for :meth:`decode`; InvalidParameterError for a model without an encoder.
        """
        return self._run(lib.pyg_context_encode, token_ids, pos, seq_id, "all")

    def cancel(self) -> None:
        """Make a :meth:`decode` running on another thread stop early with EngineError.

        Does not wait, and does nothing if none is running. Only work on the CPU can be cancelled, and not while a
        decode is carrying out earlier edits of sequences.
        """
        lib.pyg_context_cancel(self._handle)

    def logits(self, first: int = 0, n: int | None = None) -> npt.NDArray[np.float32]:
        """Return logits of the last batch.

        Args:
            first: the first row; there is one row per output token, in the batch's order.
            n: number of rows; None: all from ``first`` on.

        Returns:
            float32, (n, n_vocab): a copy, since the next batch overwrites the engine's own.

        Raises:
            EngineError: there are no logits: no batch, no outputs, or the model only computes embeddings.
            InvalidParameterError: there are no such rows.
        """
        return self._rows(lib.pyg_context_logits, first, n, self.n_vocab)

    def logprobs(self, token_ids: npt.ArrayLike, first: int = 0) -> npt.NDArray[np.float32]:
        """Return the log probability (log-softmax of the logits) of one token per row of the last batch.

        Args:
            token_ids: the tokens, (n,), one for each row from ``first`` on.
            first: the first row.

        Returns:
            float32, (n,). No logits are copied.

        Raises:
            EngineError: as :meth:`logits`.
            InvalidParameterError: as :meth:`logits`, or a token is outside the vocabulary.
        """
        ids = int32_array("token_ids", token_ids)
        logprobs = np.empty(len(ids), np.float32)
        start = integer("first", first, 0, INT32_MAX)
        native_ids, out = pointer("int32_t[]", ids), pointer("float[]", logprobs)
        c_calls.call(lib.pyg_context_logprobs, self._handle, start, len(ids), native_ids, out)
        return logprobs

    def scores(
        self, rows: npt.ArrayLike, token_ids: npt.ArrayLike
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        """Return the log probabilities of tokens of any rows of the last batch, and which are the likeliest.

        Args:
            rows: the row of each token, (n,); a row may occur several times.
            token_ids: the tokens, (n,).

        Returns:
            float32, (n,), and bool, (n,): True for the likeliest token of a row, of equal ones the first.

        Raises:
            EngineError: as :meth:`logits`.
            InvalidParameterError: as :meth:`logprobs`, or there is not one row for each token.
        """
        numbers, ids = int32_array("rows", rows), int32_array("token_ids", token_ids)
        if len(numbers) != len(ids):
            raise errors.InvalidParameterError(f"there are {len(numbers)} rows for {len(ids)} token_ids: give one each")
        logprobs, is_likeliest = np.empty(len(ids), np.float32), np.empty(len(ids), np.bool_)
        arrays = pointer("int32_t[]", numbers), pointer("int32_t[]", ids)
        out = pointer("float[]", logprobs), pointer("bool[]", is_likeliest)
        c_calls.call(lib.pyg_context_scores, self._handle, len(ids), *arrays, *out)
        return logprobs, is_likeliest

    def embeddings(self, first: int = 0, n: int | None = None) -> npt.NDArray[np.float32]:
        """Return token embeddings of the last batch; needs a context with ``embeddings`` and without pooling.

        Arguments, result and errors as for :meth:`logits`, with rows of n_embd_out.
        """
        return self._rows(lib.pyg_context_embeddings, first, n, self.n_embd_out)

    def embeddings_seq(self, seq_id: SupportsIndex = 0) -> npt.NDArray[np.float32]:
        """Return the pooled embedding of a sequence of the last batch: float32, (n_embd_out,), a copy.

        With "rank" pooling, returns the scores of the classification head, (model.n_cls_out,).

        Args:
            seq_id: a sequence, 0 to n_seq_max - 1.

        Raises:
            EngineError: this context does not pool, or the sequence was not in the last batch.
            InvalidParameterError: there is no such sequence.
        """
        n = self.model.n_cls_out if self.pooling == "rank" else self.n_embd_out
        row = np.empty(n, np.float32)
        c_calls.call(lib.pyg_context_embeddings_seq, self._handle, seq_number(seq_id), pointer("float[]", row), n)
        return row

    def keep_layers(self, layers: Sequence[int]) -> None:
        """Keep the hidden states that these layers read, of every token, from the next batch on.

        Args:
            layers: layer i reads the hidden states after i layers; layer 0 the embeddings of the tokens.

        Raises:
            InvalidParameterError: the context computes no embeddings, or there is no such layer.
            UnsupportedArchitectureError: the engine does not tell the states of this architecture. The context cannot
                be used any more.
        """
        numbers = int32_array("layers", layers)
        c_calls.call(lib.pyg_context_keep_layers, self._handle, pointer("int32_t[]", numbers), len(numbers))

    def layer(self, layer: SupportsIndex, first: int = 0, n: int | None = None) -> npt.NDArray[np.float32]:
        """Return the hidden states that a kept layer read, of the tokens of the last batch.

        Arguments, result and errors as for :meth:`logits`, with rows of n_embd.

        Args:
            layer: its number, as for :meth:`keep_layers`.
            first: first row.
            n: number of rows; None: all that follow.
        """
        number = integer("layer", layer, 0, INT32_MAX)
        return self._rows(
            lambda handle, *rest: lib.pyg_context_layer(handle, number, *rest), first, n, self.model.n_embd
        )

    # --- adapters -------------------------------------------------------------------------------------------

    def set_adapters(self, adapters: Mapping[Adapter, float]) -> None:
        """Use LoRA adapters for all sequences from the next batch on; cells in the KV cache stay as they were computed.

        They stay in use until the context is closed or this is called again.

        Args:
            adapters: adapter -> factor of its low-rank products; {}: none.

        Raises:
            InvalidParameterError: an adapter belongs to another model, or a factor is not a finite number.
        """
        if not isinstance(adapters, Mapping) or not all(isinstance(each, Adapter) for each in adapters):
            raise errors.InvalidParameterError(
                f"adapters must be a mapping of Adapters to scales, not {shown(adapters)}"
            )
        scaled = [(each._handle, real("a scale", scale)) for each, scale in adapters.items()]
        array = ffi.new("pyg_scaled_adapter[]", scaled)
        c_calls.call(lib.pyg_context_set_adapters, self._handle, array, len(scaled))

    # --- memory ---------------------------------------------------------------------------------------------
    # Ranges of positions are half-open, [p0, p1); a negative bound is open. All raise InvalidParameterError for a
    # missing sequence, a model without a memory, or an operation that its memory does not support; ClosedError after
    # close().

    def memory_clear(self, data: bool = True) -> None:
        """Remove all sequences. Without ``data``, cells are marked free but not zeroed, which is faster.

        Args:
            data: zero the cells as well. False: only mark them free, which is faster.
        """
        c_calls.call(lib.pyg_context_memory_clear, self._handle, flag("data", data))

    def seq_rm(self, seq_id: SupportsIndex | None, p0: int = -1, p1: int = -1) -> bool:
        """Remove positions [p0, p1) of a sequence, or of all sequences (None).

        Args:
            seq_id: a sequence, 0 to n_seq_max - 1; None: all of them.
            p0: the first position; -1: the sequence's beginning.
            p1: the position after the last; -1: the sequence's end.

        Returns:
            False if the memory cannot remove a part (a recurrent state cannot); it is then unchanged.
        """
        positions = _pos("p0", p0), _pos("p1", p1)
        return bool(c_calls.call_for_value("bool", lib.pyg_context_seq_rm, self._handle, _every_or(seq_id), *positions))

    def seq_cp(self, src: SupportsIndex, dst: SupportsIndex, p0: int = -1, p1: int = -1) -> None:
        """Copy positions [p0, p1) of sequence ``src`` to ``dst``; clear that first with :meth:`seq_rm`.

        With ``kv_unified``, both share the cells, which costs nothing. Otherwise, and for recurrent models, only a
        whole sequence can be copied; it replaces ``dst``.

        Args:
            src: the sequence to copy from.
            dst: the sequence to copy to.
            p0: the first position; -1: the sequence's beginning.
            p1: the position after the last; -1: the sequence's end.
        """
        source, target, positions = seq_number(src), seq_number(dst), (_pos("p0", p0), _pos("p1", p1))
        c_calls.call(lib.pyg_context_seq_cp, self._handle, source, target, *positions)

    def seq_keep(self, seq_id: SupportsIndex) -> None:
        """Remove all other sequences.

        Args:
            seq_id: the sequence to keep.
        """
        c_calls.call(lib.pyg_context_seq_keep, self._handle, seq_number(seq_id))

    def seq_add(self, seq_id: SupportsIndex, p0: int, p1: int, delta: int) -> None:
        """Move positions [p0, p1) by ``delta``; those below 0 are removed. Takes effect in the next decode.

        Args:
            seq_id: a sequence, 0 to n_seq_max - 1.
            p0: the first position; -1: the sequence's beginning.
            p1: the position after the last; -1: the sequence's end.
            delta: number to add to each position; it may be negative.
        """
        offset = integer("delta", delta, -INT32_MAX, INT32_MAX)
        c_calls.call(lib.pyg_context_seq_add, self._handle, seq_number(seq_id), _pos("p0", p0), _pos("p1", p1), offset)

    def seq_div(self, seq_id: SupportsIndex, p0: int, p1: int, d: int) -> None:
        """Divide positions [p0, p1) by ``d``, rounding down. Takes effect in the next decode.

        Args:
            seq_id: a sequence, 0 to n_seq_max - 1.
            p0: the first position; -1: the sequence's beginning.
            p1: the position after the last; -1: the sequence's end.
            d: the divisor, at least 1.
        """
        divisor = integer("d", d, 1, INT32_MAX)
        c_calls.call(lib.pyg_context_seq_div, self._handle, seq_number(seq_id), _pos("p0", p0), _pos("p1", p1), divisor)

    def seq_pos(self, seq_id: SupportsIndex = 0) -> tuple[int, int] | None:
        """Return the first and last position of a sequence; None if it is empty.

        Args:
            seq_id: a sequence, 0 to n_seq_max - 1.
        """
        first, last = ffi.new("int32_t *"), ffi.new("int32_t *")
        c_calls.call(lib.pyg_context_seq_pos, self._handle, seq_number(seq_id), first, last)
        return None if last[0] < 0 else (first[0], last[0])

    def state_save(self, seq_id: SupportsIndex | None = None) -> bytes:
        """Return the state of the context, or of one sequence, as bytes.

        They can be restored with the same model on the same kind of machine, have a checksum, and contain neither
        logits nor embeddings.

        Args:
            seq_id: a sequence, 0 to n_seq_max - 1; None: the whole context.

        Raises:
            InvalidParameterError: there is no such sequence, the model has no memory, or sequences were edited
                (seq_add, seq_div, or seq_cp without kv_unified) and no batch has been decoded since.
        """
        seq = _every_or(seq_id)
        size = ffi.new("size_t *")
        c_calls.call(lib.pyg_context_state_size, self._handle, seq, size)
        state = np.empty(size[0], np.uint8)
        c_calls.call(lib.pyg_context_state_get, self._handle, seq, pointer("uint8_t[]", state), len(state), size)
        return state[: size[0]].tobytes()

    def state_restore(self, data: bytes | bytearray | memoryview, seq_id: SupportsIndex | None = None) -> None:
        """Replace the state of the context, or of one sequence, with a saved one.

        Args:
            data: bytes from :meth:`state_save`.
            seq_id: the sequence to replace; None: the whole context. The bytes must be of the same scope.

        Raises:
            InvalidParameterError: as :meth:`state_save`; or the bytes are damaged, from another model or of the wrong
                scope (the memory is then unchanged), or do not fit this context's shape (the memory to restore is then
                empty).
        """
        try:
            state = np.frombuffer(data, np.uint8)
        except (TypeError, ValueError, BufferError):
            raise errors.InvalidParameterError(
                f"bytes from state_save were expected, not {type(data).__name__}"
            ) from None
        seq = _every_or(seq_id)
        c_calls.call(lib.pyg_context_state_set, self._handle, seq, pointer("uint8_t[]", state), len(state))

    # --- properties ----------------------------------------------------------------------------------------------

    @property
    def n_outputs(self) -> int:
        """Output rows of the last batch."""
        return int(self._info().n_outputs)

    @property
    def n_threads(self) -> int:
        """Number of threads for single tokens."""
        return int(self._info().n_threads)

    @property
    def n_threads_batch(self) -> int:
        """Number of threads for larger batches."""
        return int(self._info().n_threads_batch)

    def not_batch_invariant(self) -> tuple[str, ...]:
        """Return the names of operations that are not batch invariant: they may give a token other bits in a batch.

        They are operations of this model's graphs, with the types they read and the devices other than the CPU, such as
        "MUL_MAT q4_K on CUDA0". If pyggml's kernels compute none of them, the reason comes first. (): all results are
        the same bits in every batch; see ``docs/explanation/kernels.md``.
        """
        names = c_calls.call_for_text(lib.pyg_context_not_batch_invariant, self._handle) or b""
        return tuple(names.decode().splitlines())

    def set_threads(self, n_threads: int | None = None, n_threads_batch: int | None = None) -> None:
        """Change the numbers of threads; None as in the constructor.

        Args:
            n_threads: threads for single tokens.
            n_threads_batch: threads for larger batches.

        Raises:
            InvalidParameterError: a number is out of range.
        """
        options = ContextOptions(n_threads=n_threads, n_threads_batch=n_threads_batch)
        single, batch = options.n_threads or 0, options.n_threads_batch or 0
        c_calls.call(lib.pyg_context_set_threads, self._handle, single, batch)

    def close(self) -> None:
        """Free the context once a running call ends. Can be called repeatedly."""
        c_calls.call(lib.pyg_context_close, self._handle)
        self._is_closed = True
        _open_contexts.discard(self)

    def _info(self) -> CData:
        info = ffi.new("pyg_context_info *")
        c_calls.call(lib.pyg_context_get_info, self._handle, info)
        return info

    def _run(
        self,
        function: Callable[..., int],
        token_ids: npt.ArrayLike,
        pos: npt.ArrayLike | None,
        seq_id: SupportsIndex | npt.ArrayLike,
        output: Output | npt.ArrayLike,
    ) -> int:
        batch = Batch(token_ids, pos, seq_id, output)
        return int(c_calls.call_for_value("int32_t", function, self._handle, batch.native))

    def _rows(self, function: Callable[..., int], first: int, n: int | None, n_columns: int) -> npt.NDArray[np.float32]:
        left = self.n_outputs
        start = integer("first", first, 0, INT32_MAX)
        n_rows = max(0, left - start) if n is None else integer("n", n, 0, INT32_MAX)
        # No array for missing rows: the engine reports those.
        rows = np.empty((n_rows if start + n_rows <= left else 0, n_columns), np.float32)
        c_calls.call(function, self._handle, start, n_rows, pointer("float[]", rows))
        return rows

    def __repr__(self) -> str:
        return f"Context(n_ctx={self.n_ctx}, n_seq_max={self.n_seq_max}, {self.model!r}{', closed' * self._is_closed})"


def _every_or(seq_id: SupportsIndex | None) -> int:
    return _EVERY_SEQ if seq_id is None else seq_number(seq_id)


def _pos(name: str, pos: int) -> int:
    return integer(name, pos, -1, INT32_MAX)


@atexit.register
def _close_contexts() -> None:
    """End decodes on daemon threads before the process's static objects are destroyed."""
    for context in list(_open_contexts):
        context.cancel()
        context.close()
