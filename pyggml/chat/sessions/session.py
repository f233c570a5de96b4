"""Sessions: conversations that know their messages, and can be branched, saved and continued after a restart."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pyggml._core.checks import shown
from pyggml._core.fields import fields_of
from pyggml._core.owner import Owner
from pyggml.chat.messages import JSONMessage, Message, checked_messages
from pyggml.chat.request import OWN_PARAMETERS, ChatModel, ChatRequest, Messages, chat_request
from pyggml.chat.stream import ChatStream
from pyggml.chat.tools import checked_tools
from pyggml.chat.types import ChatCompletion, ChatMessage
from pyggml.errors import InvalidParameterError, SavedStateError
from pyggml.generation.param_merging import merge
from pyggml.generation.saved_state import SavedState
from pyggml.options.chat_defaults import chosen
from pyggml.options.sampling import SamplingParams
from pyggml.types import FinishReason

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from pyggml._keywords import ChatKeywords
    from pyggml.chat.async_stream import AsyncChatStream
    from pyggml.chat.request import Tools

    class TurnKeywords(ChatKeywords, total=False):
        """Parameters of a turn, as of ``LLM.chat``."""

        tools: Tools | None
        params: SamplingParams | None


#: What a turn may add before the answer: the user's text, a message, or several, such as the results of tools.
Turn = str | Message | Sequence[Message] | None


class SessionModel(ChatModel, Protocol):
    """The part of LLM that a session needs."""

    def _save_state(
        self, path: str | os.PathLike[str], prompt: Messages, options: Mapping[str, Any], session: dict[str, Any] | None
    ) -> int: ...


class _Turn:
    """A turn of a session, which begins when it is submitted.

    Attributes:
        stream: returns its stream, or None once nothing refers to it any more; None: it is being submitted.
    """

    stream: Callable[[], ChatStream | AsyncChatStream | None] | None = None

    @property
    def is_running(self) -> bool:
        """False once its answer has ended, or was cancelled or dropped."""
        if self.stream is None:
            return True
        stream = self.stream()
        return stream is not None and not stream._is_over


class Session(Owner):
    """A conversation that keeps its messages, from :meth:`LLM.session <pyggml.LLM.session>`.

    Each turn adds the new messages and the answer. A turn that is cancelled or fails adds nothing. One turn at a time;
    any thread or task may take it. The KV cache of the earlier turns is reused as for :meth:`LLM.chat
    <pyggml.LLM.chat>`, from which a session otherwise does not differ.

    Attributes:
        options: parameters of every turn, as for :meth:`LLM.chat <pyggml.LLM.chat>`.
    """

    _instead_of_a_copy = "fork() makes a branch of the conversation"

    def __init__(self, llm: SessionModel, messages: Messages = (), options: Mapping[str, Any] | None = None) -> None:
        """Begin a conversation; :meth:`LLM.session <pyggml.LLM.session>` does it.

        Args:
            llm: the model that answers.
            messages: the messages so far; (): none.
            options: parameters of every turn.
        """
        if not callable(getattr(llm, "stream_chat", None)) or isinstance(llm, type):
            raise InvalidParameterError(f"a session needs an LLM, not {shown(llm)}: llm.session(messages) makes one")
        if options is not None and not (
            isinstance(options, Mapping) and all(isinstance(name, str) for name in options)
        ):
            raise InvalidParameterError(f"options must be a mapping of parameters, not {shown(options)}")
        self.options: dict[str, Any] = dict(options or {})
        self._llm = llm
        self._messages: list[JSONMessage] = (
            [] if isinstance(messages, (list, tuple)) and not messages else checked_messages(messages)
        )
        self._lock = threading.Lock()
        self._turn: _Turn | None = None
        sampling = {name: value for name, value in self.options.items() if name not in OWN_PARAMETERS}
        params = merge(self.options.get("params"), sampling, OWN_PARAMETERS, chosen(llm.chat_defaults))
        self._cache_salt = params.cache_salt

    @property
    def messages(self) -> list[JSONMessage]:
        """The messages so far, in OpenAI's format: a list of its own, which does not change with the session."""
        with self._lock:
            return [dict(message) for message in self._messages]

    def chat(self, message: Turn = None, **options: Unpack[TurnKeywords]) -> ChatCompletion:
        """Add a message, and answer the conversation. Errors as :meth:`LLM.chat <pyggml.LLM.chat>`.

        Args:
            message: the user's text, a message, or several messages, such as the results of tools. None: answer the
                messages as they are.
            **options: parameters of this turn, which replace those of the session.

        Raises:
            InvalidParameterError: another turn is still running.
        """
        request, turn = self._request(message, options)
        request.is_streamed = False
        return self._streamed(request, turn).finish()

    def stream_chat(self, message: Turn = None, **options: Unpack[TurnKeywords]) -> ChatStream:
        """As :meth:`chat`, and yield the answer as it is generated. The session has it once the stream has ended.

        Args:
            message: as for :meth:`chat`.
            **options: as for :meth:`chat`.
        """
        return self._streamed(*self._request(message, options))

    async def achat(self, message: Turn = None, **options: Unpack[TurnKeywords]) -> ChatCompletion:
        """As :meth:`chat`, for coroutines. Cancelling the task cancels the generation.

        Args:
            message: as for :meth:`chat`.
            **options: as for :meth:`chat`.
        """
        return await self.astream_chat(message, **options).finish()

    def astream_chat(self, message: Turn = None, **options: Unpack[TurnKeywords]) -> AsyncChatStream:
        """As :meth:`stream_chat`, for coroutines; ``async with`` submits the request, or else the first chunk does.

        Args:
            message: as for :meth:`chat`.
            **options: as for :meth:`chat`.
        """
        from pyggml.chat.async_stream import AsyncChatStream  # imports asyncio, which takes long

        request, turn = self._request(message, options)
        stream = AsyncChatStream(self._llm._engine, request)
        turn.stream = weakref.ref(stream)
        return stream

    def fork(self) -> Session:
        """Return another session with the same messages and options, which continues on its own.

        Both share the KV cache of their common turns where the model's memory allows it.
        """
        return Session(self._llm, self.messages, self.options)

    def save(self, path: str | os.PathLike[str]) -> int:
        """Save messages, options and KV cache to a file, from which :meth:`LLM.session <pyggml.LLM.session>` continues.

        What the next turn needs and is not cached is computed first. Waits without the GIL. The file of a session with
        adapters has no KV cells: the next turn computes them again.

        Args:
            path: the file to write, whole or not at all; an existing one is replaced.

        Returns:
            The number of tokens whose KV cells it holds; 0 with adapters.

        Raises:
            InvalidParameterError: an option cannot be written as JSON, such as an open chat template; names it. Or the
                path is not that of a file, or the model has no prefix cache.
            DiskFullError: the file does not fit.
            InferError: as :meth:`LLM.generate <pyggml.LLM.generate>`.
        """
        messages = self.messages
        session = {"messages": messages, "options": _options_as_json(self.options)}
        return self._llm._save_state(path, messages, self.options, session)

    async def asave(self, path: str | os.PathLike[str]) -> int:
        """As :meth:`save`, for coroutines.

        Args:
            path: as for :meth:`save`.
        """
        from asyncio import to_thread

        return await to_thread(self.save, path)

    def __repr__(self) -> str:
        return f"Session({len(self._messages)} messages, {self._llm!r})"

    # --- inside -------------------------------------------------------------------------------------------

    @classmethod
    def _of_state(cls, llm: SessionModel, state: SavedState, path: object, options: Mapping[str, Any]) -> Self:
        """Return the session of a file, with some of its options replaced."""
        saved = state.session
        if saved is None:
            raise SavedStateError(f"{path} holds a prompt, not a session: restore() takes it")
        return cls(llm, saved["messages"], {**_options_from_json(saved["options"]), **options})

    def _request(self, message: Turn, options: Mapping[str, Any]) -> tuple[ChatRequest, _Turn]:
        """Check a turn, which begins when it is submitted, and is added to the messages when its answer has ended."""
        before, turn = self._messages, _Turn()
        messages = [*before, *_new_messages(message)]
        if not messages:
            raise InvalidParameterError("the session has no messages yet: pass one to answer")
        request = chat_request(self._llm, messages, **{**self.options, **options})

        def begin() -> None:
            with self._lock:
                other = self._turn
                if other is not None and other is not turn and other.is_running:
                    raise InvalidParameterError(
                        "another turn of this session is still running: take all its chunks or cancel it first, or "
                        "fork() the session"
                    )
                if self._messages is not before:
                    raise InvalidParameterError("another turn of this session ended first: fork() it for two at a time")
                self._turn = turn

        def add(answer: ChatMessage, finish_reason: FinishReason) -> None:
            if finish_reason == "cancelled":
                return
            new = checked_messages([_continued(messages[-1], answer) if continues else answer])
            with self._lock:
                if self._turn is turn:  # not if it was cancelled as it ended, and another one has begun
                    self._messages = [*messages[: len(messages) - continues], *new]

        continues = request.conversation.continues
        request.on_submit, request.on_answer = begin, add
        return request, turn

    def _streamed(self, request: ChatRequest, turn: _Turn) -> ChatStream:
        try:
            stream = ChatStream(request, self._llm._engine.enqueue(request))
        except BaseException:
            turn.stream = _no_stream
            raise
        turn.stream = weakref.ref(stream)
        return stream


def _no_stream() -> None:
    """Return None: the turn failed before it had a stream."""


def _new_messages(turn: Turn) -> list[JSONMessage]:
    if turn is None:
        return []
    if isinstance(turn, str):
        return checked_messages([{"role": "user", "content": turn}])
    return checked_messages([turn] if isinstance(turn, (Mapping, ChatMessage)) else turn)


def _continued(message: JSONMessage, answer: ChatMessage) -> ChatMessage:
    """Return a message with what continues it."""
    content = message["content"]
    if not isinstance(content, str):
        content = "".join(part["text"] for part in content)
    reasoning = message.get("reasoning_content", "") + answer.reasoning_content
    return dataclasses.replace(answer, content=content + answer.content, reasoning_content=reasoning)


# --- options in files ---------------------------------------------------------------------------------------


def _options_as_json(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as JSON values.

    Raises:
        InvalidParameterError: an option has no such form; names it.
    """
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if "params" in given:
        given["params"] = _changed_fields(given["params"])
    if "tools" in given:
        given["tools"] = [tool.as_json() for tool in checked_tools(given["tools"]).values()]
    if isinstance(given.get("chat_template"), os.PathLike):
        given["chat_template"] = os.fspath(given["chat_template"])
    in_params = {f"params.{name}": value for name, value in given.get("params", {}).items()}
    for name, value in {**in_params, **given}.items():  # params last, so that their fields are named
        try:
            json.dumps(value)
        except (TypeError, ValueError, RecursionError):
            raise InvalidParameterError(
                f"a file cannot hold the session's option {name}, a {type(value).__name__}: leave it out of session(), "
                "and pass it to each turn, or to session() again when you load the file"
            ) from None
    return given


def _changed_fields(params: SamplingParams) -> dict[str, Any]:
    values = {name: getattr(params, name) for name in fields_of(SamplingParams)}
    return {name: value for name, value in values.items() if value != fields_of(SamplingParams)[name].default}


def _options_from_json(options: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(options)
    for fields in (found, found.get("params", {})):
        if "logit_bias" in fields:
            fields["logit_bias"] = {int(token_id): bias for token_id, bias in fields["logit_bias"].items()}
    if "params" in found:
        found["params"] = SamplingParams(**found["params"])
    return found
