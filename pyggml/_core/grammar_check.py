"""Check of a grammar without a vocabulary."""

from __future__ import annotations

from pyggml._core import c_calls
from pyggml._core.checks import c_string
from pyggml._core.ffi import lib


def check_grammar(text: str, root: str = "root") -> None:
    """Parse a grammar, and compile its schemas and regular expressions. Runs without the GIL.

    Raises:
        GrammarError: the text is not a grammar with a rule ``root``; the message says where and why.
        InvalidParameterError: the text contains a NUL character or an unpaired surrogate.
    """
    c_calls.call(lib.pyg_grammar_check, c_string("grammar", text), c_string("root", root))
