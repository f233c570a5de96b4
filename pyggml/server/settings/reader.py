"""Reads all places that say something about a server, in the order of their strength."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyggml.server.settings import config_file, environment
from pyggml.server.settings.options import Settings
from pyggml.server.settings.sources import Given, configured


def read_settings(command_line: Given, variables: Mapping[str, str], config: str | Path | None = None) -> Settings:
    """The settings: the command line goes before the environment, and that before a file.

    Args:
        command_line: what it says.
        variables: the environment.
        config: the file; None: that of PYGGML_CONFIG, if any.

    Raises:
        InvalidParameterError: something is wrong; says where, and what was expected.
    """
    path = config or variables.get(environment.CONFIG)
    files = [config_file.given_by(Path(path))] if path else []
    return configured(command_line, environment.given_by(variables), *files)
