"""File types: the engine's names of the types of weights. This module does not load the engine."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from pyggml._core.checks import invalid, shown

#: Ordered by size, largest first.
FILE_TYPES = (
    *("f32", "f16", "bf16"),
    *("q8_0", "q6_k", "q5_k_m", "q5_k_s", "q5_1", "q5_0"),
    *("q4_k_m", "q4_k_s", "q4_1", "q4_0", "iq4_nl", "iq4_xs", "nvfp4", "mxfp4_moe"),
    *("q3_k_l", "q3_k_m", "q3_k_s", "iq3_m", "iq3_s", "iq3_xs", "iq3_xxs"),
    *("q2_k", "q2_k_s", "q2_0", "iq2_m", "iq2_s", "iq2_xs", "iq2_xxs", "tq2_0"),
    *("tq1_0", "iq1_m", "iq1_s", "q1_0"),
)

#: Types to suggest: they need no importance matrix. From most exact to smallest.
NO_IMATRIX_TYPES = ("bf16", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "q3_k_m", "q2_k")

#: The types that :func:`pyggml.convert` takes.
OUTTYPES = ("auto", *FILE_TYPES)


def file_type(name: str, given: object, known: Iterable[str] = FILE_TYPES) -> str:
    """Return the engine's name of a type given in upper or lower case, the value of the parameter ``name``.

    Args:
        name: the parameter's name, for messages.
        given: the type.
        known: the types that are allowed.

    Raises:
        InvalidParameterError: it is not one of ``known``; suggests similar ones.
    """
    text = given.lower() if isinstance(given, str) else ""
    if text in known:
        return text
    raise invalid(f"{name} is {shown(given)}; " + (suggestion(text) or f"choose one of {', '.join(known)}"))


def suggestion(text: str) -> str:
    """A question that suggests similar types; "" if there are none.

    Args:
        text: the text that is no type.
    """
    types = similar_types(text)
    return f"did you mean {' or '.join(filter(None, [', '.join(types[:-1]), *types[-1:]]))}?" if types else ""


def similar_types(text: str) -> list[str]:
    """Types that a text probably stands for: those with the same beginning, a similar spelling, or as many bits.

    "q4" is the beginning of four types; "int4", "4bit", "nf4", "fp16" and "float32" contain the number of bits.

    Args:
        text: the text that is no type.
    """
    text = text.lower().replace("-", "_")
    with_prefix = [type for type in FILE_TYPES if text and type.startswith(text)]
    bits = re.search(r"\d+", text)
    of_width = [type for type in FILE_TYPES if bits and re.fullmatch(rf"(b?f|q){bits[0]}(_0|_k|_k_m|_k_s)?", type)]
    near = difflib.get_close_matches(text, FILE_TYPES, cutoff=0.7) if "_" in text else []
    return with_prefix or near or of_width
