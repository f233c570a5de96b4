"""The rules of a JSON schema's grammar."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from pyggml._core.checks import shown
from pyggml.errors import GrammarError
from pyggml.schema import _flattening, _gbnf_elements
from pyggml.schema._flattening import Schema
from pyggml.schema._gbnf_elements import any_of, literal
from pyggml.schema._keyword_validation import require_valid_keywords
from pyggml.schema._members import Members
from pyggml.schema._regex import pattern_rule

_MAX_RULES = 100_000

# Named rules that schemas may need. White space is bounded, so that a model cannot generate it endlessly.
_COMMON = {
    "space": '| " " | "\\n" [ ]{0,20}',
    "char": r'[^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" hex16)',
    "hex16": "[0-9a-ce-fA-CE-F] hex hex hex | [dD] [0-7] hex hex",  # without surrogates
    "hex": "[0-9a-fA-F]",
    "plain": r'[^"\\\x7F\x00-\x1F]',
    "plains": "plain{0,40}",
    "key": r'"\"" char{0,40} "\""',  # key of a member with a free name; pyggml limits its length
    "string": r'"\"" char* "\""',
    "integer": '"-"? ("0" | [1-9] [0-9]{0,14})',
    "number": 'integer ("." [0-9]{1,15})? ([eE] [-+]? [0-9]{1,2})?',
    "boolean": '"true" | "false"',
    "null": '"null"',
}

_FORMATS = {
    "date": '[12] [0-9]{3} "-" (("01" | "03" | "05" | "07" | "08" | "10" | "12") "-"'
    ' ("0" [1-9] | [12] [0-9] | "3" [01])'
    ' | ("04" | "06" | "09" | "11") "-" ("0" [1-9] | [12] [0-9] | "30") | "02-" ("0" [1-9] | "1" [0-9] | "2" [0-8]))',
    "time": '([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] ("." [0-9]{1,6})?'
    ' ("Z" | [+-] ([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9])',
    "uuid": 'hex{8} "-" hex{4} "-" hex{4} "-" hex{4} "-" hex{12}',
    "label": "[a-z0-9]{1,20}",
    "hostname": 'label ("." label){1,3}',
    "email": 'label ("." label)? "@" hostname',
    "uri": '"https://" hostname ("/" label){0,5}',
    "octet": '[0-9] | [1-9] [0-9] | "1" [0-9] [0-9] | "2" ([0-4] [0-9] | "5" [0-5])',
    "ipv4": 'octet "." octet "." octet "." octet',
    "ipv6": '(hex{1,4} ":"){7} hex{1,4}',
    "duration": '"P" [1-9] [0-9]{0,2} [DW] | "PT" [1-9] [0-9]{0,2} [HMS]',
}
_FORMATS["date-time"] = 'date "T" time'
_NAMED_FORMATS = ("date", "time", "date-time", "uuid", "hostname", "email", "uri", "ipv4", "ipv6", "duration")
_INTEGER_FORMATS = {"int32": 2**31, "int64": 2**63}
_FREE_FORMATS = ("password", "float", "double", "textarea")  # do not restrict the text

_MAX_MULTIPLES = 2_000

# Bounds of unconstrained values, so that a model cannot generate one endlessly: wide enough for usual JSON.
_FREE_DEPTH = 5
_FREE_ITEMS = 100
_FREE_CHARS = 1_000

# Keywords that a grammar cannot express; rejected wherever they would matter.
_UNSUPPORTED = (
    "not", "if", "then", "else", "contains", "patternProperties", "propertyNames", "dependentRequired",
    "dependentSchemas", "dependencies", "unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef",
)  # fmt: skip


class Converter:
    """A converter of a schema, or a part of it, to one grammar."""

    def __init__(self, document: Any) -> None:
        """Create a converter; ``document`` is the whole schema as JSON values, for references."""
        self._root = document
        self._document = _flattening.Document(document)
        self._rules: dict[str, str] = {}
        self._names: dict[str, str] = {}  # text -> the rule that has it
        self._refs: dict[str, str] = {}  # place -> rule
        self._open: set[str] = set()  # references being followed without an enclosing array or object

    def grammar(self, schema: Any, place: str) -> str:
        """Return the grammar of a schema; ``place`` is its JSON pointer, for messages.

        Raises:
            GrammarError: a grammar cannot express the schema; the message has the place.
        """
        try:
            self._rules["root"] = self._visit(schema, place)
        except GrammarError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError):
            require_valid_keywords(self._root)  # names the malformed keyword; a valid schema never gets here
            raise
        return "".join(f"{name} ::= {text}\n" for name, text in self._rules.items())

    # --- rules --------------------------------------------------------------------------------------------

    def _add(self, text: str) -> str:
        """Return the name of the rule with this text; add the rule if there is none."""
        name = self._names.get(text)
        if name is None:
            name = self._names[text] = f"r{len(self._names)}"
            self._define(name, text)
        return name

    def _define(self, name: str, text: str) -> None:
        self._rules[name] = text
        if len(self._rules) > _MAX_RULES:
            raise GrammarError("the JSON schema is too large for a grammar")

    def _common(self, name: str) -> str:
        """Add a common rule, together with the rules it uses, and return its name."""
        if name not in self._rules:
            table = _COMMON if name in _COMMON else _FORMATS
            self._define(name, table[name])
            words = set(table[name].replace("(", " ").replace(")", " ").replace("*", " ").replace("{", " ").split())
            for other in sorted(words & (_COMMON.keys() | _FORMATS.keys())):
                self._common(other)
        return name

    def _error(self, place: str, reason: str) -> GrammarError:
        return GrammarError(f"{place}: {reason}")

    # --- schemas ------------------------------------------------------------------------------------------

    def _visit(self, schema: Any, place: str) -> str:
        """Return a grammar expression for one schema."""
        if schema is True or schema == {}:
            return self._free_value(_FREE_DEPTH)
        if schema is False:
            raise self._error(place, "no value can match")
        if not isinstance(schema, dict):
            raise self._error(place, f"a schema must be an object or a boolean, not {json.dumps(schema)[:40]}")
        schema = _flattening.without_annotations(schema)
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
            raise self._error(f"{place}/$ref", f"{ref} refers to itself")
        if target_place not in self._refs:
            self._refs[target_place] = name = f"ref{len(self._refs)}"
            self._define(name, "")  # reserves its place among the rules
            self._open.add(target_place)
            self._rules[name] = self._visit(target, target_place)
            self._open.remove(target_place)
        return self._refs[target_place]

    def _union(self, key: str, alternatives: Any, place: str) -> str:
        if not isinstance(alternatives, list) or not alternatives:
            raise self._error(f"{place}/{key}", "must be a list of schemas")
        if key == "oneOf":
            alternatives = self._document.exclusive(alternatives, place)
        expressions = [
            self._visit(each, f"{place}/{key}/{i}") for i, each in enumerate(alternatives) if each is not False
        ]
        if not expressions:
            raise self._error(place, "no value can match")
        return any_of(list(dict.fromkeys(expressions)))

    def _typed(self, schema: Schema, place: str) -> str:
        """Return a grammar expression for a schema without references and unions."""
        for key in _UNSUPPORTED:
            if key in schema:
                raise self._error(f"{place}/{key}", "a grammar cannot express this")
        values = _flattening.values_of(schema, place)
        if values is not None:
            return any_of([literal(_json(value)) for value in values])
        methods: dict[str, Callable[[Schema, str], str]] = {
            "object": lambda schema, place: self._enclosed(self._object, schema, place),
            "array": lambda schema, place: self._enclosed(self._array, schema, place),
            "string": self._string,
            "integer": self._integer,
            "number": self._number,
            "boolean": lambda _schema, _place: self._common("boolean"),
            "null": lambda _schema, _place: self._common("null"),
        }
        types = _flattening.types_of(schema, place)
        return any_of([f"({methods[name](schema, place)})" for name in types])

    def _enclosed(self, method: Callable[[Schema, str], str], schema: Schema, place: str) -> str:
        """Visit the inside of an array or object, which may refer to the schemas that contain it."""
        around, self._open = self._open, set()
        try:
            return method(schema, place)
        finally:
            self._open = around

    # --- any value ----------------------------------------------------------------------------------------

    def _free_value(self, depth: int) -> str:
        """Any value with at most ``depth`` arrays and objects inside each other."""
        text = f'"\\"" {_gbnf_elements.repeated(self._common("char"), 0, _FREE_CHARS, self._add)} "\\""'
        kinds = [self._add(text), *map(self._common, ("number", "boolean", "null"))]
        if depth > 0:
            array = f'"[" space {self._list(self._free_value(depth - 1), 0, _FREE_ITEMS)} space "]"'
            kinds += [self._add(array), self._free_object(depth)]
        return self._add(" | ".join(kinds))

    def _free_object(self, depth: int) -> str:
        self._common("space")
        member = self._add(f'{self._common("key")} ":" space {self._free_value(depth - 1)}')
        return self._add(f'"{{" space {self._list(member, 0, _FREE_ITEMS)} space "}}"')

    # --- numbers ------------------------------------------------------------------------------------------

    def _integer(self, schema: Schema, place: str) -> str:
        low, high, above, below = self._bounds(schema, place)
        limit = _INTEGER_FORMATS.get(schema.get("format", ""))
        least = None if low is None else _gbnf_elements.units(low, above)
        most = None if high is None else -_gbnf_elements.units(-high, below)
        if limit is not None:
            least, most = (
                max(-limit, -limit if least is None else least),
                min(limit - 1, limit if most is None else most),
            )
        if "multipleOf" in schema:
            return self._multiples(schema["multipleOf"], least, most, place)
        if least is None and most is None:
            return self._common("integer")
        return self._possible(place, lambda: self._add(_gbnf_elements.integers(least, most)))

    def _multiples(self, step: Any, least: int | None, most: int | None, place: str) -> str:
        if not _flattening.is_number(step) or step <= 0 or step != int(step):
            raise self._error(f"{place}/multipleOf", "must be a positive integer for a grammar")
        step = int(step)
        if step == 1:
            return self._possible(place, lambda: self._add(_gbnf_elements.integers(least, most)))
        if least is None or most is None or (most - least) // step > _MAX_MULTIPLES:
            raise self._error(
                f"{place}/multipleOf",
                f"for a grammar, this needs a minimum and maximum with at most {_MAX_MULTIPLES} multiples between them",
            )
        multiples = range(-(-least // step) * step, most + 1, step)
        if not multiples:
            raise self._error(place, "no value can match")
        return self._add(" | ".join(literal(str(number)) for number in multiples))

    def _number(self, schema: Schema, place: str) -> str:
        if "multipleOf" in schema or schema.get("format") in _INTEGER_FORMATS:
            return self._integer(schema, place)
        low, high, above, below = self._bounds(schema, place)
        if low is None and high is None:
            return self._common("number")
        return self._possible(place, lambda: self._add(_gbnf_elements.numbers(low, high, above=above, below=below)))

    def _bounds(self, schema: Schema, place: str) -> tuple[Fraction | None, Fraction | None, bool, bool]:
        """Lower and upper bound, and whether each is exclusive."""
        if schema.get("format", "") not in (*_INTEGER_FORMATS, *_FREE_FORMATS, ""):
            raise self._error(f"{place}/format", f"a grammar cannot express {shown(schema['format'])}")
        found: dict[str, tuple[Fraction | None, bool]] = {}
        for key, exclusive, sign in (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1)):
            bound, beyond = schema.get(key), schema.get(exclusive)
            candidates = []
            for value, open_end, name in ((bound, beyond is True, key), (beyond, True, exclusive)):
                if value is None or isinstance(value, bool):
                    continue
                if not _flattening.is_number(value):
                    raise self._error(f"{place}/{name}", f"must be a number, not {json.dumps(value)}")
                candidates.append((sign * Fraction(repr(value)), open_end))
            tightest = max(candidates, default=None)
            found[key] = (None, False) if tightest is None else (sign * tightest[0], tightest[1])
        return found["minimum"][0], found["maximum"][0], found["minimum"][1], found["maximum"][1]

    def _possible(self, place: str, build: Callable[[], str]) -> str:
        try:
            return build()
        except ValueError as error:
            raise self._error(place, str(error)) from None

    # --- strings ------------------------------------------------------------------------------------------

    def _string(self, schema: Schema, place: str) -> str:
        least, most = self._counts(schema, "minLength", "maxLength", place)
        name = schema.get("format")
        has_length = least > 0 or most is not None
        if name is not None and name not in (*_NAMED_FORMATS, *_FREE_FORMATS):
            raise self._error(f"{place}/format", f"a grammar cannot express {shown(name)}")
        given = [key for key in ("pattern", "format") if key in schema and schema[key] not in _FREE_FORMATS]
        if len(given) + (has_length and bool(given)) > 1:
            raise self._error(place, f"a grammar cannot express {given[0]} together with other limits")
        if "pattern" in schema:
            return self._pattern(schema["pattern"], place)
        if given:
            return f'"\\"" {self._common(str(name))} "\\""'
        if not has_length:
            return self._common("string")
        return f'"\\"" {_gbnf_elements.repeated(self._common("char"), least, most, self._add)} "\\""'

    def _pattern(self, pattern: Any, place: str) -> str:
        if not isinstance(pattern, str):
            raise self._error(f"{place}/pattern", "must be a string")
        return self._possible(f"{place}/pattern", lambda: f'"\\"" {self._add(pattern_rule(pattern, self._add))} "\\""')

    def _counts(self, schema: Schema, low: str, high: str, place: str) -> tuple[int, int | None]:
        for key in (low, high):
            value = schema.get(key, 0)
            if not _flattening.is_number(value) or value != int(value) or value < 0:
                raise self._error(f"{place}/{key}", f"must be an integer of at least 0, not {json.dumps(value)}")
        least, most = int(schema.get(low, 0)), (int(schema[high]) if high in schema else None)
        if most is not None and least > most:
            raise self._error(place, f"{low} is {least} and {high} is {most}, so no value can match")
        return least, most

    # --- arrays -------------------------------------------------------------------------------------------

    def _array(self, schema: Schema, place: str) -> str:
        least, most = self._counts(schema, "minItems", "maxItems", place)
        if schema.get("uniqueItems") and (most is None or most > 1):
            raise self._error(f"{place}/uniqueItems", "a grammar cannot express this")
        first, rest, is_given = _flattening.items_of(schema)
        if first and not is_given and least <= len(first):
            rest = False
        if rest is False:
            most = len(first) if most is None else min(most, len(first))
        if most is not None and least > most:
            raise self._error(place, f"minItems is {least}, but there can be only {most} items, so no value can match")
        self._common("space")
        inside = self._items(first[:most], rest, least, most, place)
        return f'"[" space {inside} space "]"' if inside else '"[" space "]"'

    def _items(self, first: list[Any], rest: Any, least: int, most: int | None, place: str) -> str:
        """Return the items between the brackets, built from last to first; after ``least``, the array may end."""
        left_most = None if most is None else most - len(first)
        tail = ""
        if left_most is None or left_most > 0:
            item = self._add(self._visit(rest, f"{place}/items"))
            if not first:
                return self._list(item, least, most)
            tail = self._repeat(self._add(f'"," space {item}'), max(0, least - len(first)), left_most)
        for i in range(len(first) - 1, -1, -1):
            item = self._visit(first[i], f"{place}/prefixItems/{i}")
            comma = '"," space ' if i > 0 else ""
            tail = f"{comma}{item} {tail}".strip()
            if i >= least:
                tail = f"{self._add(tail)}?"
        return tail

    def _list(self, item: str, least: int, most: int | None) -> str:
        """Return an expression for items separated by commas."""
        if most == 0:
            return ""
        more = self._repeat(self._add(f'"," space {item}'), max(0, least - 1), None if most is None else most - 1)
        whole = f"{item} {more}".strip()
        return whole if least > 0 else f"({whole})?"

    def _repeat(self, item: str, least: int, most: int | None) -> str:
        return _gbnf_elements.repeated(item, least, most, self._add)

    # --- objects ------------------------------------------------------------------------------------------

    def _object(self, schema: Schema, place: str) -> str:
        self._common("space")
        least, most = self._counts(schema, "minProperties", "maxProperties", place)
        properties, required, additional = _flattening.members_of(schema, place)
        if not properties and additional is True and least == 0 and most is None:
            return self._free_object(_FREE_DEPTH)
        members: list[tuple[str, bool]] = []
        for name, (each, where) in properties.items():
            if each is False and name not in required:
                continue
            value = self._visit(each, where)
            members.append((self._add(f'{literal(_json(name))} ":" space {value}'), name in required))
        extra = None
        if additional is not False:
            key = self._common("key") if not properties else self._other_key(list(properties))
            extra = self._add(f'{key} ":" space {self._visit(additional, f"{place}/additionalProperties")}')
        inside = Members(members, extra, least, most, self._add, functools.partial(self._error, place)).text()
        return f'"{{" space {inside} space "}}"' if inside else '"{" space "}"'

    def _other_key(self, names: list[str]) -> str:
        """Return an expression for keys other than these names, without escapes: each key has only one spelling."""
        self._common("plains")
        tree: dict[str, Any] = {}
        for name in names:
            node = tree
            for char in name:
                node = node.setdefault(char, {})
            node[""] = {}
        return self._add(f'"\\"" {self._not_in(tree)} "\\""')

    def _not_in(self, tree: dict[str, Any]) -> str:
        chars = sorted(char for char in tree if char)
        excluded = [(ord(char), ord(char)) for char in chars] + [(0, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0x7F, 0x7F)]
        alternatives = [f"{_gbnf_elements.char_class(excluded, negated=True)} plains"]
        alternatives += [f"{literal(char)} {self._not_in(tree[char])}" for char in chars if char not in '"\\']
        if "" not in tree:
            alternatives.append('""')
        return self._add(" | ".join(alternatives))


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # unpaired surrogates
        return json.dumps(value)
    return text
