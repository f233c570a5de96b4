"""The reader of safetensors files: valid files read back unchanged, and errors name what is broken."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import checkpoints

from pyggml.errors import InferError, ModelLoadError, ModelNotFoundError
from pyggml.files.model_files import INDEX, checkpoint_at
from pyggml.importer.safetensors import Checkpoint

TENSORS: dict[str, Any] = {
    "a": np.arange(12, dtype=np.float32).reshape(3, 4),
    "odd": np.arange(3, dtype=np.uint8),  # what follows is not aligned
    "b": checkpoints.bf16(np.linspace(-2, 2, 8)),
    "c": np.arange(6, dtype=np.float16).reshape(2, 3),
    "d": np.array([-1, 2], np.int64),
    "e": checkpoints.Stored("F8_E4M3", np.array([[1, 2]], np.uint8)),
    "empty": np.zeros((0, 4), np.float32),
    "scalar": np.array(2.5, np.float32),
}


def checkpoint_in(directory: Path) -> Checkpoint:
    return Checkpoint(checkpoint_at(directory))


def arrays_of(checkpoint: Checkpoint) -> dict[str, Any]:
    return {name: checkpoint.array(name) for name in checkpoint}


def require_equal(checkpoint: Checkpoint) -> None:
    found = arrays_of(checkpoint)
    assert found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        expected = tensor.data if isinstance(tensor, checkpoints.Stored) else tensor
        np.testing.assert_array_equal(found[name], expected)
        assert found[name].dtype == expected.dtype
        assert not found[name].flags.writeable


def test_reads_a_single_file(tmp_path: Path) -> None:
    checkpoints.write(tmp_path / "model.safetensors", TENSORS)
    checkpoint = checkpoint_in(tmp_path)
    require_equal(checkpoint)
    assert checkpoint["b"].dtype == "BF16"
    assert checkpoint.nbytes == len(checkpoints.data(TENSORS))


def test_reads_shards(tmp_path: Path) -> None:
    checkpoints.write_shards(tmp_path, TENSORS, 3)
    checkpoint = checkpoint_in(tmp_path)
    require_equal(checkpoint)
    assert len(checkpoint.files) == 3


def test_follows_links(tmp_path: Path) -> None:
    """A cache of downloads holds blobs, and directories of links to them."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    checkpoints.write(tmp_path / "blobs" / "0123", TENSORS)
    (tmp_path / "snapshot" / "model.safetensors").symlink_to(Path("..") / "blobs" / "0123")
    require_equal(checkpoint_in(tmp_path / "snapshot"))


def test_is_written_as_the_format_says(tmp_path: Path) -> None:
    """The tests' own writer and the reader do not only agree with each other."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(
        b"\x3f\x00\x00\x00\x00\x00\x00\x00"
        b'{"x":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}}' + b" " * 10 + b"\x01\xff"
    )
    np.testing.assert_array_equal(checkpoint_in(tmp_path).array("x"), np.array([1, -1], np.int8))


def entries(**changes: Any) -> dict[str, Any]:
    """The header of TENSORS with some entries changed; None removes one."""
    changed = {name: {**entry, **(changes.get(name) or {})} for name, entry in checkpoints.header(TENSORS).items()}
    return {name: entry for name, entry in changed.items() if changes.get(name, {}) is not None}


BODY = checkpoints.data(TENSORS)

BROKEN_FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "too few"),
    "seven bytes": (b"\x00" * 7, "too few"),
    "pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
        "run git lfs pull in its directory",
    ),
    "absurd header": (b"\xff" * 8 + b"{}", "claims a header of 18446744073709551615 bytes"),
    "long header": (checkpoints.file({}, b"", n_header=2**30), "claims a header of 1073741824 bytes"),
    "cut in the header": (checkpoints.file({}, b"", n_header=100), "cut short"),
    "no JSON": (checkpoints.file(b"{]", b""), "is not JSON"),
    "no UTF-8": (checkpoints.file(b'{"\xff": 1}', b""), "is not UTF-8"),
    "deep": (checkpoints.file(b"[" * 200_000, b""), "nested too deep"),
    "a list": (checkpoints.file([], b""), "holds a list; an object"),
    "twice": (checkpoints.file(b'{"a":{},"a":{}}', b""), "duplicate key 'a'"),
    "no entry": (checkpoints.file({"a": 1}, b""), "tensor 'a' lacks dtype, shape or data_offsets"),
    "half an entry": (checkpoints.file({"a": {"dtype": "F32"}}, b""), "tensor 'a' lacks dtype, shape or data_offsets"),
    "dtype": (checkpoints.file(entries(a={"dtype": "F3"}), BODY), "tensor 'a' is of type 'F3'"),
    "no dtype": (checkpoints.file(entries(a={"dtype": ["F32"]}), BODY), "tensor 'a' is of type"),
    "negative shape": (checkpoints.file(entries(a={"shape": [-3, -4]}), BODY), "tensor 'a' has an invalid shape"),
    "fractional shape": (checkpoints.file(entries(a={"shape": [3.0, 4]}), BODY), "tensor 'a' has an invalid shape"),
    "true shape": (checkpoints.file(entries(d={"shape": [2, True]}), BODY), "tensor 'd' has an invalid shape"),
    "huge shape": (checkpoints.file(entries(a={"shape": [2**62, 2**62]}), BODY), "tensor 'a': shape"),
    "other shape": (checkpoints.file(entries(a={"shape": [3, 5]}), BODY), "need 60 bytes"),
    "offsets": (checkpoints.file(entries(a={"data_offsets": [0]}), BODY), "two offsets"),
    "backwards": (checkpoints.file(entries(a={"data_offsets": [48, 0]}), BODY), "tensor 'a': shape"),
    "overlap": (checkpoints.file(entries(odd={"data_offsets": [44, 47]}), BODY), "'odd' overlaps tensor 'a'"),
    "hole": (checkpoints.file(entries(odd=None), BODY), "'b' leaves a gap after tensor 'a'"),
    "hole at the start": (checkpoints.file(entries(a=None), BODY), "'odd' leaves a gap after the header"),
    "cut in the data": (checkpoints.file(entries(), BODY[:-1]), "is cut short"),
    "more data": (checkpoints.file(entries(), BODY + b"\0"), "has bytes without a tensor"),
}


def require_quick_error(call: Callable[[], object], kind: type[InferError], match: str, directory: Path) -> None:
    """The error is clear, fast, and leaves the directory as it was."""
    before = sorted(directory.rglob("*"))
    start = time.process_time()  # other processes may keep this one waiting
    with pytest.raises(kind, match=match) as raised:
        call()
    assert time.process_time() - start < 1
    assert len(str(raised.value)) < 1000
    assert sorted(directory.rglob("*")) == before


@pytest.mark.parametrize("name", BROKEN_FILES)
def test_a_broken_file_is_named(tmp_path: Path, name: str) -> None:
    content, message = BROKEN_FILES[name]
    (tmp_path / "model.safetensors").write_bytes(content)
    require_quick_error(lambda: checkpoint_in(tmp_path), ModelLoadError, message, tmp_path)


def change_index(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    index = json.loads((directory / INDEX).read_text())
    change(index)
    (directory / INDEX).write_text(json.dumps(index))


def link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def cut(path: Path, n: int = -1) -> None:
    path.write_bytes(path.read_bytes()[:n])


BROKEN_SHARDS: dict[str, tuple[Callable[[Path], object], type[InferError], str]] = {
    "missing shard": (lambda d: (d / "model-00002-of-00002.safetensors").unlink(), ModelNotFoundError, "no file"),
    "missing index": (lambda d: (d / INDEX).unlink(), ModelNotFoundError, "but no model.safetensors.index.json"),
    "empty index": (lambda d: (d / INDEX).write_text("{}"), ModelLoadError, "no weight_map"),
    "no index": (lambda d: (d / INDEX).write_text("null"), ModelLoadError, "holds null; an object"),
    "leaves": (
        lambda d: change_index(d, lambda i: i["weight_map"].update(a="../x")),
        ModelLoadError,
        "not a file name in",
    ),
    "absolute": (
        lambda d: change_index(d, lambda i: i["weight_map"].update(a="/etc/x")),
        ModelLoadError,
        "not a file name in",
    ),
    "a number": (
        lambda d: change_index(d, lambda i: i["weight_map"].update(a=1)),
        ModelLoadError,
        "not a file name in",
    ),
    "half a character": (
        lambda d: change_index(d, lambda i: i["weight_map"].update(a="\ud800.safetensors")),
        ModelLoadError,
        "not a file name in",
    ),
    "itself": (
        lambda d: change_index(d, lambda i: i["weight_map"].update(a="..")),
        ModelLoadError,
        "not a file name in",
    ),
    "a loop": (lambda d: link_to_itself(d / "model-00002-of-00002.safetensors"), ModelLoadError, "cannot be read"),
    "cut": (lambda d: cut(d / "model-00002-of-00002.safetensors"), ModelLoadError, "is cut short"),
    "long": (
        lambda d: change_index(d, lambda i: i["weight_map"].update(a="x" * 9999)),
        ModelLoadError,
        "not a file name in",
    ),
    "all of it": (lambda d: cut(d / "model-00002-of-00002.safetensors", 0), ModelLoadError, "too few"),
}


@pytest.mark.parametrize("name", BROKEN_SHARDS)
def test_inconsistent_shards_are_named(tmp_path: Path, name: str) -> None:
    breakage, kind, message = BROKEN_SHARDS[name]
    checkpoints.write_shards(tmp_path, TENSORS, 2)
    breakage(tmp_path)
    require_quick_error(lambda: checkpoint_in(tmp_path), kind, message, tmp_path)


def test_a_loop_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to("other")
    (tmp_path / "other").symlink_to("model.safetensors")
    require_quick_error(lambda: checkpoint_in(tmp_path), ModelLoadError, "cannot be read", tmp_path)


def test_a_link_to_nowhere_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to("nowhere")
    require_quick_error(lambda: checkpoint_in(tmp_path), ModelNotFoundError, "no file", tmp_path)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_an_error(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "model.safetensors")
    require_quick_error(lambda: checkpoint_in(tmp_path), ModelLoadError, "model.safetensors", tmp_path)


def test_pickles_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80")
    require_quick_error(lambda: checkpoint_in(tmp_path), ModelNotFoundError, "save them as safetensors", tmp_path)


def test_an_empty_directory_is_an_error(tmp_path: Path) -> None:
    require_quick_error(lambda: checkpoint_in(tmp_path), ModelNotFoundError, "neither", tmp_path)


@pytest.mark.slow
def test_random_damage_never_crashes(tmp_path: Path) -> None:
    """Whatever bytes change: the tensors are read or an error is raised, and nothing else happens."""
    good = checkpoints.file(checkpoints.header(TENSORS), BODY)
    random = np.random.default_rng(0)
    for _ in range(500):
        damaged = bytearray(good)
        for position in random.integers(0, len(good) - len(BODY), 3):
            damaged[position] = int(random.integers(256))
        (tmp_path / "model.safetensors").write_bytes(damaged)
        with contextlib.suppress(ModelLoadError):
            arrays_of(checkpoint_in(tmp_path))
