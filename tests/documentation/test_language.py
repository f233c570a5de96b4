"""The language of code and docs: terms of the field (docs/reference/glossary.md), in sentences that are read once."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: A docstring, or the comment at the top of a C++ file, opens with a noun phrase or an imperative.
CLAUSE = re.compile(r"(?:What|Whether|How|Where|When|Which|Who|Why|Those|That|These)\b(?! is \w+\?)")

#: Phrases that have a standard term, with the term.
PHRASES = {
    r"nobody": "no one, nothing, or an active sentence",
    r"lest": "so that ... not",
    r"mend(?:s|ed|ing)?": "fix",
    r"beside": "with, next to, while",
    r"of ours": "our",
    r"piece by piece": "streamed, in chunks",
    r"heads of (?:answers|requests|responses)": "headers",
    r"went wrong|goes wrong|gone wrong": "error, failure",
    r"memory that runs out|memory runs out": "out of memory",
    r"whatever was asked": "name the condition",
    r"no more than \S+ at a time": "at most",
    r"a process of its own": "a separate process",
    r"hears? of": "is notified of",
    r"gives? up its room": "is evicted, is preempted",
    r"makes? room": "evicts, unloads, frees memory",
}
BANNED = {re.compile(rf"\b(?:{phrase})\b", re.IGNORECASE): term for phrase, term in PHRASES.items()}

#: Not ours to word: data, vendored files, the lists of phrases themselves, and stories for a small model.
EXEMPT = (
    "tests/data/",
    "csrc/regex/syntax/unicode_tables.cpp",
    "pyggml/server/static/vendor/",
    "tools/demo_model/",
    "tests/documentation/test_language.py",
    "docs/reference/glossary.md",
)
TEXT = re.compile(r"\.(?:py|pyi|md|h|hpp|c|cpp|js|html|toml|txt|yaml|yml)$|(?:^|/)(?:Makefile|CMakeLists\.txt|run)$")


def files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    return [
        ROOT / name for name in listed if TEXT.search(name) and not name.startswith(EXEMPT) and (ROOT / name).is_file()
    ]


def faults(text: str) -> Iterator[str]:
    """The banned phrases of a text, with the terms to use."""
    for pattern, term in BANNED.items():
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"line {line}: {match[0]!r} (use: {term})"


def openers(source: str) -> Iterator[str]:
    """The docstrings that open with a clause."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node) or ""
            if CLAUSE.match(text):
                name = getattr(node, "name", "the module")
                yield f"{name}: {text.splitlines()[0]!r} opens with a clause"


def comment_opener(source: str) -> Iterator[str]:
    """The first comment of a C or C++ file, if it opens with a clause."""
    match = re.match(r"(?:#pragma once\s*|#include [^\n]*\s*)*(?://|/\*)\s*(.*)", source)
    if match is not None and CLAUSE.match(match[1]):
        yield f"the first comment, {match[1]!r}, opens with a clause"


@pytest.mark.slow
def test_phrases_have_their_standard_terms() -> None:
    found = [f"{path.relative_to(ROOT)}: {fault}" for path in files() for fault in faults(path.read_text("utf-8"))]
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_docstrings_open_with_a_noun_phrase_or_an_imperative() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {fault}"
        for path in files()
        if path.suffix in (".py", ".h", ".hpp", ".c", ".cpp")
        for fault in (openers if path.suffix == ".py" else comment_opener)(path.read_text("utf-8"))
    ]
    assert not found, "\n".join(found)


# Sentences that were in this code base.
@pytest.mark.parametrize(
    "sentence",
    [
        "What the heads of answers say whatever was asked: which request it was, and why it was refused.",
        "Answers that are sent piece by piece, and work that nobody waits for any more.",
        "Whether a model has room beside those that are loaded.",
        "How much may wait, and for how long: what the engine's own queue does not count.",
        "What went wrong with a request, without stacks and paths: the one table of statuses.",
        "Who may use the server: keys, the Host header, and pages of other origins.",
        "Those that wait for their clients, no more than 64 at a time.",
        "Loads models, one after another, and unloads others to make room.",
        "An LLM whose model and engine are in a process of their own, lest a crash end this one: a process of its own.",
        "Where a model goes: which devices take it, and what of it each takes.",
        "How requests notify an event loop: through one descriptor for all of them, without a thread.",
        "Memory that runs out ends no process any more where JSON values are freed.",
        "Kernels of ours for the CPU, mended where upstream's assert.",
    ],
)
def test_old_sentences_are_found(sentence: str) -> None:
    assert [*faults(sentence), *openers(f'"""{sentence}"""')]


def test_plain_sentences_pass() -> None:
    for sentence in ("Common response headers.", "Prefetch the next weights.", "Streaming responses."):
        assert not [*faults(sentence), *openers(f'"""{sentence}"""')]
