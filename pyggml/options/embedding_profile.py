"""Settings of an embedding model or reranker, as its authors publish them with the weights: keys of its GGUF file.

sentence-transformers keeps them in ``modules.json`` and the files that it names. Upstream's keys hold what they can
(``{architecture}.pooling_type``, ``{architecture}.classifier.output_labels``); the others begin with :data:`PREFIX`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from pyggml.errors import ModelLoadError

PREFIX = "pyggml.embedding."

#: How the token vectors of a text become one vector: the first token's, the last one's, their mean, their maximum by
#: column, their sum divided by the root of their number, or their mean weighted by position (1, 2, 3 ...).
Pooling = Literal["cls", "last", "mean", "max", "mean_sqrt_len", "weighted_mean"]
#: How two vectors are compared; "maxsim": two sets of token vectors, the mean or sum over the query's best products.
Similarity = Literal["cosine", "dot", "euclidean", "manhattan", "maxsim"]
#: Function after a dense layer, or after a reranker's score.
Activation = Literal["identity", "tanh", "sigmoid", "relu", "gelu", "silu"]

POOLINGS: tuple[Pooling, ...] = get_args(Pooling)
SIMILARITIES: tuple[Similarity, ...] = get_args(Similarity)
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)

# The numbers of upstream's enum llama_pooling_type.
_UPSTREAM_POOLING: Mapping[str, tuple[Pooling, ...]] = {"0": (), "1": ("mean",), "2": ("cls",), "3": ("last",)}
_JOINED = "+"


@dataclass(frozen=True)
class DenseLayer:
    """A linear layer after the pooling, or on token vectors without pooling: ``f(x @ weight.T + bias)``.

    Its weights are in arrays of the file (:attr:`weight_key`, :attr:`bias_key`), F32, row by row.

    Attributes:
        index: its number, from 0.
        n_in: width of its input.
        n_out: width of its output.
        has_bias: True if it has a bias.
        activation: the function after it.
        is_residual: True if its input, of the same width, is added to its output.
    """

    index: int
    n_in: int
    n_out: int
    has_bias: bool = False
    activation: Activation = "identity"
    is_residual: bool = False

    @property
    def weight_key(self) -> str:
        """Key of the array with its weight: float32, n_out rows of n_in columns."""
        return f"{PREFIX}dense.{self.index}.weight"

    @property
    def bias_key(self) -> str:
        """Key of the array with its bias: float32, n_out."""
        return f"{PREFIX}dense.{self.index}.bias"


@dataclass(frozen=True)
class EmbeddingProfile:
    """Settings with which a model's authors embed texts or score pairs. None or empty: the file does not say.

    A text's vector is computed in the order of the attributes: prompt, tokens (at most ``max_tokens``), pooling, dense
    layers, first columns (``dimensions``, if the caller asks for fewer), normalisation.

    Attributes:
        pooling: the kinds of pooling, whose results are concatenated; empty for a model that embeds tokens
            (``is_multi_vector``) or states none.
        is_multi_vector: True for a model that is made to embed each token, as ColBERT is.
        normalize: whether vectors are scaled to length 1.
        max_tokens: the most tokens of a text, or of a pair for rerankers, with the special tokens around it; longer
            texts are cut before the special tokens at their end.
        lowercase: True if texts become lower case before they are tokenised.
        prompts: name -> text put in front of a text, such as "query" -> "search_query: ".
        default_prompt: name of the prompt for texts without one.
        include_prompt: False if the tokens of the prompt, with the special tokens before it, are left out of the
            pooling.
        similarity: how vectors are compared.
        dimensions: the widths to which vectors may be cut, ascending (Matryoshka); empty: not stated.
        dense: the linear layers after the pooling that the engine does not compute.
        score_activation: function on a reranker's scores; None: not a reranker, or not stated.
        second_text_ids: added to the ids of the tokens of a pair's second text, with the special tokens after it; None:
            nothing. The vocabulary of a reranker that tells the texts apart has all tokens twice.
        query_tokens: length to which a query of a multi-vector model is filled up with ``expansion_token``.
        expansion_token: id of the token that fills up queries; None: they are not filled up.
        skipped_tokens: ids of the tokens whose vectors are left out of a document of a multi-vector model.
    """

    pooling: tuple[Pooling, ...] = ()
    is_multi_vector: bool = False
    normalize: bool | None = None
    max_tokens: int | None = None
    lowercase: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    include_prompt: bool = True
    similarity: Similarity | None = None
    dimensions: tuple[int, ...] = ()
    dense: tuple[DenseLayer, ...] = ()
    score_activation: Activation | None = None
    second_text_ids: int | None = None
    query_tokens: int | None = None
    expansion_token: int | None = None
    skipped_tokens: tuple[int, ...] = ()

    def n_out(self, n_embd: int) -> int:
        """Return the width of its vectors, for token vectors of ``n_embd`` columns."""
        return self.dense[-1].n_out if self.dense else n_embd * max(len(self.pooling), 1)

    def metadata(self, architecture: str) -> dict[str, Any]:
        """Return the keys of a GGUF file of this architecture, without the arrays of dense layers.

        Args:
            architecture: ``general.architecture``.
        """
        upstream = next((number for number, each in _UPSTREAM_POOLING.items() if each == self.pooling), None)
        stated: dict[str, Any] = {
            "normalize": self.normalize,
            "max_tokens": self.max_tokens,
            "lowercase": self.lowercase or None,
            "prompts": json.dumps(dict(self.prompts), ensure_ascii=False) if self.prompts else None,
            "default_prompt": self.default_prompt,
            "include_prompt": None if self.include_prompt else False,
            "similarity": self.similarity,
            "dimensions": json.dumps(self.dimensions) if self.dimensions else None,
            "dense": json.dumps([_form(layer) for layer in self.dense]) if self.dense else None,
            "score_activation": self.score_activation,
            "multi_vector": self.is_multi_vector or None,
            "second_text_ids": self.second_text_ids,
            "query_tokens": self.query_tokens,
            "expansion_token": self.expansion_token,
            "skipped_tokens": json.dumps(self.skipped_tokens) if self.skipped_tokens else None,
        }
        found = {PREFIX + key: value for key, value in stated.items() if value is not None}
        if self.pooling and upstream is None:
            found[f"{PREFIX}pooling"] = _JOINED.join(self.pooling)
        elif self.pooling or self.is_multi_vector:
            found[f"{architecture}.pooling_type"] = int(upstream or 0)
        return found


def read_profile(metadata: Mapping[str, str]) -> EmbeddingProfile:
    """Read the profile from a file's scalar metadata, such as ``Model.metadata``.

    Raises:
        ModelLoadError: a value is not one that pyggml writes.
    """
    reader = _Reader(metadata)
    return EmbeddingProfile(
        pooling=reader.pooling(),
        is_multi_vector=reader.flag("multi_vector") or False,
        normalize=reader.flag("normalize"),
        max_tokens=reader.count("max_tokens"),
        lowercase=reader.flag("lowercase") or False,
        prompts=reader.prompts(),
        default_prompt=metadata.get(f"{PREFIX}default_prompt"),
        include_prompt=reader.flag("include_prompt") is not False,
        similarity=cast("Similarity | None", reader.choice("similarity", SIMILARITIES)),
        dimensions=tuple(reader.counts("dimensions", 1)),
        dense=tuple(reader.dense()),
        score_activation=cast("Activation | None", reader.choice("score_activation", ACTIVATIONS)),
        second_text_ids=reader.count("second_text_ids"),
        query_tokens=reader.count("query_tokens"),
        expansion_token=reader.count("expansion_token", 0),
        skipped_tokens=tuple(reader.counts("skipped_tokens", 0)),
    )


def apply_dense(
    layer: DenseLayer, weight: npt.NDArray[np.float32], bias: npt.NDArray[np.float32] | None, x: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Return a dense layer's output for rows of vectors.

    Args:
        layer: the layer.
        weight: its weight, float32, (n_out, n_in).
        bias: its bias, float32, (n_out,), if it has one.
        x: the vectors, float32, (n, n_in).
    """
    y = x @ weight.T
    if bias is not None:
        y = y + bias
    y = activate(layer.activation, y)
    return np.asarray(y + x if layer.is_residual else y, np.float32)


def activate(activation: Activation, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return an activation function's values, element by element."""
    if activation == "identity":
        return x
    if activation == "tanh":
        return np.tanh(x)
    if activation == "relu":
        return np.maximum(x, 0)
    sigmoid = 0.5 * (1 + np.tanh(0.5 * x))  # does not overflow
    if activation == "sigmoid":
        return np.asarray(sigmoid, np.float32)
    if activation == "silu":
        return np.asarray(x * sigmoid, np.float32)
    return np.asarray(0.5 * x * (1 + _erf(x / np.sqrt(2))), np.float32)


def _erf(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    import math

    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x))


def _form(layer: DenseLayer) -> dict[str, Any]:
    form = {"n_in": layer.n_in, "n_out": layer.n_out, "bias": layer.has_bias, "activation": layer.activation}
    return {**form, "residual": True} if layer.is_residual else form


class _Reader:
    """Typed values of the keys."""

    def __init__(self, metadata: Mapping[str, str]) -> None:
        self._metadata = metadata

    def _text(self, key: str) -> str | None:
        return self._metadata.get(PREFIX + key)

    def _error(self, key: str, expected: str) -> ModelLoadError:
        return ModelLoadError(f"{PREFIX}{key} of the model file is {self._text(key)!r:.100}; {expected} was expected")

    def pooling(self) -> tuple[Pooling, ...]:
        text = self._text("pooling")
        if text is None:
            architecture = self._metadata.get("general.architecture", "")
            return _UPSTREAM_POOLING.get(self._metadata.get(f"{architecture}.pooling_type", ""), ())
        kinds = text.split(_JOINED)
        if not set(kinds) <= set(POOLINGS):
            raise self._error("pooling", f"kinds among {', '.join(POOLINGS)}, joined by +,")
        return cast("tuple[Pooling, ...]", tuple(kinds))

    def flag(self, key: str) -> bool | None:
        text = self._text(key)
        if text not in (None, "true", "false"):
            raise self._error(key, "true or false")
        return None if text is None else text == "true"

    def count(self, key: str, least: int = 1) -> int | None:
        text = self._text(key)
        if text is not None and not (text.isascii() and text.isdecimal() and least <= int(text[:12]) < 2**31):
            raise self._error(key, "a positive integer")
        return None if text is None else int(text)

    def choice(self, key: str, among: Sequence[str]) -> str | None:
        text = self._text(key)
        if text is not None and text not in among:
            raise self._error(key, f"one of {', '.join(among)}")
        return text

    def prompts(self) -> dict[str, str]:
        found = self._json("prompts", {})
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            raise self._error("prompts", "a JSON object of texts")
        return found

    def counts(self, key: str, least: int) -> list[int]:
        found = self._json(key, [])
        if not isinstance(found, list) or not all(type(each) is int and least <= each < 2**31 for each in found):
            raise self._error(key, "a JSON list of integers")
        return found

    def dense(self) -> list[DenseLayer]:
        layers = self._json("dense", [])
        try:
            return [self._layer(i, each) for i, each in enumerate(layers)]
        except (KeyError, TypeError, ValueError):
            raise self._error("dense", "a JSON list of layers") from None

    @staticmethod
    def _layer(index: int, form: Mapping[str, Any]) -> DenseLayer:
        n_in, n_out, activation = form["n_in"], form["n_out"], form["activation"]
        if type(n_in) is not int or type(n_out) is not int or n_in < 1 or n_out < 1 or activation not in ACTIVATIONS:
            raise ValueError
        return DenseLayer(index, n_in, n_out, bool(form["bias"]), activation, bool(form.get("residual")))

    def _json(self, key: str, default: Any) -> Any:
        text = self._text(key)
        try:
            return default if text is None else json.loads(text)
        except (ValueError, RecursionError):
            raise self._error(key, "JSON") from None
