"""Foreign and damaged files: every way to open a model says the same sentence, which names the file and a way out."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loading.test_memory_estimate import split
from support.checkpoints.hf_llama import HFLlama

import pyggml
from pyggml.memory.estimate import estimate
from pyggml.source import SHIPPED_MODEL

DATA = SHIPPED_MODEL.read_bytes()

FILES: dict[str, tuple[bytes, str]] = {
    "text": (b"hello, this is no model", "is not a GGUF file: it is a text file"),
    "page": (b"<!DOCTYPE html><html>404</html>", "is not a GGUF file: it is a web page, .*: download the file itself"),
    "zip": (b"PK\x03\x04" + bytes(100), "is not a GGUF file: it is a zip archive, such as PyTorch's"),
    "pickle": (b"\x80\x02}q\x00" + bytes(100), "is not a GGUF file: it is a pickle of PyTorch"),
    "old": (b"tjgg\x03\x00\x00\x00" + bytes(100), "is not a GGUF file: it is a GGML file of before August 2023"),
    "tensors": (b"\x10\0\0\0\0\0\0\0" + b'{"a": {}}', "it is a safetensors file: pass the directory that holds it"),
    "noise": (b"\x00\x01\x02\xff" * 40, "is not a GGUF file: it does not begin with the GGUF header"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "run git lfs pull"),
    "empty": (b"", r"is empty; a \.gguf file was expected"),
    "version": (b"GGUF\x63\0\0\0" + bytes(60), "says it is GGUF version 99, but only versions 2 to 3 can be read"),
    "magic": (b"GGUF", "is damaged or cut short: its header cannot be read: copy or download it again"),
    "header": (DATA[:5000], "is damaged or cut short: its header cannot be read: copy or download it again"),
    "tail": (
        DATA[:-1000],
        f"is cut short: its tensors end at byte {len(DATA)}, but the file ends at {len(DATA) - 1000}",
    ),
}

WAYS: dict[str, Callable[[Path], Any]] = {
    "load": pyggml.load,
    "use_llama": pyggml.Inference.cpu().use_llama,
    "use_auto": pyggml.Inference.cpu().use_auto,
    "Model": pyggml.Model,
    "inspect": pyggml.inspect,
    "estimate": estimate,  # which the server calls first
    "quantize": lambda path: pyggml.quantize(path, path.with_name("out.gguf"), "q8_0"),
    "convert": lambda path: pyggml.convert(path, path.with_name("out.gguf")),
}


def message(way: str, path: Path) -> str:
    """The message about a model that one of the ways does not take."""
    if way == "inspect":
        try:
            return next(iter(pyggml.inspect(path).problems)).message
        except pyggml.ModelLoadError as error:
            return str(error)
    with pytest.raises((pyggml.ModelLoadError, pyggml.ModelNotFoundError)) as caught:
        WAYS[way](path)
    return str(caught.value)


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_refused_by_one_sentence(tmp_path: Path, name: str) -> None:
    content, expected = FILES[name]
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    ways = [way for way in WAYS if way != "convert" or name != "tail"]  # which only reads the header, to name the way
    said = {way: message(way, path) for way in ways}
    assert set(said.values()) == {said["load"]}, said
    assert said["load"].startswith(f"{path} ")
    assert re.search(expected, said["load"])


@pytest.mark.parametrize("damage", ["cut", "missing"])
def test_a_directory_is_refused_by_one_sentence(tmp_path: Path, damage: str) -> None:
    file = HFLlama().write(tmp_path / "hf") / "model.safetensors"
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-100])
    else:
        file.unlink()
    said = {way: message(way, tmp_path / "hf") for way in WAYS if way not in ("Model", "quantize")}
    assert set(said.values()) == {said["load"]}, said
    assert "copy or download" in said["load"]
    assert "0 bits each" not in str(pyggml.inspect(tmp_path / "hf"))


def test_a_part_of_a_split_set(tmp_path: Path) -> None:
    """Its other files are looked at before the engine opens them."""
    split(SHIPPED_MODEL, tmp_path)
    first, second = sorted(tmp_path.glob("part-*.gguf"))
    second.write_bytes(second.read_bytes()[:-1000])
    with pytest.raises(pyggml.ModelLoadError, match=f"^{second} is cut short"):
        pyggml.load(first)
    second.unlink()
    with pytest.raises(pyggml.ModelNotFoundError, match=f"no model file at {second}"):
        pyggml.load(first)


def test_a_gguf_file_is_not_converted(tmp_path: Path) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match="is a GGUF file: quantize changes its type"):
        pyggml.convert(SHIPPED_MODEL, tmp_path / "out.gguf")
