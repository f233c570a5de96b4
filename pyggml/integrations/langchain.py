"""LangChain: a chat model and embeddings. Needs ``langchain-core``.

>>> from pyggml.integrations.langchain import ChatPyggml
>>> ChatPyggml(model="model.gguf").invoke("What colour is the sky?").content
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Literal

from pyggml import ChatChunk, ChatCompletion, InvalidParameterError
from pyggml.integrations._frameworks import needs
from pyggml.integrations._models import ModelLike, SharedOnCopy, model_name, open_llm

with needs("langchain-core"):
    from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
    from langchain_core.embeddings import Embeddings
    from langchain_core.language_models import LangSmithParams, LanguageModelInput
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, convert_to_openai_messages
    from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata
    from langchain_core.messages.tool import invalid_tool_call, tool_call, tool_call_chunk
    from langchain_core.output_parsers import JsonOutputParser, PydanticOutputParser
    from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
    from langchain_core.runnables import Runnable, RunnableMap, RunnablePassthrough
    from langchain_core.tools import BaseTool
    from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool
    from langchain_core.utils.pydantic import is_basemodel_subclass

    from pyggml.integrations._chat_settings import ChatSettings

__all__ = ["ChatPyggml", "PyggmlEmbeddings"]

Method = Literal["json_schema", "function_calling", "json_mode"]
#: Arguments of LangChain's own that the grammar makes superfluous, or that only its tracers read.
_NOT_OURS = ("ls_structured_output_format", "model", "stream", "stream_usage", "strict")
#: LangChain's words for "call at least one tool".
_ANY: tuple[Any, ...] = ("any", True)


class ChatPyggml(ChatSettings, BaseChatModel):
    """A chat model with tools, structured output, streaming, coroutines and token counts.

    Models with the same ``model`` and ``load_options`` share one :class:`pyggml.LLM`, which batches the requests of all
    threads and tasks. Parameters of :meth:`pyggml.LLM.chat` can be passed to ``invoke``, ``stream`` and ``bind``, too.

    Attributes:
        model: an open LLM; or a file, a directory or a reference, as for :func:`pyggml.load`; None: the demonstration
            model. The other attributes are those of :class:`ChatSettings`.
    """

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | bool | dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Let the model call tools.

        Args:
            tools: functions, pydantic models, LangChain's tools, or descriptions in OpenAI's format.
            tool_choice: "auto", "none", "any" or True: at least one; or the name of the tool to call.
            **kwargs: parameters of :meth:`pyggml.LLM.chat`, such as ``parallel_tool_calls=True``.
        """
        if tool_choice is not None and tool_choice is not False:
            kwargs["tool_choice"] = "required" if tool_choice in _ANY else tool_choice
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def with_structured_output(
        self,
        schema: dict[str, Any] | type,
        *,
        include_raw: bool = False,
        method: Method = "json_schema",
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, Any]:
        """Answer with an object of a schema, which a grammar enforces.

        Args:
            schema: a pydantic model, a TypedDict, a JSON schema or a tool in OpenAI's format.
            include_raw: return a dict of the message, the object, and the error if it could not be parsed.
            method: "json_schema": the answer is the object; "function_calling": the arguments of a call; "json_mode":
                any JSON object, which the schema then has to fit.
            **kwargs: ``strict`` has no effect, since the grammar always is.
        """
        if method == "function_calling":
            return super().with_structured_output(schema, include_raw=include_raw, **kwargs)
        if method not in ("json_schema", "json_mode"):
            raise InvalidParameterError(f"method is {method!r}: use json_schema, function_calling or json_mode")
        form = convert_to_json_schema(schema) if method == "json_schema" else {"type": "object"}
        traced = {"kwargs": {"method": method}, "schema": schema}
        bound = self.bind(json_schema=form, ls_structured_output_format=traced)
        parser: Runnable[Any, Any] = JsonOutputParser()
        if isinstance(schema, type) and is_basemodel_subclass(schema):
            parser = PydanticOutputParser(pydantic_object=schema)
        if not include_raw:
            return bound | parser
        unparsed = RunnablePassthrough.assign(parsed=lambda _found: None)
        parsed = RunnablePassthrough.assign(parsed=itemgetter("raw") | parser, parsing_error=lambda _found: None)
        return RunnableMap(raw=bound) | parsed.with_fallbacks([unparsed], exception_key="parsing_error")

    def get_token_ids(self, text: str) -> list[int]:
        """Return the token ids of a text, with those that the vocabulary adds."""
        return self.llm.tokenize(text)

    def get_num_tokens_from_messages(
        self, messages: Sequence[BaseMessage], tools: Sequence[Any] | None = None, **kwargs: Any
    ) -> int:
        """Return the length of the prompt of a conversation, in tokens."""
        converted = [convert_to_openai_tool(tool) for tool in tools] if tools else None
        return len(self.llm.tokenize_chat(_messages(messages), converted, **kwargs))

    @property
    def _llm_type(self) -> str:
        return "pyggml-chat"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": model_name(self.model), "load_options": self.load_options, **self._sampling()}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop, **kwargs)
        params["ls_model_name"] = kwargs.get("model") or model_name(self.model)
        return params

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **kwargs: Any,
    ) -> ChatResult:
        return self._result(self.llm.chat(_messages(messages), **self._options(stop, kwargs)))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **kwargs: Any,
    ) -> ChatResult:
        return self._result(await self.llm.achat(_messages(messages), **self._options(stop, kwargs)))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        with self.llm.stream_chat(_messages(messages), **self._options(stop, kwargs)) as stream:
            for chunk in stream:
                made = self._chunk(chunk, stream.completion if chunk.finish_reason else None)
                if run_manager:
                    run_manager.on_llm_new_token(made.text, chunk=made)
                yield made

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        async with self.llm.astream_chat(_messages(messages), **self._options(stop, kwargs)) as stream:
            async for chunk in stream:
                made = self._chunk(chunk, stream.completion if chunk.finish_reason else None)
                if run_manager:
                    await run_manager.on_llm_new_token(made.text, chunk=made)
                yield made

    def _options(self, stop: list[str] | None, call: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a chat, those of the call first."""
        options = {"thinking": self.thinking, **self._sampling()}
        if stop is not None:
            options["stop"] = stop
        options |= {name: value for name, value in call.items() if name not in _NOT_OURS and value is not None}
        return options

    def _result(self, done: ChatCompletion) -> ChatResult:
        message = AIMessage(
            done.message.content,
            additional_kwargs=_reasoning(done.message.reasoning_content),
            usage_metadata=_usage(done),
            response_metadata=self._metadata(done),
        )
        for call in done.message.tool_calls:
            _add_call(message, call.id, call.name, call.arguments_text)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _chunk(self, chunk: ChatChunk, done: ChatCompletion | None) -> ChatGenerationChunk:
        calls = [
            tool_call_chunk(name=each.name or None, args=each.arguments_text, id=each.id or None, index=each.index)
            for each in chunk.tool_calls
        ]
        message = AIMessageChunk(
            content=chunk.content, additional_kwargs=_reasoning(chunk.reasoning_content), tool_call_chunks=calls
        )
        if done is not None:
            message.usage_metadata = _usage(done)
            message.response_metadata = self._metadata(done)
            message.chunk_position = "last"
        return ChatGenerationChunk(message=message)

    def _metadata(self, done: ChatCompletion) -> dict[str, Any]:
        found: dict[str, Any] = {
            "model_name": model_name(self.model),
            "model_provider": "pyggml",
            "finish_reason": done.finish_reason,
        }
        if done.logprobs is not None:
            found["logprobs"] = done.to_dict("openai", tokenizer=self.llm.tokenizer)["choices"][0]["logprobs"]
        return found


class PyggmlEmbeddings(SharedOnCopy, Embeddings):
    """Embeddings of texts by any model that pyggml loads; vectors have length 1.

    Args:
        model: as for ``ChatPyggml``.
        load_options: parameters of :func:`pyggml.load`.
        query_prefix: text before each query, such as "search_query: ", which some models were trained with.
        document_prefix: text before each document.
        **options: other parameters of :meth:`pyggml.LLM.embed`, such as ``pooling="mean"``, ``truncate=True`` or
            ``normalize=False``.
    """

    def __init__(
        self,
        model: ModelLike = None,
        load_options: Mapping[str, Any] | None = None,
        *,
        query_prefix: str = "",
        document_prefix: str = "",
        **options: Any,
    ) -> None:
        self.llm = open_llm(model, load_options)
        self.query_prefix, self.document_prefix = query_prefix, document_prefix
        self.options = {"normalize": True, **options}

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return a vector for each document."""
        vectors = self.llm.embed([self.document_prefix + text for text in texts], **self.options)
        return [[float(value) for value in vector] for vector in vectors]

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query."""
        return [float(value) for value in self.llm.embed(self.query_prefix + text, **self.options)]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """As :meth:`embed_documents`, for coroutines. Cancelling the task stops the work."""
        vectors = await self.llm.aembed([self.document_prefix + text for text in texts], **self.options)
        return [[float(value) for value in vector] for vector in vectors]

    async def aembed_query(self, text: str) -> list[float]:
        """As :meth:`embed_query`, for coroutines."""
        return [float(value) for value in await self.llm.aembed(self.query_prefix + text, **self.options)]


def _messages(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    """A conversation in OpenAI's format."""
    return convert_to_openai_messages(list(messages), text_format="string", pass_through_unknown_blocks=True)


def _reasoning(text: str) -> dict[str, Any]:
    return {"reasoning_content": text} if text else {}


def _add_call(message: AIMessage, call_id: str, name: str, arguments_text: str) -> None:
    """Add a call to a message; one that was cut off is an invalid one."""
    try:
        arguments = json.loads(arguments_text)
    except ValueError as error:
        message.invalid_tool_calls.append(
            invalid_tool_call(name=name, args=arguments_text, id=call_id, error=str(error))
        )
        return
    message.tool_calls.append(tool_call(name=name, args=arguments, id=call_id))


def _usage(done: ChatCompletion) -> UsageMetadata:
    n_generated = len(done.token_ids)
    return UsageMetadata(
        input_tokens=done.prompt_tokens,
        output_tokens=n_generated,
        total_tokens=done.prompt_tokens + n_generated,
        input_token_details=InputTokenDetails(cache_read=done.cached_tokens),
        output_token_details=OutputTokenDetails(),
    )
