"""PEFT directories become GGUF adapters that change the imported model as peft changes the original."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import adapters, checkpoints, family_models, models
from support.checkpoints.hf_llama import HFLlama

import pyggml
from pyggml.errors import (
    ArchitectureMismatchError,
    InferError,
    InvalidParameterError,
    ModelLoadError,
    ModelNotFoundError,
    UnsupportedArchitectureError,
)
from pyggml.families import LAYOUTS, Tensor
from pyggml.gguf import GGMLType, GGUFReader
from pyggml.importer.adapter import BaseModel, check_adapter, convert_adapter

LLAMA = HFLlama()
NAMES = (*adapters.LINEAR, "lm_head")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return LLAMA.write(tmp_path_factory.mktemp("base") / "hf")


@pytest.fixture(scope="module")
def base_gguf(base: Path) -> Path:
    pyggml.convert(base, base.parent / "base.gguf", "f32")
    return base.parent / "base.gguf"


def assert_merges_to(gguf: Path, adapter: Path, expected: HFLlama, folder: Path) -> None:
    """The model with the adapter merged into it has the weights of another checkpoint."""
    pyggml.quantize(gguf, folder / "ours.gguf", "f32", merge=adapter)
    expected.write(folder / "expected-hf")
    pyggml.convert(folder / "expected-hf", folder / "expected.gguf", "f32")
    with GGUFReader(folder / "ours.gguf") as ours, GGUFReader(folder / "expected.gguf") as theirs:
        assert list(ours.tensors) != []
        assert set(ours.tensors) == set(theirs.tensors)
        for name in ours.tensors:
            np.testing.assert_allclose(
                ours.dequantized(name), theirs.dequantized(name), rtol=0, atol=2e-6, err_msg=name
            )


@pytest.mark.parametrize("by", ["directory", "gguf"])
def test_changes_the_model_as_the_definition_says(base: Path, base_gguf: Path, tmp_path: Path, by: str) -> None:
    """Also queries and keys, whose rows an import reorders."""
    tensors = adapters.matrices(adapters.modules_of(LLAMA, NAMES))
    directory = adapters.write_peft(tmp_path / "peft", tensors, target_modules=list(NAMES))
    done = pyggml.convert(directory, tmp_path / "adapter.gguf", base=base if by == "directory" else base_gguf)
    assert done.types == {"F32": 2 * 15}
    assert done.architecture == "llama"
    assert_merges_to(base_gguf, done.path, adapters.with_adapter(LLAMA, tensors, 8 / 4), tmp_path)


def test_the_file_is_as_upstream_writes_it(base: Path, tmp_path: Path) -> None:
    tensors = adapters.matrices(adapters.modules_of(LLAMA, ["v_proj"]), rank=2)
    directory = adapters.write_peft(
        tmp_path / "peft", tensors, r=2, target_modules=["v_proj"], base_model_name_or_path="org/some-llama"
    )
    report = convert_adapter(directory, tmp_path / "adapter.gguf", base)
    with GGUFReader(tmp_path / "adapter.gguf") as reader:
        metadata = dict(reader.metadata)
        assert list(reader.tensors) == [f"blk.{i}.attn_v.weight.lora_{half}" for i in range(2) for half in "ab"]
        for i in range(2):
            module = f"{adapters.PREFIX}model.layers.{i}.self_attn.v_proj"
            for half in "AB":
                stored = reader.tensor(f"blk.{i}.attn_v.weight.lora_{half.lower()}")
                np.testing.assert_array_equal(stored, tensors[f"{module}.lora_{half}.weight"])
    assert metadata == {
        "general.architecture": "llama",
        "general.type": "adapter",
        "adapter.type": "lora",
        "general.name": "peft",
        "general.base_model.count": 1,
        "general.base_model.0.name": "some-llama",
        "general.base_model.0.organization": "org",
        "general.base_model.0.repo_url": "https://huggingface.co/org/some-llama",
        "general.file_type": 0,
        "adapter.lora.alpha": 8.0,
        "pyggml.adapter.block_count": 2,
    }
    assert (report.ranks, report.alpha, report.base_model) == ((2,), 8.0, "some-llama")
    assert report.targets[0].scale(report.alpha) == 4.0


@pytest.mark.parametrize(
    ("settings", "scale"),
    [
        ({"lora_alpha": 3}, lambda _module, r: 3 / r),
        ({"use_rslora": True}, lambda _module, r: 8 / math.sqrt(r)),
        ({"alpha_pattern": {"q_proj": 2}}, lambda module, r: (2 if module.endswith("q_proj") else 8) / r),
        (
            {"alpha_pattern": {r"layers\.1\..*_proj": 2, "q_proj": 3}},
            lambda module, r: (2 if ".1." in module else 3 if module.endswith("q_proj") else 8) / r,
        ),
        (
            {"alpha_pattern": {"model.layers.0.mlp.up_proj": 5}, "use_rslora": True},
            lambda module, r: (5 if module == "model.layers.0.mlp.up_proj" else 8) / math.sqrt(r),
        ),
        ({"alpha_pattern": {"proj": 5}}, lambda _module, r: 8 / r),  # the last part of a name, not its end
    ],
    ids=["alpha", "rslora", "pattern", "regex and pattern", "pattern and rslora", "part of a name"],
)
def test_scales(base_gguf: Path, tmp_path: Path, settings: dict[str, Any], scale: Any) -> None:
    """One alpha for the file, and what it cannot say is in the matrices; with ranks that differ, too."""
    shapes = adapters.modules_of(LLAMA)
    for name, ranks in (
        ("same", dict.fromkeys(shapes, 4)),
        ("different", {each: 1 + len(each) % 3 for each in shapes}),
    ):
        tensors = adapters.matrices(shapes, ranks)
        patterns = {} if name == "same" else {"rank_pattern": dict(ranks)}
        directory = adapters.write_peft(tmp_path / name, tensors, **settings, **patterns)
        expected = adapters.with_adapter(LLAMA, tensors, lambda module, ranks=ranks: scale(module, ranks[module]))
        assert_merges_to(base_gguf, directory, expected, tmp_path)


@pytest.mark.parametrize("stored", ["F16", "BF16", "F64"])
def test_types_are_kept_unless_another_is_wanted(base: Path, tmp_path: Path, stored: str) -> None:
    tensors = adapters.matrices(adapters.modules_of(LLAMA, ["k_proj"]))
    as_stored: Any = {
        "F16": lambda x: x.astype(np.float16),
        "BF16": checkpoints.bf16,
        "F64": lambda x: x.astype(np.float64),
    }[stored]
    settings = {"target_modules": ["k_proj"]}
    exact = adapters.write_peft(tmp_path / "exact", {k: as_stored(v) for k, v in tensors.items()}, **settings)
    types = pyggml.convert(exact, tmp_path / "auto.gguf", base=base).types
    assert types == {"F32" if stored == "F64" else stored: 4}
    for outtype in ("f32", "f16", "bf16"):
        assert pyggml.convert(exact, tmp_path / f"{outtype}.gguf", outtype, base=base).types == {outtype.upper(): 4}
    # A factor that a type of 16 bits could not hold exactly makes float32 of the matrix that takes it.
    scaled = adapters.write_peft(
        tmp_path / "scaled",
        {k: as_stored(v) for k, v in tensors.items()},
        alpha_pattern={"0.self_attn.k_proj": 7},
        **settings,
    )
    types = pyggml.convert(scaled, tmp_path / "scaled.gguf", base=base).types
    assert types == ({"F32": 4} if stored == "F64" else {stored: 3, "F32": 1})


def test_names_as_in_other_tools(base_gguf: Path, tmp_path: Path) -> None:
    """With the adapter's name, without peft's prefix, as an embedding model has them, and as in GGUF files."""
    tensors = adapters.matrices(adapters.modules_of(LLAMA, ["v_proj", "down_proj"]))
    expected = adapters.with_adapter(LLAMA, tensors, 2.0)
    renamed: dict[str, Callable[[str], str]] = {
        "named": lambda name: name.replace(".weight", ".default.weight"),
        "plain": lambda name: name.removeprefix(adapters.PREFIX),
        "bare": lambda name: name.replace("base_model.model.model.", "base_model.model."),
        "gguf": lambda name: (
            name.replace("base_model.model.model.layers.", "blk.")
            .replace("self_attn.v_proj", "attn_v")
            .replace("mlp.down_proj", "ffn_down")
        ),
    }
    for name, rename in renamed.items():
        directory = adapters.write_peft(
            tmp_path / name, {rename(key): value for key, value in tensors.items()}, target_modules=None
        )
        assert_merges_to(base_gguf, directory, expected, tmp_path)


def test_an_adapter_of_the_embedding(base: Path, base_gguf: Path, tmp_path: Path) -> None:
    n_vocab, n_embd = LLAMA.n_vocab, LLAMA.n_embd
    random = np.random.default_rng(3)
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in ((4, n_vocab), (n_embd, 4)))
    module = f"{adapters.PREFIX}model.embed_tokens"
    tensors = {
        f"{module}.lora_embedding_A": a,
        f"{module}.lora_embedding_B": b,
        f"{module}.base_layer.weight": LLAMA.weights["model.embed_tokens.weight"],
    }
    directory = adapters.write_peft(tmp_path / "peft", tensors, target_modules=["embed_tokens"])
    done = pyggml.convert(directory, tmp_path / "adapter.gguf", base=base)
    assert "is a copy of the base model's own weight, and was left out" in done.notes[0]
    with GGUFReader(done.path) as reader:
        np.testing.assert_array_equal(reader.tensor("token_embd.weight.lora_a"), a.T)
        np.testing.assert_array_equal(reader.tensor("token_embd.weight.lora_b"), b)
    assert pyggml.convert(directory, tmp_path / "by-gguf.gguf", base=base_gguf).notes == done.notes
    pyggml.quantize(base_gguf, tmp_path / "q8.gguf", "q8_0")
    (note,) = pyggml.convert(directory, tmp_path / "by-q8.gguf", base=tmp_path / "q8.gguf").notes
    assert "could not be compared" in note
    tensors[f"{module}.base_layer.weight"] = tensors[f"{module}.base_layer.weight"].copy()
    tensors[f"{module}.base_layer.weight"][-1] += 0.1  # a token that the base model does not know
    other = adapters.write_peft(tmp_path / "other", tensors, target_modules=["embed_tokens"])
    with pytest.raises(ArchitectureMismatchError, match="was made for a model with other tokens"):
        pyggml.convert(other, tmp_path / "other.gguf", base=base)
    expected = HFLlama()
    expected.weights["model.embed_tokens.weight"] = expected.weights["model.embed_tokens.weight"] + 2 * (b @ a).T
    assert_merges_to(base_gguf, done.path, expected, tmp_path)


# --- experts ----------------------------------------------------------------------------------------------------


def write_mixtral(path: Path) -> Path:
    """A GGUF file of a mixture of experts."""
    vocabulary = models.byte_vocabulary()
    size = family_models.Size(n_embd=32, n_ff=48)
    return family_models.write(path, "llama", vocabulary, layout="mixtral", size=size)


def experts_of(path: Path, name: str) -> Any:
    with GGUFReader(path) as reader:
        return reader.dequantized(name)


def test_experts_one_by_one(tmp_path: Path) -> None:
    """Some of them, of ranks that differ: the others are not changed."""
    base = write_mixtral(tmp_path / "base.gguf")
    shapes = {
        f"model.layers.{i}.block_sparse_moe.experts.{e}.{name}": (48, 32) if name != "w2" else (32, 48)
        for i, e, name in itertools.product(range(2), (0, 2, 3), ("w1", "w2", "w3"))
    }
    ranks = {module: 1 + int(module.split(".")[5]) for module in shapes}
    tensors = adapters.matrices(shapes, ranks)
    directory = adapters.write_peft(
        tmp_path / "peft",
        tensors,
        target_modules=["w1", "w2", "w3"],
        rank_pattern=dict(ranks),
    )
    pyggml.quantize(base, tmp_path / "merged.gguf", "f32", merge=directory)
    for i, (ours, theirs) in itertools.product(range(2), (("gate", "w1"), ("down", "w2"), ("up", "w3"))):
        name = f"blk.{i}.ffn_{ours}_exps.weight"
        expected = experts_of(base, name)
        for e in (0, 2, 3):
            module = f"model.layers.{i}.block_sparse_moe.experts.{e}.{theirs}"
            a, b = (tensors[f"{adapters.PREFIX}{module}.lora_{half}.weight"] for half in "AB")
            expected[e] += 8 / ranks[module] * (b @ a)
        np.testing.assert_allclose(experts_of(tmp_path / "merged.gguf", name), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("version", ["now", "earlier"])
def test_experts_as_parameters(tmp_path: Path, version: str) -> None:
    """As peft stores them for transformers 5: experts' rows of lora_A one after the other, columns of lora_B in turn.

    Earlier versions took a parameter's second dimension for its input, and the third for its output.
    """
    base, n, r, n_ff, n_embd = write_mixtral(tmp_path / "base.gguf"), 4, 3, 48, 32
    random = np.random.default_rng(0)
    module = f"{adapters.PREFIX}model.layers.0.mlp.experts"
    changes: dict[str, Any] = {}
    tensors = {}
    for name, prefix, shape in (
        ("gate_up", f"{module}.base_layer", (2 * n_ff, n_embd)),
        ("down", module, (n_embd, n_ff)),
    ):
        n_out, n_in = shape if version == "now" else shape[::-1]
        a, b = random.standard_normal((n * r, n_in)), random.standard_normal((n_out, r * n))
        tensors[f"{prefix}.lora_A.weight"] = a.astype(np.float32)
        tensors[f"{prefix}.lora_B.weight"] = b.astype(np.float32)
        change = np.einsum("ore,eri->eoi", b.reshape(n_out, r, n), a.reshape(n, r, n_in))
        changes[name] = 8 / r * (change if version == "now" else change.swapaxes(1, 2))
    directory = adapters.write_peft(
        tmp_path / "peft",
        tensors,
        r=r,
        target_modules=[],
        target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"],
    )
    pyggml.quantize(base, tmp_path / "merged.gguf", "f32", merge=directory)
    parts = {"gate": changes["gate_up"][:, :n_ff], "up": changes["gate_up"][:, n_ff:], "down": changes["down"]}
    for name, change in parts.items():
        key = f"blk.0.ffn_{name}_exps.weight"
        expected = experts_of(base, key) + change
        np.testing.assert_allclose(experts_of(tmp_path / "merged.gguf", key), expected, rtol=0, atol=1e-4)


def test_layouts_of_an_architecture_agree() -> None:
    """A GGUF file does not say which of them it came from, and they reorder rows of the same name alike."""
    found: dict[tuple[str, str, str], Tensor] = {}
    for layout in LAYOUTS:
        for tensor in layout.tensors:
            if tensor.target.endswith(".weight") and len(tensor.shape) > 1:
                other = found.setdefault((layout.architecture, tensor.source, tensor.target), tensor)
                assert (other.transform, other.each) == (tensor.transform, tensor.each), (layout.name, tensor.target)


# --- refused ----------------------------------------------------------------------------------------------------

Q = "model.layers.0.self_attn.q_proj"
GOOD = adapters.matrices({Q: (64, 64), "model.layers.1.self_attn.q_proj": (64, 64)})
A, B = f"{adapters.PREFIX}{Q}.lora_A.weight", f"{adapters.PREFIX}{Q}.lora_B.weight"


def with_tensor(name: str, value: Any) -> dict[str, Any]:
    return {**GOOD, f"{adapters.PREFIX}{name}": value}


SETTINGS: dict[str, tuple[dict[str, Any], type[InferError], str]] = {
    "kind": ({"peft_type": "LOHA"}, UnsupportedArchitectureError, "peft_type is 'LOHA'"),
    "dora": ({"use_dora": True}, UnsupportedArchitectureError, r"DoRA .* merge_and_unload"),
    "saved": ({"modules_to_save": ["lm_head"]}, UnsupportedArchitectureError, r"modules_to_save is \['lm_head'\]"),
    "pissa": (
        {"init_lora_weights": "pissa_niter_16"},
        UnsupportedArchitectureError,
        "init_lora_weights is 'pissa_niter_16'",
    ),
    "replication": ({"layer_replication": [[0, 2]]}, UnsupportedArchitectureError, "layer_replication"),
    "tokens": ({"trainable_token_indices": [3]}, UnsupportedArchitectureError, "trainable_token_indices"),
    "lora_bias": ({"lora_bias": True}, UnsupportedArchitectureError, "lora_bias is True"),
    "unknown": ({"use_nextlora": True}, UnsupportedArchitectureError, "does not know what use_nextlora = True does"),
    "no alpha": ({"lora_alpha": None}, ModelLoadError, "no lora_alpha; a positive number was expected"),
    "alpha 0": ({"lora_alpha": 0}, ModelLoadError, "lora_alpha is 0"),
    "alpha NaN": ({"lora_alpha": math.nan}, ModelLoadError, "lora_alpha is nan"),
    "rank": ({"r": 8}, ModelLoadError, r"q_proj' have rank 4, and by adapter_config.json r is 8"),
    "expression": ({"alpha_pattern": {"(a+)+b": 1}}, UnsupportedArchitectureError, r"alpha_pattern is too complex"),
    "no expression": ({"alpha_pattern": {"(a": 1}}, ModelLoadError, "is no regular expression"),
    "alpha pattern": ({"alpha_pattern": {"q_proj": "x"}}, ModelLoadError, r"alpha_pattern.q_proj is 'x'"),
    "alora": ({"alora_invocation_tokens": [1, "a"]}, ModelLoadError, "alora_invocation_tokens is"),
    "old alora": ({"invocation_string": "<|x|>"}, UnsupportedArchitectureError, "invocation_string"),
    "bias": ({"bias": "some"}, ModelLoadError, "bias is 'some'"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_are_refused(base: Path, tmp_path: Path, name: str) -> None:
    settings, kind, message = SETTINGS[name]
    directory = adapters.write_peft(tmp_path / "peft", GOOD, **{"target_modules": ["q_proj"], **settings})
    with pytest.raises(kind, match=message):
        pyggml.convert(directory, tmp_path / "adapter.gguf", base=base)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["peft"]


NAN = GOOD[A].copy()
NAN[1, 2] = np.nan
NORM = np.ones(64, np.float32)

TENSORS: dict[str, tuple[dict[str, Any], type[InferError], str]] = {
    "norm": (with_tensor("model.layers.0.input_layernorm.weight", NORM), UnsupportedArchitectureError, "trained norm"),
    "bias": (with_tensor(f"{Q}.bias", NORM), UnsupportedArchitectureError, r"q_proj.bias' is a trained bias"),
    "lora_bias": (with_tensor(f"{Q}.lora_B.bias", NORM), UnsupportedArchitectureError, "bias of the adapter's own"),
    "magnitude": (with_tensor(f"{Q}.lora_magnitude_vector", NORM), UnsupportedArchitectureError, "DoRA"),
    "embedding": (
        with_tensor("model.embed_tokens.weight", np.ones((270, 64), np.float32)),
        UnsupportedArchitectureError,
        "embed_tokens.weight' is an embedding that was trained as a whole",
    ),
    "head": (
        with_tensor("lm_head.weight", np.ones((270, 64), np.float32)),
        UnsupportedArchitectureError,
        "output layer",
    ),
    "unknown": (with_tensor("model.x", NORM), UnsupportedArchitectureError, "neither a lora_A nor a lora_B"),
    "frozen": (
        with_tensor("lm_head.base_layer.weight", np.ones((271, 64), np.float32)),
        ArchitectureMismatchError,
        "other tokens",
    ),
    "no B": ({name: value for name, value in GOOD.items() if name != B}, ModelLoadError, "has a lora_A, but no lora_B"),
    "no A": ({name: value for name, value in GOOD.items() if name != A}, ModelLoadError, "has a lora_B, but no lora_A"),
    "twice": ({**GOOD, A.replace(".weight", ".x.weight"): GOOD[A]}, ModelLoadError, "has two lora_A for the module"),
    "same target": (
        {**GOOD, **{name.replace(f"{adapters.PREFIX}model.", ""): value for name, value in GOOD.items()}},
        ModelLoadError,
        r"changes blk.0.attn_q.weight twice",
    ),
    "rank 0": ({**GOOD, A: GOOD[A][:0], B: GOOD[B][:, :0]}, ModelLoadError, "its rank is 0"),
    "ranks": ({**GOOD, A: GOOD[A][:3]}, ModelLoadError, r"lora_A is \(3, 64\), lora_B \(64, 4\)"),
    "vector": ({**GOOD, A: GOOD[A][0]}, ModelLoadError, r"lora_A is \(64,\)"),
    "NaN": ({**GOOD, A: NAN}, ModelLoadError, r"q_proj.lora_A.weight' has values that are infinite or NaN"),
    "integers": ({**GOOD, A: GOOD[A].astype(np.int8)}, ModelLoadError, "is of type I8"),
    "width": ({**GOOD, A: GOOD[A][:, :32]}, ArchitectureMismatchError, r"shape \(64, 32\).*attn_q.weight \(64, 64\)"),
    "height": ({**GOOD, B: GOOD[B][:32]}, ArchitectureMismatchError, r"shape \(32, 64\).*attn_q.weight \(64, 64\)"),
    "a block too many": (
        with_tensor("model.layers.2.self_attn.q_proj.lora_A.weight", GOOD[A])
        | with_tensor("model.layers.2.self_attn.q_proj.lora_B.weight", GOOD[B]),
        ArchitectureMismatchError,
        "changes the module 'model.layers.2.self_attn.q_proj', which .* lacks",
    ),
    "a block too few": ({A: GOOD[A], B: GOOD[B]}, ArchitectureMismatchError, "no matrices for blk.1.attn_q.weight"),
    "another kind": (
        adapters.matrices({"model.layers.0.self_attn.qkv_proj": (64, 64)}),
        ArchitectureMismatchError,
        "qkv_proj', which .* lacks",
    ),
    "nothing": ({}, ModelLoadError, "changes nothing"),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_that_are_refused(base: Path, base_gguf: Path, tmp_path: Path, name: str) -> None:
    tensors, kind, message = TENSORS[name]
    directory = adapters.write_peft(tmp_path / "peft", tensors, target_modules=["q_proj"])
    for model in (base, base_gguf):
        with pytest.raises(kind, match=message):
            pyggml.convert(directory, tmp_path / "adapter.gguf", base=model)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["peft"]


def test_some_blocks_if_the_configuration_says_so(base: Path, tmp_path: Path) -> None:
    directory = adapters.write_peft(
        tmp_path / "peft", {A: GOOD[A], B: GOOD[B]}, target_modules=["q_proj"], layers_to_transform=[0]
    )
    assert pyggml.convert(directory, tmp_path / "adapter.gguf", base=base).types == {"F32": 2}


def test_an_output_layer_that_is_the_embedding(tiny_path: Path, tmp_path: Path) -> None:
    """The engine computes both with one tensor."""
    head = adapters.matrices({"lm_head": (models.N_BYTE_VOCAB, models.N_EMBD)})
    with pytest.raises(ArchitectureMismatchError, match="output layer shares the embedding"):
        pyggml.convert(adapters.write_peft(tmp_path / "head", head), tmp_path / "a.gguf", base=tiny_path)
    embedding = {
        f"{adapters.PREFIX}model.embed_tokens.lora_embedding_{half}": np.ones(shape, np.float32)
        for half, shape in (("A", (4, models.N_BYTE_VOCAB)), ("B", (models.N_EMBD, 4)))
    }
    with pytest.raises(UnsupportedArchitectureError, match="output layer shares the embedding"):
        pyggml.convert(adapters.write_peft(tmp_path / "embedding", embedding), tmp_path / "a.gguf", base=tiny_path)


def test_activated_adapters_keep_their_tokens(base: Path, tmp_path: Path) -> None:
    tensors = adapters.matrices(adapters.modules_of(LLAMA, ["q_proj"]))
    settings = {"target_modules": ["q_proj"], "alora_invocation_tokens": [5, 6, 269]}
    directory = adapters.write_peft(tmp_path / "peft", tensors, **settings)
    report = convert_adapter(directory, tmp_path / "adapter.gguf", base)
    assert report.invocation_tokens == (5, 6, 269)
    adapters.write_peft(tmp_path / "peft", tensors, **{**settings, "alora_invocation_tokens": [270]})
    with pytest.raises(ArchitectureMismatchError, match="token id 270"):
        convert_adapter(directory, tmp_path / "other.gguf", base)
    assert not (tmp_path / "other.gguf").exists()


def test_the_base_model_has_to_be_known(base: Path, tmp_path: Path) -> None:
    tensors = adapters.matrices(adapters.modules_of(LLAMA, ["q_proj"]))
    directory = adapters.write_peft(tmp_path / "peft", tensors, target_modules=["q_proj"])
    with pytest.raises(InvalidParameterError, match=r"'made/base', is not on this machine.*pass base="):
        pyggml.convert(directory, tmp_path / "adapter.gguf")
    adapters.write_peft(tmp_path / "peft", tensors, target_modules=["q_proj"], base_model_name_or_path=str(base))
    assert pyggml.convert(directory, tmp_path / "adapter.gguf").types == {"F32": 4}
    with pytest.raises(ModelLoadError, match="is an adapter itself"):
        pyggml.convert(directory, tmp_path / "again.gguf", base=tmp_path / "adapter.gguf")
    with pytest.raises(ModelNotFoundError):
        pyggml.convert(directory, tmp_path / "again.gguf", base=tmp_path / "nothing.gguf")


def test_options_of_models_are_refused(base: Path, tmp_path: Path) -> None:
    tensors = adapters.matrices(adapters.modules_of(LLAMA, ["q_proj"]))
    directory = adapters.write_peft(tmp_path / "peft", tensors, target_modules=["q_proj"])
    out = tmp_path / "adapter.gguf"
    with pytest.raises(InvalidParameterError, match="an adapter's types are auto, f32, f16, bf16"):
        pyggml.convert(directory, out, "q8_0", base=base)
    with pytest.raises(InvalidParameterError, match="an adapter is not quantised"):
        pyggml.convert(directory, out, keep=["attn"], base=base)
    with pytest.raises(InvalidParameterError, match="base is for LoRA adapters"):
        pyggml.convert(base, out, base=base)


def test_dry_runs_and_progress(base: Path, tmp_path: Path) -> None:
    tensors = adapters.matrices(adapters.modules_of(LLAMA))
    directory, out = adapters.write_peft(tmp_path / "peft", tensors), tmp_path / "adapter.gguf"
    planned = pyggml.convert(directory, out, base=base, dry_run=True)
    assert not out.exists()
    told: list[float] = []
    assert pyggml.convert(directory, out, base=base, progress=told.append) == planned
    assert planned.n_bytes == out.stat().st_size
    assert told == sorted(told)
    assert told[-1] == 1
    out.unlink()
    with pytest.raises(ModelLoadError, match="stopped by its progress callback"):
        pyggml.convert(directory, out, base=base, progress=lambda done: done < 0.5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["peft"]


def test_pickles_and_missing_files(base: Path, tmp_path: Path) -> None:
    tensors = adapters.matrices(adapters.modules_of(LLAMA, ["q_proj"]))
    directory = adapters.write_peft(tmp_path / "peft", tensors, target_modules=["q_proj"])
    weights = directory / "adapter_model.safetensors"
    weights.rename(directory / "adapter_model.bin")
    with pytest.raises(ModelLoadError, match="it can run code"):
        pyggml.convert(directory, tmp_path / "adapter.gguf", base=base)
    (directory / "adapter_model.bin").unlink()
    with pytest.raises(ModelNotFoundError, match=r"no adapter_model\.safetensors"):
        pyggml.convert(directory, tmp_path / "adapter.gguf", base=base)
    checkpoints.write(weights, tensors)
    (directory / "adapter_config.json").unlink()
    with pytest.raises(ModelNotFoundError, match=r"no adapter_config\.json"):
        pyggml.convert(directory, tmp_path / "adapter.gguf", base=base)


def test_damaged_directories_are_refused(base: Path, tmp_path: Path) -> None:
    tensors = adapters.matrices(adapters.modules_of(LLAMA, ["q_proj"]))
    directory = adapters.write_peft(tmp_path / "peft", tensors, target_modules=["q_proj"])
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        content = (directory / name).read_bytes()
        for n in range(0, len(content), max(len(content) // 40, 1)):
            (directory / name).write_bytes(content[:n])
            with pytest.raises(InferError):
                pyggml.convert(directory, tmp_path / "adapter.gguf", base=base)
        (directory / name).write_bytes(content)
    assert not (tmp_path / "adapter.gguf").exists()
    pyggml.convert(directory, tmp_path / "adapter.gguf", base=base)


def test_the_digest_is_that_of_the_content(base: Path, tmp_path: Path) -> None:
    """Not of names, paths or when it was written: it keys cached prefixes."""
    tensors = adapters.matrices(adapters.modules_of(LLAMA, ["q_proj"]))
    digests = []
    for name, settings, scale in (("a", {}, 1), ("b", {}, 1), ("c", {"lora_alpha": 9}, 1), ("d", {}, 2)):
        changed = {key: np.float32(scale) * value for key, value in tensors.items()}
        directory = adapters.write_peft(tmp_path / name, changed, target_modules=["q_proj"], **settings)
        digests.append(convert_adapter(directory, tmp_path / f"{name}.gguf", base).sha256)
    assert digests[0] == digests[1] == check_adapter(tmp_path / "a.gguf", BaseModel.of(base)).sha256
    assert len(set(digests)) == 3


def test_reports_are_json(base: Path, tmp_path: Path) -> None:
    directory = adapters.write_peft(tmp_path / "peft", adapters.matrices(adapters.modules_of(LLAMA)))
    report = convert_adapter(directory, tmp_path / "adapter.gguf", base)
    plain = json.loads(json.dumps(report.to_dict()))
    assert plain["ranks"] == [4]
    assert len(plain["targets"]) == 14
    assert plain["targets"][0] == {
        "name": "blk.0.attn_q.weight",
        "rank": 4,
        "n_experts": 0,
        "type_a": "F32",
        "type_b": "F32",
    }
    assert "attn_q       blocks 0-1" in str(report)
    assert GGMLType[plain["targets"][0]["type_a"]] == GGMLType.F32
