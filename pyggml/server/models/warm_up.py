"""Prefixes that a server computes into the prefix cache of a model before requests come: the setting ``warm``."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyggml
from pyggml.server.observability.logs import logger

_FIELDS = ("messages", "prompt", "tools", "thinking", "chat_template_kwargs", "model")


@dataclass(frozen=True)
class Prefix:
    """A prefix of prompts.

    Attributes:
        prompt: text, or messages.
        options: the other arguments of :meth:`pyggml.LLM.warm`.
        model: name of the model that it is for; "": all.
    """

    prompt: Any
    options: Mapping[str, Any]
    model: str = ""


def read_prefixes(path: Path) -> list[Prefix]:
    """Read a file of prefixes.

    A name that ends with .json or .jsonl is that of a JSON file: an object, or a line for each. An object has the
    ``messages`` of a chat, and its ``tools``, ``thinking`` and ``chat_template_kwargs``, or a ``prompt``; with
    ``model``, it is only for the model of this name. A list is that of the messages. Any other file is the text of a
    system message.

    Raises:
        InvalidParameterError: the file cannot be read, or has another form; names the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise pyggml.InvalidParameterError(f"the file to warm from, {path}, cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise pyggml.InvalidParameterError(f"the file to warm from, {path}, is not text") from None
    if path.suffix.lower() == ".jsonl":
        lines = [(f"line {number} of {path}", line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        return [_prefix(where, line) for where, line in lines]
    if path.suffix.lower() == ".json":
        return [_prefix(str(path), text)]
    if not text.strip():
        raise pyggml.InvalidParameterError(f"the file to warm from, {path}, is empty")
    return [Prefix([{"role": "system", "content": text.strip()}], {})]


def warm(llm: pyggml.LLM, name: str, prefixes: Sequence[Prefix], cancelled: threading.Event) -> None:
    """Compute the prefixes that are for a model, until ``cancelled``. One that fails is logged; the others go on."""
    for prefix in prefixes:
        if cancelled.is_set():
            return
        if prefix.model not in ("", name):
            continue
        try:
            n_tokens = llm.warm(prefix.prompt, **prefix.options)
        except pyggml.InferError as error:
            logger.warning("a prefix for %s was not computed: %s", name, str(error))  # a record must not keep the model
        else:
            logger.info("computed a prefix of %d tokens for %s", n_tokens, name)


def _prefix(where: str, text: str) -> Prefix:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise pyggml.InvalidParameterError(f"{where} is not JSON: {error}") from None
    fields = {"messages": given} if isinstance(given, list) else given
    if not isinstance(fields, dict) or ("messages" in fields) == ("prompt" in fields):
        message = f"{where} must be a list of messages, or an object with messages or a prompt"
        raise pyggml.InvalidParameterError(message)
    unknown = [name for name in fields if name not in _FIELDS]
    if unknown:
        raise pyggml.InvalidParameterError(f"{where} has the unknown field {unknown[0]!r:.80}; known are {_FIELDS}")
    options = {name: fields[name] for name in ("tools", "thinking") if fields.get(name) is not None}
    if fields.get("chat_template_kwargs"):
        options["template_kwargs"] = fields["chat_template_kwargs"]
    model = str(fields.get("model") or "")
    if "messages" in fields:
        try:
            return Prefix(pyggml.checked_messages(fields["messages"]), options, model)
        except pyggml.InvalidParameterError as error:
            raise pyggml.InvalidParameterError(f"{where}: {error}") from None
    if options or not isinstance(fields["prompt"], str):
        raise pyggml.InvalidParameterError(f"{where}: a prompt is a text, without {', '.join(options) or 'token IDs'}")
    return Prefix(fields["prompt"], options, model)
