"""Python functions and JSON as tools, and arguments on their way back to Python."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import functools
from collections.abc import Callable
from typing import Annotated, Any, Literal, Optional, TypedDict

import pytest

import pyggml
from pyggml.chat import tools
from pyggml.errors import InvalidParameterError
from pyggml.schema import typed_values


class Unit(enum.Enum):
    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


@dataclasses.dataclass
class Place:
    """A point on the globe."""

    name: str
    height_m: float = 0.0


class Span(TypedDict):
    first: int
    last: int


def get_weather(  # noqa: D417
    city: str,
    unit: Unit = Unit.CELSIUS,
    days: Annotated[int, "from today on"] = 1,
    places: list[Place] | None = None,
    mode: Literal["fast", "good"] = "fast",
    span: Span | None = None,
) -> str:
    """Tells the weather.

    It asks no one, and makes it up.

    Args:
        city (str): the town, or
            the village.
        unit: of the temperature.

    Returns:
        What is thought: it rains.
    """
    return f"{city} {unit} {days} {places} {mode} {span}"


def test_a_function_describes_itself() -> None:
    tool = tools.tool_from_function(get_weather)
    assert tool.name == "get_weather"
    assert tool.description == "Tells the weather.\n\nIt asks no one, and makes it up."
    properties = tool.parameters["properties"]
    assert list(properties) == ["city", "unit", "days", "places", "mode", "span"]
    assert tool.parameters["required"] == ["city"]
    assert properties["city"] == {"type": "string", "description": "the town, or the village."}
    assert properties["unit"] == {"enum": ["celsius", "fahrenheit"], "description": "of the temperature."}
    assert properties["days"] == {"type": "integer", "description": "from today on"}
    assert properties["mode"] == {"enum": ["fast", "good"]}
    assert tool.parameters["$defs"]["Place"]["required"] == ["name"]
    assert tool.parameters["$defs"]["Place"]["description"] == "A point on the globe."


def test_arguments_get_the_types_of_the_function() -> None:
    text = (
        '{"city": "Rome", "unit": "fahrenheit", "places": [{"name": "hill", "height_m": 3}], '
        '"span": {"first": 1, "last": 2}}'
    )
    call = tools.tool_from_function(get_weather).call("1", text)
    assert call.arguments == {
        "city": "Rome",
        "unit": Unit.FAHRENHEIT,
        "places": [Place("hill", 3.0)],
        "span": {"first": 1, "last": 2},
    }
    assert get_weather(**call.arguments).startswith("Rome Unit.FAHRENHEIT 1 [Place(name='hill', height_m=3.0)]")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"city": "Ro', "cut off"),
        ('["Rome"]', "must be a JSON object"),
        ('{"town": "Rome"}', "has an unknown argument town"),
        ('{"city": 1}', "the argument city of the call to get_weather: 1 is not a valid str"),
        ('{"city": "Rome", "unit": "kelvin"}', "'kelvin' is not a valid Unit"),
        ('{"city": "Rome", "places": [{"nom": "x"}]}', "is no"),
        ('{"city": "Rome", "span": {"first": 1}}', "is no"),
    ],
)
def test_arguments_that_do_not_fit(text: str, message: str) -> None:
    call = tools.tool_from_function(get_weather).call("1", text)
    with pytest.raises(InvalidParameterError, match=message):
        _ = call.arguments


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (int, 3, 3),
        (float, 3, 3.0),
        (Optional[int], None, None),  # noqa: UP045
        (int | str, "3", "3"),
        (list[float], [1, 2.5], [1.0, 2.5]),
        (tuple[int, str], [1, "a"], (1, "a")),
        (tuple[int, ...], [1, 2], (1, 2)),
        (dict[str, Unit], {"a": "celsius"}, {"a": Unit.CELSIUS}),
        (Literal["a", 1], 1, 1),
        (dt.date, "2026-01-31", dt.date(2026, 1, 31)),
        (Any, [1, {"a": None}], [1, {"a": None}]),
        (Annotated[Place | None, "where"], {"name": "x"}, Place("x")),
    ],
)
def test_json_values_as_types(annotation: Any, value: Any, expected: Any) -> None:
    made = typed_values.as_type(annotation, value)
    assert made == expected
    assert type(made) is type(expected)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, True),
        (bool, 1),
        (int, "3"),
        (str, None),
        (Literal[1], True),
        (tuple[int, int], [1]),
        (list[int], "12"),
        (dt.date, "yesterday"),
        (Place, {"height_m": 1.0}),
        (Span, {"first": 1, "last": 2, "middle": 3}),
    ],
)
def test_json_values_of_other_types(annotation: Any, value: Any) -> None:
    with pytest.raises(InvalidParameterError):
        typed_values.as_type(annotation, value)


def test_pydantic_models_as_parameters() -> None:
    pydantic = pytest.importorskip("pydantic")
    Point = pydantic.create_model("Point", x=(int, ...), y=(int, 0))  # noqa: N806

    def go(to: Any) -> None: ...

    go.__annotations__["to"] = Point
    tool = tools.tool_from_function(go)
    assert tool.parameters["required"] == ["to"]
    assert tool.call("1", '{"to": {"x": 3}}').arguments == {"to": Point(x=3)}
    with pytest.raises(InvalidParameterError, match="the argument to of the call to go"):
        _ = tool.call("1", '{"to": {"x": "three"}}').arguments


def test_methods_and_functions_without_words() -> None:
    class Shop:
        def price(self, of: str, *, in_euro: bool = True) -> float:
            return len(of) if in_euro else 0.0

        async def close(self) -> None: ...

    price, close = tools.checked_tools([Shop().price, Shop().close]).values()
    assert (price.name, price.description) == ("price", "")
    assert price.parameters["required"] == ["of"]
    assert close.parameters["properties"] == {}


def test_descriptions_in_json() -> None:
    function = {"name": "f", "parameters": {"properties": {"x": {"type": "integer"}}}}
    given = [{"type": "function", "function": {**function, "name": "g"}}, function]
    wrapped, bare = tools.checked_tools(given).values()
    assert wrapped.as_json()["function"]["name"] == "g"
    assert bare.parameters == {"type": "object", "properties": {"x": {"type": "integer"}}}
    assert tools.checked_tools([{"name": "h"}])["h"].parameters == {"type": "object", "properties": {}}
    assert tools.checked_tools(None) == {}


def no_annotation(x) -> None: ...  # type: ignore[no-untyped-def]


def positional(x: int, /) -> None: ...


def anything(**more: int) -> None: ...


def unknown_type(x: Callable[[], int]) -> None: ...


def unresolved(x: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037


def no_expression(x: "1 +") -> None: ...  # type: ignore[valid-type]  # noqa: F722


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("get_weather", "tools must be a sequence"),
        ({"name": "f"}, "put a single one in a list"),
        ([3], r"tools\[0\] must be a mapping or a function, not int"),
        ([functools.partial(positional, 1)], "a function with a name"),
        ([{"type": "retrieval"}], "'retrieval'"),
        ([{"type": "function", "function": "f"}], r"tools\[0\].function must be a mapping"),
        ([{"name": "two words"}], r"tools\[0\] needs a name"),
        ([{"name": "f", "description": 3}], "the description of the tool f"),
        ([{"name": "f", "parameters": {"type": "string"}}], "the parameters of the tool f"),
        ([{"name": "f", "parameters": {"x": object()}}], "the parameters of the tool f must be JSON values"),
        ([{"name": "f", "parameters": {"x": {"type": "string"}}}], "with the arguments in 'properties'"),
        (
            [{"name": "f", "input_schema": {"type": "object"}}],
            r"tools\[0\] has the unknown key 'input_schema': .*'parameters'",
        ),
        ([{"function": {"name": "f", "paramters": {}}}], r"tools\[0\]\.function has the unknown key 'paramters'"),
        ([get_weather, {"name": "get_weather"}], "two tools are called get_weather"),
        ([no_annotation], "the parameter x of the tool no_annotation has no type annotation"),
        ([positional], "cannot be passed by name"),
        ([anything], "cannot be passed by name"),
        ([unknown_type], "the tool unknown_type cannot be described"),
        ([unresolved], "Nowhere"),
        ([no_expression], "an annotation of the tool no_expression cannot be resolved"),
        ([int], "the parameters of the tool int cannot be determined"),
    ],
)
def test_bad_tools(given: Any, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        tools.checked_tools(given)


@pytest.mark.slow
def test_other_libraries_names_of_a_calls_parts_get_a_hint() -> None:
    call: Any = tools.tool_from_function(get_weather).call("1", '{"city": "Paris"}')
    hint = r"\.name and \.arguments are its own attributes"
    for name in ("function", "args"):
        with pytest.raises(AttributeError, match=hint):
            getattr(call, name)
    with pytest.raises(TypeError, match=hint):
        call["function"]
    assert dataclasses.asdict(call).keys() == {"id", "name", "arguments_text"}


def test_a_call_goes_back_as_it_came() -> None:
    call = tools.tool_from_function(get_weather).call("abc", '{"city":  "Rome"}')
    assert call.to_dict() == {
        "id": "abc",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city":  "Rome"}'},
    }
    assert call == pyggml.ToolCall("abc", "get_weather", '{"city":  "Rome"}')
