"""Sampling parameters of a chat: set by the user, recommended by the model's makers, or defaults."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pyggml.cli.arguments.sampling import NO_LIMIT, OPTIONS
from pyggml.options import Field
from pyggml.options.chat_defaults import chat_defaults, with_defaults
from pyggml.sampling import SamplingParams

_NEUTRAL = SamplingParams()
_MAX_VALUE_CHARS = 60  # characters of a value that are shown
_MAX_VALUE_COLUMN = 24  # column of the descriptions in a list, unless a value is longer


class Parameters:
    """The parameters of the next answer.

    Attributes:
        given: parameters set by the user.
        defaults: other parameters that apply unless they contradict those.
        origin: origin of the defaults, for the user.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        """Start without defaults."""
        self.given = dict(given)
        self.defaults: dict[str, Any] = {}
        self.origin = "the defaults of a chat"
        SamplingParams(**self.given)

    def use_defaults(self, recommended: SamplingParams | None) -> None:
        """Set the defaults for a model, given the sampling parameters that its makers recommend."""
        self.origin = "the defaults of a chat" if recommended is None else "the recommendations of the model's makers"
        self.defaults = chat_defaults(recommended)

    @property
    def effective(self) -> SamplingParams:
        """The parameters that apply."""
        return with_defaults(self.given, self.defaults)

    def set(self, changes: Mapping[str, Any]) -> None:
        """Set parameters. If they contradict others, raise InvalidParameterError and change nothing."""
        SamplingParams(**{**self.given, **changes})
        self.given.update(changes)

    def reset(self, name: str) -> None:
        """Reset a parameter. If another requires it, raise InvalidParameterError and change nothing."""
        rest = {other: value for other, value in self.given.items() if other != name}
        SamplingParams(**rest)
        self.given = rest

    @property
    def determinism_hint(self) -> str:
        """A hint if every answer to a question is the same; "" if answers vary."""
        params = self.effective
        if params.temperature == 0:
            return "At temperature 0 the answer is always the same; /temperature 0.8 changes that"
        if params.top_k == 1:
            return "With top_k 1 the answer is always the same; /set top_k 40 changes that"
        if params.seed is not None:
            return f"With seed {params.seed} the answer is always the same; /set seed default changes that"
        return ""

    def summary(self) -> str:
        """List the parameters that apply, with descriptions."""
        params = self.effective
        others = [
            name
            for name in OPTIONS
            if name not in self.given
            and (name in ("temperature", "max_tokens") or getattr(params, name) != getattr(_NEUTRAL, name))
        ]
        lines = ["You have set:", *_lines(params, self.given)] if self.given else []
        lines += [f"{self.origin[:1].upper()}{self.origin[1:]}:", *_lines(params, others)] if others else []
        return "\n".join([*lines, "/set NAME explains one, /set NAME VALUE sets it, /set NAME default resets it."])

    def explain(self, name: str) -> str:
        """Explain a parameter: current value, description and range."""
        field, value = OPTIONS[name].field, getattr(self.effective, name)
        if name in self.given:
            origin = "which you have set"
        elif name in self.defaults and value == self.defaults[name]:
            origin = f"one of {self.origin}"
        else:
            origin = "which is the default"
        first = f"{name} is {value_text(field, value)}, {origin}."
        return f"{first}\n{_description(name)}\nIt may be {_range(field)}."


def value_text(field: Field, value: object) -> str:
    """Format the value of a field for users."""
    if value is None:
        unset = re.search(r"None: ([^.]*)", field.help)
        return "off" if unset is None else "the usual ones" if "`" in unset[1] else unset[1]
    if field.name == "max_tokens" and value == NO_LIMIT:
        return "no limit: the rest of the context"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Mapping) and field.name == "logit_bias":
        return ", ".join(f"{token_id}={bias}" for token_id, bias in value.items())
    if isinstance(value, (tuple, list)):
        items = (repr(item) if isinstance(item, str) and not item.isidentifier() else str(item) for item in value)
        return ", ".join(items) or "none"
    text = " ".join(str(value).split())
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[: _MAX_VALUE_CHARS - 1]}…"


def _lines(params: SamplingParams, names: Iterable[str]) -> list[str]:
    shown = {name: f"  {name} {value_text(OPTIONS[name].field, getattr(params, name))}" for name in names}
    width = min(max(map(len, shown.values())), _MAX_VALUE_COLUMN)
    return [f"{text:{width}}  {_description(name)}" for name, text in shown.items()]


def _description(name: str) -> str:
    """Return the first sentence of a parameter's help."""
    option = OPTIONS[name]
    text = (option.help or option.field.help).replace("`", "").replace("; may be repeated", "")
    first = re.split(r"(?<=\.) ", text)[0]
    return first[:1].upper() + first[1:]


def _range(field: Field) -> str:
    if field.words:
        return f"one of {', '.join(field.words)}"
    if bool in field.types:
        return "on or off"
    if int not in field.types and float not in field.types:
        return _SYNTAX.get(field.name, "any text")
    number = "a whole number" if int in field.types else "a number"
    has_low, has_high = not math.isinf(field.low), not math.isinf(field.high) and field.high < 2**31 - 1
    if has_low and has_high:
        return f"{number} from {field.low} to {field.high}"
    if has_low:
        return f"{number} above {field.low}" if field.above_low else f"{number}, {field.low} or more"
    return number


# Syntax of parameters that are neither numbers nor words.
_SYNTAX = {
    "stop": "any text",
    "stop_token_ids": "token ids, separated by commas",
    "allowed_token_ids": "token ids, separated by commas",
    "regex": "a regular expression",
    "samplers": "names, separated by commas",
    "logit_bias": "TOKEN_ID=NUMBER, such as 42=-5",
    "grammar": "the name of a file with a GBNF grammar",
    "json_schema": "the name of a file with a JSON schema",
}
