"""Model families: what makes a generation end where it should. One declaration per file, no special cases elsewhere.

:func:`of_model`, :func:`of_gguf` and :func:`of_config` say of which family a model is. To add a family, add a file with
its declaration and name it in :data:`FAMILIES`.
"""

from __future__ import annotations

from pyggml.families import (
    deepseek_r1_distill,
    falcon,
    gemma,
    generic,
    llama2,
    llama3,
    mistral,
    phi2,
    phi3,
    phi4,
    qwen2,
    qwen3,
    smollm2,
    stablelm,
    yi,
)
from pyggml.families._detect import Detector, Match
from pyggml.families._family import Family, Signs
from pyggml.families._kinds import KINDS, Kind, kind_of
from pyggml.families._stop import STOP_TOKEN_IDS, stop_tokens

__all__ = [
    "FAMILIES",
    "GENERIC",
    "KINDS",
    "STOP_TOKEN_IDS",
    "Family",
    "Kind",
    "Match",
    "Signs",
    "kind_of",
    "of_config",
    "of_gguf",
    "of_model",
    "stop_tokens",
]

#: Of families that fit a model equally well, the first is taken.
FAMILIES: tuple[Family, ...] = (
    llama2.FAMILY,
    llama3.FAMILY,
    smollm2.FAMILY,
    deepseek_r1_distill.LLAMA,
    deepseek_r1_distill.QWEN2,
    deepseek_r1_distill.QWEN3,
    mistral.FAMILY,
    phi2.FAMILY,
    phi3.FAMILY,
    phi3.PHI4_MINI,
    phi4.FAMILY,
    qwen2.FAMILY,
    qwen3.FAMILY,
    gemma.FAMILY,
    falcon.FAMILY,
    stablelm.FAMILY,
    yi.FAMILY,
)

#: For everything else.
GENERIC: Family = generic.FAMILY

_DETECTOR = Detector(FAMILIES, GENERIC)
of_model = _DETECTOR.of_model
of_gguf = _DETECTOR.of_gguf
of_config = _DETECTOR.of_config
