"""Embeddings as all protocols need them: what texts are for, and types of vectors."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

import pyggml
from pyggml.server.http import errors

Vectors = npt.NDArray[Any]

#: Terms in messages of the library for endpoints that do not truncate texts.
NO_TRUNCATION: Mapping[str, str] = {", pass truncate=True": "", ", or pass truncate=True": ""}
#: Terms in messages of the library for endpoints with the fields of /v1/embeddings.
TERMS: Mapping[str, str] = {"pass truncate=True": 'send "truncate": true', "prompt_name=": "prompt_name "}

# Names that APIs have for what texts are for, in lower case: Cohere's, Jina's, Voyage's, Gemini's.
_QUERIES = ("query", "search_query", "retrieval.query", "retrieval_query")
_DOCUMENTS = ("document", "passage", "search_document", "retrieval.passage", "retrieval_document")
# Their other purposes. A model without a prompt of that name embeds them like all texts.
_OTHERS = (
    "classification",
    "clustering",
    "separation",
    "text-matching",
    "semantic_similarity",
    "question_answering",
    "fact_verification",
    "code.query",
    "code.passage",
    "code_retrieval_query",
    "image",
    "none",
)

# Type of numbers in requests -> type in the library.
TYPES: Mapping[str, Any] = {
    "float": "float32",
    "base64": "float32",
    "int8": "int8",
    "uint8": "int8",
    "binary": "binary",
    "ubinary": "binary",
}
_OFFSET = 128


def purpose_options(llm: pyggml.LLM, input_type: str | None, prompt_name: str | None) -> dict[str, Any]:
    """Return the options of ``embedding_request`` for what texts are for.

    Args:
        llm: the model.
        input_type: what they are for in the terms of an API, or the name of a prompt.
        prompt_name: name of a prompt of the model.

    Raises:
        RequestError: 400, ``input_type`` is unknown.
    """
    if prompt_name is not None or input_type is None:
        return {"prompt_name": prompt_name}
    if input_type in llm.embedding_profile.prompts:
        return {"prompt_name": input_type}
    name = input_type.lower()
    if name in _QUERIES:
        return {"role": "query"}
    if name in _DOCUMENTS:
        return {"role": "document"}
    if name in _OTHERS:
        return {}
    known = ", ".join(["query", "document", *llm.embedding_profile.prompts])
    raise errors.invalid(f"{input_type!r:.100} is unknown; known are {known}", "input_type")


def numbers_of(vectors: Vectors, type_name: str) -> Vectors:
    """Return vectors of the library's type for a name in :data:`TYPES` in the type that has this name in requests."""
    if type_name == "uint8":
        return (vectors.astype(np.int16) + _OFFSET).astype(np.uint8)
    if type_name == "binary":  # Cohere's, Jina's and Voyage's: a signed number for each byte
        return (vectors.astype(np.int16) - _OFFSET).astype(np.int8)
    return vectors


def encode(vector: Vectors, as_base64: bool) -> str | list[Any]:
    """Return a vector as numbers, or as base64 of them, little-endian."""
    if as_base64:
        return base64.b64encode(vector.astype(vector.dtype.newbyteorder("<")).tobytes()).decode()
    numbers: list[Any] = vector.tolist()
    return numbers
