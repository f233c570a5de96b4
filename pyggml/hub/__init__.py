"""Downloads of models by reference: ``hf:ORG/REPO[@REVISION][:FILE]``.

Files are stored in the cache of huggingface_hub, which other tools share. That package transfers the files; pyggml
parses references, chooses files and reports errors.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from pyggml.errors import MissingPackageError
from pyggml.hub.cached_model import Download
from pyggml.hub.reference import Reference, guess_reference, is_reference, parse_reference
from pyggml.progress import ProgressOption, progress_function, shows_progress

__all__ = [
    "Download",
    "Reference",
    "downloads",
    "downloads_dir",
    "fetch",
    "guess_reference",
    "is_reference",
    "parse_reference",
    "remove_download",
]

reference_meant_by = guess_reference  # its name in earlier versions

_MIN_VERSION = "1.24"  # earlier versions cannot stop a transfer over Xet
_INSTALL = f"pip install 'huggingface_hub>={_MIN_VERSION}'"


@shows_progress("Downloading {}")
def fetch(source: str, progress: ProgressOption = None) -> Path:
    """Download the files of a reference that are not in the cache yet.

    Args:
        source: the reference.
        progress: called with the fraction downloaded, 0 to 1 (over Xet on another thread). It returns False to stop;
            complete files stay in the cache. None: a bar in a notebook; False: no bar.

    Returns:
        The GGUF file (the first of a split set), or the directory of a checkpoint with the files an import needs.

    Raises:
        InvalidParameterError: the reference is malformed.
        MissingPackageError: huggingface_hub is not installed, or too old.
        ModelNotFoundError: the hub has no such repository, revision or file.
        ModelLoadError: the repository holds no model, or several, or ``progress`` stopped it.
        DownloadError: the hub cannot be reached or refuses, or offline mode is on and the files are not in the cache.
        DiskFullError: there is not enough disk space for the files.
    """
    reference = parse_reference(source)
    _require_package(reference)
    from pyggml.hub.downloader import fetch_model

    return fetch_model(reference, progress_function(progress))


def downloads() -> list[Download]:
    """Return the models in the cache of huggingface_hub that pyggml can load, the last used first.

    Other tools share that cache, and may have downloaded them. Without huggingface_hub, there are none.
    """
    if not _has_package():
        return []
    from pyggml.hub.cache import cached_models

    return cached_models()


def downloads_dir() -> Path | None:
    """Return the cache's folder, which may not exist yet; None without huggingface_hub."""
    if not _has_package():
        return None
    from pyggml.hub.cache import cache_folder

    return cache_folder()


def remove_download(download: Download) -> int:
    """Remove one of :func:`downloads` from the cache, and return the number of bytes freed.

    Files that another revision shares are not removed.

    Args:
        download: one of :func:`downloads`.
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
    found = huggingface_hub.__version__
    if tuple(map(int, found.split(".")[:2])) < tuple(map(int, _MIN_VERSION.split("."))):
        text = f"needs huggingface_hub {_MIN_VERSION} or later, but {found} is installed"
        raise MissingPackageError(f"downloading {reference} {text}: {_INSTALL}")
