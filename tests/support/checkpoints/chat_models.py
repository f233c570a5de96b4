"""Models for growing chats, of six families whose memory cannot be rewound, tiny or with the layers of real ones.

The vocabulary has the bytes, and is filled up with tokens that no text has. Only the output rows of letters are not
zero, so every greedy answer is made of letters, and is encoded as it was generated: what a trained model says mostly
is, and random tokens of a large vocabulary are not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml.gguf import GGMLType, GGUFWriter, ValueType
from pyggml.quant import quantize
from support.checkpoints import models

CONTROL, USER_DEFINED, UNUSED = 3, 4, 5
SPECIAL = dict.fromkeys(("<|endoftext|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"), CONTROL)
SPECIAL |= {"<think>": USER_DEFINED, "</think>": USER_DEFINED}
N_CTX_TRAIN = 16_384

_TURN = "{{ '<|' + m.role + '|>\\n' + %s + '<|end|>\\n' }}"
#: Chat templates: answers as they are, and without the reasoning of earlier ones, as Qwen3 has it.
PLAIN = "{% for m in messages %}" + _TURN % "m.content" + "{% endfor %}{{ '<|assistant|>\\n' }}"
THINKING = (
    "{% for m in messages %}"
    "{% set said = m.content.split('</think>')[-1].lstrip('\\n') %}" + _TURN % "said" + "{% endfor %}"
    "{{ '<|assistant|>\\n<think>\\n' }}"
)
TEMPLATES = {"plain": PLAIN, "thinking": THINKING}

Dims = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Shape:
    """Sizes as their GGUF keys name them.

    Attributes:
        facts: metadata that only this architecture has.
        ssm: its ``ssm.*`` metadata: conv_kernel, inner_size, state_size, time_step_rank, group_count.
        n_ff: of experts, if there are any.
    """

    architecture: str
    n_embd: int
    n_layer: int
    n_ff: int
    n_head: int = 0
    n_head_kv: int = 0
    head_dim: int = 0
    n_vocab: int = 288
    n_expert: int = 0
    n_expert_used: int = 0
    ssm: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)


def _ssm(conv_kernel: int, inner_size: int, state_size: int, time_step_rank: int, group_count: int) -> dict[str, int]:
    return {key: value for key, value in locals().items() if value}


TINY = {
    "gemma3": Shape("gemma3", 64, 6, 96, 2, 1, 32, facts={"attention.sliding_window": 64}),
    "gpt-oss": Shape(
        "gpt-oss", 64, 2, 32, 2, 1, 32, n_expert=4, n_expert_used=2, facts={"attention.sliding_window": 64}
    ),
    "mamba": Shape("mamba", 64, 2, 0, ssm=_ssm(4, 128, 16, 4, 0)),
    "falcon-h1": Shape("falcon-h1", 64, 2, 96, 2, 1, 32, ssm=_ssm(4, 64, 16, 4, 1)),
    "qwen3-next": Shape(
        "qwen3next", 64, 4, 32, 2, 1, 32, n_expert=4, n_expert_used=2, ssm=_ssm(4, 64, 16, 4, 2),
        facts={"expert_shared_feed_forward_length": 32, "rope.dimension_count": 16},
    ),
    "qwen35": Shape(
        "qwen35", 64, 4, 96, 2, 1, 32, ssm=_ssm(4, 64, 16, 4, 2),
        facts={"rope.dimension_count": 16, "rope.dimension_sections": np.array([3, 3, 2, 0], np.int32)},
    ),
}  # fmt: skip

#: The layers of Gemma 3 270M, gpt-oss-20b (2 of 24), Mamba 130M, Falcon-H1-0.5B, Qwen3-Next-80B-A3B (4 of 48, with 64
#: of 512 experts) and Qwen3.5-0.8B; all with a vocabulary of 32,768.
REAL = {
    "gemma3": Shape("gemma3", 640, 18, 2048, 4, 1, 256, 32_768, facts={"attention.sliding_window": 512}),
    "gpt-oss": Shape(
        "gpt-oss", 2880, 2, 2880, 64, 8, 64, 32_768, n_expert=32, n_expert_used=4,
        facts={"attention.sliding_window": 128},
    ),
    "mamba": Shape("mamba", 768, 24, 0, n_vocab=32_768, ssm=_ssm(4, 1536, 16, 48, 0)),
    "falcon-h1": Shape("falcon-h1", 1024, 36, 2048, 8, 2, 64, 32_768, ssm=_ssm(4, 1536, 128, 24, 1)),
    "qwen3-next": Shape(
        "qwen3next", 2048, 4, 512, 16, 2, 256, 32_768, n_expert=64, n_expert_used=10, ssm=_ssm(4, 4096, 128, 32, 16),
        facts={"expert_shared_feed_forward_length": 512, "rope.dimension_count": 64},
    ),
    "qwen35": Shape(
        "qwen35", 1024, 24, 3584, 8, 2, 256, 32_768, ssm=_ssm(4, 2048, 128, 16, 16),
        facts={"rope.dimension_count": 64, "rope.dimension_sections": np.array([11, 11, 10, 0], np.int32)},
    ),
}  # fmt: skip


def write(path: Path, shape: Shape, template: str, ftype: GGMLType = GGMLType.F32) -> Path:
    """A model of a shape.

    Args:
        path: the file to write.
        shape: one of TINY or REAL.
        template: its chat template.
        ftype: of its matrices; F32 or Q8_0.
    """
    tensors = _tensors(shape)
    types = {name: ftype if _is_matrix(name, dims) else GGMLType.F32 for name, dims in tensors.items()}
    draw, pool = models.Draw(0), _Pool(ftype)
    with GGUFWriter(path) as writer:
        for key, value in {**_facts(shape), **_vocabulary(shape.n_vocab), "tokenizer.chat_template": template}.items():
            writer.set(key, value, ValueType.STRING if isinstance(value, str) else None)
        for name, dims in tensors.items():
            writer.add_tensor(name, dims, types[name])
        for name, dims in tensors.items():
            if name == "output.weight":
                rows = _output(draw, dims)
                writer.write_tensor(name, rows if ftype == GGMLType.F32 else quantize(rows, ftype))
            elif types[name] == GGMLType.F32:
                writer.write_tensor(name, _floats(draw, name, dims))
            else:
                writer.write_tensor(name, pool(draw, dims))
    return path


class _Pool:
    """Quantised random numbers, of which a matrix is made at once: drawing them all would take minutes."""

    N_BLOCKS = (1 << 18) + 3  # no multiple of the blocks of a row, so that rows differ

    def __init__(self, ftype: GGMLType) -> None:
        self._blocks: npt.NDArray[Any] | None = None
        self._ftype = ftype

    def __call__(self, draw: models.Draw, dims: tuple[int, ...]) -> npt.NDArray[np.uint8]:
        if self._blocks is None:
            numbers = draw(self.N_BLOCKS, 32, scale=0.03)
            self._blocks = np.ascontiguousarray(quantize(numbers, self._ftype)).view(np.uint8).reshape(-1)
        block = len(self._blocks) // self.N_BLOCKS
        shape = (*dims[:-1], dims[-1] // 32 * block)
        start = int(draw.generator.integers(self.N_BLOCKS)) * block
        return np.resize(np.roll(self._blocks, -start), shape)


def _is_matrix(name: str, dims: tuple[int, ...]) -> bool:
    """False for what the engine needs in F32, and for rows that are no whole blocks."""
    in_f32 = ("conv1d", "ssm_a", "ssm_d", "norm", "ffn_gate_inp", "bias")
    return len(dims) > 1 and dims[-1] % 32 == 0 and not any(part in name for part in in_f32)


def _floats(draw: models.Draw, name: str, dims: tuple[int, ...]) -> npt.NDArray[np.float32]:
    if "norm" in name:
        return np.ones(dims, np.float32)
    if name.endswith("ssm_a"):
        return -np.exp(draw(*dims, scale=0.5))
    return draw(*dims, scale=0.1 if len(dims) == 1 else None)


def _output(draw: models.Draw, dims: tuple[int, ...]) -> npt.NDArray[np.float32]:
    rows = np.zeros(dims, np.float32)
    letters = np.frombuffer(b"abcdefgijklmnopqrsuvwxyz", np.uint8)  # no th, which is a token of its own
    rows[letters] = draw(len(letters), dims[1], scale=1.0)
    return rows


def _vocabulary(n_vocab: int) -> dict[str, object]:
    known = models.byte_vocabulary()["tokenizer.ggml.tokens"]
    assert isinstance(known, list)
    tokens = [*known[:256], "th", *SPECIAL]
    unused = [f"<unused{i}>" for i in range(n_vocab - len(tokens))]
    types = [1] * 257 + list(SPECIAL.values()) + [UNUSED] * len(unused)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*tokens, *unused],
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.merges": ["t h"],
        "tokenizer.ggml.eos_token_id": tokens.index("<|end|>"),
        "tokenizer.ggml.add_bos_token": False,
    }


def _facts(shape: Shape) -> dict[str, object]:
    own: dict[str, object] = {
        "context_length": N_CTX_TRAIN,
        "embedding_length": shape.n_embd,
        "block_count": shape.n_layer,
        "feed_forward_length": shape.n_ff,
        "attention.head_count": shape.n_head,
        "attention.head_count_kv": shape.n_head_kv,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }
    if shape.n_head:
        own |= {"attention.key_length": shape.head_dim, "attention.value_length": shape.head_dim}
        own |= {"rope.dimension_count": shape.head_dim, "rope.freq_base": 10_000.0}
    if shape.n_expert:
        own |= {"expert_count": shape.n_expert, "expert_used_count": shape.n_expert_used}
        own |= {"expert_feed_forward_length": shape.n_ff}
    own |= {f"ssm.{key}": value for key, value in shape.ssm.items()} | dict(shape.facts)
    return {
        "general.architecture": shape.architecture,
        "general.name": f"{shape.architecture} with random weights",
        **{f"{shape.architecture}.{key}": value for key, value in own.items()},
    }


# --- tensors, outermost dimension first, as vendor/llama.cpp/src/models asks for them ------------------------------


def _tensors(shape: Shape) -> Dims:
    tensors: Dims = {"token_embd.weight": (shape.n_vocab, shape.n_embd), "output_norm.weight": (shape.n_embd,)}
    tensors["output.weight"] = (shape.n_vocab, shape.n_embd)
    for i in range(shape.n_layer):
        tensors |= {f"blk.{i}.{name}": dims for name, dims in _LAYERS[shape.architecture](shape, i).items()}
    return tensors


def _attention(shape: Shape, n_q_factor: int = 1) -> Dims:
    n_q, n_kv = shape.n_head * shape.head_dim, shape.n_head_kv * shape.head_dim
    return {
        "attn_q.weight": (n_q_factor * n_q, shape.n_embd),
        "attn_k.weight": (n_kv, shape.n_embd),
        "attn_v.weight": (n_kv, shape.n_embd),
        "attn_output.weight": (shape.n_embd, n_q),
    }


def _head_norms(shape: Shape) -> Dims:
    return {"attn_q_norm.weight": (shape.head_dim,), "attn_k_norm.weight": (shape.head_dim,)}


def _feed_forward(shape: Shape, suffix: str = "") -> Dims:
    return {
        f"ffn_gate{suffix}.weight": (shape.n_ff, shape.n_embd),
        f"ffn_up{suffix}.weight": (shape.n_ff, shape.n_embd),
        f"ffn_down{suffix}.weight": (shape.n_embd, shape.n_ff),
    }


def _experts(shape: Shape) -> Dims:
    one = {name: (shape.n_expert, *dims) for name, dims in _feed_forward(shape, "_exps").items()}
    return {"ffn_gate_inp.weight": (shape.n_expert, shape.n_embd), **one}


def _gemma3(shape: Shape, _: int) -> Dims:
    norms = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
    return {
        **{f"{name}.weight": (shape.n_embd,) for name in norms},
        **_attention(shape),
        **_head_norms(shape),
        **_feed_forward(shape),
    }


def _gpt_oss(shape: Shape, _: int) -> Dims:
    attention, experts = _attention(shape), _experts(shape)
    weights = {**attention, **experts}
    biases = {name.replace("weight", "bias"): dims[:-1] for name, dims in weights.items()}
    norms = {"attn_norm.weight": (shape.n_embd,), "post_attention_norm.weight": (shape.n_embd,)}
    return {**norms, **weights, **biases, "attn_sinks.weight": (shape.n_head,)}


def _mamba(shape: Shape, _: int) -> Dims:
    inner, state, rank = (shape.ssm[key] for key in ("inner_size", "state_size", "time_step_rank"))
    return {
        "attn_norm.weight": (shape.n_embd,),
        "ssm_in.weight": (2 * inner, shape.n_embd),
        "ssm_conv1d.weight": (inner, shape.ssm["conv_kernel"]),
        "ssm_conv1d.bias": (inner,),
        "ssm_x.weight": (rank + 2 * state, inner),
        "ssm_dt.weight": (inner, rank),
        "ssm_dt.bias": (inner,),
        "ssm_a": (inner, state),
        "ssm_d": (inner,),
        "ssm_out.weight": (shape.n_embd, inner),
    }


def _falcon_h1(shape: Shape, _: int) -> Dims:
    keys = ("inner_size", "state_size", "time_step_rank", "group_count")
    inner, state, n_heads, n_groups = (shape.ssm[key] for key in keys)
    n_conv = inner + 2 * n_groups * state
    return {
        "attn_norm.weight": (shape.n_embd,),
        "ssm_in.weight": (inner + n_conv + n_heads, shape.n_embd),
        "ssm_conv1d.weight": (n_conv, shape.ssm["conv_kernel"]),
        "ssm_conv1d.bias": (n_conv,),
        "ssm_dt.bias": (n_heads,),
        "ssm_a": (n_heads, 1),
        "ssm_d": (n_heads, 1),
        "ssm_norm.weight": (n_groups, inner // n_groups),
        "ssm_out.weight": (shape.n_embd, inner),
        **_attention(shape),
        "ffn_norm": (shape.n_embd,),
        **_feed_forward(shape),
    }


def _delta_net(shape: Shape, i: int) -> Dims:
    """Linear attention, and full attention in each fourth layer."""
    if i % 4 == 3:
        return {**_attention(shape, n_q_factor=2), **_head_norms(shape)}
    dim, n_v_heads, n_k_heads = (shape.ssm[key] for key in ("state_size", "time_step_rank", "group_count"))
    n_conv = 2 * dim * n_k_heads + dim * n_v_heads
    return {
        "attn_qkv.weight": (n_conv, shape.n_embd),
        "attn_gate.weight": (dim * n_v_heads, shape.n_embd),
        "ssm_conv1d.weight": (n_conv, shape.ssm["conv_kernel"]),
        "ssm_dt.bias": (n_v_heads,),
        "ssm_a": (n_v_heads,),
        "ssm_norm.weight": (dim,),
        "ssm_out.weight": (shape.n_embd, dim * n_v_heads),
    }


def _qwen3_next(shape: Shape, i: int) -> Dims:
    norms = {"attn_norm.weight": (shape.n_embd,), "post_attention_norm.weight": (shape.n_embd,)}
    mixer = _delta_net(shape, i)
    if "ssm_a" in mixer:
        mixer["ssm_ba.weight"] = (2 * shape.ssm["time_step_rank"], shape.n_embd)
    shared = {"ffn_gate_inp_shexp.weight": (shape.n_embd,), **_feed_forward(shape, "_shexp")}
    return {**norms, **mixer, **_experts(shape), **shared}


def _qwen35(shape: Shape, i: int) -> Dims:
    norms = {"attn_norm.weight": (shape.n_embd,), "post_attention_norm.weight": (shape.n_embd,)}
    mixer = _delta_net(shape, i)
    if "ssm_a" in mixer:
        mixer |= {f"ssm_{name}.weight": (shape.ssm["time_step_rank"], shape.n_embd) for name in ("alpha", "beta")}
    return {**norms, **mixer, **_feed_forward(shape)}


_LAYERS: dict[str, Callable[[Shape, int], Dims]] = {
    "gemma3": _gemma3,
    "gpt-oss": _gpt_oss,
    "mamba": _mamba,
    "falcon-h1": _falcon_h1,
    "qwen3next": _qwen3_next,
    "qwen35": _qwen35,
}
