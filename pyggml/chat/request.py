"""Requests of the chat methods of LLM: a conversation and its sampling parameters."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from pyggml._core.checks import flag
from pyggml.chat import ChatPrompt, ChatTemplates
from pyggml.chat.conversation import Conversation
from pyggml.chat.messages import Message, checked_messages
from pyggml.chat.quoting import SpecialTexts
from pyggml.chat.tools import ToolLike, checked_tools
from pyggml.errors import InvalidParameterError
from pyggml.generation.engine import Engine
from pyggml.generation.param_merging import merge
from pyggml.generation.pending_request import PromptRequest
from pyggml.options.chat_defaults import chosen
from pyggml.schema.grammar import as_text
from pyggml.tokenizer import Tokenizer
from pyggml.types import Grammar, SamplingParams

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pyggml._keywords import SamplingOverrides

Messages = Sequence[Message]
Tools = Sequence[ToolLike]
ChatTemplate = str | os.PathLike[str] | ChatTemplates

_P = ParamSpec("_P")
_LLM = TypeVar("_LLM")
_Result = TypeVar("_Result")


class ChatRequest(PromptRequest):
    """A request to answer a conversation, rendered when it is submitted.

    Attributes:
        conversation: the conversation to answer.
        prompt: the rendered conversation, once the request is submitted.
    """

    def __init__(
        self,
        conversation: Conversation,
        templates: Callable[[], ChatTemplates],
        special_texts: Callable[[], SpecialTexts],
        params: SamplingParams,
        tokenizer: Tokenizer,
        *,
        waits_for_capacity: bool,
    ) -> None:
        """Keep the conversation; ``templates`` parses the template, ``special_texts`` reads the tokenizer's."""
        super().__init__(
            (), params, tokenizer, parse_special=conversation.parse_special, waits_for_capacity=waits_for_capacity
        )
        self.conversation = conversation
        self.prompt: ChatPrompt | None = None
        self._templates = templates
        self._special_texts = special_texts

    @property
    def stop(self) -> tuple[str, ...]:
        """The stop strings, including the template's once it is rendered."""
        return (*super().stop, *(self.prompt.stop if self.prompt else ()))

    @property
    def is_slow(self) -> bool:
        """True: rendering takes a few milliseconds."""
        return True

    @property
    def _may_end_early(self) -> bool:
        return bool(self.stop) or self.conversation.may_call_once

    def prompt_ids(self) -> list[int]:
        """Render and encode the conversation."""
        token_ids, _ = self._prompt_and_params()
        return token_ids

    def _prompt_and_params(self) -> tuple[list[int], SamplingParams]:
        templates = self._templates()
        self.prompt = prompt = self.conversation.render(templates, **_format_arguments(self.params))
        return self._token_ids(templates, prompt.text), self._sampling(prompt)

    def _sampling(self, prompt: ChatPrompt) -> SamplingParams:
        """Add the grammar of the prompt's tools, or of reasoning that precedes an answer with a schema."""
        params, is_free = self.params, self.params.json_schema is None and self.params.grammar is None
        wraps_schema = params.json_schema is not None and self.conversation.thinks and prompt.thinking_start
        if prompt.grammar is None or not (is_free or wraps_schema):
            return params
        lazy = prompt.grammar_lazy
        grammar = Grammar(
            prompt.grammar,
            prefix=prompt.grammar_prefix,
            lazy=lazy,
            trigger_patterns=prompt.trigger_patterns if lazy else (),
            trigger_tokens=prompt.trigger_tokens if lazy else (),
        )
        return dataclasses.replace(params, grammar=grammar, json_schema=None)

    def _token_ids(self, templates: ChatTemplates, prompt: str) -> list[int]:
        """Encode the prompt, keeping special tokens in messages as text; see :mod:`pyggml.chat.quoting`."""
        if not self.conversation.parse_special:
            special = self._special_texts()
            if special.may_occur_in(self.conversation.texts):
                marks = special.new_marks()
                conversation = self.conversation.with_texts_changed(marks.insert)
                marked = conversation.render(templates, **_format_arguments(self.params)).text
                if marks.template_tokens(marked) != special.find_all(prompt):
                    return self.tokenizer.encode_parts(marks.split(marked))
        return self.tokenizer.encode(prompt, parse_special=True)


class ChatModel(Protocol):
    """The part of LLM that a chat needs."""

    tokenizer: Tokenizer
    chat_defaults: SamplingParams
    _waits_for_capacity: bool

    @property
    def _engine(self) -> Engine: ...

    @property
    def _special_texts(self) -> SpecialTexts: ...

    def chat_templates(self, chat_template: ChatTemplate | None = None) -> ChatTemplates:
        """Return the model's chat template, or another one."""


def chat_request(
    llm: ChatModel,
    messages: Messages,
    tools: Tools | None = None,
    params: SamplingParams | None = None,
    *,
    tool_choice: str | Mapping[str, Any] = "auto",
    parallel_tool_calls: bool = False,
    thinking: bool | None = None,
    continue_final_message: bool = False,
    chat_template: ChatTemplate | None = None,
    template_kwargs: Mapping[str, Any] | None = None,
    parse_special: bool = False,
    **overrides: Unpack[SamplingOverrides],
) -> ChatRequest:
    """Check a request to answer a conversation. The parameters are those of :meth:`LLM.chat <pyggml.LLM.chat>`."""
    if isinstance(tools, SamplingParams):
        raise InvalidParameterError("tools is SamplingParams: pass them by name, chat(messages, params=...)")
    if not isinstance(template_kwargs, (Mapping, type(None))):
        raise InvalidParameterError(f"template_kwargs must be a mapping, not {type(template_kwargs).__name__}")
    conversation = Conversation(
        messages=checked_messages(messages),
        tools=checked_tools(tools),
        tool_choice=tool_choice,
        parallel_tool_calls=parallel_tool_calls,
        thinking=thinking,
        continues=flag("continue_final_message", continue_final_message),
        template_kwargs=template_kwargs or {},
        parse_special=flag("parse_special", parse_special),
    )
    _ = llm._engine  # raises for models that do not generate
    return ChatRequest(
        conversation,
        functools.partial(llm.chat_templates, chat_template),
        lambda: llm._special_texts,
        merge(params, overrides, _OWN_PARAMETERS, chosen(llm.chat_defaults)),
        llm.tokenizer,
        waits_for_capacity=llm._waits_for_capacity,
    )


#: The parameters of the chat methods that are not sampling parameters.
_OWN_PARAMETERS = tuple(inspect.signature(chat_request).parameters)[1:-1]


def _with_parameters_of(
    make_request: Callable[Concatenate[Any, _P], ChatRequest],
) -> Callable[[Callable[[_LLM, ChatRequest], _Result]], Callable[Concatenate[_LLM, _P], _Result]]:
    def decorate(method: Callable[[_LLM, ChatRequest], _Result]) -> Callable[Concatenate[_LLM, _P], _Result]:
        def call(self: _LLM, /, *args: _P.args, **kwargs: _P.kwargs) -> _Result:
            return method(self, make_request(self, *args, **kwargs))

        async def acall(self: _LLM, /, *args: _P.args, **kwargs: _P.kwargs) -> Any:
            return await cast("Any", method)(self, make_request(self, *args, **kwargs))

        # Bad arguments of a coroutine raise when it is awaited.
        called: Any = functools.wraps(method)(acall if inspect.iscoroutinefunction(method) else call)
        own, *others = inspect.signature(make_request).parameters.values()
        result = inspect.signature(method).return_annotation
        parameters = [own.replace(name="self", annotation=own.empty), *others]
        called.__signature__ = inspect.Signature(parameters, return_annotation=result)
        return cast("Callable[Concatenate[_LLM, _P], _Result]", called)

    return decorate


#: Decorates a method that takes a ChatRequest: callers pass the parameters of :func:`chat_request` instead, which type
#: checkers, editors and :func:`help` show.
chat_method = _with_parameters_of(chat_request)


def _format_arguments(params: SamplingParams) -> dict[str, Any]:
    """The required format of the answer, as arguments for :meth:`ChatTemplates.render`."""
    schema, grammar = params.json_schema, params.grammar
    if schema is not None:
        return {"json_schema": as_text(schema)}
    if grammar is not None:
        return {"grammar": grammar.text if isinstance(grammar, Grammar) else grammar}
    return {}
