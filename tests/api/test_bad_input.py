"""Bad input to the low-level objects: a clear exception, the process alive, and the next call working.

Bad input to batches, samplers and vocabularies is in their own test files; here are files, sizes, and forks.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import textwrap
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.checkpoints import models

from pyggml import errors
from pyggml._native.context import Context
from pyggml._native.model import Model
from pyggml._native.sampler import Sampler
from pyggml.units import bytes_text


@pytest.fixture(autouse=True)
def next_call_works(tiny: Model) -> None:
    """A model that is in use all the time must not notice any of this."""
    with Context(tiny, n_ctx=256) as context, Sampler(tiny).greedy() as sampler:
        context.decode([models.BOS, *b"hello"])
        assert 0 <= sampler.sample(context) < models.N_BYTE_VOCAB


class TestFiles:
    """Files that are not models."""

    def test_missing(self, tmp_path: Path) -> None:
        for kind in (errors.ModelNotFoundError, FileNotFoundError):
            with pytest.raises(kind, match="nothing-here"):
                Model(tmp_path / "nothing-here.gguf")
        with pytest.raises(errors.ModelNotFoundError):
            Model("")

    def test_directory(self, tmp_path: Path) -> None:
        with pytest.raises(errors.ModelLoadError, match="is a directory"):
            Model(tmp_path)

    def test_unreadable(self, tmp_path: Path) -> None:
        if os.geteuid() == 0:
            pytest.skip("root reads everything")
        path = models.write_llama(tmp_path / "m.gguf")
        path.chmod(0)
        with pytest.raises(errors.ModelLoadError, match="ermission"):
            Model(path)

    @pytest.mark.slow_except(every=2)
    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", "is empty"),
            (b"G", "not a GGUF"),
            (b"GGUF", "damaged or cut short"),
            (b"this is plain text, whatever its name says\n" * 100, "not a GGUF"),
            (b"\x93NUMPY\x01\x00v\x00" + bytes(500), "not a GGUF"),
            (b"GGML" + struct.pack("<IQQ", 3, 0, 0) + bytes(100), "not a GGUF"),
            (b"GGUF" + struct.pack("<IQQ", 0, 0, 0), "version 0"),
            (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
            (b"GGUF" + struct.pack("<IQQ", 4, 0, 0), "version 4"),
            (b"GGUF" + struct.pack("<IQQ", 2**32 - 1, 0, 0), "version 4294967295"),
            (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "byte order"),
            (b"GGUF" + struct.pack("<IQQ", 3, 2**63, 2**63), None),
            (b"GGUF" + struct.pack("<IQQ", 3, 2**40, 0), None),
            (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**40), None),
        ],
    )
    def test_what_is_no_gguf(self, tmp_path: Path, content: bytes, words: str | None) -> None:
        path = tmp_path / "model.gguf"
        path.write_bytes(content)
        with pytest.raises(errors.ModelLoadError, match=words):
            Model(path)

    def test_truncated_at_fifty_lengths(self, tmp_path: Path, tiny_path: Path) -> None:
        whole = tiny_path.read_bytes()
        path = tmp_path / "cut.gguf"
        for n in np.linspace(1, len(whole) - 1, 50).astype(int):
            path.write_bytes(whole[:n])
            with pytest.raises(errors.ModelLoadError):
                Model(path)
        path.write_bytes(whole)
        Model(path).close()

    def test_truncated_within_the_metadata(self, tmp_path: Path, tiny_path: Path) -> None:
        whole = tiny_path.read_bytes()
        path = tmp_path / "cut.gguf"
        for n in range(8, 9000, 173):
            path.write_bytes(whole[:n])
            with pytest.raises(errors.ModelLoadError):
                Model(path, vocab_only=True)

    @pytest.mark.slow
    def test_flipped_bytes_never_end_the_process(self, tmp_path: Path, tiny_path: Path) -> None:
        whole = bytearray(tiny_path.read_bytes())
        path = tmp_path / "flipped.gguf"
        generator = np.random.default_rng(0)
        for position in generator.integers(24, 12_000, 150).tolist():
            damaged = whole.copy()
            damaged[position] ^= 1 << (position % 8)
            path.write_bytes(damaged)
            try:
                with Model(path) as model, Context(model, n_ctx=256, n_threads=1) as context:
                    context.decode([1])
            except errors.InferError:
                pass

    def test_unknown_architecture(self, tmp_path: Path) -> None:
        path = tmp_path / "empty.gguf"
        path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
        with pytest.raises(errors.UnsupportedArchitectureError):
            Model(path)
        path = models.write(tmp_path / "m.gguf", {"general.architecture": "perceptron"}, models.llama_weights())
        with pytest.raises(errors.UnsupportedArchitectureError, match="perceptron"):
            Model(path)

    @pytest.mark.slow_except(every=4)
    @pytest.mark.parametrize(
        "change",
        [
            {"llama.block_count": 3},
            {"llama.block_count": 0},
            {"llama.block_count": 2**31},
            {"llama.embedding_length": 32},
            {"llama.embedding_length": 0},
            {"llama.attention.head_count": 0},
            {"llama.attention.head_count": 3},
            {"llama.attention.head_count": 2**20},
            {"llama.attention.head_count_kv": 0},
            {"llama.attention.head_count_kv": 7},
            {"llama.rope.dimension_count": 7},
            {"llama.rope.dimension_count": 2**20},
            {"llama.feed_forward_length": 1},
            {"llama.context_length": 0},
            {"llama.attention.layer_norm_rms_epsilon": 0.0},
            {"llama.embedding_length": "sixty-four"},
            {"llama.block_count": 2.0},
            {"tokenizer.ggml.model": "telepathy"},
            {"tokenizer.ggml.pre": "post"},
            {"tokenizer.ggml.tokens": ["only", "two"]},
            {"tokenizer.ggml.merges": ["nospace"]},
            {"tokenizer.ggml.bos_token_id": 10**6},
            {"tokenizer.ggml.eos_token_id": 2**32 - 1},
            {"tokenizer.ggml.token_type": np.array([1], np.int32)},
        ],
        ids=str,
    )
    def test_metadata_that_does_not_fit(self, tmp_path: Path, tiny_path: Path, change: dict[str, object]) -> None:
        metadata = {**models.metadata_of(tiny_path), **change}
        path = models.write(tmp_path / "m.gguf", metadata, models.llama_weights())
        try:
            with Model(path) as model, Context(model, n_ctx=256, n_threads=1) as context:
                context.decode([1, 2, 3])
                model.vocab.tokenize("the bath")
        except errors.InferError:
            pass  # some do no harm, the others are refused: the process lives either way

    def test_missing_metadata_is_named(self, tmp_path: Path, tiny_path: Path) -> None:
        wanted = {"llama.block_count": "block_count", "llama.embedding_length": "embedding_length"}
        for key, words in {**wanted, "tokenizer.ggml.tokens": "cannot find tokenizer vocab"}.items():
            metadata = {k: v for k, v in models.metadata_of(tiny_path).items() if k != key}
            path = models.write(tmp_path / "m.gguf", metadata, models.llama_weights())
            with pytest.raises(errors.ModelLoadError, match=words):
                Model(path)

    def test_missing_tensor_is_named(self, tmp_path: Path, tiny_path: Path) -> None:
        weights = models.llama_weights()
        del weights["blk.1.ffn_up.weight"]
        path = models.write(tmp_path / "m.gguf", models.metadata_of(tiny_path), weights)
        with pytest.raises(errors.ModelLoadError, match=r"blk\.1\.ffn_up\.weight"):
            Model(path)

    @pytest.mark.slow_except("None", "5")
    @pytest.mark.parametrize("path", [None, 5, 1.5, ["a"], object()])
    def test_what_is_no_path(self, path: object) -> None:
        with pytest.raises(errors.InvalidParameterError, match="path must be a path"):
            Model(path)  # type: ignore[arg-type]

    def test_nul_in_strings(self, tiny_path: Path) -> None:
        with pytest.raises(errors.InvalidParameterError, match="NUL"):
            Model("a\0b.gguf")
        with pytest.raises(errors.InvalidParameterError, match="NUL"):
            Model(tiny_path, device="cpu\0")

    @pytest.mark.parametrize("n_gpu_layers", [-2, 2**31, 1.5, True, "all"])
    def test_layers(self, tiny_path: Path, n_gpu_layers: object) -> None:
        with pytest.raises(errors.InvalidParameterError, match="n_gpu_layers"):
            Model(tiny_path, n_gpu_layers=n_gpu_layers)  # type: ignore[arg-type]

    def test_names_that_are_not_utf8(self, tmp_path: Path, tiny_path: Path) -> None:
        path = os.fsencode(tmp_path) + b"/\xff\xfe.gguf"
        try:
            with open(path, "wb") as file:  # noqa: PTH123  # pathlib wants text
                file.write(tiny_path.read_bytes())
        except OSError:
            pytest.skip("this file system has no such names")
        Model(path).close()  # type: ignore[arg-type]  # os.fspath takes bytes too
        Model(os.fsdecode(path)).close()


class TestMemory:
    """Too large sizes are refused, with numbers, before any memory is allocated."""

    @pytest.mark.slow_except("100000000")
    @pytest.mark.parametrize("n_ctx", [100_000_000, 2_000_000_000, 2**31 - 257])
    def test_an_absurd_context(self, tiny: Model, n_ctx: int) -> None:
        with pytest.raises(MemoryError):
            Context(tiny, n_ctx=n_ctx)
        with pytest.raises(errors.OutOfMemoryError) as caught:
            Context(tiny, n_ctx=n_ctx)
        error = caught.value
        # Keys and values alone take this much.
        cell = 2 * models.N_LAYER * models.N_HEAD_KV * models.HEAD_DIM * 2
        assert error.required_bytes >= n_ctx * cell
        assert 0 < error.available_bytes < error.required_bytes
        assert f"needs {bytes_text(error.required_bytes)} of memory" in str(error)
        assert f"only {bytes_text(error.available_bytes)} is available" in str(error)

    def test_an_absurd_context_in_parts(self, tiny: Model) -> None:
        with pytest.raises(errors.OutOfMemoryError):
            Context(tiny, n_ctx=2_000_000_000, n_seq_max=256, kv_unified=False)

    def test_an_absurd_batch(self, tiny: Model) -> None:
        with pytest.raises(errors.InvalidParameterError, match="n_batch"):
            Context(tiny, n_ctx=256, n_batch=2_000_000_000)
        with Context(tiny, n_ctx=256, n_batch=16_000_000, n_ubatch=16_000_000) as context:
            assert context.n_batch == context.n_ubatch == 256


# ---------------------------------------------------------------------------------------------------------------


def in_a_fork(body: Callable[[], None]) -> None:
    """Runs ``body`` in a forked child and asserts that it came to its end."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            body()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    for _ in range(3000):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    pytest.fail("the forked child hangs")


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
class TestFork:
    """A child cannot use what its parent made, says so, and can make its own."""

    @pytest.mark.slow
    def test_inherited_objects_say_so(self, tiny: Model) -> None:
        with Context(tiny, n_ctx=256, n_threads=2) as context, Sampler(tiny).greedy() as sampler:
            context.decode([1, 2, 3])

            def body() -> None:
                for call in (
                    lambda: tiny.vocab.tokenize("a"),
                    lambda: tiny.metadata,
                    lambda: Context(tiny, n_ctx=256),
                    lambda: context.decode([4]),
                    context.logits,
                    lambda: sampler.sample(context),
                    lambda: sampler.accept(1),
                ):
                    with pytest.raises(errors.EngineError, match="before a fork"):
                        call()
                context.cancel()
                context.close()
                sampler.close()
                tiny.close()

            in_a_fork(body)
            context.decode([4])  # the parent's are as they were
            sampler.sample(context)

    def test_a_child_makes_its_own(self, tiny: Model, tiny_path: Path) -> None:
        with Context(tiny, n_ctx=256, n_threads=2) as context:
            context.decode([1, 2, 3])
            expected = context.logits()

            def body() -> None:
                with Model(tiny_path) as model, Context(model, n_ctx=256, n_threads=2) as own:
                    own.decode([1, 2, 3])
                    assert np.array_equal(own.logits(), expected)

            in_a_fork(body)

    def test_dropping_inherited_objects_is_harmless(self, tiny_path: Path) -> None:
        model = Model(tiny_path)
        objects = [model, Context(model, n_ctx=256, n_threads=2), Sampler(model).grammar('root ::= "a"')]

        def body() -> None:
            nonlocal model
            del model
            objects.clear()

        in_a_fork(body)
        context = objects[1]
        assert isinstance(context, Context)
        context.decode([1])


@pytest.mark.slow
def test_the_interpreter_may_end_with_everything_open(tiny_path: Path) -> None:
    code = f"""
        import threading
        from pyggml.model import Model
        from pyggml.context import Context
        from pyggml.sampler import Sampler
        model = Model({str(tiny_path)!r})
        context = Context(model, n_ctx=4096, n_batch=4096, n_ubatch=1, n_threads=2)
        sampler = Sampler(model).grammar('root ::= "a"*').dist(1)
        context.decode([1])
        cycle = [model, context, sampler]
        cycle.append(cycle)
        threading.Thread(target=lambda: context.decode([1] * 2000), daemon=True).start()
        print("end")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=240, check=False
    )
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
