"""A Llama as a Hugging Face directory, and what it computes, in numpy from the paper's formulas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from support.checkpoints import checkpoints, models, tokenizer_files

N_VOCAB = 270  # some more than the tokenizer has
Floats = npt.NDArray[np.float32]


@dataclass
class HFLlama:
    """Sizes and weights; change ``config`` or ``weights`` before :meth:`write`."""

    n_embd: int = 64
    n_head: int = 4
    n_head_kv: int = 2
    head_dim: int = 16
    n_ff: int = 96
    n_layer: int = 2
    seed: int = 0
    n_vocab: int = N_VOCAB
    config: dict[str, Any] = field(init=False)
    weights: dict[str, Floats] = field(init=False)

    def __post_init__(self) -> None:
        self.config = {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": self.n_embd,
            "intermediate_size": self.n_ff,
            "num_hidden_layers": self.n_layer,
            "num_attention_heads": self.n_head,
            "num_key_value_heads": self.n_head_kv,
            "head_dim": self.head_dim,
            "vocab_size": self.n_vocab,
            "max_position_embeddings": 256,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10_000.0,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "eos_token_id": models.EOS,
        }
        random = np.random.default_rng(self.seed)

        def draw(*shape: int) -> Floats:
            # as bfloat16 holds them, so that every way of storing them is exact
            return checkpoints.bf16_values(random.standard_normal(shape) / np.sqrt(shape[-1]))

        def near_1() -> Floats:
            return checkpoints.bf16_values(1 + 0.1 * random.standard_normal(self.n_embd))

        self.weights = {
            "model.embed_tokens.weight": checkpoints.bf16_values(random.standard_normal((self.n_vocab, self.n_embd))),
            "model.norm.weight": near_1(),
            "lm_head.weight": draw(self.n_vocab, self.n_embd),
        }
        for i in range(self.n_layer):
            self.weights |= {
                f"model.layers.{i}.input_layernorm.weight": near_1(),
                f"model.layers.{i}.self_attn.q_proj.weight": draw(self.n_head * self.head_dim, self.n_embd),
                f"model.layers.{i}.self_attn.k_proj.weight": draw(self.n_head_kv * self.head_dim, self.n_embd),
                f"model.layers.{i}.self_attn.v_proj.weight": draw(self.n_head_kv * self.head_dim, self.n_embd),
                f"model.layers.{i}.self_attn.o_proj.weight": draw(self.n_embd, self.n_head * self.head_dim),
                f"model.layers.{i}.post_attention_layernorm.weight": near_1(),
                f"model.layers.{i}.mlp.gate_proj.weight": draw(self.n_ff, self.n_embd),
                f"model.layers.{i}.mlp.up_proj.weight": draw(self.n_ff, self.n_embd),
                f"model.layers.{i}.mlp.down_proj.weight": draw(self.n_embd, self.n_ff),
            }

    def write(self, directory: Path, *, stored: str = "F32", n_shards: int = 1) -> Path:
        """The directory, with a tokenizer of bytes."""
        directory.mkdir(parents=True, exist_ok=True)
        tensors: dict[str, Any] = {name: _as_stored(weight, stored) for name, weight in self.weights.items()}
        return self.write_tensors(directory, tensors, n_shards=n_shards)

    def write_tensors(self, directory: Path, tensors: Mapping[str, Any], *, n_shards: int = 1) -> Path:
        """The same with tensors of the caller's making."""
        directory.mkdir(parents=True, exist_ok=True)
        if n_shards == 1:
            checkpoints.write(directory / "model.safetensors", tensors)
        else:
            checkpoints.write_shards(directory, tensors, n_shards)
        (directory / "config.json").write_text(json.dumps(self.config))
        tokenizer_files.write_json(directory, models.byte_vocabulary())
        return directory

    def logits(self, token_ids: list[int], frequencies: npt.NDArray[np.float64] | None = None) -> Floats:
        """Compute the logits: (n_tokens, n_vocab).

        Args:
            token_ids: the prompt.
            frequencies: of the rotations, (head_dim / 2,); None: the plain ones.
        """
        w = {name: weight.astype(np.float64) for name, weight in self.weights.items()}
        if frequencies is None:
            frequencies = self.config["rope_theta"] ** -(np.arange(0, self.head_dim, 2) / self.head_dim)
        angles = np.arange(len(token_ids))[:, None] * np.concatenate([frequencies, frequencies])
        x = w["model.embed_tokens.weight"][token_ids]
        for i in range(self.n_layer):
            x = x + self._attend(w, f"model.layers.{i}.", x, angles)
            x = x + self._feed_forward(w, f"model.layers.{i}.", x)
        output = w["model.embed_tokens.weight"] if self.config["tie_word_embeddings"] else w["lm_head.weight"]
        return np.asarray(self._norm(x, w["model.norm.weight"]) @ output.T, np.float32)

    def _attend(self, w: Mapping[str, Any], block: str, x: Any, angles: Any) -> Any:
        h = self._norm(x, w[f"{block}input_layernorm.weight"])
        n = len(x)
        q, k, v = (
            (h @ w[f"{block}self_attn.{name}_proj.weight"].T).reshape(n, heads, self.head_dim).swapaxes(0, 1)
            for name, heads in (("q", self.n_head), ("k", self.n_head_kv), ("v", self.n_head_kv))
        )
        q, k = _rotated(q, angles), _rotated(k, angles)
        k, v = (np.repeat(each, self.n_head // self.n_head_kv, axis=0) for each in (k, v))
        scores = q @ k.swapaxes(1, 2) / np.sqrt(self.head_dim) + np.triu(np.full((n, n), -np.inf), 1)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (shares / shares.sum(-1, keepdims=True)) @ v
        return mixed.swapaxes(0, 1).reshape(n, -1) @ w[f"{block}self_attn.o_proj.weight"].T

    def _feed_forward(self, w: Mapping[str, Any], block: str, x: Any) -> Any:
        h = self._norm(x, w[f"{block}post_attention_layernorm.weight"])
        gate, up = (h @ w[f"{block}mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        return (gate / (1 + np.exp(-gate)) * up) @ w[f"{block}mlp.down_proj.weight"].T

    def _norm(self, x: Any, weight: Any) -> Any:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + self.config["rms_norm_eps"]) * weight


def _rotated(x: Any, angles: Any) -> Any:
    half = x.shape[-1] // 2
    return x * np.cos(angles) + np.concatenate([-x[..., half:], x[..., :half]], -1) * np.sin(angles)


def _as_stored(weight: Floats, dtype: str) -> Any:
    if dtype == "BF16":
        return checkpoints.bf16(weight)
    return weight.astype({"F32": np.float32, "F16": np.float16}[dtype])
