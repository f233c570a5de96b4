"""Tools that a model may call: JSON descriptions, or Python functions converted to them."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

from pyggml._core.checks import shown
from pyggml.chat.types import ToolCall
from pyggml.errors import InvalidParameterError
from pyggml.schema import Schema, schema_of

#: A tool as callers may pass it.
ToolLike = Mapping[str, Any] | Callable[..., Any]

_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")

# Sections of a Google-style docstring; the text before the first one describes the function.
_SECTION = re.compile(
    r"^(Args|Arguments|Parameters|Attributes|Examples?|Notes?|Raises|Returns|Todo|Warnings?|Yields):\s*$", re.MULTILINE
)
_ARGUMENT_SECTIONS = ("Args", "Arguments", "Parameters")
# Keywords of a schema whose text determines the grammar, and so must not be changed.
_NOT_TEXT = ("$ref", "type", "format", "pattern")
# One of them makes a mapping a schema of an object, even without a type.
_COMPOSED = frozenset({"properties", "additionalProperties", "$ref", "allOf", "anyOf", "oneOf", "patternProperties"})
_KEYS = ("name", "description", "parameters", "strict", "type", "function", "returns", "return", "response")
_ARGUMENT = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")


@dataclasses.dataclass(frozen=True)
class Tool:
    """A tool's description for the model, and the Python types of its arguments.

    Attributes:
        name: the name by which the model calls it.
        description: what it does.
        parameters: JSON schema of its arguments, an object.
        types: for a Python function, parameter name -> annotation.
    """

    name: str
    description: str
    parameters: Schema
    types: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the tool in OpenAI's format."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    def with_texts_changed(self, change: Callable[[str], str]) -> Tool:
        """Copy the tool with every text that the model sees changed: texts may be untrusted."""
        parameters = _map_texts(self.parameters, change)
        return dataclasses.replace(self, description=change(self.description), parameters=parameters)

    def call(self, call_id: str, arguments_text: str) -> ToolCall:
        """Create a call to this tool."""
        return ToolCall(call_id, self.name, arguments_text, self.types)


def checked_tools(tools: Sequence[ToolLike] | None) -> dict[str, Tool]:
    """Check tools and return them by name, in their order.

    Each is in OpenAI's format, or only its "function" object, or a typed Python function with a Google-style docstring.

    Raises:
        InvalidParameterError: a tool is malformed; names the tool and the place.
    """
    if tools is None:
        return {}
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Sequence):
        raise InvalidParameterError(
            f"tools must be a sequence of tools, not {type(tools).__name__}: put a single one in a list"
        )
    found: dict[str, Tool] = {}
    for i, each in enumerate(tools):
        tool = _tool(f"tools[{i}]", each)
        if tool.name in found:
            raise InvalidParameterError(f"two tools are called {tool.name}: give them different names")
        found[tool.name] = tool
    return found


def tool_from_function(function: Callable[..., Any]) -> Tool:
    """Make a tool from a Python function.

    The tool has the function's name and, as its description, the docstring up to the first section. Each parameter has
    the JSON schema of its annotation and a description from the docstring's ``Args`` or from ``Annotated[T, "..."]``,
    and is required unless it has a default.

    Raises:
        InvalidParameterError: a parameter has no annotation, cannot be passed by name, or has a type that JSON cannot
            express.
    """
    name = getattr(function, "__name__", None)
    if not isinstance(name, str):
        raise InvalidParameterError(f"a tool must be a mapping or a function with a name, not {shown(function)}")
    description, explained = _docstring(inspect.getdoc(function) or "")
    types = _types(name, function)
    fields: list[Any] = []
    for parameter in _parameters(name, function):
        annotation = _annotation(name, parameter, types)
        if parameter.name in explained:
            annotation = Annotated[annotation, explained[parameter.name]]
        has_default = parameter.default is not parameter.empty
        fields.append((parameter.name, annotation, *([dataclasses.field(default=None)] if has_default else [])))
    try:
        # The schema of a function's parameters is that of an object with the same fields.
        parameters = schema_of(dataclasses.make_dataclass(name, fields, kw_only=True))
    except InvalidParameterError as error:
        raise InvalidParameterError(f"the tool {name} cannot be described: {error}") from None
    return Tool(_checked_name(name, name), description, parameters, types)


def _parameters(name: str, function: Callable[..., Any]) -> Iterable[inspect.Parameter]:
    try:
        return inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise InvalidParameterError(f"the parameters of the tool {name} cannot be determined: {error}") from None


def _annotation(name: str, parameter: inspect.Parameter, types: Mapping[str, Any]) -> Any:
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise InvalidParameterError(f"the parameter {parameter} of the tool {name} cannot be passed by name")
    if parameter.name not in types:
        raise InvalidParameterError(
            f"the parameter {parameter.name} of the tool {name} has no type annotation, which the model needs: add one"
        )
    return types[parameter.name]


def _types(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception as error:  # annotations that are strings are evaluated, and may raise anything
        raise InvalidParameterError(f"an annotation of the tool {name} cannot be resolved: {error}") from error
    return {parameter: hint for parameter, hint in hints.items() if parameter != "return"}


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into its description and that of each argument."""
    parts = _SECTION.split(text)
    explained: dict[str, str] = {}
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        if title in _ARGUMENT_SECTIONS:
            explained |= _argument_descriptions(inspect.cleandoc("\n" + body))
    return parts[0].strip(), explained


def _argument_descriptions(section: str) -> dict[str, str]:
    """Argument -> its description in a docstring section; indented lines continue the line above."""
    found: dict[str, str] = {}
    name = None
    for line in section.splitlines():
        argument = None if line.startswith((" ", "\t")) else _ARGUMENT.match(line)
        if argument:
            name, found[argument[1]] = argument[1], argument[2].strip()
        elif name:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found


def _map_texts(schema: Any, change: Callable[[str], str]) -> Any:
    """Copy a schema with its texts and property names changed, but not the keywords in ``_NOT_TEXT``."""
    if isinstance(schema, str):
        return change(schema)
    if isinstance(schema, list):
        return [_map_texts(item, change) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _map_keyword(key, value, change) for key, value in schema.items()}


def _map_keyword(key: str, value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str) and key in _NOT_TEXT:
        return value
    if isinstance(value, dict) and key == "properties":
        return {change(name): _map_texts(schema, change) for name, schema in value.items()}
    return _map_texts(value, change)


def _tool(place: str, tool: object) -> Tool:
    if callable(tool) and not isinstance(tool, Mapping):
        return tool_from_function(tool)
    if not isinstance(tool, Mapping):
        raise InvalidParameterError(f"{place} must be a mapping or a function, not {type(tool).__name__}")
    if tool.get("type") not in (None, "function"):
        raise InvalidParameterError(f"{place} has the type {shown(tool['type'])}, but only 'function' is supported")
    is_wrapped = tool.get("function") is not None
    function = tool["function"] if is_wrapped else tool
    if not isinstance(function, Mapping):
        raise InvalidParameterError(f"{place}.function must be a mapping, not {type(function).__name__}")
    _require_known_keys(f"{place}.function" if is_wrapped else place, function)
    name = _checked_name(place, function.get("name"))
    description = function.get("description") or ""
    if not isinstance(description, str):
        raise InvalidParameterError(f"the description of the tool {name} must be a string, not {shown(description)}")
    return Tool(name, description, _checked_parameters(name, function.get("parameters")))


def _require_known_keys(place: str, function: Mapping[str, Any]) -> None:
    """Refuse an unknown key where "parameters" is missing: it may be meant to describe the arguments."""
    unknown = next((key for key, value in function.items() if key not in _KEYS and value is not None), None)
    if unknown is not None and function.get("parameters") is None:
        raise InvalidParameterError(
            f"{place} has the unknown key {shown(unknown)}: the JSON schema of the arguments is called 'parameters'"
        )


def _checked_name(place: str, name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidParameterError(
            f"{place} needs a name of 1 to 128 letters, digits and _ . : / -, not {shown(name)}"
        )
    return name


def _checked_parameters(name: str, parameters: object) -> Schema:
    if parameters is None or parameters == {}:
        return {"type": "object", "properties": {}}
    if not isinstance(parameters, Mapping) or parameters.get("type") not in (None, "object"):
        raise InvalidParameterError(
            f"the parameters of the tool {name} must be the JSON schema of an object, not {shown(parameters)}"
        )
    try:
        copy: Schema = json.loads(json.dumps(dict(parameters)))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidParameterError(f"the parameters of the tool {name} must be JSON values: {error}") from None
    is_bare = any(isinstance(value, Mapping) for value in parameters.values()) and parameters.get("type") is None
    if is_bare and not _COMPOSED.intersection(parameters):
        raise InvalidParameterError(
            f"the parameters of the tool {name} must be the JSON schema of an object, with the arguments in "
            f"'properties': write {{'type': 'object', 'properties': {{...}}}}"
        )
    return {"type": "object", **copy} | {"type": "object"}  # in place of null, too
