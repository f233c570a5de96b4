"""The methods of LLM that fill in text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyggml._core.cached_property import cached_property
from pyggml._core.checks import flag
from pyggml.generation.engine import Engine
from pyggml.generation.infill.prompt import ExtraFiles, InfillPrompt, InfillPrompts
from pyggml.generation.infill.request import InfillRequest
from pyggml.generation.param_merging import merge
from pyggml.generation.stream import Stream
from pyggml.tokenizer import Tokenizer
from pyggml.types import Completion, SamplingParams

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pyggml._keywords import SamplingOverrides
    from pyggml.generation.async_stream import AsyncStream

_OWN_PARAMETERS = ("extra_files", "path", "repository", "truncate")


class InfillMethods:
    """The methods of :class:`pyggml.LLM` that fill in text."""

    if TYPE_CHECKING:
        tokenizer: Tokenizer
        n_ctx: int
        _waits_for_capacity: bool

        @property
        def _engine(self) -> Engine: ...

    def infill(
        self,
        prefix: str,
        suffix: str,
        params: SamplingParams | None = None,
        *,
        extra_files: ExtraFiles | None = None,
        path: str | None = None,
        repository: str | None = None,
        truncate: bool = False,
        **overrides: Unpack[SamplingOverrides],
    ) -> Completion:
        """Generate the text between a prefix and a suffix, by the model's own tokens for it (fill in the middle).

        For models of code that are trained for it: Qwen2.5-Coder, StarCoder2, Granite code, DeepSeek-Coder, CodeLlama,
        Codestral and others whose vocabularies have such tokens.

        Args:
            prefix: the text before the gap; special tokens in it are plain text, as in all other texts here.
            suffix: the text after it.
            params: sampling parameters; None: greedy defaults.
            extra_files: other files of the repository, path -> text, the most relevant last, for models with a format
                for them.
            path: path of the file with the gap.
            repository: the repository's name.
            truncate: if the prompt leaves less than ``max_tokens`` of the context, leave out the first files, and then
                the beginning of the prefix and the end of the suffix. False: a prompt that does not fit is refused.
            **overrides: fields of SamplingParams that replace those of ``params``.

        Raises:
            InvalidParameterError: the model has no tokens for infilling, or no format for other files; or a parameter
                is invalid.
            InferError: as :meth:`LLM.generate <pyggml.LLM.generate>`.
        """
        files = extra_files, path, repository
        request = self._infill_request(prefix, suffix, merge(params, overrides, _OWN_PARAMETERS), truncate, *files)
        request.is_streamed = False
        return Stream(request, self._engine.enqueue(request)).finish()

    def stream_infill(
        self,
        prefix: str,
        suffix: str,
        params: SamplingParams | None = None,
        *,
        extra_files: ExtraFiles | None = None,
        path: str | None = None,
        repository: str | None = None,
        truncate: bool = False,
        **overrides: Unpack[SamplingOverrides],
    ) -> Stream:
        """As :meth:`infill`, but yield the text as it is generated: as :meth:`LLM.stream <pyggml.LLM.stream>`."""
        files = extra_files, path, repository
        request = self._infill_request(prefix, suffix, merge(params, overrides, _OWN_PARAMETERS), truncate, *files)
        return Stream(request, self._engine.enqueue(request))

    async def ainfill(
        self,
        prefix: str,
        suffix: str,
        params: SamplingParams | None = None,
        *,
        extra_files: ExtraFiles | None = None,
        path: str | None = None,
        repository: str | None = None,
        truncate: bool = False,
        **overrides: Unpack[SamplingOverrides],
    ) -> Completion:
        """As :meth:`infill`, for coroutines. Cancelling the task cancels the generation."""
        stream = self.astream_infill(
            prefix,
            suffix,
            params,
            extra_files=extra_files,
            path=path,
            repository=repository,
            truncate=truncate,
            **overrides,
        )
        return await stream.finish()

    def astream_infill(
        self,
        prefix: str,
        suffix: str,
        params: SamplingParams | None = None,
        *,
        extra_files: ExtraFiles | None = None,
        path: str | None = None,
        repository: str | None = None,
        truncate: bool = False,
        **overrides: Unpack[SamplingOverrides],
    ) -> AsyncStream:
        """As :meth:`stream_infill`, for coroutines: as :meth:`LLM.astream <pyggml.LLM.astream>`."""
        from pyggml.generation.async_stream import AsyncStream  # imports asyncio, which takes long

        files = extra_files, path, repository
        request = self._infill_request(prefix, suffix, merge(params, overrides, _OWN_PARAMETERS), truncate, *files)
        return AsyncStream(self._engine, request)

    def infill_prompt(
        self,
        prefix: str,
        suffix: str,
        *,
        extra_files: ExtraFiles | None = None,
        path: str | None = None,
        repository: str | None = None,
        max_tokens: int | None = None,
    ) -> InfillPrompt:
        """Make the prompt of :meth:`infill`, for :meth:`LLM.generate <pyggml.LLM.generate>` and other methods.

        Args:
            prefix: as for :meth:`infill`.
            suffix: as for :meth:`infill`.
            extra_files: as for :meth:`infill`.
            path: as for :meth:`infill`.
            repository: as for :meth:`infill`.
            max_tokens: length of the longest prompt, for which parts are left out as with ``truncate``. None: no limit.

        Raises:
            InvalidParameterError: as :meth:`infill`.
            ContextOverflowError: ``max_tokens`` is too small for the format itself.
        """
        texts = self._infill_prompts.checked(prefix, suffix, extra_files, path, repository)
        return self._infill_prompts.prompt(texts, max_tokens)

    def _infill_request(
        self,
        prefix: str,
        suffix: str,
        params: SamplingParams,
        truncate: bool,
        extra_files: ExtraFiles | None,
        path: str | None,
        repository: str | None,
    ) -> InfillRequest:
        limit = None
        if flag("truncate", truncate):
            n_reserved = self.n_ctx // 4 if params.max_tokens < 0 else params.max_tokens
            limit = max(self.n_ctx - n_reserved, 1)
        prompts, waits = self._infill_prompts, self._waits_for_capacity
        texts = prompts.checked(prefix, suffix, extra_files, path, repository)
        return InfillRequest(texts, prompts, params, self.tokenizer, max_prompt_tokens=limit, waits_for_capacity=waits)

    @cached_property
    def _infill_prompts(self) -> InfillPrompts:
        return InfillPrompts(self.tokenizer)
