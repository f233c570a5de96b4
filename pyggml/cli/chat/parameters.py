"""The sampling of a chat: what the user set, and for the rest what the model's makers recommend."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyggml
from pyggml.cli.arguments.sampling import NO_LIMIT, OPTIONS
from pyggml.options import Field
from pyggml.sampling import SamplingParams

#: How a model is sampled whose makers recommend nothing.
DEFAULTS = {"temperature": 0.8, "top_k": 40, "min_p": 0.05}

#: How long an answer may become, in tokens, where the model does not think first; and where it does.
MAX_TOKENS, MAX_TOKENS_THINKING = 2048, 8192

_NEUTRAL = SamplingParams()
_LONGEST = 60  # characters of a value that are shown
_WIDEST = 24  # column of a list in which meanings stand, unless a value is longer


class Parameters:
    """The parameters of the next answer.

    Attributes:
        given: those that the user set.
        defaults: those that apply as well, where they do not contradict what the user set.
        origin: where the defaults come from, for the user.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        """Begins without defaults.

        Raises:
            InvalidParameterError: what is given contradicts itself.
        """
        self.given = dict(given)
        self.defaults: dict[str, Any] = {}
        self.origin = "the defaults of a chat"
        SamplingParams(**self.given)

    def use_defaults(self, recommended: SamplingParams | None, *, thinks: bool) -> None:
        """Takes the defaults for a model.

        Args:
            recommended: what its makers recommend; None: nothing.
            thinks: whether it can think before it answers, which takes many tokens.
        """
        own = DEFAULTS if recommended is None else {"temperature": recommended.temperature, **_turned_on(recommended)}
        self.origin = "the defaults of a chat" if recommended is None else "what the model's makers recommend"
        self.defaults = {**own, "max_tokens": MAX_TOKENS_THINKING if thinks else MAX_TOKENS}

    @property
    def effective(self) -> SamplingParams:
        """How to sample."""
        params = SamplingParams(**self.given)
        for name, value in self.defaults.items():
            if name not in self.given:
                with suppress(pyggml.InvalidParameterError):  # mirostat was given, which replaces the default top_k
                    params = replace(params, **{name: value})
        return params

    def set(self, changes: Mapping[str, Any]) -> None:
        """Sets parameters.

        Raises:
            InvalidParameterError: they are invalid or contradict what was set before; nothing changes.
        """
        SamplingParams(**{**self.given, **changes})
        self.given.update(changes)

    def reset(self, name: str) -> None:
        """Takes back what the user set.

        Raises:
            InvalidParameterError: something else that was set needs it; nothing changes.
        """
        rest = {other: value for other, value in self.given.items() if other != name}
        SamplingParams(**rest)
        self.given = rest

    @property
    def reason_to_stay_the_same(self) -> str:
        """What to change where every answer to a question is the same; "" where they vary."""
        params = self.effective
        if params.temperature == 0 or params.top_k == 1:
            what = "temperature 0" if params.temperature == 0 else "top_k 1"
            way_out = "/temperature 0.8" if params.temperature == 0 else "/set top_k 40"
            return f"At {what} the answer stays the same: {way_out}"
        if params.seed is not None:
            return f"With seed {params.seed} the answer stays the same: /set seed default"
        return ""

    def listed(self) -> str:
        """What applies, each with its meaning."""
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

    def explained(self, name: str) -> str:
        """What a parameter is now, what it means, and what else it could be."""
        field, value = OPTIONS[name].field, getattr(self.effective, name)
        if name in self.given:
            origin = "which you have set"
        elif name in self.defaults and value == self.defaults[name]:
            origin = f"one of {self.origin}"
        else:
            origin = "which is the default"
        first = f"{name} is {in_words(field, value)}, {origin}."
        return f"{first}\n{_meaning(name)}\nIt may be {_range(field)}."


def in_words(field: Field, value: object) -> str:
    """The value of a field, as people say it."""
    if value is None:
        unset = re.search(r"None: ([^.]*)", field.help)
        return "off" if unset is None else "the usual ones" if "`" in unset[1] else unset[1]
    if field.name == "max_tokens" and value == NO_LIMIT:
        return "no limit: to the end of the context"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Mapping) and field.name == "logit_bias":
        return ", ".join(f"{token_id}={bias}" for token_id, bias in value.items())
    if isinstance(value, (tuple, list)):
        return ", ".join(map(_item_in_words, value)) or "none"
    text = " ".join(str(value).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _item_in_words(item: object) -> str:
    return repr(item) if isinstance(item, str) and not item.isidentifier() else str(item)


def _turned_on(params: SamplingParams) -> dict[str, Any]:
    names = [name for name in OPTIONS if name != "max_tokens"]
    return {name: getattr(params, name) for name in names if getattr(params, name) != getattr(_NEUTRAL, name)}


def _lines(params: SamplingParams, names: Iterable[str]) -> list[str]:
    shown = {name: f"  {name} {in_words(OPTIONS[name].field, getattr(params, name))}" for name in names}
    width = min(max(map(len, shown.values())), _WIDEST)
    return [f"{text:{width}}  {_meaning(name)}" for name, text in shown.items()]


def _meaning(name: str) -> str:
    """The first sentence of a parameter's help."""
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
        return _FORMS.get(field.name, "any text")
    number = "a whole number" if int in field.types else "a number"
    has_low, has_high = not math.isinf(field.low), not math.isinf(field.high) and field.high < NO_LIMIT
    if has_low and has_high:
        return f"{number} from {field.low} to {field.high}"
    if has_low:
        return f"{number} above {field.low}" if field.above_low else f"{number}, {field.low} or more"
    return number


# What /set takes for parameters that are neither numbers nor words.
_FORMS = {
    "stop": "any text",
    "stop_token_ids": "token ids, separated by commas",
    "samplers": "names, separated by commas",
    "logit_bias": "TOKEN_ID=NUMBER, such as 42=-5",
    "grammar": "the name of a file with a GBNF grammar",
    "json_schema": "the name of a file with a JSON schema",
}
