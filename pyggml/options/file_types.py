"""The types of weights that files can be written in, by the engine's names. Nothing here loads the engine."""

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

#: The types that :func:`pyggml.convert` takes.
OUTTYPES = ("auto", *FILE_TYPES)


def file_type(name: str, given: object, known: Iterable[str] = FILE_TYPES) -> str:
    """The engine's name of a type.

    Args:
        name: of the parameter, for messages.
        given: its value, in upper or lower case.
        known: the types that it may be.

    Raises:
        InvalidParameterError: it is none of them; names those that were probably meant.
    """
    text = given.lower() if isinstance(given, str) else ""
    if text in known:
        return text
    raise invalid(f"{name} is {shown(given)}; " + (suggestion(text) or f"choose one of {', '.join(known)}"))


def suggestion(text: str) -> str:
    """A question that names the types that somebody probably meant; "" if none are near."""
    types = types_meant_by(text)
    return f"did you mean {' or '.join(filter(None, [', '.join(types[:-1]), *types[-1:]]))}?" if types else ""


def types_meant_by(text: str) -> list[str]:
    """The types that somebody probably meant: those that begin so, have as many bits, or are spelled much the same.

    "q4" begins four types, "int4", "4bit" and "nf4" say how many bits, and so do "fp16" and "float32".
    """
    text = text.lower().replace("-", "_")
    begun = [type for type in FILE_TYPES if text and type.startswith(text)]
    bits = re.search(r"\d+", text)
    as_wide = [type for type in FILE_TYPES if bits and re.fullmatch(rf"(b?f|q){bits[0]}(_0|_k|_k_m|_k_s)?", type)]
    near = difflib.get_close_matches(text, FILE_TYPES, cutoff=0.7) if "_" in text else []
    return begun or near or as_wide
