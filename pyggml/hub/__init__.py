"""Downloads models by reference: ``hf:ORG/REPO[@REVISION][:FILE]``.

Files go to the cache of huggingface_hub, which is shared with all tools that use it. That package talks to the hub and
transfers files; pyggml parses references, chooses files and words the messages.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from pyggml._native.model import Progress
from pyggml.errors import MissingPackageError
from pyggml.hub.cached_model import Download
from pyggml.hub.reference import Reference, is_reference, parse_reference, reference_meant_by

__all__ = [
    "Download",
    "Reference",
    "downloads",
    "downloads_dir",
    "fetch",
    "is_reference",
    "parse_reference",
    "reference_meant_by",
    "remove_download",
]

_OLDEST = (1, 24)  # earlier versions cannot stop a transfer over Xet
_INSTALL = f"pip install 'huggingface_hub>={_OLDEST[0]}.{_OLDEST[1]}'"


def fetch(source: str, progress: Progress | None = None) -> Path:
    """Downloads the files of a reference that are not in the cache yet.

    Args:
        source: the reference.
        progress: called with the fraction downloaded, 0 to 1 (over Xet on another thread); returning False stops.
            Complete files are kept for the next time.

    Returns:
        The GGUF file (the first of a split set), or the directory of a checkpoint with the files an import needs.

    Raises:
        InvalidParameterError: the reference is malformed.
        MissingPackageError: huggingface_hub is not installed, or too old.
        ModelNotFoundError: the hub has no such repository, revision or file.
        ModelLoadError: the repository holds no model, or several, or ``progress`` stopped it.
        DownloadError: the hub cannot be reached or refuses, or offline mode is on and the files are not in the cache.
        DiskFullError: the disk has no room for the files.
    """
    reference = parse_reference(source)
    _require_package(reference)
    from pyggml.hub.downloader import fetch_model

    return fetch_model(reference, progress)


def downloads() -> list[Download]:
    """Returns the models in the cache of huggingface_hub that pyggml can load, the last used first.

    Tools share that cache: other tools may have downloaded them, or use them. Without huggingface_hub there are none.
    """
    if not _has_package():
        return []
    from pyggml.hub.cache import cached_models

    return cached_models()


def downloads_dir() -> Path | None:
    """Returns the cache's folder, which may not exist yet; None without huggingface_hub."""
    if not _has_package():
        return None
    from pyggml.hub.cache import cache_folder

    return cache_folder()


def remove_download(download: Download) -> int:
    """Removes one of :func:`downloads` from the cache, and returns the number of bytes freed.

    Data that another revision shares with it stays.
    """
    from pyggml.hub.cache import remove_model

    return remove_model(download)


def _has_package() -> bool:
    return importlib.util.find_spec("huggingface_hub") is not None


def _require_package(reference: Reference) -> None:
    try:
        import huggingface_hub
    except ImportError as error:
        raise MissingPackageError(
            f"downloading {reference} needs huggingface_hub, which cannot be imported ({error}): {_INSTALL}"
        ) from None
    if tuple(map(int, huggingface_hub.__version__.split(".")[:2])) < _OLDEST:
        raise MissingPackageError(
            f"downloading {reference} needs huggingface_hub {_OLDEST[0]}.{_OLDEST[1]} or later, but "
            f"{huggingface_hub.__version__} is installed: {_INSTALL}"
        )
