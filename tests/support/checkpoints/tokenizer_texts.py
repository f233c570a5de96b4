"""Random texts from the places where tokenizers differ; the same ones each time."""

from __future__ import annotations

import functools
import random
import unicodedata
from collections.abc import Callable, Sequence

# Blanks of all kinds: ASCII, no-break, narrow, ideographic, separators, what vanishes and what joins.
_BLANKS = (
    " \t\n\r\v\f\x1c\x1d\x1e\x1f\x85\u00a0\u1680\u2000\u2002\u2003\u2009\u200a\u200b\u2028\u2029\u202f\u205f\u3000"
    "\u200c\u200d\u2060\ufeff\u00ad"
)
_CONTROLS = "".join(map(chr, [*range(1, 9), *range(14, 28), *range(0x7F, 0xA0)])) + "\u202a\u202e\u2066\ufff9\ufffd"
_MARKS = "\u0300\u0301\u0308\u0327\u0323\u05b0\u064b\u0670\u0e34\u0e48\u093f\u094d\u0bcd\u3099\u20dd\u0489\ufe0f\u1ab0"
_EMOJI = ["😀", "👍🏽", "👩\u200d👩\u200d👧\u200d👦", "🏳️\u200d🌈", "🇩🇪🇫🇷", "1️⃣", "☺️", "👨🏿\u200d🚀", "❤️\u200d🔥", "🫠"]
# fmt: off
_WORDS = (
    "the", "Hello", "world", "don't", "I'LL", "we've", "o'clock", "naïve", "Straße", "İstanbul", "ſ's", "ǅ", "ﬁn", "Ⅷ",
    "½", "x²", "ªº", "CamelCase", "snake_case", "3.14", "1,000", "١٢٣", "१२३", "中文分词", "東京", "かな", "カナ", "ｶﾅ",
    "한국어", "ภาษาไทย", "हिन्दी", "العربية", "עברית", "русский", "Ελληνικά", "Việt", "𝔘𝔫𝔦", "𐍈", "a@b.de", "C++", "\\n",
    "http://a.b/c?d=e&f", "#!/bin/sh", "=>", "!=", "...", "---", "'''", "```py", "<|x|>", "<s>", "[INST]", "{{}}", "▁",
    "▁▁", "Ġ", "Ċ", "<0x0A>", "</s>", "<unk>", "<pad>",
)
# fmt: on


def hard_texts(n: int, added: Sequence[str] = (), seed: int = 0) -> list[str]:
    """Short mixtures, and some with words of hundreds of characters.

    Args:
        n: number of texts.
        added: added tokens to spell out in them, whole, cut short, and with blanks around them.
        seed: another seed gives other texts.
    """
    draw = random.Random(seed)
    makers = _makers(draw, added)
    return ["".join(draw.choice(makers)() for _ in range(draw.randint(1, 9))) for _ in range(n)]


def _makers(draw: random.Random, added: Sequence[str]) -> list[Callable[[], str]]:
    def some(characters: str, most: int) -> str:
        return "".join(draw.choices(characters, k=draw.randint(1, most)))

    def any_script() -> str:
        characters = draw.choice(_blocks())
        return "".join(draw.choices(characters, k=draw.randint(1, 6)))

    def marked() -> str:
        return draw.choice("aeioucnкЖกอकかハ가א") + some(_MARKS, 3)

    def normalized() -> str:
        return unicodedata.normalize(draw.choice(["NFC", "NFD"]), draw.choice(_WORDS) + any_script() + marked())

    def repeated() -> str:
        text: str = draw.choice([*_WORDS, *"aA1 =-\n!\t中é"])
        return text * draw.randint(2, 40)

    def long_word() -> str:
        return some("abcdefghij", 1) * draw.randint(80, 400) if draw.random() < 0.5 else some("abcXYZ'", 300)

    def digits() -> str:
        return some("0123456789", 12) if draw.random() < 0.7 else some("٠١٢३४५６７８９𝟎𝟏²³", 6)

    def spelled() -> str:
        text: str = draw.choice(added)
        if draw.random() < 0.2:
            return text[: draw.randint(1, len(text))]
        return draw.choice(["", " ", "  ", "\n", "\u3000"]) + text + draw.choice(["", " ", "  ", "\n", "\t", "s", text])

    common: list[Callable[[], str]] = [
        *[lambda: draw.choice(_WORDS)] * 5,
        *[lambda: " " + draw.choice(_WORDS)] * 3,
        *[lambda: some(_BLANKS, 4)] * 2,
        lambda: some(" ", 12),
        lambda: some(" \n\r\t", 8),
        *[any_script] * 3,
        marked,
        normalized,
        digits,
        repeated,
        lambda: draw.choice(_EMOJI),
        lambda: some("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", 6),
        lambda: some(_CONTROLS, 3),
    ]
    rare: list[Callable[[], str]] = [long_word]
    return common * 4 + rare + [spelled] * (8 * bool(added))


@functools.cache
def _blocks() -> list[str]:
    """The assigned characters of each 128 code points, so that every script comes up."""
    found: dict[int, list[str]] = {}
    for code in range(0x20, 0x30000):
        if unicodedata.category(chr(code)) not in ("Cn", "Co", "Cs"):
            found.setdefault(code // 128, []).append(chr(code))
    return ["".join(characters) for characters in found.values()]
