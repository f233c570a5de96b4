"""A server's settings from several places: which of them goes first, and whose fault a wrong value is."""

from __future__ import annotations

import difflib
import json
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, get_origin

import pyggml
from pyggml.options import Field, LoadOptions, require_known
from pyggml.sampling import SamplingParams
from pyggml.server.settings.options import LOADING, SAMPLING, SERVING, ModelSpec, Settings
from pyggml.units import parse_bytes

Options = Mapping[str, Any]


class Table(NamedTuple):
    """Options that belong together.

    Attributes:
        cls: where they are declared.
        fields: those that a server has.
    """

    cls: type
    fields: Mapping[str, Field]


#: By the name of the table in a file.
TABLES = {
    "server": Table(Settings, SERVING),
    "load": Table(LoadOptions, LOADING),
    "sampling": Table(SamplingParams, SAMPLING),
}


@dataclass(frozen=True)
class Given:
    """What one place says.

    Attributes:
        where: what messages call the place; "" where they need no name for it.
        server: the server's own options.
        load: options of :func:`pyggml.load`.
        sampling: fields of SamplingParams.
        models: the models.
        names: what to call the models: of each, in their order, its name and then its aliases.
        api_keys: keys of which requests must have one.
    """

    where: str = ""
    server: Options = field(default_factory=dict)
    load: Options = field(default_factory=dict)
    sampling: Options = field(default_factory=dict)
    models: Sequence[ModelSpec] = ()
    names: Sequence[Sequence[str]] = ()
    api_keys: Sequence[str] = ()


def configured(*given: Given) -> Settings:
    """The settings that several places make together.

    Args:
        *given: what they say, the first being the strongest. Where one names models, those of the weaker ones do not
            count; their options do.

    Raises:
        InvalidParameterError: something is wrong; says which place is to blame, if it is one.
    """
    try:
        return Settings(
            models=_named(_models(given), next((each.names for each in given if each.names), ())),
            load=_merged(each.load for each in given),
            sampling=_merged(each.sampling for each in given),
            api_keys=tuple(key for each in given for key in each.api_keys),
            **_merged(each.server for each in given),
        )
    except pyggml.InvalidParameterError as error:
        raise type(error)(in_place(_blamed(given, error), str(error))) from None


def in_place(where: str, message: str) -> str:
    """A message about what a place says."""
    return f"{where}: {message}" if where else message


def checked(table: str, name: str, value: Any, where: str) -> Any:
    """The value of an option, which a text may stand for.

    Args:
        table: the key of :data:`TABLES`.
        name: of the option.
        value: as a place says it.
        where: the place.

    Raises:
        InvalidParameterError: there is no such option, or its value is wrong.
    """
    try:
        require_option(table, name)
        return TABLES[table].fields[name].checked(value)
    except pyggml.InvalidParameterError as error:
        raise type(error)(in_place(where, str(error))) from None


def require_option(table: str, name: str) -> None:
    """Refuses an option that does not exist, or belongs elsewhere.

    Raises:
        InvalidParameterError: says what was probably meant.
    """
    own = TABLES[table]
    others = [other for other, each in TABLES.items() if name in each.fields and other != table]
    if name not in own.fields and others:
        raise pyggml.InvalidParameterError(f"{name} belongs in the table [{others[0]}]")
    require_known(own.cls, [name], known=own.fields)


def table_of(name: str) -> str:
    """The table of an option; the one with the nearest name, if there is none."""
    hints = {each: table for table, (cls, _) in TABLES.items() for each in getattr(cls, "HINTS", {})}
    known = hints | {each: table for table, (_, fields) in TABLES.items() for each in fields}
    near = [name] if name in known else difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return known[near[0]] if near else "server"


def from_text(field: Field, text: str) -> Any:
    """The value that a text stands for; the text itself if it stands for none, which the field then refuses."""
    try:
        return _from_text(field, text)
    except ValueError:
        return text


def _from_text(field: Field, text: str) -> Any:
    if types.NoneType in field.types and text.lower() == "none":
        return None
    if text in field.words:
        return text
    if bool in field.types:
        return _FLAGS.get(text.lower(), text)
    if int in field.types:
        return parse_bytes(text) if field.is_size else int(text)
    if float in field.types:
        return float(text)
    if holds(field, Mapping) and str not in field.types:
        return dict(_pair(part) for part in text.split(","))
    if holds(field, tuple, Sequence) and str not in field.types:
        items = json.loads(text) if text.startswith("[") else [part.strip() for part in text.split(",")]
        return tuple(map(int, items)) if Sequence[int] in field.types else tuple(items)
    return text


def holds(field: Field, *kinds: Any) -> bool:
    """Whether values of a field are collections of one of these kinds."""
    wanted = [*map(get_origin, (each[Any] for each in kinds))]
    return any(get_origin(each) in wanted for each in field.types)


_FLAGS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def _pair(text: str) -> tuple[int, float]:
    """The key and the number in "42=-inf"."""
    key, _, number = text.partition("=")
    return int(key), float(number)


def _merged(options: Iterable[Options]) -> dict[str, Any]:
    return {name: value for each in reversed([*options]) for name, value in each.items()}


def _models(given: Sequence[Given]) -> list[ModelSpec]:
    """The models of the strongest place that names any, without options about which stronger ones say other things."""
    for index, each in enumerate(given):
        if each.models:
            load, sampling = ({*_merged(getattr(it, table) for it in given[:index])} for table in ("load", "sampling"))
            return [
                replace(model, load=_without(model.load, load), sampling=_without(model.sampling, sampling))
                for model in each.models
            ]
    return []


def _without(options: Options, names: set[str]) -> Options:
    return {name: value for name, value in options.items() if name not in names}


def _named(models: Sequence[ModelSpec], names: Sequence[Sequence[str]]) -> tuple[ModelSpec, ...]:
    models = models or [ModelSpec()] if names else models
    if len(names) > len(models):
        raise pyggml.InvalidParameterError(
            f"there are aliases for {len(names)} models, but {len(models)}: each is for the model in its place"
        )
    renamed = [replace(model, name=own[0], aliases=tuple(own[1:])) for model, own in zip(models, names, strict=False)]
    return (*renamed, *models[len(names) :])


def _blamed(given: Sequence[Given], error: Exception) -> str:
    """The place that says by itself what the error is about; "": it takes several, or there is no name for it."""
    for each in given:
        try:
            Settings(load=each.load, sampling=each.sampling, api_keys=tuple(each.api_keys), **each.server)
        except pyggml.InvalidParameterError as own:
            if str(own) == str(error):
                return each.where
    return ""
