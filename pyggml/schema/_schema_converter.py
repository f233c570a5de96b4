"""Conversion of a JSON schema to the rules of a grammar."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from pyggml._core.checks import shown
from pyggml.errors import GrammarError
from pyggml.schema import _gbnf_elements, _keywords
from pyggml.schema._flattening import Document
from pyggml.schema._formats import FORMATS
from pyggml.schema._gbnf_elements import any_of, literal
from pyggml.schema._keyword_validation import require_valid_keywords
from pyggml.schema._keywords import Schema
from pyggml.schema._members import members
from pyggml.schema._regex import STRING_CHARACTERS, lengths, pattern_rule, string_chars
from pyggml.schema._rules import Rules
from pyggml.schema._text_automaton import patterns, text_rule

_INTEGER_FORMATS = {"int32": 2**31, "int64": 2**63}
_FREE_FORMATS = ("password", "float", "double", "textarea", "binary")  # do not restrict the text

_MAX_MULTIPLES = 2_000

# Bounds of unconstrained values, so that a model cannot generate one endlessly: wide enough for usual JSON.
_FREE_DEPTH = 5
_FREE_ITEMS = 100
_FREE_CHARS = 1_000

# Keywords that a grammar cannot express; rejected wherever they would matter.
_UNSUPPORTED = (
    "not", "if", "then", "else", "contains", "dependentRequired", "dependentSchemas", "dependencies",
    "unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef",
)  # fmt: skip


class Converter:
    """A converter of a schema, or a part of it, to one grammar."""

    def __init__(self, document: Any) -> None:
        """Create a converter; ``document`` is the whole schema as JSON values, for references."""
        self._document = Document(document)
        self._rules = Rules()
        self._refs: dict[str, str] = {}  # place -> rule
        self._unfinished: set[str] = set()  # references whose rules are being built
        self._is_recursive = False
        self._open: set[str] = set()  # references being followed without an enclosing array or object

    def grammar(self, schema: Any, place: str) -> str:
        """Return the grammar of a schema; ``place`` is its JSON pointer, for messages.

        Raises:
            GrammarError: a grammar cannot express the schema; the message has the place.
        """
        try:
            self._rules.define("root", self._visit(schema, place))
            if self._is_recursive and not self._rules.ends("root"):
                raise GrammarError(f"{place}: no value can match, because every one contains another without an end")
        except GrammarError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError):
            require_valid_keywords(self._document.root)  # names the malformed keyword; a valid schema never gets here
            raise
        return str(self._rules)

    # --- schemas ------------------------------------------------------------------------------------------

    def _visit(self, schema: Any, place: str) -> str:
        """Return a grammar expression for one schema."""
        if schema is True or schema == {}:
            return self._free_value(_FREE_DEPTH)
        if schema is False:
            raise GrammarError(f"{place}: no value can match")
        if not isinstance(schema, dict):
            raise GrammarError(f"{place}: a schema must be an object or a boolean, not {json.dumps(schema)[:40]}")
        schema = _keywords.without_annotations(schema, place)
        if set(schema) == {"$ref"}:
            return self._ref(schema["$ref"], place)
        for key in ("anyOf", "oneOf"):
            if set(schema) == {key}:
                return self._union(key, schema[key], place)
        alternatives = [self._typed(flat, place) for flat in self._document.flattened(schema, place)]
        return any_of(list(dict.fromkeys(alternatives)))

    def _ref(self, ref: Any, place: str) -> str:
        target_place, target = self._document.resolve(ref, place)
        if target_place in self._open:
            raise GrammarError(f"{place}/$ref: {ref} refers to itself")
        self._is_recursive = self._is_recursive or target_place in self._unfinished
        if target_place not in self._refs:
            self._refs[target_place] = name = f"ref{len(self._refs)}"
            self._rules.define(name, "")  # reserves its place among the rules
            self._open.add(target_place)
            self._unfinished.add(target_place)
            self._rules.define(name, self._visit(target, target_place))
            self._unfinished.remove(target_place)
            self._open.remove(target_place)
        return self._refs[target_place]

    def _union(self, key: str, alternatives: Any, place: str) -> str:
        if not isinstance(alternatives, list) or not alternatives:
            raise GrammarError(f"{place}/{key}: must be a list of schemas")
        if key == "oneOf":
            alternatives = self._document.exclusive(alternatives, place)
        expressions = [
            self._visit(each, f"{place}/{key}/{i}") for i, each in enumerate(alternatives) if each is not False
        ]
        if not expressions:
            raise GrammarError(f"{place}: no value can match")
        return any_of(list(dict.fromkeys(expressions)))

    def _typed(self, schema: Schema, place: str) -> str:
        """Return a grammar expression for a schema without references and unions."""
        for key in _UNSUPPORTED:
            if key in schema:
                raise GrammarError(f"{place}/{key}: a grammar cannot express this")
        values = _keywords.values_of(schema, place)
        if values is not None:
            return any_of([literal(_json(value)) for value in values])
        return any_of([f"({self._of_type(name, schema, place)})" for name in _keywords.types_of(schema, place)])

    def _of_type(self, name: str, schema: Schema, place: str) -> str:
        if name in ("boolean", "null"):
            return self._rules.common(name)
        if name in ("string", "integer", "number"):
            return {"string": self._string, "integer": self._integer, "number": self._number}[name](schema, place)
        around, self._open = self._open, set()  # the inside may refer to the schemas that contain it
        try:
            return self._object(schema, place) if name == "object" else self._array(schema, place)
        finally:
            self._open = around

    # --- any value ----------------------------------------------------------------------------------------

    def _free_value(self, depth: int) -> str:
        """Return any value with at most ``depth`` arrays and objects inside each other."""
        rules = self._rules
        kinds = [rules.add(self._text(0, _FREE_CHARS)), *map(rules.common, ("number", "boolean", "null"))]
        if depth > 0:
            array = f'"[" space {rules.separated(self._free_value(depth - 1), 0, _FREE_ITEMS)} space "]"'
            kinds += [rules.add(array), self._free_object(depth)]
        return rules.add(" | ".join(kinds))

    def _free_object(self, depth: int) -> str:
        rules = self._rules
        rules.common("space")
        member = rules.add(f'{rules.common("key")} ":" space {self._free_value(depth - 1)}')
        return rules.add(f'"{{" space {rules.separated(member, 0, _FREE_ITEMS)} space "}}"')

    # --- numbers ------------------------------------------------------------------------------------------

    def _integer(self, schema: Schema, place: str) -> str:
        low, high, above, below = _bounds(schema, place)
        limit = _INTEGER_FORMATS.get(schema.get("format", ""))
        least = None if low is None else _gbnf_elements.units(low, above)
        most = None if high is None else -_gbnf_elements.units(-high, below)
        if limit is not None:
            least = -limit if least is None else max(-limit, least)
            most = limit - 1 if most is None else min(limit - 1, most)
        step = schema.get("multipleOf", 1)
        if not _keywords.is_number(step) or step <= 0 or step != int(step):
            raise GrammarError(f"{place}/multipleOf: must be a positive integer for a grammar")
        if step != 1:
            return self._multiples(int(step), least, most, place)
        if "multipleOf" not in schema and least is None and most is None:
            return self._rules.common("integer")
        return self._rules.add(_possible(place, lambda: _gbnf_elements.integers(least, most)))

    def _multiples(self, step: int, least: int | None, most: int | None, place: str) -> str:
        if least is None or most is None or (most - least) // step > _MAX_MULTIPLES:
            raise GrammarError(
                f"{place}/multipleOf: for a grammar, this needs a minimum and maximum with at most {_MAX_MULTIPLES} "
                "multiples between them"
            )
        multiples = range(-(-least // step) * step, most + 1, step)
        if not multiples:
            raise GrammarError(f"{place}: no value can match")
        return self._rules.add(" | ".join(literal(str(number)) for number in multiples))

    def _number(self, schema: Schema, place: str) -> str:
        if "multipleOf" in schema or schema.get("format") in _INTEGER_FORMATS:
            return self._integer(schema, place)
        low, high, above, below = _bounds(schema, place)
        places = schema.get("decimalPlaces")
        if low is None and high is None and places is None:
            return self._rules.common("number")
        build = functools.partial(_gbnf_elements.numbers, low, high, above=above, below=below, n_decimals=places)
        return self._rules.add(_possible(place, build))

    # --- strings ------------------------------------------------------------------------------------------

    def _string(self, schema: Schema, place: str) -> str:
        least, most = _counts(schema, "minLength", "maxLength", place)
        name, pattern = schema.get("format"), schema.get("pattern")
        if name in _FREE_FORMATS:
            name = None
        if name is not None and name not in FORMATS:
            raise GrammarError(f"{place}/format: a grammar cannot express {shown(name)}")
        if pattern is not None and not isinstance(pattern, str):
            raise GrammarError(f"{place}/pattern: must be a string")
        if pattern is None and name is None:
            return self._text(least, most) if least > 0 or most is not None else self._rules.common("string")
        where = f"{place}/pattern" if name is None and least == 0 and most is None else place
        return f'"\\"" {_possible(where, lambda: self._matching(pattern, name, least, most))} "\\""'

    def _text(self, least: int, most: int | None) -> str:
        return f'"\\"" {self._rules.repeated(self._rules.common("char"), least, most)} "\\""'

    def _matching(self, pattern: str | None, format: str | None, least: int, most: int | None) -> str:
        """Return the inside of strings with a pattern, a format and a length; None: no pattern, no format."""
        add = self._rules.add
        for source, whole in ((pattern, False), (FORMATS.get(str(format)), True)):
            if source is not None:  # it may imply the limits of the length
                shortest, longest = lengths(source, whole=whole)
                least, most = 0 if least <= shortest else least, None if longest <= (most or 0) else most
        if (pattern is None or format is None) and least == 0 and most is None:
            with contextlib.suppress(ValueError):  # it has anchors inside, or it is invalid
                return add(pattern_rule(pattern or FORMATS[str(format)], add, whole=pattern is None))
        automata = [] if pattern is None else patterns(pattern)
        automata += [] if format is None else patterns(FORMATS[format], whole=True)
        return text_rule(automata, least, most, self._rules, string_chars, STRING_CHARACTERS)

    # --- arrays -------------------------------------------------------------------------------------------

    def _array(self, schema: Schema, place: str) -> str:
        least, most = _counts(schema, "minItems", "maxItems", place)
        first, rest, is_given = _keywords.items_of(schema)
        if schema.get("uniqueItems") and (most is None or most > 1):
            return self._unique_items(first, rest, least, most, place)
        if first and not is_given and least <= len(first):
            rest = False
        if rest is False:
            most = len(first) if most is None else min(most, len(first))
        if most is not None and least > most:
            raise GrammarError(
                f"{place}: minItems is {least}, but there can be only {most} items, so no value can match"
            )
        self._rules.common("space")
        inside = self._items(first[:most], rest, least, most, place)
        return f'"[" space {inside} space "]"' if inside else '"[" space "]"'

    def _unique_items(self, first: list[Any], rest: Any, least: int, most: int | None, place: str) -> str:
        """Return an array of different items of a finite set, in the set's order."""
        flat = [] if first or rest is True or rest is False else self._document.flattened(rest, f"{place}/items")
        values = _keywords.finite_values(flat, f"{place}/items")
        if not values:
            raise GrammarError(
                f"{place}/uniqueItems: a grammar cannot express this, except for items that are an enum, constants or "
                "booleans"
            )
        space = self._rules.common("space")
        items = [(self._rules.add(literal(_json(value))), False) for value in values]
        return f'"[" {space} {members(self._rules, items, None, least, most, place)} {space} "]"'

    def _items(self, first: list[Any], rest: Any, least: int, most: int | None, place: str) -> str:
        """Return the items between the brackets, built from last to first; after ``least``, the array may end."""
        left_most = None if most is None else most - len(first)
        tail = ""
        if left_most is None or left_most > 0:
            item = self._rules.add(self._visit(rest, f"{place}/items"))
            if not first:
                return self._rules.separated(item, least, most)
            tail = self._rules.repeated(self._rules.add(f'"," space {item}'), max(0, least - len(first)), left_most)
        for i in range(len(first) - 1, -1, -1):
            item = self._visit(first[i], f"{place}/prefixItems/{i}")
            comma = '"," space ' if i > 0 else ""
            tail = f"{comma}{item} {tail}".strip()
            if i >= least:
                tail = f"{self._rules.add(tail)}?"
        return tail

    # --- objects ------------------------------------------------------------------------------------------

    def _object(self, schema: Schema, place: str) -> str:
        rules = self._rules
        rules.common("space")
        least, most = _counts(schema, "minProperties", "maxProperties", place)
        schema, names = self._names(schema, place)
        properties, required, additional = _keywords.members_of(schema, place)
        if not properties and names is None and additional is True and least == 0 and most is None:
            return self._free_object(_FREE_DEPTH)
        named = [
            (rules.add(f'{literal(_json(name))} ":" space {self._visit(each, where)}'), name in required)
            for name, (each, where) in properties.items()
            if each is not False or name in required
        ]
        extra = None
        if additional is not False:
            if names is not None:
                key = rules.add(self._visit({"allOf": [{"type": "string"}, names]}, f"{place}/propertyNames"))
            else:
                key = rules.common("key") if not properties else self._other_key(list(properties))
            extra = rules.add(f'{key} ":" space {self._visit(additional, f"{place}/additionalProperties")}')
        inside = members(rules, named, extra, least, most, place)
        return f'"{{" space {inside} space "}}"' if inside else '"{" space "}"'

    def _names(self, schema: Schema, place: str) -> tuple[Schema, Any]:
        """Return the schema of an object without limits on names, and the schema of its free names, if it has one."""
        names = schema.get("propertyNames")
        if names is True or names == {}:
            names = None
        others = schema.get("patternProperties", {})
        if len(others) == 1 and not schema.get("properties") and names is None:
            if schema.get("additionalProperties", False) is not False:
                raise GrammarError(
                    f"{place}/patternProperties: a grammar cannot express this with additionalProperties"
                )
            [(pattern, value)] = others.items()
            schema, names = {**schema, "additionalProperties": value}, {"pattern": pattern}
        elif others:
            raise GrammarError(f"{place}/patternProperties: a grammar cannot express this")
        if names is None:
            return schema, None
        if names is False:
            return {**schema, "additionalProperties": False, "properties": {}}, None
        listed = _keywords.finite_values(self._document.flattened(names, f"{place}/propertyNames"), place)
        if listed and "properties" not in schema:
            values = schema.get("additionalProperties", True)
            named = {name: values for name in listed if isinstance(name, str)}
            return {**schema, "properties": named, "additionalProperties": False}, None
        if schema.get("properties") or schema.get("required"):
            if self._document.flattened(names, f"{place}/propertyNames") == [{"type": "string"}]:
                return schema, None
            raise GrammarError(f"{place}/propertyNames: a grammar cannot express this together with properties")
        return {"additionalProperties": True, **schema}, names

    def _other_key(self, names: list[str]) -> str:
        """Return an expression for keys other than these names, without escapes: each key has only one spelling."""
        self._rules.common("plains")
        tree: dict[str, Any] = {}
        for name in names:
            node = tree
            for char in name:
                node = node.setdefault(char, {})
            node[""] = {}
        return self._rules.add(f'"\\"" {self._not_in(tree)} "\\""')

    def _not_in(self, tree: dict[str, Any]) -> str:
        chars = sorted(char for char in tree if char)
        excluded = [(ord(char), ord(char)) for char in chars] + [(0, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0x7F, 0x7F)]
        alternatives = [f"{_gbnf_elements.char_class(excluded, negated=True)} plains"]
        alternatives += [f"{literal(char)} {self._not_in(tree[char])}" for char in chars if char not in '"\\']
        if "" not in tree:
            alternatives.append('""')
        return self._rules.add(" | ".join(alternatives))


def _bounds(schema: Schema, place: str) -> tuple[Fraction | None, Fraction | None, bool, bool]:
    """Lower and upper bound of a number, and whether each is exclusive."""
    if schema.get("format", "") not in (*_INTEGER_FORMATS, *_FREE_FORMATS, ""):
        raise GrammarError(f"{place}/format: a grammar cannot express {shown(schema['format'])}")
    low, above = _tightest(schema, "minimum", "exclusiveMinimum", 1, place)
    high, below = _tightest(schema, "maximum", "exclusiveMaximum", -1, place)
    return low, high, above, below


def _tightest(schema: Schema, key: str, exclusive: str, sign: int, place: str) -> tuple[Fraction | None, bool]:
    candidates = []
    for name in (key, exclusive):
        value = schema.get(name)
        if value is None or isinstance(value, bool):
            continue
        if not _keywords.is_number(value):
            raise GrammarError(f"{place}/{name}: must be a number, not {json.dumps(value)}")
        candidates.append((sign * Fraction(repr(value)), name == exclusive))
    if not candidates:
        return None, False
    bound, is_exclusive = max(candidates)
    return sign * bound, is_exclusive


def _counts(schema: Schema, low: str, high: str, place: str) -> tuple[int, int | None]:
    for key in (low, high):
        value = schema.get(key, 0)
        if not _keywords.is_number(value) or value != int(value) or value < 0:
            raise GrammarError(f"{place}/{key}: must be an integer of at least 0, not {json.dumps(value)}")
    least, most = int(schema.get(low, 0)), (int(schema[high]) if high in schema else None)
    if most is not None and least > most:
        raise GrammarError(f"{place}: {low} is {least} and {high} is {most}, so no value can match")
    return least, most


def _possible(place: str, build: Callable[[], str]) -> str:
    """Name the place in the error if there is no such value."""
    try:
        return build()
    except ValueError as error:
        raise GrammarError(f"{place}: {error}") from None


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # unpaired surrogates
        return json.dumps(value)
    return text
