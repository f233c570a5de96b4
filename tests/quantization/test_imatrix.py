"""Importance matrices: collected values, and files."""

from __future__ import annotations

import struct
import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.checkpoints import family_models, models

import pyggml
from pyggml import (
    EngineError,
    ImportanceMatrix,
    InvalidParameterError,
    ModelLoadError,
    ModelNotFoundError,
    UnsupportedArchitectureError,
)
from pyggml._native.activation_collector import Collector
from pyggml._native.context import Context
from pyggml._native.imatrix import Importance
from pyggml.gguf import GGMLType, GGUFReader, GGUFWriter
from pyggml.source import SHIPPED_MODEL

TEXT = "The little dog liked to run in the garden. Once upon a time there was a cat. " * 40


def rms_norm(x: npt.NDArray[np.float32], weight: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    wide = x.astype(np.float64)
    normed: npt.NDArray[np.float64] = wide / np.sqrt((wide**2).mean(axis=-1, keepdims=True) + models.RMS_EPS) * weight
    return normed


def ids_of(n: int, seed: int = 0) -> npt.NDArray[np.int32]:
    return np.random.default_rng(seed).integers(0, 256, n).astype(np.int32)


# --- what is collected ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_ctx", [16, 128, 512])
def test_first_layers_see_the_normalised_embeddings(tiny_path: Path, n_ctx: int) -> None:
    """The one activation that numpy can tell without computing the model."""
    ids = ids_of(1100)
    matrix = pyggml.compute_imatrix(tiny_path, ids, n_ctx=n_ctx, n_threads=1)
    n_chunks = len(ids) // n_ctx
    chunks = ids[: n_chunks * n_ctx].reshape(n_chunks, n_ctx).copy()
    chunks[:, 0] = models.BOS
    with GGUFReader(tiny_path) as reader:
        rows = rms_norm(
            reader.dequantized("token_embd.weight")[chunks.reshape(-1)], reader.dequantized("blk.0.attn_norm.weight")
        )
    for name in ("blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight"):
        entry = matrix.entries[name]
        assert entry.counts.tolist() == [len(rows)]
        np.testing.assert_allclose(entry.sums, (rows**2).sum(axis=0)[None], rtol=1e-5)
        assert entry.activation_sums is not None
        np.testing.assert_allclose(entry.activation_sums, rows.sum(axis=0)[None], atol=1e-3)
        np.testing.assert_allclose(entry.weights, (rows**2).mean(axis=0)[None], rtol=1e-5)
    assert (matrix.n_chunks, matrix.chunk_size, matrix.datasets) == (n_chunks, n_ctx, ())


def test_every_matrix_of_the_layers_is_there(tiny_path: Path) -> None:
    matrix = pyggml.compute_imatrix(tiny_path, ids_of(64), n_ctx=64, n_threads=1)
    with GGUFReader(tiny_path) as reader:
        shapes = {name: info.shape for name, info in reader.tensors.items() if len(info.shape) == 2}
    del shapes["token_embd.weight"]
    assert {name: entry.sums.shape for name, entry in matrix.entries.items()} == {
        name: (1, shape[1]) for name, shape in shapes.items()
    }
    # Also the last layer reads all tokens, not only those whose logits somebody wants.
    assert {int(entry.counts[0]) for entry in matrix.entries.values()} == {64}


def test_the_output_when_asked_for(tiny_path: Path, tmp_path: Path) -> None:
    def names(path: Path, process_output: bool) -> set[str]:
        matrix = pyggml.compute_imatrix(path, ids_of(64), n_ctx=64, n_threads=1, process_output=process_output)
        return set(matrix.entries)

    assert names(tiny_path, True) - names(tiny_path, False) == {"token_embd.weight"}
    vocabulary = family_models.small_vocabulary("<end>")
    untied = family_models.write(tmp_path / "untied.gguf", "llama", vocabulary, tied=False)
    assert names(untied, True) - names(untied, False) == {"output.weight"}


def test_experts_are_counted_each_by_itself(tmp_path: Path) -> None:
    path = family_models.write(
        tmp_path / "mixtral.gguf", "llama", family_models.small_vocabulary("<end>"), layout="mixtral"
    )
    matrix = pyggml.compute_imatrix(path, ids_of(128), n_ctx=64, n_threads=1)
    shared = matrix.entries["blk.0.ffn_gate_inp.weight"]
    for name in ("blk.0.ffn_up_exps.weight", "blk.0.ffn_gate_exps.weight", "blk.0.ffn_down_exps.weight"):
        entry = matrix.entries[name]
        assert entry.sums.shape[0] == family_models.N_EXPERT
        assert entry.counts.sum() == 2 * 128  # two of them read each token
    up = matrix.entries["blk.0.ffn_up_exps.weight"]
    np.testing.assert_allclose(up.sums.sum(axis=0), 2 * shared.sums[0], rtol=1e-4)
    assert len(set(up.counts.tolist())) > 1


def test_experts_that_were_never_asked_count_as_1() -> None:
    entry = Importance(np.array([[4, 8], [0, 0]], np.float32), np.array([2, 0]))
    np.testing.assert_array_equal(entry.weights, [[2, 4], [1, 1]])
    assert entry.weights.dtype == np.float32


def test_recurrent_models(mamba_path: Path) -> None:
    matrix = pyggml.compute_imatrix(mamba_path, ids_of(200), n_ctx=32, n_threads=1)
    assert int(matrix.entries["blk.1.ssm_in.weight"].counts[0]) == 192


def test_texts_files_and_loaded_models(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    from_file = pyggml.compute_imatrix(None, tmp_path / "text.txt", n_ctx=64, n_chunks=3, n_threads=1)
    assert from_file.datasets == (str(tmp_path / "text.txt"),)
    with pyggml.load(n_threads=1) as llm:
        for text in (TEXT, llm.tokenize(TEXT)):
            other = pyggml.compute_imatrix(llm, text, n_ctx=64, n_chunks=3, n_threads=1)
            assert other.n_chunks == 3
            for name, entry in other.entries.items():
                np.testing.assert_array_equal(entry.sums, from_file.entries[name].sums)
        assert llm.generate("The", max_tokens=3).finish_reason == "length"  # still open


def test_progress_tells_and_stops(tiny_path: Path) -> None:
    told: list[float] = []
    pyggml.compute_imatrix(tiny_path, ids_of(2048), n_ctx=1024, n_threads=1, progress=told.append)
    assert told == [0.25, 0.5, 0.75, 1.0]
    with pytest.raises(EngineError, match="stopped by its progress callback"):
        pyggml.compute_imatrix(tiny_path, ids_of(2048), n_ctx=128, progress=lambda done: done < 0.5)


@pytest.mark.slow
def test_sums_are_read_while_a_context_adds_to_them(tiny_path: Path) -> None:
    """Each tensor's are of whole passes: its counts are of as many rows, and its sums those of that many passes."""
    n_tokens, n_passes = 64, 40
    collector = Collector(process_output=False)
    token_ids = ids_of(n_tokens)

    def decode() -> None:
        with pyggml.Model(tiny_path) as model, Context(model, n_ctx=256, collector=collector) as context:
            for _ in range(n_passes):
                context.memory_clear(data=False)
                context.decode(token_ids, output="all")

    thread = threading.Thread(target=decode)
    thread.start()
    seen: list[dict[str, Any]] = []
    while thread.is_alive():
        seen.append(collector.sums())
    thread.join()
    of_all = collector.sums()
    assert len(of_all) == 14
    for name, (squares, _, counts) in of_all.items():
        assert counts.tolist() == [n_tokens * n_passes]
        for before in (each[name] for each in seen if name in each):
            n_before, rest = divmod(int(before[2][0]), n_tokens)
            assert rest == 0
            np.testing.assert_allclose(before[0], squares * (n_before / n_passes), rtol=1e-3)


def test_activations_that_are_no_numbers(tmp_path: Path) -> None:
    weights = models.llama_weights()
    weights["blk.0.ffn_norm.weight"][3] = np.nan
    path = models.write(tmp_path / "m.gguf", models.metadata_of(models.write_llama(tmp_path / "l.gguf")), weights)
    with pytest.raises(EngineError, match=r"multiplied by blk\.0\.ffn_(up|gate)\.weight is not a finite number"):
        pyggml.compute_imatrix(path, ids_of(64), n_ctx=64, n_threads=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": ids_of(63)}, "has 63 tokens, too few for a chunk of n_ctx=64"),
        ({"text": "x"}, "the text has 2 tokens"),
        ({"text": []}, "has 0 tokens"),
        ({"text": 5}, "the text"),
        ({"text": [0.5] * 64}, "must be integers"),
        ({"text": [400] * 64}, "400"),
        ({"text": Path(__file__).parent}, "cannot be read"),
        ({"n_ctx": 15}, "n_ctx must be between 16"),
        ({"n_chunks": 0}, "n_chunks must be between 1"),
        ({"n_threads": 0}, "n_threads"),
    ],
)
def test_arguments_that_cannot_be(tiny_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        pyggml.compute_imatrix(**{"source": tiny_path, "text": ids_of(64), "n_ctx": 64, **arguments})


def test_texts_that_are_missing(tiny_path: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no text file at"):
        pyggml.compute_imatrix(tiny_path, tmp_path / "nothing.txt")


def test_models_that_predict_nothing(bert_path: Path) -> None:
    with pytest.raises(UnsupportedArchitectureError, match="does not predict"):
        pyggml.compute_imatrix(bert_path, "a text")


# --- files ------------------------------------------------------------------------------------------------------


def example(seed: int = 0, n_experts: int = 2) -> ImportanceMatrix:
    generator = np.random.default_rng(seed)

    def entry(n: int) -> Importance:
        sums = generator.chisquare(1, (n, 64)).astype(np.float32)
        return Importance(sums, generator.integers(1, 900, n), generator.standard_normal((n, 64)).astype(np.float32))

    entries = {"blk.1.attn_q.weight": entry(1), "blk.0.ffn_up_exps.weight": entry(n_experts)}
    return ImportanceMatrix(entries, (f"text {seed}",), 512, 7)


def assert_same(a: ImportanceMatrix, b: ImportanceMatrix) -> None:
    assert (a.datasets, a.chunk_size, a.n_chunks) == (b.datasets, b.chunk_size, b.n_chunks)
    assert a.entries.keys() == b.entries.keys()
    for name, entry in a.entries.items():
        np.testing.assert_array_equal(entry.sums, b.entries[name].sums)
        np.testing.assert_array_equal(entry.counts, b.entries[name].counts)
        assert (entry.activation_sums is None) == (b.entries[name].activation_sums is None)
        if entry.activation_sums is not None:
            np.testing.assert_array_equal(entry.activation_sums, b.entries[name].activation_sums)


def test_saved_and_loaded(tmp_path: Path) -> None:
    path = tmp_path / "a.imatrix"
    example().save(path)
    loaded = ImportanceMatrix.load(path)
    assert_same(loaded, example())
    assert loaded.path == path
    assert repr(loaded) == "ImportanceMatrix(2 tensors, 7 chunks of 512 tokens)"
    assert loaded.weights("nothing") is None


def test_files_are_laid_out_as_upstreams(tmp_path: Path) -> None:
    """Names, shapes and keys that tools/imatrix of this build writes and reads."""
    example().save(tmp_path / "a.gguf")
    with GGUFReader(tmp_path / "a.gguf") as reader:
        assert dict(reader.metadata) == {
            "general.type": "imatrix",
            "imatrix.datasets": ("text 0",),
            "imatrix.chunk_count": 7,
            "imatrix.chunk_size": 512,
        }
        assert {name: info.shape for name, info in reader.tensors.items()} == {
            "blk.0.ffn_up_exps.weight.in_sum2": (2, 64),
            "blk.0.ffn_up_exps.weight.counts": (2, 1),
            "blk.0.ffn_up_exps.weight.in_sum": (2, 64),
            "blk.1.attn_q.weight.in_sum2": (64,),
            "blk.1.attn_q.weight.counts": (1,),
            "blk.1.attn_q.weight.in_sum": (64,),
        }
        assert {info.type for info in reader.tensors.values()} == {GGMLType.F32}


def test_matrices_without_texts_have_the_keys_too(tmp_path: Path) -> None:
    """llama-quantize refuses files without them."""
    ImportanceMatrix(example().entries, (), 512, 0).save(tmp_path / "a.gguf")
    with GGUFReader(tmp_path / "a.gguf") as reader:
        assert reader.metadata["imatrix.datasets"] == ()
    assert ImportanceMatrix.load(tmp_path / "a.gguf").datasets == ()


def legacy(entries: dict[str, tuple[int, list[float]]], *, trailer: bytes = b"") -> bytes:
    data = struct.pack("<i", len(entries))
    for name, (n_calls, values) in entries.items():
        encoded = name.encode()
        data += struct.pack(f"<i{len(encoded)}sii", len(encoded), encoded, n_calls, len(values))
        data += np.array(values, "<f4").tobytes()
    return data + trailer


def test_older_files(tmp_path: Path) -> None:
    trailer = struct.pack("<ii8s", 5, 8, b"wiki.txt")
    (tmp_path / "a.dat").write_bytes(legacy({"blk.0.attn_q.weight": (4, [8, 4, 0])}, trailer=trailer))
    matrix = ImportanceMatrix.load(tmp_path / "a.dat")
    np.testing.assert_array_equal(matrix.weights("blk.0.attn_q.weight"), [[2, 1, 0]])
    assert (matrix.datasets, matrix.n_chunks) == (("wiki.txt",), 5)
    (tmp_path / "b.dat").write_bytes(legacy({"a": (0, [8])}))  # older still
    assert (ImportanceMatrix.load(tmp_path / "b.dat").datasets, ImportanceMatrix.load(tmp_path / "b.dat").n_chunks) == (
        (),
        0,
    )


def test_several_become_one(tmp_path: Path) -> None:
    merged = ImportanceMatrix.merged([example(1), example(2)])
    assert (merged.datasets, merged.n_chunks, merged.chunk_size) == (("text 1", "text 2"), 14, 512)
    for name, entry in merged.entries.items():
        a, b = example(1).entries[name], example(2).entries[name]
        np.testing.assert_allclose(entry.sums, a.sums + b.sums)
        np.testing.assert_array_equal(entry.counts, a.counts + b.counts)
    whole, half = ids_of(1024), ids_of(1024)[:512]
    path = models.write_llama(tmp_path / "tiny.gguf")
    parts = [pyggml.compute_imatrix(path, ids, n_ctx=128, n_threads=1) for ids in (half, whole[512:], whole)]
    both = ImportanceMatrix.merged(parts[:2])
    for name, entry in parts[2].entries.items():
        np.testing.assert_allclose(both.entries[name].weights, entry.weights, rtol=1e-4)


def test_what_cannot_be_merged() -> None:
    with pytest.raises(InvalidParameterError, match="no importance matrices"):
        ImportanceMatrix.merged([])
    with pytest.raises(InvalidParameterError, match=r"different models: .*ffn_up_exps"):
        ImportanceMatrix.merged([example(), example(n_experts=3)])


def test_older_files_have_one_count_for_all_experts() -> None:
    new = example()
    flat = {name: Importance(e.sums.reshape(1, -1), e.counts[:1]) for name, e in new.entries.items()}
    merged = ImportanceMatrix.merged([new, ImportanceMatrix(flat, (), 512, 1)])
    entry, was = merged.entries["blk.0.ffn_up_exps.weight"], new.entries["blk.0.ffn_up_exps.weight"]
    np.testing.assert_array_equal(entry.sums, 2 * was.sums)
    np.testing.assert_array_equal(entry.counts, was.counts + was.counts[0])
    assert entry.activation_sums is None


def test_files_that_are_no_importance_matrices(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        ImportanceMatrix.load(tmp_path / "nothing")
    with pytest.raises(ModelLoadError, match=r"no tensor whose name ends in \.in_sum2"):
        ImportanceMatrix.load(SHIPPED_MODEL)
    with pytest.raises(ModelLoadError, match="cannot be read"):
        ImportanceMatrix.load(tmp_path)
    whole = legacy({"blk.0.attn_q.weight": (4, [8, 4, 0])})
    for broken in (b"", b"\0" * 4, whole[:-1], whole[:10], b"\xff" * 40, legacy({"a": (1, [float("nan")])})):
        (tmp_path / "broken.dat").write_bytes(broken)
        with pytest.raises(ModelLoadError):
            ImportanceMatrix.load(tmp_path / "broken.dat")


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"a.in_sum2": np.ones((1, 4))}, r"'a\.counts' is missing"),
        ({"a.in_sum2": np.ones((1, 4)), "a.counts": np.ones(3)}, "4 sums for 3 counts"),
        ({"a.in_sum2": np.ones(4), "a.counts": np.ones(1), "a.in_sum": np.ones(3)}, "4 sums of squares but 3"),
        ({"a.in_sum2": -np.ones(4), "a.counts": np.ones(1)}, "'a' has invalid sums of squares"),
        ({"a.in_sum2": np.full(4, np.inf), "a.counts": np.ones(1)}, "'a' has invalid sums of squares"),
        ({"a.in_sum2": np.ones(4), "a.counts": np.full(1, np.nan)}, "'a' has invalid counts"),
        ({"a.in_sum2": np.ones(4), "a.counts": np.full(1, np.inf)}, "'a' has invalid counts"),
        ({"a.in_sum2": np.ones(4), "a.counts": -np.ones(1)}, "'a' has invalid counts"),
    ],
)
def test_broken_files(tmp_path: Path, tensors: dict[str, npt.NDArray[np.float64]], message: str) -> None:
    with GGUFWriter(tmp_path / "a.gguf") as writer:
        for name, data in tensors.items():
            writer.add_tensor(name, data.shape, GGMLType.F32)
        for name, data in tensors.items():
            writer.write_tensor(name, data.astype(np.float32))
    with pytest.raises(ModelLoadError, match=message):
        ImportanceMatrix.load(tmp_path / "a.gguf")
