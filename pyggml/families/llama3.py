"""Llama 3, 3.1, 3.2 and 3.3."""

from pyggml.families import llama2
from pyggml.families._family import Family, Signs, Variant
from pyggml.families._meta import META

FAMILY = Family(
    name="llama3",
    title="Llama 3, 3.1, 3.2 or 3.3",
    stop_tokens=("<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"),
    builds=(llama2.LLAMA, META),
    required_tokens=("<|eot_id|>",),
    signs=Signs(
        tokens=("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
        names=("llama 3", "llama3"),
        template=("<|start_header_id|>",),
        n_vocab=(128256,),
    ),
    classes=("Llama31", "Llama"),
    variants=(
        Variant("Llama 3.3", ("llama 3 3",)),
        Variant("Llama 3.2", ("llama 3 2",), {"n_embd": (2048, 3072), "n_ctx": (131072,)}),
        Variant("Llama 3.1", ("llama 3 1",), {"n_embd": (4096, 16384), "n_ctx": (131072,)}),
        Variant("Llama 3.1 or 3.3", (), {"n_embd": (8192,), "n_ctx": (131072,)}),
        Variant("Llama 3", ("llama 3", "llama3"), {"n_ctx": (8192,)}),
    ),
    variant_kind="meta",
)
