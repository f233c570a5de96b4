"""Fetches the model of a repository from the hub, or from huggingface_hub's cache.

huggingface_hub does the caching, the transfer, its locks and its retries.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from huggingface_hub import DryRunFileInfo, HfApi, constants, hf_hub_download, snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError

from pyggml._core import log
from pyggml._native.model import Progress
from pyggml._version import __version__
from pyggml.errors import DiskFullError, DownloadError, InvalidParameterError
from pyggml.hub.errors import ELSEWHERE, translated
from pyggml.hub.file_selection import choose
from pyggml.hub.progress import Transfer
from pyggml.hub.reference import Reference, is_plain_path

# The form of a commit. Nothing else may become part of a path.
_COMMIT = re.compile(r"[0-9a-f]{40}")


def fetch_model(reference: Reference, progress: Progress | None) -> Path:
    """Returns the GGUF file or directory of a reference, after downloading what is missing.

    Raises:
        As :func:`pyggml.hub.fetch`.
    """
    _require_address()
    repository = _open(reference)
    choice = choose(reference, repository)
    directory = repository.bring(choice.names, progress)
    return directory if choice.main is None else directory / choice.main


class Repository(Protocol):
    """The files of a repository at one revision, wherever they are."""

    @property
    def names(self) -> Collection[str]:
        """Paths of all files."""

    def fetch(self, name: str) -> Path:
        """Makes one file available and returns its local path."""

    def bring(self, names: Sequence[str], progress: Progress | None) -> Path:
        """Makes some files available and returns their local directory."""


def _open(reference: Reference) -> Repository:
    """The repository on the hub, or in the cache if the hub cannot be reached or offline mode is on."""
    if constants.HF_HUB_OFFLINE:
        return CachedRepository(reference, "HF_HUB_OFFLINE is set")
    try:
        return HubRepository(reference)
    except DownloadError as error:
        if not error.is_temporary or _snapshot(reference) is None:
            raise
        log.logger.warning("%s; using the copy of %s in %s", error, reference, constants.HF_HUB_CACHE)
        return CachedRepository(reference, str(error))


class HubRepository:
    """The files of a repository on the hub, at the current commit of its revision.

    Attributes:
        names: paths of the files.
    """

    def __init__(self, reference: Reference) -> None:
        """Asks the hub for the list of files."""
        self._reference = reference
        with translated(reference):
            api = HfApi(library_name="pyggml", library_version=__version__)
            info = api.model_info(reference.repo_id, revision=reference.revision, timeout=constants.HF_HUB_ETAG_TIMEOUT)
            self._commit, names = str(info.sha), [file.rfilename for file in info.siblings or ()]
        if not _COMMIT.fullmatch(self._commit):
            raise DownloadError(
                f"{constants.ENDPOINT} does not answer like a hub: {self._commit!r:.80} is not a commit"
            )
        self.names: Collection[str] = frozenset(name for name in names if is_plain_path(name))

    def fetch(self, name: str) -> Path:
        """Downloads one file if it is missing and returns its local path."""
        return self.bring([name], None) / name

    def bring(self, names: Sequence[str], progress: Progress | None) -> Path:
        """Downloads missing files and returns their local directory.

        Raises:
            As :func:`pyggml.hub.fetch`.
        """
        files = [self._described(name) for name in names]
        missing = [file for file in files if not Path(file.local_path).exists()]
        self._require_room(missing)
        transfer = Transfer(self._reference, sum(file.file_size or 0 for file in missing), progress)
        for file in missing:
            with transfer.of_file(file.file_size or 0) as bars, translated(self._reference):
                self._get(file.filename, self._commit, tqdm_class=bars)
        directory = Path(files[0].local_path.removesuffix(names[0]))
        self._remember(directory, names[0])
        return directory

    def _described(self, name: str) -> DryRunFileInfo:
        with translated(self._reference):
            file: DryRunFileInfo = self._get(name, self._commit, dry_run=True)
        if file.commit_hash != self._commit:
            raise DownloadError(
                f"{constants.ENDPOINT} does not answer like a hub: asked for {name} at commit {self._commit}, it "
                f"answered for {file.commit_hash!r:.80}"
            )
        return file

    def _remember(self, directory: Path, name: str) -> None:
        """Records the revision's commit in the cache for offline use, by asking for a file by the revision's name."""
        if _snapshot(self._reference) != directory:
            with translated(self._reference):
                self._get(name, self._reference.revision)

    def _get(self, name: str, revision: str | None, **options: Any) -> Any:
        return hf_hub_download(
            self._reference.repo_id,
            name,
            revision=revision,
            cache_dir=constants.HF_HUB_CACHE,
            library_name="pyggml",
            library_version=__version__,
            **options,
        )

    def _require_room(self, files: Sequence[DryRunFileInfo]) -> None:
        required = sum(file.file_size or 0 for file in files if file.will_download)
        cache = Path(constants.HF_HUB_CACHE)
        place = next(path for path in (cache, *cache.parents) if path.exists())
        available = shutil.disk_usage(place).free
        if required > available:
            raise DiskFullError(
                f"{self._reference} needs {required} bytes, but {place} has only {available} free; {ELSEWHERE}",
                required,
                available,
            )


class CachedRepository:
    """The downloaded files of a repository, without asking the hub.

    Attributes:
        names: paths of the files.
    """

    def __init__(self, reference: Reference, reason: str) -> None:
        """Looks into the cache; ``reason`` says why the hub is not asked."""
        self._complaint = f"{reason}, and {{}} is not in {constants.HF_HUB_CACHE}"
        snapshot = _snapshot(reference)
        self.names: Collection[str] = frozenset() if snapshot is None else frozenset(_files(snapshot))
        if snapshot is None or not self.names:
            raise DownloadError(self._complaint.format(reference), is_temporary=True)
        self._directory = snapshot

    def fetch(self, name: str) -> Path:
        """The local path of one file."""
        return self.bring([name], None) / name

    def bring(self, names: Sequence[str], progress: Progress | None) -> Path:
        """The local directory of the files.

        Raises:
            DownloadError: a file is not in the cache.
        """
        del progress
        for name in names:
            if name not in self.names:
                raise DownloadError(self._complaint.format(name), is_temporary=True)
        return self._directory


def _snapshot(reference: Reference) -> Path | None:
    """The cached directory of the revision as last seen; None if there is none."""
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


def _require_address() -> None:
    try:
        address = urlsplit(constants.ENDPOINT)
        is_usable = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise InvalidParameterError(
            f"HF_ENDPOINT is {constants.ENDPOINT!r}; it must be an address such as https://huggingface.co"
        )
