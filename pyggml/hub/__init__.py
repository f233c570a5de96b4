"""Models by reference: ``hf:ORG/REPO[@REVISION][:FILE]`` becomes files on this machine.

What is downloaded goes to the cache of huggingface_hub, where all tools that use it find it and leave theirs. That
package does the talking to the hub and the transfer. Ours are the references, the choice of files, and the messages.
"""

from __future__ import annotations

from pathlib import Path

from pyggml.errors import MissingPackageError
from pyggml.hub.reference import Reference, is_reference, parse_reference
from pyggml.model import Progress

__all__ = ["Reference", "fetch", "is_reference", "parse_reference"]

_OLDEST = (1, 24)  # earlier ones do not end a transfer over Xet when they are asked to


def fetch(source: str, progress: Progress | None = None) -> Path:
    """Downloads what a reference means, as far as it is not there.

    Args:
        source: the reference.
        progress: called with the part that is there, 0 to 1, while files come, over Xet on another thread; returning
            False stops. Files that are whole are kept for the next time.

    Returns:
        The GGUF file (of a split set the first), or the directory of a checkpoint with what an import needs of it.

    Raises:
        InvalidParameterError: no such reference can be.
        MissingPackageError: huggingface_hub is not there.
        ModelNotFoundError: the hub has no such repository, revision or file.
        ModelLoadError: the repository holds no model, or several, or ``progress`` stopped it.
        DownloadError: the hub cannot be reached or refuses, or is not to be asked and the files are not in the cache.
        DiskFullError: no room for them.
    """
    reference = parse_reference(source)
    _require_package(reference)
    from pyggml.hub.repository import fetch_model

    return fetch_model(reference, progress)


def _require_package(reference: Reference) -> None:
    try:
        import huggingface_hub
    except ImportError as error:
        raise MissingPackageError(
            f"{reference} is downloaded with huggingface_hub, which is not there ({error}): pip install 'pyggml[hub]'"
        ) from None
    if tuple(map(int, huggingface_hub.__version__.split(".")[:2])) < _OLDEST:
        raise MissingPackageError(
            f"{reference} is downloaded with huggingface_hub {'.'.join(map(str, _OLDEST))} or later, and this is "
            f"{huggingface_hub.__version__}: pip install -U 'pyggml[hub]'"
        )
