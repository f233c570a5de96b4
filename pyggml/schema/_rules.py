"""The rules of a grammar: common ones, with their own names, and others, numbered."""

from __future__ import annotations

import re

from pyggml.errors import GrammarError
from pyggml.schema import _gbnf_elements

_MAX_RULES = 100_000

# White space is bounded, so that a model cannot generate it endlessly.
_COMMON = {
    "space": '| " " | "\\n" [ ]{0,20}',
    "char": r'[^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" hex16)',
    "hex16": "[0-9a-ce-fA-CE-F] hex hex hex | [dD] [0-7] hex hex",  # without surrogates
    "hex": "[0-9a-fA-F]",
    "plain": r'[^"\\\x7F\x00-\x1F]',
    "plains": "plain{0,40}",
    "key": r'"\"" char{0,40} "\""',  # key of a member with a free name; pyggml limits its length
    "string": r'"\"" char* "\""',
    "integer": '"-"? ("0" | [1-9] [0-9]{0,14})',
    "number": 'integer ("." [0-9]{1,15})? ([eE] [-+]? [0-9]{1,2})?',
    "boolean": '"true" | "false"',
    "null": '"null"',
}


class Rules:
    """The rules of one grammar, in the order of their definition."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}  # name -> text
        self._names: dict[str, str] = {}  # text of a numbered rule -> its name

    def __str__(self) -> str:
        return "".join(f"{name} ::= {text}\n" for name, text in self._texts.items())

    def define(self, name: str, text: str) -> None:
        """Define or redefine a rule."""
        self._texts[name] = text
        if len(self._texts) > _MAX_RULES:
            raise GrammarError("the JSON schema is too large for a grammar")

    def reserve(self) -> str:
        """Return the name of a rule that will be defined."""
        name = f"s{len(self._texts)}"
        self.define(name, "")
        return name

    def add(self, text: str) -> str:
        """Return the name of the rule with this text; add the rule if there is none."""
        name = self._names.get(text)
        if name is None:
            name = self._names[text] = f"r{len(self._names)}"
            self.define(name, text)
        return name

    def common(self, name: str) -> str:
        """Add a common rule, together with the rules it uses, and return its name."""
        if name not in self._texts:
            self.define(name, _COMMON[name])
            for other in sorted(_COMMON.keys() & re.split("[ (){*]+", _COMMON[name])):
                self.common(other)
        return name

    def ends(self, name: str) -> bool:
        """Return True if a text can match a rule: False if it refers to itself without an end."""
        ending: set[str] = set()
        while name not in ending:
            more = {each for each, text in self._texts.items() if each not in ending and _can_end(text, ending)}
            if not more:
                return False
            ending |= more
        return True

    def repeated(self, item: str, least: int, most: int | None) -> str:
        """Return a rule repeated ``least`` to ``most`` times."""
        return _gbnf_elements.repeated(item, least, most, self.add)

    def separated(self, item: str, least: int, most: int | None) -> str:
        """Return a rule repeated ``least`` to ``most`` times, with commas in between."""
        if most == 0:
            return ""
        more = self.repeated(self.add(f'"," space {item}'), max(0, least - 1), None if most is None else most - 1)
        whole = f"{item} {more}".strip()
        return whole if least > 0 else f"({whole})?"


# Symbols of a rule: literals, classes, names, parentheses, repetitions.
_SYMBOL = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^]\\]|\\.)*\]|[A-Za-z][A-Za-z0-9-]*|[()|*+?]|\{[0-9,]*\}')
_OPTIONAL = re.compile(r"[*?]|\{0[,}]")


def _can_end(text: str, ending: set[str]) -> bool:
    """Return True if a text can match an expression, given the rules that a text can match."""
    # Of each open parenthesis: whether an earlier alternative ends, this one up to its last item, and that item.
    open_groups: list[tuple[bool, bool, bool]] = []
    earlier, before, last = False, True, True
    for symbol in _SYMBOL.findall(text):
        if symbol == "|":
            earlier, before, last = earlier or (before and last), True, True
        elif symbol == "(":
            open_groups.append((earlier, before, last))
            earlier, before, last = False, True, True
        elif symbol == ")":
            group = earlier or (before and last)
            earlier, before, last = open_groups.pop()
            before, last = before and last, group
        elif symbol[0] in "*+?{":
            last = last or _OPTIONAL.match(symbol) is not None
        else:
            before, last = before and last, symbol[0] in '"[' or symbol in ending
    return earlier or (before and last)
