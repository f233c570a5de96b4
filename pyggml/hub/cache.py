"""What is in huggingface_hub's cache: models that pyggml can load, whichever tool downloaded them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from huggingface_hub import CachedFileInfo, CachedRepoInfo, CachedRevisionInfo, constants, scan_cache_dir
from huggingface_hub.errors import CacheNotFound

from pyggml._core.checks import shown
from pyggml.errors import InvalidParameterError
from pyggml.files.model_files import main_weights
from pyggml.hub.cached_model import Download
from pyggml.hub.file_selection import models_among
from pyggml.hub.reference import Reference


def cache_folder() -> Path:
    """The folder, which may not exist yet."""
    return Path(constants.HF_HUB_CACHE)


def cached_models() -> list[Download]:
    """The models in the cache, the last used first."""
    found = [
        download
        for repository in _repositories()
        for revision in repository.revisions
        for download in _models_in(repository, revision)
    ]
    return sorted(found, key=lambda download: -download.used)


def remove_model(download: Download) -> int:
    """Removes a model, and returns the number of bytes freed. What is left of a repository without models goes too."""
    if not isinstance(download, Download):
        raise InvalidParameterError(f"a Download was expected, as from downloads(), not {shown(download)}")
    kept = {blob for other in cached_models() if other.files != download.files for _, blob in other.files}
    freed = 0
    for link, blob in download.files:
        link.unlink(missing_ok=True)
        if blob not in kept and blob.is_file():
            freed += blob.stat().st_size
            blob.unlink()
    return freed + _remove_remains(download)


def _remove_remains(download: Download) -> int:
    """Removes the revision of a model that is gone, unless there is another model in it."""
    for repository in _repositories():
        for revision in repository.revisions:
            is_it = revision.snapshot_path in (download.path, *download.path.parents)
            if is_it and not list(_models_in(repository, revision)):
                _remove_strays(repository, revision)
                strategy = scan_cache_dir(cache_folder()).delete_revisions(revision.commit_hash)
                strategy.execute()
                return strategy.expected_freed_size
    return 0


def _remove_strays(repository: CachedRepoInfo, revision: CachedRevisionInfo) -> None:
    """Removes links to files elsewhere: huggingface_hub would remove those files with the revision."""
    for file in revision.files:
        if _data(repository, file) == file.file_path:
            file.file_path.unlink(missing_ok=True)


def _repositories() -> list[CachedRepoInfo]:
    try:
        return [each for each in scan_cache_dir(cache_folder()).repos if each.repo_type == "model"]
    except CacheNotFound:
        return []


def _models_in(repository: CachedRepoInfo, revision: CachedRevisionInfo) -> Iterator[Download]:
    files = {file.file_path.relative_to(revision.snapshot_path).as_posix(): file for file in revision.files}
    models: dict[str | None, list[str]] = {model[0]: model for model in models_among(files)}
    if main_weights(files) is not None:
        models[None] = [name for name in files if not name.endswith(".gguf")]
    for main, names in models.items():
        mine = [files[name] for name in names]
        yield Download(
            Reference(repository.repo_id, _name_of(revision), main),
            revision.snapshot_path / (main or ""),
            sum(file.size_on_disk for file in mine),
            max(file.blob_last_accessed for file in mine),
            tuple((file.file_path, _data(repository, file)) for file in mine),
        )


def _data(repository: CachedRepoInfo, file: CachedFileInfo) -> Path:
    """What to remove of a file besides its name: nothing else if somebody linked to a file of their own."""
    is_ours = file.blob_path.is_relative_to(repository.repo_path.resolve())
    return file.blob_path if is_ours else file.file_path


def _name_of(revision: CachedRevisionInfo) -> str | None:
    """What a reference calls a revision; None: it is the default branch's."""
    return None if "main" in revision.refs else next(iter(sorted(revision.refs)), revision.commit_hash)
