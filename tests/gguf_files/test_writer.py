"""Writing GGUF files: they read back unchanged, and a file appears complete or not at all."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from support.checkpoints import handmade_gguf as handmade

from pyggml import ffi, lib
from pyggml._core import c_calls
from pyggml.errors import ClosedError, InvalidParameterError
from pyggml.gguf import GGMLType, GGUFReader, GGUFWriter, ValueType
from pyggml.quant import dequantize, nbytes, types

T = ValueType


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def round_trip(path: Path, value: object, type: ValueType | None = None) -> tuple[object, ValueType]:
    """The value a key has after it was written and read, and its type."""
    with GGUFWriter(path) as writer:
        writer.set("key", value, type)
    with GGUFReader(path) as reader:
        return reader.metadata["key"], reader.value_type("key")


@pytest.mark.parametrize(
    ("value", "type", "stored_type"),
    [
        (True, None, T.BOOL),
        (False, T.BOOL, T.BOOL),
        (0, None, T.UINT32),
        (2**32 - 1, None, T.UINT32),
        (-1, None, T.INT32),
        (2**32, None, T.UINT64),
        (2**64 - 1, None, T.UINT64),
        (-(2**31) - 1, None, T.INT64),
        (0.5, None, T.FLOAT32),
        (float("inf"), None, T.FLOAT32),
        (0.1, T.FLOAT64, T.FLOAT64),
        (7, T.FLOAT32, T.FLOAT32),
        ("naïve 🙂", None, T.STRING),
        ("", T.STRING, T.STRING),
        ("lone \udce9", None, T.STRING),
        (np.int16(-5), None, T.INT16),
        (np.float64(0.1), None, T.FLOAT64),
        (np.bool_(True), None, T.BOOL),
        (255, T.UINT8, T.UINT8),
        (-128, T.INT8, T.INT8),
        (65535, T.UINT16, T.UINT16),
        (-32768, T.INT16, T.INT16),
        (5, T.UINT32, T.UINT32),
        (5, T.INT32, T.INT32),
        (5, T.UINT64, T.UINT64),
        (-(2**63), T.INT64, T.INT64),
    ],
)
def test_values(value: object, type: ValueType | None, stored_type: ValueType, tmp_path: Path) -> None:
    stored, found_type = round_trip(tmp_path / "x.gguf", value, type)
    assert stored == value
    assert found_type == stored_type
    assert isinstance(stored, (bool, int, float, str))


@pytest.mark.parametrize("type", [type for type in T if type != T.STRING])
def test_arrays_of_every_type(type: ValueType, tmp_path: Path) -> None:
    dtype = np.dtype("?" if type == T.BOOL else handmade.LETTERS[int(type)])
    for values in (np.array([0, 1, 1, 0, 100]).astype(dtype), np.array([], dtype)):
        for given, explicit in ((values, None), (values.tolist(), type), (tuple(values.tolist()), type)):
            stored, found_type = round_trip(tmp_path / "x.gguf", given, explicit)
            assert isinstance(stored, np.ndarray)
            np.testing.assert_array_equal(stored, values, strict=True)
            assert found_type == type


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([0, 1, 2**32 - 1], np.uint32),
        ([-1, 2], np.int32),
        ([0, 2**32], np.uint64),
        ([1, 2**64 - 1], np.uint64),
        ([-1, 2**31], np.int64),
        ([1, 2.5], np.float32),
        ([True, False], np.bool_),
        (np.array([1, 2], ">i4"), np.int32),
        (np.arange(10)[::-2], np.int64),
    ],
)
def test_inferred_arrays(values: npt.ArrayLike, dtype: npt.DTypeLike, tmp_path: Path) -> None:
    stored, _ = round_trip(tmp_path / "x.gguf", values)
    assert isinstance(stored, np.ndarray)
    assert stored.dtype == dtype
    assert stored.tolist() == (values.tolist() if isinstance(values, np.ndarray) else values)


def test_texts(tmp_path: Path) -> None:
    words = ["", "a", "naïve 模型", "lone \udcff"] + [f"word {i}" for i in range(10_000)]
    for given in (words, tuple(words), np.array(words), np.array(words, object)):
        stored, type = round_trip(tmp_path / "x.gguf", given)
        assert stored == tuple(words)
        assert type == T.STRING
    assert round_trip(tmp_path / "x.gguf", [], T.STRING) == ((), T.STRING)


@pytest.mark.parametrize(
    ("key", "value", "type", "words"),
    [
        ("", 1, None, "1 to 65535 bytes"),
        pytest.param("k" * 65536, 1, None, "1 to 65535 bytes", id="long key"),
        ("k\0", 1, None, "NUL"),
        ("k\ud800", 1, None, "a lone surrogate"),
        (5, 1, None, "must be a str"),
        ("k", "a\0b", None, "NUL"),
        ("k", ["a", "b\0"], None, "value 1 .* NUL"),
        ("k", "\ud800", None, "a lone surrogate"),
        ("k", ["a", 1], None, "must be a str"),
        ("k", 5, T.STRING, "takes a str"),
        ("k", "5", T.INT32, "number"),
        ("k", None, None, "number"),
        ("k", {"a": 1}, None, "number"),
        ("k", b"bytes", None, "number"),
        ("k", 1j, None, "number"),
        ("k", [], None, "give one"),
        ("k", [[1, 2], [3, 4]], None, "a flat list"),
        ("k", [["a"]], None, "a flat list"),
        ("k", [1, [2]], None, "number"),
        ("k", [True, 2], None, "number"),
        ("k", 256, T.UINT8, "uint8 cannot hold 256"),
        ("k", -1, T.UINT32, "uint32 cannot hold -1"),
        ("k", [0, 2**31], T.INT32, "int32 cannot hold"),
        ("k", 2**64, None, "64 bits"),
        ("k", -(2**63) - 1, None, "64 bits"),
        ("k", 2**70, T.FLOAT32, None),
        pytest.param("k", 10**400, T.FLOAT64, "float64 cannot hold", id="too large for float64"),
        ("k", 1e39, None, "float32 cannot hold"),
        ("k", [1.0, 1e39], None, "float32 cannot hold"),
        ("k", 1.5, T.INT32, "int32 cannot hold 1.5"),
        ("k", 1.0, T.INT32, "int32 cannot hold 1.0"),
        ("k", True, T.INT32, "int32 cannot hold"),
        ("k", 1, T.BOOL, "bool cannot hold 1"),
        ("k", np.array([1, 2], np.float16), None, "no float16"),
        ("k", 1, 99, "not a type"),
        ("k", 1, T.UINT8, None),
        ("general.alignment", 48, None, "power of 2"),
        ("general.alignment", 0, None, "power of 2"),
        ("general.alignment", 32, T.INT32, "single UINT32"),
        ("general.alignment", [32], None, "single UINT32"),
        ("general.alignment", "32", None, "must be a number"),
        ("general.alignment", 32, None, None),
        ("general.alignment", 8, None, None),
    ],
)
def test_refused_values(key: str, value: object, type: ValueType | None, words: str | None, tmp_path: Path) -> None:
    """``words`` is None for the neighbours of a refusal that must pass."""
    with GGUFWriter(tmp_path / "x.gguf") as writer:
        if words is None:
            writer.set(key, value, type)
        else:
            with pytest.raises(InvalidParameterError, match=words):
                writer.set(key, value, type)
        writer.set("after", 1)  # the writer goes on


@pytest.mark.parametrize("alignment", [8, 1024])
def test_other_alignments(alignment: int, tmp_path: Path) -> None:
    data = {name: np.arange(n, dtype=np.float32) for name, n in (("a", 3), ("b", 5), ("c", 2))}
    with GGUFWriter(tmp_path / "x.gguf") as writer:
        writer.set("before", 1)
        writer.set("general.alignment", alignment)
        for name, values in data.items():
            writer.add_tensor(name, values.shape, GGMLType.F32)
        with pytest.raises(InvalidParameterError, match="already set"):
            writer.set("general.alignment", 32)
        for name, values in data.items():
            writer.write_tensor(name, values)
    with GGUFReader(tmp_path / "x.gguf") as reader:
        assert dict(reader.metadata) == {"before": 1, "general.alignment": alignment}
        assert all(info.offset % alignment == 0 for info in reader.tensors.values())
        assert reader.tensors["b"].offset - reader.tensors["a"].offset == max(alignment, 16)
        for name, values in data.items():
            np.testing.assert_array_equal(reader.tensor(name), values)


def test_an_alignment_is_set_before_tensors(tmp_path: Path) -> None:
    with GGUFWriter(tmp_path / "x.gguf") as writer:
        writer.add_tensor("a", (3,), GGMLType.F32)
        with pytest.raises(InvalidParameterError, match="before the first tensor"):
            writer.set("general.alignment", 8)
        writer.set("general.alignment", 32)
        writer.write_tensor("a", np.zeros(3, np.float32))


def test_a_key_is_set_once(tmp_path: Path) -> None:
    with GGUFWriter(tmp_path / "x.gguf") as writer:
        writer.set("key", 1)
        with pytest.raises(InvalidParameterError, match="already set"):
            writer.set("key", "other")
    with GGUFReader(tmp_path / "x.gguf") as reader:
        assert dict(reader.metadata) == {"key": 1}


@pytest.mark.parametrize("type", types())
def test_tensors_of_every_type(type: GGMLType, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    shape = (3, 2, 256)
    # Bytes that are data of any type: without high ones, scales are finite.
    data = random.integers(0, 60, nbytes(type, shape), np.uint8).reshape(3, 2, -1)
    with GGUFWriter(tmp_path / "x.gguf") as writer:
        writer.add_tensor("a", shape, type)
        writer.add_tensor("b", shape, type)
        writer.write_tensor("a", data)
        writer.write_tensor("b", data.view(type.dtype))  # bytes and typed values are both welcome
    with GGUFReader(tmp_path / "x.gguf") as reader:
        for name in ("a", "b"):
            assert reader.tensors[name].type == type
            assert reader.tensors[name].shape == shape
            assert reader.tensors[name].nbytes == data.nbytes
            stored = reader.tensor(name)
            assert stored.dtype == type.dtype
            assert stored.tobytes() == data.tobytes()
            if type.is_convertible:
                np.testing.assert_array_equal(reader.dequantized(name), dequantize(data, type, shape))
            else:
                with pytest.raises(InvalidParameterError):
                    reader.dequantized(name)


def test_the_bytes_are_what_the_format_says(tmp_path: Path) -> None:
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    with GGUFWriter(tmp_path / "x.gguf") as writer:
        writer.set("general.name", "x")
        writer.set("n", 5)
        writer.add_tensor("w", matrix.shape, GGMLType.F32)
        writer.add_tensor("i", (4,), GGMLType.I8)
        writer.write_tensor("w", matrix)
        writer.write_tensor("i", np.array([1, -1, 2, -2], np.int8))
    expected = handmade.file(
        [
            handmade.pair(b"general.name", handmade.STRING, handmade.string(b"x")),
            handmade.number(b"n", handmade.UINT32, 5),
        ],
        [handmade.tensor(b"w", [3, 2], 0), handmade.tensor(b"i", [4], int(GGMLType.I8), offset=32)],
        matrix.tobytes() + bytes(8) + bytes([1, 255, 2, 254]) + bytes(28),
    )
    assert (tmp_path / "x.gguf").read_bytes() == expected


def test_tensors_come_in_any_order_and_memory_layout(tmp_path: Path) -> None:
    values = {f"t{i}": np.arange(8 * i, dtype=np.float32).reshape(2 * i, 4) for i in range(1, 10)}
    with GGUFWriter(tmp_path / "x.gguf") as writer:
        for name, array in values.items():
            writer.add_tensor(name, array.shape, GGMLType.F32)
        for name, array in reversed(values.items()):
            writer.write_tensor(name, np.asfortranarray(array))
    with GGUFReader(tmp_path / "x.gguf") as reader:
        assert list(reader.tensors) == list(values)
        for name, array in values.items():
            np.testing.assert_array_equal(reader.tensor(name), array, strict=True)


@pytest.mark.parametrize(
    ("name", "shape", "type", "words"),
    [
        ("", (4,), GGMLType.F32, "needs a name"),
        ("n" * 64, (4,), GGMLType.F32, "64 bytes"),
        ("ü" * 32, (4,), GGMLType.F32, "64 bytes"),
        ("n\0", (4,), GGMLType.F32, "NUL"),
        ("taken", (4,), GGMLType.F32, "already"),
        ("n", (), GGMLType.F32, "one or more sizes"),
        ("n", (1, 1, 1, 1, 4), GGMLType.F32, "1 to 4"),
        ("n", (-4,), GGMLType.F32, "sizes >= 0"),
        ("n", (0, 4), GGMLType.F32, "1 or more"),
        ("n", (3, 16), GGMLType.Q8_0, "blocks of 32"),
        ("n", (4, 128), GGMLType.Q4_K, "blocks of 256"),
        ("n", (2**62,), GGMLType.F32, "larger than a file"),
        ("n", (2**64,), GGMLType.F32, "larger than a file"),
        ("n", (2**31, 2**31, 4), GGMLType.I8, "larger than a file"),
        ("n", (4,), 4, "not a ggml type"),
        ("n", (4,), 1000, "not a ggml type"),
    ],
)
def test_refused_tensors(name: str, shape: tuple[int, ...], type: GGMLType, words: str, tmp_path: Path) -> None:
    with GGUFWriter(tmp_path / "x.gguf") as writer:
        writer.add_tensor("taken", (4,), GGMLType.F32)
        with pytest.raises(InvalidParameterError, match=words):
            writer.add_tensor(name, shape, type)
        writer.add_tensor("n" * 63, (4,), GGMLType.F32)
        for declared in ("taken", "n" * 63):
            writer.write_tensor(declared, np.zeros(4, np.float32))
    with GGUFReader(tmp_path / "x.gguf") as reader:
        assert list(reader.tensors) == ["taken", "n" * 63]


def test_the_sum_of_sizes_is_watched(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "x.gguf")
    writer.add_tensor("a", (2**61,), GGMLType.I8)
    writer.add_tensor("b", (2**60,), GGMLType.I8)
    with pytest.raises(InvalidParameterError, match="larger than a file"):
        writer.add_tensor("c", (2**61,), GGMLType.I8)
    writer.close()


@pytest.mark.parametrize(
    "data",
    [
        np.zeros((2, 4), np.float64),
        np.zeros((2, 4), ">f4"),
        np.zeros((4, 2), np.float32),
        np.zeros(8, np.float32),
        np.zeros((2, 15), np.uint8),
        np.zeros(32, np.uint8),
    ],
)
def test_refused_data(data: npt.NDArray[np.generic], tmp_path: Path) -> None:
    with GGUFWriter(tmp_path / "x.gguf") as writer:
        writer.add_tensor("w", (2, 4), GGMLType.F32)
        with pytest.raises(InvalidParameterError, match=r"'w' is F32 \(2, 4\)"):
            writer.write_tensor("w", data)
        writer.write_tensor("w", np.ones((2, 4), np.float32))
        with pytest.raises(InvalidParameterError, match="already has its data"):
            writer.write_tensor("w", np.ones((2, 4), np.float32))
        with pytest.raises(InvalidParameterError, match="was not declared"):
            writer.write_tensor("v", np.ones((2, 4), np.float32))
        with pytest.raises(InvalidParameterError, match="before the first write_tensor"):
            writer.set("key", 1)
        with pytest.raises(InvalidParameterError, match="before the first write_tensor"):
            writer.add_tensor("v", (4,), GGMLType.F32)


def start(path: Path) -> GGUFWriter:
    """A writer in the middle of its work."""
    writer = GGUFWriter(path)
    writer.set("key", 1)
    writer.add_tensor("a", (4,), GGMLType.F32)
    writer.add_tensor("b", (4,), GGMLType.F32)
    writer.write_tensor("a", np.zeros(4, np.float32))
    return writer


def test_nothing_is_seen_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_text("the old one")
    writer = start(path)
    assert path.read_text() == "the old one"
    writer.write_tensor("b", np.ones(4, np.float32))
    assert path.read_text() == "the old one"
    writer.finish()
    assert names_in(tmp_path) == ["x.gguf"]
    with GGUFReader(path) as reader:
        assert reader.tensor("b").tolist() == [1, 1, 1, 1]


def test_nothing_is_left_of_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_text("the old one")

    with pytest.raises(ZeroDivisionError), start(path):
        raise ZeroDivisionError
    with pytest.raises(InvalidParameterError, match="1 of 2 tensors have no data: b"), start(path):
        pass
    start(path).close()
    writer = start(path)
    assert len(names_in(tmp_path)) == 2
    del writer
    gc.collect()

    assert names_in(tmp_path) == ["x.gguf"]
    assert path.read_text() == "the old one"


def test_nothing_is_left_when_the_disk_is_full(tmp_path: Path) -> None:
    script = """
        import resource, sys
        import numpy as np
        from pyggml.gguf import GGMLType, GGUFWriter

        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        try:
            with GGUFWriter(sys.argv[1]) as writer:
                writer.add_tensor("w", (1 << 20,), GGMLType.F32)
                writer.write_tensor("w", np.zeros(1 << 20, np.float32))
        except OSError as error:
            print("refused:", error)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "x.gguf")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    assert "refused: [Errno 27]" in done.stdout
    assert names_in(tmp_path) == []


def test_nothing_is_left_of_a_process_that_ends(tmp_path: Path) -> None:
    script = """
        import sys
        import numpy as np
        from pyggml.gguf import GGMLType, GGUFWriter

        writer = GGUFWriter(sys.argv[1])
        writer.add_tensor("w", (2,), GGMLType.F32)
        writer.add_tensor("v", (2,), GGMLType.F32)
        writer.write_tensor("w", np.zeros(2, np.float32))
        raise SystemExit(3)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "x.gguf")]
    assert subprocess.run(command, timeout=240, check=False).returncode == 3
    assert names_in(tmp_path) == []


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_leaves_the_file_alone(tmp_path: Path) -> None:
    writer = start(tmp_path / "x.gguf")
    child = os.fork()
    if child == 0:
        writer.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    writer.write_tensor("b", np.ones(4, np.float32))
    writer.finish()
    assert (tmp_path / "x.gguf").read_bytes().endswith(bytes(32) + np.ones(4, np.float32).tobytes() + bytes(16))
    with GGUFReader(tmp_path / "x.gguf") as reader:
        assert reader.tensor("b").tolist() == [1, 1, 1, 1]


def test_finish_and_close(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    with GGUFWriter(path) as writer:
        writer.finish()
        assert path.exists()
        writer.finish()
    writer.close()
    assert path.exists()
    closed = start(tmp_path / "y.gguf")
    closed.close()
    closed.close()
    for done, words in ((writer, "finished"), (closed, "closed")):
        with pytest.raises(ClosedError, match=words):
            done.set("key", 1)
        with pytest.raises(ClosedError, match=words):
            done.add_tensor("w", (4,), GGMLType.F32)
        with pytest.raises(ClosedError, match=words):
            done.write_tensor("b", np.zeros(4, np.float32))
    with pytest.raises(ClosedError):
        closed.finish()
    assert names_in(tmp_path) == ["x.gguf"]


def test_refused_paths(tmp_path: Path) -> None:
    before = lib.pyg_live_handles(lib.PYG_HANDLE_GGUF)
    with pytest.raises(InvalidParameterError, match="is a directory"):
        GGUFWriter(tmp_path)
    with pytest.raises(InvalidParameterError, match="no directory"):
        GGUFWriter(tmp_path / "none" / "x.gguf")
    with pytest.raises(InvalidParameterError, match="NUL"):
        GGUFWriter("a\0b")
    assert lib.pyg_live_handles(lib.PYG_HANDLE_GGUF) == before


def test_writers_of_many_threads(tmp_path: Path) -> None:
    n_threads, n_each = 4, 50
    with GGUFWriter(tmp_path / "x.gguf") as writer:

        def in_threads(work: object) -> None:
            threads = [threading.Thread(target=work, args=(i,)) for i in range(n_threads)]  # type: ignore[arg-type]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        def declare(i: int) -> None:
            for j in range(n_each):
                writer.set(f"{i}.{j}", [f"{i}", f"{j}"])
                writer.add_tensor(f"{i}.{j}", (2,), GGMLType.I32)

        def write(i: int) -> None:
            for j in range(n_each):
                writer.write_tensor(f"{i}.{j}", np.array([i, j], np.int32))

        in_threads(declare)
        in_threads(write)
    with GGUFReader(tmp_path / "x.gguf") as reader:
        assert len(reader.metadata) == len(reader.tensors) == n_threads * n_each
        for i in range(n_threads):
            for j in range(n_each):
                assert reader.metadata[f"{i}.{j}"] == (f"{i}", f"{j}")
                assert reader.tensor(f"{i}.{j}").tolist() == [i, j]


def test_the_native_side_checks_for_itself() -> None:
    out = ffi.new("pyg_gguf **")
    c_calls.call(lib.pyg_gguf_new, out)
    gguf = ffi.gc(out[0], lib.pyg_gguf_free)
    for name, type, ne, words in (
        (ffi.NULL, 0, [4], "needs a name"),
        (b"n" * 64, 0, [4], "at most 63"),
        (b"n", 4, [4], "not the number of a ggml type"),
        (b"n", 43, [4], "not the number of a ggml type"),
        (b"n", 0, [], "1 to 4"),
        (b"n", 0, [1] * 5, "1 to 4"),
        (b"n", 0, [4, -1], "dimension 1"),
        (b"n", int(GGMLType.Q8_0), [33], "blocks of 32"),
        (b"n", 0, [2**62], "larger than a file"),
    ):
        with pytest.raises(InvalidParameterError, match=words):
            c_calls.call(lib.pyg_gguf_add_tensor, gguf, name, type, ne, len(ne))
    one, none = ffi.new("uint8_t *", 1), ffi.new("char **")
    for set, wrong, words in (
        (lib.pyg_gguf_set_number, (b"", lib.GGUF_TYPE_UINT8, one), "needs a key"),
        (lib.pyg_gguf_set_number, (b"k", lib.GGUF_TYPE_STRING, one), "not the type of a number"),
        (lib.pyg_gguf_set_number, (b"k", lib.GGUF_TYPE_COUNT, one), "not the type of a number"),
        (lib.pyg_gguf_set_numbers, (ffi.NULL, lib.GGUF_TYPE_UINT8, one, 1), "needs a key"),
        (lib.pyg_gguf_set_numbers, (b"k", lib.GGUF_TYPE_ARRAY, one, 1), "not the type of a number"),
        (lib.pyg_gguf_set_numbers, (b"k", -1, one, 1), "not the type of a number"),
        (lib.pyg_gguf_set_text, (b"", b"text"), "needs a key"),
        (lib.pyg_gguf_set_texts, (b"", none, 0), "needs a key"),
    ):
        with pytest.raises(InvalidParameterError, match=words):
            c_calls.call(set, gguf, *wrong)
    size = ffi.new("size_t *")
    c_calls.call(lib.pyg_gguf_meta_size, gguf, size)
    with pytest.raises(InvalidParameterError, match=r"takes 32 bytes, but the buffer has 31"):
        c_calls.call(lib.pyg_gguf_meta_data, gguf, ffi.new("char[]", 31), size[0] - 1)
    for use in (lib.pyg_gguf_meta_size, lib.pyg_gguf_meta_data):
        arguments = (size,) if use is lib.pyg_gguf_meta_size else (ffi.new("char[]", 32), 32)
        with pytest.raises(ClosedError):
            c_calls.call(use, ffi.NULL, *arguments)
    assert lib.pyg_gguf_get(ffi.NULL) == ffi.NULL
    lib.pyg_gguf_free(ffi.NULL)


def test_a_tensor_can_come_in_parts(tmp_path: Path) -> None:
    values = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)
    with GGUFWriter(tmp_path / "parts.gguf") as writer:
        writer.add_tensor("before", (3,), GGMLType.F32)
        writer.add_tensor("parts", values.shape, GGMLType.F32)
        writer.write_tensor_parts("parts", (values[i : i + 10] for i in range(0, 64, 10)))
        with pytest.raises(InvalidParameterError, match="already has its data"):
            writer.write_tensor_parts("parts", [values])
        writer.write_tensor("before", np.ones(3, np.float32))
    with GGUFReader(tmp_path / "parts.gguf") as reader:
        np.testing.assert_array_equal(reader.tensor("parts"), values)


@pytest.mark.parametrize(("n", "message"), [(63, "have 8064 bytes, but tensor 'parts' needs 8192"), (65, "more than")])
def test_parts_have_to_fit(tmp_path: Path, n: int, message: str) -> None:
    rows = np.zeros((1, 32), np.float32)
    with GGUFWriter(tmp_path / "parts.gguf") as writer:
        writer.add_tensor("parts", (64, 32), GGMLType.F32)
        with pytest.raises(InvalidParameterError, match=message):
            writer.write_tensor_parts("parts", [rows] * n)
        writer.write_tensor_parts("parts", [rows] * 64)


def test_a_part_that_cannot_be_made_leaves_the_tensor_without_data(tmp_path: Path) -> None:
    def parts() -> Iterator[npt.NDArray[np.float32]]:
        yield np.zeros((1, 32), np.float32)
        raise KeyError("no more")

    def write() -> None:
        with GGUFWriter(tmp_path / "parts.gguf") as writer:
            writer.add_tensor("parts", (64, 32), GGMLType.F32)
            writer.write_tensor_parts("parts", parts())

    with pytest.raises(KeyError):
        write()
    assert names_in(tmp_path) == []
