"""Small models with random weights, written to GGUF files: real architectures, nothing learnt.

Weights come from a seeded generator, so that a model is the same in each run. The vocabulary is one of single bytes
with a few special tokens, or a real one out of the vendored engine's collection.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pyggml.gguf import GGMLType, GGUFReader, GGUFWriter, ValueType
from pyggml.options.embedding_profile import EmbeddingProfile
from support.paths import ROOT

VOCABULARIES = ROOT / "vendor" / "llama.cpp" / "models"

Metadata = Mapping[str, object]
Weights = dict[str, npt.NDArray[np.float32]]

# Special tokens of the byte vocabulary, after the 256 bytes.
EOS, EOT, BOS, TH, THE = range(256, 261)
N_BYTE_VOCAB = 261
BYTE_CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"

N_EMBD = 64
N_LAYER = 2
N_HEAD = 2
N_HEAD_KV = 1
N_FF = 96
N_CTX_TRAIN = 512
D_CONV, D_STATE, DT_RANK = 4, 16, 4  # of state-space layers
HEAD_DIM = N_EMBD // N_HEAD
N_T5_BUCKETS = 32  # of relative positions
ROPE_BASE = 10_000.0
RMS_EPS = 1e-5


def byte_vocabulary(*special: str, words: Sequence[str] = ()) -> dict[str, object]:
    """GPT-2 style byte-level BPE with two merges: id 0 to 255 are the bytes themselves.

    More special tokens come last, and before them words that nothing is encoded to.
    """
    words = ["".join(map(_visible, word.encode())) for word in words]
    tokens = [*map(_visible, range(256)), "<|endoftext|>", "<|im_end|>", "<s>", "th", "the", *words, *special]
    types = [1] * 256 + [3] * 3 + [1] * 2 + [1] * len(words) + [3] * len(special)  # normal and control
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.merges": ["t h", "th e"],
        "tokenizer.ggml.bos_token_id": BOS,
        "tokenizer.ggml.eos_token_id": EOS,
        "tokenizer.ggml.eot_token_id": EOT,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.chat_template": BYTE_CHAT_TEMPLATE,
    }


def real_vocabulary(name: str) -> dict[str, object]:
    """The vocabulary of ``ggml-vocab-<name>.gguf``, with the types it is stored in."""
    with GGUFReader(VOCABULARIES / f"ggml-vocab-{name}.gguf") as reader:
        return {key: value for key, value in reader.metadata.items() if key.startswith("tokenizer.")}


def llama_weights(n_vocab: int = N_BYTE_VOCAB, seed: int = 0, n_layer: int = N_LAYER) -> Weights:
    """Weights of a Llama of two layers; the output is tied to the embedding."""
    draw = Draw(seed)
    weights = {"token_embd.weight": draw(n_vocab, N_EMBD, scale=1.0), "output_norm.weight": draw.near_1(N_EMBD)}
    for i in range(n_layer):
        weights |= _attention(draw, i) | _feed_forward(draw, i)
    return weights


def _attention(draw: Draw, i: int) -> Weights:
    return {
        f"blk.{i}.attn_norm.weight": draw.near_1(N_EMBD),
        f"blk.{i}.attn_q.weight": draw(N_HEAD * HEAD_DIM, N_EMBD),
        f"blk.{i}.attn_k.weight": draw(N_HEAD_KV * HEAD_DIM, N_EMBD),
        f"blk.{i}.attn_v.weight": draw(N_HEAD_KV * HEAD_DIM, N_EMBD),
        f"blk.{i}.attn_output.weight": draw(N_EMBD, N_HEAD * HEAD_DIM),
    }


def _feed_forward(draw: Draw, i: int) -> Weights:
    return {
        f"blk.{i}.ffn_norm.weight": draw.near_1(N_EMBD),
        f"blk.{i}.ffn_gate.weight": draw(N_FF, N_EMBD),
        f"blk.{i}.ffn_up.weight": draw(N_FF, N_EMBD),
        f"blk.{i}.ffn_down.weight": draw(N_EMBD, N_FF),
    }


def _state_space(draw: Draw, i: int) -> Weights:
    d_inner = 2 * N_EMBD
    return {
        f"blk.{i}.attn_norm.weight": draw.near_1(N_EMBD),
        f"blk.{i}.ssm_in.weight": draw(2 * d_inner, N_EMBD),
        f"blk.{i}.ssm_conv1d.weight": draw(d_inner, D_CONV),
        f"blk.{i}.ssm_conv1d.bias": draw(d_inner, scale=0.1),
        f"blk.{i}.ssm_x.weight": draw(DT_RANK + 2 * D_STATE, d_inner),
        f"blk.{i}.ssm_dt.weight": draw(d_inner, DT_RANK),
        f"blk.{i}.ssm_dt.bias": draw(d_inner, scale=0.1),
        f"blk.{i}.ssm_a": -np.exp(draw(d_inner, D_STATE, scale=0.5)),
        f"blk.{i}.ssm_d": draw.near_1(d_inner),
        f"blk.{i}.ssm_out.weight": draw(N_EMBD, d_inner),
    }


def write_llama(
    path: Path, vocabulary: Metadata | None = None, *, seed: int = 0, n_layer: int = N_LAYER, **metadata: object
) -> Path:
    """A small Llama.

    Args:
        path: the file to write.
        vocabulary: its ``tokenizer.*`` metadata; None: the byte vocabulary.
        seed: of its weights.
        n_layer: how many layers it has.
        metadata: more ``llama.*`` keys, with ``__`` for dots.
    """
    vocabulary = byte_vocabulary() if vocabulary is None else vocabulary
    facts: dict[str, object] = {
        "general.architecture": "llama",
        "general.name": f"random llama {seed}",
        "llama.context_length": N_CTX_TRAIN,
        "llama.embedding_length": N_EMBD,
        "llama.block_count": n_layer,
        "llama.feed_forward_length": N_FF,
        "llama.attention.head_count": N_HEAD,
        "llama.attention.head_count_kv": N_HEAD_KV,
        "llama.attention.layer_norm_rms_epsilon": RMS_EPS,
        "llama.rope.dimension_count": HEAD_DIM,
        "llama.rope.freq_base": ROPE_BASE,
    }
    facts |= {f"llama.{key.replace('__', '.')}": value for key, value in metadata.items()}
    return write(path, {**facts, **vocabulary}, llama_weights(_n_tokens(vocabulary), seed, n_layer))


def write_mamba(path: Path, seed: int = 0) -> Path:
    """A Mamba of two layers with the byte vocabulary: a recurrent model, whose memory is a state."""
    draw = Draw(seed)
    weights = {
        "token_embd.weight": draw(N_BYTE_VOCAB, N_EMBD, scale=1.0),
        "output_norm.weight": draw.near_1(N_EMBD),
    }
    for i in range(N_LAYER):
        weights |= _state_space(draw, i)
    facts = {
        "general.architecture": "mamba",
        "general.name": f"random mamba {seed}",
        "mamba.context_length": N_CTX_TRAIN,
        "mamba.embedding_length": N_EMBD,
        "mamba.block_count": N_LAYER,
        "mamba.feed_forward_length": 0,
        "mamba.attention.head_count": 0,
        "mamba.attention.layer_norm_rms_epsilon": RMS_EPS,
        **_state_space_facts("mamba"),
    }
    return write(path, {**facts, **byte_vocabulary()}, weights)


def write_jamba(path: Path, seed: int = 0) -> Path:
    """A Jamba of a state-space and an attention layer: a hybrid model, with a memory of both kinds."""
    draw = Draw(seed)
    weights = {
        "token_embd.weight": draw(N_BYTE_VOCAB, N_EMBD, scale=1.0),
        "output_norm.weight": draw.near_1(N_EMBD),
        "blk.0.ssm_dt_norm.weight": draw.near_1(DT_RANK),
        "blk.0.ssm_b_norm.weight": draw.near_1(D_STATE),
        "blk.0.ssm_c_norm.weight": draw.near_1(D_STATE),
        **_state_space(draw, 0),
        **_attention(draw, 1),
        **_feed_forward(draw, 0),
        **_feed_forward(draw, 1),
    }
    facts = {
        "general.architecture": "jamba",
        "general.name": f"random jamba {seed}",
        "jamba.context_length": N_CTX_TRAIN,
        "jamba.embedding_length": N_EMBD,
        "jamba.block_count": 2,
        "jamba.feed_forward_length": N_FF,
        "jamba.attention.head_count": N_HEAD,
        "jamba.attention.head_count_kv": np.array([0, N_HEAD_KV], np.int32),
        "jamba.attention.layer_norm_rms_epsilon": RMS_EPS,
        **_state_space_facts("jamba"),
    }
    return write(path, {**facts, **byte_vocabulary()}, weights)


def write_gemma2(path: Path, seed: int = 0, sliding_window: int = 16) -> Path:
    """A Gemma 2 of two layers, one of which looks back no further than its sliding window."""
    draw = Draw(seed)
    weights = llama_weights(seed=seed)
    for i in range(N_LAYER):
        weights |= {
            f"blk.{i}.post_attention_norm.weight": draw.near_1(N_EMBD),
            f"blk.{i}.post_ffw_norm.weight": draw.near_1(N_EMBD),
        }
    facts = {
        "general.architecture": "gemma2",
        "general.name": f"random gemma {seed}",
        "gemma2.context_length": N_CTX_TRAIN,
        "gemma2.embedding_length": N_EMBD,
        "gemma2.block_count": N_LAYER,
        "gemma2.feed_forward_length": N_FF,
        "gemma2.attention.head_count": N_HEAD,
        "gemma2.attention.head_count_kv": N_HEAD_KV,
        "gemma2.attention.key_length": HEAD_DIM,
        "gemma2.attention.value_length": HEAD_DIM,
        "gemma2.attention.layer_norm_rms_epsilon": RMS_EPS,
        "gemma2.attention.sliding_window": sliding_window,
        "gemma2.attn_logit_softcapping": 50.0,
        "gemma2.final_logit_softcapping": 30.0,
    }
    return write(path, {**facts, **byte_vocabulary()}, weights)


def _state_space_facts(architecture: str) -> dict[str, object]:
    return {
        f"{architecture}.ssm.conv_kernel": D_CONV,
        f"{architecture}.ssm.inner_size": 2 * N_EMBD,
        f"{architecture}.ssm.state_size": D_STATE,
        f"{architecture}.ssm.time_step_rank": DT_RANK,
    }


def write_bert(
    path: Path,
    seed: int = 0,
    *,
    ranks: bool = False,
    n_labels: int = 1,
    n_positions: int = N_CTX_TRAIN,
    profile: EmbeddingProfile | None = None,
    dense: Metadata | None = None,
    **metadata: object,
) -> Path:
    """A BERT of two layers with a real vocabulary and mean pooling: it embeds, and remembers nothing.

    Args:
        path: the file to write.
        seed: of its weights.
        ranks: with a classifier head of a dense layer and an output for each label, instead of pooling.
        n_labels: number of outputs of the head. ``classifier__output_labels`` names them.
        n_positions: tokens that it can read.
        profile: how it embeds.
        dense: arrays of the profile's dense layers.
        metadata: more ``bert.*`` keys.
    """
    vocabulary = real_vocabulary("bert-bge")
    draw = Draw(seed)
    weights = {
        "token_embd.weight": draw(_n_tokens(vocabulary), N_EMBD, scale=1.0),
        "token_types.weight": draw(2, N_EMBD, scale=0.1),
        "position_embd.weight": draw(n_positions, N_EMBD, scale=0.1),
        **draw.norm("token_embd_norm"),
    }
    for i in range(N_LAYER):
        weights |= {
            **draw.linear(f"blk.{i}.attn_q", N_EMBD, N_EMBD),
            **draw.linear(f"blk.{i}.attn_k", N_EMBD, N_EMBD),
            **draw.linear(f"blk.{i}.attn_v", N_EMBD, N_EMBD),
            **draw.linear(f"blk.{i}.attn_output", N_EMBD, N_EMBD),
            **draw.norm(f"blk.{i}.attn_output_norm"),
            **draw.linear(f"blk.{i}.ffn_up", N_FF, N_EMBD),
            **draw.linear(f"blk.{i}.ffn_down", N_EMBD, N_FF),
            **draw.norm(f"blk.{i}.layer_output_norm"),
        }
    if ranks:
        weights |= draw.linear("cls", N_EMBD, N_EMBD) | draw.linear("cls.output", n_labels, N_EMBD)
    facts = {
        "general.architecture": "bert",
        "general.name": f"random bert {seed}",
        "bert.context_length": n_positions,
        "bert.embedding_length": N_EMBD,
        "bert.block_count": N_LAYER,
        "bert.feed_forward_length": N_FF,
        "bert.attention.head_count": N_HEAD,
        "bert.attention.layer_norm_epsilon": 1e-12,
        "bert.attention.causal": False,
        "bert.pooling_type": 4 if ranks else 1,
    }
    facts |= {f"bert.{key.replace('__', '.')}": value for key, value in metadata.items()}
    facts |= {} if profile is None else profile.metadata("bert")
    return write(path, {**facts, **vocabulary, **(dense or {})}, weights)


def write_qwen3_reranker(path: Path, seed: int = 0, **tokenizer: object) -> Path:
    """A Qwen 3 of two layers that says yes or no to a query with a document.

    Args:
        path: the file to write.
        seed: of its weights.
        tokenizer: more ``tokenizer.*`` keys, with ``__`` for dots.
    """
    draw = Draw(seed)
    weights = llama_weights(seed=seed) | {"cls.output.weight": draw(2, N_EMBD)}
    for i in range(N_LAYER):
        weights |= {
            f"blk.{i}.attn_q_norm.weight": draw.near_1(HEAD_DIM),
            f"blk.{i}.attn_k_norm.weight": draw.near_1(HEAD_DIM),
        }
    facts = {
        "general.architecture": "qwen3",
        "general.name": f"random qwen {seed}",
        "qwen3.context_length": N_CTX_TRAIN,
        "qwen3.embedding_length": N_EMBD,
        "qwen3.block_count": N_LAYER,
        "qwen3.feed_forward_length": N_FF,
        "qwen3.attention.head_count": N_HEAD,
        "qwen3.attention.head_count_kv": N_HEAD_KV,
        "qwen3.attention.key_length": HEAD_DIM,
        "qwen3.attention.value_length": HEAD_DIM,
        "qwen3.attention.layer_norm_rms_epsilon": RMS_EPS,
        "qwen3.rope.freq_base": ROPE_BASE,
        "qwen3.pooling_type": 4,
        "qwen3.classifier.output_labels": ["yes", "no"],
    }
    vocabulary = byte_vocabulary() | {f"tokenizer.{key.replace('__', '.')}": value for key, value in tokenizer.items()}
    return write(path, {**facts, **vocabulary}, weights)


def write_t5(path: Path, seed: int = 0, *, decoder: bool = True) -> Path:
    """A T5 of two layers, or its encoder alone, with the byte vocabulary."""
    draw = Draw(seed)
    arch, parts = ("t5", ("enc", "dec")) if decoder else ("t5encoder", ("enc",))
    weights = {"token_embd.weight": draw(N_BYTE_VOCAB, N_EMBD, scale=1.0)}
    for part in parts:
        weights[f"{part}.output_norm.weight"] = draw.near_1(N_EMBD)
        weights[f"{part}.blk.0.attn_rel_b.weight"] = draw(N_T5_BUCKETS, N_HEAD)
        for i, kind in itertools.product(range(N_LAYER), ("attn", "cross_attn") if part == "dec" else ("attn",)):
            weights[f"{part}.blk.{i}.{kind}_norm.weight"] = draw.near_1(N_EMBD)
            weights |= {f"{part}.blk.{i}.{kind}_{name}.weight": draw(N_EMBD, N_EMBD) for name in "qkvo"}
        for i in range(N_LAYER):
            weights |= {
                f"{part}.blk.{i}.ffn_norm.weight": draw.near_1(N_EMBD),
                f"{part}.blk.{i}.ffn_up.weight": draw(N_FF, N_EMBD),
                f"{part}.blk.{i}.ffn_down.weight": draw(N_EMBD, N_FF),
            }
    facts = {
        "general.architecture": arch,
        "general.name": f"random t5 {seed}",
        f"{arch}.context_length": N_CTX_TRAIN,
        f"{arch}.embedding_length": N_EMBD,
        f"{arch}.block_count": N_LAYER,
        f"{arch}.feed_forward_length": N_FF,
        f"{arch}.attention.head_count": N_HEAD,
        f"{arch}.attention.layer_norm_rms_epsilon": RMS_EPS,
        f"{arch}.attention.relative_buckets_count": N_T5_BUCKETS,
    }
    return write(path, {**facts, **byte_vocabulary()}, weights)


def metadata_of(path: Path) -> dict[str, object]:
    """A file's metadata, to be changed and written again."""
    with GGUFReader(path) as reader:
        return dict(reader.metadata)


def write(path: Path, metadata: Metadata, weights: Weights) -> Path:
    """A GGUF file of these."""
    with GGUFWriter(path) as writer:
        for key, value in metadata.items():
            if isinstance(value, (list, tuple)) and not value:
                continue
            writer.set(key, value, ValueType.STRING if isinstance(value, str) else None)
        for name, data in weights.items():
            writer.add_tensor(name, data.shape, GGMLType.F32)
        for name, data in weights.items():
            writer.write_tensor(name, data)
    return path


class Draw:
    """Random weights whose products stay near 1."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def __call__(self, *shape: int, scale: float | None = None) -> npt.NDArray[np.float32]:
        scale = 1 / np.sqrt(shape[-1]) if scale is None else scale
        return (scale * self.generator.standard_normal(shape)).astype(np.float32)

    def near_1(self, n: int) -> npt.NDArray[np.float32]:
        return (1 + self(n, scale=0.1)).astype(np.float32)

    def linear(self, name: str, n_out: int, n_in: int) -> Weights:
        return {f"{name}.weight": self(n_out, n_in), f"{name}.bias": self(n_out, scale=0.1)}

    def norm(self, name: str) -> Weights:
        return {f"{name}.weight": self.near_1(N_EMBD), f"{name}.bias": self(N_EMBD, scale=0.1)}


def _n_tokens(vocabulary: Metadata) -> int:
    tokens = vocabulary["tokenizer.ggml.tokens"]
    assert isinstance(tokens, (list, tuple))
    return len(tokens)


_SHOWN = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
_STAND_INS = {byte: chr(256 + i) for i, byte in enumerate(b for b in range(256) if b not in _SHOWN)}


def _visible(byte: int) -> str:
    """The character that stands for a byte in GPT-2 vocabularies: itself where it shows, else one from 256 on."""
    return _STAND_INS.get(byte) or chr(byte)
