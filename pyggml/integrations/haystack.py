"""Haystack: generators and embedders. Needs ``haystack-ai``.

>>> from haystack.dataclasses import ChatMessage
>>> from pyggml.integrations.haystack import PyggmlChatGenerator
>>> PyggmlChatGenerator("model.gguf").run([ChatMessage.from_user("What colour is the sky?")])["replies"][0].text
"""

# Haystack reads the annotations of the methods "run" as objects, so they are not postponed here.

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyggml import LLM, ChatCompletion, InvalidParameterError
from pyggml.integrations._frameworks import needs
from pyggml.integrations._models import ModelLike, SharedOnCopy, model_name, open_llm

with needs("haystack-ai"):
    from haystack import Document, component, default_from_dict, default_to_dict
    from haystack.dataclasses import ChatMessage, ComponentInfo, StreamingCallbackT, select_streaming_callback
    from haystack.tools import (
        ToolsType,
        deserialize_tools_or_toolset_inplace,
        flatten_tools_or_toolsets,
        serialize_tools_or_toolset,
    )
    from haystack.utils import deserialize_callable, serialize_callable

    from pyggml.integrations._haystack_messages import Chunks, completion_meta, floats, message_dict, reply

__all__ = ["PyggmlChatGenerator", "PyggmlDocumentEmbedder", "PyggmlGenerator", "PyggmlTextEmbedder"]


class _Component(SharedOnCopy):
    """A component with a model, which is loaded when a pipeline warms up or when it is first used."""

    def __init__(self, model: ModelLike, load_options: Mapping[str, Any] | None) -> None:
        self.model, self.load_options = model, dict(load_options or {})
        self._llm: LLM | None = None

    @property
    def llm(self) -> LLM:
        """The model in use, for everything that Haystack has no component for."""
        if self._llm is None:
            self._llm = open_llm(self.model, self.load_options)
        return self._llm

    def warm_up(self) -> None:
        """Load the model. Called by pipelines."""
        _ = self.llm

    def close(self) -> None:
        """Forget the model, which is freed when no one else uses it; the next call loads it again."""
        self._llm = None

    def _saved(self, **arguments: Any) -> dict[str, Any]:
        """The component as a pipeline saves it."""
        if isinstance(self.model, LLM):
            raise InvalidParameterError("an open LLM cannot be saved: give the model by its path or reference")
        source = None if self.model is None else os.fspath(self.model)
        return default_to_dict(self, model=source, load_options=self.load_options, **arguments)


@component
class PyggmlChatGenerator(_Component):
    """A chat generator with tools, structured output, streaming and token counts.

    Args:
        model: an open LLM; or a file, a directory or a reference, as for :func:`pyggml.load`; None: the demonstration
            model. Components with the same name and options share one :class:`pyggml.LLM`.
        streaming_callback: called with each chunk of an answer.
        generation_kwargs: parameters of :meth:`pyggml.LLM.chat`, such as ``temperature``, ``json_schema`` or ``n``.
        tools: tools that the model may call.
        load_options: parameters of :func:`pyggml.load`.
    """

    def __init__(
        self,
        model: ModelLike = None,
        *,
        streaming_callback: StreamingCallbackT | None = None,
        generation_kwargs: Mapping[str, Any] | None = None,
        tools: ToolsType | None = None,
        load_options: Mapping[str, Any] | None = None,
    ) -> None:
        _Component.__init__(self, model, load_options)  # Haystack's decorator replaces the class
        self.streaming_callback = streaming_callback
        self.generation_kwargs, self.tools = dict(generation_kwargs or {}), tools

    def to_dict(self) -> dict[str, Any]:
        """Return the component as a pipeline saves it.

        Raises:
            InvalidParameterError: the model was given as an open LLM, whose name is not saved.
        """
        callback = self.streaming_callback
        return self._saved(
            streaming_callback=serialize_callable(callback) if callback else None,
            generation_kwargs=self.generation_kwargs,
            tools=serialize_tools_or_toolset(self.tools),
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "PyggmlChatGenerator":
        """Return a component that a pipeline saved."""
        arguments = data["init_parameters"]
        deserialize_tools_or_toolset_inplace(arguments, key="tools")
        if arguments.get("streaming_callback"):
            arguments["streaming_callback"] = deserialize_callable(arguments["streaming_callback"])
        return default_from_dict(cls, data)

    @component.output_types(replies=list[ChatMessage])
    def run(
        self,
        messages: list[ChatMessage] | str,
        streaming_callback: StreamingCallbackT | None = None,
        generation_kwargs: dict[str, Any] | None = None,
        *,
        tools: ToolsType | None = None,
    ) -> dict[str, Any]:
        """Answer a conversation.

        Args:
            messages: the conversation, or a user's message.
            streaming_callback: called with each chunk, instead of the component's.
            generation_kwargs: parameters that replace those of the component.
            tools: tools instead of those of the component.
        """
        arguments = self._arguments(messages, generation_kwargs, tools)
        callback = select_streaming_callback(self.streaming_callback, streaming_callback, requires_async=False)
        if callback is None:
            return {"replies": self._replies(self.llm.chat(**arguments))}
        with self.llm.stream_chat(**arguments) as stream:
            chunks = Chunks(ComponentInfo.from_component(self), model_name(self.model))
            for chunk in stream:
                for made in chunks.of(chunk):
                    callback(made)
            return {"replies": self._replies(stream.completion)}

    @component.output_types(replies=list[ChatMessage])
    async def run_async(
        self,
        messages: list[ChatMessage] | str,
        streaming_callback: StreamingCallbackT | None = None,
        generation_kwargs: dict[str, Any] | None = None,
        *,
        tools: ToolsType | None = None,
    ) -> dict[str, Any]:
        """As :meth:`run`, for coroutines. Cancelling the task cancels the generation."""
        arguments = self._arguments(messages, generation_kwargs, tools)
        callback = select_streaming_callback(self.streaming_callback, streaming_callback, requires_async=True)
        if callback is None:
            return {"replies": self._replies(await self.llm.achat(**arguments))}
        async with self.llm.astream_chat(**arguments) as stream:
            chunks = Chunks(ComponentInfo.from_component(self), model_name(self.model))
            async for chunk in stream:
                for made in chunks.of(chunk):
                    waited = callback(made)
                    if waited is not None:
                        await waited
            return {"replies": self._replies(stream.completion)}

    def _arguments(
        self, messages: list[ChatMessage] | str, given: Mapping[str, Any] | None, tools: ToolsType | None
    ) -> dict[str, Any]:
        """The arguments of a chat."""
        if isinstance(messages, str):
            messages = [ChatMessage.from_user(messages)]
        used = flatten_tools_or_toolsets(tools if tools is not None else self.tools)
        return {
            "messages": [message_dict(message) for message in messages],
            "tools": [dict(tool.tool_spec) for tool in used],
            **self.generation_kwargs,
            **(given or {}),
        }

    def _replies(self, done: ChatCompletion | list[ChatCompletion]) -> list[ChatMessage]:
        several = done if isinstance(done, list) else [done]
        return [reply(one, number, model_name(self.model), self.llm) for number, one in enumerate(several)]


@component
class PyggmlGenerator(_Component):
    """A generator that continues a prompt as it is, without a chat template.

    Args:
        model: as for ``PyggmlChatGenerator``.
        generation_kwargs: fields of :class:`pyggml.SamplingParams`.
        load_options: parameters of :func:`pyggml.load`.
    """

    def __init__(
        self,
        model: ModelLike = None,
        *,
        generation_kwargs: Mapping[str, Any] | None = None,
        load_options: Mapping[str, Any] | None = None,
    ) -> None:
        _Component.__init__(self, model, load_options)  # Haystack's decorator replaces the class
        self.generation_kwargs = dict(generation_kwargs or {})

    def to_dict(self) -> dict[str, Any]:
        """As :meth:`PyggmlChatGenerator.to_dict`."""
        return self._saved(generation_kwargs=self.generation_kwargs)

    @component.output_types(replies=list[str], meta=list[dict[str, Any]])
    def run(self, prompt: str, generation_kwargs: dict[str, Any] | None = None) -> dict[str, Any]:
        """Continue a prompt.

        Args:
            prompt: the text.
            generation_kwargs: parameters that replace those of the component.
        """
        done = self.llm.generate(prompt, **{**self.generation_kwargs, **(generation_kwargs or {})})
        return {"replies": [done.text], "meta": [completion_meta(done, 0, model_name(self.model))]}

    @component.output_types(replies=list[str], meta=list[dict[str, Any]])
    async def run_async(self, prompt: str, generation_kwargs: dict[str, Any] | None = None) -> dict[str, Any]:
        """As :meth:`run`, for coroutines. Cancelling the task cancels the generation."""
        done = await self.llm.agenerate(prompt, **{**self.generation_kwargs, **(generation_kwargs or {})})
        return {"replies": [done.text], "meta": [completion_meta(done, 0, model_name(self.model))]}


@component
class PyggmlTextEmbedder(_Component):
    """An embedder of one text, such as a query; vectors have length 1.

    Args:
        model: as for ``PyggmlChatGenerator``.
        prefix: text before each query, such as "search_query: ", which some models were trained with.
        embed_options: other parameters of :meth:`pyggml.LLM.embed`, such as ``{"pooling": "mean"}``.
        load_options: parameters of :func:`pyggml.load`.
    """

    def __init__(
        self,
        model: ModelLike = None,
        *,
        prefix: str = "",
        embed_options: Mapping[str, Any] | None = None,
        load_options: Mapping[str, Any] | None = None,
    ) -> None:
        _Component.__init__(self, model, load_options)  # Haystack's decorator replaces the class
        self.prefix, self.embed_options = prefix, dict(embed_options or {})

    def to_dict(self) -> dict[str, Any]:
        """As :meth:`PyggmlChatGenerator.to_dict`."""
        return self._saved(prefix=self.prefix, embed_options=self.embed_options)

    @component.output_types(embedding=list[float], meta=dict[str, Any])
    def run(self, text: str) -> dict[str, Any]:
        """Embed a text.

        Args:
            text: the text.
        """
        vector = self.llm.embed(self.prefix + text, **{"normalize": True, **self.embed_options})
        return {"embedding": floats(vector), "meta": {"model": model_name(self.model)}}

    @component.output_types(embedding=list[float], meta=dict[str, Any])
    async def run_async(self, text: str) -> dict[str, Any]:
        """As :meth:`run`, for coroutines."""
        vector = await self.llm.aembed(self.prefix + text, **{"normalize": True, **self.embed_options})
        return {"embedding": floats(vector), "meta": {"model": model_name(self.model)}}


@component
class PyggmlDocumentEmbedder(_Component):
    """An embedder of documents, which it returns with their vectors, of length 1.

    Args:
        model: as for ``PyggmlChatGenerator``.
        prefix: text before each document.
        meta_fields_to_embed: names of metadata that are embedded before the content.
        separator: text between metadata and content.
        embed_options: other parameters of :meth:`pyggml.LLM.embed`, such as ``{"truncate": True}``.
        load_options: parameters of :func:`pyggml.load`.
    """

    def __init__(
        self,
        model: ModelLike = None,
        *,
        prefix: str = "",
        meta_fields_to_embed: list[str] | None = None,
        separator: str = "\n",
        embed_options: Mapping[str, Any] | None = None,
        load_options: Mapping[str, Any] | None = None,
    ) -> None:
        _Component.__init__(self, model, load_options)  # Haystack's decorator replaces the class
        self.prefix, self.separator = prefix, separator
        self.meta_fields_to_embed, self.embed_options = list(meta_fields_to_embed or []), dict(embed_options or {})

    def to_dict(self) -> dict[str, Any]:
        """As :meth:`PyggmlChatGenerator.to_dict`."""
        return self._saved(
            prefix=self.prefix,
            meta_fields_to_embed=self.meta_fields_to_embed,
            separator=self.separator,
            embed_options=self.embed_options,
        )

    @component.output_types(documents=list[Document], meta=dict[str, Any])
    def run(self, documents: list[Document]) -> dict[str, Any]:
        """Embed documents.

        Args:
            documents: the documents, which are not changed.
        """
        texts = self._texts(documents)
        vectors = self.llm.embed(texts, **{"normalize": True, **self.embed_options}) if texts else []
        return self._result(documents, vectors)

    @component.output_types(documents=list[Document], meta=dict[str, Any])
    async def run_async(self, documents: list[Document]) -> dict[str, Any]:
        """As :meth:`run`, for coroutines."""
        texts = self._texts(documents)
        vectors = await self.llm.aembed(texts, **{"normalize": True, **self.embed_options}) if texts else []
        return self._result(documents, vectors)

    def _texts(self, documents: list[Document]) -> list[str]:
        found = []
        for document in documents:
            meta = [
                str(document.meta[name]) for name in self.meta_fields_to_embed if document.meta.get(name) is not None
            ]
            found.append(self.prefix + self.separator.join([*meta, document.content or ""]))
        return found

    def _result(self, documents: list[Document], vectors: Any) -> dict[str, Any]:
        made = [replace(one, embedding=floats(vector)) for one, vector in zip(documents, vectors, strict=True)]
        return {"documents": made, "meta": {"model": model_name(self.model)}}
