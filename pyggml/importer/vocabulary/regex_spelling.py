"""A canonical spelling for regular expressions, so that equivalent ones can be compared as text.

Tokenizers write ``(?i:'s)`` where the engine writes ``'[sS]``, order the members of a class differently, and escape
more than needed. :func:`canonical` removes such differences. It knows the part of Oniguruma's syntax that
pre-tokenizers use; an expression with other syntax is not an error, it just equals no other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_MAX_CHARACTERS = 20_000
_MAX_DEPTH = 50

_CHARACTERS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}
_ESCAPES = {character: f"\\{letter}" for letter, character in _CHARACTERS.items()}
_CODE_POINT = re.compile(r"u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]{1,6})\}")
_PROPERTY = re.compile(r"([pP])\{(\^?)(\w+)\}")
_QUANTIFIER = re.compile(r"([?*+]|\{\d*,?\d*\})([?+]?)")
_QUANTIFIERS = {"{1}": "", "{1,1}": "", "{0,}": "*", "{1,}": "+", "{0,1}": "?"}
_OPENING = frozenset("pPuxcCMkgo")  # these begin longer escapes, which were not recognised if they get here
_SPECIAL = frozenset("\\^$.|?*+()[]{}-&")

_LONG_NAMES = {"Letter": "L", "Number": "N", "Punctuation": "P", "Symbol": "S", "Mark": "M"}

# The blank before a word, which "\s+(?!\S)" leaves over, becomes a match of its own with or without "\s+".
_BLANKS, _LAST_BLANK = r"\s+(?!\S)", r"\s+"
# The blanks before a line end include earlier line ends.
_LINE_END, _LINE_ENDS = r"\s*[\n\r]", r"\s*[\n\r]+"


class _UnknownSyntaxError(Exception):
    pass


def canonical(expression: str) -> str:
    """Return the expression in its canonical spelling, or unchanged if its syntax is unknown."""
    try:
        alternatives = _Parser(expression).parse()
    except _UnknownSyntaxError:
        return expression
    alternatives = [_LINE_ENDS if text == _LINE_END else text for text in alternatives]
    if alternatives[-2:] == [_BLANKS, _LAST_BLANK]:
        alternatives.pop()
    return "|".join(alternatives)


class _Parser:
    """A parser that rewrites an expression from left to right."""

    def __init__(self, expression: str) -> None:
        if len(expression) > _MAX_CHARACTERS:
            raise _UnknownSyntaxError
        self._text = expression
        self._at = 0
        self._depth = 0
        self._ignores_case = False

    def parse(self) -> list[str]:
        alternatives = self._alternatives()
        if self._at < len(self._text):
            raise _UnknownSyntaxError
        return alternatives

    def _alternatives(self) -> list[str]:
        found: list[str] = []
        while True:
            found += self._sequence()
            if self._next() != "|":
                return found
            self._at += 1

    def _sequence(self) -> Sequence[str]:
        """The items between two bars; a lone group is replaced by its alternatives."""
        items: list[str] = []
        lone: list[str] | None = None
        while self._next() not in ("", "|", ")"):
            if self._next() == "(":
                opening, alternatives = self._group()
                quantifier = self._quantifier()
                is_lone = not items and opening == "(?:" and not quantifier and self._next() in ("", "|", ")")
                lone = alternatives if is_lone else None
                items.append(f"{opening}{'|'.join(alternatives)}){quantifier}")
            else:
                items.append(self._atom() + self._quantifier())
        return ["".join(items)] if lone is None else lone

    def _group(self) -> tuple[str, list[str]]:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _UnknownSyntaxError
        opening = self._take(re.compile(r"\((\?(i?:|=|!|<=|<!|>))?"))
        outer, self._ignores_case = self._ignores_case, self._ignores_case or opening == "(?i:"
        alternatives = self._alternatives()
        self._ignores_case = outer
        self._take(re.compile(r"\)"))
        self._depth -= 1
        return "(?:" if opening in ("(", "(?i:") else opening, alternatives

    def _atom(self) -> str:
        if self._next() == "[":
            return self._class()
        if self._next() in "^$.":
            return self._take(re.compile("."))
        if self._next() == "\\":
            return self._cased(self._escape())
        if self._next() in "?*+":
            raise _UnknownSyntaxError
        return self._cased(_escaped(self._take(re.compile(".", re.DOTALL))))

    def _class(self) -> str:
        opening = self._take(re.compile(r"\[\^?"))
        members: set[str] = set()
        while self._next() != "]":
            if self._text.startswith(("[", "&&"), self._at):
                raise _UnknownSyntaxError  # classes in classes
            member = self._member()
            if self._next() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                member = f"{member}-{self._member()}"
            members |= {member, *self._other_case(member)}
        self._at += 1
        if len(members) == 1 and opening == "[" and _is_one_atom(member := min(members)):
            return member
        return f"{opening}{''.join(sorted(members))}]"

    def _member(self) -> str:
        return self._escape() if self._next() == "\\" else _escaped(self._take(re.compile(".", re.DOTALL)))

    def _escape(self) -> str:
        self._at += 1
        if match := self._match(_PROPERTY):
            negated = (match[1] == "P") != bool(match[2])
            return f"\\{'P' if negated else 'p'}{{{_LONG_NAMES.get(match[3], match[3])}}}"
        if match := self._match(_CODE_POINT):
            return _escaped(chr(min(int(match[1] or match[2] or match[3], 16), 0x10FFFF)))
        character = self._take(re.compile(".", re.DOTALL))
        if character in _OPENING:
            raise _UnknownSyntaxError
        if character in _CHARACTERS:
            return _escaped(_CHARACTERS[character])
        return f"\\{character}" if character.isalnum() else _escaped(character)

    def _quantifier(self) -> str:
        match = self._match(_QUANTIFIER)
        return _QUANTIFIERS.get(match[1], match[1]) + match[2] if match else ""

    def _cased(self, atom: str) -> str:
        return f"[{''.join(sorted(both))}]" if len(both := {atom, *self._other_case(atom)}) > 1 else atom

    def _other_case(self, atom: str) -> set[str]:
        is_letter = self._ignores_case and len(atom) == 1 and atom.isascii()
        return {atom.lower(), atom.upper()} if is_letter else set()

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return match

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = self._match(pattern)
        if match is None:
            raise _UnknownSyntaxError
        return match[0]


def _escaped(character: str) -> str:
    """A literal character, escaped if needed."""
    if character in _SPECIAL:
        return f"\\{character}"
    return _ESCAPES.get(character, character)


def _is_one_atom(member: str) -> bool:
    return len(member) == 1 or (member.startswith("\\") and "-" not in member[2:])
