"""Jinja templates as chat formats."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pyggml
from pyggml.compat._llama.chat_handlers import (
    ChatFormatter,
    ChatFormatterResponse,
    LlamaChatCompletionHandler,
    chat_formatter_to_chat_completion_handler,
)
from pyggml.compat._llama.token_loop import Ids, Scores


class Jinja2ChatFormatter(ChatFormatter):
    """A Jinja template as a chat format.

    Attributes:
        template: its text.
        eos_token: the text of EOS, which ends an answer.
        bos_token: the text of BOS.
        add_generation_prompt: end prompts with the beginning of the answer.
        stop_token_ids: tokens that end an answer, in addition to the model's.
    """

    def __init__(
        self,
        template: str,
        eos_token: str,
        bos_token: str,
        add_generation_prompt: bool = True,
        stop_token_ids: list[int] | None = None,
    ) -> None:
        """Parse the template; the arguments are the attributes."""
        self.template = template
        self.eos_token = eos_token
        self.bos_token = bos_token
        self.add_generation_prompt = add_generation_prompt
        self.stop_token_ids = None if stop_token_ids is None else set(stop_token_ids)
        self._environment = _environment().from_string(template)

    def __call__(self, *, messages: Any, **kwargs: Any) -> ChatFormatterResponse:
        """Render a conversation; ``kwargs`` are variables of the template."""
        prompt = self._environment.render(
            messages=messages,
            eos_token=self.eos_token,
            bos_token=self.bos_token,
            add_generation_prompt=self.add_generation_prompt,
            raise_exception=_raise_exception,
            strftime_now=self.strftime_now,
            **{name: kwargs.pop(name, None) for name in ("functions", "function_call", "tools", "tool_choice")},
            **kwargs,
        )
        criteria = None if self.stop_token_ids is None else self._ends
        return ChatFormatterResponse(prompt, [self.eos_token], criteria, added_special=True)

    @staticmethod
    def strftime_now(f: str) -> str:
        """Return the local time in a format, for templates.

        Args:
            f: the format, as for :meth:`datetime.datetime.strftime`.
        """
        return datetime.now().strftime(f)

    @staticmethod
    def tojson(
        x: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """Return a value as JSON, for templates; arguments as those of :func:`json.dumps`."""
        options: dict[str, Any] = {"indent": indent, "separators": separators, "sort_keys": sort_keys}
        return json.dumps(x, ensure_ascii=ensure_ascii, **options)

    def to_chat_handler(self) -> LlamaChatCompletionHandler:
        """Return the template as a chat handler."""
        return chat_formatter_to_chat_completion_handler(self)

    def _ends(self, tokens: Ids, logits: Scores) -> bool:  # noqa: ARG002
        return int(tokens[-1]) in (self.stop_token_ids or ())


def hf_tokenizer_config_to_chat_formatter(
    tokenizer_config: Mapping[str, Any], add_generation_prompt: bool = True
) -> ChatFormatter:
    """Return the template of a ``tokenizer_config.json`` as a chat format.

    Args:
        tokenizer_config: the file's content, with ``chat_template``, ``bos_token`` and ``eos_token``.
        add_generation_prompt: end the conversation with an empty message of the assistant.
    """
    texts = {name: tokenizer_config[name] for name in ("chat_template", "bos_token", "eos_token")}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise pyggml.InvalidParameterError(f"tokenizer_config[{name!r}] must be text, not {type(text).__name__}")
    template = _environment().from_string(texts.pop("chat_template"))

    def formatter(*, messages: Any, **kwargs: Any) -> ChatFormatterResponse:
        answer = [{"role": "assistant", "content": ""}] if add_generation_prompt else []
        variables = {**kwargs, **texts, "messages": [*messages, *answer], "raise_exception": _raise_exception}
        stop = [texts["eos_token"], texts["bos_token"]]
        return ChatFormatterResponse(template.render(variables), stop, added_special=True)

    return formatter


def hf_tokenizer_config_to_chat_completion_handler(
    tokenizer_config: Mapping[str, Any], add_generation_prompt: bool = True
) -> LlamaChatCompletionHandler:
    """Return the template of a ``tokenizer_config.json`` as a chat handler; arguments as for its chat format."""
    formatter = hf_tokenizer_config_to_chat_formatter(tokenizer_config, add_generation_prompt)
    return chat_formatter_to_chat_completion_handler(formatter)


def hf_autotokenizer_to_chat_formatter(pretrained_model_name_or_path: str) -> ChatFormatter:
    """Return the template of a tokenizer of transformers as a chat format.

    Args:
        pretrained_model_name_or_path: as for ``AutoTokenizer.from_pretrained``.
    """
    from pyggml.compat.llama_cpp.llama_tokenizer import LlamaHFTokenizer

    tokenizer = LlamaHFTokenizer.from_pretrained(pretrained_model_name_or_path).hf_tokenizer

    def formatter(*, messages: Any, **kwargs: Any) -> ChatFormatterResponse:  # noqa: ARG001
        prompt = str(tokenizer.apply_chat_template(messages, tokenize=False))
        return ChatFormatterResponse(prompt, tokenizer.eos_token, added_special=True)

    return formatter


def hf_autotokenizer_to_chat_completion_handler(pretrained_model_name_or_path: str) -> LlamaChatCompletionHandler:
    """Return the template of a tokenizer of transformers as a chat handler.

    Args:
        pretrained_model_name_or_path: as for ``AutoTokenizer.from_pretrained``.
    """
    return chat_formatter_to_chat_completion_handler(hf_autotokenizer_to_chat_formatter(pretrained_model_name_or_path))


def _environment() -> Any:
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """The tag of transformers that marks an answer, which has no effect on the text."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Parser) -> list[nodes.Node]:
            """Return the content of the tag."""
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = Jinja2ChatFormatter.tojson
    return environment


def _raise_exception(message: str) -> None:
    raise pyggml.InvalidParameterError(f"the chat template rejects the messages: {message}")
