"""The model that a chat talks with, which may be changed while the conversation goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyggml
from pyggml.cli.arguments.model import loaded, say_which
from pyggml.units import bytes_text, count_text

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from pyggml import LLM, ChatTemplates, SamplingParams

# Options of loading that belong to one model.
_OF_ONE_MODEL = ("tokenizer",)


@dataclass(frozen=True)
class Facts:
    """What a chat says and needs to know about its model.

    Attributes:
        source: what was asked for; "" for the model that ships with pyggml.
        name: what the model calls itself, or else its file.
        about: the rest, a line for each fact.
        template: the text of its chat template.
        license: the name of its licence; "" if the file does not say.
        recommended: how its makers recommend to sample; None: they say nothing.
        thinks: whether it can think before it answers.
        n_ctx: its context, in tokens.
    """

    source: str = ""
    name: str = ""
    about: str = ""
    template: str = ""
    license: str = ""
    recommended: SamplingParams | None = None
    thinks: bool = False
    n_ctx: int = 0


class ChatModel:
    """A model and its chat template.

    Attributes:
        llm: the model.
        templates: how its prompts are written.
        facts: what there is to say about it.
    """

    llm: LLM
    templates: ChatTemplates
    facts: Facts

    def __init__(self, source: str | None, chat_template: str | None, options: Mapping[str, Any]) -> None:
        """Loads it, and says so if it is the one that ships with pyggml.

        Args:
            source: the value of the option ``--model``.
            chat_template: a template, or the name of one, that replaces its own.
            options: as :func:`pyggml.load`; None stands for the default.

        Raises:
            InferError: it cannot be loaded, or has no chat template and none was given.
        """
        say_which(source)
        self._source = source
        self._options = dict(options)
        self._open(source, chat_template, self._options)

    def change(self, source: str) -> None:
        """Loads another model in its place, with its own template; if that fails, everything stays as it was.

        Raises:
            InferError, OSError: the model cannot be loaded, or has no chat template.
        """
        before, options = self.llm, {name: value for name, value in self._options.items() if name not in _OF_ONE_MODEL}
        try:
            self._open(source, None, options)
        except pyggml.OutOfMemoryError:
            self._open_instead(source, options)
        before.close()
        self._source, self._options = source, options

    def _open_instead(self, source: str, options: Mapping[str, Any]) -> None:
        """Loads a model for which there is no room beside the present one."""
        template = self.templates.source
        self.llm.close()
        try:
            self._open(source, None, options)
        except BaseException:
            self._open(self._source, template, self._options)
            raise

    def _open(self, source: str | None, chat_template: str | None, options: Mapping[str, Any]) -> None:
        llm = loaded(source, n_parallel=1, **options)
        try:
            templates = llm.chat_templates(chat_template)
        except BaseException:
            llm.close()
            raise
        self.llm, self.templates, self.facts = llm, templates, _facts(source, llm, templates)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.llm.close()


def _facts(source: str | None, llm: LLM, templates: ChatTemplates) -> Facts:
    model, name = llm.model, llm.metadata.get("general.name") or Path(llm.model.path).name
    lines = [
        f"{name}: {model.desc}, {count_text(model.n_params)} parameters, {bytes_text(model.size_bytes)}",
        f"file: {model.path}",
        f"context: {llm.n_ctx:,} tokens; it was trained with {model.n_ctx_train:,}",
        f"stops at: {' '.join(llm.stop_tokens.values())}",
    ]
    return Facts(
        source=source or "",
        name=name,
        about="\n".join(lines),
        template=templates.source,
        license=llm.metadata.get("general.license", ""),
        recommended=llm.recommended_sampling,
        thinks=templates.supports.thinking,
        n_ctx=llm.n_ctx,
    )
