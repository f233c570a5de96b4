"""Hints for commands and options of other tools, from the table of hints.

Other libraries' names of parameters (``HINTS`` of the classes of options) work as options, unless the table has a hint
for the option.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from pyggml.options import hints

#: Group of commands -> another name of one of its commands -> its own.
ALIASES = {group: hints(f"alias {group}") for group in ("pyggml", "cache")}


def command_hint(name: str, rest: Sequence[str]) -> str | None:
    """Return the hint for a command of another tool; None if there is none.

    Args:
        name: the command.
        rest: the rest of the command line, which replaces the braces in the hint.
    """
    hint = hints("command").get(name)
    return hint and re.sub(r"\{(.+?)\}", lambda braces: _filled(braces[1], rest), hint)


def option_hints(command: str) -> dict[str, str]:
    """Return the hints for options that a command has under another name, or does not need."""
    return {**hints("option"), **hints(f"option {command}")}


def _filled(placeholder: str, rest: Sequence[str]) -> str:
    if placeholder.startswith("hf:") and rest:
        from pyggml.hub import guess_reference, is_reference

        is_file = len(rest) > 1 and rest[1].endswith(".gguf")  # hf download org/repo model.gguf
        source = ":".join(rest[: 1 + is_file])
        return source if is_reference(source) else guess_reference(source) or placeholder
    return shlex.join(rest) or placeholder
