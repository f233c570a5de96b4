"""Yi and Yi-1.5."""

from dataclasses import replace

from pyggml.families import llama2
from pyggml.families._family import Family, Signs, Variant

#: The names in Yi's first checkpoints; later ones use Llama's.
YI = replace(
    llama2.LLAMA,
    model_types=("Yi",),
    hf_architectures=("YiForCausalLM", *llama2.LLAMA.hf_architectures),
    name="Yi",
)

FAMILY = Family(
    name="yi",
    title="Yi",
    stop_tokens=("<|im_end|>", "<|endoftext|>"),
    builds=(llama2.LLAMA, YI),
    required_tokens=("<|im_end|>", "<|endoftext|>"),
    signs=Signs(tokens=("<|startoftext|>",), names=("yi",), n_vocab=(64000,)),
    needs_sign=True,
    classes=("Yi", "Llama"),
    variants=(Variant("Yi-1.5", ("yi 1 5",)), Variant("Yi-Coder", ("yi coder",)), Variant("Yi", ("yi",))),
)
