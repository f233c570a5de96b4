"""The methods of ``Llama`` that complete prompts and answer conversations."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import pyggml
from pyggml.compat._llama import chat, completion
from pyggml.compat._llama.arguments import reject_unknown
from pyggml.compat._llama.chat_handlers import LlamaChatCompletionHandler
from pyggml.compat._llama.chat_results import completion_to_chat, grammar_of_response_format
from pyggml.compat._llama.generation import Generation, guesses_in_python
from pyggml.compat._llama.model import LlamaModel
from pyggml.compat._llama.sampling import Sampling
from pyggml.compat._llama.token_loop import LogitsProcessor, StoppingCriterion, as_processors
from pyggml.compat.llama_cpp.llama_chat_format import get_chat_completion_handler
from pyggml.compat.llama_cpp.llama_grammar import LlamaGrammar
from pyggml.compat.llama_cpp.llama_speculative import LlamaDraftModel

if TYPE_CHECKING:
    from pyggml.compat.llama_cpp.llama import Llama

# chat_format -> the template that has tools, in pyggml's names.
_TEMPLATES_WITH_TOOLS = {"chatml-function-calling": "chatml"}
_SAMPLING = frozenset(Sampling.__dataclass_fields__)


class CompletionMethods:
    """The methods of ``Llama`` that complete prompts and answer conversations. Safe to call from any thread."""

    chat_format: str | None
    chat_handler: LlamaChatCompletionHandler | None
    draft_model: LlamaDraftModel | None
    last_n_tokens_size: int
    model_path: str
    spm_infill: bool
    _chat_handlers: dict[str, LlamaChatCompletionHandler]
    _model: LlamaModel
    _n_ctx: int
    _seed: int

    @property
    def llm(self) -> pyggml.LLM:
        """The engine, for all that this interface does not have."""
        raise NotImplementedError

    # --- completions --------------------------------------------------------------------------------------

    def create_completion(
        self,
        prompt: str | list[int],
        suffix: str | None = None,
        max_tokens: int | None = 16,
        temperature: float = 0.8,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        logprobs: int | None = None,
        echo: bool = False,
        stop: str | list[str] | None = None,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        top_k: int = 40,
        stream: bool = False,
        seed: int | None = None,
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        model: str | None = None,
        stopping_criteria: StoppingCriterion | None = None,
        logits_processor: Sequence[LogitsProcessor] | None = None,
        grammar: LlamaGrammar | None = None,
        logit_bias: Mapping[Any, float] | None = None,
        **unknown: Any,
    ) -> Any:
        """Continue a text.

        Args:
            prompt: text, with special tokens by their texts, or token ids.
            suffix: text that follows the gap to fill, for models with tokens for that; others get it appended.
            max_tokens: maximum number of tokens; None or at most 0: up to the end of the context.
            temperature: 0 takes the likeliest token; higher values vary more; below 0: sample from all tokens.
            top_p: sample from the likeliest tokens that together reach this probability.
            min_p: drop tokens less likely than this fraction of the likeliest one's probability.
            typical_p: sample from the most typical tokens that together reach this probability.
            logprobs: report log probabilities, of this many alternatives for each token.
            echo: put the prompt before the text; without effect on streams.
            stop: strings that end the text.
            frequency_penalty: subtracted from a token's logit for each recent occurrence.
            presence_penalty: subtracted once from the logit of every recent token.
            repeat_penalty: divides the logits of recent tokens.
            top_k: sample from this many tokens; at most 0: all.
            stream: return an iterator of chunks.
            seed: seed of the random choices; None: follows from the seed of the model and of earlier completions.
            tfs_z: has no effect; other values than 1 warn.
            mirostat_mode: version of Mirostat, 1 or 2; 0: off.
            mirostat_tau: surprise that Mirostat aims for, in bits.
            mirostat_eta: how fast Mirostat corrects the surprise.
            model: the model's name in the result; None: ``model_path``.
            stopping_criteria: ends the text after a token; called with the tokens and the logits.
            logits_processor: functions that change the logits before each choice.
            grammar: a grammar that the text must match.
            logit_bias: token id -> number that is added to its logit.
            **unknown: raises UnknownParameterError.

        Returns:
            A dictionary in OpenAI's format, or with ``stream`` an iterator of them.

        Raises:
            UnknownParameterError: there is no such parameter.
            ContextOverflowError: the prompt does not fit the context.
            InferError: as :meth:`pyggml.LLM.generate`.
        """
        reject_unknown(type(self).create_completion, unknown)
        given = {name: value for name, value in locals().items() if name in _SAMPLING}
        prompt_ids, appended = self._prompt_ids(prompt, suffix)
        generation = Generation(
            prompt_ids=prompt_ids,
            sampling=self._completion_sampling(given, seed),
            max_tokens=self._allowed_tokens(max_tokens, len(prompt_ids)),
            stop=[stop] if isinstance(stop, str) else list(stop or ()),
            n_logprobs=logprobs,
            scores_prompt=echo and not stream,
            processors=as_processors(logits_processor),
            criteria=stopping_criteria,
        )
        request = completion.Request(
            llama=cast("Llama", self),
            generation=generation,
            prompt=prompt if isinstance(prompt, str) else self._model.detokenize(prompt).decode("utf-8", "ignore"),
            echo=bool(echo),
            suffix=appended,
            model=self.model_path if model is None else model,
        )
        return completion.stream(request) if stream else completion.complete(request)

    def __call__(self, prompt: str | list[int], *args: Any, **kwargs: Any) -> Any:
        """Continue a text: :meth:`create_completion`, with the same arguments.

        Args:
            prompt: as for :meth:`create_completion`.
            *args: as for :meth:`create_completion`.
            **kwargs: as for :meth:`create_completion`.
        """
        return self.create_completion(prompt, *args, **kwargs)

    # --- chats --------------------------------------------------------------------------------------------

    def create_chat_completion(  # noqa: D417  # create_completion describes the rest
        self,
        messages: Sequence[Mapping[str, Any]],
        functions: Sequence[Mapping[str, Any]] | None = None,
        function_call: str | Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        temperature: float = 0.2,
        top_p: float = 0.95,
        top_k: int = 40,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        stream: bool = False,
        stop: str | list[str] | None = None,
        seed: int | None = None,
        response_format: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        model: str | None = None,
        logits_processor: Sequence[LogitsProcessor] | None = None,
        grammar: LlamaGrammar | None = None,
        logit_bias: Mapping[Any, float] | None = None,
        logprobs: bool | None = None,
        top_logprobs: int | None = None,
        **unknown: Any,
    ) -> Any:
        """Answer a conversation, by the chat handler, the chat format, or the model's own template.

        Args of sampling as :meth:`Llama.create_completion`.

        Args:
            messages: the conversation, in OpenAI's format.
            functions: tools, in OpenAI's older format.
            function_call: the choice among ``functions``: "none", "auto" or ``{"name": ...}``.
            tools: tools that the model may call, in OpenAI's format.
            tool_choice: "none", "auto", "required", or the tool to call.
            response_format: ``{"type": "json_object"}``, with a JSON schema as ``schema`` if there is one.
            logprobs: report log probabilities.
            top_logprobs: number of alternatives for each token.
            **unknown: raises UnknownParameterError.

        Returns:
            A dictionary in OpenAI's format, or with ``stream`` an iterator of them.

        Raises:
            UnknownParameterError: there is no such parameter.
            LlamaChatCompletionHandlerNotFoundException: there is no such chat format.
            InferError: as :meth:`pyggml.LLM.chat`.
        """
        given = {name: value for name, value in locals().items() if name not in ("self", "unknown")}
        reject_unknown(type(self).create_chat_completion, unknown)
        handler = self._handler()
        if handler is not None:
            return handler(llama=cast("Llama", self), **given)
        if tools is None and functions is not None:
            tools = [{"type": "function", "function": function} for function in functions]
            tool_choice = (
                {"type": "function", "function": function_call} if isinstance(function_call, Mapping) else function_call
            )
        if as_processors(logits_processor) or (guesses_in_python(self.draft_model) and not tools):
            return self._chat_by_loop(given, tools)
        sampling = {name: value for name, value in given.items() if name in _SAMPLING}
        request = chat.ChatRequest(
            llama=cast("Llama", self),
            messages=messages,
            tools=tools or (),
            tool_choice=tool_choice or "auto",
            sampling=self._completion_sampling(sampling, seed, is_free=response_format is None),
            max_tokens=-1 if max_tokens is None or max_tokens <= 0 else max_tokens,
            stop=[stop] if isinstance(stop, str) else list(stop or ()),
            response_format=response_format,
            chat_template=_TEMPLATES_WITH_TOOLS.get(self.chat_format or ""),
            n_logprobs=(top_logprobs or 0) if logprobs else None,
            model=self.model_path if model is None else model,
        )
        return chat.stream(request) if stream else chat.complete(request)

    def create_chat_completion_openai_v1(self, *args: Any, **kwargs: Any) -> Any:
        """Answer a conversation with the objects of the package ``openai`` instead of dictionaries.

        Args:
            *args: as for :meth:`create_chat_completion`.
            **kwargs: as for :meth:`create_chat_completion`.

        Raises:
            MissingPackageError: the package is not installed.
        """
        try:
            from openai.types.chat import ChatCompletion, ChatCompletionChunk
        except ImportError as error:
            raise pyggml.MissingPackageError(
                f"create_chat_completion_openai_v1 needs openai, which cannot be imported ({error}): pip install openai"
            ) from None
        answer = self.create_chat_completion(*args, **kwargs)
        if kwargs.get("stream"):
            return (ChatCompletionChunk(**chunk) for chunk in answer)
        return ChatCompletion(**answer)

    # --- inside -------------------------------------------------------------------------------------------

    def _handler(self) -> LlamaChatCompletionHandler | None:
        """Return the caller's chat handler, or that of the chat format; None: the engine's chat."""
        if self.chat_handler is not None:
            return self.chat_handler
        if self.chat_format is None or self.chat_format in _TEMPLATES_WITH_TOOLS:
            return None
        return self._chat_handlers.get(self.chat_format) or get_chat_completion_handler(self.chat_format)

    def _chat_by_loop(self, given: Mapping[str, Any], tools: Any) -> Any:
        """Answer a conversation token by token."""
        if tools:
            raise pyggml.InvalidParameterError(
                "tools cannot be combined with logits_processor: leave out one of them, or pass a grammar"
            )
        ours = ("messages", "functions", "function_call", "tools", "tool_choice", "response_format", "logprobs")
        options = {name: value for name, value in given.items() if name not in (*ours, "top_logprobs")}
        if given["response_format"] is not None:
            options["grammar"] = grammar_of_response_format(given["response_format"]) or given["grammar"]
        options["logprobs"] = (given["top_logprobs"] or 0) if given["logprobs"] else None
        template = _TEMPLATES_WITH_TOOLS.get(self.chat_format or "")
        prompt = self.llm.tokenize_chat(chat.openai_messages(given["messages"]), chat_template=template)
        return completion_to_chat(self.create_completion(prompt, **options), given["stream"])

    def _completion_sampling(self, given: dict[str, Any], seed: int | None, *, is_free: bool = True) -> Sampling:
        """Return sampling parameters with the seed, from which the next completion's seed follows."""
        self._seed = random.Random(self._seed).randint(0, 2**32) if seed is None else seed
        named = {**given, "seed": self._seed, "penalty_last_n": self.last_n_tokens_size}
        return Sampling(**named if is_free else {**named, "grammar": None})

    def _allowed_tokens(self, max_tokens: int | None, n_prompt: int) -> int:
        left = self._n_ctx - n_prompt
        if left <= 0:
            raise pyggml.ContextOverflowError(
                f"Requested tokens ({n_prompt}) exceed context window of {self._n_ctx}: shorten the prompt, or load "
                "with a larger n_ctx"
            )
        return left if max_tokens is None or max_tokens <= 0 else min(max_tokens, left)

    def _prompt_ids(self, prompt: str | list[int], suffix: str | None) -> tuple[list[int], str]:
        """Return the tokens of a prompt, and the text to append to the completion."""
        if suffix is None:
            is_text = isinstance(prompt, str)
            return self.llm.tokenizer.encode(prompt) if is_text else list(prompt), ""  # type: ignore[arg-type]
        vocab = self._model.native.vocab
        prefix_token, suffix_token, middle_token = vocab.fim_pre, vocab.fim_suf, vocab.fim_mid
        if prefix_token is None or suffix_token is None or middle_token is None:
            return self._prompt_ids(prompt, None)[0], suffix
        before, after = vocab.around
        text = self._plain_ids(prompt) if isinstance(prompt, str) else list(prompt)
        prefix, gap = [prefix_token, *text], [suffix_token, *self._plain_ids(suffix)]
        parts = [*gap, *prefix] if self.spm_infill else [*prefix, *gap]
        return [*before, *parts, middle_token, *after], ""

    def _plain_ids(self, text: str) -> list[int]:
        return self.llm.tokenizer.encode(text, add_special=False, parse_special=False)
