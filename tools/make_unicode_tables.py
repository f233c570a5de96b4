"""Write csrc/regex/syntax/unicode_tables.cpp: properties and case of characters, for regular expressions.

Reads the properties from the packages ``regex`` and ``fonttools`` (names of scripts), which must be installed:
``python tools/make_unicode_tables.py``.
"""

from __future__ import annotations

import importlib
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from fontTools.unicodedata import Scripts

TARGET = pathlib.Path(__file__).parents[1] / "csrc" / "regex" / "syntax" / "unicode_tables.cpp"
regex: Any = importlib.import_module("regex")  # csrc/regex has the same name for type checkers

N_CODE_POINTS = 0x110000
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+-"

CATEGORIES = {
    "Lu": "Uppercase_Letter",
    "Ll": "Lowercase_Letter",
    "Lt": "Titlecase_Letter",
    "Lm": "Modifier_Letter",
    "Lo": "Other_Letter",
    "Mn": "Nonspacing_Mark",
    "Mc": "Spacing_Mark",
    "Me": "Enclosing_Mark",
    "Nd": "Decimal_Number;digit",
    "Nl": "Letter_Number",
    "No": "Other_Number",
    "Pc": "Connector_Punctuation",
    "Pd": "Dash_Punctuation",
    "Ps": "Open_Punctuation",
    "Pe": "Close_Punctuation",
    "Pi": "Initial_Punctuation",
    "Pf": "Final_Punctuation",
    "Po": "Other_Punctuation",
    "Sm": "Math_Symbol",
    "Sc": "Currency_Symbol",
    "Sk": "Modifier_Symbol",
    "So": "Other_Symbol",
    "Zs": "Space_Separator",
    "Zl": "Line_Separator",
    "Zp": "Paragraph_Separator",
    "Cc": "Control;cntrl",
    "Cf": "Format",
    "Cs": "Surrogate",
    "Co": "Private_Use",
    "Cn": "Unassigned",
}
BINARY = {
    "Alphabetic": "Alpha",
    "ASCII_Hex_Digit": "AHex",
    "Cased": "",
    "Dash": "",
    "Default_Ignorable_Code_Point": "DI",
    "Diacritic": "Dia",
    "Emoji": "",
    "Emoji_Component": "EComp",
    "Emoji_Modifier": "EMod",
    "Emoji_Modifier_Base": "EBase",
    "Emoji_Presentation": "EPres",
    "Extended_Pictographic": "ExtPict",
    "Hex_Digit": "Hex",
    "ID_Continue": "IDC",
    "ID_Start": "IDS",
    "Ideographic": "Ideo",
    "Lowercase": "Lower",
    "Math": "",
    "Noncharacter_Code_Point": "NChar",
    "Quotation_Mark": "QMark",
    "Regional_Indicator": "RI",
    "Unified_Ideograph": "UIdeo",
    "Uppercase": "Upper",
    "Variation_Selector": "VS",
    "White_Space": "space",
    "XID_Continue": "XIDC",
    "XID_Start": "XIDS",
}
ALL_CHARS = "".join(map(chr, range(N_CODE_POINTS)))


def encoded(value: int) -> str:
    """Five bits per character, the lowest first; 32 is added while more follow."""
    text = ""
    while value >= 32:
        text += DIGITS[value % 32 + 32]
        value //= 32
    return text + DIGITS[value]


def ranges_of(condition: str) -> Iterator[tuple[int, int]]:
    for match in regex.finditer(f"[{condition}]+", ALL_CHARS):
        yield match.start(), match.end() - 1


def encoded_ranges(ranges: Iterable[tuple[int, int]]) -> str:
    """Gaps before ranges, and their lengths less one, by turns."""
    text, end = "", 0
    for low, high in ranges:
        text += encoded(low - end) + encoded(high - low)
        end = high + 1
    return text


def literal(text: str) -> str:
    """A C++ string in lines of 120 columns."""
    return "\n".join(f'     "{text[i : i + 113]}"' for i in range(0, max(len(text), 1), 113))


def table(name: str, rows: Mapping[str, Iterable[tuple[int, int]]]) -> str:
    lines = [f'    {{"{names}",\n{literal(encoded_ranges(ranges))}}},' for names, ranges in rows.items()]
    return f"const UnicodeProperty {name}[] = {{\n" + "\n".join(lines) + "\n    {nullptr, nullptr},\n};\n"


def scripts(prefix: str, keep: Callable[[str, list[tuple[int, int]]], bool]) -> Mapping[str, Iterable[tuple[int, int]]]:
    rows = {}
    for short, long in Scripts.NAMES.items():
        try:
            ranges = list(ranges_of(rf"\p{{{prefix}={long}}}"))
        except regex.error:
            continue
        if ranges and keep(long, ranges):
            rows[f"{long};{short}"] = ranges
    return rows


def fold(char: str) -> str:
    """The simple case folding of a character."""
    for folded in (char.casefold(), char.lower()):
        if len(folded) == 1:
            return folded
    return char


def encoded_case() -> str:
    """Runs of characters that differ from their folded ones by the same number: gap, length - 1, step, difference."""
    pairs = [(ord(c), ord(fold(c)) - ord(c)) for c in ALL_CHARS if not 0xD800 <= ord(c) <= 0xDFFF and fold(c) != c]
    runs: list[list[int]] = []  # start, last, step, difference
    for code_point, difference in pairs:
        last = runs[-1] if runs else [0, 0, 0, 0]
        step = code_point - last[1]
        if runs and last[3] == difference and step in (1, 2) and last[2] in (0, step):
            last[1], last[2] = code_point, step
        else:
            runs.append([code_point, code_point, 0, difference])
    text, end = "", 0
    for start, last_one, step, difference in runs:
        zigzag = difference * 2 if difference >= 0 else -difference * 2 - 1
        text += encoded(start - end) + encoded((last_one - start) // (step or 1)) + encoded(step or 1) + encoded(zigzag)
        end = last_one + 1
    return text


def main() -> None:
    categories = {
        f"{short};{long}": ranges_of(rf"\p{{General_Category={short}}}") for short, long in CATEGORIES.items()
    }
    binary = {f"{long};{short}".rstrip(";"): ranges_of(rf"\p{{{long}}}") for long, short in BINARY.items()}
    of_script = {name.split(";")[0]: list(ranges) for name, ranges in scripts("Script", lambda *_: True).items()}
    text = f"""// Unicode's properties and simple case folding. Written by tools/make_unicode_tables.py.
#include "regex/syntax/unicode_tables.hpp"

// clang-format off

namespace pyg {{

{table("UNICODE_CATEGORIES", categories)}
{table("UNICODE_BINARY_PROPERTIES", binary)}
{table("UNICODE_SCRIPTS", scripts("Script", lambda *_: True))}
{table("UNICODE_SCRIPT_EXTENSIONS", scripts("Script_Extensions", lambda name, found: of_script.get(name) != found))}
const char UNICODE_CASE[] =
{literal(encoded_case())};

}}  // namespace pyg
"""
    TARGET.write_text(text)


if __name__ == "__main__":
    main()
