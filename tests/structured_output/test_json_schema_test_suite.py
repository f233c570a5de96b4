"""The official JSON-Schema-Test-Suite: each of its instances is judged as it says, or the schema is refused by name.

The grammars allow what the specification does: any order of members, members that a schema does not name, unknown
keywords. Instances are followed byte by byte.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.checkpoints import models
from support.paths import ROOT

import pyggml
from pyggml.errors import GrammarError
from pyggml.schema.grammar import EVERYTHING_VALID

sys.path.insert(0, str(ROOT / "tools"))

import json_schema_test_suite

#: Folder of a draft -> its $schema, and the least share of its groups that is not refused.
DRAFTS = {
    "draft4": ("http://json-schema.org/draft-04/schema#", 0.7),
    "draft6": ("http://json-schema.org/draft-06/schema#", 0.7),
    "draft7": ("http://json-schema.org/draft-07/schema#", 0.7),
    "draft2019-09": ("https://json-schema.org/draft/2019-09/schema", 0.6),
    "draft2020-12": ("https://json-schema.org/draft/2020-12/schema", 0.6),
}
# Where a format is only an annotation, which pyggml asserts: the drafts' optional format tests do, too.
_ANNOTATED_FORMATS = {("draft2019-09", "format.json"), ("draft2020-12", "format.json")}
# Optional behaviour that contradicts what pyggml does.
_OTHER_OPTIONS = {"format-annotation.json", "format-assertion.json", "content.json"}
# A format that the engine does not know, and so ignores.
_UNKNOWN_FORMATS = {"idn-hostname.json"}
# Files in which some valid instances are refused: without an enumeration, unique items are of one type and no objects;
# host names have no punycode.
_NARROWED = {"uniqueItems.json", "hostname.json"}


class Group(NamedTuple):
    file: str
    name: str
    schema: Any
    tests: list[dict[str, Any]]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pyggml.Model]:
    path = models.write_llama(tmp_path_factory.mktemp("models") / "bytes.gguf")
    with pyggml.Model(path, vocab_only=True) as model:
        yield model


def groups(folder: Path, draft: str) -> Iterator[Group]:
    """The groups of a draft: those that each implementation must pass, and those of formats."""
    required = [path for path in sorted(folder.glob("*.json")) if (draft, path.name) not in _ANNOTATED_FORMATS]
    formats = sorted((folder / "optional" / "format").glob("*.json"))
    for path in (*required, *formats):
        if path.name not in _OTHER_OPTIONS | _UNKNOWN_FORMATS:
            for group in json.loads(path.read_text(encoding="utf-8")):
                name = f"{path.relative_to(folder)}: {group['description']}"
                yield Group(path.name, name, group["schema"], group["tests"])


def declared(schema: Any, draft: str) -> Any:
    """The schema with its draft: the suite's older ones leave it out."""
    return {"$schema": DRAFTS[draft][0], **schema} if isinstance(schema, dict) else schema


def compiled(schema: Any, vocabulary: pyggml.Model) -> pyggml.CompiledGrammar:
    text = pyggml.grammar_of(schema, **EVERYTHING_VALID)
    return pyggml.Grammar.compile(text, vocabulary)


def allows(grammar: pyggml.CompiledGrammar, instance: Any) -> bool:
    data = json.dumps(instance, ensure_ascii=False).encode("utf-8", "surrogatepass")
    with grammar.matcher() as matcher:
        return matcher.accept_tokens(list(data)) == len(data) and matcher.is_complete


def judged(group: Group, draft: str, vocabulary: pyggml.Model) -> tuple[list[str], str]:
    """The instances that are judged wrongly, and why the schema is refused, if it is.

    A valid instance may be refused where the engine is known to narrow a schema.
    """
    try:
        grammar = compiled(declared(group.schema, draft), vocabulary)
    except GrammarError as error:
        return [], str(error)
    wrong = []
    with grammar:
        for test in group.tests:
            try:
                is_allowed, is_valid = allows(grammar, test["data"]), test["valid"]
                if is_allowed != is_valid and not (is_valid and group.file in _NARROWED):
                    wrong.append(f"{group.name}: {test['description']}: {'allowed' if is_allowed else 'refused'}")
            except GrammarError as error:
                return [], str(error)
    return wrong, ""


@pytest.mark.slow
@pytest.mark.parametrize("draft", DRAFTS)
def test_instances_of_the_official_suite(draft: str, vocabulary: pyggml.Model) -> None:
    folder = json_schema_test_suite.fetch() / draft
    counts = {"passed": 0, "refused": 0}
    wrong: list[str] = []
    for group in groups(folder, draft):
        mistakes, refused = judged(group, draft, vocabulary)
        wrong += mistakes
        assert not refused or len(refused) > 10  # it says what and why
        counts["refused" if refused else "passed"] += not mistakes
    print(draft, counts, len(wrong), "wrong")
    assert wrong == []
    assert counts["passed"] >= DRAFTS[draft][1] * sum(counts.values())
