"""The class ``Llama`` and its companions, with llama-cpp-python's interface."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import pyggml
from pyggml.compat._llama import loading
from pyggml.compat._llama.arguments import reject_unknown
from pyggml.compat._llama.completion_methods import CompletionMethods
from pyggml.compat._llama.embedding_methods import EmbeddingMethods
from pyggml.compat._llama.hub import fetch_file
from pyggml.compat._llama.model import LlamaModel
from pyggml.compat._llama.processors import LogitsProcessorList as LogitsProcessorList
from pyggml.compat._llama.processors import MinTokensLogitsProcessor as MinTokensLogitsProcessor
from pyggml.compat._llama.processors import StoppingCriteria as StoppingCriteria
from pyggml.compat._llama.processors import StoppingCriteriaList as StoppingCriteriaList
from pyggml.compat._llama.sampling import RANDOM_SEED
from pyggml.compat._llama.token_loop import LogitsProcessor as LogitsProcessor
from pyggml.compat._llama.token_loop import TokenLoop
from pyggml.compat._llama.token_methods import LlamaContext, TokenMethods
from pyggml.compat._llama.token_methods import LlamaState as LlamaState
from pyggml.compat.llama_cpp._logger import set_verbose
from pyggml.compat.llama_cpp.llama_cache import BaseLlamaCache
from pyggml.compat.llama_cpp.llama_chat_format import LlamaChatCompletionHandler
from pyggml.compat.llama_cpp.llama_grammar import LlamaGrammar as LlamaGrammar
from pyggml.compat.llama_cpp.llama_speculative import LlamaDraftModel
from pyggml.compat.llama_cpp.llama_tokenizer import BaseLlamaTokenizer, LlamaTokenizer

if TYPE_CHECKING:
    from typing_extensions import Self


class Llama(CompletionMethods, EmbeddingMethods, TokenMethods):
    """A model with llama-cpp-python's interface. See docs/how-to/use-llama-cpp-python-code.md for what differs.

    Completions, chats and embeddings are safe to call from any thread, and are computed in batches.

    Attributes:
        model_path: the model's file.
        metadata: the file's scalar metadata, as strings.
        chat_format: name of the chat format; None: the template in the model's file.
        chat_handler: the chat handler; None: that of the chat format.
        draft_model: guesses tokens; None: none.
        is_vocabulary: True if only the vocabulary was loaded.
        n_batch: maximum number of tokens in a forward pass.
    """

    def __init__(
        self,
        model_path: str | os.PathLike[str],
        *,
        n_gpu_layers: int = 0,
        split_mode: int = 1,
        main_gpu: int = 0,
        tensor_split: list[float] | None = None,
        vocab_only: bool = False,
        use_mmap: bool = True,
        use_mlock: bool = False,
        kv_overrides: Mapping[str, bool | int | float | str] | None = None,
        seed: int = RANDOM_SEED,
        n_ctx: int = 512,
        n_batch: int = 512,
        n_ubatch: int = 512,
        n_threads: int | None = None,
        n_threads_batch: int | None = None,
        rope_scaling_type: int | None = -1,
        pooling_type: int = -1,
        attention_type: int = -1,
        rope_freq_base: float = 0.0,
        rope_freq_scale: float = 0.0,
        yarn_ext_factor: float = -1.0,
        yarn_attn_factor: float = 1.0,
        yarn_beta_fast: float = 32.0,
        yarn_beta_slow: float = 1.0,
        yarn_orig_ctx: int = 0,
        logits_all: bool = False,
        embedding: bool = False,
        offload_kqv: bool = True,
        flash_attn: bool = False,
        op_offload: bool | None = None,
        swa_full: bool | None = None,
        no_perf: bool = False,
        last_n_tokens_size: int = 64,
        lora_base: str | None = None,
        lora_scale: float = 1.0,
        lora_path: str | None = None,
        numa: bool | int = False,
        chat_format: str | None = None,
        chat_handler: LlamaChatCompletionHandler | None = None,
        draft_model: LlamaDraftModel | None = None,
        tokenizer: BaseLlamaTokenizer | None = None,
        type_k: int | None = None,
        type_v: int | None = None,
        spm_infill: bool = False,
        verbose: bool = True,
        n_parallel: int = 4,
        **others: Any,
    ) -> None:
        """Load a model.

        Args:
            model_path: a GGUF file, or any other source of :func:`pyggml.load`.
            n_gpu_layers: number of layers on the GPU; -1: all.
            split_mode: how several GPUs share the model, a ``LLAMA_SPLIT_MODE_...``.
            main_gpu: the GPU that takes the model, without splitting.
            tensor_split: how much of the model each GPU takes.
            vocab_only: load only the vocabulary.
            use_mmap: map the file into memory.
            use_mlock: keep the weights in main memory.
            kv_overrides: not supported.
            seed: seed from which those of completions follow; 0 and -1: a random one.
            n_ctx: context size in tokens; 0: the model's own.
            n_batch: maximum number of tokens in a forward pass.
            n_ubatch: maximum number of tokens in a micro-batch.
            n_threads: number of compute threads, at most that of the processors; None: the engine adapts it.
            n_threads_batch: the same for prompts, in :meth:`eval` only; None: ``n_threads``.
            rope_scaling_type: a ``LLAMA_ROPE_SCALING_TYPE_...``; -1: the model's own.
            pooling_type: of embeddings, a ``LLAMA_POOLING_TYPE_...``; -1: the model's own.
            attention_type: a ``LLAMA_ATTENTION_TYPE_...``, in :meth:`eval` only; -1: the model's own.
            rope_freq_base: base frequency of RoPE; 0: the model's own.
            rope_freq_scale: frequency scaling factor of RoPE; 0: the model's own.
            yarn_ext_factor: YaRN's extrapolation mix factor; -1: the model's own.
            yarn_attn_factor: YaRN's factor for the magnitude of attention.
            yarn_beta_fast: YaRN's low correction dimension.
            yarn_beta_slow: YaRN's high correction dimension.
            yarn_orig_ctx: context size that YaRN extends; 0: the model's own.
            logits_all: keep the logits of all tokens in :meth:`eval`. Log probabilities do not need it.
            embedding: has no effect: every model embeds.
            offload_kqv: has no effect; False warns.
            flash_attn: has no effect: it is used where the device has it.
            op_offload: has no effect; other values than None warn.
            swa_full: has no effect; other values than None warn.
            no_perf: has no effect.
            last_n_tokens_size: how many recent tokens the penalties consider.
            lora_base: not supported.
            lora_scale: factor of the adapter's low-rank products; has no effect without ``lora_path``.
            lora_path: file of a LoRA adapter to apply.
            numa: has no effect; other values than False warn.
            chat_format: name of a chat format; None: the template in the model's file, or "llama-2".
            chat_handler: answers conversations instead.
            draft_model: guesses tokens, which are checked in one forward pass; the engine looks up prompts without
                one.
            tokenizer: a LlamaHFTokenizer that replaces the model's vocabulary for texts.
            type_k: element type of the K cache, a ``GGML_TYPE_...``.
            type_v: element type of the V cache.
            spm_infill: fill gaps with the suffix before the prefix.
            verbose: has no effect, except on the logger "llama-cpp-python": pyggml prints nothing.
            n_parallel: maximum number of requests computed together; pyggml's own.
            **others: parameters of earlier versions that have no effect, such as ``n_parts``.

        Raises:
            UnknownParameterError: there is no such parameter.
            ModelNotFoundError: there is no such file.
            InvalidParameterError: an argument is out of range, or asks for a feature that pyggml does not have.
            InferError: as :func:`pyggml.load`.
        """
        given = {name: value for name, value in locals().items() if name not in ("self", "others", "__class__")}
        reject_unknown(type(self).__init__, others.keys() - loading.OBSOLETE.keys())
        set_verbose(verbose)
        loading.check_supported({**given, **others})
        self._given = given
        self.model_path = loading.require_file(model_path)
        self.verbose, self.spm_infill, self.last_n_tokens_size = verbose, spm_infill, last_n_tokens_size
        self.chat_format, self.chat_handler, self.draft_model = chat_format, chat_handler, draft_model
        self._seed = seed or RANDOM_SEED
        self._llm: pyggml.LLM | None = None
        self.is_vocabulary = vocab_only
        if vocab_only:
            self._model = LlamaModel(loading.open_vocabulary(self.model_path))
        else:
            self._llm = loading.open_model(self.model_path, given)
            self._model = LlamaModel(self._llm.model)
        self._finish_loading()

    def _finish_loading(self) -> None:
        given, native = self._given, self._model.native
        self._n_ctx = native.n_ctx_train if self._llm is None else self._llm.n_ctx
        self.n_batch = min(self._n_ctx, given["n_batch"])
        self.n_threads, self.n_threads_batch = given["n_threads"], given["n_threads_batch"]
        self.metadata = native.metadata
        self.tokenizer_: BaseLlamaTokenizer = given["tokenizer"] or LlamaTokenizer(self)
        self.cache: BaseLlamaCache | None = None
        self.kv_overrides, self.tensor_split, self.numa = given["kv_overrides"], given["tensor_split"], given["numa"]
        self.lora_base, self.lora_path, self.lora_scale = given["lora_base"], given["lora_path"], given["lora_scale"]
        self._is_recurrent, self._is_hybrid = native.is_recurrent, native.is_hybrid
        self._chat_handlers: dict[str, LlamaChatCompletionHandler] = {}
        self._ctx = LlamaContext(self)
        self._loop: TokenLoop | None = None
        self._idle_loops: list[TokenLoop] = []
        if self.chat_format is None and "tokenizer.chat_template" not in self.metadata:
            self.chat_format = "llama-2"
        self.model_params = SimpleNamespace(**{name: given[name] for name in _MODEL_PARAMS})
        self.context_params = SimpleNamespace(
            **{
                **{name: given[name] for name in _CONTEXT_PARAMS},
                "n_ctx": self._n_ctx,
                "embeddings": given["embedding"],
            }
        )

    @classmethod
    def from_pretrained(
        cls,
        repo_id: str,
        filename: str | None,
        additional_files: list[str] | None = None,
        local_dir: str | os.PathLike[str] | None = None,
        local_dir_use_symlinks: bool | Literal["auto"] = "auto",  # noqa: ARG003
        cache_dir: str | os.PathLike[str] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Download a model from the Hugging Face hub, and load it.

        Args:
            repo_id: the repository.
            filename: the file, or a pattern that only one file matches; None: the repository's only GGUF file.
            additional_files: further files, or patterns, such as the rest of a split set.
            local_dir: the folder for the files; None: the cache of huggingface_hub.
            local_dir_use_symlinks: has no effect.
            cache_dir: the folder of the cache.
            **kwargs: as for the constructor.

        Raises:
            MissingPackageError: huggingface_hub is not installed.
            InvalidParameterError: a pattern matches no file, or several.
            InferError: as the constructor.
        """
        return cls(fetch_file(repo_id, filename, additional_files, local_dir, cache_dir), **kwargs)

    @property
    def llm(self) -> pyggml.LLM:
        """The engine, for all that this interface does not have, such as coroutines.

        Raises:
            InvalidParameterError: only the vocabulary was loaded.
        """
        if self._llm is None:
            raise pyggml.InvalidParameterError("the model was loaded with vocab_only=True, which only tokenizes")
        return self._llm

    # --- properties ---------------------------------------------------------------------------------------

    def set_cache(self, cache: BaseLlamaCache | None) -> None:
        """Keep a cache as an attribute; it has no effect, as caches say when they are made.

        Args:
            cache: the cache.
        """
        self.cache = cache

    def set_seed(self, seed: int) -> None:
        """Set the seed from which those of completions follow.

        Args:
            seed: the seed.
        """
        self._seed = seed

    def n_ctx(self) -> int:
        """Return the context size in tokens."""
        return self._n_ctx

    def n_embd(self) -> int:
        """Return the width of the embeddings."""
        return self._model.n_embd()

    def n_vocab(self) -> int:
        """Return the number of tokens in the vocabulary."""
        return self._model.n_vocab()

    def tokenizer(self) -> LlamaTokenizer:
        """Return the model's vocabulary."""
        return LlamaTokenizer(self)

    def token_eos(self) -> int:
        """Return the token that ends a text; -1: there is none."""
        return self._model.token_eos()

    def token_bos(self) -> int:
        """Return the token that begins a text; -1: there is none."""
        return self._model.token_bos()

    def token_nl(self) -> int:
        """Return the token of a line end; -1: there is none."""
        return self._model.token_nl()

    def pooling_type(self) -> int:
        """Return the pooling of embeddings, a ``LLAMA_POOLING_TYPE_...``."""
        pooling = loading.pooling_of(self._given, self.metadata, self._model.native.arch)
        return int(getattr(pyggml.lib, f"LLAMA_POOLING_TYPE_{pooling.upper()}"))

    @property
    def model(self) -> Any:
        """The address of the ``struct llama_model``, for functions of the C API."""
        return self._model.model

    @property
    def ctx(self) -> Any:
        """The address of the ``struct llama_context`` of :meth:`eval`, for functions of the C API."""
        return self._ctx.ctx

    # --- lifetime -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Free the model. Can be called repeatedly."""
        loops = [*self._idle_loops, *([self._loop] if self._loop else [])]
        for loop in loops:
            loop.close()
        if self._llm is not None:
            self._llm.close()
        self._model.native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """Return the arguments of the constructor: a copy in another process loads the model again."""
        return dict(self._given)

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"Llama({self.model_path!r}, n_ctx={self._n_ctx})"

    def _make_loop(self) -> TokenLoop:
        options = loading.context_options(self._given, self._n_ctx)
        is_drafting = self.draft_model is not None
        loop = TokenLoop(self.llm.model, options, logits_all=self._given["logits_all"], drafts=is_drafting)
        adapters, scales = self.llm.adapters, self.llm.default_adapters
        loop.context.set_adapters({adapters[name]: scale for name, scale in scales.items()})
        return loop


_MODEL_PARAMS = ("n_gpu_layers", "split_mode", "main_gpu", "tensor_split", "vocab_only", "use_mmap", "use_mlock")
_CONTEXT_PARAMS = (
    "n_batch",
    "n_ubatch",
    "n_threads",
    "n_threads_batch",
    "type_k",
    "type_v",
    "pooling_type",
    "offload_kqv",
)
