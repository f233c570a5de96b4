"""Phi-1, Phi-1.5 and Phi-2."""

from pyggml.families._family import Family

FAMILY = Family(
    name="phi2",
    title="Phi-1, 1.5 or 2",
    stop_tokens=("<|endoftext|>",),
    architectures=("phi2",),
    model_types=("phi", "phi-msft", "mixformer-sequential"),
    hf_architectures=("PhiForCausalLM", "MixFormerSequentialForCausalLM"),
    required_tokens=("<|endoftext|>",),
)
