"""Phi-3 and Phi-3.5; and Phi-4-mini, which is made and talks like them, with another vocabulary."""

from dataclasses import replace

from pyggml.families._family import Family, Signs

FAMILY = Family(
    name="phi3",
    title="Phi-3 or 3.5",
    stop_tokens=("<|end|>", "<|endoftext|>"),
    architectures=("phi3", "phimoe"),
    model_types=("phi3", "phimoe"),
    hf_architectures=("Phi3ForCausalLM", "PhiMoEForCausalLM"),
    required_tokens=("<|end|>",),
    signs=Signs(names=("phi 3", "phi3"), n_vocab=(32064,)),
)

PHI4_MINI = replace(
    FAMILY,
    name="phi4-mini",
    title="Phi-4-mini",
    architectures=("phi3",),
    model_types=("phi3",),
    hf_architectures=("Phi3ForCausalLM",),
    signs=Signs(names=("phi 4 mini", "phi4 mini"), n_vocab=(200064,)),
    needs_sign=True,
)
