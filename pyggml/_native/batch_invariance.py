"""Check of batch invariance (``deterministic=True``): results must not depend on other requests in the batch."""

from __future__ import annotations

from pyggml._native.context import Context
from pyggml.errors import InvalidParameterError

_ALONE = (
    "without deterministic=True, with n_parallel=1 and prefix_cache=False, which computes each request alone and in "
    "full"
)


def require_batch_invariance(context: Context) -> None:
    """Reject a context whose results may depend on the other tokens of a batch.

    Raises:
        InvalidParameterError: some operations are not batch invariant; the message names them and the way out.
    """
    names = context.not_batch_invariant()
    if names:
        raise InvalidParameterError(
            "deterministic=True: in this model as it is loaded, a request may get other bits in a batch than alone, "
            f"because of {', '.join(names)}. {_way_out(names)}"
        )


def _way_out(names: tuple[str, ...]) -> str:
    if any("PYGGML_KERNELS" in name for name in names):
        return "Start without PYGGML_KERNELS=off in the environment, so that pyggml's own kernels compute them"
    if any("for this CPU" in name for name in names):
        return f"This processor lacks the instructions for pyggml's own kernels: load {_ALONE}"
    if any(" on " in name for name in names):
        return 'Load with device="cpu" and without rpc, since only the CPU has batch-invariant kernels'
    return f"Quantise to a type that pyggml has kernels for (docs/explanation/kernels.md); or load {_ALONE}"
