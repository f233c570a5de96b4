"""Inputs of the probes: the shipped model, the same as a Hugging Face checkpoint, and damaged files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml.gguf import GGUFReader

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from support.checkpoints import checkpoints

Floats = npt.NDArray[np.float32]


def as_checkpoint(model: Path, folder: Path) -> Path:
    """Write a GGUF file of a Llama with a byte-level vocabulary as a Hugging Face directory."""
    folder.mkdir(parents=True, exist_ok=True)
    with GGUFReader(model) as reader:
        metadata = dict(reader.metadata)
        config = _config(metadata)
        heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
        tensors: dict[str, Any] = {}
        for name in reader.tensors:
            weights = reader.dequantized(name)
            kind = name.split(".")[-2]
            if kind in heads:
                weights = _rotation_halves(weights, heads[kind])
            tensors[_published_name(name)] = checkpoints.bf16(weights)
    checkpoints.write(folder / "model.safetensors", tensors)
    _write_json(folder / "config.json", config)
    _write_tokenizer(folder, metadata)
    return folder


def _config(metadata: dict[str, Any]) -> dict[str, Any]:
    def of(key: str) -> Any:
        return metadata[f"llama.{key}"]

    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": of("embedding_length"),
        "intermediate_size": of("feed_forward_length"),
        "num_hidden_layers": of("block_count"),
        "num_attention_heads": of("attention.head_count"),
        "num_key_value_heads": of("attention.head_count_kv"),
        "head_dim": of("rope.dimension_count"),
        "vocab_size": len(metadata["tokenizer.ggml.tokens"]),
        "max_position_embeddings": of("context_length"),
        "rms_norm_eps": of("attention.layer_norm_rms_epsilon"),
        "rope_theta": of("rope.freq_base"),
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": [metadata["tokenizer.ggml.eos_token_id"], metadata["tokenizer.ggml.eot_token_id"]],
    }


def _rotation_halves(weights: Floats, n_head: int) -> Floats:
    """GGUF keeps the two halves of a rotation side by side, checkpoints one after the other; (rows, columns)."""
    n_rows, n_columns = weights.shape
    halves: Floats = weights.reshape(n_head, n_rows // n_head // 2, 2, n_columns).swapaxes(1, 2)
    return halves.reshape(n_rows, n_columns)


def _published_name(name: str) -> str:
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, kind, _ = name.split(".")
    published = {
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
    return f"model.layers.{layer}.{published[kind]}.weight"


def _write_tokenizer(folder: Path, metadata: dict[str, Any]) -> None:
    tokens = metadata["tokenizer.ggml.tokens"]
    special = [i for i, kind in enumerate(metadata["tokenizer.ggml.token_type"]) if kind == 3]
    bos = tokens[metadata["tokenizer.ggml.bos_token_id"]]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    sequence = [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": tokens[i], **flags} for i in special],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": sequence,
            "pair": [*sequence, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {bos: {"id": bos, "ids": [tokens.index(bos)], "tokens": [bos]}},
        },
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in metadata["tokenizer.ggml.merges"]],
        },
    }
    _write_json(folder / "tokenizer.json", tokenizer)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": bos,
        "eos_token": tokens[metadata["tokenizer.ggml.eot_token_id"]],
        "chat_template": metadata["tokenizer.chat_template"],
    }
    _write_json(folder / "tokenizer_config.json", settings)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def broken_files(model: Path, folder: Path) -> list[Path]:
    """Files that are no good models, as downloads, disks and curious people leave them."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = model.read_bytes()
    block_count = whole.index(b"llama.block_count") + len(b"llama.block_count") + 4  # behind the value's type
    contents = {
        "empty": b"",
        "text": b"<html>404: not found</html>\n" * 40,
        "cut in the header": whole[:5000],
        "cut in the weights": whole[: len(whole) // 2],
        "too many tensors": whole[:8] + (2**60).to_bytes(8, "little") + whole[16:],
        "a layer that is not there": whole[:block_count] + (9).to_bytes(4, "little") + whole[block_count + 4 :],
        "no heads": _with_number(whole, b"llama.attention.head_count", 0),
        "wrong width": _with_number(whole, b"llama.embedding_length", 255),
        "heads that do not divide": _with_number(whole, b"llama.attention.head_count_kv", 3),
        "odd rotation": _with_number(whole, b"llama.rope.dimension_count", 63),
        "epsilon that is no number": _with_number(whole, b"llama.attention.layer_norm_rms_epsilon", 0x7FC00000),
    }
    paths = []
    for name, content in contents.items():
        path = folder / f"{name.replace(' ', '-')}.gguf"
        path.write_bytes(content)
        paths.append(path)
    return paths


def _with_number(whole: bytes, key: bytes, number: int) -> bytes:
    """The file with another value of a key whose value is a 32-bit number."""
    start = whole.index(len(key).to_bytes(8, "little") + key) + 8 + len(key) + 4
    return whole[:start] + number.to_bytes(4, "little") + whole[start + 4 :]
