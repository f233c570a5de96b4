"""A server's settings in the environment: ``PYGGML_`` and the name of an option."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

import pyggml
from pyggml.server.settings.options import ModelSpec, check_key
from pyggml.server.settings.sources import TABLES, Given, checked, from_text, table_of

PREFIX = "PYGGML_"
CONFIG, MODEL, ALIAS, API_KEY = _WITHOUT_FIELD = ("PYGGML_CONFIG", "PYGGML_MODEL", "PYGGML_ALIAS", "PYGGML_API_KEY")

# Those of the library and of its build, and what Kubernetes sets in the pods beside a service called pyggml.
_NOT_OURS = re.compile(
    r"PYGGML_(CACHE|CACHE_GB|KERNELS|RPC_KEY|(TEST|BUILD|ENGINE|COMPLETE)_?.*|SERVICE_(HOST|PORT.*)|PORT_\d+_(TCP|UDP).*)"
)
_OF_KUBERNETES = re.compile(r"(tcp|udp)://.+")

# Variables of ollama, llama-server and vLLM -> ours.
_OTHERS = {
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
_OF_LLAMA_SERVER = "LLAMA_ARG_"


def given_by(environment: Mapping[str, str]) -> Given:
    """What the variables say. An empty one says nothing.

    Raises:
        InvalidParameterError: a variable's value is wrong, or there is none of its name.
    """
    tables: dict[str, dict[str, Any]] = {table: {} for table in TABLES}
    for variable, text in environment.items():
        if text and variable.startswith(PREFIX) and not _is_other(variable, text):
            name = variable.removeprefix(PREFIX).lower()
            table = table_of(name)
            field = TABLES[table].fields.get(name)
            if field is None and (near := difflib.get_close_matches(variable, _WITHOUT_FIELD, n=1, cutoff=0.9)):
                raise pyggml.InvalidParameterError(f"{variable}: there is no such variable; did you mean {near[0]}?")
            tables[table][name] = checked(table, name, field and from_text(field, text), variable)
    return Given(
        "the environment",
        server=tables["server"],
        load=tables["load"],
        sampling=tables["sampling"],
        models=[ModelSpec(source) for source in _parts(environment.get(MODEL, ""))],
        names=[names] if (names := _parts(environment.get(ALIAS, ""))) else (),
        api_keys=_api_keys(environment),
    )


def hints(environment: Mapping[str, str]) -> list[str]:
    """What to set instead of variables that other servers read."""
    found = {variable: ours for variable, ours in _OTHERS.items() if variable in environment}
    for variable in environment:
        if variable.startswith(_OF_LLAMA_SERVER):
            name = variable.removeprefix(_OF_LLAMA_SERVER).lower()
            for own in filter(None, (_own_name(name, cls, fields) for cls, fields in TABLES.values())):
                found.setdefault(variable, f"{PREFIX}{own.upper()}")
    return [f"{variable} is not read here; set {ours}" for variable, ours in found.items()]


def _own_name(name: str, cls: type, fields: Mapping[str, Any]) -> str:
    """The option that has this name here or in other libraries; "" if there is none."""
    own = getattr(cls, "HINTS", {}).get(name, name)
    return own if own in fields else ""


def _is_other(variable: str, text: str) -> bool:
    return (
        variable in _WITHOUT_FIELD
        or _NOT_OURS.fullmatch(variable) is not None
        or (variable == "PYGGML_PORT" and _OF_KUBERNETES.fullmatch(text) is not None)
    )


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _api_keys(environment: Mapping[str, str]) -> tuple[str, ...]:
    key = environment.get(API_KEY)
    if key is not None and not key.strip():
        raise pyggml.InvalidParameterError(f"{API_KEY} is empty: set a key, or unset it to ask for none")
    if key is None:
        return ()
    check_key(key, API_KEY)
    return (key,)
