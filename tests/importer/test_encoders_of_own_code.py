"""Encoders whose checkpoints came with code of their own, computed here in numpy as their authors describe them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from importer.test_encoders import RECORD, token_vectors, write
from support.checkpoints import checkpoints, models, tokenizer_files

import pyggml
from pyggml.errors import UnsupportedArchitectureError
from pyggml.gguf import GGUFReader

Array = npt.NDArray[Any]
N_EMBD, N_FF, N_HEAD, N_LAYER, N_VOCAB = 64, 96, 4, 2, 320
IDS = np.random.default_rng(7).integers(0, 250, 50)


def drawn(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """The weights of a checkpoint as float32 numbers, which they are written as."""
    tensors = {name: checkpoints.drawn(name, shape) for name, shape in shapes.items()}
    return {name: checkpoints.widened(each) for name, each in tensors.items() if isinstance(each, checkpoints.Stored)}


def imported(folder: Path, config: dict[str, Any], weights: Mapping[str, Array]) -> Array:
    """The token vectors of the imported checkpoint."""
    directory = folder / "hf"
    directory.mkdir()
    checkpoints.write(directory / "model.safetensors", weights)
    (directory / "config.json").write_text(json.dumps(config))
    tokenizer_files.write_json(directory, models.byte_vocabulary())
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
    pyggml.convert(directory, folder / "model.gguf", "f32")
    return token_vectors(folder / "model.gguf", IDS.tolist())


def layer_norm(x: Array, weight: Array, bias: Array) -> Array:
    x = x - x.mean(-1, keepdims=True)
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12) * weight + bias)


def rms_norm(x: Array, weight: Array) -> Array:
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weight)


def attention(q: Array, k: Array, v: Array, bias: Array | float = 0.0) -> Array:
    """Attention in both directions; all are (n_tokens, n_head, head_dim), ``bias`` (n_head, n_tokens, n_tokens)."""
    scores = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[-1]) + bias
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.asarray(np.einsum("hqk,khd->qhd", weights, v).reshape(len(q), -1))


def require_close(found: Array, expected: Array, most: float) -> None:
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= most * expected.std()


def test_jina_bert_v2(tmp_path: Path) -> None:
    layer = "encoder.layer.{}."
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (N_VOCAB, N_EMBD),
        "embeddings.token_type_embeddings.weight": (2, N_EMBD),
        "embeddings.LayerNorm.weight": (N_EMBD,),
        "embeddings.LayerNorm.bias": (N_EMBD,),
        "pooler.dense.weight": (N_EMBD, N_EMBD),
    }
    for i in range(N_LAYER):
        for name, shape in (
            *((f"attention.self.{each}", (N_EMBD, N_EMBD)) for each in ("query", "key", "value")),
            ("attention.output.dense", (N_EMBD, N_EMBD)),
            ("attention.output.LayerNorm", (N_EMBD,)),
            ("mlp.wo", (N_EMBD, N_FF)),
            ("mlp.layernorm", (N_EMBD,)),
        ):
            shapes[f"{layer.format(i)}{name}.weight"] = shape
            shapes[f"{layer.format(i)}{name}.bias"] = (N_EMBD,)
        shapes[f"{layer.format(i)}mlp.gated_layers.weight"] = (2 * N_FF, N_EMBD)
    w = drawn(shapes)
    config = {
        "model_type": "bert",
        "architectures": ["JinaBertModel"],
        "auto_map": {"AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel"},
        "hidden_size": N_EMBD,
        "intermediate_size": N_FF,
        "num_attention_heads": N_HEAD,
        "num_hidden_layers": N_LAYER,
        "vocab_size": N_VOCAB,
        "type_vocab_size": 2,
        "max_position_embeddings": 8192,
        "position_embedding_type": "alibi",
        "feed_forward_type": "geglu",
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "emb_pooler": "mean",
        "attn_implementation": None,
    }
    x = w["embeddings.word_embeddings.weight"][IDS] + w["embeddings.token_type_embeddings.weight"][0]
    x = layer_norm(x, w["embeddings.LayerNorm.weight"], w["embeddings.LayerNorm.bias"])
    slopes = 2.0 ** (-8 * np.arange(1, N_HEAD + 1) / N_HEAD)
    distances = np.abs(np.subtract.outer(np.arange(len(IDS)), np.arange(len(IDS))))
    for i in range(N_LAYER):

        def linear(values: Array, name: str, i: int = i) -> Array:
            name = layer.format(i) + name
            return np.asarray(values @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0))

        def norm(values: Array, name: str, i: int = i) -> Array:
            name = layer.format(i) + name
            return layer_norm(values, w[f"{name}.weight"], w[f"{name}.bias"])

        q, k, v = (
            linear(x, f"attention.self.{each}").reshape(len(IDS), N_HEAD, -1) for each in ("query", "key", "value")
        )
        attended = linear(attention(q, k, v, -slopes[:, None, None] * distances), "attention.output.dense")
        x = norm(attended + x, "attention.output.LayerNorm")
        both = linear(x, "mlp.gated_layers")
        gate = both[:, :N_FF] * 0.5 * (1 + np.vectorize(math.erf)(both[:, :N_FF] / math.sqrt(2)))
        x = norm(linear(gate * both[:, N_FF:], "mlp.wo") + x, "mlp.layernorm")
    require_close(imported(tmp_path, config, w), x, 5e-3)


def test_neobert(tmp_path: Path) -> None:
    n_ff = 64  # two thirds of 96, a multiple of 8
    shapes: dict[str, tuple[int, ...]] = {
        "model.encoder.weight": (N_VOCAB, N_EMBD),
        "model.layer_norm.weight": (N_EMBD,),
        "decoder.weight": (N_VOCAB, N_EMBD),
        "decoder.bias": (N_VOCAB,),
    }
    for i in range(N_LAYER):
        layer = f"model.transformer_encoder.{i}."
        shapes |= {
            f"{layer}qkv.weight": (3 * N_EMBD, N_EMBD),
            f"{layer}wo.weight": (N_EMBD, N_EMBD),
            f"{layer}ffn.w12.weight": (2 * n_ff, N_EMBD),
            f"{layer}ffn.w3.weight": (N_EMBD, n_ff),
            f"{layer}attention_norm.weight": (N_EMBD,),
            f"{layer}ffn_norm.weight": (N_EMBD,),
        }
    w = drawn(shapes)
    config = {
        "model_type": "neobert",
        "architectures": ["NeoBERTLMHead"],
        "auto_map": {"AutoModel": "model.NeoBERT"},
        "hidden_size": N_EMBD,
        "intermediate_size": N_FF,
        "num_attention_heads": N_HEAD,
        "num_hidden_layers": N_LAYER,
        "vocab_size": N_VOCAB,
        "norm_eps": 1e-6,
        "embedding_init_range": 0.02,
        "decoder_init_range": 0.02,
        "max_length": 4096,
        "pad_token_id": 0,
    }
    x = w["model.encoder.weight"][IDS]
    head_dim = N_EMBD // N_HEAD
    angles = np.outer(np.arange(len(IDS)), 10_000.0 ** (-np.arange(0, head_dim, 2) / head_dim))
    turns = np.exp(1j * angles)[:, None]

    def rotated(values: Array) -> Array:
        pairs = values[..., ::2] + 1j * values[..., 1::2]
        done = pairs * turns
        return np.stack([done.real, done.imag], -1).reshape(values.shape)

    for i in range(N_LAYER):
        layer = f"model.transformer_encoder.{i}."
        normed = rms_norm(x, w[f"{layer}attention_norm.weight"])
        q, k, v = np.split((normed @ w[f"{layer}qkv.weight"].T).reshape(len(IDS), N_HEAD, 3 * head_dim), 3, axis=-1)
        x = x + attention(rotated(q), rotated(k), v) @ w[f"{layer}wo.weight"].T
        gate, up = np.split(rms_norm(x, w[f"{layer}ffn_norm.weight"]) @ w[f"{layer}ffn.w12.weight"].T, 2, axis=-1)
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[f"{layer}ffn.w3.weight"].T
    require_close(imported(tmp_path, config, w), rms_norm(x, w["model.layer_norm.weight"]), 1e-4)


def test_nomic_bert_by_its_first_names(tmp_path: Path) -> None:
    """The same weights under the names and keys that the model's own code has."""
    new = write(tmp_path / "new", "nomic-bert")
    pyggml.convert(tmp_path / "new", tmp_path / "new.gguf", "f32")
    with GGUFReader(tmp_path / "new.gguf") as reader:
        weights = {name: reader.dequantized(name) for name in reader.tensors}
    names = {
        "token_embd.weight": "embeddings.word_embeddings.weight",
        "token_types.weight": "embeddings.token_type_embeddings.weight",
        "token_embd_norm.": "emb_ln.",
    }
    blocks = {
        "attn_qkv": "attn.Wqkv",
        "attn_output": "attn.out_proj",
        "attn_output_norm": "norm1",
        "ffn_up": "mlp.fc11",
        "ffn_gate": "mlp.fc12",
        "ffn_down": "mlp.fc2",
        "layer_output_norm": "norm2",
    }
    old: dict[str, Array] = {}
    for i in range(3):
        parts = [weights.pop(f"blk.{i}.attn_{each}.weight", None) for each in "qkv"]
        if parts[0] is not None:  # they were separate
            weights[f"blk.{i}.attn_qkv.weight"] = np.concatenate([part for part in parts if part is not None])
    for name, values in weights.items():
        head, _, rest = name.partition(".")
        if head == "blk":
            number, part, kind = rest.split(".")
            old[f"encoder.layers.{number}.{blocks[part]}.{kind}"] = values
        else:
            old[next(name.replace(ours, theirs) for ours, theirs in names.items() if name.startswith(ours))] = values
    config = {
        "model_type": "nomic_bert",
        "architectures": ["NomicBertModel"],
        "auto_map": {"AutoModel": "modeling_hf_nomic_bert.NomicBertModel"},
        "n_embd": 64,
        "n_inner": 96,
        "n_head": 4,
        "n_layer": 3,
        "n_positions": 8192,
        "max_trained_positions": 2048,
        "vocab_size": 320,
        "type_vocab_size": 2,
        "activation_function": "swiglu",
        "layer_norm_epsilon": new["layer_norm_eps"],
        "rotary_emb_base": new["rope_parameters"]["rope_theta"],
        "rotary_emb_fraction": 1.0,
        "rotary_emb_interleaved": False,
        "rotary_emb_scale_base": None,
        "rotary_scaling_factor": None,
        "qkv_proj_bias": False,
        "mlp_fc1_bias": False,
        "mlp_fc2_bias": False,
        "prenorm": False,
        "causal": False,
        "use_flash_attn": True,
        "fused_bias_fc": True,
        "use_xentropy": True,
        "pad_vocab_size_multiple": 64,
    }
    (tmp_path / "old").mkdir()
    found = imported(tmp_path / "old", config, old)
    ids = RECORD["nomic-bert/ids"][0].tolist()
    assert found.shape == (len(IDS), 64)
    np.testing.assert_allclose(
        token_vectors(tmp_path / "old" / "model.gguf", ids), RECORD["nomic-bert/result"], atol=1e-4
    )
    metadata = models.metadata_of(tmp_path / "old" / "model.gguf")
    assert metadata["nomic-bert.context_length"] == 2048
    for key, value in {"moe_every_n_layers": 2, "rotary_emb_interleaved": True, "qkv_proj_bias": True}.items():
        (tmp_path / "old" / "hf" / "config.json").write_text(json.dumps({**config, key: value}))
        with pytest.raises(UnsupportedArchitectureError, match=key):
            pyggml.convert(tmp_path / "old" / "hf", tmp_path / "refused.gguf")
