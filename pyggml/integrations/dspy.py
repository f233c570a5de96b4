"""DSPy: a language model and an embedder. Needs ``dspy``.

>>> import dspy
>>> from pyggml.integrations.dspy import PyggmlLM
>>> dspy.configure(lm=PyggmlLM("model.gguf"))
>>> dspy.Predict("question -> answer")(question="What colour is the sky?").answer

DSPy 3.4 runs a model as an *engine* inside its own ``dspy.LM``, which owns caching, retries and history; subclasses of
``BaseLM`` with a method ``forward`` are deprecated there.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml import (
    LLM,
    ChatChunk,
    ChatCompletion,
    ContextOverflowError,
    InferError,
    InvalidParameterError,
    QueueFullError,
    RequestTimeout,
)
from pyggml.integrations._frameworks import needs
from pyggml.integrations._models import ModelLike, SharedOnCopy, model_name, open_llm

with needs("dspy"):
    import dspy
    from dspy import lm15
    from dspy.lm15 import Message, Request, Response, TextPart, ThinkingPart, ToolCallPart, Usage

__all__ = ["AsyncPyggmlEngine", "PyggmlEmbedder", "PyggmlEngine", "PyggmlLM"]

_FINISH_REASONS = {"stop": "stop", "length": "length", "tool_calls": "tool_call"}
#: Fields of DSPy's configuration that have the same name and meaning here.
_SAME = ("max_tokens", "temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty", "logprobs")
_NO_PROBABILITIES = "pyggml's engine has no probability policies: ask for logprobs"


def PyggmlLM(  # noqa: N802  # users see a class of DSPy
    model: ModelLike = None, *, load_options: Mapping[str, Any] | None = None, **kwargs: Any
) -> dspy.LM:
    """Return a ``dspy.LM`` that runs a model in this process.

    Models with the same name and options share one :class:`pyggml.LLM`, which batches the requests of all threads and
    tasks.

    Args:
        model: an open LLM; or a file, a directory or a reference, as for :func:`pyggml.load`; None: the demonstration
            model.
        load_options: parameters of :func:`pyggml.load`.
        **kwargs: arguments of ``dspy.LM``, such as ``temperature``, ``max_tokens`` and ``cache``. Other sampling
            parameters go into ``extensions``.
    """
    engine = PyggmlEngine(model, load_options)
    return dspy.LM(f"pyggml/{model_name(model)}", engine=engine, async_engine=AsyncPyggmlEngine(engine), **kwargs)


class PyggmlEngine(SharedOnCopy):
    """An engine of DSPy, for ``dspy.LM(..., engine=...)``. Safe to call from any thread.

    Args:
        model: as for ``PyggmlLM``.
        load_options: parameters of :func:`pyggml.load`.
    """

    supports_function_calling = True
    supports_reasoning = True
    supports_response_schema = True
    supported_params = frozenset(
        ("max_tokens", "temperature", "top_p", "top_k", "stop", "seed", "tools", "tool_choice", "response_format")
    )

    def __init__(self, model: ModelLike = None, load_options: Mapping[str, Any] | None = None) -> None:
        self._model, self._load_options = model, dict(load_options or {})
        self.llm: LLM = open_llm(model, self._load_options)

    def complete(self, request: Request) -> Response:
        """Answer a request. Called by DSPy."""
        with _errors(request.model):
            done = self.llm.chat(**_arguments(request))
            return _response(request.model, done, self.llm)

    def stream(self, request: Request) -> Iterator[Any]:
        """Answer a request as it is generated. Called by DSPy."""
        with _errors(request.model), self.llm.stream_chat(**_arguments(request)) as stream:
            events = _Events(request.model)
            yield events.start()
            for chunk in stream:
                yield from events.of(chunk)
            yield events.end(stream.completion)

    def close(self) -> None:
        """Keep the model loaded: others may use it."""

    def dump_state(self) -> dict[str, Any]:
        """Return what :meth:`load_state` needs. Called by DSPy when a program is saved.

        Raises:
            InvalidParameterError: the model was given as an open LLM, whose name is not saved.
        """
        if isinstance(self._model, LLM):
            raise InvalidParameterError("an open LLM cannot be saved: give the model by its path or reference")
        source = None if self._model is None else str(self._model)
        return {"model": source, "load_options": self._load_options}

    @classmethod
    def load_state(cls, state: dict[str, Any]) -> PyggmlEngine:
        """Return an engine of a saved program. Called by DSPy."""
        return cls(state["model"], state["load_options"])


class AsyncPyggmlEngine(SharedOnCopy):
    """The same for coroutines, ``dspy.LM(..., async_engine=...)``. Cancelling a task cancels its generation.

    Args:
        engine: the engine whose model it uses.
    """

    def __init__(self, engine: PyggmlEngine) -> None:
        self._engine = engine

    async def complete(self, request: Request) -> Response:
        """Answer a request. Called by DSPy."""
        with _errors(request.model):
            done = await self._engine.llm.achat(**_arguments(request))
            return _response(request.model, done, self._engine.llm)

    async def stream(self, request: Request) -> AsyncIterator[Any]:
        """Answer a request as it is generated. Called by DSPy."""
        with _errors(request.model):
            async with self._engine.llm.astream_chat(**_arguments(request)) as stream:
                events = _Events(request.model)
                yield events.start()
                async for chunk in stream:
                    for event in events.of(chunk):
                        yield event
                yield events.end(stream.completion)

    async def aclose(self) -> None:
        """Keep the model loaded: others may use it."""

    def dump_state(self) -> dict[str, Any]:
        """As :meth:`PyggmlEngine.dump_state`."""
        return self._engine.dump_state()

    @classmethod
    def load_state(cls, state: dict[str, Any]) -> AsyncPyggmlEngine:
        """As :meth:`PyggmlEngine.load_state`."""
        return cls(PyggmlEngine.load_state(state))


class PyggmlEmbedder(SharedOnCopy):
    """A function for ``dspy.Embedder(PyggmlEmbedder("model.gguf"))``; vectors have length 1.

    Args:
        model: as for ``PyggmlLM``.
        load_options: parameters of :func:`pyggml.load`.
        **options: other parameters of :meth:`pyggml.LLM.embed`.
    """

    def __init__(self, model: ModelLike = None, load_options: Mapping[str, Any] | None = None, **options: Any) -> None:
        self.llm = open_llm(model, load_options)
        self._options = {"normalize": True, **options}

    def __call__(self, texts: Sequence[str], **options: Any) -> npt.NDArray[np.float32]:
        """Return the vectors: float32, (n_texts, n_embd)."""
        return self.llm.embed(list(texts), **{**self._options, **options})


# --- requests ------------------------------------------------------------------------------------------------


def _arguments(request: Request) -> dict[str, Any]:
    """The arguments of a chat."""
    config = request.config
    if config.probabilities is not None:
        raise lm15.UnsupportedFeatureError(_NO_PROBABILITIES)
    found: dict[str, Any] = {"messages": _messages(request), "tools": [_tool(tool) for tool in request.tools]}
    found |= {name: getattr(config, name) for name in _SAME if getattr(config, name) is not None}
    if config.stop:
        found["stop"] = list(config.stop)
    if config.response_format is not None:
        found["response_format"] = _format(config.response_format)
    if config.reasoning is not None:
        found["thinking"] = config.reasoning.effort != "off"
    if config.tool_choice is not None:
        _choose(found, config.tool_choice)
    return {**found, **(config.extensions or {})}


def _messages(request: Request) -> list[dict[str, Any]]:
    found = []
    if request.system is not None:
        system = request.system if isinstance(request.system, str) else _text(request.system)
        found.append({"role": "system", "content": system})
    for message in request.messages:
        found += _tool_results(message) if message.role == "tool" else [_message(message)]
    return found


def _message(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {"role": message.role, "content": _text(message.parts)}
    reasoning = "".join(part.text for part in message.parts if part.type == "thinking")
    calls = [part for part in message.parts if part.type == "tool_call"]
    if reasoning:
        found["reasoning_content"] = reasoning
    if calls:
        found["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": dict(call.input)}}
            for call in calls
        ]
    return found


def _tool_results(message: Message) -> list[dict[str, Any]]:
    return [
        {"role": "tool", "tool_call_id": part.id, "name": part.name or "", "content": _text(part.content)}
        for part in message.parts
    ]


def _text(parts: Sequence[Any]) -> str:
    """The text of a message's parts, which must not hold media."""
    for part in parts:
        if part.type not in ("text", "thinking", "tool_call", "refusal", "citation"):
            raise lm15.UnsupportedFeatureError(
                f"a message has a part of type {part.type}: pyggml models read only text"
            )
    return "".join(part.text for part in parts if part.type in ("text", "refusal"))


def _tool(tool: Any) -> dict[str, Any]:
    if tool.type != "function":
        raise lm15.UnsupportedFeatureError(
            f"the tool {tool.name} runs at a provider, which a local model does not have"
        )
    return {"name": tool.name, "description": tool.description or "", "parameters": _plain(tool.parameters)}


def _choose(found: dict[str, Any], choice: Any) -> None:
    """Enter the choice of tools; a subset of them is offered alone."""
    if choice.allowed:
        found["tools"] = [tool for tool in found["tools"] if tool["name"] in choice.allowed]
    found["tool_choice"] = choice.mode
    if choice.parallel is not None:
        found["parallel_tool_calls"] = choice.parallel


def _format(form: Any) -> dict[str, Any]:
    """A response format in OpenAI's form, in which a bare schema is one, too."""
    plain: dict[str, Any] = _plain(form)
    if plain.get("type") == "json_schema" and "json_schema" not in plain:
        return {"type": "json_schema", "json_schema": {"schema": plain["schema"]}}
    if plain.get("type") in ("json_schema", "json_object", "text"):
        return plain
    return {"type": "json_schema", "json_schema": {"schema": plain}}


def _plain(value: Any) -> Any:
    """JSON values as dicts and lists, of which DSPy's are read-only relatives."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


# --- responses -----------------------------------------------------------------------------------------------


def _response(model: str, done: ChatCompletion, llm: LLM) -> Response:
    message = done.message
    parts: list[Any] = [ThinkingPart(message.reasoning_content)] if message.reasoning_content else []
    parts += [TextPart(message.content)] if message.content or not message.tool_calls else []
    parts += [
        ToolCallPart(id=call.id, name=call.name, input=_input(call.arguments_text)) for call in message.tool_calls
    ]
    return Response(
        id=None,
        model=model,
        message=Message.assistant(parts),
        finish_reason=_FINISH_REASONS.get(done.finish_reason, "error"),
        usage=_usage(done),
        logprobs=None if done.logprobs is None else _logprobs(done, llm),
    )


def _input(text: str) -> dict[str, Any]:
    """The arguments of a call; those of one that was cut off are lost."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _usage(done: ChatCompletion) -> Usage:
    n_generated = len(done.token_ids)
    return Usage(
        input_tokens=done.prompt_tokens,
        output_tokens=n_generated,
        total_tokens=done.prompt_tokens + n_generated,
        cache_read_tokens=done.cached_tokens,
    )


def _logprobs(done: ChatCompletion, llm: LLM) -> tuple[Any, ...]:
    form = done.to_dict("openai", tokenizer=llm.tokenizer)["choices"][0]["logprobs"]
    return tuple(
        lm15.TokenLogprob(
            token=one["token"],
            logprob=one["logprob"],
            top=tuple(lm15.TopLogprob(token=top["token"], logprob=top["logprob"]) for top in one["top_logprobs"]),
        )
        for one in form["content"]
    )


class _Events:
    """Converts chunks to DSPy's events, whose parts are numbered as they begin."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._parts: dict[Any, int] = {}

    def start(self) -> Any:
        """The first event."""
        return lm15.StreamStartEvent(model=self._model)

    def of(self, chunk: ChatChunk) -> Iterator[Any]:
        """The events of a chunk."""
        if chunk.reasoning_content:
            delta: Any = lm15.ThinkingDelta(chunk.reasoning_content, part_index=self._part("reasoning"))
            yield lm15.StreamDeltaEvent(delta)
        if chunk.content:
            yield lm15.StreamDeltaEvent(lm15.TextDelta(chunk.content, part_index=self._part("content")))
        for call in chunk.tool_calls:
            part = self._part(call.index)
            named = {"id": call.id, "name": call.name} if call.id else {}
            yield lm15.StreamDeltaEvent(lm15.ToolCallDelta(call.arguments_text, part_index=part, **named))

    def end(self, done: ChatCompletion) -> Any:
        """The last event."""
        return lm15.StreamEndEvent(_FINISH_REASONS.get(done.finish_reason, "error"), _usage(done))

    def _part(self, key: Any) -> int:
        return self._parts.setdefault(key, len(self._parts))


@contextmanager
def _errors(model: str) -> Iterator[None]:
    """Raise pyggml's errors as those of DSPy's engines, which decide what is tried again."""
    try:
        yield
    except ContextOverflowError as error:
        raise lm15.ContextLengthError(str(error), provider=model) from error
    except QueueFullError as error:
        raise lm15.RateLimitError(str(error), provider=model) from error
    except RequestTimeout as error:
        raise lm15.TimeoutError(str(error), provider=model) from error
    except (InvalidParameterError, ValueError) as error:
        raise lm15.InvalidRequestError(str(error), provider=model) from error
    except InferError as error:
        raise lm15.ProviderError(str(error), provider=model) from error
