r"""How a byte-level vocabulary cuts text into words, as a ``tokenizer.json`` says it and as the engine names it.

The engine has its ways of cutting built in, under names (``tokenizer.ggml.pre``). Here stands which regular expressions
each name stands for, as tokenizers write them; a tokenizer is recognised by what its pre-tokenizer does, and never by
whose it is. Where the engine's own expression is another one, it cuts some texts differently, and the entry says which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pyggml.errors import TokenizerError
from pyggml.importer.vocabulary.regex_spelling import canonical


@dataclass(frozen=True)
class WordCut:
    """How the engine cuts text into words.

    Attributes:
        name: for ``tokenizer.ggml.pre``.
        inexact: None, or what makes it cut some texts differently from the tokenizer.
    """

    name: str
    inexact: str | None = None


@dataclass(frozen=True)
class _Known:
    """A way of cutting that the engine has.

    Attributes:
        name: for ``tokenizer.ggml.pre``.
        steps: expressions; each cuts further what those before it left.
        ignores_merges: a word that is a token is not put together.
        inexact: what is cut differently.
    """

    name: str
    steps: tuple[str, ...]
    ignores_merges: bool = False
    inexact: str | None = None


# --- the expressions, as tokenizers write them ----------------------------------------------------------------

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DIGIT, _DIGITS, _DIGITS_BY_3 = r"\p{N}", r"\p{N}+", r"\p{N}{1,3}"
_PUNCTUATION = r"[\p{P}\$\+<=>\^~\|`]"
_CASELESS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"

_LLAMA3 = rf"{_CASELESS}|{_WORD}|\p{{N}}{{1,3}}|{_SIGNS}|{_BLANKS}"
_QWEN2 = rf"{_CASELESS}|{_WORD}|\p{{N}}|{_SIGNS}|{_BLANKS}"
_QWEN35 = rf"{_CASELESS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_BLANKS}"

_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED_WORD = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{{0}}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{{0}}"
_PATHS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_TEKKEN = rf"{_CASED_WORD.replace('{0}', '')}|\p{{N}}|{_PATHS}|{_BLANKS}"
_GPT4O = rf"{_CASED_WORD.replace('{0}', _CASELESS + '?')}|\p{{N}}{{1,3}}|{_PATHS}|{_BLANKS}"

_CJK = r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
    rf"{_BLANKS}"
)

_MARKS = "an apostrophe after a combining mark"
_LINE_SEPARATORS = "blanks before a Unicode line separator"

# Of names for the same, the one that says most to a reader comes first: it is the one that is taken.
_KNOWN = (
    _Known("gpt-2", (_GPT2,)),
    _Known("starcoder", (_DIGIT, _GPT2)),
    _Known("llama-bpe", (_LLAMA3,), ignores_merges=True),
    _Known("dbrx", (_LLAMA3,)),
    _Known("qwen2", (_QWEN2,)),
    _Known("qwen35", (_QWEN35,)),
    _Known("tekken", (_TEKKEN,), ignores_merges=True, inexact=_MARKS),
    _Known("granite-embed-multi-97m", (_GPT4O,), ignores_merges=True),
    _Known("gpt-4o", (_GPT4O,), inexact=_MARKS),
    _Known("deepseek-v3", (_DIGITS_BY_3, _CJK, _DEEPSEEK3)),
    _Known(
        "deepseek-coder",
        (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", _DIGIT),
        inexact=_LINE_SEPARATORS,
    ),
    _Known("falcon", (f"{_PUNCTUATION}+", _GPT2, "[0-9][0-9][0-9]")),
    _Known(
        "falcon",
        (f"{_PUNCTUATION}+", _GPT2, f"bytes:{_DIGITS}", "bytes:[0-9][0-9][0-9]"),
        inexact="characters whose bytes are taken for digits",
    ),
    _Known("falcon", (f"{_PUNCTUATION}+", _GPT2, "bytes:[0-9][0-9][0-9]")),
    _Known("viking", (r" ?[^(\s|.,!?…。，、।۔،)]+", _DIGIT)),
    _Known("bloom", (r" ?[^(\s|.,!?…。，、।۔،)]+",)),
    _Known(
        "jais-2",
        (
            rf"{_CASELESS}|{_WORD}|\p{{N}}{{1,3}}|{_SIGNS}|\s*[\r\n]+|"
            r"\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|"
            r"\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}",
        ),
    ),
    _Known(
        "bailingmoe",
        (
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|"
            r"\s+(?!\S)|\s+",
        ),
    ),
    _Known("seed-coder", (rf"{_CASELESS}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_BLANKS}",)),
    _Known("ufakzeka", (rf"{_WORD}|\p{{N}}|{_SIGNS}|{_BLANKS}",)),
    _Known("minicpm5", (_DIGITS_BY_3, rf"{_CASELESS}|{_WORD}|\p{{N}}+|{_SIGNS}|{_BLANKS}"), ignores_merges=True),
    _Known("laguna", (r"[^\n]+|[\n]+", _QWEN2)),
    _Known(
        "exaone-moe",
        (
            rf"{_CASELESS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}|"
            r" ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
        ),
    ),
)


def word_cut(tokenizer: Mapping[str, Any]) -> WordCut:
    """How the engine comes closest to a tokenizer's way of cutting text into words.

    Args:
        tokenizer: the content of a byte-level ``tokenizer.json``.

    Raises:
        TokenizerError: its pre-tokenizer is damaged.
    """
    steps = tuple(_steps(tokenizer.get("pre_tokenizer")))
    ignores_merges = bool(tokenizer["model"].get("ignore_merges"))
    known = [entry for entry in _known() if entry.steps == steps]
    for entry in known:
        if entry.ignores_merges == ignores_merges:
            return WordCut(entry.name, entry.inexact and f"the engine cuts {entry.inexact} differently")
    if known:
        return WordCut(known[0].name, f"the engine has its pre-tokenizer only with ignore_merges {not ignores_merges}")
    return WordCut("gpt-2", f"the engine does not have its pre-tokenizer: {_shown(steps)}")


@cache
def _known() -> tuple[_Known, ...]:
    return tuple(
        _Known(entry.name, tuple(map(_canonical_step, entry.steps)), entry.ignores_merges, entry.inexact)
        for entry in _KNOWN
    )


@cache
def _covering() -> frozenset[str]:
    """Of which every character is in some match, so that it does not matter what becomes of the others."""
    return frozenset(map(canonical, (_GPT2, _LLAMA3, _QWEN2, _QWEN35, _TEKKEN, _GPT4O)))


def _canonical_step(step: str) -> str:
    return f"bytes:{canonical(step[6:])}" if step.startswith("bytes:") else canonical(step)


def _steps(pre_tokenizer: object) -> Iterator[str]:
    """What it does, as expressions; after the bytes have become characters, marked so. What it does else, by name."""
    after_bytes = ""
    for part in flattened(pre_tokenizer, "pretokenizers"):
        kind = part.get("type")
        if kind == "ByteLevel":
            if part.get("add_prefix_space"):
                yield "ByteLevel(add_prefix_space)"
            if part.get("use_regex", True):
                yield after_bytes + canonical(_GPT2)
            after_bytes = "bytes:"
        elif kind == "Digits":
            yield after_bytes + canonical(_DIGIT if part.get("individual_digits") else _DIGITS)
        elif kind == "Punctuation" and part.get("behavior", "Isolated") in ("Isolated", "Contiguous"):
            yield after_bytes + canonical(_PUNCTUATION + ("+" if part.get("behavior") == "Contiguous" else ""))
        elif kind == "Split":
            yield after_bytes + _split(part)
        else:
            yield str(kind)


def _split(part: Mapping[str, Any]) -> str:
    pattern = part.get("pattern")
    if not isinstance(pattern, dict) or not all(isinstance(value, str) for value in pattern.values()):
        raise TokenizerError(f'"pre_tokenizer": a Split without a pattern: {pattern!r:.100}')
    if "Regex" not in pattern:
        return f"Split({pattern!r:.100})"
    expression = canonical(pattern["Regex"])
    behavior, inverted = part.get("behavior"), bool(part.get("invert"))
    if behavior == "Isolated" and not inverted:
        return expression
    if behavior == "Removed" and inverted and pattern["Regex"].endswith(r"|\s+") and expression in _covering():
        return expression
    return f"Split({expression!r:.100}, {behavior}{', inverted' if inverted else ''})"


def _shown(steps: tuple[str, ...]) -> str:
    return " then ".join(step[:200] for step in steps) or "none"


def flattened(part: object, members: str) -> Iterator[Mapping[str, Any]]:
    """The steps of a normalizer, pre-tokenizer, decoder or post-processor, in order.

    Args:
        part: of a ``tokenizer.json``; None has no steps.
        members: what a Sequence calls its steps.

    Raises:
        TokenizerError: it is damaged.
    """
    if part is None:
        return
    if not isinstance(part, dict):
        raise TokenizerError(f"{members!r}: an object was expected, not {part!r:.100}")
    if part.get("type") != "Sequence":
        yield part
        return
    inner = part.get(members)
    if not isinstance(inner, list):
        raise TokenizerError(f"{members!r}: a list was expected, not {inner!r:.100}")
    for member in inner:
        yield from flattened(member, members)
