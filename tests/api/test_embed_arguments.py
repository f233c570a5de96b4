"""Arguments of embed and rerank: those of other libraries, and texts of wrong types."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyggml


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"normalise": True}, "it is 'normalize' here"),
        ({"max_length": 8}, "it is 'max_tokens' here"),
        ({"truncate_dim": 64}, "it is 'dimensions' here"),
        ({"input_type": "query"}, "embed_query and embed_documents"),
        ({"normaliz": True}, "did you mean 'normalize'"),
        ({"xyz": 1}, r"embed\(\) takes texts, prompt_name"),
    ],
)
def test_arguments_of_other_libraries_for_embeddings(llm: pyggml.LLM, options: dict[str, Any], said: str) -> None:
    for call in (llm.embed, lambda *args, **given: asyncio.run(llm.aembed(*args, **given))):
        with pytest.raises(pyggml.UnknownParameterError, match=said):
            call(["a"], **options)
    others: list[Any] = [llm.embed_query, llm.embed_documents, llm.embed_iter]
    for other in others:
        with pytest.raises(pyggml.UnknownParameterError, match="it is 'normalize' here"):
            other(["a"], normalise=True)
    with pytest.raises(pyggml.UnknownParameterError, match="it is 'top_n' here"):
        llm.rerank("q", ["d"], top_k=1)  # type: ignore[call-overload]


def test_token_ids_by_themselves(llm: pyggml.LLM) -> None:
    for texts in ([1, 2, 3], [np.int64(1)]):
        with pytest.raises(pyggml.InvalidParameterError, match=r"texts\[0\] must be text or a list .* \[\[1, 2, 3\]\]"):
            llm.embed(texts)  # type: ignore[arg-type]
    with pytest.raises(
        pyggml.InvalidParameterError, match=r"texts\[1\] must be text or a list of token ids, not None$"
    ):
        llm.embed(["a", None])  # type: ignore[list-item]
    with pytest.raises(pyggml.InvalidParameterError, match=r"a token id by itself: put it into a list"):
        pyggml.SamplingParams(bad_words=[7042])  # type: ignore[list-item]


def test_texts_of_any_iterable(own_llm: pyggml.LLM) -> None:
    assert np.array_equal(own_llm.embed(text for text in ("a", "b")), own_llm.embed(["a", "b"]))


def test_arguments_that_are_no_texts_or_names(llm: pyggml.LLM) -> None:
    for role in ("last", np.array([3])):
        with pytest.raises(pyggml.InvalidParameterError, match="role must be one of 'query', 'document'"):
            llm.embedding_request("a", role=role)  # type: ignore[arg-type]
    for texts in (3, np.array(3), "a"):
        with pytest.raises(pyggml.InvalidParameterError, match="texts must be a list of texts"):
            llm.model.vocab.tokenize_batch(texts)  # type: ignore[arg-type]
    with pytest.raises(pyggml.InvalidParameterError, match="texts must be"):
        next(llm.embed_iter(np.array(3)))


def test_a_progress_that_is_no_function(tmp_path: Path) -> None:
    for progress in (np.ones(2), True, "bar"):
        with pytest.raises(pyggml.InvalidParameterError, match="progress must be a function or None"):
            pyggml.inspect(tmp_path / "missing.gguf", progress=progress)  # type: ignore[arg-type]
