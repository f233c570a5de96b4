"""Messages to a prompt, and schemas to grammars, by the engine's own chat code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyggml import errors
from pyggml._ffi import ffi, lib
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
    try:
        messages_json = json.dumps([dict(message) for message in messages])
    except (TypeError, ValueError) as error:
        raise errors.InvalidParameterError(f"messages must be mappings of JSON values: {error}") from None
    if "\\u0000" in messages_json or (template and "\0" in template):
        raise errors.InvalidParameterError("messages and chat template must not hold NUL characters")
    out = ffi.new("char **")
    template_text = ffi.NULL if template is None else template.encode()
    errors.call(lib.pyg_chat_render, model._handle, template_text, messages_json.encode(), add_generation_prompt, out)
    return _take_string(out[0])


def schema_to_grammar(schema: str) -> str:
    """A JSON schema, as JSON text, as a GBNF grammar.

    Raises:
        GrammarError: the text is no JSON, or a schema the engine cannot express.
    """
    out = ffi.new("char **")
    errors.call(lib.pyg_json_schema_to_grammar, schema.encode(), out)
    return _take_string(out[0])


def _take_string(owned: Any) -> str:
    try:
        return str(ffi.string(owned).decode())
    finally:
        lib.pyg_string_free(owned)
