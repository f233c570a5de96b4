"""The sampling parameters as fields of a body, from their one table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from pydantic import AliasChoices, BaseModel, ConfigDict, create_model
from pydantic import Field as BodyField

from pyggml import SamplingParams
from pyggml.options import Field, fields_of

# Those that every protocol spells in its own way, or that make no sense over HTTP.
_OWN_WAYS = (
    "max_tokens",
    "stop",
    "stop_token_ids",
    "logprobs",
    "prompt_logprobs",
    "json_schema",
    "grammar",
    "timeout_s",
)


class Body(BaseModel):
    """A body whose unknown fields are ignored, as the API's own server ignores them."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True, protected_namespaces=())


def _fields() -> dict[str, Any]:
    return {name: _field(each) for name, each in fields_of(SamplingParams).items() if name not in _OWN_WAYS}


def _field(field: Field) -> Any:
    names = AliasChoices(field.name, *field.other_names)
    return reduce(or_, field.types) | None, BodyField(
        None, description=field.help, validation_alias=names, **_bounds(field)
    )


def _bounds(field: Field) -> dict[str, Any]:
    """The range of a number, without what is no limit."""
    bounds = {"gt" if field.above_low else "ge": field.low, "le": field.high}
    return {name: bound for name, bound in bounds.items() if math.isfinite(bound)}


_FIELDS = _fields()

if TYPE_CHECKING:

    class Sampling(Body):
        """The sampling parameters that protocols share; None: not given."""

        def __getattr__(self, name: str) -> Any: ...

else:
    Sampling = create_model("Sampling", __base__=Body, **_FIELDS)


def given(body: Sampling, **own: Any) -> Mapping[str, Any]:
    """The sampling parameters that a body sets, and a protocol's own; None: not given."""
    values = {name: getattr(body, name) for name in _FIELDS} | own
    return {name: value for name, value in values.items() if value is not None}
