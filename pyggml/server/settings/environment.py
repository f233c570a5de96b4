"""Server settings from environment variables: ``PYGGML_`` and the name of an option."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

import pyggml
from pyggml.server.settings.api_keys import check_key
from pyggml.server.settings.options import ModelSpec
from pyggml.server.settings.tables import TABLES, PartialSettings, check_option, errors_at, parse_text, table_of

PREFIX = "PYGGML_"
CONFIG, MODEL, ALIAS, API_KEY = _WITHOUT_FIELD = ("PYGGML_CONFIG", "PYGGML_MODEL", "PYGGML_ALIAS", "PYGGML_API_KEY")

# Variables of the library and its build, and those that Kubernetes sets for a service called pyggml.
_NOT_SETTINGS = re.compile(
    r"PYGGML_(CACHE|CACHE_GB|KERNELS|RPC_KEY|(TEST|BUILD|ENGINE|COMPLETE)_?.*|SERVICE_(HOST|PORT.*)|PORT_\d+_(TCP|UDP).*)"
)

# Variables of ollama, llama-server and vLLM -> the corresponding ones of pyggml.
_FOREIGN = {
    "OLLAMA_HOST": "PYGGML_HOST and PYGGML_PORT",
    "OLLAMA_ORIGINS": "PYGGML_CORS_ORIGINS",
    "OLLAMA_NUM_PARALLEL": "PYGGML_N_PARALLEL",
    "OLLAMA_MAX_QUEUE": "PYGGML_MAX_QUEUE",
    "OLLAMA_MAX_LOADED_MODELS": "PYGGML_MAX_LOADED_MODELS",
    "OLLAMA_CONTEXT_LENGTH": "PYGGML_N_CTX",
    "OLLAMA_KV_CACHE_TYPE": "PYGGML_CACHE_TYPE",
    "LLAMA_ARG_MODEL": MODEL,
    "LLAMA_ARG_HF_REPO": f"{MODEL}=hf:ORG/REPO",
    "LLAMA_ARG_ALIAS": ALIAS,
    "LLAMA_API_KEY": API_KEY,
    "VLLM_API_KEY": API_KEY,
}
_LLAMA_SERVER_PREFIX = "LLAMA_ARG_"


def read_environment(environment: Mapping[str, str]) -> PartialSettings:
    """Read the settings in environment variables. Empty variables are ignored.

    Raises:
        InvalidParameterError: a variable's value is wrong, or there is no such variable.
    """
    tables: dict[str, dict[str, Any]] = {table: {} for table in TABLES}
    for variable, text in environment.items():
        if text and variable.startswith(PREFIX) and not _is_ignored(variable, text):
            with errors_at(variable):
                name = variable.removeprefix(PREFIX).lower()
                table = table_of(name)
                field = TABLES[table].fields.get(name)
                if field is None and (near := difflib.get_close_matches(variable, _WITHOUT_FIELD, n=1, cutoff=0.9)):
                    raise pyggml.InvalidParameterError(f"there is no such variable; did you mean {near[0]}?")
                tables[table][name] = check_option(table, name, field and parse_text(field, text))
    names = _split(environment.get(ALIAS, ""))
    return PartialSettings(
        "the environment",
        **tables,
        models=[ModelSpec(source) for source in _split(environment.get(MODEL, ""))],
        names=[names] if names else (),
        api_keys=_api_keys(environment),
    )


def foreign_variable_hints(environment: Mapping[str, str]) -> list[str]:
    """Return a hint for each variable of another server: the variable to set instead.

    Args:
        environment: the environment variables.
    """
    found = {variable: own for variable, own in _FOREIGN.items() if variable in environment}
    for variable in environment:
        if variable.startswith(_LLAMA_SERVER_PREFIX):
            name = variable.removeprefix(_LLAMA_SERVER_PREFIX).lower()
            for cls, fields in TABLES.values():
                own = getattr(cls, "HINTS", {}).get(name, name)
                if own in fields:
                    found.setdefault(variable, f"{PREFIX}{own.upper()}")
    return [f"{variable} is not read here; set {own}" for variable, own in found.items()]


def _is_ignored(variable: str, text: str) -> bool:
    return (
        variable in _WITHOUT_FIELD
        or _NOT_SETTINGS.fullmatch(variable) is not None
        or (variable == "PYGGML_PORT" and text.startswith(("tcp://", "udp://")))
    )


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _api_keys(environment: Mapping[str, str]) -> tuple[str, ...]:
    key = environment.get(API_KEY)
    if key is None:
        return ()
    if not key.strip():
        raise pyggml.InvalidParameterError(
            f"{API_KEY} is empty. Set a key, or unset it to accept requests without one."
        )
    check_key(key, API_KEY)
    return (key,)
