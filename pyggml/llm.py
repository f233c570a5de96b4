"""LLM: a model, its engine and its tokenizer in one object, which is all that most users need."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence, Sized
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import numpy.typing as npt

from pyggml import chat, families, loading
from pyggml._fields import takes
from pyggml._native import INT32_MAX, UINT32_MAX, integer
from pyggml._owner import Owner
from pyggml.chat import ChatTemplates
from pyggml.chat.chatting import ChatTemplate, Chatting, Messages, Tools
from pyggml.chat.messages import checked_messages
from pyggml.chat.tools import checked as checked_tools
from pyggml.context import Context
from pyggml.embedding import Embedder, Pooling, Text
from pyggml.errors import InvalidParameterError, UnsupportedArchitectureError
from pyggml.families import Family
from pyggml.generation import bulk
from pyggml.generation.engine import Engine
from pyggml.generation.job import Job, Prompt, prompt_ids
from pyggml.generation.params import merge, without_schema
from pyggml.generation.stream import Stream
from pyggml.importer.convert import Accept
from pyggml.memory.llm_context import checked_n_ctx, context_options, generates
from pyggml.model import Model
from pyggml.options import LoadOptions
from pyggml.tokenizer.hugging_face import tokenizer_for
from pyggml.types import Completion, EngineStats, SamplingParams

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from pyggml._keywords import SamplingOverrides
    from pyggml.generation.astream import AsyncStream


class LLM(Owner, Chatting):
    """A loaded model that generates text. Safe to call from any thread or task; requests are computed together.

    ``LLM("model.gguf")`` does the same as :func:`pyggml.load`. Close it, or use it as a context manager.

    Attributes:
        model: the :class:`~pyggml.model.Model`.
        tokenizer: converts text to token ids and back; the model's own vocabulary, unless another was given.
        n_ctx: context size in tokens, shared by all running requests.
        n_parallel: number of requests computed together.
        family: the model's :class:`~pyggml.families.Family`.
        stop_tokens: token id -> text of each token that ends a generation, the family's most common one first.
    """

    _instead_of_a_copy = "share this one between threads and tasks; another process loads its own"

    @takes(LoadOptions)
    def __init__(self, options: LoadOptions) -> None:
        """Loads a model, or takes over an open :class:`~pyggml.model.Model`, and starts an engine for it.

        Args and errors as :func:`pyggml.load`.
        """
        source = options.source
        if isinstance(source, Model):
            self._start(loading.take_over(source, options), options)
            return
        opened = loading.open_model(source, options, self._acceptance())
        try:
            self._start(opened, options)
        except BaseException:
            opened.model.close()
            raise

    def _start(self, opened: loading.Opened, options: LoadOptions) -> None:
        self.model = model = opened.model
        self.family: Family = self._family()
        self.stop_tokens: dict[int, str] = families.stop_tokens(model, self.family) if generates(model) else {}
        self.tokenizer = tokenizer_for(model, opened.tokenizer)
        self._own_templates = _own_templates(model)
        self.n_ctx = checked_n_ctx(model, opened.n_ctx)
        self.n_parallel = options.n_parallel
        self._waits = options.queue_full == "wait"
        self._embedder = Embedder(model, self.tokenizer, n_ctx=self.n_ctx, n_threads=options.n_threads)
        self._own_engine = self._new_engine(options) if generates(model) else None

    def _new_engine(self, options: LoadOptions) -> Engine:
        context = Context(self.model, **vars(context_options(options, self.n_ctx)))
        reproducible = options.n_parallel == 1 and not options.prefix_cache
        try:
            return Engine(
                context,
                self.n_ctx,
                prefix_cache=options.prefix_cache,
                max_queue=options.max_queue,
                adapt_threads=options.n_threads is None and not reproducible,
                stop_token_ids=self.stop_tokens,
            )
        except BaseException:
            context.close()
            raise

    def _acceptance(self) -> Accept | None:
        """A check that refuses files by their metadata, before the weights load; None: accept any file."""
        return None

    # --- generation ---------------------------------------------------------------------------------------

    def generate(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        parse_special: bool = True,
        **overrides: Unpack[SamplingOverrides],
    ) -> Completion:
        """Generates a completion and returns it when it is finished.

        Args:
            prompt: text (encoded with ``add_special``) or token ids.
            params: sampling parameters; None: greedy defaults.
            parse_special: read special tokens that a text spells, such as ``<|im_end|>``, as those tokens, so that you
                can write a prompt with its markup. False, for text from strangers: they are plain text.
            **overrides: fields of SamplingParams that replace those of ``params``.

        Raises:
            EmptyPromptError, ContextOverflowError: the prompt is empty or too long.
            InvalidParameterError, GrammarError: a parameter is invalid.
            QueueFullError: too many requests are waiting (``queue_full="raise"``).
            RequestTimeout: ``timeout_s`` passed before there was room in the queue (``queue_full="wait"``). A request
                that times out later returns what it has.
            ClosedError: the model was closed, before or during this call.
            EngineError: the engine failed.
        """
        job = self._job(prompt, merge(params, overrides), parse_special).unwatched()
        return Stream(job, job.queue()).finish()

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        parse_special: bool = True,
        **overrides: Unpack[SamplingOverrides],
    ) -> Stream:
        """Generates a completion and yields its text as it is generated.

        Args and errors as :meth:`generate`; invalid arguments raise here, not at the first chunk.

        Returns:
            An iterator of Chunks. Closing or dropping it cancels the generation.
        """
        job = self._job(prompt, merge(params, overrides), parse_special)
        return Stream(job, job.queue())

    async def agenerate(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        parse_special: bool = True,
        **overrides: Unpack[SamplingOverrides],
    ) -> Completion:
        """As :meth:`generate`, for coroutines. Cancelling the task cancels the generation."""
        from pyggml.generation.astream import AsyncStream  # loads asyncio, which would make "import pyggml" much slower

        return await AsyncStream(self._job(prompt, merge(params, overrides), parse_special).unwatched()).finish()

    def astream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        parse_special: bool = True,
        **overrides: Unpack[SamplingOverrides],
    ) -> AsyncStream:
        """As :meth:`stream`, for coroutines; the request is submitted when the first chunk is awaited.

        Unknown or invalid parameters and an empty prompt raise here, other errors at the first chunk.

        Returns:
            An asynchronous iterator of Chunks, and an asynchronous context manager. Closing or dropping it, or
            cancelling the task that iterates, cancels the generation.
        """
        from pyggml.generation.astream import AsyncStream

        return AsyncStream(self._job(prompt, merge(params, overrides), parse_special))

    def generate_batch(
        self,
        prompts: Iterable[Prompt],
        params: SamplingParams | None = None,
        *,
        parse_special: bool = True,
        progress: bulk.Progress | None = None,
        **overrides: Unpack[SamplingOverrides],
    ) -> list[Completion]:
        """Generates a completion for each of many prompts, and returns them in the order of the prompts.

        At most twice ``n_parallel`` requests are in flight at a time, so thousands of prompts need no more memory than
        their results. If the queue is full, this waits for room, whatever ``queue_full`` is; each prompt's
        ``timeout_s`` counts from its submission.

        Args:
            prompts: any iterable, read as the work proceeds.
            params: used for every prompt.
            parse_special: as for :meth:`generate`.
            progress: called on this thread after each completion, with the number of completions so far and the number
                of prompts (None if ``prompts`` has no length).
            **overrides: as for :meth:`generate`.

        Raises:
            As :meth:`generate`, for the first prompt that fails; the others are cancelled and their results lost. On
            Python 3.11 and later a note says which prompt it was. An exception from ``progress`` or ``prompts`` has the
            same effect.
        """
        jobs = self._numbered_jobs(prompts, merge(params, overrides), parse_special)
        results = bulk.Results(_n_total(prompts), progress)
        bulk.run(self._engine, jobs, 2 * self.n_parallel, results)
        return results.in_order()

    async def agenerate_batch(
        self,
        prompts: Iterable[Prompt],
        params: SamplingParams | None = None,
        *,
        parse_special: bool = True,
        progress: bulk.Progress | None = None,
        **overrides: Unpack[SamplingOverrides],
    ) -> list[Completion]:
        """As :meth:`generate_batch`, for coroutines; ``prompts`` is read and ``progress`` called in the event loop."""
        import asyncio

        params = merge(params, overrides)
        if params.json_schema is not None:
            params = await asyncio.to_thread(without_schema, params)
        jobs = self._numbered_jobs(prompts, params, parse_special)
        results = bulk.Results(_n_total(prompts), progress)
        await bulk.arun(jobs, 2 * self.n_parallel, results)
        return results.in_order()

    def generate_n(
        self,
        prompt: Prompt,
        n: int,
        params: SamplingParams | None = None,
        *,
        parse_special: bool = True,
        **overrides: Unpack[SamplingOverrides],
    ) -> list[Completion]:
        """Generates ``n`` completions of one prompt, which is computed once and shared.

        The first completion computes the prompt, and the others start from its cache, as their ``cached_tokens`` show.
        If the prompt is short (about thirty tokens), they do not wait for the first but compute it themselves. With
        ``prefix_cache=False``, and for models whose memory cannot be shared (recurrent ones), each completion computes
        the whole prompt.

        At most twice ``n_parallel`` requests are in flight at a time. If the queue is full, this waits for room,
        whatever ``queue_full`` is; each completion's ``timeout_s`` counts from its submission.

        Args:
            prompt: as for :meth:`generate`.
            n: number of completions, at least 1.
            params: used for all completions. With a ``seed``, they use that seed, the next one, and so on; without,
                each gets a random seed. Greedy completions are all the same.
            parse_special: as for :meth:`generate`.
            **overrides: as for :meth:`generate`.

        Raises:
            As :meth:`generate`.
        """
        jobs = self._same_jobs(prompt, n, merge(params, overrides), parse_special)
        results = bulk.Results(n, None, what="completion")
        bulk.run(self._engine, enumerate(jobs), 2 * self.n_parallel, results)
        return _with_prompt_logprobs(results.in_order())

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
        import asyncio

        jobs = await asyncio.to_thread(self._same_jobs, prompt, n, merge(params, overrides), parse_special)
        results = bulk.Results(n, None, what="completion")
        await bulk.arun(enumerate(jobs), 2 * self.n_parallel, results)
        return _with_prompt_logprobs(results.in_order())

    @overload
    async def forward(
        self, prompt: Prompt, sample_len: int, *, parse_special: bool = True, completion: Literal[False] = False
    ) -> str: ...

    @overload
    async def forward(
        self, prompt: Prompt, sample_len: int, *, parse_special: bool = True, completion: Literal[True]
    ) -> Completion: ...

    @overload
    async def forward(
        self, prompt: Prompt, sample_len: int, *, parse_special: bool = True, completion: bool
    ) -> str | Completion: ...

    async def forward(
        self, prompt: Prompt, sample_len: int, *, parse_special: bool = True, completion: bool = False
    ) -> str | Completion:
        """Generates at most ``sample_len`` tokens greedily. Cancelling the task cancels the generation.

        Args:
            prompt: as for :meth:`generate`.
            sample_len: maximum number of tokens.
            parse_special: as for :meth:`generate`.
            completion: return the whole Completion, with the reason why it ended and the counts of tokens, instead of
                only its text.

        Raises:
            As :meth:`generate`.
        """
        result = await self.agenerate(prompt, parse_special=parse_special, max_tokens=sample_len)
        return result if completion else result.text

    def logits(self, prompt: Prompt, *, parse_special: bool = True) -> npt.NDArray[np.float32]:
        """Logits after every position of a prompt: float32, (n_tokens, n_vocab), owned by the caller.

        ``parse_special`` is that of :meth:`generate`.

        Raises:
            As :meth:`generate`.
        """
        return self._engine.logits(prompt_ids(prompt, self.tokenizer, parse_special), waits=self._waits)

    # --- embeddings ---------------------------------------------------------------------------------------

    def embed(
        self,
        texts: str | Sequence[Text],
        *,
        normalize: bool = False,
        pooling: Pooling | None = None,
        parse_special: bool = True,
    ) -> npt.NDArray[np.float32]:
        """Embeds texts, several at a time, in a separate context, so generation continues meanwhile.

        Calls from several threads take turns.

        Args:
            texts: one text or a sequence of texts: str (encoded with ``add_special``) or token ids.
            normalize: scale each vector to length 1, so that dot products are cosines.
            pooling: how to combine the embeddings of a text's tokens: their "mean", the first ("cls") or the "last".
                None: as the file says (``<arch>.pooling_type``), or the mean if it says nothing.
            parse_special: as for :meth:`generate`.

        Returns:
            float32, (n_texts, model.n_embd_out), in the order of ``texts``; a single text gives one row.

        Raises:
            EmptyPromptError: a text has no tokens.
            ContextOverflowError: a text is longer than ``n_ctx``; names its index and both lengths.
            InvalidParameterError: an argument is invalid, or a token id is outside the vocabulary.
            UnsupportedArchitectureError: the model has an encoder and a decoder.
            OutOfMemoryError: the context does not fit; names required and available bytes.
            ClosedError: the model was closed.
        """
        return self._embedder.embed(texts, normalize=normalize, pooling=pooling, parse_special=parse_special)

    async def aembed(
        self,
        texts: str | Sequence[Text],
        *,
        normalize: bool = False,
        pooling: Pooling | None = None,
        parse_special: bool = True,
    ) -> npt.NDArray[np.float32]:
        """As :meth:`embed`, for coroutines. Cancelling the task stops the work after the current forward pass."""
        embedder = self._embedder
        return await embedder.in_background(
            embedder.embed, texts, normalize=normalize, pooling=pooling, parse_special=parse_special
        )

    def rerank(self, query: str, documents: Sequence[str], *, normalize: bool = False) -> npt.NDArray[np.float32]:
        """Scores how well each document answers a query, using the model's classifier head; higher is better.

        Each pair is formatted by the model's "rerank" template. Without one, it is ``BOS query EOS SEP document EOS``,
        with only those special tokens that the vocabulary adds to texts. Special tokens that query or documents spell
        are plain text, as in a chat.

        Args:
            query: the question.
            documents: the texts to score.
            normalize: return the sigmoid of each score, 0 to 1; for heads with one output.

        Returns:
            float32, (n_documents,), in the order of ``documents``: the head's first output.

        Raises:
            InvalidParameterError: the model has no classifier head, or an argument is invalid.
            Otherwise as :meth:`embed`; the length limit applies to query and document together.
        """
        return self._embedder.rerank(query, documents, normalize=normalize)

    async def arerank(
        self, query: str, documents: Sequence[str], *, normalize: bool = False
    ) -> npt.NDArray[np.float32]:
        """As :meth:`rerank`, for coroutines. Cancelling the task stops the work after the current forward pass."""
        embedder = self._embedder
        return await embedder.in_background(embedder.rerank, query, documents, normalize=normalize)

    def reset(self) -> None:
        """Clears the prefix cache. Running requests are not affected."""
        self._engine.reset()

    # --- text ---------------------------------------------------------------------------------------------

    def tokenize(self, text: str, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Converts text to token ids; see :meth:`Tokenizer.encode <pyggml.tokenizer.Tokenizer.encode>`."""
        return self.tokenizer.encode(text, add_special=add_special, parse_special=parse_special)

    def detokenize(self, token_ids: Sequence[int], *, remove_special: bool = True, unparse_special: bool = True) -> str:
        """Converts token ids to text; see :meth:`Tokenizer.decode <pyggml.tokenizer.Tokenizer.decode>`."""
        return self.tokenizer.decode(token_ids, remove_special=remove_special, unparse_special=unparse_special)

    def chat_templates(self, chat_template: ChatTemplate | None = None) -> ChatTemplates:
        """Returns the model's own chat template, which was parsed at load time, or parses another one.

        Args:
            chat_template: Jinja text, the path of a file containing it, or the name of one of the model's additional
                templates. A ChatTemplates is returned unchanged; pass one to avoid parsing a template repeatedly.

        Raises:
            InvalidParameterError: there is no such template, or it cannot be parsed.
            ClosedError: the model was closed.
        """
        if isinstance(chat_template, ChatTemplates):
            return chat_template
        if chat_template is None:
            return self._own_templates or ChatTemplates(self.model)
        return ChatTemplates(self.model, chat.template_text(chat_template))

    def apply_chat_template(
        self,
        messages: Messages,
        tools: Tools | None = None,
        add_generation_prompt: bool = True,
        chat_template: ChatTemplate | None = None,
        **kwargs: Any,
    ) -> str:
        """Renders messages in the format that the model was trained on.

        ``tokenize`` and ``generate`` read it as it is meant; it omits the BOS token if they add one.

        Args:
            messages: as for :meth:`chat`.
            tools: as for :meth:`chat`.
            add_generation_prompt: end with the start of the assistant's turn.
            chat_template: replaces the model's own; as for :meth:`chat_templates`.
            **kwargs: variables for the template, such as ``enable_thinking=False``.

        Raises:
            InvalidParameterError: there is no template, the messages are malformed, or the template rejects them.
        """
        templates = self.chat_templates(chat_template)
        return templates.render(
            checked_messages(messages),
            tools=[tool.as_json() for tool in checked_tools(tools).values()],
            add_generation_prompt=add_generation_prompt,
            template_kwargs=kwargs,
        ).text

    # --- about --------------------------------------------------------------------------------------------

    @property
    def metadata(self) -> dict[str, str]:
        """The GGUF file's scalar metadata, as strings."""
        return self.model.metadata

    def stats(self) -> EngineStats:
        """The engine's counters. Never waits for a forward pass."""
        return self._engine.stats()

    def close(self) -> None:
        """Ends running requests (their callers get ClosedError) and frees engine and model. Safe to call again."""
        if self._own_engine is not None:
            self._own_engine.close()
        self._embedder.close()
        if self._own_templates is not None:
            self._own_templates.close()
        self.model.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        shape = f"n_ctx={self.n_ctx}, n_parallel={self.n_parallel}"
        return f"{type(self).__name__}({self.family.name}, {shape}, {self.model!r})"

    # --- inside -------------------------------------------------------------------------------------------

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

    def _job(self, prompt: Prompt, params: SamplingParams, parse_special: bool, *, waits: bool | None = None) -> Job:
        waits = self._waits if waits is None else waits
        return Job(self._engine, self.tokenizer, prompt, params, parse_special=parse_special, waits=waits)

    def _same_jobs(self, prompt: Prompt, n: int, params: SamplingParams, parse_special: bool) -> list[Job]:
        token_ids, params = prompt_ids(prompt, self.tokenizer, parse_special), without_schema(params)
        all_params = [_nth(params, index) for index in range(integer("n", n, 1, INT32_MAX))]
        return [self._job(token_ids, each, parse_special, waits=True).unwatched() for each in all_params]

    def _numbered_jobs(
        self, prompts: Iterable[Prompt], params: SamplingParams, parse_special: bool
    ) -> bulk.NumberedJobs:
        if isinstance(prompts, (str, bytes)) or not isinstance(prompts, Iterable):
            raise InvalidParameterError(
                f"prompts must be an iterable of prompts, not {type(prompts).__name__}: put a single one in a list"
            )
        params = without_schema(params)  # once, not for each prompt
        return bulk.jobs(prompts, lambda prompt: self._job(prompt, params, parse_special, waits=True).unwatched())


def _nth(params: SamplingParams, index: int) -> SamplingParams:
    """The parameters for completion ``index`` of one prompt: its own seed; the prompt's logprobs only at index 0."""
    if index == 0:
        return params
    seed = None if params.seed is None else (params.seed + index) % UINT32_MAX
    return dataclasses.replace(params, seed=seed, prompt_logprobs=0)


def _with_prompt_logprobs(completions: list[Completion]) -> list[Completion]:
    """Copies the prompt's logprobs from the first completion to all of them."""
    logprobs = completions[0].prompt_logprobs
    return completions if logprobs is None else [dataclasses.replace(c, prompt_logprobs=logprobs) for c in completions]


def _own_templates(model: Model) -> ChatTemplates | None:
    """The model's template; None if it is missing or invalid, which is an error only once somebody chats."""
    try:
        return ChatTemplates(model)
    except InvalidParameterError:
        return None


def _n_total(prompts: Iterable[Prompt]) -> int | None:
    return len(prompts) if isinstance(prompts, Sized) else None


@takes(LoadOptions)
def load(options: LoadOptions) -> LLM:  # noqa: D417
    """Loads a model, ready to generate. ``LLM(...)`` does the same.

    With ``n_parallel=1, prefix_cache=False``, the same prompt always gives bit-identical results, because each request
    is computed alone and from scratch. Otherwise, sharing a batch or reusing a prefix changes the order of some sums,
    and occasionally the last bit decides between two tokens.

    Args:
        source: a model's file, directory or reference, or an open Model. A file is a ``.gguf`` file (the first of a
            split set); a Hugging Face directory is imported on first use; a reference, ``hf:org/repo`` or
            ``hf:org/repo:file.gguf``, is downloaded on first use. None: the small demonstration model that ships with
            pyggml.
        tokenizer: a tokenizer.json, a tokenizer.model, or a directory with one; or a tokenizer object. None: the
            one in the model's file.
        device: "auto" (GPUs this build can use, else the CPU), "cpu", "gpu", "cuda", "cuda:1", "metal" ... An index
            counts from 0; without one it is the first. "gpu" is a GPU of any kind; an error if there is none.
        n_ctx: context size in tokens, prompts and answers together; "auto": as large as fits. All running requests
            share it, and a request that runs alone may use all of it. None: the model's training length, at most 8,192.
            "auto": the training length, or less if needed to leave a tenth of the available memory free.
        n_parallel: number of requests computed together; the others wait their turn. 1 to 256.
        n_batch: maximum number of tokens in a forward pass; at least n_parallel.
        n_ubatch: maximum number of tokens computed at once within a forward pass.
        n_gpu_layers: number of layers on the GPU; "auto": as many as fit. None: all of them. "auto" leaves a tenth of
            the GPU's memory free; with ``n_ctx="auto"`` too, layers are placed first, assuming a context of the default
            size, which then grows.
        cache_type: element type of the key-value cache: "f32", "f16", "bf16", "q8_0", "q4_0" ...
        n_threads: number of compute threads. None: the engine measures its speed and adapts as other programs claim or
            release cores; in the bit-reproducible mode it uses one per core, since another number would change the
            order of sums. A number you give is kept.
        prefix_cache: keep the work of finished requests for prompts with the same beginning, while there is room.
        max_queue: maximum number of waiting requests. None: no limit.
        queue_full: "raise" refuses a request when the queue is full; "wait" waits for room. A refused request raises
            QueueFullError; a waiting one gives up after its ``timeout_s``.
        progress: called with 0..1 while loading: while files are downloaded, again while a directory is imported, and
            again while the weights load. Returning False stops it.

    Raises:
        ModelNotFoundError, ModelLoadError, UnsupportedArchitectureError: the file or directory cannot be loaded.
        DownloadError: the download failed.
        MissingPackageError: downloading needs ``huggingface_hub``, which is not installed.
        DiskFullError: there is no room for the download or the import.
        DeviceError: there is no such device.
        OutOfMemoryError: the model does not fit; names required and available bytes, and what would fit. Raised before
            the weights are read.
        InvalidParameterError: an argument is out of range.
        TokenizerError: the vocabulary has no stop token, or ``tokenizer`` does not belong to this model.
        TokenizerNotFoundError: there is no tokenizer at that path.
    """
    return LLM(**vars(options))
