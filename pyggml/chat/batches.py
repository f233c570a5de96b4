"""The methods of LLM that complete many prompts and conversations, or one several times."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

from pyggml.chat.request import OWN_PARAMETERS, ChatModel, ChatRequest, ChatTemplate, Messages, Tools, chat_request
from pyggml.chat.types import ChatCompletion
from pyggml.errors import InferError
from pyggml.generation.batch_generation import Batch, ItemProgress, of_one_prompt, with_own_params
from pyggml.generation.param_merging import format_grammar, merge
from pyggml.generation.pending_request import Prompt, PromptRequest, is_message
from pyggml.types import Completion, SamplingParams

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pyggml._keywords import ChatKeywords, SamplingOverrides

T = TypeVar("T")
BatchParams = SamplingParams | Sequence[SamplingParams | None] | None


class BatchMethods:
    """The methods of :class:`pyggml.LLM` that submit several requests, with a limited number of them in flight."""

    @overload
    def generate_batch(
        self,
        prompts: Iterable[Prompt | Messages],
        params: BatchParams = None,
        *,
        parse_special: bool = True,
        progress: ItemProgress | None = None,
        return_exceptions: Literal[False] = False,
        **overrides: Unpack[SamplingOverrides],
    ) -> list[Completion]: ...

    @overload
    def generate_batch(
        self,
        prompts: Iterable[Prompt | Messages],
        params: BatchParams = None,
        *,
        parse_special: bool = True,
        progress: ItemProgress | None = None,
        return_exceptions: bool,
        **overrides: Unpack[SamplingOverrides],
    ) -> list[Completion | InferError]: ...

    def generate_batch(
        self,
        prompts: Iterable[Prompt | Messages],
        params: BatchParams = None,
        *,
        parse_special: bool = True,
        progress: ItemProgress | None = None,
        return_exceptions: bool = False,
        **overrides: Unpack[SamplingOverrides],
    ) -> list[Any]:
        """Generate a completion for each of many prompts, and return them in the order of the prompts.

        At most twice ``n_parallel`` requests are in flight, so thousands of prompts need no more memory than their
        results. If the queue is full, this waits, whatever ``queue_full`` is; each prompt's ``timeout_s`` counts from
        its submission.

        Args:
            prompts: any iterable, read as the work proceeds. A list of messages is answered as by :meth:`chat_batch`,
                with a ChatCompletion.
            params: used for every prompt, or a sequence with those of each.
            parse_special: as for :meth:`generate`; messages are always plain text.
            progress: called on this thread after each completion, with the number of completions so far and the number
                of prompts (None if ``prompts`` has no length). None: a bar in a notebook; False: no bar.
            return_exceptions: return the InferError of a prompt that fails in its place, and complete the others.
            **overrides: as for :meth:`generate`; they replace fields of all ``params``.

        Raises:
            InferError: as :meth:`generate`, for the first prompt that fails, with a note of its index on Python 3.11
                and later; the others are cancelled and their results lost. So are they if ``progress`` or ``prompts``
                raises.
            InvalidParameterError: ``params`` is a sequence of another length than ``prompts``.
        """
        llm = cast("ChatModel", self)
        shared = _merged(params, overrides) if _is_shared(params) else None
        batch = _batch_of_prompts(llm, prompts, params, overrides, parse_special, shared)
        return batch(progress=progress, return_exceptions=return_exceptions).run(llm._engine)

    @overload
    async def agenerate_batch(
        self,
        prompts: Iterable[Prompt | Messages],
        params: BatchParams = None,
        *,
        parse_special: bool = True,
        progress: ItemProgress | None = None,
        return_exceptions: Literal[False] = False,
        **overrides: Unpack[SamplingOverrides],
    ) -> list[Completion]: ...

    @overload
    async def agenerate_batch(
        self,
        prompts: Iterable[Prompt | Messages],
        params: BatchParams = None,
        *,
        parse_special: bool = True,
        progress: ItemProgress | None = None,
        return_exceptions: bool,
        **overrides: Unpack[SamplingOverrides],
    ) -> list[Completion | InferError]: ...

    async def agenerate_batch(
        self,
        prompts: Iterable[Prompt | Messages],
        params: BatchParams = None,
        *,
        parse_special: bool = True,
        progress: ItemProgress | None = None,
        return_exceptions: bool = False,
        **overrides: Unpack[SamplingOverrides],
    ) -> list[Any]:
        """As :meth:`generate_batch`, for coroutines; ``prompts`` is read and ``progress`` called in the event loop."""
        from asyncio import to_thread  # imported late to keep "import pyggml" fast

        llm = cast("ChatModel", self)
        shared = None
        if _is_shared(params):
            shared = await to_thread(_merged, params, overrides)
        batch = _batch_of_prompts(llm, prompts, params, overrides, parse_special, shared)
        return await batch(progress=progress, return_exceptions=return_exceptions).arun(llm._engine)

    @overload
    def chat_batch(
        self,
        conversations: Iterable[Messages],
        tools: Tools | None = None,
        params: BatchParams = None,
        *,
        progress: ItemProgress | None = None,
        return_exceptions: Literal[False] = False,
        **options: Unpack[ChatKeywords],
    ) -> list[ChatCompletion]: ...

    @overload
    def chat_batch(
        self,
        conversations: Iterable[Messages],
        tools: Tools | None = None,
        params: BatchParams = None,
        *,
        progress: ItemProgress | None = None,
        return_exceptions: bool,
        **options: Unpack[ChatKeywords],
    ) -> list[ChatCompletion | InferError]: ...

    def chat_batch(
        self,
        conversations: Iterable[Messages],
        tools: Tools | None = None,
        params: BatchParams = None,
        *,
        progress: ItemProgress | None = None,
        return_exceptions: bool = False,
        **options: Unpack[ChatKeywords],
    ) -> list[Any]:
        """Answer many conversations, and return the answers in their order.

        Requests in flight, a full queue and ``timeout_s`` are handled as by :meth:`generate_batch`. Errors as
        :meth:`chat` and :meth:`generate_batch`.

        Args:
            conversations: any iterable of conversations, each as for :meth:`chat`, read as the work proceeds.
            tools: tools that the model may call in every conversation.
            params: used for every conversation, or a sequence with those of each.
            progress: as for :meth:`generate_batch`.
            return_exceptions: return the InferError of a conversation that fails in its place, and answer the others.
            **options: the other parameters of :meth:`chat`, for every conversation.
        """
        llm = cast("ChatModel", self)
        batch = _batch_of_conversations(llm, conversations, tools, params, options)
        return batch(progress=progress, return_exceptions=return_exceptions).run(llm._engine)

    @overload
    async def achat_batch(
        self,
        conversations: Iterable[Messages],
        tools: Tools | None = None,
        params: BatchParams = None,
        *,
        progress: ItemProgress | None = None,
        return_exceptions: Literal[False] = False,
        **options: Unpack[ChatKeywords],
    ) -> list[ChatCompletion]: ...

    @overload
    async def achat_batch(
        self,
        conversations: Iterable[Messages],
        tools: Tools | None = None,
        params: BatchParams = None,
        *,
        progress: ItemProgress | None = None,
        return_exceptions: bool,
        **options: Unpack[ChatKeywords],
    ) -> list[ChatCompletion | InferError]: ...

    async def achat_batch(
        self,
        conversations: Iterable[Messages],
        tools: Tools | None = None,
        params: BatchParams = None,
        *,
        progress: ItemProgress | None = None,
        return_exceptions: bool = False,
        **options: Unpack[ChatKeywords],
    ) -> list[Any]:
        """As :meth:`chat_batch`, for coroutines; ``conversations`` is read and ``progress`` called in the loop."""
        llm = cast("ChatModel", self)
        batch = _batch_of_conversations(llm, conversations, tools, params, options)
        return await batch(progress=progress, return_exceptions=return_exceptions).arun(llm._engine)

    def generate_n(
        self,
        prompt: Prompt,
        n: int,
        params: SamplingParams | None = None,
        *,
        parse_special: bool = True,
        **overrides: Unpack[SamplingOverrides],
    ) -> list[Completion]:
        """Generate ``n`` completions of one prompt, which is computed once and shared.

        The first completion computes the prompt, and the others start from its KV cache, as their ``cached_tokens``
        show. If the prompt is short (about thirty tokens), they do not wait for the first but compute it themselves.
        With ``prefix_cache=False``, and for recurrent models, each completion computes the whole prompt.

        Requests in flight, a full queue and ``timeout_s`` are handled as by :meth:`generate_batch`. Errors as
        :meth:`generate`.

        Args:
            prompt: as for :meth:`generate`.
            n: number of completions, at least 1.
            params: used for all completions. With a ``seed``, they use that seed, the next one, and so on; without,
                each uses a random seed. Greedy completions are all the same.
            parse_special: as for :meth:`generate`.
            **overrides: as for :meth:`generate`.
        """
        llm = cast("ChatModel", self)
        request = _prompt_request(llm, parse_special, prompt, merge(params, overrides))
        return of_one_prompt(request, n, llm._engine).run(llm._engine)

    async def agenerate_n(
        self,
        prompt: Prompt,
        n: int,
        params: SamplingParams | None = None,
        *,
        parse_special: bool = True,
        **overrides: Unpack[SamplingOverrides],
    ) -> list[Completion]:
        """As :meth:`generate_n`, for coroutines. Cancelling the task cancels all the completions."""
        from asyncio import to_thread

        llm = cast("ChatModel", self)
        request = _prompt_request(llm, parse_special, prompt, merge(params, overrides))
        return await (await to_thread(of_one_prompt, request, n, llm._engine)).arun(llm._engine)


def _batch_of_prompts(
    llm: ChatModel,
    prompts: Iterable[Prompt | Messages],
    params: BatchParams,
    overrides: SamplingOverrides,
    parse_special: bool,
    shared: SamplingParams | None,
) -> functools.partial[Batch[Completion]]:
    """A batch without its options; ``shared`` are the merged parameters of all prompts, if they share them."""
    merge(None, overrides)  # wrong names are refused at once

    def request(item: tuple[Prompt | Messages, SamplingParams | None] | Prompt | Messages) -> PromptRequest:
        prompt, own = cast("Any", (item, params) if shared else item)
        if _is_conversation(prompt):
            return _chat_request(llm, prompt, params=own, **overrides)
        return _prompt_request(llm, parse_special, prompt, shared or merge(own, overrides))

    items: Iterable[Any] = prompts if shared else with_own_params(prompts, params)
    return functools.partial(Batch, items, request)


def _batch_of_conversations(
    llm: ChatModel, conversations: Iterable[Messages], tools: Tools | None, params: BatchParams, options: ChatKeywords
) -> functools.partial[Batch[ChatCompletion]]:
    """A batch without its options."""
    given: dict[str, Any] = dict(options)
    template: ChatTemplate | None = given.pop("chat_template", None)
    merge(None, {name: value for name, value in given.items() if name not in OWN_PARAMETERS}, OWN_PARAMETERS)
    templates = functools.cache(functools.partial(llm.chat_templates, template))  # parsed once

    def request(item: tuple[Messages, SamplingParams | None] | Messages) -> PromptRequest:
        messages, own = cast("Any", (item, params) if _is_shared(params) else item)
        made = _chat_request(llm, messages, tools, own, **given)
        made.templates = templates
        return made

    items: Iterable[Any] = conversations
    if not _is_shared(params):
        items = with_own_params(conversations, params, "conversation")
    return functools.partial(Batch, items, request, noun="conversation")


def _merged(params: Any, overrides: Mapping[str, Any]) -> SamplingParams:
    """Merge the parameters of all prompts, and compile the format of their outputs, which is cached."""
    merged = merge(params, overrides)
    format_grammar(merged)
    return merged


def _is_shared(params: object) -> bool:
    """Return True unless there is a sequence of parameters; wrong types are refused where they are merged."""
    return isinstance(params, (str, Mapping)) or not isinstance(params, Sequence)


def _is_conversation(prompt: Any) -> bool:
    return isinstance(prompt, (list, tuple)) and bool(prompt) and is_message(prompt[0])


def _prompt_request(llm: ChatModel, parse_special: bool, prompt: Prompt, params: SamplingParams) -> PromptRequest:
    return PromptRequest(
        prompt, params, llm.tokenizer, parse_special=parse_special, is_streamed=False, waits_for_capacity=True
    )


def _chat_request(llm: ChatModel, *args: Any, **kwargs: Any) -> ChatRequest:
    request = chat_request(llm, *args, **kwargs)
    request.is_streamed, request.waits_for_capacity = False, True
    return request
