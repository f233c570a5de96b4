"""Requests of the chat methods of LLM: a conversation and its sampling parameters."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from pyggml._core.checks import flag
from pyggml._native.vocab import Vocab
from pyggml.chat import ChatPrompt, ChatTemplates
from pyggml.chat.conversation import Conversation
from pyggml.chat.jinja.quoted_text import QuotedText
from pyggml.chat.messages import Message, checked_messages, with_parsed_arguments
from pyggml.chat.overflow import fitted
from pyggml.chat.quoting import SpecialTexts
from pyggml.chat.reasoning import with_reasoning_tokens
from pyggml.chat.tools import ToolLike, checked_tools
from pyggml.chat.types import ChatMessage
from pyggml.errors import InvalidParameterError
from pyggml.generation.engine import Engine
from pyggml.generation.param_merging import format_grammar, merge
from pyggml.generation.pending_request import PromptRequest
from pyggml.generation.stream import ChunkBuilder
from pyggml.options.chat_defaults import chosen
from pyggml.options.sampling import FORMATS
from pyggml.schema.grammar import as_text
from pyggml.tokenizer import Tokenizer
from pyggml.types import FinishReason, Grammar, SamplingParams

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
        n_dropped_messages: number of messages that it leaves out, because the context is too small for all.
        on_submit: called before it is submitted, which an exception prevents; None: nothing.
        on_answer: called with the message and the finish reason once the answer has ended; None: nothing.
        templates: returns the chat template.
    """

    def __init__(
        self,
        conversation: Conversation,
        templates: Callable[[], ChatTemplates],
        special_texts: Callable[[], SpecialTexts],
        params: SamplingParams,
        tokenizer: Tokenizer,
        n_ctx: int,
        *,
        waits_for_capacity: bool,
    ) -> None:
        """Keep the conversation; ``templates`` parses the template, ``special_texts`` reads the tokenizer's."""
        super().__init__(
            (), params, tokenizer, parse_special=conversation.parse_special, waits_for_capacity=waits_for_capacity
        )
        self.conversation = conversation
        self.prompt: ChatPrompt | None = None
        self.n_dropped_messages = 0
        self.on_submit: Callable[[], None] | None = None
        self.on_answer: Callable[[ChatMessage, FinishReason], None] | None = None
        self.templates = templates
        self._special_texts = special_texts
        self._n_ctx = n_ctx

    @property
    def stop(self) -> tuple[str, ...]:
        """The stop strings, including the template's once it is rendered."""
        return (*super().stop, *(self.prompt.stop if self.prompt else ()))

    @property
    def is_slow(self) -> bool:
        """True: rendering takes a few milliseconds."""
        return True

    @property
    def size(self) -> int:
        """Number of characters of the conversation."""
        return sum(map(len, self.conversation.texts))

    @property
    def grammar_sources(self) -> list[Any]:
        """Values that a grammar is made from, with the tools."""
        return [*super().grammar_sources, *(tool.as_json() for tool in self.conversation.tools.values())]

    @property
    def _may_end_early(self) -> bool:
        return bool(self.stop) or self.conversation.may_call_once

    def builder(self) -> ChunkBuilder:
        """A new builder of the chunks and the message."""
        from pyggml.chat.stream import ChatChunkBuilder  # which needs this module

        return ChatChunkBuilder(self)

    def encode(self, model_stop_ids: Iterable[int], vocab: Vocab) -> None:
        """Render and convert the conversation, as :meth:`PendingRequest.encode`, after a call of ``on_submit``."""
        if self.on_submit is not None:
            self.on_submit()
        super().encode(model_stop_ids, vocab)

    def prompt_ids(self) -> list[int]:
        """Render and encode the conversation."""
        token_ids, _ = self._prompt_and_params()
        return token_ids

    def _prompt_and_params(self) -> tuple[list[int], SamplingParams]:
        conversation = self.conversation
        if self.params.overflow == "shift":
            conversation = fitted(
                conversation, self._n_ctx, self.params.max_tokens, lambda each: len(self._rendered(each)[1])
            )
            self.n_dropped_messages = len(self.conversation.messages) - len(conversation.messages)
        self.prompt, ids = self._rendered(conversation)
        params = dataclasses.replace(self._sampling(self.prompt), overflow="stop")
        params, self.reasoning = with_reasoning_tokens(params, self.prompt, conversation, self.tokenizer)
        return ids, params

    def _rendered(self, conversation: Conversation) -> tuple[ChatPrompt, list[int]]:
        special = None
        if not conversation.parse_special:
            special = self._special_texts()
            if special.may_occur_in(conversation.texts):
                conversation = conversation.with_texts_changed(QuotedText)
        prompt = conversation.render(self.templates(), **_format_arguments(self.params, may_call=conversation.may_call))
        if special and isinstance(prompt.text, QuotedText):
            return prompt, self.tokenizer.encode_parts(special.split(prompt.text))
        return prompt, self.tokenizer.encode(prompt.text, parse_special=True)

    def _sampling(self, prompt: ChatPrompt) -> SamplingParams:
        """Add the grammar of the prompt's tools, and of reasoning that precedes an answer with a schema."""
        params, is_free = self.params, all(getattr(self.params, name) is None for name in FORMATS)
        follows_reasoning = not is_free and self.params.grammar is None
        wraps_format = follows_reasoning and self.conversation.thinks and prompt.thinking_start
        if prompt.grammar is None or not (is_free or wraps_format or self.conversation.may_call):
            return params
        lazy = prompt.grammar_lazy
        grammar = Grammar(
            prompt.grammar,
            prefix=prompt.grammar_prefix,
            lazy=lazy,
            trigger_patterns=prompt.trigger_patterns if lazy else (),
            trigger_tokens=prompt.trigger_tokens if lazy else (),
        )
        free: dict[str, Any] = dict.fromkeys(("json_schema", "json_schema_options", "choices", "regex"))
        return dataclasses.replace(params, **free, grammar=grammar)


class ChatModel(Protocol):
    """The part of LLM that a chat needs."""

    tokenizer: Tokenizer
    chat_defaults: SamplingParams
    _waits_for_capacity: bool
    _has_prefix_cache: bool

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
        messages=with_parsed_arguments(checked_messages(messages)),
        tools=checked_tools(tools),
        tool_choice=tool_choice,
        parallel_tool_calls=parallel_tool_calls,
        thinking=thinking,
        continues=flag("continue_final_message", continue_final_message),
        template_kwargs=template_kwargs or {},
        parse_special=flag("parse_special", parse_special),
    )
    engine = llm._engine  # raises for models that do not generate
    merged = merge(params, overrides, OWN_PARAMETERS, chosen(llm.chat_defaults))
    if merged.reasoning_budget == 0 and thinking is None:
        conversation = dataclasses.replace(conversation, thinking=False)
    return ChatRequest(
        conversation,
        functools.partial(llm.chat_templates, chat_template),
        lambda: llm._special_texts,
        merged,
        llm.tokenizer,
        engine.n_ctx,
        waits_for_capacity=llm._waits_for_capacity,
    )


#: The parameters of the chat methods that are not sampling parameters.
OWN_PARAMETERS = tuple(inspect.signature(chat_request).parameters)[1:-1]


def _with_parameters_of(
    make_request: Callable[Concatenate[Any, _P], ChatRequest],
) -> Callable[[Callable[[_LLM, ChatRequest], _Result]], Callable[Concatenate[_LLM, _P], _Result]]:
    def decorate(method: Callable[[_LLM, ChatRequest], _Result]) -> Callable[Concatenate[_LLM, _P], _Result]:
        signature = inspect.signature(method)
        more = {name: each for name, each in signature.parameters.items() if name not in ("self", "request")}

        def call(self: _LLM, /, *args: _P.args, **kwargs: _P.kwargs) -> _Result:
            given = {name: kwargs.pop(name) for name in more if name in kwargs}
            return method(self, make_request(self, *args, **kwargs), **given)

        async def acall(self: _LLM, /, *args: _P.args, **kwargs: _P.kwargs) -> Any:
            return await cast("Any", call(self, *args, **kwargs))

        # Bad arguments of a coroutine raise when it is awaited.
        called: Any = functools.wraps(method)(acall if inspect.iscoroutinefunction(method) else call)
        own, *others, last = inspect.signature(make_request).parameters.values()
        own = own.replace(name="self", annotation=own.empty)
        keywords = [each.replace(kind=each.KEYWORD_ONLY) for each in more.values()]
        called.__signature__ = signature.replace(parameters=[own, *others, *keywords, last])
        return cast("Callable[Concatenate[_LLM, _P], _Result]", called)

    return decorate


#: Decorates a method that takes a ChatRequest: callers pass the parameters of :func:`chat_request` instead, which type
#: checkers, editors and :func:`help` show. Further parameters of the method are keywords next to them.
chat_method = _with_parameters_of(chat_request)
#: The same for a method whose overloads tell its types.
overloaded_chat_method = cast("Callable[[Callable[..., Any]], Callable[..., Any]]", chat_method)


def _format_arguments(params: SamplingParams, *, may_call: bool) -> dict[str, Any]:
    """The required format of the answer, as arguments for :meth:`ChatTemplates.render`."""
    if params.json_schema is not None:
        return {"json_schema": as_text(params.json_schema), "json_schema_options": params.json_schema_options}
    grammar = format_grammar(params)
    if grammar is None:
        return {}
    if may_call and isinstance(grammar, Grammar) and (grammar.lazy or grammar.prefix):
        raise InvalidParameterError(
            "tools cannot be combined with a grammar that is lazy or has a prefix: leave one out"
        )
    name = "content_grammar" if params.grammar is None else "grammar"
    return {name: grammar.text if isinstance(grammar, Grammar) else grammar}
