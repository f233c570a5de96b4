"""Tools that a model may ask to have called: JSON descriptions, and Python functions turned into such."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from pyggml.chat_types import ToolCall
from pyggml.errors import InvalidParameterError
from pyggml.schema import Schema, schema_of

#: What a caller may give for a tool.
ToolLike = Mapping[str, Any] | Callable[..., Any]

_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")

# Sections of a Google-style docstring; what stands before the first one describes the function.
_SECTION = re.compile(
    r"^(Args|Arguments|Parameters|Attributes|Examples?|Notes?|Raises|Returns|Todo|Warnings?|Yields):\s*$", re.MULTILINE
)
_ARGUMENT_SECTIONS = ("Args", "Arguments", "Parameters")
_ARGUMENT = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")


@dataclasses.dataclass(frozen=True)
class Tool:
    """What a model is told about one tool, and what its arguments are for Python.

    Attributes:
        name: how the model calls it.
        description: what it does.
        parameters: the JSON schema of its arguments, an object.
        types: of a Python function, parameter name -> annotation.
    """

    name: str
    description: str
    parameters: Schema
    types: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """In OpenAI's form."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    def described(self, change: Callable[[str], str]) -> Tool:
        """The same with its descriptions changed, which may be other people's words."""
        parameters = _with_descriptions(self.parameters, change)
        return dataclasses.replace(self, description=change(self.description), parameters=parameters)

    def call(self, call_id: str, arguments_text: str) -> ToolCall:
        """A call of it."""
        return ToolCall(call_id, self.name, arguments_text, self.types)


def checked(tools: Sequence[ToolLike] | None) -> dict[str, Tool]:
    """The tools by name, in their order.

    Args:
        tools: each in OpenAI's form, or the "function" object of that alone, or a typed Python function, whose
            signature and Google-style docstring say what it takes.

    Raises:
        InvalidParameterError: something in them is not as it should be; names the tool and the place.
    """
    if tools is None:
        return {}
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Sequence):
        raise InvalidParameterError(
            f"tools must be a sequence of tools, not {type(tools).__name__}; put a single one into a list"
        )
    found: dict[str, Tool] = {}
    for i, each in enumerate(tools):
        tool = _tool(f"tools[{i}]", each)
        if tool.name in found:
            raise InvalidParameterError(f"two tools are called {tool.name}; give them different names")
        found[tool.name] = tool
    return found


def of_function(function: Callable[..., Any]) -> Tool:
    """A tool of a Python function.

    The name is the function's; the description is its docstring up to the first section; each parameter has the JSON
    schema of its annotation, described by the docstring's ``Args`` or by ``Annotated[T, "..."]``, and is required
    unless it has a default.

    Raises:
        InvalidParameterError: a parameter without an annotation, one that cannot be given by name, or a type that JSON
            cannot express.
    """
    name = getattr(function, "__name__", None)
    if not isinstance(name, str):
        raise InvalidParameterError(f"a tool must be a mapping or a function with a name, not {function!r}")
    description, explained = _docstring(inspect.getdoc(function) or "")
    types = _types(name, function)
    fields: list[Any] = []
    for parameter in inspect.signature(function).parameters.values():
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


def _annotation(name: str, parameter: inspect.Parameter, types: Mapping[str, Any]) -> Any:
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise InvalidParameterError(f"the parameter {parameter} of the tool {name} cannot be given by name")
    if parameter.name not in types:
        raise InvalidParameterError(
            f"the parameter {parameter.name} of the tool {name} has no type annotation, so a model cannot be told what "
            "to give for it"
        )
    return types[parameter.name]


def _types(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise InvalidParameterError(f"an annotation of the tool {name} cannot be resolved: {error}") from None
    return {parameter: hint for parameter, hint in hints.items() if parameter != "return"}


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """A docstring's description, and what its section about arguments says of each."""
    parts = _SECTION.split(text)
    explained: dict[str, str] = {}
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        if title in _ARGUMENT_SECTIONS:
            explained |= _explained(inspect.cleandoc("\n" + body))
    return parts[0].strip(), explained


def _explained(section: str) -> dict[str, str]:
    """The arguments of a section's lines; deeper lines go on with the one above."""
    found: dict[str, str] = {}
    name = None
    for line in section.splitlines():
        argument = None if line.startswith((" ", "\t")) else _ARGUMENT.match(line)
        if argument:
            name, found[argument[1]] = argument[1], argument[2].strip()
        elif name:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found


def _with_descriptions(schema: Any, change: Callable[[str], str]) -> Any:
    if isinstance(schema, list):
        return [_with_descriptions(item, change) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: change(value) if key == "description" and isinstance(value, str) else _with_descriptions(value, change)
        for key, value in schema.items()
    }


def _tool(place: str, tool: object) -> Tool:
    if isinstance(tool, Mapping):
        return _of_json(place, tool)
    if callable(tool):
        return of_function(tool)
    raise InvalidParameterError(f"{place} must be a mapping or a function, not {type(tool).__name__}")


def _of_json(place: str, tool: Mapping[str, Any]) -> Tool:
    if tool.get("type", "function") != "function":
        raise InvalidParameterError(f"{place} is of the type {tool['type']!r}; only functions can be called")
    function = tool.get("function", tool)
    if not isinstance(function, Mapping):
        raise InvalidParameterError(f"{place}.function must be a mapping, not {type(function).__name__}")
    name = _checked_name(place, function.get("name"))
    description = function.get("description") or ""
    if not isinstance(description, str):
        raise InvalidParameterError(f"the description of the tool {name} must be a string, not {description!r}")
    return Tool(name, description, _checked_parameters(name, function.get("parameters")))


def _checked_name(place: str, name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidParameterError(f"{place} needs a name of 1 to 128 letters, digits and _ . : / -, not {name!r}")
    return name


def _checked_parameters(name: str, parameters: object) -> Schema:
    if parameters is None or parameters == {}:
        return {"type": "object", "properties": {}}
    if not isinstance(parameters, Mapping) or parameters.get("type", "object") != "object":
        raise InvalidParameterError(
            f"the parameters of the tool {name} must be the JSON schema of an object, not {parameters!r}"
        )
    try:
        copy: Schema = json.loads(json.dumps(dict(parameters)))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidParameterError(f"the parameters of the tool {name} must be JSON values: {error}") from None
    return {"type": "object", **copy}
