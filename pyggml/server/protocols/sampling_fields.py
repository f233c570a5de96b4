"""Sampling parameters as fields of request bodies, generated from SamplingParams.

Every protocol that generates has all of them, under pyggml's names and under those of other tools. A protocol's own
field for one of them, such as ollama's ``num_predict``, takes precedence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AliasChoices, create_model
from pydantic import Field as BodyField

from pyggml import SamplingParams
from pyggml.options import Field, fields_of
from pyggml.server.http.request_body import Body

# Each protocol that returns log probabilities has its own fields for them. Functions stay in Python.
_EXCLUDED = ("logprobs", "prompt_logprobs", "logits_processor")
# Other tools' names whose values have another form than the field.
_OTHER_FORMS = ("format", "guided_decoding", "structured_outputs", "response_model")

_MAX_STOP_STRINGS = 64
# Types and descriptions of fields whose values in Python may be objects that JSON does not have.
_IN_JSON: Mapping[str, tuple[Any, str]] = {
    "stop": (
        str | Annotated[list[str], BodyField(max_length=_MAX_STOP_STRINGS)],
        "strings that end the generation. No part of them appears in the text. Empty ones are ignored.",
    ),
    "grammar": (str, "GBNF grammar that the whole output must match."),
    "json_schema": (dict[str, Any] | str, "JSON schema that the output must match, as an object or its text."),
    "adapter": (
        str | dict[str, float],
        "name of the adapter that the model computes with, or an object of names and scales; {}: none.",
    ),
    "timeout_s": (
        float,
        "seconds after which the generation stops and the text so far is returned, if the server's limit is not "
        "shorter.",
    ),
}

_TABLE = fields_of(SamplingParams)

#: Meaning of -1 in other servers' APIs.
_MINUS_ONE: Mapping[str, Any] = {
    "top_k": 0,
    "seed": None,
    "reasoning_budget": None,
    "penalty_last_n": _TABLE["penalty_last_n"].high,  # the whole context
    "dry_penalty_last_n": _TABLE["dry_penalty_last_n"].high,
}
#: Number of seeds.
N_SEEDS = int(_TABLE["seed"].high) + 1


def _field(field: Field) -> Any:
    names = AliasChoices(field.name, *(name for name in field.other_names if name not in _OTHER_FORMS))
    form, description = _IN_JSON.get(field.name) or (reduce(or_, field.types), field.help)
    return form | None, BodyField(None, description=description, validation_alias=names, **_bounds(field))


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
    values = {name: _convert(name, getattr(body, name)) for name in _FIELDS}
    values |= {name: value for name, value in own.items() if value is not None}
    return {name: value for name, value in values.items() if value is not None}


def _convert(name: str, value: Any) -> Any:
    """Convert another server's value: -1, seeds of 64 bits, which have 32 here, and empty texts, which set nothing."""
    if name in ("grammar", "regex"):
        return value or None
    if name == "stop" and value is not None:
        return [each for each in ([value] if isinstance(value, str) else value) if each]
    if value == -1 and name in _MINUS_ONE:
        return _MINUS_ONE[name]
    return value % N_SEEDS if name == "seed" and value is not None else value
