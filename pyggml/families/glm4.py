"""GLM-4: the chat models of 2024 ("glm", ChatGLM's graph in the engine), and those of 2025 with two more norms."""

from dataclasses import replace

from pyggml.families import _parts
from pyggml.families._family import Family, Variant
from pyggml.families._layout import Layout, Tensor

_BLOCK = "model.layers.{i}."

GLM = Layout(
    "chatglm",
    model_types=("glm",),
    hf_architectures=("GlmForCausalLM",),
    name="GLM",
    tensors=(
        _parts.EMBEDDING,
        _parts.OUTPUT,
        *_parts.NORMS,
        # transformers rotates neighbouring columns, as the engine does here.
        *_parts.attention(qkv_bias="attention_bias", out_bias=None),
        Tensor("blk.{i}.ffn_up.weight", f"{_BLOCK}mlp.gate_up_proj.weight", ("2*n_ff", "n_embd")),
        Tensor("blk.{i}.ffn_down.weight", f"{_BLOCK}mlp.down_proj.weight", ("n_embd", "n_ff")),
    ),
    ignored=_parts.SAVED_TABLES,
    required={"hidden_act": ("silu",)},
    switches={"tie_word_embeddings": False, "attention_bias": True},
    is_head_dim_fixed=True,
)

GLM4 = replace(
    GLM,
    architecture="glm4",
    model_types=("glm4",),
    hf_architectures=("Glm4ForCausalLM",),
    name="GLM-4",
    tensors=(
        *GLM.tensors,
        Tensor("blk.{i}.post_attention_norm.weight", f"{_BLOCK}post_self_attn_layernorm.weight", ("n_embd",)),
        Tensor("blk.{i}.post_ffw_norm.weight", f"{_BLOCK}post_mlp_layernorm.weight", ("n_embd",)),
    ),
    is_head_dim_fixed=False,
)

FAMILY = Family(
    name="glm4",
    title="GLM-4",
    stop_tokens=("<|user|>", "<|endoftext|>", "<|observation|>"),
    builds=(GLM, GLM4),
    required_tokens=("<|endoftext|>", "<|user|>", "<|observation|>"),
    classes=("Glm4",),
    variants=(
        Variant("GLM-4-0414", ("glm 4 9b 0414", "glm 4 32b 0414"), {"architecture": ("glm4",)}),
        Variant("GLM-Z1", ("glm z1",), {"architecture": ("glm4",)}),
        Variant("GLM-4-9B", ("glm 4 9b",), {"architecture": ("chatglm",)}),
    ),
)
