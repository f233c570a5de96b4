"""Llama 1 and 2, TinyLlama, and the many models derived from them."""

from pyggml.families import _parts
from pyggml.families._family import Family, Signs, Variant
from pyggml.families._layout import Layout
from pyggml.families._meta import META

#: The layout of every Llama up to 3.3, and of models with the same architecture.
LLAMA = Layout(
    "llama",
    model_types=("llama",),
    hf_architectures=("LlamaForCausalLM", "LLaMAForCausalLM", "LlamaModel"),
    name="Llama",
    tensors=(
        *_parts.COMMON,
        *_parts.attention(
            queries=_parts.paired_queries, keys=_parts.paired_keys, qkv_bias="attention_bias", out_bias="attention_bias"
        ),
        *_parts.gated_feed_forward("mlp_bias"),
    ),
    required={"hidden_act": ("silu",)},
    switches={"tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False},
    rope=_parts.LLAMA_ROPE,
    factors=_parts.DENSE_FACTORS,
)

FAMILY = Family(
    name="llama2",
    title="Llama 1, 2 or TinyLlama",
    stop_tokens=("</s>",),
    builds=(LLAMA, META),
    required_tokens=("</s>",),
    signs=Signs(
        names=("llama", "llama2", "tinyllama", "codellama", "openllama", "open llama", "vicuna", "alpaca"),
        template=("<<SYS>>",),
        n_vocab=(32000, 32016),
    ),
    precedence=1,  # the most likely family for models of this architecture without distinguishing signs
    classes=("Llama",),
    variants=(
        Variant("TinyLlama", ("tinyllama",), {"n_layer": (22,), "n_embd": (2048,), "n_ctx": (2048,)}, kind="tiny"),
        Variant("Code Llama", ("codellama", "code llama"), {"n_ctx": (16384,), "rope_base": (1e6,)}, kind="meta"),
        Variant("Vicuna", ("vicuna",)),
        Variant("OpenLLaMA", ("open llama", "openllama")),
        Variant(
            "Llama 2", ("llama 2", "llama2", "llama v2"), {"n_ctx": (4096,), "n_embd": (4096, 5120, 8192)}, kind="meta"
        ),
        Variant(
            "Llama 1", ("llama 1", "llama v1"), {"n_ctx": (2048,), "n_embd": (4096, 5120, 6656, 8192)}, kind="meta"
        ),
    ),
)
