"""The chat methods of LLM, apart from LLM itself, which knows nothing about conversations."""

from __future__ import annotations

import functools
import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from pyggml._core.cached_property import cached_property
from pyggml._core.checks import flag
from pyggml._core.hints import Completions
from pyggml.chat import ChatTemplates
from pyggml.chat.conversation import ChatJob, ChatStream, Conversation
from pyggml.chat.messages import Message, checked_messages
from pyggml.chat.quoting import SpecialTexts
from pyggml.chat.tools import ToolLike
from pyggml.chat.tools import checked as checked_tools
from pyggml.chat.types import ChatCompletion
from pyggml.errors import InvalidParameterError
from pyggml.generation.engine import Engine
from pyggml.generation.param_merging import merge
from pyggml.tokenizer import Tokenizer
from pyggml.types import SamplingParams

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pyggml._keywords import SamplingOverrides
    from pyggml.chat.async_stream import AsyncChatStream

Messages = Sequence[Message]
Tools = Sequence[ToolLike]
ChatTemplate = str | os.PathLike[str] | ChatTemplates


_P = ParamSpec("_P")
_R = TypeVar("_R")


def _takes_what(
    ask: Callable[Concatenate[Chatting, _P], ChatJob],
) -> Callable[[Callable[[Chatting, ChatJob], _R]], Callable[Concatenate[Chatting, _P], _R]]:
    """Decorates a method that takes a job: callers pass the parameters of ``ask``, and see them in the signature."""

    def decorate(method: Callable[[Chatting, ChatJob], _R]) -> Callable[Concatenate[Chatting, _P], _R]:
        def answer(self: Chatting, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
            return method(self, ask(self, *args, **kwargs))

        async def aanswer(self: Chatting, /, *args: _P.args, **kwargs: _P.kwargs) -> Any:
            return await cast("Any", method)(self, ask(self, *args, **kwargs))

        # Bad arguments of a coroutine raise when it is awaited.
        called: Any = functools.wraps(method)(aanswer if inspect.iscoroutinefunction(method) else answer)
        result = inspect.signature(method).return_annotation
        called.__signature__ = inspect.signature(ask).replace(return_annotation=result)
        return cast("Callable[Concatenate[Chatting, _P], _R]", called)

    return decorate


class Chatting(ABC):
    """Base class of LLM with its chat methods."""

    tokenizer: Tokenizer
    stop_tokens: dict[int, str]
    _waits: bool

    @property
    @abstractmethod
    def _engine(self) -> Engine: ...

    def _asked(
        self,
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
    ) -> ChatJob:
        """The job for an answer. All chat methods have these parameters; :meth:`chat` documents them."""
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
        return ChatJob(
            conversation,
            partial(self.chat_templates, chat_template),
            lambda: self._special_texts,
            engine=self._engine,
            tokenizer=self.tokenizer,
            params=merge(params, overrides, _OWN_NAMES),
            waits=self._waits,
        )

    @_takes_what(_asked)
    def chat(self, job: ChatJob) -> ChatCompletion:  # noqa: D417
        """Answers a conversation.

        Args:
            messages: the conversation so far: ChatMessages, or mappings in OpenAI's form. You can pass back the message
                of an earlier answer unchanged.
            tools: tools that the model may call: Python functions, or descriptions in OpenAI's form.
            params: sampling parameters; None: greedy defaults. ``stop`` strings apply to everything the model writes.
            tool_choice: "auto": call tools or answer; "none": only answer; "required": call at least one tool; or the
                name of the tool to call.
            parallel_tool_calls: allow several calls in one answer.
            thinking: False asks a reasoning model to answer directly. None: the template's default.
            continue_final_message: continue the last message, which is the assistant's, instead of beginning another;
                the answer has only what is new.
            chat_template: replaces the model's, by Jinja text, file or name; as for :meth:`LLM.chat_templates`.
            template_kwargs: additional variables for the template, such as ``{"reasoning_effort": "low"}``.
            parse_special: interpret special tokens in messages. If False, ``<|im_end|>`` in a message is plain text and
                cannot end its turn: messages come from strangers, unlike the prompts of :meth:`LLM.generate`.
            **overrides: fields of SamplingParams that replace those of ``params``.

        Returns:
            The answer. If it was cut off, for instance by ``max_tokens``, it may end in the middle of a tool call.

        Raises:
            InvalidParameterError: messages, tools or parameters are invalid, or the template rejects them.
            InferError: as :meth:`LLM.generate`.
        """
        return ChatStream(job.unwatched(), job.queue()).finish()

    @_takes_what(_asked)
    def stream_chat(self, job: ChatJob) -> ChatStream:
        """Answers a conversation, and yields the answer as it is generated.

        Args and errors as :meth:`chat`; invalid arguments raise here, not at the first chunk.

        Returns:
            An iterator of ChatChunks. Closing or dropping it cancels the generation.
        """
        return ChatStream(job, job.queue())

    @_takes_what(_asked)
    async def achat(self, job: ChatJob) -> ChatCompletion:
        """As :meth:`chat`, for coroutines. Cancelling the task cancels the generation."""
        from pyggml.chat.async_stream import AsyncChatStream  # loads asyncio

        return await AsyncChatStream(job.unwatched()).finish()

    @_takes_what(_asked)
    def astream_chat(self, job: ChatJob) -> AsyncChatStream:
        """As :meth:`stream_chat`, for coroutines; ``async with`` renders and submits, or else the first chunk does.

        Invalid messages, tools and parameters raise here, what else is wrong with a request where it is submitted.

        Returns:
            An asynchronous context manager, and an asynchronous iterator of ChatChunks. Leaving, closing or dropping
            it, or cancelling the task that awaits it, cancels the generation.
        """
        from pyggml.chat.async_stream import AsyncChatStream

        return AsyncChatStream(job)

    @_takes_what(_asked)
    def tokenize_chat(self, job: ChatJob) -> list[int]:
        """Converts a conversation to the token ids that :meth:`chat` would begin with, which takes the same arguments.

        Raises:
            As :meth:`chat`.
        """
        return job.prompt_ids()

    @abstractmethod
    def chat_templates(self, chat_template: ChatTemplate | None = None) -> ChatTemplates:
        """The model's own chat template, or another one."""

    @cached_property
    def _special_texts(self) -> SpecialTexts:
        return SpecialTexts(self.tokenizer)


#: The parameters of the chat methods that are not sampling parameters.
_OWN_NAMES = tuple(inspect.signature(Chatting._asked).parameters)[1:-1]

# Where OpenAI's client has "create".
Chatting.chat.completions = Completions()  # type: ignore[attr-defined]
