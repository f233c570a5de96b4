"""Context: computing batches, remembering sequences, keeping states."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.checkpoints import models

from pyggml import errors, lib
from pyggml._native.context import Context
from pyggml._native.model import Model

Logits = npt.NDArray[np.float32]

PROMPT = [models.BOS, *b"The cat sat on the mat, and then it slept."]


@pytest.fixture
def context(tiny: Model) -> Iterator[Context]:
    with Context(tiny, n_ctx=256, n_seq_max=4, cache_type="f32", n_threads=1) as context:
        yield context


def all_logits(context: Context, token_ids: list[int], **options: Any) -> Logits:
    context.decode(token_ids, output="all", **options)
    return context.logits()


def close_to(a: Logits, b: Logits, tolerance: float = 1e-3) -> bool:
    return bool(np.abs(a - b).max() <= tolerance * np.abs(b).max())


def numpy_llama(weights: models.Weights, token_ids: list[int]) -> Logits:
    """The same model by the book: float64, (n_tokens, n_vocab)."""
    w = {name: data.astype(np.float64) for name, data in weights.items()}
    n, half = len(token_ids), models.HEAD_DIM // 2

    def norm(x: Any, name: str) -> Any:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + models.RMS_EPS) * w[f"{name}.weight"]

    def heads(x: Any, name: str, n_heads: int) -> Any:
        return (x @ w[f"{name}.weight"].T).reshape(n, n_heads, models.HEAD_DIM).transpose(1, 0, 2)

    angles = np.arange(n)[:, None] * models.ROPE_BASE ** (-np.arange(half) / half)

    def rope(x: Any) -> Any:
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = np.empty_like(x)
        turned[..., 0::2] = even * np.cos(angles) - odd * np.sin(angles)
        turned[..., 1::2] = even * np.sin(angles) + odd * np.cos(angles)
        return turned

    x = w["token_embd.weight"][token_ids]
    future = np.triu(np.full((n, n), -np.inf), 1)
    for i in range(models.N_LAYER):
        h = norm(x, f"blk.{i}.attn_norm")
        q = rope(heads(h, f"blk.{i}.attn_q", models.N_HEAD))
        k = rope(heads(h, f"blk.{i}.attn_k", models.N_HEAD_KV))
        v = heads(h, f"blk.{i}.attn_v", models.N_HEAD_KV)
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(models.HEAD_DIM) + future
        attention = np.exp(scores - scores.max(-1, keepdims=True))
        attention /= attention.sum(-1, keepdims=True)
        mixed = (attention @ v).transpose(1, 0, 2).reshape(n, -1)
        x = x + mixed @ w[f"blk.{i}.attn_output.weight"].T
        h = norm(x, f"blk.{i}.ffn_norm")
        gate = h @ w[f"blk.{i}.ffn_gate.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w[f"blk.{i}.ffn_up.weight"].T)) @ w[f"blk.{i}.ffn_down.weight"].T
    logits: Logits = (norm(x, "output_norm") @ w["token_embd.weight"].T).astype(np.float32)
    return logits


class TestDecode:
    """Batches to logits."""

    def test_agrees_with_the_same_model_in_numpy(self, context: Context) -> None:
        expected = numpy_llama(models.llama_weights(), PROMPT)
        assert close_to(all_logits(context, PROMPT), expected)

    @pytest.mark.parametrize("flash_attn", ["on", "off"])
    @pytest.mark.parametrize("n_ubatch", [1, 7, 512])
    def test_token_by_token_equals_a_batch(self, tiny: Model, flash_attn: Any, n_ubatch: int) -> None:
        with Context(tiny, n_ctx=256, n_ubatch=n_ubatch, flash_attn=flash_attn, n_threads=1) as context:
            whole = all_logits(context, PROMPT)
            context.memory_clear()
            single = np.concatenate([all_logits(context, [token_id]) for token_id in PROMPT])
        assert whole.shape == (len(PROMPT), models.N_BYTE_VOCAB)
        assert close_to(single, whole, 2e-3)

    @pytest.mark.parametrize("cache_type", ["f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"])
    def test_every_cache_type_computes(self, tiny: Model, cache_type: str) -> None:
        with Context(tiny, n_ctx=256, cache_type=cache_type, n_threads=1) as context:
            logits = all_logits(context, PROMPT)
        exact = numpy_llama(models.llama_weights(), PROMPT)
        assert np.corrcoef(logits.ravel(), exact.ravel())[0, 1] > 0.98

    @pytest.mark.slow
    def test_more_threads_compute_the_same(self, tiny: Model) -> None:
        with Context(tiny, n_ctx=256, n_threads=1) as context:
            one = all_logits(context, PROMPT)
            for n_threads, n_threads_batch in [(2, 3), (4, 1), (1, 2), (2, 2), (1, 1)]:
                context.set_threads(n_threads, n_threads_batch)
                assert (context.n_threads, context.n_threads_batch) == (n_threads, n_threads_batch)
                context.memory_clear()
                assert close_to(all_logits(context, PROMPT), one)
                context.decode([1])

    @pytest.mark.slow
    def test_threads_may_change_often_without_a_pass(self, tiny: Model) -> None:
        """The last pass's are still there when the next one lets go of them."""
        with Context(tiny, n_ctx=256, n_threads=1) as context:
            one = all_logits(context, PROMPT)
            for _ in range(3):
                for n_threads in range(1, 9):
                    context.set_threads(n_threads)
                with pytest.raises(errors.ContextOverflowError):  # which computes nothing
                    context.decode([1] * 256)
                context.memory_clear()
                assert close_to(all_logits(context, PROMPT), one)

    def test_output(self, context: Context) -> None:
        whole = all_logits(context, PROMPT)
        n = len(PROMPT)
        for output, rows in [
            ("last", [n - 1]),
            ("none", []),
            ([i % 3 == 0 for i in range(n)], list(range(0, n, 3))),
            (np.arange(n) == 2, [2]),
        ]:
            context.memory_clear()
            assert context.decode(PROMPT, output=output) == len(rows) == context.n_outputs
            if rows:
                assert close_to(context.logits(), whole[rows])

    def test_rows(self, context: Context) -> None:
        whole = all_logits(context, PROMPT)
        assert np.array_equal(context.logits(3), whole[3:])
        assert np.array_equal(context.logits(3, 2), whole[3:5])
        assert context.logits(3, 0).shape == (0, models.N_BYTE_VOCAB)
        whole[:] = 0  # a copy: the engine's own is untouched
        assert context.logits(0, 1).any()
        for first, n in [(len(PROMPT), 1), (0, len(PROMPT) + 1), (5, 10_000), (2**31 - 1, None)]:
            with pytest.raises(errors.InvalidParameterError):
                context.logits(first, n)
        with pytest.raises(errors.InvalidParameterError):
            context.logits(-1)

    def test_sequences_of_one_batch_do_not_mix(self, context: Context) -> None:
        a, b = PROMPT[:7], PROMPT[3:12]
        alone_a = all_logits(context, a)
        alone_b = all_logits(context, b, seq_id=1)
        context.memory_clear()
        order = [0, 1, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0, 1, 1, 0, 1]
        tokens = {0: iter(a), 1: iter(b)}
        together = all_logits(context, [next(tokens[s]) for s in order], seq_id=order)
        assert close_to(together[np.array(order) == 0], alone_a)
        assert close_to(together[np.array(order) == 1], alone_b)

    def test_positions_can_be_given(self, context: Context) -> None:
        first = all_logits(context, PROMPT)
        context.memory_clear()
        assert close_to(all_logits(context, PROMPT, pos=range(len(PROMPT))), first)
        assert context.seq_pos() == (0, len(PROMPT) - 1)
        context.memory_clear()
        context.decode(PROMPT, pos=np.arange(100, 100 + len(PROMPT)))
        assert context.seq_pos() == (100, 99 + len(PROMPT))

    def test_numpy_arrays_of_any_integers(self, context: Context) -> None:
        for dtype in (np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64):
            context.memory_clear()
            context.decode(np.array([1, 2, 3], dtype), seq_id=np.int64(1))
            assert context.seq_pos(1) == (0, 2)
        context.decode(np.arange(20, dtype=np.int32)[::2])  # not contiguous
        assert context.seq_pos(0) == (0, 9)

    def test_without_memory_a_full_context_overflows(self, context: Context) -> None:
        context.decode([1] * 250, output="none")
        before = context.seq_pos()
        with pytest.raises(errors.ContextOverflowError, match=r"7 more tokens.*256 cells"):
            context.decode([1] * 7)
        assert context.seq_pos() == before  # nothing has happened
        context.decode([1] * 6)
        context.seq_rm(0, 100)
        context.decode([1] * 100)

    def test_cells_are_rounded_up(self, tiny: Model) -> None:
        for asked, n_ctx in [(1, 256), (256, 256), (257, 512), (0, models.N_CTX_TRAIN)]:
            with Context(tiny, n_ctx=asked, n_threads=1) as context:
                assert context.n_ctx == context.n_ctx_seq == n_ctx
                assert context.n_batch == min(2048, n_ctx)

    def test_parts_for_each_sequence(self, tiny: Model) -> None:
        with Context(tiny, n_ctx=1024, n_seq_max=4, kv_unified=False, n_threads=1) as context:
            assert (context.n_ctx, context.n_ctx_seq) == (1024, 256)
            context.decode([1] * 256, seq_id=2)
            with pytest.raises(errors.ContextOverflowError):
                context.decode([1], seq_id=2)
            context.decode([1], seq_id=3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"token_ids": []}, "at least one token"),
        ({"token_ids": [1, -1]}, "-1 at index 1"),
        ({"token_ids": [models.N_BYTE_VOCAB]}, "261 at index 0"),
        ({"token_ids": [2**31]}, "2147483648 at index 0"),
        ({"token_ids": [1.0]}, "float64"),
        ({"token_ids": [True]}, "bool"),
        ({"token_ids": np.zeros((2, 2), np.int32)}, "shape"),
        ({"token_ids": "text"}, "token_ids"),
        ({"token_ids": [1] * 65}, "65 tokens, but n_batch is 64"),
        ({"token_ids": [1] * 9, "output": "all"}, "9 rows of output, but n_outputs_max is 8"),
        ({"token_ids": [1, 2], "pos": [0]}, "pos has 1 entries"),
        ({"token_ids": [1, 2], "pos": [0, -2]}, "position -2 at index 1"),
        ({"token_ids": [1], "pos": [2**31 - 1]}, "position 2147483647"),
        ({"token_ids": [1, 2], "pos": [0, 1]}, r"consecutive: Y = X \+ 1"),
        ({"token_ids": [1, 2], "pos": [0, 2], "seq_id": 2}, "not continuous"),
        ({"token_ids": [1, 2], "pos": [1, 0], "seq_id": 2}, "decreasing"),
        ({"token_ids": [1], "seq_id": 4}, "sequence id 4"),
        ({"token_ids": [1], "seq_id": -1}, "seq_id"),
        ({"token_ids": [1], "seq_id": 300}, "sequence id 300"),
        ({"token_ids": [1, 2], "seq_id": [0]}, "seq_id has 1 entries"),
        ({"token_ids": [1, 2], "seq_id": [0, 4]}, "sequence id 4"),
        ({"token_ids": [1], "seq_id": 1.5}, "seq_id"),
        ({"token_ids": [1], "output": "some"}, "'some'"),
        ({"token_ids": [1], "output": [1]}, "bools"),
        ({"token_ids": [1, 2], "output": [True]}, "2 bools"),
    ],
)
def test_a_batch_that_does_not_do(tiny: Model, arguments: dict[str, Any], words: str) -> None:
    with Context(tiny, n_ctx=256, n_seq_max=4, n_batch=64, n_outputs_max=8, n_threads=1) as context:
        context.decode([1, 2, 3])
        context.decode([5], seq_id=1)
        before = context.logits()
        with pytest.raises(errors.InvalidParameterError, match=words):
            context.decode(**arguments)
        # Nothing has happened, and the next call works.
        assert (context.seq_pos(0), context.seq_pos(1)) == ((0, 2), (0, 0))
        assert np.array_equal(context.logits(), before)
        context.decode([4])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_batch": 0}, "n_batch"),
        ({"n_ubatch": 0}, "n_ubatch"),
        ({"n_batch": 2**31}, "n_batch"),
        ({"n_seq_max": 0}, "n_seq_max"),
        ({"n_seq_max": 257}, "n_seq_max must be between 1 and 256"),
        ({"n_seq_max": 8, "n_batch": 4}, "n_batch is 4, but must be at least n_seq_max, 8"),
        ({"n_seq_max": 8, "n_outputs_max": 4}, "n_outputs_max is 4"),
        ({"n_ctx": -1}, "n_ctx"),
        ({"n_ctx": 2**32 - 1}, "n_ctx"),
        ({"n_ctx": 2.5}, "n_ctx"),
        ({"n_ctx": True}, "n_ctx"),
        ({"n_threads": 0}, "n_threads"),
        ({"n_threads": 513}, "n_threads"),
        ({"n_threads_batch": -3}, "n_threads_batch"),
        ({"cache_type": "q4_k"}, "'q4_k'"),
        ({"type_k": 1}, "type_k"),
        ({"type_v": "i32"}, "type_v"),
        ({"type_v": "q8_0", "flash_attn": "off"}, "needs flash attention"),
        ({"flash_attn": "maybe"}, "flash_attn"),
        ({"pooling": "median"}, "pooling"),
        ({"pooling": "rank"}, "classification head"),
        ({"attention": "sideways"}, "attention"),
        ({"rope_scaling": "stretch"}, "rope_scaling"),
        ({"rope_freq_base": float("nan")}, "rope_freq_base"),
        ({"rope_freq_base": -1.0}, "rope_freq_base"),
        ({"rope_freq_scale": float("inf")}, "rope_freq_scale"),
        ({"rope_freq_scale": "1"}, "rope_freq_scale"),
    ],
)
def test_options_that_do_not_do(tiny: Model, options: dict[str, Any], words: str) -> None:
    with pytest.raises(errors.InvalidParameterError, match=words):
        Context(tiny, **{"n_ctx": 256, **options})


def test_a_model_must_be_a_model(tiny_path: Any) -> None:
    with pytest.raises(errors.InvalidParameterError, match="a Model was expected"):
        Context(tiny_path)


class TestSequences:
    """Edits of what is remembered."""

    def test_rm(self, context: Context) -> None:
        context.decode(PROMPT, output="none")
        expected = all_logits(context, [7, 8, 9])
        assert context.seq_rm(0, len(PROMPT))
        assert context.seq_pos() == (0, len(PROMPT) - 1)
        assert close_to(all_logits(context, [7, 8, 9]), expected)
        context.decode(PROMPT, seq_id=1)
        assert context.seq_rm(0)
        assert (context.seq_pos(0), context.seq_pos(1)) == (None, (0, len(PROMPT) - 1))
        assert context.seq_rm(None)
        assert context.seq_pos(1) is None

    def test_cp_shares_cells(self, context: Context) -> None:
        context.decode([1] * 200, output="none")
        for dst in (1, 2, 3):
            context.seq_cp(0, dst)
        context.decode([5, 6, 7, 8], seq_id=[0, 1, 2, 3], output="all")
        logits = context.logits()
        context.seq_rm(0, 200)
        assert close_to(all_logits(context, [6]), logits[1:2])
        context.seq_rm(3)
        context.seq_cp(0, 3, 0, 50)  # a part
        assert context.seq_pos(3) == (0, 49)

    def test_cp_between_parts_copies_whole_sequences(self, tiny: Model) -> None:
        with Context(tiny, n_ctx=512, n_seq_max=2, kv_unified=False, n_threads=1) as context:
            context.decode(PROMPT, output="none")
            with pytest.raises(errors.InvalidParameterError, match=r"copies whole sequences only.*kv_unified"):
                context.seq_cp(0, 1, 0, 5)
            context.seq_cp(0, 1, 0, len(PROMPT))
            assert context.seq_pos(1) == (0, len(PROMPT) - 1)
            first = all_logits(context, [9], seq_id=0)
            assert close_to(all_logits(context, [9], seq_id=1), first)

    @pytest.mark.parametrize("kv_unified", [True, False])
    def test_keep(self, tiny: Model, kv_unified: bool) -> None:
        with Context(tiny, n_ctx=1024, n_seq_max=3, kv_unified=kv_unified, n_threads=1) as context:
            for seq_id in range(3):
                context.decode([1, 2], seq_id=seq_id)
            context.seq_keep(1)
            assert [context.seq_pos(s) for s in range(3)] == [None, (0, 1), None]

    def test_add_and_div_move_positions(self, context: Context) -> None:
        context.decode(PROMPT[:10], output="none")
        context.seq_rm(0, 0, 4)
        context.seq_add(0, 4, -1, -4)  # as a rolling context does
        assert context.seq_pos() == (0, 5)
        context.decode([7])
        context.memory_clear()
        context.decode([1, 2], pos=[4, 5])
        context.seq_div(0, 4, -1, 4)
        assert context.seq_pos() == (1, 1)

    def test_moved_keys_are_as_if_computed_there(self, tiny: Model) -> None:
        with Context(tiny, n_ctx=256, cache_type="f32", n_threads=1) as context:
            context.decode(PROMPT[:8], pos=range(20, 28), output="none")
            context.seq_add(0, 0, -1, -20)
            moved = all_logits(context, [7])
            context.memory_clear()
            context.decode(PROMPT[:8], output="none")
            assert close_to(moved, all_logits(context, [7]))

    def test_what_cannot_be_edited(self, context: Context) -> None:
        context.decode([1, 2, 3])
        for call in (
            lambda: context.seq_rm(4),
            lambda: context.seq_rm(-1),
            lambda: context.seq_cp(0, 9),
            lambda: context.seq_cp(9, 0),
            lambda: context.seq_keep(4),
            lambda: context.seq_add(4, 0, -1, 1),
            lambda: context.seq_add(0, 0, -1, 2**31 - 1),
            lambda: context.seq_add(0, -2, -1, 1),
            lambda: context.seq_div(0, 0, -1, 0),
            lambda: context.seq_div(0, 0, -1, -2),
            lambda: context.seq_pos(4),
        ):
            with pytest.raises(errors.InvalidParameterError):
                call()
        assert context.seq_pos() == (0, 2)

    def test_recurrent_memories_cannot_be_divided(self, mamba: Model) -> None:
        with Context(mamba, n_ctx=256, n_seq_max=3, n_threads=1) as context:
            context.decode(PROMPT, output="none")
            assert not context.seq_rm(0, 5)
            assert not context.seq_rm(None, 5, 7)
            with pytest.raises(errors.InvalidParameterError, match="recurrent state cannot be divided"):
                context.seq_cp(0, 1, 0, 5)
            with pytest.raises(errors.InvalidParameterError, match="position -"):
                context.seq_add(0, 0, -1, -1000)
            context.seq_cp(0, 1)
            first = all_logits(context, [9], seq_id=0)
            assert close_to(all_logits(context, [9], seq_id=1), first)
            assert context.seq_rm(None)
            assert [context.seq_pos(s) for s in range(3)] == [None] * 3

    def test_recurrent_batches_equal_single_tokens(self, mamba: Model) -> None:
        with Context(mamba, n_ctx=256, n_ubatch=16, n_threads=1) as context:
            whole = all_logits(context, PROMPT)
            context.memory_clear()
            single = np.concatenate([all_logits(context, [t]) for t in PROMPT])
            assert close_to(single, whole)


@pytest.fixture(scope="module", params=["tiny", "mamba"])
def model(request: pytest.FixtureRequest) -> Model:
    model: Model = request.getfixturevalue(request.param)
    return model


class TestStates:
    """Saved states are restored."""

    @pytest.mark.parametrize("seq_id", [None, 1])
    def test_restored_logits_are_the_same(self, model: Model, seq_id: int | None) -> None:
        with Context(model, n_ctx=256, n_seq_max=2, n_threads=1) as context:
            context.decode(PROMPT, seq_id=1, output="none")
            state = context.state_save(seq_id)
            expected = all_logits(context, [3, 4], seq_id=1)
            context.memory_clear()
            context.state_restore(state, seq_id)
            assert context.n_outputs == 0
            assert np.array_equal(all_logits(context, [3, 4], seq_id=1), expected)
        with Context(model, n_ctx=512, n_seq_max=2, n_threads=1) as larger:
            larger.state_restore(bytearray(state), seq_id)
            assert close_to(all_logits(larger, [3, 4], seq_id=1), expected)

    def test_a_sequence_comes_back_as_another(self, context: Context) -> None:
        context.decode(PROMPT, seq_id=1, output="none")
        context.state_restore(context.state_save(1), 3)
        first = all_logits(context, [9], seq_id=1)
        assert close_to(all_logits(context, [9], seq_id=3), first)

    def test_an_empty_context(self, context: Context) -> None:
        state = context.state_save()
        context.decode(PROMPT)
        context.state_restore(state)
        assert context.seq_pos() is None

    def test_damaged_states_change_nothing(self, context: Context) -> None:
        context.decode(PROMPT, output="none")
        state = context.state_save()
        context.decode([5])
        position = context.seq_pos()
        damaged = [state[:n] for n in range(0, len(state), max(1, len(state) // 50))]
        damaged += [state + b"\0", b"", b"x" * 1000]
        for byte in range(0, len(state), max(1, len(state) // 200)):
            damaged.append(state[:byte] + bytes([state[byte] ^ 0x5A]) + state[byte + 1 :])
        for data in damaged:
            with pytest.raises(errors.InvalidParameterError):
                context.state_restore(data)
            assert context.seq_pos() == position
        context.state_restore(state)

    def test_states_of_others(self, context: Context, other_path: Any, tiny: Model) -> None:
        context.decode(PROMPT, output="none")
        with Model(other_path) as other, Context(other, n_ctx=256, n_threads=1) as stranger:
            stranger.decode(PROMPT, output="none")
            with pytest.raises(errors.InvalidParameterError, match="model other than"):
                context.state_restore(stranger.state_save())
        with pytest.raises(errors.InvalidParameterError, match="holds one sequence"):
            context.state_restore(context.state_save(0))
        with pytest.raises(errors.InvalidParameterError, match="holds a whole context"):
            context.state_restore(context.state_save(), 0)
        with Context(tiny, n_ctx=256, cache_type="f16", n_threads=1) as half:
            with pytest.raises(errors.InvalidParameterError, match="does not fit this context"):
                half.state_restore(context.state_save())
            assert half.seq_pos() is None
            half.decode(PROMPT)

    def test_a_state_too_long_for_the_context(self, tiny: Model, context: Context) -> None:
        with Context(tiny, n_ctx=512, n_seq_max=4, cache_type="f32", n_threads=1) as long:
            long.decode([1] * 400, output="none")
            whole, sequence = long.state_save(), long.state_save(0)
        for state, seq_id in [(whole, None), (sequence, 2)]:
            with pytest.raises(errors.InvalidParameterError, match="does not fit this context"):
                context.state_restore(state, seq_id)
            assert context.seq_pos(2) is None
            context.decode(PROMPT)

    def test_edits_must_be_carried_out_first(self, context: Context) -> None:
        context.decode(PROMPT, output="none")
        state = context.state_save()
        context.seq_add(0, 0, -1, 5)
        with pytest.raises(errors.InvalidParameterError, match="decode a batch"):
            context.state_save()
        with pytest.raises(errors.InvalidParameterError, match="decode a batch"):
            context.state_restore(state)
        context.decode([1])
        context.state_restore(context.state_save())


class TestEmbeddings:
    """Of tokens, and of sequences."""

    def test_of_tokens(self, tiny: Model) -> None:
        with Context(tiny, n_ctx=256, embeddings=True, cache_type="f32", n_threads=1) as context:
            assert context.decode(PROMPT) == len(PROMPT)  # every token is output
            rows = context.embeddings()
            assert rows.shape == (len(PROMPT), models.N_EMBD)
            # The logits are the embeddings times the tied output matrix.
            output = models.llama_weights()["token_embd.weight"]
            assert close_to(rows @ output.T, context.logits())
            with pytest.raises(errors.EngineError, match="does not pool"):
                context.embeddings_seq(0)
            with pytest.raises(errors.InvalidParameterError):
                context.embeddings(0, len(PROMPT) + 1)

    def test_of_sequences(self, bert: Model) -> None:
        with Context(bert, n_ctx=512, n_ubatch=512, n_seq_max=3, embeddings=True, n_threads=1) as context:
            assert context.pooling == "mean"
            ids = [bert.vocab.tokenize(text) for text in ("hello world", "a quite different sentence")]
            flat, seq_ids = [t for s in ids for t in s], [i for i, s in enumerate(ids) for _ in s]
            context.decode(flat, seq_id=seq_ids)
            together = [context.embeddings_seq(i) for i in range(2)]
            assert together[0].shape == (models.N_EMBD,)
            assert not close_to(together[0], together[1])
            with pytest.raises(errors.EngineError, match="sequence 2 was not part"):
                context.embeddings_seq(2)
            with pytest.raises(errors.EngineError, match="this context pools"):
                context.embeddings()
            for i in range(2):
                context.encode(ids[i], seq_id=i)
                assert close_to(context.embeddings_seq(i), together[i])

    def test_pooling_of_tokens(self, bert: Model) -> None:
        ids = bert.vocab.tokenize("hello world")
        options: dict[str, Any] = {"n_ctx": 512, "embeddings": True, "n_threads": 1}
        with Context(bert, pooling="none", **options) as context:
            context.decode(ids)
            tokens = context.embeddings()
        wanted: dict[Any, Logits] = {"mean": tokens.mean(0), "cls": tokens[0], "last": tokens[-1]}
        for pooling, expected in wanted.items():
            with Context(bert, pooling=pooling, **options) as context:
                context.decode(ids)
                assert close_to(context.embeddings_seq(), expected)

    @pytest.mark.parametrize("n_seq_max", [2, 3, 7, 256])
    def test_any_number_of_sequences(self, tiny: Model, n_seq_max: int) -> None:
        with Context(tiny, n_ctx=256, n_seq_max=n_seq_max, embeddings=True, pooling="mean", n_threads=1) as context:
            assert context.n_ubatch % n_seq_max == 0
            context.decode([1, 2, 3, 4], seq_id=[0, 0, 1, 1])
            first = context.embeddings_seq(0)
            context.memory_clear()
            context.decode([1, 2])
            assert close_to(context.embeddings_seq(0), first)

    def test_positions_end_where_the_table_does(self, bert: Model) -> None:
        with Context(bert, n_ctx=1024, n_ubatch=1024, embeddings=True, n_threads=1) as context:
            context.decode([5] * models.N_CTX_TRAIN)
            with pytest.raises(errors.InvalidParameterError, match="position 512 at index 512 is out of range"):
                context.decode([5] * (models.N_CTX_TRAIN + 1))

    def test_an_encoder_remembers_nothing(self, bert: Model) -> None:
        with Context(bert, n_ctx=512, n_ubatch=64, embeddings=True, n_threads=1) as context:
            context.decode([101, 102])
            with pytest.raises(errors.EngineError, match="embeddings, not logits"):
                context.logits()
            with pytest.raises(errors.InvalidParameterError, match="65 tokens, but n_ubatch is 64"):
                context.decode([5] * 65)
            for call in (context.memory_clear, context.state_save, context.seq_pos, lambda: context.seq_rm(0)):
                with pytest.raises(errors.InvalidParameterError, match="keeps no memory"):
                    call()

    def test_a_decoder_has_no_encoder(self, context: Context) -> None:
        with pytest.raises(errors.InvalidParameterError, match="no encoder"):
            context.encode([1, 2])

    def test_without_embeddings(self, context: Context) -> None:
        context.decode([1])
        for call in (context.embeddings, context.embeddings_seq):
            with pytest.raises(errors.EngineError, match="computes no embeddings"):
                call()


class TestLifetime:
    """Closing, cancelling, asserts."""

    def test_no_output_yet(self, context: Context) -> None:
        with pytest.raises(errors.EngineError, match="no output to read"):
            context.logits()
        context.decode([1], output="none")
        with pytest.raises(errors.EngineError, match="no output to read"):
            context.logits()

    def test_use_after_close(self, tiny: Model) -> None:
        context = Context(tiny, n_ctx=256, n_threads=1)
        context.decode([1])
        context.close()
        context.close()
        for call in (
            lambda: context.decode([1]),
            lambda: context.encode([1]),
            context.logits,
            context.embeddings,
            context.embeddings_seq,
            context.memory_clear,
            context.state_save,
            lambda: context.state_restore(b""),
            lambda: context.seq_rm(0),
            lambda: context.seq_pos(0),
            lambda: context.set_threads(1),
            lambda: context.n_threads,
            lambda: context.handle,
        ):
            with pytest.raises(errors.ClosedError):
                call()
        context.cancel()  # does nothing

    def test_collected_without_close(self, tiny: Model) -> None:
        Context(tiny, n_ctx=256, n_threads=1).decode([1])
        gc.collect()

    def test_raw_handle(self, context: Context) -> None:
        assert lib.llama_n_ctx(context.handle) == 256

    def test_close_waits_for_a_decode(self, slow: Context) -> None:
        done = threading.Event()

        def decode() -> None:
            slow.decode([1] * 1024, output="none")
            done.set()

        thread = threading.Thread(target=decode)
        thread.start()
        wait_until_busy(slow)
        slow.close()
        used = time.process_time()
        thread.join()
        assert done.is_set()
        assert time.process_time() - used < 0.1  # nothing was left to compute when close() returned
        with pytest.raises(errors.ClosedError):
            slow.decode([1])

    def test_cancel_reaches_a_decode_on_another_thread(self, slow: Context) -> None:
        caught: list[BaseException] = []

        def decode() -> None:
            try:
                slow.decode([1] * 4096, output="none")
            except errors.EngineError as error:
                caught.append(error)

        slow.cancel()  # without a decode it does nothing
        thread = threading.Thread(target=decode)
        thread.start()
        wait_until_busy(slow)
        slow.cancel()
        thread.join()
        assert "cancelled" in str(caught[0])
        # What had been computed stays, and the context goes on from there.
        stands = slow.seq_pos()
        next_pos = 0 if stands is None else stands[1] + 1
        slow.decode([1, 2, 3])
        assert slow.seq_pos() == (0, next_pos + 2)

    def test_threads_take_turns(self, context: Context) -> None:
        def decode(seq_id: int) -> None:
            for token_id in PROMPT:
                context.decode([token_id], seq_id=seq_id, output="none")

        threads = [threading.Thread(target=decode, args=(seq_id,)) for seq_id in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rows = all_logits(context, [9] * 4, seq_id=range(4))
        context.memory_clear()
        context.decode(PROMPT, output="none")
        alone = all_logits(context, [9])
        assert all(close_to(row, alone[0]) for row in rows)

    def test_python_runs_meanwhile(self, slow: Context) -> None:
        ticks = 0
        thread = threading.Thread(target=lambda: slow.decode([1] * 4096, output="none"))
        thread.start()
        wait_until_busy(slow)
        while thread.is_alive():
            ticks += 1
            time.sleep(0.001)
        assert ticks > 20

    @pytest.mark.slow
    def test_a_failed_assert_is_an_exception_and_poisons(self, tiny: Model) -> None:
        with Context(tiny, n_ctx=256, n_outputs_max=1) as context:
            # Behind our back the raw API asks for more rows than there is room for, which upstream asserts on.
            lib.llama_set_embeddings(context.handle, True)
            with pytest.raises(errors.EngineError, match=r"a check inside the engine failed.*n_outputs_max"):
                context.decode([1, 2, 3, 4])
            for call in (lambda: context.decode([1]), context.logits, lambda: context.handle):
                with pytest.raises(errors.EngineError, match="failed during an earlier call"):
                    call()
        # The process lives, and so does the model.
        with Context(tiny, n_ctx=256, n_threads=1) as context:
            context.decode([1, 2, 3, 4])


@pytest.fixture
def slow(tiny: Model) -> Iterator[Context]:
    """A context that takes a while for a long batch, being made to compute token by token."""
    with Context(tiny, n_ctx=4352, n_batch=4352, n_ubatch=1, n_threads=1) as context:
        yield context


def wait_until_busy(context: Context) -> None:
    """Until a decode has begun: it alone makes the process use the processor."""
    start = time.process_time()
    while time.process_time() - start < 0.05:
        time.sleep(0.002)
    assert context
