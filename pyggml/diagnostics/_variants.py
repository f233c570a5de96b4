"""Which model of its family it is. One line for each, read by the code below, which knows none by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyggml.families import GENERIC, Family


@dataclass(frozen=True)
class Traits:
    """What is looked at.

    Attributes:
        names: what the model is called, wherever.
        template: its chat template.
        sizes: by name: "architecture", "n_layer", "n_embd", "n_head_kv", "n_vocab", "n_expert", "n_ctx", "rope_base",
            "is_stretched", "is_grouped".
    """

    names: Iterable[str]
    template: str
    sizes: Mapping[str, object]


@dataclass(frozen=True)
class Variant:
    """A model, or several of one name.

    Attributes:
        title: what it is called.
        families: names of those it is of.
        names: words in a row, one of which its names have: lower case, without punctuation.
        sizes: those that it has and that others of the family have not; each with all of its values.
        template: text that is in its chat template.
    """

    title: str
    families: tuple[str, ...]
    names: tuple[str, ...] = ()
    sizes: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    template: str = ""


#: Of several that fit, the first is taken: by name, then by the template, then by sizes.
VARIANTS = (
    Variant("TinyLlama", ("llama2",), ("tinyllama",), {"n_layer": (22,), "n_embd": (2048,), "n_ctx": (2048,)}),
    Variant("Code Llama", ("llama2",), ("codellama", "code llama"), {"n_ctx": (16384,), "rope_base": (1e6,)}),
    Variant("Vicuna", ("llama2",), ("vicuna",)),
    Variant("OpenLLaMA", ("llama2",), ("open llama", "openllama")),
    Variant(
        "Llama 2", ("llama2",), ("llama 2", "llama2", "llama v2"), {"n_ctx": (4096,), "n_embd": (4096, 5120, 8192)}
    ),
    Variant("Llama 1", ("llama2",), ("llama 1", "llama v1"), {"n_ctx": (2048,), "n_embd": (4096, 5120, 6656, 8192)}),
    Variant("Llama 3.3", ("llama3",), ("llama 3 3",)),
    Variant("Llama 3.2", ("llama3",), ("llama 3 2",), {"n_embd": (2048, 3072), "n_ctx": (131072,)}),
    Variant("Llama 3.1", ("llama3",), ("llama 3 1",), {"n_embd": (4096, 16384), "n_ctx": (131072,)}),
    Variant("Llama 3.1 or 3.3", ("llama3",), (), {"n_embd": (8192,), "n_ctx": (131072,)}),
    Variant("Llama 3", ("llama3",), ("llama 3", "llama3"), {"n_ctx": (8192,)}),
    Variant("SmolLM2", ("smollm2",), ("smollm2",), {"n_ctx": (8192,)}),
    Variant("SmolLM", ("smollm2",), ("smollm",), {"n_ctx": (2048,)}),
    Variant("Mixtral", ("mistral",), ("mixtral",), {"n_expert": (8,)}),
    Variant("Ministral 3", ("mistral",), ("ministral 3",), {"architecture": ("mistral3",)}),
    Variant("Ministral", ("mistral",), ("ministral",)),
    Variant("Codestral", ("mistral",), ("codestral",)),
    Variant("Mathstral", ("mistral",), ("mathstral",)),
    Variant("Devstral", ("mistral",), ("devstral",)),
    Variant("Magistral", ("mistral",), ("magistral",)),
    Variant("Mistral Nemo", ("mistral",), ("mistral nemo",), {"n_embd": (5120,), "n_ctx": (131072, 1024000)}),
    Variant("Mistral Small", ("mistral",), ("mistral small",), {"n_embd": (5120, 6144), "n_ctx": (32768,)}),
    Variant("Mistral Large", ("mistral",), ("mistral large",), {"n_embd": (12288,)}),
    Variant("Mistral 7B", ("mistral",), ("mistral 7b",), {"n_embd": (4096,), "n_layer": (32,), "n_expert": (0,)}),
    Variant("Phi-1.5", ("phi2",), ("phi 1 5",)),
    Variant("Phi-1", ("phi2",), ("phi 1",)),
    Variant("Phi-2", ("phi2",), ("phi 2", "phi2"), {"n_embd": (2560,)}),
    Variant("Phi-1 or 1.5", ("phi2",), (), {"n_embd": (2048,)}),
    Variant("Phi-3.5-MoE", ("phi3",), ("phi 3 5 moe",), {"architecture": ("phimoe",)}),
    Variant("Phi-3.5-mini", ("phi3",), ("phi 3 5",)),
    Variant("Phi-3-medium", ("phi3",), ("phi 3 medium",), {"n_embd": (5120,)}),
    Variant("Phi-3-mini", ("phi3",), ("phi 3 mini",), {"n_embd": (3072,), "n_ctx": (4096,)}),
    Variant("Phi-3-mini or 3.5-mini", ("phi3",), (), {"n_embd": (3072,), "n_ctx": (131072,)}),
    Variant("Phi-4-mini", ("phi4-mini",), ("phi 4 mini", "phi4 mini"), {"n_embd": (3072,)}),
    Variant("Phi-4-reasoning", ("phi4",), ("phi 4 reasoning",)),
    Variant("Phi-4", ("phi4",), ("phi 4", "phi4"), {"n_embd": (5120,)}),
    Variant("Qwen2.5", ("qwen2",), ("qwen2 5", "qwen 2 5"), template="You are Qwen, created by Alibaba Cloud"),
    Variant("QwQ", ("qwen2",), ("qwq",)),
    Variant("Qwen2", ("qwen2",), ("qwen2", "qwen 2"), {"is_grouped": (True,), "n_expert": (0,)}),
    Variant("Qwen1.5", ("qwen2",), ("qwen1 5", "qwen 1 5"), {"is_grouped": (False,)}),
    Variant("Qwen3 mixture of experts", ("qwen3",), ("qwen3 30b", "qwen3 235b"), {"architecture": ("qwen3moe",)}),
    Variant("Qwen3", ("qwen3",), ("qwen3", "qwen 3"), {"architecture": ("qwen3",)}),
    Variant("Gemma 3n", ("gemma",), (), {"architecture": ("gemma3n",)}),
    Variant("Gemma 3", ("gemma",), (), {"architecture": ("gemma3",)}),
    Variant("Gemma 2", ("gemma",), (), {"architecture": ("gemma2",)}),
    Variant("Gemma", ("gemma",), (), {"architecture": ("gemma",)}),
    Variant("StableLM Zephyr", ("stablelm",), ("stablelm zephyr", "stablelm 2 zephyr")),
    Variant("StableLM 2", ("stablelm",), ("stablelm 2",), {"n_vocab": (100352,)}),
    Variant("StableLM 3B", ("stablelm",), ("stablelm 3b",), {"n_vocab": (50304,), "n_embd": (2560,)}),
    Variant("Yi-1.5", ("yi",), ("yi 1 5",)),
    Variant("Yi-Coder", ("yi",), ("yi coder",)),
    Variant("Yi", ("yi",), ("yi",)),
)


def variant_of(family: Family, traits: Traits) -> str:
    """The title of the variant; that of the family where nothing tells which it is; "" where that is not known."""
    if family is GENERIC:
        return ""
    candidates = [variant for variant in VARIANTS if family.name in variant.families]
    text = _words(traits.names)
    for fits in (
        lambda variant: any(f" {name} " in text for name in variant.names),
        lambda variant: variant.template and variant.template in traits.template,
        lambda variant: variant.sizes and _has(traits.sizes, variant.sizes),
    ):
        found = next(filter(fits, candidates), None)
        if found is not None:
            return found.title
    return family.title


def _has(sizes: Mapping[str, object], wanted: Mapping[str, tuple[object, ...]]) -> bool:
    return all(sizes.get(name) in values for name, values in wanted.items())


def _words(names: Iterable[str]) -> str:
    """Names as lower-case words with a space around each."""
    return f" {' '.join(re.findall('[a-z0-9]+', ' '.join(names).lower()))} "
