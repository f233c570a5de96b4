"""Formats of answers: what the engine's chat code knows of a template besides its prompts.

The engine finds out how a template writes tool calls and reasoning, and makes a parser and a grammar for each request.
It renders prompts itself meanwhile, with an interpreter that differs from jinja2, so it gets a short conversation that
ends as the real one does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyggml._core import c_calls
from pyggml._core.ffi import ffi, lib
from pyggml.chat.messages import JSONMessage
from pyggml.chat.prompts import decoded
from pyggml.errors import InvalidParameterError

if TYPE_CHECKING:
    from pyggml._core.ffi import CData

_N_END_CHARACTERS = 1000  # more than the beginning of any answer
_USER = {"role": "user", "content": "Hi"}
_CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "abcdef123", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}


@dataclass(frozen=True)
class AnswerFormat:
    """The engine's description of a prompt, see ``pyg_chat_templates_render``, and a parser to clone."""

    prompt: Mapping[str, Any]
    parser: CData

    @property
    def begins(self) -> str:
        """The text with which the engine lets the answer's turn begin."""
        return str(self.prompt["generation_prompt"])


class AnswerFormats:
    """The formats of answers to one template's prompts. Any thread may use it."""

    def __init__(self, templates: CData) -> None:
        """Keep the handle of the template."""
        self._templates = templates

    def find(self, request: Mapping[str, Any], messages: Sequence[JSONMessage], text: str | None) -> AnswerFormat:
        """Return the format of the answer to a prompt.

        The engine always tells a template whether to think. Where one writes less if it is not told, the parser and the
        grammar begin with what the prompt ends with.

        Args:
            request: all of the engine's request but its messages.
            messages: the checked messages.
            text: the prompt with the beginning of the answer; None: the last message is continued.
        """
        if text is not None:
            request = {**request, "prompt_end": str.__str__(text[-_N_END_CHARACTERS:])}
        try:
            found = self._format(request, _stand_in(messages))
            if text is None or text.endswith(found.begins):
                return found
        except InvalidParameterError:
            found = None
        try:
            return self._format(request, [_with_argument_texts(message) for message in messages])
        except InvalidParameterError:
            if found is None:
                raise
            return found

    def _format(self, request: Mapping[str, Any], messages: Sequence[JSONMessage]) -> AnswerFormat:
        try:
            text = json.dumps({**request, "messages": messages}, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise InvalidParameterError(f"the conversation must consist of JSON values: {error}") from None
        out = ffi.new("char **")
        try:
            parser = c_calls.create(
                "pyg_chat_parser",
                lib.pyg_chat_parser_free,
                lib.pyg_chat_templates_render,
                self._templates,
                text,
                out,
            )
            return AnswerFormat(json.loads(decoded(ffi.string(out[0]))), parser)
        finally:
            lib.pyg_string_free(out[0])


def _stand_in(messages: Sequence[JSONMessage]) -> list[JSONMessage]:
    """A short conversation that begins and ends as this one: templates look there how the answer has to begin."""
    first, last = messages[0], messages[-1]
    system = [{"role": first["role"], "content": first["content"]}] if first["role"] in ("system", "developer") else []
    if last["role"] == "tool":
        return [*system, _USER, _CALL, {"role": "tool", "tool_call_id": "abcdef123", "name": "f", "content": "Hi"}]
    if last["role"] == "assistant":
        return [*system, _USER, _with_argument_texts(last)]
    return [*system, _USER]


def _with_argument_texts(message: JSONMessage) -> JSONMessage:
    calls = [_with_argument_text(call) for call in message.get("tool_calls", ())]
    return {**message, "tool_calls": calls} if calls else message


def _with_argument_text(call: JSONMessage) -> JSONMessage:
    function = call["function"]
    return {**call, "function": {**function, "arguments": json.dumps(function["arguments"])}}
