"""Qwen3, dense and mixture of experts."""

from pyggml.families._family import Family

FAMILY = Family(
    name="qwen3",
    title="Qwen3",
    stop_tokens=("<|im_end|>", "<|endoftext|>"),
    architectures=("qwen3", "qwen3moe"),
    model_types=("qwen3", "qwen3_moe"),
    hf_architectures=("Qwen3ForCausalLM", "Qwen3MoeForCausalLM"),
    required_tokens=("<|im_end|>", "<|endoftext|>"),
)
