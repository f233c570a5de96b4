"""The adapters of a loaded model, as requests name them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyggml.server.http.errors import Failure, RequestError

if TYPE_CHECKING:
    from pyggml.server.models.model_state import LoadedModel


def adapter_names(model: LoadedModel) -> list[str]:
    """Return the names of a model's adapters, in the order in which they were loaded: an adapter's index is its id."""
    return [*model.llm.adapters]


def require_adapter(model: LoadedModel, name: str) -> None:
    """Check that a model has an adapter.

    Raises:
        RequestError: 404, it has none of this name.
    """
    names = adapter_names(model)
    if name not in names:
        known = f"it has {', '.join(map(repr, names))}" if names else "it has none"
        message = f"the model {model.name!r} has no adapter {name!r:.200}: {known}"
        raise RequestError(Failure(404, "not_found", message, "model_not_found", "model"))
