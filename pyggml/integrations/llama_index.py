"""LlamaIndex: an LLM and embeddings. Needs ``llama-index-core``.

>>> from pyggml.integrations.llama_index import Pyggml
>>> Pyggml(model="model.gguf").complete("What colour is the sky?").text
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from pyggml import LLM, ChatChunk, ChatCompletion, InvalidParameterError
from pyggml.integrations._frameworks import needs
from pyggml.integrations._models import ModelLike, model_name, open_llm

with needs("llama-index-core"):
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.base.llms.types import (
        ChatMessage,
        ChatResponse,
        ChatResponseAsyncGen,
        ChatResponseGen,
        CompletionResponse,
        CompletionResponseAsyncGen,
        CompletionResponseGen,
        LLMMetadata,
        TextBlock,
        ThinkingBlock,
        ToolCallBlock,
    )
    from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
    from llama_index.core.llms.function_calling import FunctionCallingLLM
    from llama_index.core.llms.llm import ToolSelection
    from llama_index.core.llms.utils import parse_partial_json
    from pydantic import Field, PrivateAttr

    from pyggml.integrations._chat_settings import ChatSettings

__all__ = ["Pyggml", "PyggmlEmbedding"]

#: LlamaIndex's names of roles that chats call otherwise.
_ROLES = {"function": "tool", "chatbot": "assistant", "model": "assistant"}


class Pyggml(ChatSettings, FunctionCallingLLM):
    """An LLM with chat, completion, tools, streaming and coroutines.

    Models with the same ``model`` and ``load_options`` share one :class:`pyggml.LLM`, which batches the requests of all
    threads and tasks. Parameters of :meth:`pyggml.LLM.chat` can be passed to every method, too. ``complete`` answers
    its prompt as a chat does, unless ``formatted=True`` says that the prompt has the model's own markup.

    Attributes:
        model: an open LLM; or a file, a directory or a reference, as for :func:`pyggml.load`; None: the demonstration
            model. The other attributes are those of :class:`ChatSettings`.
    """

    @classmethod
    def class_name(cls) -> str:
        """Return the name by which LlamaIndex saves the object."""
        return "Pyggml"

    @property
    def metadata(self) -> LLMMetadata:
        """Facts by which LlamaIndex fits prompts and chooses between tools and plain prompts."""
        n_ctx = self.llm.n_ctx
        n_output = self.max_tokens if self.max_tokens is not None and self.max_tokens >= 0 else n_ctx // 4
        return LLMMetadata(
            context_window=n_ctx,
            num_output=min(n_output, n_ctx),
            is_chat_model=True,
            is_function_calling_model=True,
            model_name=model_name(self.model),
        )

    # --- chat --------------------------------------------------------------------------------------------------

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Answer a conversation."""
        return _response(self.llm.chat(_messages(messages), **self._options(kwargs)))

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """As :meth:`chat`, for coroutines. Cancelling the task cancels the generation."""
        return _response(await self.llm.achat(_messages(messages), **self._options(kwargs)))

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """Answer a conversation, and yield the answer so far with what is new."""
        stream = self.llm.stream_chat(_messages(messages), **self._options(kwargs))

        def responses() -> Iterator[ChatResponse]:
            answer = _Answer()
            with stream:
                for chunk in stream:
                    yield answer.grown(chunk, stream.completion if chunk.finish_reason else None)

        return responses()

    @llm_chat_callback()
    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        """As :meth:`stream_chat`, for coroutines."""
        stream = self.llm.astream_chat(_messages(messages), **self._options(kwargs))

        async def responses() -> AsyncIterator[ChatResponse]:
            answer = _Answer()
            async with stream:
                async for chunk in stream:
                    yield answer.grown(chunk, stream.completion if chunk.finish_reason else None)

        return responses()

    # --- completion --------------------------------------------------------------------------------------------

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Answer a prompt; with ``formatted``, continue it as it is."""
        if formatted:
            done = self.llm.generate(prompt, **self._with(kwargs))
            return CompletionResponse(text=done.text, additional_kwargs=_counts(done))
        chat = self.llm.chat(_question(prompt), **self._options(kwargs))
        return CompletionResponse(text=chat.message.content, additional_kwargs=_counts(chat))

    @llm_completion_callback()
    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """As :meth:`complete`, for coroutines."""
        if formatted:
            done = await self.llm.agenerate(prompt, **self._with(kwargs))
            return CompletionResponse(text=done.text, additional_kwargs=_counts(done))
        chat = await self.llm.achat(_question(prompt), **self._options(kwargs))
        return CompletionResponse(text=chat.message.content, additional_kwargs=_counts(chat))

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """As :meth:`complete`, and yield the text so far with what is new."""
        if formatted:
            stream: Any = self.llm.stream(prompt, **self._with(kwargs))
        else:
            stream = self.llm.stream_chat(_question(prompt), **self._options(kwargs))

        def responses() -> Iterator[CompletionResponse]:
            text = ""
            with stream:
                for chunk in stream:
                    delta = _new_text(chunk)
                    text += delta
                    yield CompletionResponse(text=text, delta=delta)

        return responses()

    @llm_completion_callback()
    async def astream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseAsyncGen:
        """As :meth:`stream_complete`, for coroutines."""
        if formatted:
            stream: Any = self.llm.astream(prompt, **self._with(kwargs))
        else:
            stream = self.llm.astream_chat(_question(prompt), **self._options(kwargs))

        async def responses() -> AsyncIterator[CompletionResponse]:
            text = ""
            async with stream:
                async for chunk in stream:
                    delta = _new_text(chunk)
                    text += delta
                    yield CompletionResponse(text=text, delta=delta)

        return responses()

    # --- tools -------------------------------------------------------------------------------------------------

    def _prepare_chat_with_tools(
        self,
        tools: Sequence[Any],
        user_msg: str | ChatMessage | None = None,
        chat_history: list[ChatMessage] | None = None,
        verbose: bool = False,  # noqa: ARG002
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        messages = list(chat_history or [])
        if user_msg is not None:
            messages.append(ChatMessage(role="user", content=user_msg) if isinstance(user_msg, str) else user_msg)
        found = {"messages": messages, "parallel_tool_calls": allow_parallel_tool_calls, **kwargs}
        if tools:
            found["tools"] = [tool.metadata.to_openai_tool(skip_length_check=True) for tool in tools]
            found["tool_choice"] = tool_choice or ("required" if tool_required else "auto")
        return found

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **_kwargs: Any
    ) -> list[ToolSelection]:
        """Return the calls of an answer, also of one that is still growing.

        Raises:
            InvalidParameterError: there are none, and ``error_on_no_tool_call``.
        """
        calls = [block for block in response.message.blocks if isinstance(block, ToolCallBlock)]
        if not calls and error_on_no_tool_call:
            raise InvalidParameterError("the model called no tool: pass tool_required=True to make it call one")
        return [
            ToolSelection(tool_id=call.tool_call_id or "", tool_name=call.tool_name, tool_kwargs=_arguments(call))
            for call in calls
        ]

    # --- inside ------------------------------------------------------------------------------------------------

    def _with(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """The sampling parameters that are set, those of the call first."""
        return {**self._sampling(), **{name: value for name, value in call.items() if value is not None}}

    def _options(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a chat."""
        return {"thinking": self.thinking, **self._with(call)}


class PyggmlEmbedding(BaseEmbedding):
    """Embeddings of texts by any model that pyggml loads; vectors have length 1.

    Attributes:
        model: as for ``Pyggml``.
        load_options: parameters of :func:`pyggml.load`.
        query_prefix: text before each query, such as "search_query: ", which some models were trained with.
        text_prefix: text before each document.
        embed_options: other parameters of :meth:`pyggml.LLM.embed`, such as ``{"pooling": "mean"}``.

    Args:
        model: as the attribute.
        **kwargs: the other attributes, and those of ``BaseEmbedding``.
    """

    model: Any = None
    load_options: dict[str, Any] = Field(default_factory=dict)
    query_prefix: str = ""
    text_prefix: str = ""
    embed_options: dict[str, Any] = Field(default_factory=dict)

    _llm_in_use: LLM = PrivateAttr()

    def __init__(self, model: ModelLike = None, **kwargs: Any) -> None:
        kwargs.setdefault("model_name", model_name(model))
        super().__init__(model=model, **kwargs)
        self._llm_in_use = open_llm(self.model, self.load_options)

    def __deepcopy__(self, memo: Any = None) -> Any:
        """Copy the settings; the model is shared."""
        return self.model_copy()

    @classmethod
    def class_name(cls) -> str:
        """Return the name by which LlamaIndex saves the object."""
        return "PyggmlEmbedding"

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        vectors = self._llm_in_use.embed([self.text_prefix + text for text in texts], **self._options)
        return [[float(value) for value in vector] for vector in vectors]

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        vectors = await self._llm_in_use.aembed([self.text_prefix + text for text in texts], **self._options)
        return [[float(value) for value in vector] for vector in vectors]

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return (await self._aget_text_embeddings([text]))[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return [float(value) for value in self._llm_in_use.embed(self.query_prefix + query, **self._options)]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return [float(value) for value in await self._llm_in_use.aembed(self.query_prefix + query, **self._options)]

    @property
    def _options(self) -> dict[str, Any]:
        return {"normalize": True, **self.embed_options}


class _Answer:
    """An answer that grows."""

    def __init__(self) -> None:
        self._content = self._reasoning = ""
        self._calls: list[ToolCallBlock] = []

    def grown(self, chunk: ChatChunk, done: ChatCompletion | None) -> ChatResponse:
        """The answer with a chunk more; with ``done``, that is the last one."""
        self._content += chunk.content
        self._reasoning += chunk.reasoning_content
        for call in chunk.tool_calls:
            if call.index == len(self._calls):
                self._calls.append(ToolCallBlock(tool_call_id=call.id, tool_name=call.name, tool_kwargs=""))
            self._calls[call.index].tool_kwargs += call.arguments_text
        calls = [call.model_copy() for call in self._calls]
        return ChatResponse(
            message=_assistant(self._content, self._reasoning, calls),
            delta=chunk.content,
            raw={"finish_reason": chunk.finish_reason},
            additional_kwargs={} if done is None else _counts(done),
        )


def _response(done: ChatCompletion) -> ChatResponse:
    calls = [
        ToolCallBlock(tool_call_id=call.id, tool_name=call.name, tool_kwargs=call.arguments_text)
        for call in done.message.tool_calls
    ]
    return ChatResponse(
        message=_assistant(done.message.content, done.message.reasoning_content, calls),
        raw=done.to_dict("openai"),
        additional_kwargs=_counts(done),
    )


def _assistant(content: str, reasoning: str, calls: Sequence[ToolCallBlock]) -> ChatMessage:
    blocks = [ThinkingBlock(content=reasoning)] * bool(reasoning) + [TextBlock(text=content)] + list(calls)
    return ChatMessage(role="assistant", blocks=blocks)


def _counts(done: Any) -> dict[str, Any]:
    """Token counts under the names by which LlamaIndex's counters find them."""
    usage: dict[str, Any] = done.to_dict("openai")["usage"]
    return {name: usage[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}


def _new_text(chunk: Any) -> str:
    return chunk.content if isinstance(chunk, ChatChunk) else str(chunk.text)


def _question(prompt: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": prompt}]


def _messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """A conversation in OpenAI's format."""
    return [_message(message) for message in messages]


def _message(message: ChatMessage) -> dict[str, Any]:
    role = str(getattr(message.role, "value", message.role))
    found: dict[str, Any] = {"role": _ROLES.get(role, role), "content": message.content or ""}
    calls = []
    for block in message.blocks:
        if isinstance(block, ThinkingBlock):
            found["reasoning_content"] = found.get("reasoning_content", "") + (block.content or "")
        elif isinstance(block, ToolCallBlock):
            function = {"name": block.tool_name, "arguments": block.tool_kwargs}
            calls.append({"id": block.tool_call_id or "", "type": "function", "function": function})
        elif not isinstance(block, TextBlock):
            raise InvalidParameterError(f"a message has a {block.block_type} block: pyggml models read only text here")
    if calls:
        found["tool_calls"] = calls
    for name in ("tool_call_id", "name"):
        if message.additional_kwargs.get(name):
            found[name] = message.additional_kwargs[name]
    return found


def _arguments(call: ToolCallBlock) -> dict[str, Any]:
    """The arguments of a call, also of one whose text is incomplete."""
    if isinstance(call.tool_kwargs, dict):
        return call.tool_kwargs
    try:
        return parse_partial_json(call.tool_kwargs) if call.tool_kwargs else {}
    except ValueError:
        return {}
