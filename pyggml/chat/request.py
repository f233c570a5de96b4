"""Requests of the chat methods of LLM: a conversation and its sampling parameters."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from pyggml.chat import ChatPrompt, ChatTemplates
from pyggml.chat.conversation import Conversation
from pyggml.chat.messages import Message
from pyggml.chat.quoting import SpecialTexts
from pyggml.chat.tools import ToolLike
from pyggml.generation.pending_request import PromptRequest
from pyggml.schema.grammar import as_text
from pyggml.tokenizer import Tokenizer
from pyggml.types import Grammar, SamplingParams

Messages = Sequence[Message]
Tools = Sequence[ToolLike]
ChatTemplate = str | os.PathLike[str] | ChatTemplates

_P = ParamSpec("_P")
_Owner = TypeVar("_Owner")
_Result = TypeVar("_Result")


class ChatRequest(PromptRequest):
    """A request to answer a conversation, rendered when it is submitted.

    Attributes:
        conversation: the conversation to answer.
        prompt: the rendered conversation, once the request is submitted.
    """

    def __init__(
        self,
        conversation: Conversation,
        templates: Callable[[], ChatTemplates],
        special_texts: Callable[[], SpecialTexts],
        params: SamplingParams,
        tokenizer: Tokenizer,
        *,
        waits_for_capacity: bool,
    ) -> None:
        """Keep the conversation.

        Args:
            conversation: the conversation to answer.
            templates: parses the template.
            special_texts: returns the tokenizer's special texts.
            params: sampling parameters, merged.
            tokenizer: the model's tokenizer.
            waits_for_capacity: as for PendingRequest.
        """
        super().__init__(
            (), params, tokenizer, parse_special=conversation.parse_special, waits_for_capacity=waits_for_capacity
        )
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
        """Render and encode the conversation.

        Raises:
            InferError: as :meth:`LLM.chat <pyggml.LLM.chat>`, except errors of the engine.
        """
        token_ids, _ = self._prompt_and_params()
        return token_ids

    def _prompt_and_params(self) -> tuple[list[int], SamplingParams]:
        templates = self._templates()
        self.prompt = prompt = self.conversation.rendered(templates, **_format_arguments(self.params))
        return self._token_ids(templates, prompt.text), self._sampling(prompt)

    def _sampling(self, prompt: ChatPrompt) -> SamplingParams:
        """Add the grammar of the prompt's tools, or of reasoning that precedes an answer with a schema."""
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
        """Encode the prompt, keeping special tokens in messages as text; see :mod:`pyggml.chat.quoting`."""
        if not self.conversation.parse_special:
            special = self._special_texts()
            if special.may_begin_in(self.conversation.texts):
                marks = special.new_marks()
                marked = self.conversation.changed(marks.put).rendered(templates, **_format_arguments(self.params)).text
                if marks.own(marked) != special.of(prompt):
                    return self.tokenizer.encode_parts(marks.parts(marked))
        return self.tokenizer.encode(prompt, parse_special=True)


def takes_parameters_of(
    make_request: Callable[Concatenate[_Owner, _P], ChatRequest],
) -> Callable[[Callable[[_Owner, ChatRequest], _Result]], Callable[Concatenate[_Owner, _P], _Result]]:
    """Decorate a method that takes a request: callers pass the parameters of ``make_request`` instead.

    Type checkers, editors and :func:`help` show those parameters.
    """

    def decorate(method: Callable[[_Owner, ChatRequest], _Result]) -> Callable[Concatenate[_Owner, _P], _Result]:
        def call(self: _Owner, /, *args: _P.args, **kwargs: _P.kwargs) -> _Result:
            return method(self, make_request(self, *args, **kwargs))

        async def acall(self: _Owner, /, *args: _P.args, **kwargs: _P.kwargs) -> Any:
            return await cast("Any", method)(self, make_request(self, *args, **kwargs))

        # Bad arguments of a coroutine raise when it is awaited.
        called: Any = functools.wraps(method)(acall if inspect.iscoroutinefunction(method) else call)
        result = inspect.signature(method).return_annotation
        called.__signature__ = inspect.signature(make_request).replace(return_annotation=result)
        return cast("Callable[Concatenate[_Owner, _P], _Result]", called)

    return decorate


def _format_arguments(params: SamplingParams) -> dict[str, Any]:
    """The required format of the answer, as arguments for :meth:`ChatTemplates.render`."""
    schema, grammar = params.json_schema, params.grammar
    if schema is not None:
        return {"json_schema": as_text(schema)}
    if grammar is not None:
        return {"grammar": grammar.text if isinstance(grammar, Grammar) else grammar}
    return {}
