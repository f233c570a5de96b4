"""Sampling parameters as fields of request bodies, generated from SamplingParams."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from pydantic import AliasChoices, create_model
from pydantic import Field as BodyField

from pyggml import SamplingParams
from pyggml.options import Field, fields_of
from pyggml.server.http.request_body import Body

# Fields that each protocol spells in its own way, or that make no sense over HTTP.
_EXCLUDED = (
    *("max_tokens", "stop", "stop_token_ids", "timeout_s"),
    *("logprobs", "prompt_logprobs", "json_schema", "grammar", "choices", "regex"),
)

_TABLE = fields_of(SamplingParams)

#: Meaning of -1 in other servers' APIs.
_MINUS_ONE: Mapping[str, Any] = {
    "top_k": 0,
    "seed": None,
    "penalty_last_n": _TABLE["penalty_last_n"].high,  # the whole context
    "dry_penalty_last_n": _TABLE["dry_penalty_last_n"].high,
}
#: Number of seeds.
N_SEEDS = int(_TABLE["seed"].high) + 1


def _field(field: Field) -> Any:
    names = AliasChoices(field.name, *field.other_names)
    return reduce(or_, field.types) | None, BodyField(
        None, description=field.help, validation_alias=names, **_bounds(field)
    )


def _bounds(field: Field) -> dict[str, Any]:
    """Return the limits of a number, including -1 where other servers give it a meaning."""
    if field.name == "seed":
        return {}
    low = -1 if field.name in _MINUS_ONE else field.low
    bounds = {"gt" if field.above_low else "ge": low, "le": field.high}
    return {name: bound for name, bound in bounds.items() if math.isfinite(bound)}


_FIELDS = {name: _field(each) for name, each in _TABLE.items() if name not in _EXCLUDED}

if TYPE_CHECKING:

    class Sampling(Body):
        """Common sampling parameters; None: not given."""

        def __getattr__(self, name: str) -> Any: ...

else:
    Sampling = create_model("Sampling", __base__=Body, **_FIELDS)


def sampling_overrides(body: Sampling, **own: Any) -> Mapping[str, Any]:
    """Return the fields of SamplingParams that a body sets; ``own`` are a protocol's own fields, None: not given."""
    values = {name: _convert(name, getattr(body, name)) for name in _FIELDS} | own
    return {name: value for name, value in values.items() if value is not None}


def _convert(name: str, value: Any) -> Any:
    """Convert another server's value: -1, and seeds of 64 bits, which have 32 here."""
    if value == -1 and name in _MINUS_ONE:
        return _MINUS_ONE[name]
    return value % N_SEEDS if name == "seed" and value is not None else value
