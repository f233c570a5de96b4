"""LLM: a model, its engine and its tokenizer, in one object that most users never look behind."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence, Sized
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pyggml import chat, families, loading
from pyggml._fields import takes
from pyggml._native import INT32_MAX, UINT32_MAX, integer
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
from pyggml.generation.job import Job, Prompt, merge, prompt_ids, without_schema
from pyggml.generation.stream import Stream
from pyggml.importer.cache import Accept
from pyggml.memory.llm_context import checked_n_ctx, context_options, generates
from pyggml.model import Model
from pyggml.options import LoadOptions
from pyggml.tokenizer.hugging_face import tokenizer_for
from pyggml.types import Completion, EngineStats, SamplingParams

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from pyggml._keywords import SamplingOverrides
    from pyggml.generation.astream import AsyncStream


class LLM(Chatting):
    """A loaded model that generates. Any thread and any task may call it; requests are computed together.

    ``LLM("model.gguf")`` does the same as :func:`pyggml.load`. Close it, or use it as a context manager.

    Attributes:
        model: the :class:`~pyggml.model.Model`.
        tokenizer: turns text to token ids and back: its vocabulary, unless another was given.
        n_ctx: cells of the context, which all running requests share.
        n_parallel: requests computed together.
        family: the :class:`~pyggml.families.Family` it was found to be of.
        stop_tokens: token id -> text of each token that ends a generation, the family's most usual one first.
    """

    @takes(LoadOptions)
    def __init__(self, options: LoadOptions) -> None:
        """Loads a model and starts an engine for it, or takes over a :class:`~pyggml.model.Model` that is open already.

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
            )
        except BaseException:
            context.close()
            raise

    def _acceptance(self) -> Accept | None:
        """What refuses a file by its metadata, before its weights load; None: any file will do."""
        return None

    # --- generation ---------------------------------------------------------------------------------------

    def generate(
        self, prompt: Prompt, params: SamplingParams | None = None, **overrides: Unpack[SamplingOverrides]
    ) -> Completion:
        """Generates to the end and returns it all.

        Args:
            prompt: text (encoded with ``add_special``, special tokens in it read as plain text) or token ids.
            params: how to sample; None: greedy defaults.
            **overrides: fields of SamplingParams that replace those of ``params``.

        Raises:
            EmptyPromptError, ContextOverflowError: the prompt.
            InvalidParameterError, GrammarError: the parameters.
            QueueFullError: too many requests are waiting (``queue_full="raise"``).
            RequestTimeout: ``timeout_s`` was over before there was room in the queue (``queue_full="wait"``). One
                that times out later returns what it has.
            ClosedError: the model was closed, also while this call was waiting.
            EngineError: the engine failed.
        """
        job = self._job(prompt, merge(params, overrides)).unwatched()
        return Stream(job, job.queue()).finish()

    def stream(
        self, prompt: Prompt, params: SamplingParams | None = None, **overrides: Unpack[SamplingOverrides]
    ) -> Stream:
        """Generates and hands out the text as it comes.

        Args and errors as :meth:`generate`; errors of the arguments are raised here, not at the first chunk.

        Returns:
            An iterator of Chunks. Closing or dropping it cancels the generation.
        """
        job = self._job(prompt, merge(params, overrides))
        return Stream(job, job.queue())

    async def agenerate(
        self, prompt: Prompt, params: SamplingParams | None = None, **overrides: Unpack[SamplingOverrides]
    ) -> Completion:
        """As :meth:`generate`, for coroutines. Cancelling the task cancels the generation."""
        from pyggml.generation.astream import AsyncStream  # loads asyncio, half of the time "import pyggml" would take

        return await AsyncStream(self._job(prompt, merge(params, overrides)).unwatched()).finish()

    def astream(
        self, prompt: Prompt, params: SamplingParams | None = None, **overrides: Unpack[SamplingOverrides]
    ) -> AsyncStream:
        """As :meth:`stream`, for coroutines; the request is made when the first chunk is awaited.

        An unknown or impossible parameter and an empty text are raised here, the rest at the first chunk.

        Returns:
            An asynchronous iterator of Chunks, and an asynchronous context manager. Closing or dropping it, or
            cancelling the task that iterates, cancels the generation.
        """
        from pyggml.generation.astream import AsyncStream

        return AsyncStream(self._job(prompt, merge(params, overrides)))

    def generate_batch(
        self,
        prompts: Iterable[Prompt],
        params: SamplingParams | None = None,
        *,
        progress: bulk.Progress | None = None,
        **overrides: Unpack[SamplingOverrides],
    ) -> list[Completion]:
        """Generates for many prompts, and returns the completions in their order.

        Twice ``n_parallel`` of them are in flight at any time, so thousands take no more memory than their results. It
        waits for room where other callers fill the queue, whatever ``queue_full`` says; ``timeout_s`` counts for each
        prompt from its submission.

        Args:
            prompts: any iterable, taken as the work goes on.
            params: for all of them.
            progress: called with the number of completions, and of prompts where ``len`` tells it (else None), after
                each; on this thread.
            **overrides: as for :meth:`generate`.

        Raises:
            As :meth:`generate`, for the first prompt that fails; the others are cancelled, and their results lost. On
            Python 3.11 and later a note says which it was. What ``progress`` or ``prompts`` raise has the same effect.
        """
        jobs = self._numbered_jobs(prompts, merge(params, overrides))
        results = bulk.Results(_n_total(prompts), progress)
        bulk.run(self._engine, jobs, 2 * self.n_parallel, results)
        return results.in_order()

    async def agenerate_batch(
        self,
        prompts: Iterable[Prompt],
        params: SamplingParams | None = None,
        *,
        progress: bulk.Progress | None = None,
        **overrides: Unpack[SamplingOverrides],
    ) -> list[Completion]:
        """As :meth:`generate_batch`, for coroutines; ``prompts`` and ``progress`` run in the event loop."""
        import asyncio

        params = merge(params, overrides)
        if params.json_schema is not None:
            params = await asyncio.to_thread(without_schema, params)
        jobs = self._numbered_jobs(prompts, params)
        results = bulk.Results(_n_total(prompts), progress)
        await bulk.arun(jobs, 2 * self.n_parallel, results)
        return results.in_order()

    def generate_n(
        self, prompt: Prompt, n: int, params: SamplingParams | None = None, **overrides: Unpack[SamplingOverrides]
    ) -> list[Completion]:
        """Generates ``n`` completions of one prompt, which is computed once and shared.

        The first computes the prompt, and the others start from its cache: their ``cached_tokens`` say so. A prompt of
        some thirty tokens or fewer is not waited for but computed beside the first. With ``prefix_cache=False``, and
        models whose memory cannot be shared (recurrent ones), each computes the prompt for itself.

        Twice ``n_parallel`` of them are in flight at any time. It waits for room where other callers fill the queue,
        whatever ``queue_full`` says; ``timeout_s`` counts for each from its submission.

        Args:
            prompt: as for :meth:`generate`.
            n: how many, at least 1.
            params: for all of them. With a ``seed`` they have this one, the next, and so on; without, each its own by
                chance. Greedy ones are all alike.
            **overrides: as for :meth:`generate`.

        Raises:
            As :meth:`generate`.
        """
        jobs = self._same_jobs(prompt, n, merge(params, overrides))
        results = bulk.Results(n, None, what="completion")
        bulk.run(self._engine, enumerate(jobs), 2 * self.n_parallel, results)
        return _with_prompt_logprobs(results.in_order())

    async def agenerate_n(
        self, prompt: Prompt, n: int, params: SamplingParams | None = None, **overrides: Unpack[SamplingOverrides]
    ) -> list[Completion]:
        """As :meth:`generate_n`, for coroutines. Cancelling the task cancels them all."""
        import asyncio

        jobs = await asyncio.to_thread(self._same_jobs, prompt, n, merge(params, overrides))
        results = bulk.Results(n, None, what="completion")
        await bulk.arun(enumerate(jobs), 2 * self.n_parallel, results)
        return _with_prompt_logprobs(results.in_order())

    async def forward(self, prompt: str, sample_len: int) -> str:
        """Greedy text of at most ``sample_len`` tokens. Cancelling the task cancels the generation.

        Raises:
            As :meth:`generate`.
        """
        return (await self.agenerate(prompt, max_tokens=sample_len)).text

    def logits(self, prompt: Prompt) -> npt.NDArray[np.float32]:
        """Logits after every position of a prompt: float32, (n_tokens, n_vocab), a copy of its own.

        Raises:
            As :meth:`generate`.
        """
        return self._engine.logits(prompt_ids(prompt, self.tokenizer), waits=self._waits)

    # --- embeddings ---------------------------------------------------------------------------------------

    def embed(
        self, texts: str | Sequence[Text], *, normalize: bool = False, pooling: Pooling | None = None
    ) -> npt.NDArray[np.float32]:
        """Vectors of texts, computed several at a time in a context of their own; the engine goes on beside it.

        Calls from several threads take turns.

        Args:
            texts: one text, or a sequence of them: str (encoded with ``add_special``) or token ids.
            normalize: give each the length 1, so that dot products are cosines.
            pooling: how the embeddings of a text's tokens become one: their "mean", that of the first ("cls"), or of
                the "last". None: as the file says (``<arch>.pooling_type``), and the mean where it says nothing.

        Returns:
            float32, (n_texts, model.n_embd_out), in the order of ``texts``; one text makes one row.

        Raises:
            EmptyPromptError: a text without tokens.
            ContextOverflowError: a text longer than ``n_ctx``; names its index and both numbers.
            InvalidParameterError: an argument, or a token id outside the vocabulary.
            UnsupportedArchitectureError: a model with an encoder and a decoder.
            OutOfMemoryError: the context does not fit; names required and available bytes.
            ClosedError: the model was closed.
        """
        return self._embedder.embed(texts, normalize=normalize, pooling=pooling)

    async def aembed(
        self, texts: str | Sequence[Text], *, normalize: bool = False, pooling: Pooling | None = None
    ) -> npt.NDArray[np.float32]:
        """As :meth:`embed`, for coroutines. When the task is cancelled it ends with the forward pass it is in."""
        embedder = self._embedder
        return await embedder.in_background(embedder.embed, texts, normalize=normalize, pooling=pooling)

    def rerank(self, query: str, documents: Sequence[str], *, normalize: bool = False) -> npt.NDArray[np.float32]:
        """How well each document answers a query, by a model with a classifier head: higher is better.

        Each pair is written as the model's template "rerank" says, or else as ``BOS query EOS SEP document EOS``, with
        those of the special tokens that the vocabulary puts around texts.

        Args:
            query: the question.
            documents: the texts to score.
            normalize: the sigmoid of each score, 0 to 1; for heads with one output.

        Returns:
            float32, (n_documents,), in the order of ``documents``: the head's first output.

        Raises:
            InvalidParameterError: the model has no classifier head, or an argument.
            Otherwise as :meth:`embed`; the length counts query and document together.
        """
        return self._embedder.rerank(query, documents, normalize=normalize)

    async def arerank(
        self, query: str, documents: Sequence[str], *, normalize: bool = False
    ) -> npt.NDArray[np.float32]:
        """As :meth:`rerank`, for coroutines. When the task is cancelled it ends with the forward pass it is in."""
        embedder = self._embedder
        return await embedder.in_background(embedder.rerank, query, documents, normalize=normalize)

    def reset(self) -> None:
        """Forgets what is kept for prompts that begin alike. Running requests are not disturbed."""
        self._engine.reset()

    # --- text ---------------------------------------------------------------------------------------------

    def tokenize(self, text: str, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Text to token ids; see :meth:`Tokenizer.encode <pyggml.tokenizer.Tokenizer.encode>`."""
        return self.tokenizer.encode(text, add_special=add_special, parse_special=parse_special)

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """Token ids to text; see :meth:`Tokenizer.decode <pyggml.tokenizer.Tokenizer.decode>`."""
        return self.tokenizer.decode(token_ids)

    def chat_templates(self, chat_template: ChatTemplate | None = None) -> ChatTemplates:
        """The model's own chat template, which was read when it was loaded, or another one, which is read now.

        Args:
            chat_template: Jinja text, the path of a file with it, or the name of one of the model's further
                templates. A ChatTemplates comes back as it is: make one where the same one is needed again.

        Raises:
            InvalidParameterError: no such template, or one that cannot be read.
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
        """Renders messages as the model was trained to read them.

        The result holds no BOS token if ``tokenize`` adds one: encode it with ``tokenize(text,
        parse_special=True)``.

        Args:
            messages: as for :meth:`chat`.
            tools: as for :meth:`chat`.
            add_generation_prompt: end with the opening of the assistant's turn.
            chat_template: instead of the model's own; as for :meth:`chat_templates`.
            **kwargs: variables for the template, such as ``enable_thinking=False``.

        Raises:
            InvalidParameterError: no template, malformed messages, or the template refuses them.
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
        """The engine's counters; never waits for a decode."""
        return self._engine.stats()

    def close(self) -> None:
        """Ends what is running (its callers get ClosedError), and frees engine and model. May be repeated."""
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
                f"{self.model.desc} ({self.model.path}) does not generate text token by token. Encoders are for "
                "embed() and rerank(); Context computes with any model"
            )
        return self._own_engine

    def _job(self, prompt: Prompt, params: SamplingParams, *, waits: bool | None = None) -> Job:
        waits = self._waits if waits is None else waits
        return Job(self._engine, self.tokenizer, self.stop_tokens, prompt, params, waits=waits)

    def _same_jobs(self, prompt: Prompt, n: int, params: SamplingParams) -> list[Job]:
        token_ids, params = prompt_ids(prompt, self.tokenizer), without_schema(params)
        all_params = [_nth(params, index) for index in range(integer("n", n, 1, INT32_MAX))]
        return [self._job(token_ids, each, waits=True).unwatched() for each in all_params]

    def _numbered_jobs(self, prompts: Iterable[Prompt], params: SamplingParams) -> bulk.NumberedJobs:
        if isinstance(prompts, (str, bytes)) or not isinstance(prompts, Iterable):
            raise InvalidParameterError(
                f"prompts must be an iterable of prompts, not {type(prompts).__name__}; put a single one into a list"
            )
        params = without_schema(params)  # once for all
        return bulk.jobs(prompts, lambda prompt: self._job(prompt, params, waits=True).unwatched())


def _nth(params: SamplingParams, index: int) -> SamplingParams:
    """For the completion ``index`` of one prompt: a seed of its own, and the prompt's logprobs only once."""
    if index == 0:
        return params
    seed = None if params.seed is None else (params.seed + index) % UINT32_MAX
    return dataclasses.replace(params, seed=seed, prompt_logprobs=0)


def _with_prompt_logprobs(completions: list[Completion]) -> list[Completion]:
    """The first one's, which are everybody's."""
    logprobs = completions[0].prompt_logprobs
    return completions if logprobs is None else [dataclasses.replace(c, prompt_logprobs=logprobs) for c in completions]


def _own_templates(model: Model) -> ChatTemplates | None:
    """None where the file has no template or an unreadable one, which only those who chat need to hear."""
    try:
        return ChatTemplates(model)
    except InvalidParameterError:
        return None


def _n_total(prompts: Iterable[Prompt]) -> int | None:
    return len(prompts) if isinstance(prompts, Sized) else None


@takes(LoadOptions)
def load(options: LoadOptions) -> LLM:  # noqa: D417
    """Loads a model, ready to generate. ``LLM(...)`` does the same.

    With ``n_parallel=1, prefix_cache=False`` the same prompt gives the same bits whatever else was or is asked: each
    generation is computed alone and from its beginning. Otherwise what shares a batch or was reused changes the order
    of some sums, and now and then the last bit decides between two tokens.

    Args:
        source: a model's file, directory or reference, or a Model that is open already. A file is a ``.gguf`` file, the
            first of a split set; a directory is one of Hugging Face's, which is imported the first time; a reference,
            ``hf:org/repo`` or ``hf:org/repo:file.gguf``, is downloaded the first time. None: the small demonstration
            model that ships with pyggml.
        tokenizer: a tokenizer.json, a tokenizer.model, or a directory with one; or a tokenizer object. None: the
            vocabulary in the model's file.
        device: "auto" (GPUs this build can use, else the CPU), "cpu", "cuda", "cuda:1" ...
        n_ctx: cells of the context, each for one token of a prompt or an answer; "auto": what fits. All running
            requests share them, and one that is alone may use them all. None: the model's training length, at most
            8,192. "auto" takes the training length too, or as much of it as leaves a tenth of the available memory
            free.
        n_parallel: requests computed together; the others wait their turn. 1 to 256.
        n_batch: the most tokens in one forward pass; at least n_parallel.
        n_ubatch: of these, tokens computed at once.
        n_gpu_layers: layers on the GPU; "auto": what fits. None: all of them. "auto" takes as many as leave a tenth of
            its memory free. With ``n_ctx="auto"`` too, layers are placed beside a context of the usual size, which then
            grows.
        cache_type: element type of the key-value cache: "f32", "f16", "bf16", "q8_0", "q4_0" ...
        n_threads: compute threads. None: the engine measures itself and adapts, when other programs want the cores or
            leave them; in the bit-reproducible mode it takes one per core, since another number adds up in another
            order. A number is obeyed.
        prefix_cache: keep what finished requests computed for prompts that begin alike, while there is room.
        max_queue: the most requests that may wait; None: any number.
        queue_full: whether a request that finds the queue full is refused, or waits: "raise" raises QueueFullError,
            "wait" waits until there is room, for as long as the request's ``timeout_s`` allows.
        progress: called with 0..1 on the way: while files are downloaded, again while a directory is imported, and
            again while the weights load. Returning False stops it.

    Raises:
        ModelNotFoundError, ModelLoadError, UnsupportedArchitectureError: the file or directory.
        DownloadError: what is referred to cannot be downloaded.
        MissingPackageError: that takes ``pip install 'pyggml[hub]'``.
        DiskFullError: no room for what is downloaded or imported.
        DeviceError: the device asked for is not there.
        OutOfMemoryError: it does not fit; names required and available bytes, and what would fit. Raised before the
            weights are read.
        InvalidParameterError: an argument is out of range.
        TokenizerError: the vocabulary has no token to stop at, or ``tokenizer`` is not this model's.
        TokenizerNotFoundError: no tokenizer at the path.
    """
    return LLM(**vars(options))
