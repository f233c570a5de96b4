"""LLM: a model, its engine and its tokenizer, in one object that most users never look behind."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pyggml import chat
from pyggml._native import UINT32_MAX, integer
from pyggml.context import Context
from pyggml.engine import Engine, TokenIds
from pyggml.errors import EmptyPromptError, InvalidParameterError, TokenizerError
from pyggml.model import Model
from pyggml.source import Source, identify
from pyggml.stream import Stream
from pyggml.tokenizer import Tokenizer
from pyggml.types import Completion, EngineStats, SamplingParams

if TYPE_CHECKING:
    from typing_extensions import Self

Prompt = str | TokenIds

# Without a say of the caller a context is this long at most: the training lengths of today's models would take
# gigabytes for a cache that few prompts fill.
_DEFAULT_N_CTX = 8192
# Rows of logits that LLM.logits computes at once; each costs n_vocab floats of scratch for the whole session.
_N_OUTPUTS_MAX = 32
# With stop strings the text must be looked at while it grows; this many tokens at a time.
_TOKENS_PER_LOOK = 8

_PARAM_NAMES = frozenset(field.name for field in dataclasses.fields(SamplingParams))


def load(
    source: Source = None,
    *,
    device: str = "auto",
    n_ctx: int | None = None,
    n_batch: int = 2048,
    n_ubatch: int = 512,
    n_threads: int | None = None,
    n_gpu_layers: int | None = None,
    cache_type: str = "f16",
    progress: Callable[[float], bool | None] | None = None,
) -> LLM:
    """Loads a model, ready to generate.

    Args:
        source: path of a ``.gguf`` file (the first of a split set), or None for the small demonstration model
            that ships with pyggml.
        device: "auto" (GPUs this build can use, else the CPU), "cpu", "cuda", "cuda:1" ...
        n_ctx: cells of the context, prompt and answer together; None: the model's training length, at most 8,192.
        n_batch: prompt tokens handed to the engine at once.
        n_ubatch: of these, tokens computed at once.
        n_threads: compute threads; None: one per core that the process may use.
        n_gpu_layers: layers on the GPU; None: all of them.
        cache_type: element type of the key-value cache: "f32", "f16", "bf16", "q8_0", "q4_0" ...
        progress: called with 0..1 while the weights load; returning False stops the load.

    Raises:
        ModelNotFoundError, ModelLoadError, UnsupportedArchitectureError: the file.
        DeviceError: the device asked for is not there.
        OutOfMemoryError: the context does not fit; names required and available bytes.
        InvalidParameterError: an argument is out of range.
        TokenizerError: the vocabulary has no token to stop at.
    """
    model = Model(
        identify(source),
        device=None if device == "auto" else device,
        n_gpu_layers=-1 if n_gpu_layers is None else n_gpu_layers,
        progress=progress,
    )
    try:
        return LLM(
            model,
            n_ctx=n_ctx,
            n_batch=n_batch,
            n_ubatch=n_ubatch,
            n_threads=n_threads,
            cache_type=cache_type,
        )
    except BaseException:
        model.close()
        raise


class LLM:
    """A loaded model that generates. Safe to share between threads: requests are computed in turn.

    Each generation starts from a reset context. Make one with :func:`load`; close it, or use it as a context
    manager.

    Attributes:
        model: the :class:`~pyggml.model.Model`.
        tokenizer: its vocabulary as a :class:`~pyggml.tokenizer.Tokenizer`.
        n_ctx: cells of the context: prompt and generated tokens together.
        stop_tokens: token id -> text of each token that ends a generation.
    """

    def __init__(
        self,
        model: Model,
        *,
        n_ctx: int | None = None,
        n_batch: int = 2048,
        n_ubatch: int = 512,
        n_threads: int | None = None,
        cache_type: str = "f16",
    ) -> None:
        """Takes a loaded model over and starts an engine for it; see :func:`load`."""
        self.model = model
        self.tokenizer = Tokenizer(model.vocab)
        self.stop_tokens: dict[int, str] = _stop_tokens(model)
        n_cells = _n_ctx(model, n_ctx)
        context = Context(
            model,
            n_ctx=n_cells,
            n_batch=n_batch,
            n_ubatch=n_ubatch,
            n_outputs_max=min(n_batch, _N_OUTPUTS_MAX),
            n_threads=n_threads,
            cache_type=cache_type,
        )
        try:
            self._engine = Engine(context, n_cells)
        except BaseException:
            context.close()
            raise
        self.n_ctx = n_cells

    # --- generation ---------------------------------------------------------------------------------------

    def generate(self, prompt: Prompt, params: SamplingParams | None = None, **overrides: Any) -> Completion:
        """Generates to the end and returns it all.

        Args:
            prompt: text (encoded with ``add_special``, special tokens in it read as plain text) or token ids.
            params: how to sample; None: greedy defaults.
            **overrides: fields of SamplingParams that replace those of ``params``.

        Raises:
            EmptyPromptError, ContextOverflowError: the prompt.
            InvalidParameterError, GrammarError: the parameters.
            ClosedError: the model was closed, also while this call was waiting.
            EngineError: the engine failed.
        """
        return self._stream(prompt, params, overrides, whole=True).finish()

    def stream(self, prompt: Prompt, params: SamplingParams | None = None, **overrides: Any) -> Stream:
        """Generates and hands out the text as it comes.

        Args and errors as :meth:`generate`; errors of the arguments are raised here, not at the first chunk.

        Returns:
            An iterator of Chunks. Closing or dropping it cancels the generation.
        """
        return self._stream(prompt, params, overrides, whole=False)

    async def forward(self, prompt: str, sample_len: int) -> str:
        """Greedy text of at most ``sample_len`` tokens. Cancelling the task cancels the generation.

        Raises:
            As :meth:`generate`.
        """
        import asyncio  # half of the time "import pyggml" would take

        stream = self._stream(prompt, None, {"max_tokens": sample_len}, whole=True)
        try:
            return (await asyncio.to_thread(stream.finish)).text
        finally:
            stream.cancel()

    def logits(self, prompt: Prompt) -> npt.NDArray[np.float32]:
        """Logits after every position of a prompt: float32, (n_tokens, n_vocab), a copy of its own.

        Raises:
            As :meth:`generate`.
        """
        return self._engine.logits(self._prompt_ids(prompt))

    def reset(self) -> None:
        """Forgets what the context holds. Generations start from a reset context anyway."""
        self._engine.reset()

    # --- text ---------------------------------------------------------------------------------------------

    def tokenize(self, text: str, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Text to token ids; see :meth:`Tokenizer.encode <pyggml.tokenizer.Tokenizer.encode>`."""
        return self.tokenizer.encode(text, add_special=add_special, parse_special=parse_special)

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """Token ids to text; see :meth:`Tokenizer.decode <pyggml.tokenizer.Tokenizer.decode>`."""
        return self.tokenizer.decode(token_ids)

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        chat_template: str | None = None,
    ) -> str:
        """Renders messages as the model was trained to read them.

        The result holds no BOS token if ``tokenize`` adds one: encode it with ``tokenize(text,
        parse_special=True)``.

        Args:
            messages: each a mapping with "role" and "content".
            add_generation_prompt: end with the opening of the assistant's turn.
            chat_template: Jinja text to use instead of the model's own.

        Raises:
            InvalidParameterError: no template, malformed messages, or the template refuses them.
        """
        return chat.render(self.model, messages, add_generation_prompt=add_generation_prompt, template=chat_template)

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
        self._engine.close()
        self.model.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # --- inside -------------------------------------------------------------------------------------------

    def _stream(
        self, prompt: Prompt, params: SamplingParams | None, overrides: dict[str, Any], *, whole: bool
    ) -> Stream:
        merged = _merge(params, overrides)
        native = _native_params(merged, self.stop_tokens)
        stop_ids = set(merged.stop_token_ids) | (set() if merged.ignore_eos else set(self.stop_tokens))
        request = self._engine.submit(self._prompt_ids(prompt), native, sorted(stop_ids))
        at_once = 1 if not whole else _TOKENS_PER_LOOK if merged.stop else max(1, merged.max_tokens)
        return Stream(request, self.tokenizer, tuple(merged.stop), at_once)

    def _prompt_ids(self, prompt: Prompt) -> TokenIds:
        if not isinstance(prompt, str):
            return prompt
        if not prompt:
            raise EmptyPromptError("the prompt is empty; give some text, or token ids")
        return self.tokenizer.encode(prompt)


def _merge(params: SamplingParams | None, overrides: dict[str, Any]) -> SamplingParams:
    if params is not None and not isinstance(params, SamplingParams):
        raise InvalidParameterError(f"params must be SamplingParams, not {type(params).__name__}")
    unknown = overrides.keys() - _PARAM_NAMES
    if unknown:
        raise InvalidParameterError(
            f"unknown sampling parameter {', '.join(sorted(unknown))}; there are {', '.join(sorted(_PARAM_NAMES))}"
        )
    return dataclasses.replace(params or SamplingParams(), **overrides)


def _native_params(params: SamplingParams, eog: Mapping[int, str]) -> SamplingParams:
    """The same sampling in the engine's terms: a schema becomes a grammar, ignoring eos becomes a logit bias."""
    if params.json_schema is not None:
        params = dataclasses.replace(params, json_schema=None, grammar=chat.schema_to_grammar(params.json_schema))
    if params.ignore_eos:
        bias = dict(params.logit_bias or {}) | dict.fromkeys(eog, float("-inf"))
        params = dataclasses.replace(params, logit_bias=bias)
    return params


def _n_ctx(model: Model, n_ctx: int | None) -> int:
    if n_ctx is None:
        return min(model.n_ctx_train, _DEFAULT_N_CTX)
    return integer("n_ctx", n_ctx, 1, UINT32_MAX)


def _stop_tokens(model: Model) -> dict[int, str]:
    """The vocabulary's end-of-generation tokens, which include the file's own eos and eot."""
    vocab = model.vocab
    stop = {token_id: vocab.text(token_id) for token_id in vocab.eog_ids}
    if not stop:
        raise TokenizerError(
            f"the vocabulary of {Path(model.path).name} marks no token as end of text or end of turn, so generation "
            "would never stop: set tokenizer.ggml.eos_token_id in the file"
        )
    return stop
