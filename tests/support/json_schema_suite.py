"""Groups of the official JSON-Schema-Test-Suite, judged by following their instances byte by byte.

The grammars allow what the specification does: any order of members, members that a schema does not name, unknown
keywords.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyggml
from pyggml.errors import GrammarError
from pyggml.schema.grammar import EVERYTHING_VALID

#: Folder of a draft -> its $schema.
DRAFTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
# Where a format is only an annotation, which pyggml asserts: the drafts' optional format tests do, too.
_ANNOTATED_FORMATS = {("draft2019-09", "format.json"), ("draft2020-12", "format.json")}
# Optional behaviour that contradicts what pyggml does.
_OTHER_OPTIONS = {"format-annotation.json", "format-assertion.json", "content.json"}
# Files in which some valid instances are refused: several unique items, if not enumerated, have no arrays and objects;
# host names have no punycode, and not all letters of the world.
_NARROWED = {"uniqueItems.json", "hostname.json", "idn-hostname.json"}


class Group(NamedTuple):
    """Instances of one schema."""

    file: str
    name: str
    schema: Any
    tests: list[dict[str, Any]]


@dataclass
class Counts:
    """Results of one draft.

    Attributes:
        n_groups: groups.
        refused: why the schemas of some are refused, by the group's name.
        n_instances: instances of the others.
        narrowed: valid instances that are refused where pyggml is known to narrow a schema.
        wrong: instances that are judged wrongly otherwise.
    """

    n_groups: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    n_instances: int = 0
    narrowed: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def row(self, draft: str) -> str:
        """The draft's row of the table in docs/how-to/generate-structured-output.md."""
        n_compiled = self.n_groups - len(self.refused)
        n_passed = self.n_instances - len(self.narrowed) - len(self.wrong)
        cells = (draft, n_compiled, len(self.refused), n_passed, len(self.narrowed), len(self.wrong))
        return f"| {' | '.join(str(cell) for cell in cells)} |"


COLUMNS = (
    "draft",
    "schemas that compile",
    "refused by name",
    "instances judged right",
    "valid instances refused",
    "wrong",
)


def count(folder: Path, draft: str, vocabulary: pyggml.Model) -> Counts:
    """Judge all groups of a draft in the suite's folder."""
    counts = Counts()
    for group in groups(folder / draft, draft):
        counts.n_groups += 1
        _judge(group, draft, vocabulary, counts)
    return counts


def groups(folder: Path, draft: str) -> Iterator[Group]:
    """The groups of a draft: those that each implementation must pass, and those of formats."""
    required = [path for path in sorted(folder.glob("*.json")) if (draft, path.name) not in _ANNOTATED_FORMATS]
    formats = sorted((folder / "optional" / "format").glob("*.json"))
    for path in (*required, *formats):
        if path.name not in _OTHER_OPTIONS:
            for group in json.loads(path.read_text(encoding="utf-8")):
                name = f"{path.relative_to(folder)}: {group['description']}"
                yield Group(path.name, name, group["schema"], group["tests"])


def _judge(group: Group, draft: str, vocabulary: pyggml.Model, counts: Counts) -> None:
    schema = group.schema
    if isinstance(schema, dict):  # the suite's older drafts leave it out
        schema = {"$schema": DRAFTS[draft], **schema}
    narrowed: list[str] = []
    wrong: list[str] = []
    try:
        with pyggml.Grammar.compile(pyggml.grammar_of(schema, **EVERYTHING_VALID), vocabulary) as grammar:
            for test in group.tests:
                is_allowed, is_valid = _allows(grammar, test["data"]), test["valid"]
                if is_allowed != is_valid:
                    about = f"{group.name}: {test['description']}: {'allowed' if is_allowed else 'refused'}"
                    (narrowed if is_valid and group.file in _NARROWED else wrong).append(about)
    except GrammarError as error:
        counts.refused[group.name] = str(error)
        return
    counts.n_instances += len(group.tests)
    counts.narrowed += narrowed
    counts.wrong += wrong


def _allows(grammar: pyggml.CompiledGrammar, instance: Any) -> bool:
    data = json.dumps(instance, ensure_ascii=False).encode("utf-8", "surrogatepass")
    with grammar.matcher() as matcher:
        return matcher.accept_tokens(list(data)) == len(data) and matcher.is_complete
