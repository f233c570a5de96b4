"""Outlines: a model, and a logits processor for models of other engines. Needs ``outlines``.

>>> from pyggml.integrations.outlines import from_pyggml
>>> from_pyggml("model.gguf")("Is the sky blue?", Literal["yes", "no"])
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pyggml import LLM, Grammar, GrammarMatcher, InvalidParameterError
from pyggml.integrations._frameworks import needs
from pyggml.integrations._models import ModelLike, SharedOnCopy, open_llm

with needs("outlines"):
    from outlines.inputs import Chat
    from outlines.models import AsyncVLLM, VLLMOffline
    from outlines.processors import OutlinesLogitsProcessor
    from outlines.types.dsl import CFG, JsonSchema, python_types_to_terms, to_regex

__all__ = ["AsyncPyggml", "GrammarProcessor", "Pyggml", "from_pyggml"]


def from_pyggml(
    model: ModelLike = None, *, chat_mode: bool = True, load_options: Mapping[str, Any] | None = None
) -> Pyggml:
    """Return a model for Outlines. ``from_pyggml(...).asynchronous()`` is the one for coroutines.

    Args:
        model: an open LLM; or a file, a directory or a reference, as for :func:`pyggml.load`; None: the demonstration
            model.
        chat_mode: texts are users' messages; False: they are prompts, continued as they are.
        load_options: parameters of :func:`pyggml.load`.

    Raises:
        InferError: as :func:`pyggml.load`.
    """
    return Pyggml(open_llm(model, load_options), chat_mode=chat_mode)


class _Inputs:
    """Prompts and output types of Outlines as arguments of the engine."""

    llm: LLM
    chat_mode: bool

    def _arguments(self, model_input: Any, output_type: Any, options: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a chat, or of a generation, which has ``prompt``."""
        arguments = {**_constraint(output_type), **options}
        if isinstance(model_input, Chat):
            return {"messages": [dict(message) for message in model_input.messages], **arguments}
        if not isinstance(model_input, str):
            raise InvalidParameterError(
                f"an input is a {type(model_input).__name__}: pass a str or an outlines.inputs.Chat of texts"
            )
        if self.chat_mode:
            return {"messages": [{"role": "user", "content": model_input}], **arguments}
        return {"prompt": model_input, **arguments}


class Pyggml(SharedOnCopy, _Inputs, VLLMOffline):
    """A model whose constraints run inside the engine. Thread-safe: calls of all threads are batched.

    Calls take the parameters of :meth:`pyggml.LLM.chat`, or in prompt mode of :meth:`pyggml.LLM.generate`. With
    ``n``, the result is a list of texts.

    Args:
        llm: the model.
        chat_mode: texts are users' messages; False: they are prompts, continued as they are.
    """

    # Generators accept Outlines' own classes only. That of vLLM also leaves constraints to its engine.

    def __init__(self, llm: LLM, *, chat_mode: bool = True) -> None:
        self.llm, self.chat_mode = llm, chat_mode

    def asynchronous(self) -> AsyncPyggml:
        """Return the same model for coroutines."""
        return AsyncPyggml(self.llm, chat_mode=self.chat_mode)

    def generate(self, model_input: Any, output_type: Any = None, **options: Any) -> Any:
        """Answer a text or a :class:`Chat`.

        Args:
            model_input: the text or conversation.
            output_type: a type, schema or regular expression as Outlines takes it; None: any text.
            **options: parameters of :meth:`pyggml.LLM.chat`.

        Raises:
            GrammarError: the type cannot be enforced.
            InvalidParameterError: the input or an option is invalid, or the type is a grammar in Lark.
            InferError: as :meth:`pyggml.LLM.chat`.
        """
        arguments = self._arguments(model_input, output_type, options)
        return _texts(self.llm.generate(**arguments) if "prompt" in arguments else self.llm.chat(**arguments))

    def generate_batch(self, model_input: list[Any], output_type: Any = None, **options: Any) -> list[Any]:
        """Answer several inputs, all of the same kind, in one batch. Arguments and errors as :meth:`generate`."""
        inputs = [self._arguments(each, output_type, {}) for each in model_input]
        if not inputs:
            return []
        kind = "prompt" if "prompt" in inputs[0] else "messages"
        if any(kind not in each for each in inputs):
            raise InvalidParameterError("a batch has prompts and conversations: pass inputs of one kind")
        contents = [each.pop(kind) for each in inputs]
        batch: Any = self.llm.generate_batch if kind == "prompt" else self.llm.chat_batch
        return [_texts(done) for done in batch(contents, **inputs[0], **options)]

    def generate_stream(self, model_input: Any, output_type: Any = None, **options: Any) -> Iterator[str]:
        """Yield an answer in chunks. Arguments and errors as :meth:`generate`."""
        arguments = self._arguments(model_input, output_type, options)
        with self.llm.stream(**arguments) if "prompt" in arguments else self.llm.stream_chat(**arguments) as stream:
            for chunk in stream:
                yield _text(chunk)


class AsyncPyggml(SharedOnCopy, _Inputs, AsyncVLLM):
    """As :class:`Pyggml`, for coroutines. Cancelling a task cancels its generation.

    Args:
        llm: the model.
        chat_mode: texts are users' messages; False: they are prompts, continued as they are.
    """

    def __init__(self, llm: LLM, *, chat_mode: bool = True) -> None:
        self.llm, self.chat_mode = llm, chat_mode

    async def generate(self, model_input: Any, output_type: Any = None, **options: Any) -> Any:
        """As :meth:`Pyggml.generate`."""
        arguments = self._arguments(model_input, output_type, options)
        if "prompt" in arguments:
            return _texts(await self.llm.agenerate(**arguments))
        return _texts(await self.llm.achat(**arguments))

    async def generate_batch(self, model_input: list[Any], output_type: Any = None, **options: Any) -> list[Any]:
        """As :meth:`Pyggml.generate_batch`; the inputs may be of different kinds."""
        import asyncio

        return list(await asyncio.gather(*(self.generate(each, output_type, **options) for each in model_input)))

    async def generate_stream(self, model_input: Any, output_type: Any = None, **options: Any) -> AsyncIterator[str]:
        """As :meth:`Pyggml.generate_stream`."""
        arguments = self._arguments(model_input, output_type, options)
        opened: Any = self.llm.astream if "prompt" in arguments else self.llm.astream_chat
        async with opened(**arguments) as stream:
            async for chunk in stream:
                yield _text(chunk)


class GrammarProcessor(OutlinesLogitsProcessor):
    """A logits processor by pyggml's grammars, for Outlines' models of engines that take one.

    >>> outlines.Generator(model, processor=GrammarProcessor(Pet, vocab))

    The model's token ids must be those of the vocabulary. A processor serves one generation at a time.

    Args:
        output_type: a type, schema or regular expression as Outlines takes it; or a :class:`pyggml.Grammar`.
        vocab: owner of the vocabulary, as for :meth:`pyggml.Grammar.compile`: an LLM, a :class:`pyggml.Model`, for
            which ``vocab_only=True`` is enough, or its :class:`pyggml.Vocab`.
        tensor_library_name: "numpy" for LlamaCpp, "torch" for Transformers.

    Raises:
        GrammarError: the type cannot be enforced.
        InvalidParameterError: an argument is invalid.
    """

    def __init__(self, output_type: Any, vocab: object, tensor_library_name: str = "numpy") -> None:
        if tensor_library_name not in ("numpy", "torch"):
            raise InvalidParameterError(f"tensor_library_name is {tensor_library_name!r}: use numpy or torch")
        super().__init__(tensor_library_name)
        self._library = tensor_library_name
        self._grammar = Grammar.compile(_grammar(output_type), vocab)
        self._matchers: list[GrammarMatcher] = []

    def reset(self) -> None:
        """Start a new generation."""
        self._matchers = []

    def process_logits(self, input_ids: Any, logits: Any) -> Any:
        """Forbid the tokens that the grammar forbids.

        Args:
            input_ids: ids of the tokens so far, (n_rows, n). The first call's are the prompt.
            logits: (n_rows, n_vocab).
        """
        n_rows, n_columns = self.tensor_adapter.shape(logits)
        if self._matchers:
            for matcher, row in zip(self._matchers, input_ids, strict=True):
                matcher.accept(int(row[-1]))
        else:
            self._matchers = [self._grammar.matcher() for _ in range(n_rows)]
        words = np.stack([matcher.mask() for matcher in self._matchers])
        bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")[:, : self._grammar.n_vocab]
        forbidden = np.ones((n_rows, n_columns), bool)  # models may have more columns than tokens
        forbidden[:, : min(n_columns, bits.shape[1])] = bits[:, :n_columns] == 0
        return self.tensor_adapter.apply_mask(logits, self._tensor(forbidden, logits), -np.inf)

    def _tensor(self, mask: npt.NDArray[np.bool_], like: Any) -> Any:
        """A mask in the model's library, on the device of its logits."""
        if self._library == "torch":
            import torch

            return torch.from_numpy(mask).to(like.device)
        return mask


def _constraint(output_type: Any) -> dict[str, Any]:
    """The parameters of a request that enforce an output type."""
    if output_type is None:
        return {}
    term = python_types_to_terms(output_type)
    if isinstance(term, CFG):
        raise InvalidParameterError(
            "Outlines' grammars are written in Lark: pass grammar=... in GBNF to the call instead of an output type"
        )
    if not isinstance(term, JsonSchema):
        return {"regex": to_regex(term)}
    if term.whitespace_pattern is not None:
        raise InvalidParameterError(
            f"whitespace_pattern={term.whitespace_pattern!r}: pyggml lays out JSON by itself; leave it out"
        )
    return {"json_schema": json.loads(term.schema)}


def _grammar(output_type: Any) -> Any:
    """An output type as :meth:`pyggml.Grammar.compile` takes it."""
    if isinstance(output_type, Grammar):
        return output_type
    constraint = _constraint(output_type)
    if not constraint:
        raise InvalidParameterError("output_type is None: a processor without a type would allow any text")
    regex = constraint.get("regex")
    return constraint["json_schema"] if regex is None else f"root ::= %regex {json.dumps(regex)}"


def _texts(done: Any) -> str | list[str]:
    """The text of a completion, or the texts of several."""
    return [_text(each) for each in done] if isinstance(done, list) else _text(done)


def _text(done: Any) -> str:
    message = getattr(done, "message", done)
    return cast("str", message.content if hasattr(message, "content") else message.text)
