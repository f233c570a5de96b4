"""Messages to a prompt, and schemas to grammars, by the engine's own chat code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyggml import errors
from pyggml._ffi import ffi, lib
from pyggml._native import c_string
from pyggml.model import Model


def render(
    model: Model,
    messages: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool = True,
    template: str | None = None,
) -> str:
    """Renders messages with the model's chat template, or with ``template``.

    The result lacks the BOS and EOS that tokenizing with ``add_special`` adds.

    Raises:
        InvalidParameterError: no template, malformed messages, or the template refuses them.
        ClosedError: the model was closed.
    """
    messages_json = _json("messages", [_mapping(message) for message in messages])
    template_text = ffi.NULL if template is None else c_string("the chat template", template)
    out = ffi.new("char **")
    errors.call(lib.pyg_chat_render, model._handle, template_text, messages_json, add_generation_prompt, out)
    return _take_string(out[0])


def schema_to_grammar(schema: Mapping[str, Any] | str) -> str:
    """A JSON schema, as a mapping or as JSON text, as a GBNF grammar.

    Raises:
        GrammarError: the text is no JSON, or a schema the engine cannot express.
        InvalidParameterError: the mapping is no JSON, or the text holds a NUL.
    """
    text = c_string("the JSON schema", schema) if isinstance(schema, str) else _json("the JSON schema", schema)
    out = ffi.new("char **")
    errors.call(lib.pyg_json_schema_to_grammar, text, out)
    return _take_string(out[0])


def _mapping(message: object) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise errors.InvalidParameterError(f"a message must be a mapping, not {type(message).__name__}")
    return dict(message)


def _json(name: str, value: object) -> bytes:
    try:
        return json.dumps(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise errors.InvalidParameterError(f"{name} must be made of JSON values: {error}") from None


def _take_string(owned: Any) -> str:
    """The text of a string that native code handed over; a template may have cut inside a character."""
    try:
        return str(ffi.string(owned).decode("utf-8", "replace"))
    finally:
        lib.pyg_string_free(owned)
