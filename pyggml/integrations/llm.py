"""A plugin of the command ``llm``, which finds it by entry point. Needs ``llm``.

.. code-block:: console

    $ llm -m pyggml/demo 'What colour is the sky?'
    $ llm pyggml add qwen hf:Qwen/Qwen3-0.6B-GGUF --load n_ctx 8192
    $ llm -m pyggml/qwen 'Name a planet'
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from typing import Any

from pyggml import LLM, ChatChunk, ChatCompletion, InvalidParameterError, SamplingParams
from pyggml.integrations._frameworks import needs
from pyggml.integrations._models import open_llm
from pyggml.options import fields_of

with needs("llm"):
    import click
    import llm
    from llm.parts import AttachmentPart, Message, ReasoningPart, StreamEvent, TextPart, ToolCallPart, ToolResultPart
    from pydantic import ConfigDict, Field, create_model

__all__ = ["AsyncPyggmlModel", "PyggmlEmbeddingModel", "PyggmlModel"]

_PREFIX = "pyggml/"
#: The file in llm's folder that names models: {"name": {"source": ..., "load": {...}}}.
_FILE = "pyggml-models.json"
_DEMO: dict[str, Any] = {"source": None, "load": {}}
_SCALARS = {int, float, bool, str}
#: Fields of SamplingParams that the prompt decides, or whose results llm does not show.
_LEFT_OUT = ("json_schema", "logprobs", "logprobs_mode", "prompt_logprobs")


def _options_class() -> type[llm.Options]:
    """The sampling parameters with a single value, as options of llm: ``-o temperature 0``."""
    found: dict[str, Any] = {"thinking": (bool | None, Field(None, description="whether a reasoning model reasons"))}
    for name, field in fields_of(SamplingParams).items():
        kinds = [kind for kind in field.types if kind in _SCALARS]
        if kinds and name not in _LEFT_OUT:
            kind = str if str in kinds else kinds[0]
            found[name] = (kind | None, Field(None, description=field.help))
    return create_model("Options", __base__=llm.Options, __config__=ConfigDict(extra="forbid"), **found)


class _Shared:
    """Parts of the synchronous and the asynchronous model.

    Attributes:
        model_id: "pyggml/" and the model's name.
        source: its file, directory or reference; None: the demonstration model.
        load_options: parameters of :func:`pyggml.load`.
    """

    can_stream = True
    supports_schema = True
    supports_tools = True
    needs_key = None
    key = None

    Options: Any = _options_class()

    def __init__(self, model_id: str, source: str | None = None, load_options: Mapping[str, Any] | None = None) -> None:
        self.model_id = model_id
        self.source, self.load_options = source, dict(load_options or {})
        self._kept: LLM | None = None

    @property
    def loaded(self) -> LLM:
        """The model, which is loaded on first use and then kept."""
        self._kept = open_llm(self.source, self.load_options)
        return self._kept

    def _arguments(self, prompt: llm.Prompt) -> dict[str, Any]:
        """The arguments of :meth:`pyggml.LLM.chat`."""
        given = prompt.options.model_dump(exclude_none=True)
        if prompt.schema is not None:
            given["json_schema"] = prompt.schema
        messages = [made for message in prompt.messages for made in _chat_messages(message)]
        return {"messages": messages, "tools": [_tool(tool) for tool in prompt.tools], **given}

    def _finish(self, response: Any, done: ChatCompletion) -> None:
        for call in done.message.tool_calls:
            response.add_tool_call(llm.ToolCall(name=call.name, arguments=call.arguments, tool_call_id=call.id))
        response.set_usage(
            input=done.prompt_tokens,
            output=len(done.token_ids),
            details={"cached_tokens": done.cached_tokens} if done.cached_tokens else None,
        )
        response.response_json = {"finish_reason": done.finish_reason, "timings": done.timings.to_dict()}


class PyggmlModel(_Shared, llm.Model):
    """A model of the command ``llm`` and of its Python interface, ``llm.get_model("pyggml/demo")``."""

    def execute(
        self,
        prompt: llm.Prompt,
        stream: bool,
        response: llm.Response,
        conversation: llm.Conversation | None = None,  # noqa: ARG002
    ) -> Iterator[StreamEvent]:
        """Answer a prompt. Called by llm."""
        arguments = self._arguments(prompt)
        if not stream:
            done = self.loaded.chat(**arguments)
            yield from _whole_events(done)
        else:
            with self.loaded.stream_chat(**arguments) as chunks:
                events = _Events()
                for chunk in chunks:
                    yield from events.of(chunk)
                done = chunks.completion
        self._finish(response, done)


class AsyncPyggmlModel(_Shared, llm.AsyncModel):
    """The same for coroutines, ``llm.get_async_model("pyggml/demo")``."""

    async def execute(
        self,
        prompt: llm.Prompt,
        stream: bool,
        response: llm.AsyncResponse,
        conversation: llm.AsyncConversation | None = None,  # noqa: ARG002
    ) -> AsyncGenerator[StreamEvent, None]:
        """Answer a prompt. Called by llm."""
        arguments = self._arguments(prompt)
        if not stream:
            done = await self.loaded.achat(**arguments)
            for event in _whole_events(done):
                yield event
        else:
            async with self.loaded.astream_chat(**arguments) as chunks:
                events = _Events()
                async for chunk in chunks:
                    for event in events.of(chunk):
                        yield event
                done = chunks.completion
        self._finish(response, done)


class PyggmlEmbeddingModel(llm.EmbeddingModel):
    """An embedding model of the command ``llm embed``; vectors have length 1.

    Args:
        model_id: "pyggml/" and the model's name.
        source: its file, directory or reference; None: the demonstration model.
        load_options: parameters of :func:`pyggml.load`.
    """

    def __init__(self, model_id: str, source: str | None = None, load_options: Mapping[str, Any] | None = None) -> None:
        self.model_id = model_id
        self.source, self.load_options = source, dict(load_options or {})
        self._kept: LLM | None = None

    def embed_batch(self, items: Iterable[str | bytes], *, key: str | None = None) -> Iterator[list[float]]:  # noqa: ARG002
        """Return a vector for each text. Called by llm."""
        self._kept = open_llm(self.source, self.load_options)
        for vector in self._kept.embed([str(item) for item in items], normalize=True):
            yield [float(value) for value in vector]


class _Events:
    """Converts chunks to llm's events, which repeat the id of a call with its arguments."""

    def __init__(self) -> None:
        self._ids: dict[int, str] = {}

    def of(self, chunk: ChatChunk) -> Iterator[StreamEvent]:
        """Yield the events of a chunk."""
        if chunk.reasoning_content:
            yield StreamEvent(type="reasoning", chunk=chunk.reasoning_content)
        if chunk.content:
            yield StreamEvent(type="text", chunk=chunk.content)
        for call in chunk.tool_calls:
            if call.id:
                self._ids[call.index] = call.id
                yield StreamEvent(type="tool_call_name", chunk=call.name, tool_call_id=call.id)
            if call.arguments_text:
                known = self._ids[call.index]
                yield StreamEvent(type="tool_call_args", chunk=call.arguments_text, tool_call_id=known)


def _whole_events(done: ChatCompletion) -> Iterator[StreamEvent]:
    message = done.message
    if message.reasoning_content:
        yield StreamEvent(type="reasoning", chunk=message.reasoning_content)
    if message.content:
        yield StreamEvent(type="text", chunk=message.content)
    for call in message.tool_calls:
        yield StreamEvent(type="tool_call_name", chunk=call.name, tool_call_id=call.id)
        yield StreamEvent(type="tool_call_args", chunk=call.arguments_text, tool_call_id=call.id)


def _tool(tool: Any) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema}


def _chat_messages(message: Message) -> Iterator[dict[str, Any]]:
    """A message of llm as those of a chat: each result of a tool is one of its own."""
    made: dict[str, Any] = {"role": message.role, "content": ""}
    for part in message.parts:
        if isinstance(part, TextPart):
            made["content"] += part.text
        elif isinstance(part, ReasoningPart):
            made["reasoning_content"] = made.get("reasoning_content", "") + part.text
        elif isinstance(part, ToolCallPart):
            function = {"name": part.name, "arguments": part.arguments}
            call = {"id": part.tool_call_id or "", "type": "function", "function": function}
            made.setdefault("tool_calls", []).append(call)
        elif isinstance(part, ToolResultPart):
            _refuse(part.attachments)
            yield {"role": "tool", "content": part.output, "tool_call_id": part.tool_call_id or "", "name": part.name}
        elif isinstance(part, AttachmentPart):
            _refuse([part.attachment])
    if message.role != "tool":
        yield made


def _refuse(attachments: list[Any]) -> None:
    if attachments:
        raise InvalidParameterError("pyggml models read only text: attachments cannot be sent to them")


# --- the models that llm knows -------------------------------------------------------------------------------


def _models() -> dict[str, dict[str, Any]]:
    """Name -> source and load options of the demonstration model and of those that the user added."""
    return {"demo": _DEMO, **_added()}


def _added() -> dict[str, dict[str, Any]]:
    path = llm.user_dir() / _FILE
    return json.loads(path.read_text()) if path.exists() else {}


def _save(models: Mapping[str, Any]) -> None:
    (llm.user_dir() / _FILE).write_text(json.dumps(models, indent=2) + "\n")


@llm.hookimpl
def register_models(register: Callable[..., None]) -> None:
    """Register a model for each name. Nothing is loaded."""
    for name, given in _models().items():
        arguments = f"{_PREFIX}{name}", given["source"], given["load"]
        register(PyggmlModel(*arguments), AsyncPyggmlModel(*arguments))


@llm.hookimpl
def register_embedding_models(register: Callable[..., None]) -> None:
    """Register an embedding model for each name. Nothing is loaded."""
    for name, given in _models().items():
        register(PyggmlEmbeddingModel(f"{_PREFIX}{name}", given["source"], given["load"]))


@llm.hookimpl
def register_commands(cli: click.Group) -> None:
    """Add ``llm pyggml add``, ``remove`` and ``list``."""

    @cli.group(name="pyggml")
    def group() -> None:
        """Local models by pyggml."""

    @group.command()
    @click.argument("name")
    @click.argument("source")
    @click.option(
        "--load", "options", type=(str, str), multiple=True, help="Option of pyggml.load, such as n_ctx 8192."
    )
    def add(name: str, source: str, options: tuple[tuple[str, str], ...]) -> None:
        """Name a .gguf file, a Hugging Face directory or hf:org/repo, so that -m pyggml/NAME runs it."""
        if name == "demo":
            raise click.ClickException("demo is the demonstration model: choose another name")
        source = source if source.startswith("hf:") else str(_resolved(source))
        _save({**_added(), name: {"source": source, "load": {option: _value(text) for option, text in options}}})
        click.echo(f"llm -m {_PREFIX}{name} runs {source}")

    @group.command()
    @click.argument("name")
    def remove(name: str) -> None:
        """Remove a name; the model's files stay."""
        models = _added()
        if name not in models:
            raise click.ClickException(f"no model was added as {name}: see llm pyggml list")
        del models[name]
        _save(models)

    @group.command(name="list")
    def list_models() -> None:
        """List the names and their models."""
        for name, given in _models().items():
            options = " ".join(f"{option}={value}" for option, value in given["load"].items())
            click.echo(f"{_PREFIX}{name}: {given['source'] or 'the demonstration model'} {options}".rstrip())


def _resolved(source: str) -> Any:
    from pathlib import Path

    path = Path(source).expanduser().absolute()
    if not path.exists():
        raise click.ClickException(f"{path} does not exist: give a .gguf file, a directory or hf:org/repo")
    return path


def _value(text: str) -> Any:
    """A value of an option: a number, true, false or null as in JSON, or else text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
