"""StableLM 3B, StableLM 2 and StableLM Zephyr."""

from pyggml.families._family import Family

FAMILY = Family(
    name="stablelm",
    title="StableLM",
    stop_tokens=("<|endoftext|>",),
    architectures=("stablelm",),
    model_types=("stablelm", "stablelm_epoch"),
    hf_architectures=("StableLmForCausalLM", "StableLMEpochForCausalLM", "LlavaStableLMEpochForCausalLM"),
    required_tokens=("<|endoftext|>",),
)
