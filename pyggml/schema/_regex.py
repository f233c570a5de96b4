"""Conversion of regular expressions to grammars for the texts, or the JSON strings, that match them."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from typing import Any

from pyggml.schema._gbnf_elements import AddRule, Ranges, any_of, char_class, repeated

if sys.version_info >= (3, 11):
    from re import _constants as sre_constants  # type: ignore[attr-defined]
    from re import _parser as sre_parse  # type: ignore[attr-defined]
else:
    import sre_constants
    import sre_parse

sre: Any = sre_constants

_LAST = 0x10FFFF
# The characters that a JSON string contains unescaped, and the escapes for others.
_PLAIN: Ranges = [(0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7E), (0x80, 0xD7FF), (0xE000, _LAST)]
_ESCAPES = {'"': '"', "\\": "\\", "\n": "n", "\t": "t", "\r": "r", "\b": "b", "\f": "f"}

# Categories within ASCII only: validators disagree about the rest of Unicode.
_ASCII: Ranges = [(0, 0x7F)]
_CATEGORIES: dict[Any, Ranges] = {
    sre.CATEGORY_DIGIT: [(0x30, 0x39)],
    sre.CATEGORY_WORD: [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)],
    sre.CATEGORY_SPACE: [(0x09, 0x0D), (0x20, 0x20)],
}
_NOT_CATEGORIES: dict[Any, Any] = {
    sre.CATEGORY_NOT_DIGIT: sre.CATEGORY_DIGIT,
    sre.CATEGORY_NOT_WORD: sre.CATEGORY_WORD,
    sre.CATEGORY_NOT_SPACE: sre.CATEGORY_SPACE,
}
_NOT_SPACE_EITHER: Ranges = [(0x1C, 0x1F)]  # Python calls these spaces, others do not

# Python reads POSIX's [[:alpha:]] as a set of these characters and a bracket. Name -> the same in Python's syntax.
_POSIX_CLASSES = {
    "alnum": "[a-zA-Z0-9]", "alpha": "[a-zA-Z]", "ascii": r"[\x00-\x7f]", "blank": r"[ \t]",
    "cntrl": r"[\x00-\x1f\x7f]", "digit": "[0-9]", "graph": r"[\x21-\x7e]", "lower": "[a-z]", "print": r"[\x20-\x7e]",
    "punct": r"[!-/:-@\[-`{-~]", "space": r"\s", "upper": "[A-Z]", "word": r"\w", "xdigit": "[0-9a-fA-F]",
}  # fmt: skip
_POSIX_CLASS = re.compile(rf"(?<!\\)\[:(\^?)({'|'.join(_POSIX_CLASSES)}):\]")
#: The message about flags, of the whole pattern or of a group.
FLAGS = r"a grammar cannot express a pattern with flags: write [yY] in place of (?i)y, and (.|\n) in place of (?s)."


def parsed(pattern: str) -> Any:
    """Return the nodes of a pattern, as Python's own parser does.

    Raises:
        ValueError: the pattern is not a valid regular expression, or has flags or classes of POSIX.
    """
    if (posix := _POSIX_CLASS.search(pattern)) is not None:
        same = _POSIX_CLASSES[posix[2]]
        if posix[1]:
            same = same.upper() if same[0] == "\\" else f"[^{same[1:]}"
        raise ValueError(f"patterns are in Python's syntax, which has no {posix[0]}: write {same}")
    try:
        tree: Any = sre_parse.parse(pattern)
    except Exception as error:  # Python's parser raises various errors, such as RecursionError
        raise ValueError(f"the pattern is not a valid regular expression: {error}") from None
    if tree.state.flags & ~sre.SRE_FLAG_UNICODE:
        raise ValueError(FLAGS)
    return tree


def lengths(pattern: str, *, whole: bool) -> tuple[int, float]:
    """Return bounds of the lengths of texts that match a pattern, in characters.

    Raises:
        ValueError: as :func:`parsed`.
    """
    nodes = parsed(pattern)
    if not nodes:
        return 0, 0 if whole else math.inf
    shortest, longest = nodes.getwidth()
    is_whole = whole or (nodes[0] == (sre.AT, sre.AT_BEGINNING) and nodes[-1] == (sre.AT, sre.AT_END))
    return shortest, longest if is_whole else math.inf


def pattern_rule(
    pattern: str, add_rule: AddRule, chars: Callable[[Ranges], str] | None = None, *, whole: bool = False
) -> str:
    """Convert a pattern to a grammar expression for the inside of the JSON strings that it matches.

    As in JSON schema, the pattern may match anywhere unless it is anchored with ``^`` and ``$``. If ``whole``, it must
    match from start to end. ``chars`` returns an expression for one character: :func:`string_chars`, the default, or
    :func:`text_chars`.

    Raises:
        ValueError: the pattern is not a valid regular expression, or contains assertions, for which see
            :mod:`pyggml.schema._text_automaton`.
    """
    return _Converter(add_rule, chars or string_chars).sequence([*parsed(pattern)], whole=whole)


class _Converter:
    def __init__(self, add_rule: AddRule, chars: Callable[[Ranges], str]) -> None:
        self._add_rule = add_rule
        self._chars = chars

    def sequence(self, nodes: list[Any], *, whole: bool) -> str:
        if len(nodes) == 1 and nodes[0][0] is sre.BRANCH:
            return any_of([self.sequence([*branch], whole=whole) for branch in nodes[0][1][1]])
        begins = bool(nodes) and nodes[0] in ((sre.AT, sre.AT_BEGINNING), (sre.AT, sre.AT_BEGINNING_STRING))
        nodes = nodes[begins:]
        ends = bool(nodes) and nodes[-1] in ((sre.AT, sre.AT_END), (sre.AT, sre.AT_END_STRING))
        nodes = nodes[: len(nodes) - ends]
        inside = self._sequence(nodes)
        if whole or (begins and ends):
            return inside
        anything = self._add_rule(f"{self._add_rule(self._chars([(0, _LAST)]))}*")
        return " ".join([*([] if begins else [anything]), inside, *([] if ends else [anything])])

    def _sequence(self, nodes: Any) -> str:
        return " ".join(map(self._node, nodes)) or '""'

    def _node(self, node: Any) -> str:
        kind, value = node
        if kind in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
            return self._chars(ranges_of(node))
        if kind is sre.BRANCH:
            return any_of([self._sequence(branch) for branch in value[1]])
        if kind is sre.SUBPATTERN and not value[1] and not value[2]:
            return f"({self._sequence(value[3])})"
        if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            least, most, body = value
            most = None if most == sre.MAXREPEAT else most
            return f"({repeated(self._add_rule(self._sequence(body)), least, most, self._add_rule)})"
        what = "an anchor inside the pattern" if kind is sre.AT else str(kind).lower().replace("_", " ")
        raise ValueError(f"the pattern uses {what}, which a grammar cannot express")


def ranges_of(node: Any) -> Ranges:
    kind, value = node
    if kind is sre.LITERAL:
        return [(value, value)]
    if kind is sre.NOT_LITERAL:
        return _minus([(0, _LAST)], [(value, value)])
    if kind is sre.ANY:
        return _minus([(0, _LAST)], [(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)])
    if kind is sre.RANGE:
        return [value]
    if kind is sre.CATEGORY:
        if value in _CATEGORIES:
            return _CATEGORIES[value]
        return _minus(_ASCII, _CATEGORIES[_NOT_CATEGORIES[value]] + _NOT_SPACE_EITHER)
    assert kind is sre.IN
    negated = value[0][0] is sre.NEGATE
    items = value[negated:]
    inside = [one for item in items for one in ranges_of(item)]
    if not negated:
        return inside
    whole = _ASCII if any(item[0] is sre.CATEGORY for item in items) else [(0, _LAST)]
    return _minus(whole, inside + (_NOT_SPACE_EITHER if whole is _ASCII else []))


def _minus(whole: Ranges, without: Ranges) -> Ranges:
    for low, high in without:
        kept = [(first, min(last, low - 1)) for first, last in whole if first < low]
        whole = kept + [(max(first, high + 1), last) for first, last in whole if last > high]
    return sorted(whole)


def string_chars(ranges: Ranges) -> str:
    """Return an expression for one character within ``ranges``, as written in a JSON string.

    Raises:
        ValueError: a JSON string cannot contain any of them.
    """
    plain = common(ranges, _PLAIN)
    escapes = [escape for char, escape in _ESCAPES.items() if any(low <= ord(char) <= high for low, high in ranges)]
    alternatives = [char_class(plain)] if plain else []
    if escapes:
        alternatives.append('"\\\\" ' + char_class(sorted((ord(escape), ord(escape)) for escape in escapes)))
    if not alternatives:
        raise ValueError("the pattern requires a character that a JSON string cannot contain")
    return any_of(alternatives)


def text_chars(ranges: Ranges) -> str:
    """Return an expression for one character within ``ranges``, as written in a text."""
    found = common(ranges, TEXT_CHARACTERS)
    if not found:
        raise ValueError("the pattern requires a character that a text cannot contain")
    return char_class(found)


#: The characters that :func:`string_chars` and :func:`text_chars` have expressions for.
STRING_CHARACTERS: Ranges = [*_PLAIN, *((ord(char), ord(char)) for char in _ESCAPES)]
TEXT_CHARACTERS: Ranges = [(1, 0xD7FF), (0xE000, _LAST)]


def common(some: Ranges, others: Ranges) -> Ranges:
    """Return the ranges of the code points that are in both."""
    pairs = [(max(a, c), min(b, d)) for a, b in some for c, d in others]
    return sorted((low, high) for low, high in pairs if low <= high)
