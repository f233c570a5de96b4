"""Models in the cache of huggingface_hub that pyggml can load, downloaded by any tool."""

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
    """Return the cache's folder, which may not exist yet."""
    return Path(constants.HF_HUB_CACHE)


def cached_models() -> list[Download]:
    """List the models in the cache, the last used first."""
    found = (download for repository, revision in _revisions() for download in _models_in(repository, revision))
    return sorted(found, key=lambda download: -download.used)


def remove_model(download: Download) -> int:
    """Remove a model, and its revision if that has no other model; return the number of bytes freed."""
    if not isinstance(download, Download):
        raise InvalidParameterError(f"download must be a Download from downloads(), not {shown(download)}")
    shared = {blob for other in cached_models() if other.files != download.files for _, blob in other.files}
    freed = 0
    for link, blob in download.files:
        link.unlink(missing_ok=True)
        if blob not in shared and blob.is_file():
            freed += blob.stat().st_size
            blob.unlink()
    return freed + _remove_empty_revision(download)


def _remove_empty_revision(download: Download) -> int:
    """Remove the revision of a removed model, unless it contains another model."""
    for repository, revision in _revisions():
        is_own = revision.snapshot_path in (download.path, *download.path.parents)
        if is_own and not list(_models_in(repository, revision)):
            for file in revision.files:  # huggingface_hub would remove files outside the cache with their links
                if _blob(repository, file) == file.file_path:
                    file.file_path.unlink(missing_ok=True)
            strategy = scan_cache_dir(cache_folder()).delete_revisions(revision.commit_hash)
            strategy.execute()
            return strategy.expected_freed_size
    return 0


def _revisions() -> list[tuple[CachedRepoInfo, CachedRevisionInfo]]:
    try:
        repositories = scan_cache_dir(cache_folder()).repos
    except CacheNotFound:
        return []
    return [(each, revision) for each in repositories if each.repo_type == "model" for revision in each.revisions]


def _models_in(repository: CachedRepoInfo, revision: CachedRevisionInfo) -> Iterator[Download]:
    files = {file.file_path.relative_to(revision.snapshot_path).as_posix(): file for file in revision.files}
    # In references, None is the default branch.
    name = None if "main" in revision.refs else next(iter(sorted(revision.refs)), revision.commit_hash)
    models: dict[str | None, list[str]] = {model[0]: model for model in models_among(files)}
    if main_weights(files) is not None:
        models[None] = [name for name in files if not name.endswith(".gguf")]
    for main, names in models.items():
        members = [files[name] for name in names]
        yield Download(
            Reference(repository.repo_id, name, main),
            revision.snapshot_path / (main or ""),
            sum(file.size_on_disk for file in members),
            max(file.blob_last_accessed for file in members),
            tuple((file.file_path, _blob(repository, file)) for file in members),
        )


def _blob(repository: CachedRepoInfo, file: CachedFileInfo) -> Path:
    """Return the blob of a file, or its link if that leads outside the cache."""
    is_cached = file.blob_path.is_relative_to(repository.repo_path.resolve())
    return file.blob_path if is_cached else file.file_path
