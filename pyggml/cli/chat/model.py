"""The model of a chat, which can be replaced during the conversation."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyggml
from pyggml.cli.arguments.model import load_model, print_default_model_notice
from pyggml.units import bytes_text, count_text

if TYPE_CHECKING:
    from pyggml import LLM, ChatTemplates, SamplingParams

# Load options that apply to one model only.
_MODEL_OPTIONS = ("tokenizer",)


@dataclass(frozen=True)
class ChatModelInfo:
    """Description of a chat's model.

    Attributes:
        source: the model as requested; "" for the model that ships with pyggml.
        summary: description for the user, in several lines.
        recommended: sampling recommended by its makers.
    """

    source: str = ""
    name: str = ""
    summary: str = ""
    template: str = ""
    license: str = ""
    recommended: SamplingParams | None = None
    n_ctx: int = 0


class ChatModel(AbstractContextManager["ChatModel"]):
    """The model of a chat, its chat templates and its description. A context manager."""

    llm: LLM
    templates: ChatTemplates
    info: ChatModelInfo

    def __init__(self, source: str | None, chat_template: str | None, options: Mapping[str, Any]) -> None:
        """Load a model with options of :func:`pyggml.load`, and with a chat template that replaces its own."""
        print_default_model_notice(source)
        self._source = source
        self._options = dict(options)
        self._open(source, chat_template, self._options)

    def change(self, source: str) -> None:
        """Replace the model by another, with its own template; after an error, keep the current one."""
        before, options = self.llm, {name: value for name, value in self._options.items() if name not in _MODEL_OPTIONS}
        try:
            self._open(source, None, options)
        except pyggml.OutOfMemoryError:  # perhaps it fits without the current one
            template = self.templates.source
            before.close()
            try:
                self._open(source, None, options)
            except BaseException:
                self._open(self._source, template, self._options)
                raise
        before.close()
        self._source, self._options = source, options

    def _open(self, source: str | None, chat_template: str | None, options: Mapping[str, Any]) -> None:
        llm = load_model(source, n_parallel=1, **options)
        try:
            templates = llm.chat_templates(chat_template)
        except BaseException:
            llm.close()
            raise
        self.llm, self.templates, self.info = llm, templates, _info(source, llm, templates)

    def __exit__(self, *_: object) -> None:
        self.llm.close()


def _info(source: str | None, llm: LLM, templates: ChatTemplates) -> ChatModelInfo:
    model, name = llm.model, llm.metadata.get("general.name") or Path(llm.model.path).name
    return ChatModelInfo(
        source=source or "",
        name=name,
        summary=f"{name}: {model.desc}, {count_text(model.n_params)} parameters in {bytes_text(model.size_bytes)}\n"
        f"file: {model.path}\n"
        f"context: {llm.n_ctx:,} tokens; trained with {model.n_ctx_train:,}\n"
        f"stops at: {' '.join(llm.stop_tokens.values())}",
        template=templates.source,
        license=llm.metadata.get("general.license", ""),
        recommended=llm.recommended_sampling,
        n_ctx=llm.n_ctx,
    )
