"""LLM: a model, its engine and its tokenizer in one object, which is all that most users need."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pyggml import families, loading
from pyggml._core.fields import takes
from pyggml._core.hints import HintedObject, hints, reject_parameters, with_hints
from pyggml._core.log import logger
from pyggml._core.owner import Owner
from pyggml._native.model import Model
from pyggml.chat import ChatTemplates
from pyggml.chat.llm_methods import ChatTemplate, Chatting, Messages, Tools
from pyggml.chat.messages import checked_messages
from pyggml.chat.tools import checked as checked_tools
from pyggml.engine_factory import started
from pyggml.errors import InvalidParameterError, UnsupportedArchitectureError
from pyggml.families import Family
from pyggml.generation.embedding import Embedder, Pooling, Text
from pyggml.generation.embedding_batches import passes_of
from pyggml.generation.engine import Engine
from pyggml.generation.llm_methods import Generating
from pyggml.importer.convert import Accept
from pyggml.isolation import Isolated
from pyggml.memory.llm_context import checked_n_ctx, generates
from pyggml.memory.search import DeviceMemory
from pyggml.options import LoadOptions
from pyggml.options.recommended import recommended
from pyggml.source import Source
from pyggml.tokenizer.hugging_face import tokenizer_for
from pyggml.types import EngineStats, SamplingParams
from pyggml.units import percent_text

if TYPE_CHECKING:
    from typing_extensions import Self


class LLM(Owner, Generating, Chatting, HintedObject):
    """A loaded model that generates text. Safe to call from any thread or task; requests are computed together.

    ``LLM("model.gguf")`` does the same as :func:`pyggml.load`. Close it, or use it as a context manager.

    Attributes:
        source: what it was loaded from: a path, also that of a Hugging Face directory, or a reference.
        model: the :class:`pyggml.Model`. Its ``path`` is the GGUF file in use, which for an imported directory
            is the one in the cache.
        tokenizer: converts text to token ids and back; the model's own vocabulary, unless another was given.
        n_ctx: context size in tokens, shared by all running requests.
        n_parallel: number of requests computed together.
        memory: what model and context take on each device, main memory first; () if the model does not generate, since
            its contexts come and go.
        family: the model's :class:`~pyggml.families.Family`.
        stop_tokens: token id -> text of each token that ends a generation, the family's most common one first.
        recommended_sampling: the SamplingParams that the model's makers recommend, from ``generation_config.json`` or
            ``general.sampling.*``; None: they say nothing. Not used unless you pass it: the default is greedy.
    """

    _instead_of_a_copy = "share this one between threads and tasks; another process loads its own"
    _hints = hints("model")

    @takes(LoadOptions)
    def __init__(self, options: LoadOptions) -> None:
        """Loads a model, or takes over an open :class:`pyggml.Model`, and starts an engine for it.

        Args and errors as :func:`pyggml.load`.
        """
        source = options.source
        if isinstance(source, Model):
            self._start(loading.take_over(source, options), options)
            return
        isolated: Isolated | None = None
        if options.isolate:
            path, tokenizer = loading.fetched(source, options, self._acceptance())
            isolated = Isolated(path, options)
            opened = loading.Opened(isolated.model, tokenizer, isolated.n_ctx)
        else:
            opened = loading.open_model(source, options, self._acceptance())
        try:
            self._start(opened, options, isolated)
        except BaseException:
            if isolated is not None:
                isolated.close()
            opened.model.close()
            raise

    def _start(self, opened: loading.Opened, options: LoadOptions, isolated: Isolated | None = None) -> None:
        self.model = model = opened.model
        self.source = _shown(options.source, model)
        self.family: Family = self._family()
        self.stop_tokens: dict[int, str] = families.stop_tokens(model, self.family) if generates(model) else {}
        self.tokenizer = tokenizer_for(model, opened.tokenizer)
        self._own_templates = _own_templates(model, options.chat_template)
        self.n_ctx = checked_n_ctx(model, opened.n_ctx)
        self.n_parallel = options.n_parallel
        self.recommended_sampling = self._recommended_sampling()
        self.memory: tuple[DeviceMemory, ...] = ()
        self._waits = options.queue_full == "wait"
        self._isolated = isolated
        here = passes_of(model, self.n_ctx, options.n_threads, deterministic=options.deterministic)
        self._embedder = Embedder(model, self.tokenizer, self.n_ctx, here if isolated is None else isolated.passes)
        self._own_engine: Engine | None = None
        if generates(model) and isolated is None:
            self._own_engine, self.memory = started(model, options, self.n_ctx, self.stop_tokens)
        elif generates(model) and isolated:
            self._own_engine, self.memory = isolated.engine(self.stop_tokens), isolated.memory

    def _acceptance(self) -> Accept | None:
        """A check that refuses files by their metadata, before the weights load; None: accept any file."""
        return None

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
            float32, (n_texts, model.n_embd_out), in the order of ``texts``; for a str, which is one text, its vector:
            (model.n_embd_out,).

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

    def rerank_ids(self, query: str, documents: Sequence[str]) -> list[list[int]]:
        """The token ids that :meth:`rerank` reads for each document, in the order of ``documents``.

        Raises:
            As :meth:`rerank`.
        """
        return self._embedder.pairs(query, documents)

    def reset(self) -> None:
        """Clears the prefix cache. Running requests are not affected."""
        self._engine.reset()

    # --- text ---------------------------------------------------------------------------------------------

    @with_hints("encoding")
    def tokenize(self, text: str, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Converts text to token ids; see :meth:`Tokenizer.encode <pyggml.tokenizer.Tokenizer.encode>`."""
        return self.tokenizer.encode(text, add_special=add_special, parse_special=parse_special)

    @with_hints("decoding")
    def detokenize(self, token_ids: Sequence[int], *, remove_special: bool = True, unparse_special: bool = True) -> str:
        """Converts token ids to text; see :meth:`Tokenizer.decode <pyggml.tokenizer.Tokenizer.decode>`."""
        return self.tokenizer.decode(token_ids, remove_special=remove_special, unparse_special=unparse_special)

    def chat_templates(self, chat_template: ChatTemplate | None = None) -> ChatTemplates:
        """The model's chat template, which was parsed at load time, or another one, parsed now.

        It is the caller's: closing it leaves the model as it is, and it works on after the model is closed.

        Args:
            chat_template: Jinja text; a file with it; the name of one of the model's additional templates; or that of a
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
        """Renders messages in the format that the model was trained on.

        ``tokenize`` and ``generate`` read it as it is meant; it omits the BOS token if they add one.

        Args:
            messages: as for :meth:`chat`.
            tools: as for :meth:`chat`.
            add_generation_prompt: end with the start of the assistant's turn.
            chat_template: replaces the model's; as for :meth:`chat_templates`.
            **kwargs: variables for the template, such as ``enable_thinking=False``. ``tokenize=False``, which
                transformers needs for a text, changes nothing.

        Raises:
            InvalidParameterError: there is no template, the messages are malformed, or the template rejects them.
            UnknownParameterError: a variable is a parameter of transformers' method of this name.
        """
        templates = self.chat_templates(chat_template)
        return templates.render(
            checked_messages(messages),
            tools=[tool.as_json() for tool in checked_tools(tools).values()],
            add_generation_prompt=add_generation_prompt,
            template_kwargs=_variables(kwargs),
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
        if self._isolated is not None:
            self._isolated.close()
        if self._own_templates is not None:
            self._own_templates.close()
        self.model.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        about = f"{self.model.desc}, {self.family.name}, n_ctx={self.n_ctx}, n_parallel={self.n_parallel}"
        place = f", {self.where}" if self.where else ""
        return f"{type(self).__name__}({self.source!r}: {about}{place}{', closed' * self.model._is_closed})"

    @property
    def where(self) -> str:
        """Where weights and cache are: "on CPU", "94% on CUDA0, 6% on CPU" ...; "" where ``memory`` does not say."""
        sizes = {device.name: device.weights_bytes + device.cache_bytes for device in self.memory}
        held = sorted((name for name in sizes if sizes[name]), key=sizes.__getitem__, reverse=True)
        if len(held) == 1:
            return f"on {held[0]}"
        return ", ".join(f"{percent_text(sizes[name] / sum(sizes.values()))} on {name}" for name in held)

    # --- inside -------------------------------------------------------------------------------------------

    def _family(self) -> Family:
        return families.of_model(self.model).family

    def _recommended_sampling(self) -> SamplingParams | None:
        found = recommended(self.metadata, self.n_ctx)
        for note in found.notes:
            logger.warning("%s: %s", self.model.path, note)
        return found.params

    @property
    def _engine(self) -> Engine:
        if self._own_engine is None:
            raise UnsupportedArchitectureError(
                f"{self.model.desc} ({self.model.path}) does not generate text token by token: use embed() or rerank() "
                "with an encoder, or Context with any model"
            )
        return self._own_engine


def _variables(given: dict[str, Any]) -> dict[str, Any]:
    """A template's variables, without the parameters of transformers' method that are turned off."""
    others = hints("template")
    reject_parameters((name for name, value in given.items() if value), others)
    return {name: value for name, value in given.items() if name not in others}


def _shown(source: Source | Model, model: Model) -> str:
    """The source as text; the model's file if none was named."""
    return model.path if source is None or isinstance(source, Model) else os.fspath(source)


def _own_templates(model: Model, wanted: str | os.PathLike[str] | None) -> ChatTemplates | None:
    """The wanted template, or the model's; None if that is missing or invalid, an error only once somebody chats."""
    if wanted is not None:
        return ChatTemplates(model, wanted)
    try:
        return ChatTemplates(model)
    except InvalidParameterError:
        return None


@takes(LoadOptions)
def load(options: LoadOptions) -> LLM:  # noqa: D417
    """Loads a model, ready to generate. ``LLM(...)`` does the same.

    On the CPU, each request gets the bits that it gets alone, whatever shares the batch, however its prompt is cut or
    reused and whatever the number of threads, unless ``llm.stats().not_batch_invariant`` names operations that round
    together what is computed together. ``deterministic=True`` refuses those.

    Args:
        source: a model's file, directory or reference, or an open Model. A file is a ``.gguf`` file (the first of a
            split set); a Hugging Face directory is imported on first use; a reference, ``hf:org/repo`` or
            ``hf:org/repo:file.gguf``, is downloaded on first use. None: the small demonstration model that ships with
            pyggml.
        tokenizer: a tokenizer.json, a tokenizer.model, or a directory with one; or a tokenizer object. None: the
            one in the model's file.
        device: "auto" (GPUs this build can use, else the CPU), "cpu", "gpu", "cuda", "cuda:1", "cuda:0,cuda:1" ...
            An index counts from 0; without one it is the first. "gpu" is a GPU of any kind; an error if there is none.
            A list of names works too; the first device takes the first layers.
        n_gpu_layers: number of layers on the GPU; "auto": as many as fit. None: all of them. "auto" leaves a tenth of
            the GPU's memory free, and lets a mixture of experts leave experts in main memory first, as ``n_cpu_moe``
            does; with ``n_ctx="auto"`` too, layers are placed first, assuming a context of the default size, which then
            grows.
        split_mode: how several devices share the model: "layer" by layer, "row" or "tensor" within them, or "none".
            Every device can do "layer" and "none", which uses one of them.
        tensor_split: how much of the model each device takes, such as 3,1. None: in proportion to their free memory.
            A list of numbers works too.
        main_gpu: with ``split_mode`` "none", which of the devices takes the model. None: the first.
        n_cpu_moe: number of layers whose experts stay in main memory, or "all". None: as few as ``n_gpu_layers`` needs.
            Counted from the first layer; everything else of those layers is where ``n_gpu_layers`` puts it.
        override_tensor: where tensors go whose names match, such as "ffn_.*_exps=cpu". None: as the other options say.
            Several pairs have commas between them; a dict of patterns and devices works too. The first pattern found in
            a name counts.
        rpc: hosts that run "pyggml rpc-serve", such as "gpu-box:50052", whose devices take layers. None: no others.
            Several have commas between them; a list works too. ``device`` "auto" takes all of their devices beside this
            machine's GPUs, and "rpc:0" names the first. A host that is lost makes every later request a HostLostError.
        rpc_key: a file with the key of those hosts. None: PYGGML_RPC_KEY, or the key that this user's server made.
        n_ctx: context size in tokens, prompts and answers together; "auto": as large as fits. All running requests
            share it, and a request that runs alone may use all of it. None: the model's training length, at most 8,192.
            "auto": the training length, or less if needed to leave a tenth of the available memory free.
        n_parallel: number of requests computed together; the others wait their turn. 1 to 256.
        n_batch: maximum number of tokens in a forward pass; at least n_parallel.
        n_ubatch: maximum number of tokens computed at once within a forward pass; n_parallel, if that is more.
        cache_type: element type of the key-value cache: "f32", "f16", "bf16", "q8_0", "q4_0" ...
        n_threads: number of compute threads. None: the engine measures its speed and adapts as other programs claim or
            release cores. A number you give is kept.
        prefix_cache: keep the work of finished requests for prompts with the same beginning, while there is room.
        deterministic: refuse to load unless every request gets the bits that it gets alone. What is computed, and its
            speed, is the same without it; ``docs/explanation/kernels.md`` says what is covered.
        backend_sampling: choose the tokens of greedy requests on the GPU (experimental). The tokens are the same, but
            only a token id leaves the device instead of a row of logits as long as the vocabulary. It stays off where
            the device cannot do it, and while a request runs that needs more of the logits;
            ``llm.stats().n_sampled_on_device`` counts. Off by default: it brings a tenth with many requests, nothing
            with one.
        max_queue: maximum number of waiting requests. None: no limit.
        queue_full: "raise" refuses a request when the queue is full; "wait" waits for room. A refused request raises
            QueueFullError; a waiting one gives up after its ``timeout_s``.
        progress: called with 0..1 while loading: while files are downloaded, again while a directory is imported, and
            again while the weights load. Returning False stops it.
        chat_template: chat template to use: a name such as chatml, a file, or Jinja text; see
            :meth:`LLM.chat_templates`. A call may name another. None: the model's own.
        isolate: run model and engine in a process of their own, whose end this one survives: by a failed assertion, a
            fault or the system. Requests in flight get an EngineError, and the next call starts another.
            ``llm.stats().n_restarts`` counts. ``docs/explanation/process-isolation.md`` says what it costs.

    Raises:
        ModelNotFoundError, ModelLoadError, UnsupportedArchitectureError: the file or directory cannot be loaded.
        DownloadError: the download failed.
        MissingPackageError: downloading needs ``huggingface_hub``, which is not installed.
        DiskFullError: there is no room for the download or the import.
        DeviceError: there is no such device.
        OutOfMemoryError: the model does not fit; names required and available bytes, and what would fit. Raised before
            the weights are read.
        InvalidParameterError: an argument is out of range, or ``deterministic`` cannot be kept; names the operations.
        TokenizerError: the vocabulary has no stop token, or ``tokenizer`` does not belong to this model.
        TokenizerNotFoundError: there is no tokenizer at that path.
    """
    return LLM(**vars(options))
