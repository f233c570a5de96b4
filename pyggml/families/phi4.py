"""Phi-4: the layout of Phi-3 with another vocabulary and chat format. Phi-4-mini is in phi3."""

from pyggml.families import phi3
from pyggml.families._family import Family, Signs, Variant

FAMILY = Family(
    name="phi4",
    title="Phi-4",
    stop_tokens=("<|im_end|>", "<|endoftext|>"),
    builds=(phi3.PHI3,),
    required_tokens=("<|im_end|>",),
    signs=Signs(tokens=("<|im_sep|>",), names=("phi 4", "phi4"), template=("<|im_sep|>",), n_vocab=(100352,)),
    classes=("Phi4",),
    variants=(
        Variant("Phi-4-reasoning", ("phi 4 reasoning",)),
        Variant("Phi-4", ("phi 4", "phi4"), {"n_embd": (5120,)}),
    ),
)
