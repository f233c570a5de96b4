"""LLM: a model, its engine and its tokenizer in one object, which is all that most users need."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import numpy.typing as npt

from pyggml import families, model_loader
from pyggml._core.cached_property import cached_property
from pyggml._core.checks import flag
from pyggml._core.fields import shared, takes
from pyggml._core.hints import Completions, HintedObject, hints, reject_parameters, with_hints
from pyggml._core.log import logger
from pyggml._core.owner import ClosableOwner
from pyggml._native.adapter import Adapter
from pyggml._native.model import Model
from pyggml._native.rope_options import RopeOptions
from pyggml.adapter_loader import load_adapter
from pyggml.chat import ChatTemplates
from pyggml.chat.batches import BatchMethods
from pyggml.chat.messages import checked_messages
from pyggml.chat.quoting import SpecialTexts
from pyggml.chat.request import ChatRequest, ChatTemplate, Messages, Tools, chat_method, overloaded_chat_method
from pyggml.chat.sessions.methods import SessionMethods
from pyggml.chat.stream import ChatStream
from pyggml.chat.templates import templates_or_none
from pyggml.chat.tools import checked_tools
from pyggml.chat.types import ChatCompletion
from pyggml.engine_factory import start_engine
from pyggml.errors import UnsupportedArchitectureError
from pyggml.families import Family
from pyggml.generation.batch_generation import of_one_prompt
from pyggml.generation.embedding.classify_methods import ClassifyMethods
from pyggml.generation.embedding.embedder import Embedder
from pyggml.generation.embedding.encoder import GrowingContext
from pyggml.generation.embedding.methods import EmbeddingMethods
from pyggml.generation.embedding.rerank_methods import RerankMethods
from pyggml.generation.engine import Engine
from pyggml.generation.infill.methods import InfillMethods
from pyggml.generation.param_merging import merge
from pyggml.generation.pending_request import Prompt, PromptRequest, prompt_ids
from pyggml.generation.scoring.loop_locks import LoopLocks
from pyggml.generation.scoring.methods import ScoringMethods, SharedScorer
from pyggml.generation.scoring.scorer import Scorer
from pyggml.generation.stream import Stream
from pyggml.importer.convert import Accept
from pyggml.isolation import Isolated
from pyggml.memory.llm_context import checked_n_ctx, generates, warn_if_untrained
from pyggml.memory.search import DeviceMemory
from pyggml.options import LoadOptions
from pyggml.options.adapter_choice import AdapterChoice, checked_lora
from pyggml.options.chat_defaults import chat_defaults, with_defaults
from pyggml.options.recommended import recommended
from pyggml.progress import progress_bar, source_name
from pyggml.tokenizer.hugging_face import tokenizer_for
from pyggml.types import Completion, EngineStats, SamplingParams
from pyggml.units import percent_text

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pyggml._keywords import ChatKeywords, SamplingOverrides
    from pyggml.chat.async_stream import AsyncChatStream
    from pyggml.generation.async_stream import AsyncStream


class LLM(
    BatchMethods,
    EmbeddingMethods,
    RerankMethods,
    ClassifyMethods,
    ScoringMethods,
    InfillMethods,
    SessionMethods,
    ClosableOwner,
    HintedObject,
):
    """A loaded model that generates text. Safe to call from any thread or task; requests are computed in batches.

    ``LLM("model.gguf")`` does the same as :func:`pyggml.load`. Close it, or use it as a context manager.

    Attributes:
        source: the path or reference that it was loaded from.
        model: the :class:`pyggml.Model`. Its ``path`` is the GGUF file in use: for an imported directory, a cached one.
        tokenizer: converts text to token ids and back; the model's own vocabulary, unless another was given.
        n_ctx: context size in tokens, shared by all running requests.
        n_parallel: maximum number of requests in a batch.
        memory: memory used by model and context on each device, main memory first; () if the model does not generate,
            since its contexts are created on demand.
        family: the model's :class:`~pyggml.Family`.
        stop_tokens: token id -> text of each token that ends a generation, the family's most common one first.
        recommended_sampling: SamplingParams recommended by the model's authors, from ``generation_config.json`` or
            ``general.sampling.*``; None: no recommendation. The default of chats, not of completions.
        chat_defaults: SamplingParams of chats that set none: those recommended, or else a temperature of 0.8.
    """

    _instead_of_a_copy = "share this one between threads and tasks; another process loads its own"
    _hints = hints("model")

    @takes(LoadOptions)
    def __init__(self, options: LoadOptions) -> None:
        """Load a model, or take over an open :class:`pyggml.Model`, and start an engine for it.

        Args and errors as :func:`pyggml.load`.
        """
        source = options.source
        if isinstance(source, Model):
            opened = model_loader.take_over(source, options)
            try:
                self._start(opened, options)
            finally:
                opened.release_draft(options)
            return
        isolated: Isolated | None = None
        with progress_bar(f"Loading {source_name(source)}", options.progress) as progress:
            options = replace(options, progress=progress)
            if options.isolate:
                path, tokenizer = model_loader.fetch_file(source, options, self._acceptance())
                options = model_loader.fetch_draft(options)
                isolated = Isolated(path, options)
                opened = model_loader.Opened(isolated.model, tokenizer, isolated.n_ctx)
            else:
                opened = model_loader.open_model(source, options, self._acceptance())
        try:
            self._start(opened, options, isolated)
        except BaseException:
            if isolated is not None:
                isolated.close()
            opened.model.close()
            raise
        finally:
            opened.release_draft(options)

    def _start(self, opened: model_loader.Opened, options: LoadOptions, isolated: Isolated | None = None) -> None:
        self.model = model = opened.model
        source = options.source
        self.source = model.path if source is None or isinstance(source, Model) else os.fspath(source)
        self.family: Family = self._family()
        self.stop_tokens: dict[int, str] = families.stop_tokens(model, self.family) if generates(model) else {}
        self.tokenizer = tokenizer_for(model, opened.tokenizer)
        self._own_templates = templates_or_none(model, options.chat_template)
        self.n_ctx = checked_n_ctx(model, opened.n_ctx)
        warn_if_untrained(model, self.n_ctx, options)
        self.n_parallel = options.n_parallel
        recommendation = recommended(model.metadata, self.n_ctx)
        for note in recommendation.notes:
            logger.warning("%s: %s", model.path, note)
        self.recommended_sampling = recommendation.params
        self.chat_defaults = with_defaults({}, chat_defaults(recommendation.params))
        self.memory: tuple[DeviceMemory, ...] = ()
        self._waits_for_capacity = options.queue_full == "wait"
        self._has_prefix_cache = options.prefix_cache
        self._isolated = isolated
        encoder = partial(
            GrowingContext,
            model,
            n_ctx=self.n_ctx,
            n_threads=options.n_threads,
            deterministic=options.deterministic,
            rope=options,
        )
        self._embedder = Embedder(model, self.tokenizer, self.n_ctx, isolated.passes if isolated else encoder)
        if isolated:
            self._embedder.adapters = isolated.adapters
        caches = {name: getattr(options, name) for name in ("n_threads", "cache_type", "type_k", "type_v")}
        make_scorer = partial(Scorer, model, **caches, **shared(options, RopeOptions))
        self._shared_scorer = None if isolated else SharedScorer(make_scorer, self.n_ctx)
        self._score_locks = LoopLocks()
        self._own_engine: Engine | None = None
        if generates(model) and isolated:
            self._own_engine, self.memory = isolated.engine(self.stop_tokens), isolated.memory
        elif generates(model):
            self._own_engine, self.memory = start_engine(model, options, self.n_ctx, self.stop_tokens, opened.draft)
        if self._own_engine is not None:
            self._embedder.adapters = self._own_engine.shared_adapters
        self._load_adapters(options)
        logger.info("loaded %s", repr(self))  # a record must not keep the model alive

    # --- completions --------------------------------------------------------------------------------------

    @with_hints("prompts")
    def generate(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        parse_special: bool = True,
        **overrides: Unpack[SamplingOverrides],
    ) -> Completion:
        """Generate a completion and return it when it is finished.

        Args:
            prompt: text (encoded with ``add_special``) or token ids.
            params: sampling parameters; None: greedy defaults.
            parse_special: interpret special tokens in a text, such as ``<|im_end|>``, so that you can write a prompt
                with its markup. False: they are plain text; use it for untrusted text.
            **overrides: fields of SamplingParams that replace those of ``params``.

        Raises:
            EmptyPromptError, ContextOverflowError: the prompt is empty or too long.
            InvalidParameterError, GrammarError: a parameter is invalid.
            QueueFullError: too many requests are waiting (``queue_full="raise"``).
            RequestTimeout: ``timeout_s`` passed while the queue was full (``queue_full="wait"``). A request that times
                out later returns the tokens generated so far.
            ClosedError: the model was closed, before or during this call.
            EngineError: the engine failed.
        """
        request = self._request(prompt, merge(params, overrides), parse_special, is_streamed=False)
        return Stream(request, self._engine.enqueue(request)).finish()

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        parse_special: bool = True,
        **overrides: Unpack[SamplingOverrides],
    ) -> Stream:
        """Generate a completion and yield its text as it is generated.

        Args and errors as :meth:`generate`; invalid arguments raise here, not at the first chunk.

        Returns:
            An iterator of Chunks. Closing or dropping it cancels the generation.
        """
        request = self._request(prompt, merge(params, overrides), parse_special)
        return Stream(request, self._engine.enqueue(request))

    async def agenerate(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        parse_special: bool = True,
        **overrides: Unpack[SamplingOverrides],
    ) -> Completion:
        """As :meth:`generate`, for coroutines. Cancelling the task cancels the generation."""
        return await self.astream(prompt, params, parse_special=parse_special, **overrides).finish()

    def astream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        parse_special: bool = True,
        **overrides: Unpack[SamplingOverrides],
    ) -> AsyncStream:
        """As :meth:`stream`, for coroutines; ``async with`` submits the request, or else the first chunk does.

        Invalid parameters and an empty prompt raise here, all other errors of a request where it is submitted.

        Returns:
            An asynchronous context manager and iterator of Chunks. Leaving, closing or dropping it, or cancelling the
            task that awaits it, cancels the generation.
        """
        from pyggml.generation.async_stream import AsyncStream  # imports asyncio, which takes long

        return AsyncStream(self._engine, self._request(prompt, merge(params, overrides), parse_special))

    @overload
    async def forward(
        self, prompt: Prompt, sample_len: int = ..., *, parse_special: bool = True, completion: Literal[False] = False
    ) -> str: ...

    @overload
    async def forward(
        self, prompt: Prompt, sample_len: int = ..., *, parse_special: bool = True, completion: Literal[True]
    ) -> Completion: ...

    @overload
    async def forward(
        self, prompt: Prompt, sample_len: int = ..., *, parse_special: bool = True, completion: bool
    ) -> str | Completion: ...

    @with_hints("forward")
    async def forward(
        self,
        prompt: Prompt,
        sample_len: int = SamplingParams.max_tokens,
        *,
        parse_special: bool = True,
        completion: bool = False,
    ) -> str | Completion:
        """Generate at most ``sample_len`` tokens greedily. Cancelling the task cancels the generation.

        Each call has a context of its own: nothing carries over from one to the next. Errors as :meth:`generate`.

        Args:
            prompt: as for :meth:`generate`.
            sample_len: maximum number of tokens.
            parse_special: as for :meth:`generate`.
            completion: return the Completion, with its finish reason and token counts, instead of only the text.
        """
        is_whole = flag("completion", completion)
        result = await self.agenerate(prompt, parse_special=parse_special, max_tokens=sample_len)
        return result if is_whole else result.text

    def logits(
        self, prompt: Prompt, *, adapter: AdapterChoice | None = None, parse_special: bool = True
    ) -> npt.NDArray[np.float32]:
        """Logits after every position of a prompt: float32, (n_tokens, n_vocab), owned by the caller.

        Errors as :meth:`generate`.

        Args:
            prompt: as for :meth:`generate`.
            adapter: as in SamplingParams.
            parse_special: as for :meth:`generate`.
        """
        ids = prompt_ids(prompt, self.tokenizer, parse_special)
        return self._engine.logits(ids, adapter=adapter, waits=self._waits_for_capacity)

    # --- adapters -----------------------------------------------------------------------------------------

    def load_adapter(self, source: str | os.PathLike[str], name: str | None = None, scale: float = 1.0) -> Adapter:
        """Load a LoRA adapter, which requests then name: ``generate(prompt, adapter="name")``.

        Requests may run meanwhile. Any number of adapters may be loaded, and requests with any of them run together
        (``docs/how-to/use-adapters.md``); :meth:`embed`, :meth:`rerank` and :meth:`score` take them, too.

        Args:
            source: a GGUF file, a PEFT directory, or a reference to either, as for :func:`pyggml.load`.
            name: its name in requests. None: the file's or the directory's, without suffix.
            scale: factor of its low-rank products in requests that give no other.

        Returns:
            The adapter. Closing it unloads it, after the requests that use it have ended.

        Raises:
            ModelNotFoundError, ModelLoadError: there is no such file, or it is not an adapter that can be applied.
            ArchitectureMismatchError: it belongs to another model.
            OutOfMemoryError: it does not fit.
            InvalidParameterError: there is already an adapter of that name, or an argument is of the wrong kind.
            InferError: as for :func:`pyggml.load`, if the source is a reference.
        """
        return load_adapter(self._embedder.adapters, self.model, source, name, scale)

    async def aload_adapter(
        self, source: str | os.PathLike[str], name: str | None = None, scale: float = 1.0
    ) -> Adapter:
        """As :meth:`load_adapter`, for coroutines: load in a thread. :meth:`Adapter.aclose` unloads it."""
        from asyncio import to_thread

        return await to_thread(self.load_adapter, source, name, scale)

    @property
    def adapters(self) -> dict[str, Adapter]:
        """Name -> adapter, in the order in which they were loaded."""
        return self._embedder.adapters.by_name()

    @property
    def default_adapters(self) -> Mapping[str, float]:
        """Name -> scale of the adapters of requests that name none, as long as they are open.

        Assign a name, such a mapping, or None.
        """
        return self._embedder.adapters.defaults

    @default_adapters.setter
    def default_adapters(self, choice: AdapterChoice | None) -> None:
        self._embedder.adapters.set_defaults(choice)

    # --- chat ---------------------------------------------------------------------------------------------

    if TYPE_CHECKING:

        @overload
        def chat(
            self,
            messages: Messages,
            tools: Tools | None = None,
            params: SamplingParams | None = None,
            *,
            n: None = None,
            **options: Unpack[ChatKeywords],
        ) -> ChatCompletion: ...

        @overload
        def chat(
            self,
            messages: Messages,
            tools: Tools | None = None,
            params: SamplingParams | None = None,
            *,
            n: int,
            **options: Unpack[ChatKeywords],
        ) -> list[ChatCompletion]: ...

    @overloaded_chat_method
    def chat(self, request: ChatRequest, n: int | None = None) -> ChatCompletion | list[ChatCompletion]:  # noqa: D417
        """Answer a conversation.

        Args:
            messages: the conversation so far: ChatMessages, or mappings in OpenAI's format. You can pass back the
                message of an earlier answer unchanged.
            tools: tools that the model may call: Python functions, or descriptions in OpenAI's format.
            params: sampling parameters, all of them; None: :attr:`chat_defaults`. ``stop`` strings apply to everything
                the model writes.
            tool_choice: "auto": call tools or answer; "none": only answer; "required": call at least one tool; or the
                name of the tool to call.
            parallel_tool_calls: allow several calls in one answer.
            thinking: False: a reasoning model should answer directly. None: the template's default.
            continue_final_message: continue the last message, which is the assistant's, instead of starting another;
                the answer has only the new text.
            chat_template: replaces the model's, by Jinja text, file or name; as for :meth:`LLM.chat_templates`.
            template_kwargs: additional variables for the template, such as ``{"reasoning_effort": "low"}``.
            parse_special: interpret special tokens in messages. False: ``<|im_end|>`` in a message is plain text and
                cannot end its turn, since messages, unlike prompts, often contain untrusted text.
            n: return a list of this many answers, which share the prompt's KV cache; seeds as for :meth:`generate_n`.
                None: return one answer.
            **overrides: fields of SamplingParams that replace those of ``params``. They also turn off defaults that
                contradict them.

        Returns:
            The answer. If it was cut off, for instance by ``max_tokens``, it may end within a tool call.

        Raises:
            InvalidParameterError: messages, tools or parameters are invalid, or the template rejects them.
            InferError: as :meth:`LLM.generate`.
        """
        request.is_streamed = False
        if n is not None:
            return of_one_prompt(request, n, self._engine).run(self._engine)
        return ChatStream(request, self._engine.enqueue(request)).finish()

    @chat_method
    def stream_chat(self, request: ChatRequest) -> ChatStream:
        """Answer a conversation, and yield the answer as it is generated.

        Args and errors as :meth:`chat`; invalid arguments raise here, not at the first chunk.

        Returns:
            An iterator of ChatChunks. Closing or dropping it cancels the generation.
        """
        return ChatStream(request, self._engine.enqueue(request))

    if TYPE_CHECKING:

        @overload
        async def achat(
            self,
            messages: Messages,
            tools: Tools | None = None,
            params: SamplingParams | None = None,
            *,
            n: None = None,
            **options: Unpack[ChatKeywords],
        ) -> ChatCompletion: ...

        @overload
        async def achat(
            self,
            messages: Messages,
            tools: Tools | None = None,
            params: SamplingParams | None = None,
            *,
            n: int,
            **options: Unpack[ChatKeywords],
        ) -> list[ChatCompletion]: ...

    @overloaded_chat_method
    async def achat(self, request: ChatRequest, n: int | None = None) -> ChatCompletion | list[ChatCompletion]:
        """As :meth:`chat`, for coroutines. Cancelling the task cancels the generation."""
        from asyncio import to_thread

        from pyggml.chat.async_stream import AsyncChatStream

        if n is None:
            return await AsyncChatStream(self._engine, request).finish()
        request.is_streamed = False
        return await (await to_thread(of_one_prompt, request, n, self._engine)).arun(self._engine)

    @chat_method
    def astream_chat(self, request: ChatRequest) -> AsyncChatStream:
        """As :meth:`stream_chat`, for coroutines; ``async with`` renders and submits, or else the first chunk does.

        Invalid messages, tools and parameters raise here, all other errors of a request where it is submitted.

        Returns:
            An asynchronous context manager and iterator of ChatChunks. Leaving, closing or dropping it, or cancelling
            the task that awaits it, cancels the generation.
        """
        from pyggml.chat.async_stream import AsyncChatStream

        return AsyncChatStream(self._engine, request)

    @chat_method
    def tokenize_chat(self, request: ChatRequest) -> list[int]:
        """Convert a conversation to the token ids of its prompt. Args and errors as :meth:`chat`."""
        return request.prompt_ids()

    # --- text ---------------------------------------------------------------------------------------------

    @with_hints("encoding")
    def tokenize(self, text: str, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Convert text to token ids. Args and errors as :meth:`Tokenizer.encode <pyggml.Tokenizer.encode>`."""
        return self.tokenizer.encode(text, add_special=add_special, parse_special=parse_special)

    @with_hints("decoding")
    def detokenize(self, token_ids: Sequence[int], *, remove_special: bool = True, unparse_special: bool = True) -> str:
        """Convert token ids to text. Args and errors as :meth:`Tokenizer.decode <pyggml.Tokenizer.decode>`."""
        return self.tokenizer.decode(token_ids, remove_special=remove_special, unparse_special=unparse_special)

    def chat_templates(self, chat_template: ChatTemplate | None = None) -> ChatTemplates:
        """Return the model's chat template, parsed at load time, or parse another one.

        It belongs to the caller: closing it does not affect the model, and it stays usable after the model is closed.

        Args:
            chat_template: Jinja text; a file with it; the name of one of the model's additional templates, or of a
                built-in one: "chatml", "llama3", "gemma", "mistral" ... A ChatTemplates is returned unchanged; pass one
                to avoid parsing a template repeatedly. None: the template that the model was loaded with, or its own.

        Raises:
            InvalidParameterError: there is no such template, or it cannot be parsed.
            ClosedError: the model was closed.
        """
        if isinstance(chat_template, ChatTemplates):
            return chat_template
        if chat_template is None:
            return self._own_templates.shared() if self._own_templates else ChatTemplates(self.model)
        return ChatTemplates(self.model, chat_template)

    def apply_chat_template(
        self,
        messages: Messages,
        tools: Tools | None = None,
        add_generation_prompt: bool = True,
        chat_template: ChatTemplate | None = None,
        **kwargs: Any,
    ) -> str:
        """Render messages in the format that the model was trained on.

        Pass the result to ``tokenize`` or ``generate``; it omits the BOS token if they add one.

        Args:
            messages: as for :meth:`chat`.
            tools: as for :meth:`chat`.
            add_generation_prompt: end with the start of the assistant's turn.
            chat_template: replaces the model's; as for :meth:`chat_templates`.
            **kwargs: variables for the template, such as ``enable_thinking=False``, or a mapping of them as
                ``template_kwargs``. ``thinking`` is as for :meth:`chat`. ``tokenize=False``, as for transformers, has
                no effect.

        Raises:
            InvalidParameterError: there is no template, the messages are malformed, or the template rejects them.
            UnknownParameterError: a variable is a parameter of transformers' method of this name.
        """
        thinking = kwargs.pop("thinking", None)
        prompt = self.chat_templates(chat_template).render(
            checked_messages(messages),
            tools=[tool.as_json() for tool in checked_tools(tools).values()],
            add_generation_prompt=add_generation_prompt,
            thinking=thinking,
            template_kwargs=_variables(kwargs),
        )
        return prompt.text

    # --- state --------------------------------------------------------------------------------------------

    @property
    def metadata(self) -> dict[str, str]:
        """The GGUF file's scalar metadata, as strings."""
        return self.model.metadata

    def stats(self) -> EngineStats:
        """The engine's counters. Never waits for a forward pass."""
        return self._engine.stats()

    def reset(self) -> None:
        """Clear the prefix cache. Running requests are not affected."""
        self._engine.reset()

    def close(self) -> None:
        """End running requests (their callers get ClosedError) and free engine and model. Safe to call again."""
        if self._shared_scorer is not None:  # before the engine, whose adapters it uses
            self._shared_scorer.close()
        if self._own_engine is not None:
            self._own_engine.close()
        self._embedder.close()
        if self._isolated is not None:
            self._isolated.close()
        if self._own_templates is not None:
            self._own_templates.close()
        self.model.close()

    def __repr__(self) -> str:
        facts = f"{self.model.desc}, {self.family.name}, n_ctx={self.n_ctx}, n_parallel={self.n_parallel}"
        facts += f", {self.where}" if self.where else ""
        return f"{type(self).__name__}({self.source!r}: {facts}{', closed' * self.model._is_closed})"

    @property
    def where(self) -> str:
        """Location of weights and KV cache: "on CPU", "94% on CUDA0, 6% on CPU" ...; "" if ``memory`` is empty."""
        sizes = {device.name: device.weights_bytes + device.cache_bytes for device in self.memory}
        used = sorted((name for name in sizes if sizes[name]), key=sizes.__getitem__, reverse=True)
        if len(used) == 1:
            return f"on {used[0]}"
        return ", ".join(f"{percent_text(sizes[name] / sum(sizes.values()))} on {name}" for name in used)

    # --- inside -------------------------------------------------------------------------------------------

    def _acceptance(self) -> Accept | None:
        """A check that refuses files by their metadata, before the weights load; None: accept any file."""
        return None

    def _load_adapters(self, options: LoadOptions) -> None:
        """Load the adapters of the option ``lora``, for all requests that name none. 0 only loads one."""
        given = checked_lora(options.lora)
        try:
            loaded = {self.load_adapter(source, name, scale or 1.0).name: scale for source, name, scale in given}
            if loaded:
                self.default_adapters = loaded
        except BaseException:
            if self._own_engine is not None:
                self._own_engine.close()
            self._embedder.close()
            raise

    def _family(self) -> Family:
        return families.of_model(self.model).family

    @property
    def _engine(self) -> Engine:
        if self._own_engine is None:
            raise UnsupportedArchitectureError(
                f"{self.model.desc} ({self.model.path}) does not generate text token by token: use embed() or rerank() "
                "with an encoder, or Context with any model"
            )
        return self._own_engine

    def _request(
        self, prompt: Prompt, params: SamplingParams, parse_special: bool, *, is_streamed: bool = True
    ) -> PromptRequest:
        flags = {"is_streamed": is_streamed, "waits_for_capacity": self._waits_for_capacity}
        return PromptRequest(prompt, params, self.tokenizer, parse_special=parse_special, **flags)

    @cached_property
    def _special_texts(self) -> SpecialTexts:
        return SpecialTexts(self.tokenizer)


def _variables(given: dict[str, Any]) -> dict[str, Any]:
    """A template's variables, without the parameters of transformers' method that are turned off."""
    others = hints("template")
    reject_parameters((name for name, value in given.items() if value), others)
    variables = {name: value for name, value in given.items() if name not in others}
    for name in ("template_kwargs", "chat_template_kwargs"):
        if isinstance(variables.get(name), Mapping):
            variables |= variables.pop(name)
    return variables


LLM.chat.completions = Completions()  # type: ignore[attr-defined]  # as OpenAI's client has "create"
