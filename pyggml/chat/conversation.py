"""Generates an answer: turns a conversation into a request, and the generated text into a message."""

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
from pyggml.generation.job import Job
from pyggml.generation.request import Request
from pyggml.generation.stream import Assembly, BaseStream
from pyggml.schema.grammar import as_text
from pyggml.tokenizer import StopStrings, StreamDecoder, Tokenizer
from pyggml.types import Chunk, Grammar, SamplingParams

_MANY_TOKENS = 256


@dataclasses.dataclass(frozen=True)
class Conversation:
    """A conversation to answer; see :meth:`LLM.chat <pyggml.LLM.chat>`.

    Attributes:
        messages: the checked messages.
        tools: the checked tools, by name.
        tool_choice: "auto", "none", "required", or one tool.
        parallel_tool_calls: whether an answer may contain several calls.
        thinking: whether the model reasons first; None: the template's default.
        continues: whether the answer continues the last message.
        template_kwargs: additional variables for the template.
        parse_special: whether special tokens in messages are interpreted.
    """

    messages: list[JSONMessage]
    tools: dict[str, Tool]
    tool_choice: str | Mapping[str, Any]
    parallel_tool_calls: bool
    thinking: bool | None
    continues: bool
    template_kwargs: Mapping[str, Any]
    parse_special: bool

    def __post_init__(self) -> None:
        if self.continues and (role := self.messages[-1]["role"]) != "assistant":
            raise InvalidParameterError(
                f"continue_final_message continues a message of the assistant, and the last one has the role {role!r}"
            )

    @property
    def thinks(self) -> bool:
        """Whether the model may reason before it answers, if its template supports that."""
        return bool(self.template_kwargs.get("enable_thinking", True) if self.thinking is None else self.thinking)

    @property
    def may_call_once(self) -> bool:
        """Whether to end the answer after its first call, even if the template's format allows more."""
        return bool(self.tools) and not self.parallel_tool_calls

    @property
    def texts(self) -> list[str]:
        """All strings that may come from someone other than the program."""
        found: list[str] = []

        def note(text: str) -> str:
            found.append(text)
            return text

        self.changed(note)
        return found

    def changed(self, change: Change) -> Conversation:
        """A copy with all of :attr:`texts` changed.

        Raises:
            InvalidParameterError: the conversation is nested too deeply.
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
                "the conversation is nested too deeply: check the arguments of tool calls, the schemas of tools, and "
                "template_kwargs"
            ) from None

    def rendered(self, templates: ChatTemplates, **form: Any) -> ChatPrompt:
        """Renders the prompt.

        Args:
            templates: the template.
            **form: ``json_schema`` or ``grammar`` that the answer has to follow.

        Raises:
            InvalidParameterError: the template rejects the conversation, or the options contradict each other.
        """
        return templates.render(
            self.messages,
            tools=[tool.as_json() for tool in self.tools.values()],
            tool_choice=self.tool_choice,
            parallel_tool_calls=self.parallel_tool_calls,
            thinking=self.thinking,
            add_generation_prompt=not self.continues,
            continue_final_message=self.continues,
            template_kwargs=self.template_kwargs,
            **form,
        )


class ChatJob(Job):
    """One answer that has not been submitted yet.

    Attributes:
        conversation: the conversation to answer.
        prompt: the rendered conversation, once the job is submitted.
    """

    def __init__(
        self,
        conversation: Conversation,
        templates: Callable[[], ChatTemplates],
        special_texts: Callable[[], SpecialTexts],
        **job: Any,
    ) -> None:
        """Keeps the conversation, which is rendered when the job is submitted.

        Args:
            conversation: the conversation to answer.
            templates: parses the template.
            special_texts: returns the tokenizer's special texts.
            **job: the arguments of Job, except the prompt and ``parse_special``.
        """
        super().__init__(prompt=(), parse_special=conversation.parse_special, **job)
        self.conversation = conversation
        self.prompt: ChatPrompt | None = None
        self._templates = templates
        self._special_texts = special_texts

    @property
    def stop(self) -> tuple[str, ...]:
        """The stop strings, including the template's once it is rendered."""
        return (*super().stop, *(self.prompt.stop if self.prompt else ()))

    @property
    def is_slow(self) -> bool:
        """True: rendering takes a few milliseconds."""
        return True

    @property
    def _may_end_early(self) -> bool:
        return bool(self.stop) or self.conversation.may_call_once

    def prompt_ids(self) -> list[int]:
        """Renders and encodes the conversation.

        Raises:
            InferError: as :meth:`submit`, except what the engine refuses.
        """
        token_ids, _ = self._prompt_and_params()
        return token_ids

    def _prompt_and_params(self) -> tuple[list[int], SamplingParams]:
        templates = self._templates()
        self.prompt = prompt = self.conversation.rendered(templates, **_form(self.params))
        return self._token_ids(templates, prompt.text), self._sampling(prompt)

    def _sampling(self, prompt: ChatPrompt) -> SamplingParams:
        """Adds the grammar of the prompt's tools, or of reasoning that precedes an answer with a schema."""
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
        """Encodes the prompt, keeping special tokens in messages as text; see :mod:`pyggml.chat.quoting`."""
        if not self.conversation.parse_special:
            special = self._special_texts()
            if special.may_begin_in(self.conversation.texts):
                marks = special.new_marks()
                marked = self.conversation.changed(marks.put).rendered(templates, **_form(self.params)).text
                if marks.own(marked) != special.of(prompt):
                    return self.tokenizer.encode_parts(marks.parts(marked))
        return self.tokenizer.encode(prompt, parse_special=True)


class ChatAssembly(Assembly):
    """Turns an answer's tokens into chunks as they are read, and all the chunks into a message."""

    def __init__(self, job: ChatJob) -> None:
        """Starts without any tokens. The job need not be submitted yet."""
        super().__init__(job.tokenizer, ())
        self._job = job
        self._parser: ChatParser | None = None
        self._message = ChatMessage()  # once the answer has ended

    def takes_long(self, token_ids: list[int]) -> bool:
        """Many at once are, as the text is read character by character; see :meth:`ChatParser.feed`."""
        return len(token_ids) >= _MANY_TOKENS

    def made(self, request: Request, token_ids: list[int]) -> ChatChunk:
        """Cancels the request once the answer is complete."""
        parser = self._parser = self._parser or self._begin()
        chunk = super().made(request, token_ids)
        news = parser.feed(chunk.text, last=chunk.finish_reason is not None)
        grown = ChatChunk(**{**vars(chunk), **vars(news)})
        if self._job.conversation.may_call_once and any(call.index > 0 for call in grown.tool_calls):
            request.cancel()
            first = tuple(call for call in grown.tool_calls if call.index == 0)
            return dataclasses.replace(grown, tool_calls=first, finish_reason="tool_calls", stop_reason=None)
        if grown.finish_reason == "stop" and _are_complete(parser.message.tool_calls):
            return dataclasses.replace(grown, finish_reason="tool_calls")
        return grown

    def keep(self, chunk: Chunk) -> Chunk:
        """Of the last chunk, the message as well: whatever is still parsed for it."""
        if chunk.finish_reason is not None and self._parser is not None:
            self._message = self._parser.message
        return super().keep(chunk)

    def abandon(self) -> ChatChunk:
        """Ends an unfinished answer as cancelled, and returns the last chunk."""
        if not isinstance(self._last, ChatChunk):
            self._last = ChatChunk(**vars(super().abandon()))
            if self._parser is not None:
                self._message = self._parser.message
        return self._last

    def completion(self, request: Request | None) -> ChatCompletion:
        """The whole answer, once it has ended; without a request, an empty one that was cancelled.

        Raises:
            InvalidParameterError: the answer has not ended.
        """
        message = self._message
        calls = message.tool_calls[: 1 if self._job.conversation.may_call_once else None]
        calls = tuple(map(self._typed, calls))
        message = dataclasses.replace(message, tool_calls=calls)
        return ChatCompletion(**vars(super().completion(request)), message=message)

    def _begin(self) -> ChatParser:
        job = self._job
        assert job.prompt is not None  # the job has been submitted
        self._decoder = StreamDecoder(job.tokenizer, _shown(job.prompt, job.tokenizer))
        self._stop = StopStrings(job.stop)
        return job.prompt.parser()

    def _typed(self, call: ToolCall) -> ToolCall:
        tool = self._job.conversation.tools.get(call.name)
        return tool.call(call.id, call.arguments_text) if tool else call


class ChatStream(BaseStream[ChatChunk, ChatCompletion]):
    """A running answer, as an iterator of ChatChunks; otherwise as any :class:`~pyggml.Stream`."""

    def __init__(self, job: ChatJob, request: Request) -> None:
        """Takes over the job's request."""
        super().__init__(job, request, ChatAssembly(job))


def _form(params: SamplingParams) -> dict[str, Any]:
    """The required form of the answer, as arguments for :meth:`ChatTemplates.render`."""
    schema, grammar = params.json_schema, params.grammar
    if schema is not None:
        return {"json_schema": as_text(schema)}
    if grammar is not None:
        return {"grammar": grammar.text if isinstance(grammar, Grammar) else grammar}
    return {}


def _shown(prompt: ChatPrompt, tokenizer: Tokenizer) -> dict[int, bytes]:
    """The special tokens that the parser has to see, and their text."""
    encoded = {text: tokenizer.encode(text, add_special=False, parse_special=True) for text in prompt.preserved_tokens}
    return {ids[0]: text.encode() for text, ids in encoded.items() if len(ids) == 1}


def _are_complete(calls: Sequence[ToolCall]) -> bool:
    """Whether there are calls and none was cut off."""
    try:
        return bool([json_object(call.name, call.arguments_text) for call in calls])
    except InvalidParameterError:
        return False
