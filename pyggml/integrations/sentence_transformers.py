"""A model with the methods of sentence-transformers' ``SentenceTransformer``, for libraries that call those.

Needs neither sentence-transformers nor PyTorch. Tensors are made only if they are asked for.

>>> from pyggml.integrations.sentence_transformers import SentenceEncoder
>>> SentenceEncoder("model.gguf").encode(["a dog", "a cat"]).shape
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast, get_args, overload

import numpy as np
import numpy.typing as npt

from pyggml import LLM, InvalidParameterError
from pyggml.integrations._frameworks import needs
from pyggml.integrations._models import ModelLike, SharedOnCopy, model_name, open_llm

__all__ = ["SentenceEncoder"]

Vectors = npt.NDArray[np.float32]
OutputValue = Literal["sentence_embedding", "token_embeddings"]
Similarity = Literal["cosine", "dot", "euclidean", "manhattan", "maxsim"]
Role = Literal["query", "document"]

#: Names of prompts for queries and documents; the first one that a model has is used.
_PROMPTS: Mapping[Role, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}


class SentenceEncoder(SharedOnCopy):
    """Sentence embeddings in sentence-transformers' form. Safe to call from any thread.

    What the model's authors published with it (``llm.embedding_profile``) applies unless arguments say otherwise:
    prompts, pooling, layers after it, normalisation, the length of the longest text, similarity.

    Args:
        model: an open LLM; or a file, a directory or a reference, as for :func:`pyggml.load`; None: the demonstration
            model.
        prompts: name -> text before each input, such as ``{"query": "search_query: "}``, in addition to the model's
            own or instead of those of the same name.
        default_prompt_name: the prompt of ``encode`` without one; None: the model's own.
        similarity_fn_name: how :meth:`similarity` compares vectors; None: the model's own, or "cosine".
        truncate_dim: number of values to keep of each vector, for models trained for that.
        normalize_embeddings: scale all vectors to length 1, whatever a call says.
        pooling: as for :meth:`pyggml.LLM.embed`.
        **load_options: parameters of :func:`pyggml.load`.

    Attributes:
        llm: the model in use.
        max_seq_length: longest input in tokens; longer ones are cut off. None: as the model's file says, or its
            context.
    """

    def __init__(
        self,
        model: ModelLike = None,
        *,
        prompts: Mapping[str, str] | None = None,
        default_prompt_name: str | None = None,
        similarity_fn_name: Similarity | None = None,
        truncate_dim: int | None = None,
        normalize_embeddings: bool = False,
        pooling: Any = None,
        **load_options: Any,
    ) -> None:
        self.llm: LLM = open_llm(model, load_options)
        profile = self.llm.embedding_profile
        self.prompts = {**profile.prompts, **(prompts or {})}
        self.default_prompt_name = profile.default_prompt if default_prompt_name is None else default_prompt_name
        own = profile.similarity or ("maxsim" if profile.is_multi_vector else "cosine")
        self.similarity_fn_name: Similarity = own if similarity_fn_name is None else similarity_fn_name
        if self.similarity_fn_name not in get_args(Similarity):
            known = ", ".join(get_args(Similarity))
            raise InvalidParameterError(f"similarity_fn_name is {similarity_fn_name!r}: known are {known}")
        self.truncate_dim = truncate_dim
        self.normalize_embeddings = normalize_embeddings
        self.pooling = pooling
        self.max_seq_length: int | None = None
        self.model_card_data = None
        self._name = model_name(model)

    def __repr__(self) -> str:
        return f"SentenceEncoder({self._name!r}, {self.get_sentence_embedding_dimension()} dimensions)"

    @overload
    def encode(self, sentences: str, *, convert_to_tensor: Literal[False] = ..., **options: Any) -> Vectors: ...

    @overload
    def encode(
        self, sentences: Sequence[str], *, convert_to_tensor: Literal[False] = ..., **options: Any
    ) -> Vectors: ...

    @overload
    def encode(self, sentences: str | Sequence[str], *, convert_to_tensor: bool, **options: Any) -> Any: ...

    def encode(
        self,
        sentences: str | Sequence[str],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,  # noqa: ARG002
        show_progress_bar: bool | None = None,  # noqa: ARG002
        output_value: OutputValue = "sentence_embedding",
        precision: str = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: Any = None,  # noqa: ARG002
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Embed sentences.

        Args:
            sentences: one, or several.
            prompt_name: name of the prompt before each sentence; None: the default one.
            prompt: its text, instead of a name; "": none.
            batch_size: no effect: the engine fills its batches itself.
            show_progress_bar: no effect.
            output_value: "sentence_embedding": one vector of each sentence; "token_embeddings": one of each token.
            precision: "float32"; others are refused.
            convert_to_numpy: return an array; False: a list of tensors, which needs PyTorch.
            convert_to_tensor: return a tensor, which needs PyTorch.
            device: no effect: the model is where it was loaded.
            normalize_embeddings: scale each vector to length 1; False: as the model's file says.
            truncate_dim: number of values to keep; None: that of the encoder.
            **kwargs: other parameters of :meth:`pyggml.LLM.embed`.

        Returns:
            float32, (n_sentences, n_dims), in the order of the sentences; for a single str, (n_dims,). With
            "token_embeddings", and by models that embed tokens, for each sentence (n_tokens, n_dims).

        Raises:
            InvalidParameterError: there is no such prompt, or an argument is invalid; or the prompt is not one of the
                model's own, and the model treats the tokens of those separately.
            InferError: as :meth:`pyggml.LLM.embed`.
        """
        if precision != "float32":
            raise InvalidParameterError(f"precision is {precision!r}: vectors are float32 here")
        if output_value not in ("sentence_embedding", "token_embeddings"):
            raise InvalidParameterError(f"output_value is {output_value!r}: use sentence_embedding or token_embeddings")
        name = self.default_prompt_name if prompt_name is None else prompt_name
        before = self._prompt_text(name) if prompt is None else prompt
        given = [sentences] if isinstance(sentences, str) else list(sentences)
        is_cut = truncate_dim is not None or self.truncate_dim is not None
        normalizes = normalize_embeddings or self.normalize_embeddings
        options: dict[str, Any] = {
            "truncate": True,
            "max_tokens": self.max_seq_length,
            "normalize": True if normalizes and not is_cut else None,
            "pooling": "none" if output_value == "token_embeddings" else self.pooling,
            **kwargs,
        }
        found: Any = self._vectors(given, name if prompt is None else None, before, options)
        if is_cut:
            n_kept = self.truncate_dim if truncate_dim is None else truncate_dim
            found = [_cut(vector, n_kept, normalizes) for vector in found] if given else found[:, :n_kept]
        is_stacked = not given or all(np.ndim(vector) == 1 for vector in found)
        if is_stacked:
            found = np.asarray(found, np.float32)
        if convert_to_tensor or not convert_to_numpy:
            found = _tensors(found, stacked=convert_to_tensor and is_stacked)
        return found[0] if isinstance(sentences, str) else found

    def _vectors(self, sentences: list[str], name: str | None, prompt: str, options: dict[str, Any]) -> Any:
        """Embed sentences behind a prompt; ``name`` is its name, if it was chosen by one."""
        if not sentences:
            return np.empty((0, self.llm.n_dimensions), np.float32)
        profile, role = self.llm.embedding_profile, options.pop("role", None)
        is_own = name is not None and profile.prompts.get(name) == prompt
        if profile.is_multi_vector and (is_own or not prompt):
            # Queries and documents differ in more than prompts.
            chosen = name if is_own else None
            return self.llm.embedding_request(sentences, role=role, prompt_name=chosen, **options).run()
        if is_own:
            return self.llm.embed(sentences, prompt_name=name, **options)
        if prompt and (profile.is_multi_vector or not profile.include_prompt):
            raise InvalidParameterError(
                f"prompt {prompt!r} is not one of the model's own, whose tokens it treats separately: "
                f"pass prompt_name, one of {', '.join(profile.prompts) or 'none'}"
            )
        if profile.default_prompt is None:
            return self.llm.embed([prompt + each for each in sentences], **options)
        # Token ids get no default prompt.
        texts = [prompt + (each.lower() if profile.lowercase else each) for each in sentences]
        return self.llm.embed(self.llm.tokenizer.encode_batch(texts).split(), **options)

    def encode_query(self, sentences: str | Sequence[str], **options: Any) -> Any:
        """As :meth:`encode`, with the prompt called "query", if there is one."""
        return self._encode_as("query", sentences, options)

    def encode_document(self, sentences: str | Sequence[str], **options: Any) -> Any:
        """As :meth:`encode`, with the prompt called "document", "passage" or "corpus", if there is one."""
        return self._encode_as("document", sentences, options)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Vectors:
        """Compare each of some vectors with each of others; a higher number is more alike.

        Args:
            embeddings1: (n, n_dims), or one vector, (n_dims,).
            embeddings2: (m, n_dims), or one vector, (n_dims,).

        Returns:
            float32, (n, m).
        """
        if self.similarity_fn_name == "maxsim":
            return self.llm.similarity(embeddings1, embeddings2)
        one, other = np.atleast_2d(_array(embeddings1)), np.atleast_2d(_array(embeddings2))
        if self.similarity_fn_name == "dot":
            return cast("Vectors", one @ other.T)
        if self.similarity_fn_name == "cosine":
            return cast("Vectors", _normalized(one) @ _normalized(other).T)
        order = 2 if self.similarity_fn_name == "euclidean" else 1
        return cast("Vectors", -np.linalg.norm(one[:, None] - other[None], ord=order, axis=-1))

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Vectors:
        """Compare vectors with their counterparts: float32, (n,). Arguments as for :meth:`similarity`."""
        if self.similarity_fn_name == "maxsim":
            pairs = zip(embeddings1, embeddings2, strict=True)
            return np.array([self.llm.similarity([a], [b])[0, 0] for a, b in pairs], np.float32)
        one, other = np.atleast_2d(_array(embeddings1)), np.atleast_2d(_array(embeddings2))
        return np.array([self.similarity(a, b)[0, 0] for a, b in zip(one, other, strict=True)], np.float32)

    def get_sentence_embedding_dimension(self) -> int:
        """Return the number of values of a vector."""
        n_dims = self.llm.n_dimensions
        return n_dims if self.truncate_dim is None else min(n_dims, self.truncate_dim)

    get_embedding_dimension = get_sentence_embedding_dimension

    def get_max_seq_length(self) -> int:
        """Return the longest input in tokens."""
        own = self.llm.embedding_profile.max_tokens or self.llm.n_ctx
        return min(own, self.llm.n_ctx) if self.max_seq_length is None else self.max_seq_length

    @property
    def tokenizer(self) -> Any:
        """The model's :class:`pyggml.Tokenizer`."""
        return self.llm.tokenizer

    @property
    def device(self) -> str:
        """Device of the model: "cpu", or a GPU's name."""
        gpus = [memory.name for memory in self.llm.memory[1:] if memory.weights_bytes]
        return gpus[0].lower() if gpus else "cpu"

    def eval(self) -> SentenceEncoder:
        """Return the encoder itself: it is always ready."""
        return self

    def to(self, _device: Any) -> SentenceEncoder:
        """Return the encoder itself: a model stays where it was loaded."""
        return self

    def _encode_as(self, role: Role, sentences: str | Sequence[str], options: dict[str, Any]) -> Any:
        if options.get("prompt") is None and options.get("prompt_name") is None:
            options["prompt_name"] = next((name for name in _PROMPTS[role] if name in self.prompts), None)
        return self.encode(sentences, role=role, **options)

    def _prompt_text(self, name: str | None) -> str:
        if name is None:
            return ""
        if name not in self.prompts:
            raise InvalidParameterError(
                f"there is no prompt {name!r}; known are {', '.join(self.prompts) or 'none'}: "
                "pass prompts={name: text}"
            )
        return self.prompts[name]


def _cut(vector: Vectors, n: int | None, normalizes: bool) -> Vectors:
    """The first values of vectors, which are normalised after that."""
    kept = vector[..., :n]
    return _normalized(kept) if normalizes else kept


def _array(vectors: Any) -> Vectors:
    """Vectors as an array, also tensors and lists of arrays."""
    return np.asarray(vectors, np.float32)


def _normalized(vectors: Vectors) -> Vectors:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def _tensors(vectors: Any, *, stacked: bool) -> Any:
    """Vectors as one tensor, or as a list of them."""
    with needs("torch"):
        import torch
    return torch.from_numpy(np.ascontiguousarray(vectors)) if stacked else [torch.from_numpy(each) for each in vectors]
