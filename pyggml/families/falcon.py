"""Falcon 7B, 11B, 40B and 180B."""

from pyggml.families._family import Family

FAMILY = Family(
    name="falcon",
    title="Falcon",
    stop_tokens=("<|endoftext|>",),
    architectures=("falcon",),
    model_types=("falcon", "RefinedWeb", "RefinedWebModel"),
    hf_architectures=("FalconForCausalLM", "RWForCausalLM"),
    required_tokens=("<|endoftext|>",),
)
