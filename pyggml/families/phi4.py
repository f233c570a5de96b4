"""Phi-4, in the layout of a Phi-3 with another vocabulary and another way to talk. Phi-4-mini is in phi3."""

from pyggml.families._family import Family, Signs

FAMILY = Family(
    name="phi4",
    title="Phi-4",
    stop_tokens=("<|im_end|>", "<|endoftext|>"),
    architectures=("phi3",),
    model_types=("phi3",),
    hf_architectures=("Phi3ForCausalLM",),
    required_tokens=("<|im_end|>",),
    signs=Signs(
        tokens=("<|im_sep|>",),
        names=("phi 4", "phi4"),
        template=("<|im_sep|>",),
        n_vocab=(100352,),
    ),
)
