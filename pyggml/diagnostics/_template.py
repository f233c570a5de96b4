"""Check of a model's chat template: its abilities, and whether it renders them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyggml._native.model import Model
from pyggml.chat import ChatTemplates
from pyggml.diagnostics._facts import Problems
from pyggml.diagnostics.report import TemplateReport
from pyggml.errors import EngineError, InferError, OutOfMemoryError

_USER = {"role": "user", "content": "Hello"}
_SYSTEM = {"role": "system", "content": "Be brief."}
_ASSISTANT = {"role": "assistant", "content": "Hi."}
_PROPERTIES = {"city": {"type": "string", "description": "Its name."}}
_TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather of a city.",
        "parameters": {"type": "object", "properties": _PROPERTIES, "required": ["city"]},
    },
}


def template_of(model: Model, problems: Problems) -> TemplateReport | None:
    """The template of a model; None if there is none that can be read."""
    if model.chat_template() is None:
        return None
    try:
        templates = ChatTemplates(model)
    except InferError as error:
        if not _is_about_template(error):
            raise
        problems.error(
            "template-unreadable",
            f"{error}. The model can still generate text; to chat with it, pass another chat_template",
        )
        return None
    with templates:
        for name, conversation in _conversations(templates):
            if refusal := _refusal(templates, conversation):
                message = f"the chat template does not render {name}: {refusal}. Pass another chat_template"
                problems.error("template-fails", message)
                break
        return TemplateReport(templates.source, templates.names, templates.supports)


def _conversations(templates: ChatTemplates) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield conversations that a template with these abilities has to render."""
    yield "a user's message", {"messages": [_USER]}
    yield "a conversation of several messages", {"messages": [_USER, _ASSISTANT, _USER]}
    if templates.supports.system:
        yield "a system message", {"messages": [_SYSTEM, _USER]}
    if templates.supports.tools:
        yield "a conversation with tools", {"messages": [_USER], "tools": [_TOOL]}


def _refusal(templates: ChatTemplates, conversation: dict[str, Any]) -> str | None:
    try:
        text = templates.render(**conversation).text
    except InferError as error:
        if not _is_about_template(error):
            raise
        return str(error)
    lost = conversation["messages"][-1]["content"] not in text
    return "the last message is not in the prompt" if lost else None


def _is_about_template(error: InferError) -> bool:
    """Check whether the template caused an error, rather than a lack of memory or threads."""
    if isinstance(error, OutOfMemoryError):
        return False
    return not isinstance(error, EngineError) or "a check inside the engine failed" in str(error)
