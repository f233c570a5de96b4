r"""The engine's name for the pre-tokenizer of a byte-level ``tokenizer.json``.

The engine's pre-tokenizers are built in, under names (``tokenizer.ggml.pre``). This module lists the regular
expressions behind each name, as tokenizers write them. A pre-tokenizer is recognised by its expressions, never by the
model's name. If the engine's own expression splits some texts differently, the entry names them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from pyggml.errors import TokenizerError
from pyggml.importer.vocabulary.regex_spelling import canonical


@dataclass(frozen=True)
class _PreTokenizer:
    """A pre-tokenizer of the engine, by its expressions.

    Attributes:
        name: its name, for ``tokenizer.ggml.pre``.
        steps: expressions, each of which splits the matches of the previous one.
        ignores_merges: True if a word that is a token is not merged.
        difference: the texts that the engine splits differently.
    """

    name: str
    steps: tuple[str, ...]
    ignores_merges: bool = False
    difference: str | None = None


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

# Several names may stand for the same steps; the first one is used, so the best-known name comes first.
_KNOWN = (
    _PreTokenizer("gpt-2", (_GPT2,)),
    _PreTokenizer("starcoder", (_DIGIT, _GPT2)),
    _PreTokenizer("llama-bpe", (_LLAMA3,), ignores_merges=True),
    _PreTokenizer("dbrx", (_LLAMA3,)),
    _PreTokenizer("qwen2", (_QWEN2,)),
    _PreTokenizer("qwen35", (_QWEN35,)),
    _PreTokenizer("tekken", (_TEKKEN,), ignores_merges=True, difference=_MARKS),
    _PreTokenizer("granite-embed-multi-97m", (_GPT4O,), ignores_merges=True),
    _PreTokenizer("gpt-4o", (_GPT4O,), difference=_MARKS),
    _PreTokenizer("deepseek-v3", (_DIGITS_BY_3, _CJK, _DEEPSEEK3)),
    _PreTokenizer(
        "deepseek-coder",
        (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", _DIGIT),
        difference=_LINE_SEPARATORS,
    ),
    _PreTokenizer("falcon", (f"{_PUNCTUATION}+", _GPT2, "[0-9][0-9][0-9]")),
    _PreTokenizer(
        "falcon",
        (f"{_PUNCTUATION}+", _GPT2, f"bytes:{_DIGITS}", "bytes:[0-9][0-9][0-9]"),
        difference="characters whose bytes are taken for digits",
    ),
    _PreTokenizer("falcon", (f"{_PUNCTUATION}+", _GPT2, "bytes:[0-9][0-9][0-9]")),
    _PreTokenizer("viking", (r" ?[^(\s|.,!?…。，、।۔،)]+", _DIGIT)),
    _PreTokenizer("bloom", (r" ?[^(\s|.,!?…。，、।۔،)]+",)),
    _PreTokenizer(
        "jais-2",
        (
            rf"{_CASELESS}|{_WORD}|\p{{N}}{{1,3}}|{_SIGNS}|\s*[\r\n]+|"
            r"\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|"
            r"\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}",
        ),
    ),
    _PreTokenizer(
        "bailingmoe",
        (
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|"
            r"\s+(?!\S)|\s+",
        ),
    ),
    _PreTokenizer("seed-coder", (rf"{_CASELESS}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_BLANKS}",)),
    _PreTokenizer("ufakzeka", (rf"{_WORD}|\p{{N}}|{_SIGNS}|{_BLANKS}",)),
    _PreTokenizer("minicpm5", (_DIGITS_BY_3, rf"{_CASELESS}|{_WORD}|\p{{N}}+|{_SIGNS}|{_BLANKS}"), ignores_merges=True),
    _PreTokenizer("laguna", (r"[^\n]+|[\n]+", _QWEN2)),
    _PreTokenizer(
        "exaone-moe",
        (
            rf"{_CASELESS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}|"
            r" ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
        ),
    ),
)


def find_pre_tokenizer(tokenizer: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the engine's name for the pre-tokenizer of a byte-level ``tokenizer.json``, or for the closest one.

    The second value says why the engine splits some texts differently; None: it does not.
    """
    steps = tuple(_steps(tokenizer.get("pre_tokenizer")))
    ignores_merges = bool(tokenizer["model"].get("ignore_merges"))
    known = [entry for entry in _known() if entry.steps == steps]
    for entry in known:
        if entry.ignores_merges == ignores_merges:
            return entry.name, entry.difference and f"the engine splits {entry.difference} differently"
    if known:
        return known[0].name, f"the engine supports its pre-tokenizer only with ignore_merges {not ignores_merges}"
    listed = " then ".join(step[:200] for step in steps) or "none"
    return "gpt-2", f"the engine does not support its pre-tokenizer: {listed}"


@cache
def _known() -> tuple[_PreTokenizer, ...]:
    return tuple(replace(entry, steps=tuple(map(_canonical_step, entry.steps))) for entry in _KNOWN)


@cache
def _covering() -> frozenset[str]:
    """Expressions that match every character, so that the treatment of unmatched ones is irrelevant."""
    return frozenset(map(canonical, (_GPT2, _LLAMA3, _QWEN2, _QWEN35, _TEKKEN, _GPT4O)))


def _canonical_step(step: str) -> str:
    return f"bytes:{canonical(step[6:])}" if step.startswith("bytes:") else canonical(step)


def _steps(pre_tokenizer: object) -> Iterator[str]:
    """The steps as expressions, marked "bytes:" once text has become bytes; steps without an expression by name."""
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
        raise TokenizerError(f'"pre_tokenizer": the pattern of a Split is {pattern!r:.100}')
    if "Regex" not in pattern:
        return f"Split({pattern!r:.100})"
    expression = canonical(pattern["Regex"])
    behavior, inverted = part.get("behavior"), bool(part.get("invert"))
    if behavior == "Isolated" and not inverted:
        return expression
    if behavior == "Removed" and inverted and pattern["Regex"].endswith(r"|\s+") and expression in _covering():
        return expression
    return f"Split({expression!r:.100}, {behavior}{', inverted' if inverted else ''})"


def flattened(part: object, members: str) -> Iterator[Mapping[str, Any]]:
    """Yield the steps of a normalizer, pre-tokenizer, decoder or post-processor, in order; None has none.

    ``members`` is the key of a Sequence's steps.
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
