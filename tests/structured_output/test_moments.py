"""Bounds of dates, times and durations: what is generated is within them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import random
import re
from decimal import Decimal
from typing import Annotated, Any

import annotated_types
import pydantic
import pytest
from pydantic import Field

import pyggml
from pyggml.schema._moments import bounded

UTC, EAST = dt.timezone.utc, dt.timezone(dt.timedelta(hours=5))
NOON = dt.datetime(2024, 1, 1, 12)


class Everything(pydantic.BaseModel):
    """Pydantic itself checks each bound."""

    day: Annotated[dt.date, Field(ge=dt.date(2024, 1, 1), le=dt.date(2024, 1, 31))]
    other: Annotated[dt.date | None, Field(gt=dt.date(2023, 12, 30), lt=dt.date(2024, 1, 2))]
    local: Annotated[dt.datetime, Field(gt=NOON, lt=NOON.replace(day=3))]
    zoned: Annotated[dt.datetime, Field(ge=NOON.replace(tzinfo=EAST), lt=NOON.replace(tzinfo=UTC))]
    aware: Annotated[pydantic.AwareDatetime, Field(le=NOON)]
    naive: Annotated[pydantic.NaiveDatetime, Field(ge=NOON)]
    time: Annotated[dt.time, Field(ge=dt.time(11, 59, 58), lt=dt.time(12))]
    late: Annotated[dt.time, Field(gt=dt.time(20, tzinfo=EAST))]
    duration: Annotated[dt.timedelta, Field(gt=dt.timedelta(minutes=59), lt=dt.timedelta(hours=2))]


@dataclasses.dataclass
class Box:
    day: Annotated[dt.date, annotated_types.Ge(dt.date(2024, 1, 1)), annotated_types.Lt(dt.date(2024, 2, 1))]
    moment: Annotated[dt.datetime, annotated_types.Interval(ge=NOON, le=NOON.replace(hour=13))]
    wait: Annotated[dt.timedelta | None, annotated_types.Le(dt.timedelta(seconds=3))]


def test_outputs_are_within_bounds(llm: pyggml.LLM) -> None:
    for name, field in Everything.model_fields.items():
        fields: dict[str, Any] = {name: (Annotated[field.annotation, field], ...)}
        one = pydantic.create_model("One", **fields)
        for done in llm.generate_n("As JSON:", 2, json_schema=one, temperature=1.5, seed=0, max_tokens=200):
            assert done.finish_reason == "stop"
            assert done.parsed is not None
    for done in llm.generate_n("As JSON:", 2, json_schema=Box, temperature=1.5, seed=0, max_tokens=300):
        box = done.parsed
        assert dt.date(2024, 1, 1) <= box.day < dt.date(2024, 2, 1)
        assert NOON <= box.moment <= NOON.replace(hour=13)
        assert box.wait is None or box.wait <= dt.timedelta(seconds=3)


def test_the_pattern_is_exactly_the_bounds() -> None:
    rng = random.Random(0)

    def some_day() -> dt.date:
        return dt.date.fromordinal(rng.randrange(dt.date(1990, 1, 1).toordinal(), dt.date(2040, 1, 1).toordinal()))

    for _ in range(100):
        low, high = some_day(), some_day() + dt.timedelta(days=20_000)
        pattern = bounded({"type": "string", "format": "date"}, {"gt": low, "le": high})["pattern"]
        near = [each + dt.timedelta(days=n) for each in (low, high) for n in (-31, -1, 0, 1, 31)]
        for day in (*near, some_day()):
            assert (re.search(pattern, day.isoformat()) is not None) == (low < day <= high)
    pattern = bounded({"type": "string", "format": "duration"}, {"gt": dt.timedelta(days=8, hours=1)})["pattern"]
    for text, fits in (
        ("P8D", False),
        ("P9D", True),
        ("P1W", False),
        ("P2W", True),
        ("PT193H", False),
        ("PT194H", True),
    ):
        assert (re.search(pattern, text) is not None) == fits


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        (Annotated[str, annotated_types.Ge(dt.date(2024, 1, 1))], r"Holder\.it: .*2024, 1, 1\) is for another type"),
        (Annotated[str, annotated_types.Ge("a")], r"Holder\.it: the bound 'a' cannot be expressed"),
        (
            Annotated[dt.datetime, annotated_types.Interval(ge=NOON, le=NOON.replace(tzinfo=UTC))],
            r"Holder\.it: .* only one has a time zone",
        ),
    ],
)
def test_other_bounds_are_refused_by_place(annotation: Any, said: str) -> None:
    holder = dataclasses.make_dataclass("Holder", [("it", annotation)])
    with pytest.raises(pyggml.InvalidParameterError, match=said):
        pyggml.schema_of(holder)


def test_bounds_without_a_value_and_bounds_of_other_number_types() -> None:
    never = Annotated[dt.date, Field(ge=dt.date(2024, 1, 2), lt=dt.date(2024, 1, 2))]
    with pytest.raises(pyggml.GrammarError, match=r"^#/properties/day: no value can match"):
        pyggml.grammar_of(pydantic.create_model("Model", day=(never, ...)))
    decimal = Annotated[float, annotated_types.Ge(Decimal("1.5")), annotated_types.Le(float("inf"))]
    assert pyggml.schema_of(decimal) == {"type": "number", "minimum": 1.5}
