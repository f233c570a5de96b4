"""Hostile GGUF files, which no converter writes: each way to load them raises the right error."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from support.checkpoints import handmade_gguf, models, tokenizer_files
from support.checkpoints.hf_llama import HFLlama

import pyggml
from pyggml import Model, quant
from pyggml.errors import InferError, InvalidParameterError, ModelLoadError
from pyggml.gguf import GGMLType, GGUFReader, GGUFWriter, ValueType
from pyggml.memory import gguf_header
from pyggml.memory.estimate import estimate
from pyggml.memory.search import DeviceMemory, ResolvedOptions, largest_n_ctx
from pyggml.quantization.scoring import _perplexity

GENERATE = """
import sys, pyggml
try:
    with pyggml.load(sys.argv[1], n_ctx=64, n_threads=1) as llm:
        llm.generate("a", max_tokens=1)
except pyggml.errors.ModelLoadError as error:
    print(error)
"""

MEASURE = """
import resource, sys, pyggml

def most_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

pyggml.load(n_threads=1).close()
before = most_mib()
uses = (
    lambda: pyggml.Model(sys.argv[1]),
    lambda: pyggml.Model(sys.argv[1], vocab_only=True),
    lambda: pyggml.load(sys.argv[1], n_threads=1),
    lambda: pyggml.gguf.GGUFReader(sys.argv[1], header_only=True),
    lambda: pyggml.quantize(sys.argv[1], sys.argv[1] + "-q8", "q8_0"),
    lambda: pyggml.inspect(sys.argv[1]).estimate(),
)
for use in uses:
    try:
        use()
        print("fine")
    except pyggml.ModelLoadError as error:
        print(error)
print(most_mib() - before)
"""

NONE: Mapping[str, tuple[object, ValueType]] = {}


def changed(
    target: Path,
    source: Path,
    metadata: Mapping[str, tuple[object, ValueType]],
    tensors: Mapping[str, tuple[GGMLType, npt.NDArray[np.generic]]] | None = None,
) -> Path:
    with GGUFReader(source) as reader, GGUFWriter(target) as writer:
        for key in reader.metadata:
            if key not in metadata:
                writer.set(key, reader.metadata[key], reader.value_type(key))
        for key, (value, type) in metadata.items():
            writer.set(key, value, type)
        found = {info.name: (info.type, info.shape, reader.tensor(info.name)) for info in reader.tensors.values()}
        for name, (element, data) in (tensors or {}).items():
            found[name] = element, found[name][1], data
        for name, (element, shape, _) in found.items():
            writer.add_tensor(name, shape, element)
        for name, (_, _, data) in found.items():
            writer.write_tensor(name, data)
    return target


@pytest.mark.slow_except("doubles")
@pytest.mark.parametrize("case", ["integers", "doubles", "quantised norm", "epsilon"])
def test_what_would_end_the_process_is_not_loaded(tmp_path: Path, tiny_path: Path, case: str) -> None:
    """The engine would abort on a compute thread, so a separate process loads these files."""
    with GGUFReader(tiny_path) as reader:
        matrix = np.array(reader.dequantized("blk.0.attn_q.weight"))
        norm = np.array(reader.dequantized("blk.0.attn_norm.weight"))
    epsilon = {"llama.attention.layer_norm_rms_epsilon": (float("nan"), ValueType.FLOAT32)}
    cases: Mapping[str, Mapping[str, tuple[GGMLType, npt.NDArray[np.generic]]]] = {
        "integers": {"blk.0.attn_q.weight": (GGMLType.I32, matrix.astype(np.int32))},
        "doubles": {"blk.0.attn_q.weight": (GGMLType.F64, matrix.astype(np.float64))},
        "quantised norm": {"blk.0.attn_norm.weight": (GGMLType.Q8_0, quant.quantize(norm, GGMLType.Q8_0))},
        "epsilon": {},
    }
    path = changed(tmp_path / "m.gguf", tiny_path, epsilon if case == "epsilon" else NONE, cases[case])
    done = subprocess.run([sys.executable, "-c", GENERATE, path], capture_output=True, text=True, check=True)
    assert "cannot be computed" in done.stdout


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("split.count", (float("nan"), ValueType.FLOAT32)),
        ("split.count", (2**40, ValueType.UINT64)),
        ("pyggml.context_limit", ("many", ValueType.STRING)),
        ("pyggml.context_limit", (4.5, ValueType.FLOAT32)),
        ("pyggml.context_limit", (-1, ValueType.INT32)),
        ("general.file_type", (2**40, ValueType.UINT64)),
        ("general.architecture", (5, ValueType.UINT32)),
        ("llama.context_length", (2**31 - 1, ValueType.UINT32)),
        ("llama.context_length", (2**32 - 1, ValueType.UINT32)),
    ],
)
def test_metadata_of_other_kinds(tmp_path: Path, tiny_path: Path, key: str, value: tuple[object, ValueType]) -> None:
    path = changed(tmp_path / "m.gguf", tiny_path, {key: value})
    errors = []
    for use in (
        lambda: pyggml.inspect(path),
        lambda: estimate(path),
        lambda: pyggml.quantize(path, tmp_path / "q.gguf", "q8_0"),
        lambda: pyggml.perplexity(path, list(range(3, 40)), n_ctx=16),
    ):
        try:
            use()
        except InferError as error:
            errors.append(type(error))
    assert set(errors) <= {ModelLoadError}


def test_factors_that_are_not_in_the_file(tmp_path: Path) -> None:
    """A file system seeks to no offset of 2**60, wherever a header may say that something is."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    def tensor(name: str, ne: list[int], type: GGMLType, offset: int) -> bytes:
        return text(name) + struct.pack(f"<I{len(ne)}QIQ", len(ne), *ne, type, offset)

    header = b"GGUF" + struct.pack("<IQQ", 3, 2, 1)
    header += text("general.architecture") + struct.pack("<I", ValueType.STRING) + text("llama")
    header += tensor("a", [2**40, 2**20], GGMLType.I8, 0) + tensor("rope_freqs.weight", [64], GGMLType.F32, 2**60)
    path = tmp_path / "m.gguf"
    path.write_bytes(header.ljust(-(-len(header) // 32) * 32, b"\0"))
    assert "truncated" in [problem.code for problem in pyggml.inspect(path).problems]


def test_names_that_are_too_long_are_refused_before_any_work(tmp_path: Path, tiny_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    HFLlama().write(checkpoint)
    tokenizer_files.write_json(checkpoint, models.byte_vocabulary("</s>"))
    works: list[float] = []
    for name in ("x" * 256, "\u00fc" * 128):  # 256 bytes each
        for write in (
            lambda name=name: pyggml.quantize(tiny_path, tmp_path / name, "q8_0", progress=works.append),
            lambda name=name: pyggml.convert(checkpoint, tmp_path / name, progress=works.append),
            lambda name=name: GGUFWriter(tmp_path / name),
        ):
            with pytest.raises(InvalidParameterError, match=r"too long for the file system: .* 256 of them in"):
                write()
        for read in (pyggml.load, pyggml.inspect, lambda path: pyggml.convert(path, tmp_path / "c.gguf")):
            with pytest.raises(ModelLoadError, match="cannot be read: File name too long"):
                read(tmp_path / name)
    assert not works
    assert pyggml.quantize(tiny_path, tmp_path / ("x" * 255), "q8_0").path.stat().st_size


@pytest.mark.parametrize("path", ["\ud800", "a\0b"])
def test_paths_that_cannot_be(tmp_path: Path, tiny_path: Path, path: str) -> None:
    for use in (
        lambda: pyggml.inspect(path),
        lambda: pyggml.load(path),
        lambda: pyggml.quantize(path, tmp_path / "q.gguf", "q8_0"),
        lambda: pyggml.quantize(tiny_path, path, "q8_0"),
        lambda: pyggml.ImportanceMatrix.load(path),
    ):
        with pytest.raises(InvalidParameterError):
            use()


def test_the_cells_of_a_state_are_as_many_as_sequences(mamba_path: Path) -> None:

    assert estimate(mamba_path, n_ctx=2**20).cache_bytes == estimate(mamba_path, n_ctx=512).cache_bytes
    assert estimate(mamba_path, n_parallel=8).cache_bytes > estimate(mamba_path, n_parallel=4).cache_bytes


def test_absurd_training_lengths_are_searched_without_a_list_of_them() -> None:
    def memory_of(settings: ResolvedOptions) -> list[DeviceMemory]:
        return [DeviceMemory("CPU", 0, settings.n_ctx, 0, 0, 0, 0, 10**6)]

    settings = ResolvedOptions(n_ctx=512)
    assert largest_n_ctx(settings, memory_of, 2**62) == 900_000 // 256 * 256
    assert largest_n_ctx(settings, memory_of, 1000) == 1000
    assert largest_n_ctx(settings, memory_of, 100) == 100


def test_plans_of_other_types_have_the_usual_alignment() -> None:
    """The writer makes no other, and the model's own does not change what it takes."""
    assert gguf_header._is_omitted("general.alignment", {})


def test_a_perplexity_beyond_all_numbers() -> None:
    assert _perplexity(np.full(4, 800.0), np.zeros((1, 16), np.int32)).value == np.inf


def test_vocabulary_only_of_such_files(tmp_path: Path, tiny_path: Path) -> None:
    """The vocabulary of a model that cannot be computed can still be loaded."""
    metadata = {"llama.attention.layer_norm_rms_epsilon": (-1.0, ValueType.FLOAT32)}
    with Model(changed(tmp_path / "m.gguf", tiny_path, metadata), vocab_only=True) as model:
        assert model.vocab.n_tokens == models.N_BYTE_VOCAB


@pytest.mark.parametrize("n_ctx", [2**31 - 1, 2**31, 2**32 - 1])
def test_absurd_training_lengths(tmp_path: Path, tiny_path: Path, n_ctx: int) -> None:
    """The engine's number for them is negative; what it computes with is not."""
    path = changed(tmp_path / "m.gguf", tiny_path, {"llama.context_length": (n_ctx, ValueType.UINT32)})
    with pyggml.load(path, n_threads=1) as llm:
        assert llm.model.n_ctx_train == 2**31 - 1
        assert llm.n_ctx == 8192
        assert llm.generate("a", max_tokens=2, ignore_eos=True).token_ids
    with pyggml.load(path, n_threads=1, n_ctx=64) as llm, pytest.raises(InvalidParameterError, match="training length"):
        pyggml.Context(llm.model)


def announced(case: str, source: Path, target: Path) -> Path:
    """A file that announces a vocabulary of 2**28 tokens, and has none."""
    kind = handmade_gguf.pair(b"general.architecture", handmade_gguf.STRING, handmade_gguf.string(b"llama"))
    arrays = {
        "tokens": (b"tokenizer.ggml.tokens", handmade_gguf.STRING, b""),
        "some tokens": (b"tokenizer.ggml.tokens", handmade_gguf.STRING, bytes(8000)),
        "scores": (b"tokenizer.ggml.scores", handmade_gguf.FLOAT32, b""),
        "types": (b"tokenizer.ggml.token_type", handmade_gguf.INT32, bytes(4000)),
    }
    if case in arrays:
        array, type, elements = arrays[case]
        target.write_bytes(handmade_gguf.file([kind, handmade_gguf.array(array, type, elements, 2**28)]))
        return target
    with GGUFReader(source) as reader, GGUFWriter(target) as writer:
        for key in reader.metadata:
            if not key.startswith("tokenizer.") and key != "llama.vocab_size":
                writer.set(key, reader.metadata[key], reader.value_type(key))
        writer.set("tokenizer.ggml.model", "no_vocab")
        writer.set("llama.vocab_size", 2**28, ValueType.UINT32)
        for info in reader.tensors.values():
            writer.add_tensor(info.name, info.shape, info.type)
        for info in reader.tensors.values():
            writer.write_tensor(info.name, reader.tensor(info.name))
    return target


@pytest.mark.slow
@pytest.mark.parametrize("case", ["tokens", "some tokens", "scores", "types", "size alone"])
def test_vocabularies_that_are_announced_and_not_there(tmp_path: Path, tiny_path: Path, case: str) -> None:
    path = announced(case, tiny_path, tmp_path / "m.gguf")
    done = subprocess.run([sys.executable, "-c", MEASURE, path], capture_output=True, text=True, check=True)
    model, vocabulary, load, *others, mib = done.stdout.splitlines()
    for message in (model, vocabulary, load):
        assert "m.gguf" in message
    if case == "size alone":
        assert "says that its vocabulary has 268435456 tokens, but it has no vocabulary" in load
        assert "broken-vocabulary" in [problem.code for problem in pyggml.inspect(path).problems]
    else:
        assert all("m.gguf" in message for message in others)
    assert int(mib) < 64
