"""Unknown keywords of a JSON schema: annotations are allowed, and what is meant as a constraint is refused.

The standard lets a schema have keywords of its own, so a validator accepts ``{"minimun": 5}`` in silence.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Collection
from typing import Any

from pyggml._core.checks import shown
from pyggml.errors import GrammarError

# Annotations whose values are texts; with another value, the name is taken for that of a member.
_TEXTS = frozenset((
    "$anchor", "$comment", "$dynamicAnchor", "$id", "$schema", "contentEncoding", "contentMediaType",
    "deprecationMessage", "description", "id", "markdownDescription", "title",
))  # fmt: skip
# Annotations of the standard, of OpenAPI, of form generators, of editors, and of Google's models.
_ANNOTATIONS = frozenset((
    "$defs", "$recursiveAnchor", "$vocabulary", "contentSchema", "default", "defaultSnippets", "definitions",
    "deprecated", "discriminator", "doNotSuggest", "enumDescriptions", "enumNames", "errorMessage", "example",
    "examples", "externalDocs", "markdownEnumDescriptions", "nullable", "propertyOrder", "propertyOrdering",
    "readOnly", "tsType", "writeOnly", "xml",
))  # fmt: skip
_OF_VENDORS = ("x-", "_", "@")  # beginnings of names

# Fields that contain the schema in requests of OpenAI, Anthropic and MCP.
_WRAPPERS = ("json_schema", "schema", "input_schema", "inputSchema", "parameters", "function")

_CUTOFF = 0.85  # of the similarity: "minimun" and "proprties" are misspelled, "note" and "content" are not
_SHORTEST, _LONGEST = 4, 40  # characters of a name that may be misspelled


def require_known(schema: dict[str, Any], place: str, keywords: Collection[str]) -> None:
    """Refuse a misspelled keyword, and a schema that consists of unknown keywords.

    Args:
        schema: one schema, whose own keywords are checked.
        place: its JSON pointer, for messages.
        keywords: all the keywords that constrain values.

    Raises:
        GrammarError: there is one; the message has its place.
    """
    unknown = [name for name in schema if name not in keywords and not _is_annotation(name, schema[name])]
    for name in unknown:
        meant = _meant(name, frozenset(keywords))
        if meant is not None and meant not in schema:
            raise GrammarError(
                f"{place}/{name}: this is not a keyword of JSON schemas, but close to {meant!r}: write {meant!r}, or "
                f"'x-{name}' for an annotation"
            )
    if unknown and not any(name in keywords for name in schema):
        _require_keyword(schema, unknown, place)


def _require_keyword(schema: dict[str, Any], unknown: list[str], place: str) -> None:
    """Refuse a schema without constraints whose unknown keywords may be meant as such."""
    wrapper = next((name for name in _WRAPPERS if isinstance(schema.get(name), dict)), None)
    if wrapper is not None:
        way_out = f"pass the value of {wrapper!r} alone"
        way_out += ", or response_format={'type': 'json_schema', 'json_schema': ...}" if wrapper == "schema" else ""
        raise GrammarError(f"{place}: the schema is inside of {wrapper!r}: {way_out}")
    if len(unknown) == len(schema) or any(isinstance(schema[name], dict) for name in unknown):
        names = ", ".join(map(shown, unknown[:5])) + (" ..." if len(unknown) > 5 else "")
        raise GrammarError(
            f"{place}: no keyword of JSON schemas is here, only {names}: put an object's members into 'properties', or "
            f"begin the names of annotations with 'x-'"
        )


def _is_annotation(name: str, value: Any) -> bool:
    if name in _TEXTS:
        return not isinstance(value, dict)
    return name in _ANNOTATIONS or name.startswith(_OF_VENDORS)


@functools.lru_cache(maxsize=1024)
def _meant(name: str, keywords: frozenset[str]) -> str | None:
    """Return the keyword that an unknown name is a misspelling of, or None."""
    if len(name) > _LONGEST:
        return None
    plain = {_plain(keyword): keyword for keyword in sorted(keywords)}
    if _plain(name) in plain:
        return plain[_plain(name)]
    long_enough = [each for each in plain if len(each) >= _SHORTEST]
    near = difflib.get_close_matches(_plain(name), long_enough, n=1, cutoff=_CUTOFF)
    return plain[near[0]] if near and len(name) >= _SHORTEST else None


def _plain(name: str) -> str:
    """Return a name without the differences between conventions, as in ``minLength`` and ``min_length``."""
    return name.lower().replace("_", "").replace("-", "").removeprefix("$")
