"""Forms that answers and calls of tools are asked to have."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel


class Pet(BaseModel):
    """A pet."""

    kind: Literal["cat", "dog"]
    tame: bool


class GetWeather(BaseModel):
    """Tells the weather."""

    city: Literal["Rome", "Oslo"]
