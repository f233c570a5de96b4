"""Adapters merged into a model that is written to another file: weights, types, refusals, and what the engine gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import quantizer
from support.checkpoints import adapters, models

import pyggml
from pyggml.errors import (
    ArchitectureMismatchError,
    InvalidParameterError,
    ModelLoadError,
    ModelNotFoundError,
    UnsupportedArchitectureError,
)
from pyggml.gguf import GGMLType, GGUFReader

Q, V = "blk.0.attn_q.weight", "blk.1.attn_v.weight"
N_EMBD, N_KV = models.N_EMBD, models.HEAD_DIM * models.N_HEAD_KV


def pair(name: str, n_out: int, n_in: int, rank: int = 4, seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {
        f"{name}.lora_a": random.standard_normal((rank, n_in)).astype(np.float32),
        f"{name}.lora_b": random.standard_normal((n_out, rank)).astype(np.float32),
    }


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tensors = pair(Q, N_EMBD, N_EMBD) | pair(V, N_KV, N_EMBD, rank=2)
    return adapters.write_gguf(tmp_path_factory.mktemp("merge") / "adapter.gguf", tensors)


def change(adapter: Path, name: str, alpha: float = 8.0) -> Any:
    with GGUFReader(adapter) as reader:
        a, b = (reader.dequantized(f"{name}.lora_{half}").astype(np.float64) for half in "ab")
    return alpha / len(a) * (b @ a)


def weight(path: Path, name: str) -> Any:
    with GGUFReader(path) as reader:
        return reader.dequantized(name)


def test_adds_the_product_and_nothing_else(tiny_path: Path, adapter: Path, tmp_path: Path) -> None:
    done = pyggml.quantize(tiny_path, tmp_path / "merged.gguf", "f32", merge=adapter)
    assert done.notes == (f"merged {adapter} into 2 tensors",)
    with GGUFReader(tiny_path) as before, GGUFReader(done.path) as after:
        for name in before.tensors:
            expected = before.dequantized(name)
            if name in (Q, V):
                expected = expected + change(adapter, name)
            np.testing.assert_allclose(after.dequantized(name), expected, rtol=0, atol=1e-5 if name in (Q, V) else 0)


def test_several_and_their_factors(tiny_path: Path, adapter: Path, tmp_path: Path) -> None:
    other = adapters.write_gguf(
        tmp_path / "other.gguf", pair(Q, N_EMBD, N_EMBD, rank=3, seed=1), adapter__lora__alpha=None
    )
    merges: list[tuple[Any, tuple[float, float]]] = [
        ([adapter, other], (1, 1)),
        ({adapter: 0.5, str(other): -2}, (0.5, -2)),
        ({adapter: 0.0}, (0, 0)),
        ((each for each in (adapter, other)), (1, 1)),
    ]
    for merge, factors in merges:
        pyggml.quantize(tiny_path, tmp_path / "merged.gguf", "f32", merge=merge)
        expected = weight(tiny_path, Q) + factors[0] * change(adapter, Q) + factors[1] * change(other, Q, alpha=3)
        np.testing.assert_allclose(weight(tmp_path / "merged.gguf", Q), expected, rtol=0, atol=1e-5)


def test_the_engine_computes_the_same_with_the_adapter_applied(tiny_path: Path, adapter: Path, tmp_path: Path) -> None:
    """Upstream's own way: logits with its adapter are those of the merged model."""
    pyggml.quantize(tiny_path, tmp_path / "merged.gguf", "f32", merge=adapter)
    logits = []
    for path, applied in ((tmp_path / "merged.gguf", None), (tiny_path, adapter), (tiny_path, None)):
        with (
            pyggml.Model(path, device="cpu") as model,
            pyggml.Context(model, n_ctx=64, n_threads=1, flash_attn="off", cache_type="f32") as context,
        ):
            lib, ffi = pyggml.lib, pyggml.ffi
            handles = [] if applied is None else [lib.llama_adapter_lora_init(model.handle, str(applied).encode())]
            pointers, scales = ffi.new("struct llama_adapter_lora *[]", handles), ffi.new("float[]", [1.0])
            assert lib.llama_set_adapters_lora(context.handle, pointers, len(handles), scales) == 0
            context.decode([1, 2, 3, 4, 5], output="all")
            logits.append(np.array(context.logits()))
            lib.llama_set_adapters_lora(context.handle, pointers, 0, scales)
            for handle in handles:
                lib.llama_adapter_lora_free(handle)
    merged, applied_logits, plain = logits
    assert np.abs(merged - applied_logits).max() <= 1e-2 * merged.std()
    assert np.abs(merged - plain).max() > 0.1 * merged.std()


@pytest.mark.parametrize("outtype", ["f16", "bf16", "q8_0", "q4_0"])
def test_into_other_types(tiny_path: Path, adapter: Path, tmp_path: Path, outtype: str) -> None:
    """The float32 sums are encoded, as by a second pass over a merged file."""
    pyggml.quantize(tiny_path, tmp_path / "merged.gguf", "f32", merge=adapter)
    pyggml.quantize(tmp_path / "merged.gguf", tmp_path / "then.gguf", outtype)
    pyggml.quantize(tiny_path, tmp_path / "at-once.gguf", outtype, merge=adapter)
    assert (tmp_path / "then.gguf").read_bytes() == (tmp_path / "at-once.gguf").read_bytes()


def test_quantised_models_only_if_asked_for(tiny_path: Path, adapter: Path, tmp_path: Path) -> None:
    src, dst = tmp_path / "q8.gguf", tmp_path / "merged.gguf"
    pyggml.quantize(tiny_path, src, "q8_0")
    with pytest.raises(
        InvalidParameterError, match=r"merging into it and writing it as Q8_0 would lose.*requantize=True"
    ):
        pyggml.quantize(src, dst, "q8_0", merge=adapter)
    pyggml.quantize(src, dst, "q8_0", merge=adapter, requantize=True)
    assert quantizer.types_of(dst) == quantizer.types_of(src)
    expected = weight(src, Q) + change(adapter, Q)
    step = np.abs(expected).reshape(-1, 32).max(-1, keepdims=True) / 127
    assert (np.abs(weight(dst, Q) - expected).reshape(-1, 32) <= 0.55 * step).all()  # the scale is rounded, too
    with GGUFReader(src) as before, GGUFReader(dst) as after:  # other tensors are copied
        np.testing.assert_array_equal(before.tensor("blk.0.ffn_up.weight"), after.tensor("blk.0.ffn_up.weight"))
    pyggml.quantize(src, dst, "f32", merge=adapter)  # nothing to lose
    assert quantizer.types_of(dst)[Q] == GGMLType.F32


def test_kept_types_are_kept(tiny_path: Path, adapter: Path, tmp_path: Path) -> None:
    pyggml.quantize(tiny_path, tmp_path / "dst.gguf", "q8_0", merge=adapter, keep=[r"attn_q"])
    np.testing.assert_allclose(
        weight(tmp_path / "dst.gguf", Q), weight(tiny_path, Q) + change(adapter, Q), rtol=0, atol=1e-5
    )


def test_dry_runs_write_nothing(tiny_path: Path, adapter: Path, tmp_path: Path) -> None:
    planned = pyggml.quantize(tiny_path, tmp_path / "dst.gguf", "q8_0", merge=adapter, dry_run=True)
    assert not list(tmp_path.iterdir())
    assert pyggml.quantize(tiny_path, tmp_path / "dst.gguf", "q8_0", merge=adapter) == planned


@pytest.mark.parametrize(
    ("merge", "message"),
    [
        (3, "merge must be an adapter, or several, not 3"),
        ([3], "must name adapters by their paths, not 3"),
        ({"a.gguf": "x"}, "the factor of 'a.gguf' in merge must be a number"),
        ({"a.gguf": float("nan")}, "must be a finite number"),
        (["a.gguf", "a.gguf"], "'a.gguf' twice; give it a factor"),
        ("a\0b", "by their paths"),
    ],
    ids=str,
)
def test_arguments_that_cannot_be(tiny_path: Path, tmp_path: Path, merge: Any, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        pyggml.quantize(tiny_path, tmp_path / "dst.gguf", "f32", merge=merge)
    assert not list(tmp_path.iterdir())


def test_adapters_that_do_not_fit(tiny_path: Path, tmp_path: Path) -> None:
    dst = tmp_path / "dst.gguf"
    with pytest.raises(ModelNotFoundError):
        pyggml.quantize(tiny_path, dst, "f32", merge=tmp_path / "nothing.gguf")
    other = adapters.write_gguf(tmp_path / "other.gguf", pair("blk.2.attn_q.weight", N_EMBD, N_EMBD))
    with pytest.raises(ArchitectureMismatchError, match=r"blk\.2\.attn_q\.weight', which .* lacks"):
        pyggml.quantize(tiny_path, dst, "f32", merge=other)
    with pytest.raises(ModelLoadError, match="is not an adapter"):
        pyggml.quantize(tiny_path, dst, "f32", merge=tiny_path)
    activated = adapters.write_gguf(
        tmp_path / "alora.gguf", pair(Q, N_EMBD, N_EMBD), adapter__alora__invocation_tokens=adapters.tokens(1)
    )
    with pytest.raises(
        UnsupportedArchitectureError, match=r"after certain tokens only .aLoRA., so it cannot be merged"
    ):
        pyggml.quantize(tiny_path, dst, "f32", merge=activated)
    assert not dst.exists()


def test_values_that_overflow(tiny_path: Path, tmp_path: Path) -> None:
    huge = {name: np.float32(1e30) * value for name, value in pair(Q, N_EMBD, N_EMBD).items()}
    path = adapters.write_gguf(tmp_path / "huge.gguf", huge)
    with pytest.raises(
        ModelLoadError, match=r"'blk\.0\.attn_q\.weight' cannot be stored as F32: with the adapters merged"
    ):
        pyggml.quantize(tiny_path, tmp_path / "dst.gguf", "f32", merge=path)
    assert not (tmp_path / "dst.gguf").exists()
