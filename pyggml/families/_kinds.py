"""Which class of the factory is for which families. Told here, below the classes, for those who only look at a file."""

from __future__ import annotations

from dataclasses import dataclass

from pyggml.families import (
    deepseek_r1_distill,
    gemma,
    llama2,
    llama3,
    mistral,
    phi2,
    phi3,
    phi4,
    qwen2,
    qwen3,
    smollm2,
    yi,
)
from pyggml.families._family import Family


@dataclass(frozen=True)
class Kind:
    """A class of models, such as :class:`pyggml.Qwen3`.

    Attributes:
        name: of the class.
        factory: the method of :class:`pyggml.Inference` that loads it.
        families: those it may be of; it is for the first before others.
    """

    name: str
    factory: str
    families: tuple[Family, ...]


QWEN3 = Kind("Qwen3", "use_qwen3", (qwen3.FAMILY, deepseek_r1_distill.QWEN3))
PHI3 = Kind("Phi3", "use_phi3", (phi3.FAMILY, phi3.PHI4_MINI))
PHI4 = Kind("Phi4", "use_phi4", (phi4.FAMILY, phi3.PHI4_MINI))
LLAMA = Kind("Llama", "use_llama", (llama2.FAMILY, llama3.FAMILY, deepseek_r1_distill.LLAMA, yi.FAMILY))
LLAMA31 = Kind("Llama31", "use_llama31", (llama3.FAMILY,))
SMOLLM2 = Kind("SmolLM2", "use_smollm2", (smollm2.FAMILY,))
MISTRAL = Kind("Mistral", "use_mistral", (mistral.FAMILY,))
PHI = Kind("Phi", "use_phi", (phi2.FAMILY,))
QWEN2 = Kind("Qwen2", "use_qwen2", (qwen2.FAMILY, deepseek_r1_distill.QWEN2))
GEMMA = Kind("Gemma", "use_gemma", (gemma.FAMILY,))

KINDS = (QWEN3, PHI3, PHI4, LLAMA, LLAMA31, SMOLLM2, MISTRAL, PHI, QWEN2, GEMMA)


def kind_of(family: Family) -> Kind | None:
    """The class that is for a family before others; None: a plain LLM is."""
    fitting = [kind for kind in KINDS if family in kind.families]
    return min(fitting, key=lambda kind: kind.families.index(family), default=None)
