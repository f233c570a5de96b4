"""Phi-3, Phi-3.5 and Phi-4-mini, which is no Phi-4: it was made and talks like a Phi-3."""

from pyggml.families._family import Family, Signs

FAMILY = Family(
    name="phi3",
    title="Phi-3, Phi-3.5 or Phi-4-mini",
    stop_tokens=("<|end|>", "<|endoftext|>"),
    architectures=("phi3", "phimoe"),
    model_types=("phi3", "phimoe"),
    hf_architectures=("Phi3ForCausalLM", "PhiMoEForCausalLM"),
    required_tokens=("<|end|>",),
    signs=Signs(
        names=("phi 3", "phi3", "phi 3 5", "phi 4 mini"),
        template=("<|end|>",),
        n_vocab=(32064, 200064),
    ),
)
