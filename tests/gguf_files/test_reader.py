"""Reading GGUF files: valid ones, built by hand, and many kinds of broken ones."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.checkpoints import handmade_gguf as handmade

from pyggml import lib
from pyggml.errors import ClosedError, InvalidParameterError, ModelLoadError, ModelNotFoundError
from pyggml.gguf import GGMLType, GGUFReader, TensorInfo, ValueType

MATRIX = np.arange(12, dtype=np.float32).reshape(3, 4)

NUMBERS: dict[int, tuple[float, ...]] = {
    handmade.UINT8: (0, 255),
    handmade.INT8: (-128, 127),
    handmade.UINT16: (0, 65535),
    handmade.INT16: (-32768, 32767),
    handmade.UINT32: (0, 2**32 - 1),
    handmade.INT32: (-(2**31), 2**31 - 1),
    handmade.FLOAT32: (-0.5, 3.0e38),
    handmade.BOOL: (0, 1),
    handmade.UINT64: (0, 2**64 - 1),
    handmade.INT64: (-(2**63), 2**63 - 1),
    handmade.FLOAT64: (-0.1, 1e300),
}


@pytest.fixture
def written(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(content: bytes) -> Path:
        path = tmp_path / "file.gguf"
        path.write_bytes(content)
        return path

    return write


def small_file() -> bytes:
    """Two pairs and one F32 matrix of 3 rows of 4."""
    pairs = [handmade.pair(b"general.name", handmade.STRING, handmade.string(b"small"))]
    pairs += [handmade.array(b"words", handmade.STRING, handmade.string(b"a") + handmade.string(b"bc"), 2)]
    return handmade.file(pairs, [handmade.tensor(b"weight", [4, 3])], MATRIX.tobytes())


@pytest.mark.parametrize("type", NUMBERS)
def test_numbers_and_their_arrays(type: int, written: Callable[[bytes], Path]) -> None:
    values = NUMBERS[type]
    letter = handmade.LETTERS[type]
    pairs = [handmade.number(b"low", type, values[0]), handmade.number(b"high", type, values[1])]
    pairs += [handmade.array(b"both", type, struct.pack(f"<2{letter}", *values), 2)]
    pairs += [handmade.array(b"none", type, b"", 0)]
    with GGUFReader(written(handmade.file(pairs))) as reader:
        metadata = reader.metadata
        expected = struct.unpack(f"<2{letter}", struct.pack(f"<2{letter}", *values))  # as float32 has them
        assert (metadata["low"], metadata["high"]) == expected
        kind = bool if type == handmade.BOOL else float if letter in "fd" else int
        assert isinstance(metadata["high"], kind)

        both, none = metadata["both"], metadata["none"]
        assert isinstance(both, np.ndarray)
        assert isinstance(none, np.ndarray)
        assert tuple(both.tolist()) == expected
        assert both.dtype == none.dtype == np.dtype("?" if type == handmade.BOOL else letter)
        assert none.shape == (0,)
        assert not both.flags.writeable
        assert {reader.value_type(key) for key in metadata} == {ValueType(type)}


def test_text(written: Callable[[bytes], Path]) -> None:
    texts = ["", "plain", "naïve 模型 🙂", "x" * 100_000]
    pairs = [handmade.pair(b"text", handmade.STRING, handmade.string(texts[2].encode()))]
    elements = b"".join(handmade.string(text.encode()) for text in texts)
    pairs += [handmade.array("schlüssel".encode(), handmade.STRING, elements, len(texts))]
    pairs += [handmade.array(b"none", handmade.STRING, b"", 0)]
    with GGUFReader(written(handmade.file(pairs))) as reader:
        assert dict(reader.metadata) == {"text": texts[2], "schlüssel": tuple(texts), "none": ()}
        assert list(reader.metadata) == ["text", "schlüssel", "none"]
        assert reader.value_type("schlüssel") == ValueType.STRING
        assert reader.metadata["schlüssel"] is reader.metadata["schlüssel"]


def test_text_that_is_no_text(written: Callable[[bytes], Path]) -> None:
    broken, cut = b"caf\xe9 \xff", b"before\0after"
    pairs = [handmade.pair(broken, handmade.STRING, handmade.string(broken))]
    pairs += [handmade.array(b"words", handmade.STRING, handmade.string(broken) + handmade.string(cut), 2)]
    pairs += [handmade.pair(cut, handmade.STRING, handmade.string(cut))]
    tensors = [handmade.tensor(broken, [4])]
    with GGUFReader(written(handmade.file(pairs, tensors, bytes(16)))) as reader:
        text = broken.decode("utf-8", "surrogateescape")
        assert reader.metadata[text] == text
        assert reader.metadata["words"] == (text, "before")
        assert reader.metadata["before"] == "before"
        assert reader.tensor(text).tolist() == [0, 0, 0, 0]


def test_metadata_is_a_mapping(written: Callable[[bytes], Path]) -> None:
    with GGUFReader(written(small_file())) as reader:
        assert len(reader.metadata) == 2
        assert "general.name" in reader.metadata
        assert "other" not in reader.metadata
        assert reader.metadata.get("other", 5) == 5
        for missing in (reader.metadata.__getitem__, reader.value_type):
            with pytest.raises(KeyError):
                missing("other")


def test_tensors(written: Callable[[bytes], Path]) -> None:
    path = written(small_file())
    with GGUFReader(path) as reader:
        offset = path.stat().st_size - MATRIX.nbytes
        assert dict(reader.tensors) == {"weight": TensorInfo("weight", GGMLType.F32, (3, 4), offset, 48)}
        assert reader.version == 3
        data = reader.tensor("weight")
        np.testing.assert_array_equal(data, MATRIX, strict=True)
        assert not data.flags.writeable
        assert not data.flags.owndata
        np.testing.assert_array_equal(reader.dequantized("weight"), MATRIX, strict=True)
        assert reader.dequantized("weight").flags.writeable
        with pytest.raises(InvalidParameterError, match="no tensor 'bias'"):
            reader.tensor("bias")


def test_other_alignment(written: Callable[[bytes], Path]) -> None:
    pairs = [handmade.number(b"general.alignment", handmade.UINT32, 1024)]
    tensors = [handmade.tensor(b"a", [3]), handmade.tensor(b"b", [2], offset=1024)]
    data = np.zeros(258, np.float32)
    data[:3], data[256:] = 1, 2
    with GGUFReader(written(handmade.file(pairs, tensors, data.tobytes(), alignment=1024))) as reader:
        assert reader.tensor("a").tolist() == [1, 1, 1]
        assert reader.tensor("b").tolist() == [2, 2]


def test_shapes(written: Callable[[bytes], Path]) -> None:
    sizes = {b"1d": [5], b"4d": [2, 3, 4, 5], b"inner one": [1, 4], b"outer one": [4, 1], b"empty": [4, 0]}
    tensors, offset = [], 0
    for name, ne in sizes.items():
        tensors.append(handmade.tensor(name, ne, int(GGMLType.I8), offset))
        offset += -(-int(np.prod(ne)) // 32) * 32
    with GGUFReader(written(handmade.file(None, tensors, bytes(offset)))) as reader:
        shapes = {name: reader.tensor(name).shape for name in reader.tensors}
        assert shapes == {
            "1d": (5,),
            "4d": (5, 4, 3, 2),
            "inner one": (4, 1),
            "outer one": (4,),
            "empty": (0, 4),
        }
        assert {name: info.shape for name, info in reader.tensors.items()} == shapes


def test_a_shape_without_elements_that_no_array_has(written: Callable[[bytes], Path]) -> None:
    tensor = handmade.tensor(b"a", [2, 0, 31, 2**62], int(GGMLType.F32), 0)
    with GGUFReader(written(handmade.file(None, [tensor], b""))) as reader:
        for read in (reader.tensor, reader.dequantized):
            with pytest.raises(ModelLoadError, match="the tensor 'a' has an impossible shape"):
                read("a")


def test_close(written: Callable[[bytes], Path]) -> None:
    reader = GGUFReader(written(small_file()))
    metadata, weight = reader.metadata, reader.tensor("weight")
    assert lib.pyg_live_handles(lib.PYG_HANDLE_GGUF) > 0
    reader.close()
    reader.close()
    for use in (
        lambda: metadata["general.name"],
        lambda: list(metadata),
        lambda: len(metadata),
        lambda: reader.value_type("general.name"),
        lambda: reader.tensor("weight"),
        lambda: reader.dequantized("weight"),
    ):
        with pytest.raises(ClosedError):
            use()
    np.testing.assert_array_equal(weight, MATRIX)  # a view stays valid
    assert list(reader.tensors) == ["weight"]


def test_metadata_outlives_its_reader(written: Callable[[bytes], Path]) -> None:
    metadata = GGUFReader(written(small_file())).metadata
    assert metadata["general.name"] == "small"


@pytest.mark.slow
def test_close_under_readers(written: Callable[[bytes], Path]) -> None:
    n_words = 20_000
    words = handmade.array(b"words", handmade.STRING, handmade.string(b"word") * n_words, n_words)
    path = written(handmade.file([words]))
    for _ in range(10):
        reader = GGUFReader(path)
        outcomes: list[int] = []

        def read(reader: GGUFReader = reader, outcomes: list[int] = outcomes) -> None:
            try:
                outcomes.append(len(reader.metadata["words"]))  # type: ignore[arg-type]
            except ClosedError:
                outcomes.append(-1)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        reader.close()
        for thread in threads:
            thread.join()
        assert len(outcomes) == 4
        assert set(outcomes) <= {n_words, -1}


def test_missing(tmp_path: Path) -> None:
    for path in (tmp_path / "none.gguf", tmp_path / "none" / "none.gguf"):
        with pytest.raises(ModelNotFoundError, match=r"none\.gguf"):
            GGUFReader(path)
    with pytest.raises(InvalidParameterError, match="NUL"):
        GGUFReader("a\0b")


def test_no_regular_file(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="directory"):
        GGUFReader(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelLoadError, match="regular file"):
        GGUFReader(tmp_path / "pipe")
    with pytest.raises(ModelLoadError, match="regular file"):
        GGUFReader("/dev/zero")


def test_truncated_at_every_length(written: Callable[[bytes], Path]) -> None:
    content = small_file()
    for n_bytes in range(len(content)):
        with pytest.raises(ModelLoadError, match=r"file\.gguf"):
            GGUFReader(written(content[:n_bytes]))
    GGUFReader(written(content)).close()


def test_truncated_data_says_so(written: Callable[[bytes], Path]) -> None:
    with pytest.raises(ModelLoadError, match=f"cut short: its tensors end at byte {len(small_file())}, but"):
        GGUFReader(written(small_file()[:-1]))


def numbered(n: int) -> list[bytes]:
    return [handmade.number(b"key %d" % i, handmade.UINT8, 1) for i in range(n)]


HUGE = 2**62
BROKEN: dict[str, tuple[bytes, str]] = {
    "a text": (b"Once upon a time there was a text." * 10, "is a text file"),
    "zeros": (bytes(1000), "GGUF header"),
    "magic": (handmade.file(magic=b"GGML"), "GGUF header"),
    "version 0": (handmade.file(version=0), "version"),
    "version 1": (handmade.file(version=1), "version 1, but only"),
    "version 4": (handmade.file(version=4), "version 4"),
    "other byte order": (handmade.file(version=3 << 24), "other byte order"),
    "many tensors": (handmade.file(n_tensors=HUGE), "number of tensors"),
    "many tensors, countable": (handmade.file(n_tensors=2**40), "tensor"),
    "less than no tensors": (handmade.file(n_tensors=-1), "number of tensors"),
    "many pairs": (handmade.file(n_pairs=HUGE), "key value pairs"),
    "many pairs, countable": (handmade.file(numbered(3), n_pairs=2**40), "key-value pairs"),
    "less than no pairs": (handmade.file(n_pairs=-5), "key value pairs"),
    "one pair too many": (handmade.file(numbered(3), n_pairs=4), "key-value pairs"),
    "long key": (handmade.file([handmade.string(b"key", HUGE)], n_pairs=1), "string length"),
    "empty key": (handmade.file([handmade.number(b"", handmade.UINT8, 1)]), "empty"),
    "same key twice": (handmade.file(numbered(2) + numbered(1)), "duplicate key"),
    "long text": (
        handmade.file([handmade.pair(b"k", handmade.STRING, handmade.string(b"x", 2**40))]),
        "string length",
    ),
    "long array": (handmade.file([handmade.array(b"k", handmade.UINT8, b"x", HUGE)]), "key-value pairs"),
    "long array of text": (
        handmade.file([handmade.array(b"k", handmade.STRING, b"", HUGE)]),
        "key-value pairs",
    ),
    "array of arrays": (handmade.file([handmade.array(b"k", handmade.ARRAY, b"", 0)]), "invalid GGUF type"),
    "unknown type": (handmade.file([handmade.pair(b"k", 13, bytes(8))]), "invalid GGUF type 13"),
    "negative type": (handmade.file([handmade.pair(b"k", -1, bytes(8))]), "invalid GGUF type"),
    "odd alignment": (
        handmade.file([handmade.number(b"general.alignment", handmade.UINT32, 3)]),
        "power of 2",
    ),
    "no alignment": (
        handmade.file([handmade.number(b"general.alignment", handmade.UINT32, 0)]),
        "power of 2",
    ),
    "signed alignment": (handmade.file([handmade.number(b"general.alignment", handmade.INT32, 32)]), "u32"),
    "long tensor name": (handmade.file(None, [handmade.tensor(b"n" * 64, [4])], bytes(16)), "too long"),
    "same name twice": (
        handmade.file(None, [handmade.tensor(b"n", [8]), handmade.tensor(b"n", [8], offset=32)], bytes(64)),
        "duplicate tensor",
    ),
    "five dimensions": (handmade.file(None, [handmade.tensor(b"n", [1] * 5)], bytes(4)), "dimensions"),
    "countless dimensions": (
        handmade.file(None, [handmade.tensor(b"n", [4], n_dims=2**32 - 1)]),
        "dimensions",
    ),
    "negative size": (handmade.file(None, [handmade.tensor(b"n", [-4])]), "number of elements"),
    "uncountable elements": (handmade.file(None, [handmade.tensor(b"n", [2**33, 2**33])]), "overflow"),
    "uncountable bytes": (handmade.file(None, [handmade.tensor(b"n", [2**62])]), "bytes"),
    "uncountable sum": (
        handmade.file(None, [handmade.tensor(b"a", [2**61 - 1]), handmade.tensor(b"b", [2**61 - 1])]),
        "offset",
    ),
    "more than there is": (handmade.file(None, [handmade.tensor(b"n", [2**40])], bytes(64)), "is cut short"),
    "unknown tensor type": (handmade.file(None, [handmade.tensor(b"n", [4], 1000)]), "invalid ggml type"),
    "negative tensor type": (handmade.file(None, [handmade.tensor(b"n", [4], -1)]), "invalid ggml type"),
    "removed tensor type": (handmade.file(None, [handmade.tensor(b"n", [32], 4)], bytes(32)), "block size"),
    "half a block": (
        handmade.file(None, [handmade.tensor(b"n", [16], int(GGMLType.Q8_0))], bytes(34)),
        "block size",
    ),
    "hole in the data": (handmade.file(None, [handmade.tensor(b"n", [4], offset=32)], bytes(64)), "offset"),
    "data before the data": (
        handmade.file(None, [handmade.tensor(b"n", [4], offset=2**64 - 32)], bytes(64)),
        "offset",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken(name: str, written: Callable[[bytes], Path]) -> None:
    content, words = BROKEN[name]
    with pytest.raises(ModelLoadError, match=words):
        GGUFReader(written(content))


def test_random_damage_is_an_error_or_a_file(written: Callable[[bytes], Path]) -> None:
    """Any byte may be any other: what still reads as a file reads whole."""
    random = np.random.default_rng(0)
    content = np.frombuffer(small_file(), np.uint8)
    n_refused = 0
    for _ in range(500):
        damaged = content.copy()
        damaged[random.integers(0, len(content) - MATRIX.nbytes, 3)] = random.integers(0, 256, 3)
        try:
            with GGUFReader(written(damaged.tobytes())) as reader:
                list(reader.metadata.items())
                for name in reader.tensors:
                    reader.tensor(name)
        except ModelLoadError:
            n_refused += 1
    assert 100 < n_refused < 500


def test_broken_weights_are_refused(written: Callable[[bytes], Path]) -> None:
    block = np.float16(np.inf).tobytes() + bytes([1]) * 32
    path = written(handmade.file(None, [handmade.tensor(b"w", [32], int(GGMLType.Q8_0))], block))
    with GGUFReader(path) as reader:
        assert reader.tensor("w").tobytes() == block
        with pytest.raises(InvalidParameterError, match="not q8_0 data"):
            reader.dequantized("w")
