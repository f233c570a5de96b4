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
    "date": '[12] [0-9]{3} "-" (("01" | "03" | "05" | "07" | "08" | "10" | "12") "-"'
    ' ("0" [1-9] | [12] [0-9] | "3" [01])'
    ' | ("04" | "06" | "09" | "11") "-" ("0" [1-9] | [12] [0-9] | "30") | "02-" ("0" [1-9] | "1" [0-9] | "2" [0-8]))',
    "time": '([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] ("." [0-9]{1,6})?'
    ' ("Z" | [+-] ([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9])',
    "date-time": 'date "T" time',
    "uuid": 'hex{8} "-" hex{4} "-" hex{4} "-" hex{4} "-" hex{12}',
    "label": "[a-z0-9]{1,20}",
    "hostname": 'label ("." label){1,3}',
    "email": 'label ("." label)? "@" hostname',
    "uri": '"https://" hostname ("/" label){0,5}',
    "octet": '[0-9] | [1-9] [0-9] | "1" [0-9] [0-9] | "2" ([0-4] [0-9] | "5" [0-5])',
    "ipv4": 'octet "." octet "." octet "." octet',
    "ipv6": '(hex{1,4} ":"){7} hex{1,4}',
    "duration": '"P" [1-9] [0-9]{0,2} [DW] | "PT" [1-9] [0-9]{0,2} [HMS]',
}
#: The common rules that are formats of strings.
FORMATS = ("date", "time", "date-time", "uuid", "hostname", "email", "uri", "ipv4", "ipv6", "duration")


class Rules:
    """The rules of one grammar, in the order of their definition."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._names: dict[str, str] = {}  # text of a numbered rule -> its name

    def __str__(self) -> str:
        return "".join(f"{name} ::= {text}\n" for name, text in self._texts.items())

    def define(self, name: str, text: str) -> None:
        """Define or redefine a rule."""
        self._texts[name] = text
        if len(self._texts) > _MAX_RULES:
            raise GrammarError("the JSON schema is too large for a grammar")

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
