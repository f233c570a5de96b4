"""GGUF adapters are checked before the engine reads them, which aborts on some of these files and skips tensors."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz import gguf_file
from support.checkpoints import adapters, models

import pyggml
from pyggml import quant
from pyggml.errors import (
    ArchitectureMismatchError,
    InferError,
    InvalidParameterError,
    ModelLoadError,
    ModelNotFoundError,
    UnsupportedArchitectureError,
)
from pyggml.gguf import GGMLType, ValueType
from pyggml.importer.adapter import BaseModel, check_adapter
from pyggml.source import SHIPPED_MODEL

N_EMBD, N_FF = models.N_EMBD, models.N_FF
RANDOM = np.random.default_rng(0)


def drawn(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


GOOD = {
    "blk.0.attn_q.weight.lora_a": drawn(4, N_EMBD),
    "blk.0.attn_q.weight.lora_b": drawn(N_EMBD, 4),
    "blk.1.ffn_down.weight.lora_a": drawn(2, N_FF),
    "blk.1.ffn_down.weight.lora_b": drawn(N_EMBD, 2),
}


@pytest.fixture(scope="module")
def base(tiny_path: Path) -> BaseModel:
    return BaseModel.of_gguf(tiny_path)


def test_a_good_one(base: BaseModel, tmp_path: Path) -> None:
    path = adapters.write_gguf(
        tmp_path / "a.gguf",
        GOOD,
        general__base_model__0__name="tiny",
        adapter__lora__task_name="a task",
        adapter__lora__prompt_prefix="a\x07prefix",
        adapter__alora__invocation_tokens=adapters.tokens(1, 2),
    )
    report = check_adapter(path, base)
    assert report == pyggml.inspect_adapter(path, base.path) == pyggml.inspect_adapter(path)
    assert (report.architecture, report.name, report.base_model) == ("llama", "made adapter", "tiny")
    assert (report.task_name, report.prompt_prefix) == ("a task", "a\x07prefix")
    assert [(each.name, each.rank, each.scale(report.alpha)) for each in report.targets] == [
        ("blk.0.attn_q.weight", 4, 2.0),
        ("blk.1.ffn_down.weight", 2, 4.0),
    ]
    assert report.ranks == (2, 4)
    assert report.invocation_tokens == (1, 2)
    assert report.n_params == sum(each.size for each in GOOD.values())
    assert report.n_bytes == path.stat().st_size
    assert len(report.sha256) == 64
    assert check_adapter(path, base, data=False).sha256 == ""
    text = str(report)
    assert text.startswith("made adapter\n")
    assert r"a\x07prefix" in text
    assert "after the token ids 1, 2 (aLoRA)" in text


@pytest.mark.parametrize("type", ["F16", "BF16", "Q8_0"])
def test_stored_in_other_types(base: BaseModel, tmp_path: Path, type: str) -> None:
    """The types of llama.cpp's converter, which keeps rows that are not whole blocks as F16."""
    tensors, types = {}, {}
    for name, values in GOOD.items():
        element = GGMLType[type] if values.shape[-1] % 32 == 0 else GGMLType.F16
        encoded = quant.quantize(values, element)
        tensors[name], types[name] = encoded if element.is_quantized else encoded.view(element.dtype), element
    report = check_adapter(adapters.write_gguf(tmp_path / "a.gguf", tensors, types), base)
    assert {target.type_a for target in report.targets} == {type}


def test_without_alpha_the_scale_is_1(base: BaseModel, tmp_path: Path) -> None:
    report = check_adapter(adapters.write_gguf(tmp_path / "a.gguf", GOOD, adapter__lora__alpha=None), base)
    assert report.alpha == 0
    assert [target.scale(report.alpha) for target in report.targets] == [1.0, 1.0]


def test_ranks_of_1(base: BaseModel, tmp_path: Path) -> None:
    """The file does not keep leading dimensions of 1."""
    tensors = {"blk.0.attn_q.weight.lora_a": drawn(1, N_EMBD), "blk.0.attn_q.weight.lora_b": drawn(N_EMBD, 1)}
    report = check_adapter(adapters.write_gguf(tmp_path / "a.gguf", tensors), base)
    assert report.ranks == (1,)


NAN = GOOD["blk.0.attn_q.weight.lora_b"].copy()
NAN[-1, -1] = math.inf
Q_A, Q_B = "blk.0.attn_q.weight.lora_a", "blk.0.attn_q.weight.lora_b"


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in GOOD.items() if name not in names}


def renamed(old: str, new: str) -> dict[str, Any]:
    return {name.replace(old, new): value for name, value in GOOD.items()}


TENSORS: dict[str, tuple[dict[str, Any], type[InferError], str]] = {
    "norm": (
        {**GOOD, "blk.0.attn_norm.weight": drawn(N_EMBD)},
        ModelLoadError,
        r"'blk.0.attn_norm.weight' replaces a norm .* The engine would skip it",
    ),
    "stray": ({**GOOD, "blk.0.attn_q.weight": drawn(4, 4)}, ModelLoadError, "neither a lora_a nor a lora_b"),
    "suffix": (renamed("lora_a", "lora_c"), ModelLoadError, "neither a lora_a nor a lora_b"),
    "no b": (without(Q_B), ModelLoadError, "has a lora_a, but no lora_b"),
    "no a": (without(Q_A), ModelLoadError, "has a lora_b, but no lora_a"),
    "nothing": ({}, ModelLoadError, "no tensors"),
    "ranks": ({**GOOD, Q_A: drawn(3, N_EMBD)}, ModelLoadError, r"lora_a is \(3, 64\) and lora_b is \(64, 4\)"),
    "transposed": ({**GOOD, Q_A: drawn(N_EMBD, 4)}, ModelLoadError, "do not fit each other"),
    "dimensions": ({**GOOD, Q_A: drawn(2, 4, N_EMBD)}, ModelLoadError, "do not fit each other"),
    "infinite": ({**GOOD, Q_B: NAN}, ModelLoadError, r"attn_q.weight.lora_b' has values that are infinite or NaN"),
    "a block too many": (renamed("blk.1", "blk.2"), ArchitectureMismatchError, "ffn_down.weight', which .* lacks"),
    "width": (
        {**GOOD, Q_A: drawn(4, 32)},
        ArchitectureMismatchError,
        r"'blk.0.attn_q.weight' of shape \(64, 32\), and that of .* is \(64, 64\)",
    ),
    "a vector": (renamed("attn_q", "attn_norm"), UnsupportedArchitectureError, "adds adapters to matrices only"),
    "tied embedding": (
        {"token_embd.weight.lora_a": drawn(models.N_BYTE_VOCAB, 4), "token_embd.weight.lora_b": drawn(N_EMBD, 4)},
        UnsupportedArchitectureError,
        "output layer shares the embedding's weights",
    ),
    "tied output": (
        {"output.weight.lora_a": drawn(4, N_EMBD), "output.weight.lora_b": drawn(models.N_BYTE_VOCAB, 4)},
        ArchitectureMismatchError,
        "Its output layer shares the embedding's weights",
    ),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_that_are_refused(base: BaseModel, tmp_path: Path, name: str) -> None:
    tensors, kind, message = TENSORS[name]
    with pytest.raises(kind, match=message):
        check_adapter(adapters.write_gguf(tmp_path / "a.gguf", tensors), base)


KEYS: dict[str, tuple[dict[str, Any], type[InferError], str]] = {
    "model": ({"general__type": "model"}, ModelLoadError, "is not an adapter: its general.type is 'model'"),
    "no type": ({"general__type": None}, ModelLoadError, "is not an adapter"),
    "type of type": ({"general__type": 3}, ModelLoadError, "general.type is 3; a text was expected"),
    "other kind": ({"adapter__type": "lokr"}, UnsupportedArchitectureError, "adapter.type is 'lokr'"),
    "no kind": ({"adapter__type": None}, UnsupportedArchitectureError, "adapter.type is None"),
    "no architecture": ({"general__architecture": None}, ModelLoadError, "has no general.architecture"),
    "control vector": (
        {"general__architecture": "controlvector", "general__type": None},
        UnsupportedArchitectureError,
        "control vector",
    ),
    "architecture": (
        {"general__architecture": "qwen3"},
        ArchitectureMismatchError,
        "the architecture 'qwen3', and .* is 'llama'",
    ),
    "alpha NaN": ({"adapter__lora__alpha": math.nan}, ModelLoadError, "adapter.lora.alpha is nan"),
    "alpha infinite": ({"adapter__lora__alpha": math.inf}, ModelLoadError, "adapter.lora.alpha is inf"),
    "alpha as integer": ({"adapter__lora__alpha": 8}, ModelLoadError, "adapter.lora.alpha is 8; a finite float32"),
    "alpha as float64": ({"adapter__lora__alpha": (8.0, ValueType.FLOAT64)}, ModelLoadError, "a finite float32"),
    "alpha as text": ({"adapter__lora__alpha": "8"}, ModelLoadError, "a finite float32"),
    "unknown": (
        {"adapter__lora__dora": True},
        UnsupportedArchitectureError,
        "does not know what 'adapter.lora.dora' = True does",
    ),
    "tokens as integer": ({"adapter__alora__invocation_tokens": 3}, ModelLoadError, "a list of token ids as uint32"),
    "tokens as int32": (
        {"adapter__alora__invocation_tokens": ([1], ValueType.INT32)},
        ModelLoadError,
        "a list of token ids as uint32",
    ),
    "no tokens": (
        {"adapter__alora__invocation_tokens": ([], ValueType.UINT32)},
        ModelLoadError,
        "a list of token ids as uint32",
    ),
    "token": (
        {"adapter__alora__invocation_tokens": adapters.tokens(1, 261)},
        ArchitectureMismatchError,
        "after the token id 261, and .* has 261 tokens",
    ),
    "task": ({"adapter__lora__task_name": 3}, ModelLoadError, "task_name is 3; a text was expected"),
    "blocks as list": (
        {"pyggml__adapter__block_count": ([2], ValueType.UINT32)},
        ArchitectureMismatchError,
        r"made for a model of array\(\[2\], dtype=uint32\) blocks",
    ),
    "blocks": (
        {"pyggml__adapter__block_count": 3},
        ArchitectureMismatchError,
        "made for a model of 3 blocks, and .* has 2",
    ),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_that_are_refused(base: BaseModel, tmp_path: Path, name: str) -> None:
    metadata, kind, message = KEYS[name]
    with pytest.raises(kind, match=message):
        check_adapter(adapters.write_gguf(tmp_path / "a.gguf", GOOD, **metadata), base)


def test_types_that_no_converter_writes(base: BaseModel, tmp_path: Path) -> None:
    tensors = {**GOOD, Q_A: quant.quantize(GOOD[Q_A], GGMLType.Q4_0)}
    path = adapters.write_gguf(tmp_path / "a.gguf", tensors, {Q_A: GGMLType.Q4_0})
    with pytest.raises(ModelLoadError, match=r"is of type Q4_0; adapters are stored as F32, F16, BF16, Q8_0"):
        check_adapter(path, base)


def test_ranks_of_0(base: BaseModel, tmp_path: Path) -> None:
    """No writer makes such files, and no reader needs to."""
    file = gguf_file.read(adapters.write_gguf(tmp_path / "a.gguf", GOOD))
    for tensor in file.tensors[:2]:
        tensor.ne = [0 if size == 4 else size for size in tensor.ne]
        tensor.data = b""
    (tmp_path / "a.gguf").write_bytes(file.content())
    with pytest.raises(ModelLoadError, match=r"rank is 0|size 0"):
        check_adapter(tmp_path / "a.gguf", base)


def test_cut_files(base: BaseModel, tmp_path: Path) -> None:
    path = adapters.write_gguf(tmp_path / "a.gguf", GOOD)
    content = path.read_bytes()
    for n in range(0, len(content), len(content) // 50):
        path.write_bytes(content[:n])
        with pytest.raises(ModelLoadError):
            check_adapter(path, base)
    path.unlink()
    with pytest.raises(ModelNotFoundError):
        check_adapter(path, base)


def test_adapters_are_told_from_models(tmp_path: Path) -> None:
    path = adapters.write_gguf(tmp_path / "a.gguf", GOOD)
    assert pyggml.is_adapter(path)
    assert not pyggml.is_adapter(SHIPPED_MODEL)
    assert not pyggml.is_adapter(tmp_path)
    for other in ("hf:org/repo", tmp_path / "nothing.gguf", "a\0b"):
        assert not pyggml.is_adapter(other)
    with pytest.raises(InvalidParameterError, match=r"is a LoRA adapter: pyggml\.inspect_adapter"):
        pyggml.inspect(path)
    with pytest.raises(ModelLoadError, match="is not an adapter"):
        pyggml.inspect_adapter(SHIPPED_MODEL)
    with pytest.raises(ModelLoadError, match=r"is a LoRA adapter, not a model: .* llm\.load_adapter"):
        pyggml.load(path)


@pytest.mark.parametrize("name", ["llama", "experts"])
def test_what_passes_is_loaded_by_the_engine(tiny_path: Path, tmp_path: Path, name: str) -> None:
    """Upstream's own loader takes it, with the shapes that this one expects."""
    from support.checkpoints import family_models

    model_path, tensors = tiny_path, GOOD
    if name == "experts":
        size = family_models.Size(n_embd=32, n_ff=48)
        model_path = family_models.write(
            tmp_path / "moe.gguf", "llama", models.byte_vocabulary(), layout="mixtral", size=size
        )
        tensors = {
            "blk.0.ffn_gate_exps.weight.lora_a": drawn(4, 2, 32),
            "blk.0.ffn_gate_exps.weight.lora_b": drawn(4, 48, 2),
            "blk.1.ffn_gate_inp.weight.lora_a": drawn(2, 32),
            "blk.1.ffn_gate_inp.weight.lora_b": drawn(4, 2),
        }
    path = adapters.write_gguf(tmp_path / "a.gguf", tensors)
    report = check_adapter(path, BaseModel.of_gguf(model_path))
    assert [target.n_experts for target in report.targets] == ([4, 0] if name == "experts" else [0, 0])
    with pyggml.Model(model_path, device="cpu") as model:
        adapter = pyggml.lib.llama_adapter_lora_init(model.handle, str(path).encode())
        assert adapter != pyggml.ffi.NULL
        pyggml.lib.llama_adapter_lora_free(adapter)
