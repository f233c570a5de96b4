"""A chat's answer: from messages to a request, and from the text that comes to a message."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyggml.chat import ChatParser, ChatPrompt, ChatTemplates
from pyggml.chat.messages import Change, JSONMessage, changed, changed_value
from pyggml.chat.quoting import SpecialTexts
from pyggml.chat.tools import Tool
from pyggml.chat.types import ChatChunk, ChatCompletion, ChatMessage, ToolCall, json_object
from pyggml.errors import InvalidParameterError
from pyggml.generation.engine import Request, TokenIds
from pyggml.generation.job import TOKENS_PER_LOOK, Job
from pyggml.generation.stream import Assembly, BaseStream
from pyggml.schema import schema_of
from pyggml.tokenizer import StopStrings, StreamDecoder, Tokenizer
from pyggml.types import Grammar, SamplingParams


@dataclasses.dataclass(frozen=True)
class Conversation:
    """What a caller wants an answer to; see :meth:`LLM.chat <pyggml.LLM.chat>`.

    Attributes:
        messages: checked.
        tools: checked, by name.
        tool_choice: "auto", "none", "required", or one tool.
        parallel_tool_calls: whether an answer may have several calls.
        thinking: whether the model reasons first; None: as the template has it.
        template_kwargs: further variables for the template.
        parse_special: whether special tokens in messages are read as such.
    """

    messages: list[JSONMessage]
    tools: dict[str, Tool]
    tool_choice: str | Mapping[str, Any]
    parallel_tool_calls: bool
    thinking: bool | None
    template_kwargs: Mapping[str, Any]
    parse_special: bool

    @property
    def thinks(self) -> bool:
        """Whether the model may reason before it answers, if its template lets it."""
        return bool(self.template_kwargs.get("enable_thinking", True) if self.thinking is None else self.thinking)

    @property
    def may_call_once(self) -> bool:
        """Whether an answer ends with its first call; many a template's format lets others follow."""
        return bool(self.tools) and not self.parallel_tool_calls

    @property
    def texts(self) -> list[str]:
        """All of it that somebody else than the program may have written."""
        found: list[str] = []

        def note(text: str) -> str:
            found.append(text)
            return text

        self.changed(note)
        return found

    def changed(self, change: Change) -> Conversation:
        """The same with all those texts changed.

        Raises:
            InvalidParameterError: something in it is nested too deeply.
        """
        try:
            return dataclasses.replace(
                self,
                messages=changed(self.messages, change),
                tools={name: tool.described(change) for name, tool in self.tools.items()},
                template_kwargs=changed_value(self.template_kwargs, change),
            )
        except RecursionError:
            raise InvalidParameterError(
                "the conversation is nested too deeply: look at the arguments of its tool calls, the schemas of its "
                "tools, and template_kwargs"
            ) from None

    def rendered(self, templates: ChatTemplates, **form: Any) -> ChatPrompt:
        """The prompt.

        Args:
            templates: the template.
            **form: ``json_schema`` or ``grammar`` that the answer has to follow.

        Raises:
            InvalidParameterError: the template refuses the conversation, or not all that was asked for goes together.
        """
        return templates.render(
            self.messages,
            tools=[tool.as_json() for tool in self.tools.values()],
            tool_choice=self.tool_choice,
            parallel_tool_calls=self.parallel_tool_calls,
            thinking=self.thinking,
            template_kwargs=self.template_kwargs,
            **form,
        )


class ChatJob(Job):
    """One answer, before it is a request.

    Attributes:
        conversation: what is to be answered.
        prompt: that, rendered; once it is submitted.
    """

    def __init__(
        self,
        conversation: Conversation,
        templates: Callable[[], ChatTemplates],
        special_texts: Callable[[], SpecialTexts],
        **job: Any,
    ) -> None:
        """Keeps the conversation until it is wanted.

        Args:
            conversation: what is to be answered.
            templates: reads the template.
            special_texts: the tokenizer's.
            **job: as any Job, without a prompt.
        """
        super().__init__(prompt=(), **job)
        self.conversation = conversation
        self.prompt: ChatPrompt | None = None
        self._templates = templates
        self._special_texts = special_texts

    @property
    def stop(self) -> tuple[str, ...]:
        """The stop strings, with the template's once it is rendered."""
        return (*super().stop, *(self.prompt.stop if self.prompt else ()))

    @property
    def is_slow(self) -> bool:
        """Rendering takes some milliseconds."""
        return True

    def _prompt_and_params(self) -> tuple[TokenIds, SamplingParams]:
        templates = self._templates()
        self.prompt = prompt = self.conversation.rendered(templates, **_form(self.params))
        if prompt.stop or self.conversation.may_call_once:
            self.min_tokens = min(self.min_tokens, TOKENS_PER_LOOK)
        return self._token_ids(templates, prompt.text), self._sampling(prompt)

    def _sampling(self, prompt: ChatPrompt) -> SamplingParams:
        """The sampling with the grammar of the prompt's tools, or of reasoning before an answer that has a schema."""
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
        """What messages spell stays text in them; see :mod:`pyggml.chat.quoting`."""
        if not self.conversation.parse_special:
            special = self._special_texts()
            if special.may_begin_in(self.conversation.texts):
                marks = special.new_marks()
                marked = self.conversation.changed(marks.put).rendered(templates, **_form(self.params)).text
                if marks.own(marked) != special.of(prompt):
                    return self.tokenizer.encode_parts(marks.parts(marked))
        return self.tokenizer.encode(prompt, parse_special=True)


class ChatAssembly(Assembly):
    """Makes chunks of an answer's tokens as they are read, and the message of all of them."""

    def __init__(self, job: ChatJob) -> None:
        """Starts with nothing read; the job may still have to be submitted."""
        super().__init__(job.tokenizer, ())
        self._job = job
        self._parser: ChatParser | None = None

    def add(self, request: Request, token_ids: list[int]) -> ChatChunk:
        """The chunk that a read makes; cancels the request when a stop string is complete."""
        parser = self._parser = self._parser or self._begin()
        chunk = super().add(request, token_ids)
        news = parser.feed(chunk.text, last=chunk.finish_reason is not None)
        grown = ChatChunk(**{**vars(chunk), **vars(news)})
        if self._job.conversation.may_call_once and any(call.index > 0 for call in grown.tool_calls):
            request.cancel()
            first = tuple(call for call in grown.tool_calls if call.index == 0)
            grown = dataclasses.replace(grown, tool_calls=first, finish_reason="tool_calls", stop_reason=None)
        elif grown.finish_reason == "stop" and _are_complete(parser.message.tool_calls):
            grown = dataclasses.replace(grown, finish_reason="tool_calls")
        if grown.finish_reason is not None:
            self._last = grown
        return grown

    def abandon(self) -> ChatChunk:
        """The last chunk of what has been given up; the one there was, if it had ended."""
        if not isinstance(self._last, ChatChunk):
            self._last = ChatChunk(**vars(super().abandon()))
        return self._last

    def completion(self, request: Request | None) -> ChatCompletion:
        """Everything, once it has ended; of no request, that it was cancelled.

        Raises:
            InvalidParameterError: it has not.
        """
        message = self._parser.message if self._parser else ChatMessage()
        calls = message.tool_calls[: 1 if self._job.conversation.may_call_once else None]
        calls = tuple(map(self._typed, calls))
        message = dataclasses.replace(message, tool_calls=calls)
        return ChatCompletion(**vars(super().completion(request)), message=message)

    def _begin(self) -> ChatParser:
        job = self._job
        assert job.prompt is not None  # there is a request
        self._decoder = StreamDecoder(job.tokenizer, _shown(job.prompt, job.tokenizer))
        self._stop = StopStrings(job.stop)
        return job.prompt.parser()

    def _typed(self, call: ToolCall) -> ToolCall:
        tool = self._job.conversation.tools.get(call.name)
        return tool.call(call.id, call.arguments_text) if tool else call


class ChatStream(BaseStream[ChatChunk, ChatCompletion]):
    """A running answer, as an iterator of ChatChunks; otherwise as any :class:`~pyggml.Stream`."""

    def __init__(self, job: ChatJob, request: Request) -> None:
        """Takes over the request that the job became."""
        super().__init__(job, request, ChatAssembly(job))


def _form(params: SamplingParams) -> dict[str, Any]:
    """What the answer has to look like, as templates want to know it."""
    schema, grammar = params.json_schema, params.grammar
    if schema is not None:
        return {"json_schema": schema if isinstance(schema, (str, Mapping)) else schema_of(schema)}
    if grammar is not None:
        return {"grammar": grammar.text if isinstance(grammar, Grammar) else grammar}
    return {}


def _shown(prompt: ChatPrompt, tokenizer: Tokenizer) -> dict[int, bytes]:
    """The special tokens that the parser has to see, and how."""
    encoded = {text: tokenizer.encode(text, add_special=False, parse_special=True) for text in prompt.preserved_tokens}
    return {ids[0]: text.encode() for text, ids in encoded.items() if len(ids) == 1}


def _are_complete(calls: Sequence[ToolCall]) -> bool:
    """Whether there are calls, and none was cut."""
    try:
        return bool([json_object(call.name, call.arguments_text) for call in calls])
    except InvalidParameterError:
        return False
