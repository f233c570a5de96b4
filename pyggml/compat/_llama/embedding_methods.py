"""The methods of ``Llama`` that embed texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, overload

import pyggml
from pyggml.compat._llama import loading
from pyggml.compat._llama.model import LlamaModel
from pyggml.compat.llama_cpp import llama_types as types


class EmbeddingMethods:
    """The methods of ``Llama`` that embed texts. Safe to call from any thread."""

    model_path: str
    n_batch: int
    metadata: dict[str, str]
    _given: Mapping[str, Any]
    _model: LlamaModel

    @property
    def llm(self) -> pyggml.LLM:
        """The engine, for all that this interface does not have."""
        raise NotImplementedError

    def create_embedding(self, input: str | list[str], model: str | None = None) -> types.CreateEmbeddingResponse:
        """Embed texts, and return the vectors in OpenAI's format.

        Args:
            input: one text or several.
            model: the model's name in the result; None: ``model_path``.

        Raises:
            InferError: as :meth:`embed`.
        """
        vectors, n_tokens = self.embed([input] if isinstance(input, str) else input, return_count=True)
        data = [types.Embedding(object="embedding", embedding=each, index=i) for i, each in enumerate(vectors)]
        name = self.model_path if model is None else model
        usage = types.EmbeddingUsage(prompt_tokens=n_tokens, total_tokens=n_tokens)
        return {"object": "list", "data": data, "model": name, "usage": usage}

    @overload
    def embed(
        self,
        input: str | list[str],
        normalize: bool = False,
        truncate: bool = True,
        return_count: Literal[False] = False,
    ) -> list[Any]: ...

    @overload
    def embed(
        self, input: str | list[str], normalize: bool = False, truncate: bool = True, *, return_count: Literal[True]
    ) -> tuple[list[Any], int]: ...

    def embed(
        self, input: str | list[str], normalize: bool = False, truncate: bool = True, return_count: bool = False
    ) -> list[Any] | tuple[list[Any], int]:
        """Embed texts.

        Args:
            input: one text or several.
            normalize: scale each vector to length 1.
            truncate: cut off a text after ``n_batch`` tokens; otherwise a longer one is refused.
            return_count: return the number of tokens, too.

        Returns:
            A vector for each text, or one vector for a single one. Without pooling, a vector for each token.

        Raises:
            ContextOverflowError: a text is too long.
            InvalidParameterError: the pooling is "rank"; use :meth:`pyggml.LLM.rerank`.
            InferError: as :meth:`pyggml.LLM.embed`.
        """
        pooling: Any = loading.pooling_of(self._given, self.metadata, self._model.native.arch)
        if pooling == "rank":
            raise pyggml.InvalidParameterError("this model ranks documents: use llama.llm.rerank(query, documents)")
        ids = [self.llm.tokenizer.encode(text) for text in ([input] if isinstance(input, str) else input)]
        vectors = self.llm.embed(ids, pooling=pooling, normalize=normalize, truncate=truncate, max_tokens=self.n_batch)
        found = [vector.tolist() for vector in vectors]
        output = found[0] if isinstance(input, str) else found
        return (output, sum(min(len(each), self.n_batch) for each in ids)) if return_count else output
