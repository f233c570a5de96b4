"""Proxy of a model in the engine's process: vocabulary, metadata and properties, without weights."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from pyggml._native.model import Model
from pyggml.errors import EngineError, InvalidParameterError

if TYPE_CHECKING:
    from pyggml._core.ffi import CData

# Properties that a model without weights lacks, and their types.
_PROPERTIES: dict[str, type] = {
    "desc": str,
    **dict.fromkeys(("n_ctx_train", "n_embd", "n_embd_out", "n_layer", "n_head", "n_head_kv", "n_swa"), int),
    **dict.fromkeys(("n_cls_out", "n_params", "size_bytes", "ftype", "rope_type"), int),
    **dict.fromkeys(("has_encoder", "has_decoder", "is_recurrent", "is_hybrid", "is_diffusion", "is_causal"), bool),
}


class IsolatedModel(Model):
    """A model whose weights are in another process. A Context, for example, cannot use it."""

    def __init__(self, path: str | os.PathLike[str], properties: Mapping[str, Any]) -> None:
        """Read the vocabulary and the metadata; ``properties`` are the :func:`model_properties` of the whole model.

        Raises:
            As :class:`pyggml.Model`; EngineError: a property is missing or has another type.
        """
        super().__init__(path, device="cpu", vocab_only=True)
        for name, kind in _PROPERTIES.items():
            value = properties.get(name)
            if type(value) is not kind:
                raise EngineError(f"the engine's process sent an invalid reply ({name} of the model)")
            setattr(self, name, value)

    @property
    def handle(self) -> CData:
        """The native handle, which does not exist in this process: it raises InvalidParameterError."""
        self.require_weights()

    def require_weights(self) -> NoReturn:
        """Raise InvalidParameterError, because the weights are in another process."""
        raise InvalidParameterError(
            f"the weights of {self.path} are in another process (isolate=True), and only the methods of the LLM reach "
            "them: for a Context, an Engine or the raw API load without isolate, or open pyggml.Model(llm.model.path)"
        )


def model_properties(model: Model) -> dict[str, Any]:
    """Return the properties of a model that its metadata do not contain, as JSON values."""
    return {name: kind(getattr(model, name)) for name, kind in _PROPERTIES.items()}
