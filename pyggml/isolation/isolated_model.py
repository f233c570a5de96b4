"""The model of an isolated LLM, as far as it is in the program: vocabulary, metadata and properties, no weights."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from pyggml._native.model import Model
from pyggml.errors import EngineError, InvalidParameterError

if TYPE_CHECKING:
    from pyggml._core.ffi import CData

# The properties that only the whole model knows, and their types.
_FACTS: dict[str, type] = {
    "desc": str,
    **dict.fromkeys(("n_ctx_train", "n_embd", "n_embd_out", "n_layer", "n_head", "n_head_kv", "n_swa"), int),
    **dict.fromkeys(("n_cls_out", "n_params", "size_bytes", "ftype", "rope_type"), int),
    **dict.fromkeys(("has_encoder", "has_decoder", "is_recurrent", "is_hybrid", "is_diffusion", "is_causal"), bool),
}


class IsolatedModel(Model):
    """A model whose weights are in another process. What needs them, such as a Context, refuses it."""

    def __init__(self, path: str | os.PathLike[str], facts: Mapping[str, Any]) -> None:
        """Reads the vocabulary and the metadata.

        Args:
            path: the model's file.
            facts: what :func:`facts_of` says of the whole model.

        Raises:
            As :class:`pyggml.Model`; EngineError: the facts are none.
        """
        super().__init__(path, device="cpu", vocab_only=True)
        for name, kind in _FACTS.items():
            value = facts.get(name)
            if type(value) is not kind:
                raise EngineError(f"the engine's process sent what makes no sense ({name} of the model)")
            setattr(self, name, value)

    @property
    def handle(self) -> CData:
        """There is none here.

        Raises:
            InvalidParameterError: always.
        """
        self.require_weights()

    def require_weights(self) -> NoReturn:
        """Says that they are elsewhere.

        Raises:
            InvalidParameterError: always.
        """
        raise InvalidParameterError(
            f"the weights of {self.path} are in another process (isolate=True), and only the methods of the LLM reach "
            "them: for a Context, an Engine or the raw API load without isolate, or open pyggml.Model(llm.model.path)"
        )


def facts_of(model: Model) -> dict[str, Any]:
    """The properties of a whole model that are not in its metadata, as JSON values."""
    return {name: kind(getattr(model, name)) for name, kind in _FACTS.items()}
