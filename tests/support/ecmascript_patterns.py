r"""ECMAScript's regular expressions in Python's syntax, for ``jsonschema``, which takes a ``pattern`` for Python's.

They differ in the characters of classes (Python's ``\s`` has U+0085, and no U+FEFF), in ``.`` and in ``$``, which in
Python also matches before a line end.
"""

from __future__ import annotations

from typing import Any

_SPACES = r"\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_NO_SPACES = (
    r"\x00-\x08\x0e-\x1f!-\x9f\xa1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e\u2060-\u2fff"
    r"\u3001-\ufefe\uff00-\U0010ffff"
)
#: Escape -> the content of a class.
_CLASSES = {
    "d": "0-9",
    "D": r"\x00-/:-\U0010ffff",
    "w": "0-9A-Z_a-z",
    "W": r"\x00-/:-@\[-\^`{-\U0010ffff",
    "s": _SPACES,
    "S": _NO_SPACES,
}
#: Text outside of a class -> Python's.
_REPLACED = {
    "$": r"\Z",
    ".": r"[^\n\r\u2028\u2029]",
    "[^]": r"[\x00-\U0010ffff]",
    "[]": "(?!)",
    "(?<=": "(?<=",
    "(?<!": "(?<!",
    "(?<": "(?P<",
}

#: Keywords whose value has schemas by name, and those whose value has none.
_MAPS = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
_VALUES = {"enum", "const", "default", "examples"}


def python_pattern(pattern: str) -> str:
    """Return the expression in Python's syntax, with the same matches."""
    out: list[str] = []
    is_in_class = False
    i = 0
    while i < len(pattern):
        if pattern[i] == "\\":
            name = pattern[i + 1 : i + 2]
            content = _CLASSES.get(name)
            out.append(f"\\{name}" if content is None else content if is_in_class else f"[{content}]")
            i += 2
        elif is_in_class:
            is_in_class = pattern[i] != "]"
            out.append("\\" * (pattern[i] in "[&~|") + pattern[i])
            i += 1
        else:
            found = next((text for text in _REPLACED if pattern.startswith(text, i)), pattern[i])
            out.append(_REPLACED.get(found, found))
            i += len(found)
            if found == "[":
                is_in_class = True
                if pattern[i : i + 1] == "^":
                    out.append("^")
                    i += 1
    return f"(?a:{''.join(out)})"  # ASCII is for \b


def with_python_patterns(schema: Any) -> Any:
    """Return a copy of a schema in which ``pattern`` and the names of ``patternProperties`` are Python's."""
    if isinstance(schema, list):
        return [with_python_patterns(each) for each in schema]
    return {key: _value(key, value) for key, value in schema.items()} if isinstance(schema, dict) else schema


def _value(keyword: str, value: Any) -> Any:
    if keyword in _VALUES:
        return value
    if keyword == "pattern" and isinstance(value, str):
        return python_pattern(value)
    if keyword in _MAPS and isinstance(value, dict):
        rename = python_pattern if keyword == "patternProperties" else str
        return {rename(name): with_python_patterns(each) for name, each in value.items()}
    return with_python_patterns(value)
