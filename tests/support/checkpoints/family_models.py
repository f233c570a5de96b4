"""A small model of every family, with random weights in its architecture and its vocabulary, or the nearest there is.

Tensor names and shapes are those that the engine asks for (`vendor/llama.cpp/src/models`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from support.checkpoints import models

N_HEAD = 2
N_EXPERT = 4
N_CTX_TRAIN = 256

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4


@dataclass(frozen=True)
class Size:
    """A model's dimensions, with one key head for all."""

    n_layer: int = 2
    n_embd: int = 32
    n_ff: int = 48
    n_head: int = N_HEAD
    n_expert: int = N_EXPERT

    @property
    def head_dim(self) -> int:
        return self.n_embd // self.n_head

    def of(self, names: Sequence[str]) -> tuple[int, ...]:
        """The sizes of these names."""
        return tuple(getattr(self, name) for name in names)


@dataclass(frozen=True)
class Layout:
    """The tensors of an architecture, where they differ from the default.

    Attributes:
        facts: metadata that only this architecture has.
        pre_norms: what attention and feed-forward take is normalised.
        norm_bias: norms have a bias.
        fused_qkv: one tensor makes queries, keys and values.
        qkv_bias: it, or they, have a bias.
        out_bias: so has the output of attention.
        qk_norm: queries and keys are normalised, each head on its own ("head") or all together ("all").
        post_norms: so is what attention and feed-forward give.
        ffn: "gated"; "fused", with gate and up in one; "plain", without a gate; "experts".
        ffn_bias: feed-forward has a bias.
        ffn_norm: what feed-forward takes has a norm of its own.
        output_bias: so have the logits.
        output: "optional", and the embedding where it is left out; "required"; or "tied", always.
        others: further tensors of a block, by shape, as names of sizes.
        min_layers: the fewest blocks that the engine accepts.
        all_key_heads: each query head has a key head of its own.
        n_ff_factor: of the feed-forward width in the metadata to that of its tensors.
    """

    facts: Mapping[str, object] = field(default_factory=dict)
    pre_norms: bool = True
    norm_bias: bool = False
    fused_qkv: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: str = ""
    post_norms: bool = False
    ffn: str = "gated"
    ffn_bias: bool = False
    ffn_norm: bool = True
    output_bias: bool = False
    output: str = "optional"
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    min_layers: int = 1
    all_key_heads: bool = False
    n_ff_factor: int = 1


SMALL = Size()

LAYOUTS = {
    "llama": Layout(),
    "mixtral": Layout(ffn="experts"),
    "mistral3": Layout(),
    "phi2": Layout(
        norm_bias=True,
        qkv_bias=True,
        out_bias=True,
        ffn="plain",
        ffn_bias=True,
        ffn_norm=False,
        output_bias=True,
        output="required",
    ),
    "phi3": Layout(fused_qkv=True, ffn="fused"),
    "qwen": Layout(fused_qkv=True, qkv_bias=True, output="required", all_key_heads=True, n_ff_factor=2),
    "qwen2": Layout(qkv_bias=True),
    "qwen3": Layout(qk_norm="head"),
    "gemma": Layout(output="tied"),
    "gemma2": Layout(post_norms=True, output="tied"),
    "gemma3": Layout(qk_norm="head", post_norms=True),
    "falcon": Layout(norm_bias=True, fused_qkv=True, ffn="plain", ffn_norm=False),
    "stablelm": Layout(norm_bias=True, qkv_bias=True, output="required"),
    "granite": Layout(facts={"logit_scale": 8.0, "residual_scale": 0.22}),
    "olmo2": Layout(pre_norms=False, qk_norm="all", post_norms=True, output="required"),
    "smollm3": Layout(),
    "chatglm": Layout(qkv_bias=True, ffn="fused"),
    "glm4": Layout(qkv_bias=True, post_norms=True, ffn="fused"),
    "command-r": Layout(facts={"logit_scale": 0.0625}, ffn_norm=False, output="tied"),
    "cohere2": Layout(facts={"logit_scale": 0.0625, "attention.sliding_window": 32}, ffn_norm=False, output="tied"),
    "llama4": Layout(
        ffn="experts",
        facts={"interleave_moe_layer_step": 1},
        min_layers=4,  # the engine needs one of those without rotations
        others={
            "ffn_gate_shexp.weight": ("n_ff", "n_embd"),
            "ffn_up_shexp.weight": ("n_ff", "n_embd"),
            "ffn_down_shexp.weight": ("n_embd", "n_ff"),
        },
    ),
    "gpt-oss": Layout(
        qkv_bias=True,
        out_bias=True,
        ffn="experts",
        ffn_norm=False,
        output="required",
        facts={"attention.sliding_window": 32},
        others={
            "post_attention_norm.weight": ("n_embd",),
            "attn_sinks.weight": ("n_head",),
            "ffn_gate_inp.bias": ("n_expert",),
            "ffn_gate_exps.bias": ("n_expert", "n_ff"),
            "ffn_up_exps.bias": ("n_expert", "n_ff"),
            "ffn_down_exps.bias": ("n_expert", "n_embd"),
        },
    ),
    "starcoder2": Layout(norm_bias=True, qkv_bias=True, out_bias=True, ffn="plain", ffn_bias=True),
}


@dataclass(frozen=True)
class Case:
    """One model to make.

    Attributes:
        family: what it must be found to be.
        stop: the tokens that must end it, all of them, in order of preference.
        vocabulary: of the vendored tree.
        architecture: of the file.
        layout: the row of LAYOUTS; None: as the architecture.
        name: ``general.name``.
        rename: tokens of the vocabulary that get another text, and become control tokens.
        append: control tokens behind the others.
        types: tokens that get another type.
        eos: the token that ``eos_token_id`` names.
        template: its chat template.
    """

    family: str
    stop: tuple[str, ...]
    vocabulary: str
    architecture: str = "llama"
    layout: str | None = None
    name: str = "a model"
    rename: Mapping[str, str] = field(default_factory=dict)
    append: tuple[str, ...] = ()
    types: Mapping[str, int] = field(default_factory=dict)
    eos: str | None = None
    template: str | None = None


_GRANITE_TOKENS = {
    "<|endoftext|>": "<|end_of_text|>",
    "<repo_name>": "<|start_of_role|>",
    "<file_sep>": "<|end_of_role|>",
    "<fim_pad>": "<|pad|>",
}
_SMOLLM2_TOKENS = {
    "<fim_prefix>": "<|im_start|>",
    "<fim_middle>": "<|im_end|>",
    "<fim_suffix>": "<repo_name>",
    "<fim_pad>": "<reponame>",
    "<repo_name>": "<filename>",
    "<issue_start>": "<gh_stars>",
}
_R1_LLAMA_TOKENS = {
    "<|begin_of_text|>": "<｜begin▁of▁sentence｜>",
    "<|end_of_text|>": "<｜end▁of▁sentence｜>",
    "<|reserved_special_token_6|>": "<｜User｜>",
    "<|reserved_special_token_7|>": "<｜Assistant｜>",
}
_R1_QWEN_TOKENS = {
    "<|endoftext|>": "<｜end▁of▁sentence｜>",
    "<|im_start|>": "<｜User｜>",
    "<|im_end|>": "<｜Assistant｜>",
    "[PAD151646]": "<｜begin▁of▁sentence｜>",
}
# Besides new names, Gemma 4 has other tool tokens than Gemma 3, by which the engine knows that `</s>` is text.
_GEMMA_TOKENS = {
    "<|turn>": "<start_of_turn>",
    "<turn|>": "<end_of_turn>",
    "<|tool_response>": "<tool_response>",
}

# The engine takes Command-R's padding for one of StarCoder's, all of which it takes for ends.
_COMMAND_R_ENDS = ("<|END_OF_TURN_TOKEN|>", "<EOS_TOKEN>", "<PAD>")
_GLM4_TOKENS = ("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")
_GLM4_ENDS = ("<|user|>", "<|endoftext|>", "<|observation|>")

CASES: dict[str, Case] = {
    "llama 2": Case("llama2", ("</s>",), "llama-spm", name="LLaMA v2"),
    "tinyllama": Case("llama2", ("</s>",), "llama-spm", name="TinyLlama_TinyLlama-1.1B-Chat-v1.0"),
    "llama 3.1": Case(
        "llama3",
        ("<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"),
        "llama-bpe",
        name="Meta-Llama-3.1-8B-Instruct",
        rename={"<|reserved_special_token_4|>": "<|eom_id|>"},
    ),
    "smollm2": Case(
        "smollm2",
        ("<|im_end|>", "<|endoftext|>", "<reponame>"),  # the engine takes what names a repository for an end
        "starcoder",
        name="SmolLM2-135M-Instruct",
        rename=_SMOLLM2_TOKENS,
    ),
    "smollm3": Case(
        "smollm3",
        ("<|im_end|>", "<|end_of_text|>", "<|eot_id|>"),  # it has Llama 3's tokens
        "llama-bpe",
        "smollm3",
        name="SmolLM3-3B",
        rename={"<|reserved_special_token_6|>": "<|im_start|>", "<|reserved_special_token_7|>": "<|im_end|>"},
    ),
    "deepseek r1 llama": Case(
        "deepseek-r1-distill-llama",
        ("<｜end▁of▁sentence｜>", "<|eot_id|>"),
        "llama-bpe",
        name="DeepSeek-R1-Distill-Llama-8B",
        rename=_R1_LLAMA_TOKENS,
    ),
    "deepseek r1 qwen": Case(
        "deepseek-r1-distill-qwen",
        ("<｜end▁of▁sentence｜>",),
        "qwen2",
        "qwen2",
        name="DeepSeek-R1-Distill-Qwen-1.5B",
        rename=_R1_QWEN_TOKENS,
    ),
    "deepseek r1 qwen3": Case(
        "deepseek-r1-distill-qwen3", ("<｜end▁of▁sentence｜>",), "qwen2", "qwen3", rename=_R1_QWEN_TOKENS
    ),
    "mistral": Case("mistral", ("</s>",), "llama-spm", name="mistralai_mistral-7b-instruct-v0.2"),
    "mixtral": Case("mistral", ("</s>",), "llama-spm", layout="mixtral", name="mixtral-8x7b"),
    "ministral 3": Case("mistral", ("</s>",), "llama-spm", "mistral3", append=("[INST]", "[/INST]")),
    "phi 2": Case("phi2", ("<|endoftext|>",), "gpt-2", "phi2"),
    "phi 3": Case("phi3", ("<|end|>", "<|endoftext|>", "</s>"), "phi-3", "phi3"),
    "phi 4 mini": Case(
        "phi4-mini",
        ("<|end|>", "<|endoftext|>"),
        "gpt-2",
        "phi3",
        name="Phi-4-mini-instruct",
        append=("<|end|>", "<|user|>", "<|assistant|>", "<|system|>"),
    ),
    "phi 4": Case(
        "phi4",
        ("<|im_end|>", "<|endoftext|>"),
        "gpt-2",
        "phi3",
        name="Phi 4",
        append=("<|im_start|>", "<|im_end|>", "<|im_sep|>"),
    ),
    "qwen 1": Case("qwen", ("<|im_end|>", "<|endoftext|>"), "qwen2", "qwen"),
    "qwen 2": Case("qwen2", ("<|im_end|>", "<|endoftext|>"), "qwen2", "qwen2"),
    "qwen 3": Case("qwen3", ("<|im_end|>", "<|endoftext|>"), "qwen35", "qwen3"),
    "gemma 1": Case(
        "gemma",
        ("<end_of_turn>", "<eos>"),
        "llama-spm",
        "gemma",
        rename={"<s>": "<bos>", "</s>": "<eos>"},
        append=("<start_of_turn>", "<end_of_turn>"),
    ),
    "gemma 2": Case(
        "gemma",
        ("<end_of_turn>", "<eos>"),
        "llama-spm",
        "gemma2",
        rename={"<s>": "<bos>", "</s>": "<eos>"},
        append=("<start_of_turn>", "<end_of_turn>", "</s>"),
        types={"</s>": USER_DEFINED},  # as its conversions have it
    ),
    "gemma 3": Case("gemma", ("<end_of_turn>", "<eos>"), "gemma-4", "gemma3", rename=_GEMMA_TOKENS),
    "falcon": Case("falcon", ("<|endoftext|>",), "falcon", "falcon"),
    "stablelm": Case("stablelm", ("<|endoftext|>",), "gpt-neox", "stablelm"),
    "yi": Case(
        "yi",
        ("<|im_end|>", "<|endoftext|>"),
        "llama-spm",
        name="Yi-1.5-9B-Chat",
        rename={"<s>": "<|startoftext|>", "</s>": "<|endoftext|>"},
        append=("<|im_start|>", "<|im_end|>", "<|im_sep|>"),
    ),
    "granite 3": Case("granite", ("<|end_of_text|>",), "starcoder", "granite", rename=_GRANITE_TOKENS),
    "olmo 2": Case(
        "olmo2", ("<|endoftext|>", "<|im_end|>"), "gpt-2", "olmo2", append=("<|im_start|>", "<|im_end|>", "<|pad|>")
    ),
    "glm 4, 2024": Case("glm4", _GLM4_ENDS, "gpt-2", "chatglm", append=_GLM4_TOKENS),
    "glm 4, 2025": Case("glm4", _GLM4_ENDS, "gpt-2", "glm4", append=_GLM4_TOKENS),
    "command-r": Case("command-r", _COMMAND_R_ENDS, "command-r", "command-r"),
    "command-r7b": Case("command-r", _COMMAND_R_ENDS, "command-r", "cohere2"),
    "llama 4": Case(
        "llama4",
        ("<|eot|>", "<|end_of_text|>", "<|eom|>"),
        "gpt-2",
        "llama4",
        rename={"<|endoftext|>": "<|end_of_text|>"},
        append=("<|eot|>", "<|eom|>", "<|header_start|>", "<|header_end|>"),
    ),
    "gpt-oss": Case(
        "gpt-oss",
        ("<|return|>", "<|call|>", "<|endoftext|>"),
        "gpt-2",
        "gpt-oss",
        append=(
            "<|return|>",
            "<|constrain|>",
            "<|channel|>",
            "<|start|>",
            "<|end|>",
            "<|message|>",
            "<|call|>",
        ),
    ),
    "starcoder 2": Case("generic", ("<|endoftext|>", "<fim_pad>"), "starcoder", "starcoder2"),
}


def write_case(path: Path, case: Case) -> Path:
    """The model of a case, its output tied to its embedding where its architecture allows that."""
    layout = case.layout or case.architecture
    return write(path, case.architecture, vocabulary_of(case), layout=layout, name=case.name)


def write(
    path: Path,
    architecture: str,
    vocabulary: models.Metadata,
    *,
    layout: str | None = None,
    name: str = "a model",
    tied: bool = True,
    own_output: bool = False,
    size: Size = SMALL,
) -> Path:
    """A model of an architecture.

    Args:
        path: the file to write.
        architecture: of the file.
        vocabulary: its ``tokenizer.*`` metadata.
        layout: the row of LAYOUTS; None: as the architecture.
        name: ``general.name``.
        tied: False: with output weights, the embedding's all the same.
        own_output: with output weights of its own, unless the architecture has none. Otherwise a small model mostly
            repeats its last token.
        size: how large it is.
    """
    shape = LAYOUTS[layout or architecture]
    tokens = vocabulary["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    weights = _weights(shape, size, len(tokens))
    if shape.output == "required" or (shape.output == "optional" and not tied):
        weights["output.weight"] = weights["token_embd.weight"]
    if own_output and shape.output != "tied":
        weights["output.weight"] = models.Draw(1)(len(tokens), size.n_embd)
    facts = {"general.architecture": architecture, "general.name": name, **_hyper_parameters(architecture, shape, size)}
    return models.write(path, {**facts, **vocabulary}, weights)


def vocabulary_of(case: Case) -> dict[str, object]:
    """The ``tokenizer.*`` metadata of a case."""
    vocabulary = models.real_vocabulary(case.vocabulary)
    tokens = [*_texts(vocabulary["tokenizer.ggml.tokens"]), *case.append]
    types = np.array([*_ints(vocabulary["tokenizer.ggml.token_type"]), *[CONTROL] * len(case.append)], np.int32)
    for text in case.rename:
        types[tokens.index(text)] = CONTROL
    n_own = len(tokens) - len(case.append)
    tokens = [case.rename.get(text, text) for text in tokens[:n_own]] + tokens[n_own:]
    for text, kind in case.types.items():
        types[tokens.index(text)] = kind
    vocabulary |= {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}
    if "tokenizer.ggml.scores" in vocabulary:
        scores = [*_floats(vocabulary["tokenizer.ggml.scores"]), *[-1000.0] * len(case.append)]
        vocabulary["tokenizer.ggml.scores"] = np.array(scores, np.float32)
    vocabulary.pop("tokenizer.chat_template", None)
    if case.template is not None:
        vocabulary["tokenizer.chat_template"] = case.template
    if case.eos is not None:
        vocabulary["tokenizer.ggml.eos_token_id"] = tokens.index(case.eos)
    return vocabulary


def small_vocabulary(*special: str) -> dict[str, object]:
    """Bytes and these control tokens, of which the first is eos: a family's vocabulary in miniature."""
    vocabulary = models.byte_vocabulary()
    tokens = vocabulary["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    tokens = [*tokens[:256], "th", *special]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([NORMAL] * 257 + [CONTROL] * len(special), np.int32),
        "tokenizer.ggml.merges": ["t h"],
        "tokenizer.ggml.eos_token_id": 257,
        "tokenizer.ggml.add_bos_token": False,
    }


def _texts(value: object) -> tuple[str, ...]:
    assert isinstance(value, tuple)
    return value


def _ints(value: object) -> list[int]:
    assert isinstance(value, np.ndarray)
    return [int(number) for number in value]


def _floats(value: object) -> list[float]:
    assert isinstance(value, np.ndarray)
    return [float(number) for number in value]


def _hyper_parameters(architecture: str, layout: Layout, size: Size) -> dict[str, object]:
    facts: dict[str, object] = {
        "context_length": N_CTX_TRAIN,
        "embedding_length": size.n_embd,
        "block_count": max(size.n_layer, layout.min_layers),
        "feed_forward_length": size.n_ff * layout.n_ff_factor,
        "attention.head_count": size.n_head,
        "attention.head_count_kv": size.n_head if layout.all_key_heads else 1,
        "attention.key_length": size.head_dim,
        "attention.value_length": size.head_dim,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.layer_norm_epsilon": 1e-5,
        "rope.dimension_count": size.head_dim,
        "rope.freq_base": 10_000.0,
    }
    if layout.ffn == "experts":
        facts |= {"expert_count": size.n_expert, "expert_used_count": 2, "expert_feed_forward_length": size.n_ff}
    return {f"{architecture}.{key}": value for key, value in {**facts, **layout.facts}.items()}


def _weights(layout: Layout, size: Size, n_vocab: int) -> models.Weights:
    draw = models.Draw(0)
    weights = {
        "token_embd.weight": draw(n_vocab, size.n_embd, scale=1.0),
        **_norm(draw, "output_norm", layout, size),
    }
    if layout.output_bias:
        weights["output.bias"] = draw(n_vocab, scale=0.1)
    for i in range(max(size.n_layer, layout.min_layers)):
        weights |= {f"blk.{i}.{name}": data for name, data in _layer(draw, layout, size).items()}
    return weights


def _layer(draw: models.Draw, layout: Layout, size: Size) -> models.Weights:
    weights = _norm(draw, "attn_norm", layout, size) if layout.pre_norms else {}
    if layout.fused_qkv:
        n_kv = size.n_embd if layout.all_key_heads else size.head_dim
        weights |= _linear(draw, "attn_qkv", size.n_embd + 2 * n_kv, size.n_embd, bias=layout.qkv_bias)
    else:
        for name, n_out in (("attn_q", size.n_embd), ("attn_k", size.head_dim), ("attn_v", size.head_dim)):
            weights |= _linear(draw, name, n_out, size.n_embd, bias=layout.qkv_bias)
    weights |= _linear(draw, "attn_output", size.n_embd, size.n_embd, bias=layout.out_bias)
    if layout.qk_norm:
        widths = (
            {"q": size.n_embd, "k": size.head_dim}
            if layout.qk_norm == "all"
            else {"q": size.head_dim, "k": size.head_dim}
        )
        weights |= {f"attn_{which}_norm.weight": draw.near_1(width) for which, width in widths.items()}
    if layout.post_norms:
        weights |= {f"post_{which}_norm.weight": draw.near_1(size.n_embd) for which in ("attention", "ffw")}
    if layout.pre_norms and layout.ffn_norm:
        weights |= _norm(draw, "ffn_norm", layout, size)
    weights |= {name: draw(*size.of(shape), scale=0.1) for name, shape in layout.others.items()}
    return weights | _feed_forward(draw, layout, size)


def _feed_forward(draw: models.Draw, layout: Layout, size: Size) -> models.Weights:
    if layout.ffn == "experts":
        return {
            "ffn_gate_inp.weight": draw(size.n_expert, size.n_embd),
            "ffn_gate_exps.weight": draw(size.n_expert, size.n_ff, size.n_embd),
            "ffn_up_exps.weight": draw(size.n_expert, size.n_ff, size.n_embd),
            "ffn_down_exps.weight": draw(size.n_expert, size.n_embd, size.n_ff),
        }
    n_up = 2 * size.n_ff if layout.ffn == "fused" else size.n_ff
    gate = {"ffn_gate.weight": draw(size.n_ff, size.n_embd)} if layout.ffn == "gated" else {}
    return {
        **gate,
        **_linear(draw, "ffn_up", n_up, size.n_embd, bias=layout.ffn_bias),
        **_linear(draw, "ffn_down", size.n_embd, size.n_ff, bias=layout.ffn_bias),
    }


def _linear(draw: models.Draw, name: str, n_out: int, n_in: int, *, bias: bool) -> models.Weights:
    weights = {f"{name}.weight": draw(n_out, n_in)}
    return weights | ({f"{name}.bias": draw(n_out, scale=0.1)} if bias else {})


def _norm(draw: models.Draw, name: str, layout: Layout, size: Size) -> models.Weights:
    weights = {f"{name}.weight": draw.near_1(size.n_embd)}
    return weights | ({f"{name}.bias": draw(size.n_embd, scale=0.1)} if layout.norm_bias else {})
