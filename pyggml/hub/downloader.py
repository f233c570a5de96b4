"""Downloads of models from the hub to huggingface_hub's cache.

huggingface_hub implements caching, transfers, locks and retries.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from huggingface_hub import DryRunFileInfo, HfApi, constants, hf_hub_download, snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError

from pyggml._core import log
from pyggml._version import __version__
from pyggml.errors import DiskFullError, DownloadError, InvalidParameterError
from pyggml.hub.errors import DISK_ADVICE, not_a_hub, translate_errors
from pyggml.hub.file_selection import Files, choose
from pyggml.hub.progress import Transfer
from pyggml.hub.reference import Reference, is_plain_path
from pyggml.progress import Progress

# A commit hash. Other values must not become part of a path.
_COMMIT = re.compile(r"[0-9a-f]{40}")


def fetch_model(reference: Reference, progress: Progress | None) -> Path:
    """Download the missing files of a reference; see :func:`pyggml.hub.fetch`."""
    _check_endpoint()
    repository = _open(reference)
    choice = choose(reference, repository)
    directory = repository.fetch(choice.names, progress)
    return directory if choice.main is None else directory / choice.main


def _open(reference: Reference) -> Files:
    """Open the repository on the hub, or in the cache if the hub cannot be reached or offline mode is on."""
    if constants.HF_HUB_OFFLINE:
        return CachedRepository(reference, "HF_HUB_OFFLINE is set")
    try:
        return HubRepository(reference)
    except DownloadError as error:
        if not error.is_temporary or _snapshot(reference) is None:
            raise
        log.logger.warning("%s; using the copy of %s in %s", error, reference, constants.HF_HUB_CACHE)
        return CachedRepository(reference, str(error))


class HubRepository(Files):
    """The files of a repository on the hub, at the current commit of its revision. See :class:`Files`."""

    def __init__(self, reference: Reference) -> None:
        """Request the list of files from the hub."""
        self._reference = reference
        with translate_errors(reference):
            api = HfApi(library_name="pyggml", library_version=__version__)
            info = api.model_info(reference.repo_id, revision=reference.revision, timeout=constants.HF_HUB_ETAG_TIMEOUT)
            self._commit, names = str(info.sha), [file.rfilename for file in info.siblings or ()]
        if not _COMMIT.fullmatch(self._commit):
            raise not_a_hub(f"{self._commit!r:.80} is not a commit")
        self.names = frozenset(name for name in names if is_plain_path(name))

    def fetch(self, names: Sequence[str], progress: Progress | None = None) -> Path:
        """Download missing files, and return their local directory."""
        files = [self._file_info(name) for name in names]
        missing = [file for file in files if not Path(file.local_path).exists()]
        self._require_disk_space(missing)
        transfer = Transfer(self._reference, sum(file.file_size or 0 for file in missing), progress)
        for file in missing:
            with transfer.track_file(file.file_size or 0) as bars, translate_errors(self._reference):
                self._download(file.filename, self._commit, tqdm_class=bars)
        directory = Path(files[0].local_path.removesuffix(names[0]))
        self._record_revision(directory, names[0])
        return directory

    def _file_info(self, name: str) -> DryRunFileInfo:
        with translate_errors(self._reference):
            file: DryRunFileInfo = self._download(name, self._commit, dry_run=True)
        if file.commit_hash != self._commit:
            raise not_a_hub(f"it sent {name} of commit {file.commit_hash!r:.80} for commit {self._commit}")
        return file

    def _record_revision(self, directory: Path, name: str) -> None:
        """Record the revision's commit in the cache for offline use, by requesting a file by the revision's name."""
        if _snapshot(self._reference) != directory:
            with translate_errors(self._reference):
                self._download(name, self._reference.revision)

    def _download(self, name: str, revision: str | None, **options: Any) -> Any:
        return hf_hub_download(
            self._reference.repo_id,
            name,
            revision=revision,
            cache_dir=constants.HF_HUB_CACHE,
            library_name="pyggml",
            library_version=__version__,
            **options,
        )

    def _require_disk_space(self, files: Sequence[DryRunFileInfo]) -> None:
        required = sum(file.file_size or 0 for file in files if file.will_download)
        cache = Path(constants.HF_HUB_CACHE)
        folder = next(path for path in (cache, *cache.parents) if path.exists())
        available = shutil.disk_usage(folder).free
        if required > available:
            raise DiskFullError(
                f"{self._reference} needs {required} bytes, but {folder} has only {available} free; {DISK_ADVICE}",
                required,
                available,
            )


class CachedRepository(Files):
    """The downloaded files of a repository, without requests to the hub. See :class:`Files`."""

    def __init__(self, reference: Reference, reason: str) -> None:
        """Look up the files in the cache; ``reason`` tells why not on the hub."""
        self._error = f"{reason}, and {{}} is not in {constants.HF_HUB_CACHE}"
        snapshot = _snapshot(reference)
        self.names = frozenset() if snapshot is None else frozenset(_files(snapshot))
        if snapshot is None or not self.names:
            raise DownloadError(self._error.format(reference), is_temporary=True)
        self._directory = snapshot

    def fetch(self, names: Sequence[str], progress: Progress | None = None) -> Path:  # noqa: ARG002
        """Return the local directory of the files."""
        for name in names:
            if name not in self.names:
                raise DownloadError(self._error.format(name), is_temporary=True)
        return self._directory


def _snapshot(reference: Reference) -> Path | None:
    """Return the directory of the revision in the cache; None: there is none."""
    try:
        return Path(
            snapshot_download(
                reference.repo_id,
                revision=reference.revision,
                cache_dir=constants.HF_HUB_CACHE,
                local_files_only=True,
                allow_patterns=[],  # completeness is checked by pyggml itself
            )
        )
    except LocalEntryNotFoundError:
        return None


def _files(directory: Path) -> Iterator[str]:
    for path, _, names in os.walk(directory):
        for name in names:
            file = Path(path, name)
            if file.exists():  # an interrupted clean-up leaves links without blobs
                yield file.relative_to(directory).as_posix()


def _check_endpoint() -> None:
    try:
        address = urlsplit(constants.ENDPOINT)
        is_usable = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise InvalidParameterError(
            f"HF_ENDPOINT is {constants.ENDPOINT!r}; it must be an address such as https://huggingface.co"
        )
