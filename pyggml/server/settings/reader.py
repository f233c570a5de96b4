"""Server settings from all sources, merged by precedence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyggml
from pyggml.server.settings.config_file import read_config_file
from pyggml.server.settings.environment import CONFIG, read_environment
from pyggml.server.settings.options import ModelSpec, Settings
from pyggml.server.settings.tables import Options, PartialSettings, errors_at


def read_settings(
    command_line: PartialSettings, environment: Mapping[str, str], config: str | Path | None = None
) -> Settings:
    """Read the settings. The command line takes precedence over the environment, and the environment over the file.

    Args:
        command_line: the settings from the command line.
        environment: the environment variables.
        config: the configuration file; None: PYGGML_CONFIG, if set.

    Raises:
        InvalidParameterError: a setting is wrong; the message says where it was set, and what was expected.
    """
    path = config or environment.get(CONFIG)
    files = [read_config_file(Path(path))] if path else []
    return _merge([command_line, read_environment(environment), *files])


def _merge(sources: Sequence[PartialSettings]) -> Settings:
    """Merge settings, highest precedence first. Models come from the first source that names any, options from all."""
    try:
        return Settings(
            models=_rename(_models(sources), next((each.names for each in sources if each.names), ())),
            load=_merge_table(sources, "load"),
            sampling=_merge_table(sources, "sampling"),
            api_keys=tuple(key for each in sources for key in each.api_keys),
            **_merge_table(sources, "server"),
        )
    except pyggml.InvalidParameterError as error:
        with errors_at(_source_of(error, sources)):
            raise


def _merge_table(sources: Sequence[PartialSettings], table: str) -> dict[str, Any]:
    return {name: value for each in reversed(sources) for name, value in getattr(each, table).items()}


def _models(sources: Sequence[PartialSettings]) -> list[ModelSpec]:
    """Return the models, without those of their own options that a source of higher precedence overrides."""
    for index, each in enumerate(sources):
        if each.models:
            load, sampling = (_merge_table(sources[:index], table) for table in ("load", "sampling"))
            return [
                replace(model, load=_without(model.load, load), sampling=_without(model.sampling, sampling))
                for model in each.models
            ]
    return []


def _without(options: Options, overridden: Options) -> Options:
    return {name: value for name, value in options.items() if name not in overridden}


def _rename(models: Sequence[ModelSpec], names: Sequence[Sequence[str]]) -> tuple[ModelSpec, ...]:
    models = models or [ModelSpec()] if names else models
    if len(names) > len(models):
        raise pyggml.InvalidParameterError(
            f"there are aliases for {len(names)} models, but {len(models)}: the first alias names the first model, "
            "and so on"
        )
    renamed = [replace(model, name=own[0], aliases=tuple(own[1:])) for model, own in zip(models, names, strict=False)]
    return (*renamed, *models[len(names) :])


def _source_of(error: Exception, sources: Sequence[PartialSettings]) -> str:
    """Return the name of the source that causes an error alone; "" if it takes several sources."""
    for each in sources:
        try:
            Settings(load=each.load, sampling=each.sampling, api_keys=tuple(each.api_keys), **each.server)
        except pyggml.InvalidParameterError as own:
            if str(own) == str(error):
                return each.source
    return ""
