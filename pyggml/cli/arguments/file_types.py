"""The types of weights in files, by the engine's names. Listed here so that help need not load the engine."""

from __future__ import annotations

import click

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

#: The last paragraph of the help of a command that takes a type.
TYPES_EPILOG = f"Types: {', '.join(FILE_TYPES)}."

imatrix_option = click.option(
    "--imatrix", type=click.Path(), metavar="FILE", help="Importance matrix written by `pyggml imatrix`."
)
threads_option = click.option(
    "-t", "--n-threads", type=click.IntRange(1, 512), help="Threads that encode weights. Default: one per core."
)


def type_choice(names: tuple[str, ...]) -> click.Choice[str]:
    """A choice of these names, in upper or lower case."""
    return click.Choice(names, case_sensitive=False)
