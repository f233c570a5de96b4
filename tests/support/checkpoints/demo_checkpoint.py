"""A model of a GGUF file as a Hugging Face checkpoint of floats, for comparisons with other libraries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml import gguf
from pyggml.source import SHIPPED_MODEL
from support.checkpoints import checkpoints, tokenizer_files

_OF_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def write(directory: Path, source: Path = SHIPPED_MODEL) -> Path:
    """Dequantises the weights of a Llama to F32, and writes them with configuration and tokenizer."""
    directory.mkdir(parents=True, exist_ok=True)
    with gguf.GGUFReader(source) as reader:
        metadata = dict(reader.metadata)
        weights = {_name(name): _weight(reader, name, metadata) for name in reader.tensors}
    config = _config(metadata, tied="lm_head.weight" not in weights)
    checkpoints.write(directory / "model.safetensors", weights)
    (directory / "config.json").write_text(json.dumps(config))
    tokenizer_files.write_json(directory, metadata)
    tokens: Any = metadata["tokenizer.ggml.tokens"]
    names = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[config["bos_token_id"]],
        "eos_token": tokens[metadata["tokenizer.ggml.eos_token_id"]],
        "pad_token": tokens[metadata["tokenizer.ggml.eos_token_id"]],
        "chat_template": metadata["tokenizer.chat_template"],
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(names))
    return directory


def _name(name: str) -> str:
    top = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight",
    }
    if name in top:
        return top[name]
    _, layer, part, _ = name.split(".")
    return f"model.layers.{layer}.{_OF_LAYER[part]}.weight"


def _weight(reader: gguf.GGUFReader, name: str, metadata: dict[str, Any]) -> npt.NDArray[np.float32]:
    weight = reader.dequantized(name)
    if ".attn_q." in name:
        return _unpermuted(weight, int(metadata["llama.attention.head_count"]))
    if ".attn_k." in name:
        return _unpermuted(weight, int(metadata["llama.attention.head_count_kv"]))
    return weight


def _unpermuted(weight: npt.NDArray[np.float32], n_head: int) -> npt.NDArray[np.float32]:
    """Rows of each head in the order of transformers, which rotates halves and not neighbours."""
    n_out, n_in = weight.shape
    return np.ascontiguousarray(
        weight.reshape(n_head, n_out // n_head // 2, 2, n_in).swapaxes(1, 2).reshape(n_out, n_in)
    )


def _ends(metadata: dict[str, Any]) -> list[str]:
    """The tokens that end texts and turns, as far as the file names them."""
    return [name for name in ("eos", "eot") if f"tokenizer.ggml.{name}_token_id" in metadata]


def _config(metadata: dict[str, Any], *, tied: bool) -> dict[str, Any]:
    n_head, n_embd = int(metadata["llama.attention.head_count"]), int(metadata["llama.embedding_length"])
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": n_embd,
        "intermediate_size": int(metadata["llama.feed_forward_length"]),
        "num_hidden_layers": int(metadata["llama.block_count"]),
        "num_attention_heads": n_head,
        "num_key_value_heads": int(metadata["llama.attention.head_count_kv"]),
        "head_dim": n_embd // n_head,
        "vocab_size": int(metadata["llama.vocab_size"]),
        "max_position_embeddings": int(metadata["llama.context_length"]),
        "rms_norm_eps": float(metadata["llama.attention.layer_norm_rms_epsilon"]),
        "rope_theta": float(metadata["llama.rope.freq_base"]),
        "hidden_act": "silu",
        "tie_word_embeddings": tied,
        "bos_token_id": int(metadata["tokenizer.ggml.bos_token_id"]),
        "eos_token_id": sorted({int(metadata[f"tokenizer.ggml.{name}_token_id"]) for name in _ends(metadata)}),
        "torch_dtype": "float32",
    }
