"""LiteLLM: a provider for models in this process. Needs ``litellm``.

>>> import litellm
>>> from pyggml.integrations.litellm import register
>>> register()
>>> litellm.completion("pyggml/model.gguf", messages=[{"role": "user", "content": "What colour is the sky?"}])
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from pyggml import LLM, ChatChunk, ChatCompletion
from pyggml.integrations._frameworks import needs
from pyggml.integrations._models import ModelLike, SharedOnCopy, open_llm

with needs("litellm"):
    import litellm
    from litellm import CustomLLM
    from litellm.types.utils import EmbeddingResponse, GenericStreamingChunk, ModelResponse

__all__ = ["PyggmlProvider", "register"]

#: Arguments of OpenAI's API that mean nothing for a model in this process, or that LiteLLM reads itself.
_IGNORED = {"stream", "stream_options", "user", "metadata", "store", "service_tier", "max_retries", "extra_headers"}
#: Arguments that have another name here.
_RENAMED = {"max_completion_tokens": "max_tokens", "timeout": "timeout_s"}


def register(
    models: Mapping[str, ModelLike] | None = None, *, provider: str = "pyggml", **load_options: Any
) -> PyggmlProvider:
    """Make LiteLLM answer models whose names begin with ``pyggml/``, and return the provider.

    Calling it again replaces the provider.

    Args:
        models: names for models, each an open LLM, or a file, a directory or a reference, as for :func:`pyggml.load`.
            Any other name is such a file, directory or reference itself; "demo" is the demonstration model.
        provider: another word in place of "pyggml".
        **load_options: parameters of :func:`pyggml.load` for the models that are loaded here.
    """
    handler = PyggmlProvider(models, **load_options)
    others = [each for each in litellm.custom_provider_map if each["provider"] != provider]
    litellm.custom_provider_map = [*others, {"provider": provider, "custom_handler": handler}]
    litellm.utils.custom_llm_setup()
    return handler


class PyggmlProvider(SharedOnCopy, CustomLLM):
    """The provider that ``register`` installs. Models are loaded on first use and then stay loaded.

    Args:
        models: as for ``register``.
        **load_options: parameters of :func:`pyggml.load`.
    """

    def __init__(self, models: Mapping[str, ModelLike] | None = None, **load_options: Any) -> None:
        super().__init__()
        self._models = {"demo": None, **(models or {})}
        self._load_options = load_options
        self._loaded: dict[str, LLM] = {}

    def llm(self, model: str) -> LLM:
        """Return a model by the name behind ``pyggml/``."""
        if model not in self._loaded:
            source = self._models.get(model, model)
            self._loaded[model] = open_llm(source, {} if isinstance(source, LLM) else self._load_options)
        return self._loaded[model]

    def completion(self, *args: Any, **kwargs: Any) -> ModelResponse:  # noqa: ARG002
        """Answer a conversation. Called by LiteLLM."""
        llm, arguments = self._request(kwargs)
        return _response(kwargs["model"], _list(llm.chat(**arguments)), llm)

    async def acompletion(self, *args: Any, **kwargs: Any) -> ModelResponse:  # noqa: ARG002
        """Answer a conversation. Called by LiteLLM; cancelling the task cancels the generation."""
        llm, arguments = self._request(kwargs)
        return _response(kwargs["model"], _list(await llm.achat(**arguments)), llm)

    def streaming(self, *args: Any, **kwargs: Any) -> Iterator[GenericStreamingChunk]:  # noqa: ARG002
        """Answer a conversation as it is generated. Called by LiteLLM."""
        llm, arguments = self._request(kwargs)
        with llm.stream_chat(**arguments) as stream:
            for chunk in stream:
                yield from _chunks(chunk, stream.completion if chunk.finish_reason else None)

    async def astreaming(self, *args: Any, **kwargs: Any) -> AsyncIterator[GenericStreamingChunk]:  # noqa: ARG002
        """Answer a conversation as it is generated. Called by LiteLLM."""
        llm, arguments = self._request(kwargs)
        async with llm.astream_chat(**arguments) as stream:
            async for chunk in stream:
                for made in _chunks(chunk, stream.completion if chunk.finish_reason else None):
                    yield made

    def embedding(self, *args: Any, **kwargs: Any) -> EmbeddingResponse:  # noqa: ARG002
        """Embed texts. Called by LiteLLM."""
        llm, texts, options = self._embedding_request(kwargs)
        return _embeddings(kwargs, llm.embed(texts, **options), llm)

    async def aembedding(self, *args: Any, **kwargs: Any) -> EmbeddingResponse:  # noqa: ARG002
        """Embed texts. Called by LiteLLM."""
        llm, texts, options = self._embedding_request(kwargs)
        return _embeddings(kwargs, await llm.aembed(texts, **options), llm)

    def _request(self, call: Mapping[str, Any]) -> tuple[LLM, dict[str, Any]]:
        """The model and the arguments of a chat."""
        given = {**call["optional_params"], **(call["optional_params"].get("extra_body") or {})}
        found: dict[str, Any] = {"messages": [_message(message) for message in call["messages"]]}
        for name, value in given.items():
            if name not in _IGNORED and name != "extra_body" and value is not None:
                found[_RENAMED.get(name, name)] = value
        if isinstance(call.get("timeout"), (int, float)):
            found.setdefault("timeout_s", float(call["timeout"]))
        _set_logprobs(found)
        if found.get("n") == 1:
            del found["n"]  # streams do not know it
        if isinstance(found.get("tool_choice"), Mapping):
            found["tool_choice"] = found["tool_choice"]["function"]["name"]
        return self.llm(call["model"]), found

    def _embedding_request(self, call: Mapping[str, Any]) -> tuple[LLM, list[Any], dict[str, Any]]:
        texts = [call["input"]] if isinstance(call["input"], str) else list(call["input"])
        given = dict(call["optional_params"] or {})
        given.pop("encoding_format", None)
        return self.llm(call["model"]), texts, {"normalize": True, **given}


def _message(message: Any) -> dict[str, Any]:
    """A message as a mapping, without LiteLLM's own fields and those that are null."""
    plain = message if isinstance(message, Mapping) else message.model_dump()
    left_out = ("provider_specific_fields", "function_call", "annotations", "cache_control", "thinking_blocks")
    found = {key: value for key, value in plain.items() if value is not None and key not in left_out}
    return found if "content" in found or "tool_calls" in found else {**found, "content": ""}


def _set_logprobs(found: dict[str, Any]) -> None:
    """Turn OpenAI's two fields into the number of alternatives."""
    n_top = found.pop("top_logprobs", None)
    if found.get("logprobs") is True:
        found["logprobs"] = n_top or 1
    elif not found.get("logprobs"):
        found.pop("logprobs", None)


def _list(done: ChatCompletion | list[ChatCompletion]) -> list[ChatCompletion]:
    return done if isinstance(done, list) else [done]


def _response(model: str, done: list[ChatCompletion], llm: LLM) -> ModelResponse:
    forms = [one.to_dict("openai", index=number, tokenizer=llm.tokenizer) for number, one in enumerate(done)]
    usage = forms[0]["usage"]
    for form in forms[1:]:  # the prompt is computed and counted once
        usage["completion_tokens"] += form["usage"]["completion_tokens"]
    usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
    choices = [form["choices"][0] for form in forms]
    return ModelResponse(**{**forms[0], "model": model, "choices": choices, "usage": usage})


def _chunks(chunk: ChatChunk, done: ChatCompletion | None) -> Iterator[GenericStreamingChunk]:
    """A chunk in LiteLLM's form, which holds one delta of one call."""
    texts = [None] * (not chunk.tool_calls) + list(chunk.tool_calls)
    for number, call in enumerate(texts):
        is_last = done is not None and number == len(texts) - 1
        yield GenericStreamingChunk(
            text=chunk.content if number == 0 else "",
            tool_use=None if call is None else {"type": "function", "id": None, **call.to_dict()},
            is_finished=is_last,
            finish_reason=str(chunk.finish_reason) if is_last else "",
            usage=done.to_dict("openai")["usage"] if is_last and done is not None else None,
            index=0,
            provider_specific_fields={"reasoning_content": chunk.reasoning_content}
            if chunk.reasoning_content
            else None,
        )


def _embeddings(call: Mapping[str, Any], vectors: Any, llm: LLM) -> EmbeddingResponse:
    texts = [call["input"]] if isinstance(call["input"], str) else call["input"]
    n_tokens = sum(len(llm.tokenize(text)) if isinstance(text, str) else len(text) for text in texts)
    response = call["model_response"]
    response.model = call["model"]
    response.data = [
        {"object": "embedding", "index": number, "embedding": [float(value) for value in vector]}
        for number, vector in enumerate(vectors)
    ]
    response.usage = litellm.Usage(prompt_tokens=n_tokens, total_tokens=n_tokens)
    return response
