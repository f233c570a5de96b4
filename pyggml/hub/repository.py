"""A repository on the hub, or what is in the cache of it; and the model in it, on this machine.

The cache, the transfer, its locks and its retries are huggingface_hub's.
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

from pyggml import _log
from pyggml._version import __version__
from pyggml.errors import DiskFullError, DownloadError, InvalidParameterError
from pyggml.hub.choice import choose
from pyggml.hub.failures import ELSEWHERE, translated
from pyggml.hub.progress import Transfer
from pyggml.hub.reference import Reference, is_plain_path
from pyggml.model import Progress

# What the hub calls a commit. Nothing else is made part of a path.
_COMMIT = re.compile(r"[0-9a-f]{40}")


def fetch_model(reference: Reference, progress: Progress | None) -> Path:
    """The GGUF file or directory that a reference means, downloaded as far as it is not there.

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
        """Paths of all of them."""

    def fetch(self, name: str) -> Path:
        """One of them on this machine."""

    def bring(self, names: Sequence[str], progress: Progress | None) -> Path:
        """Some of them on this machine, in the directory that is returned."""


def _open(reference: Reference) -> Repository:
    """The repository on the hub; in the cache where the hub cannot be asked, if it is there."""
    if constants.HF_HUB_OFFLINE:
        return CachedRepository(reference, "HF_HUB_OFFLINE is set")
    try:
        return HubRepository(reference)
    except DownloadError as error:
        if not error.is_temporary or _snapshot(reference) is None:
            raise
        _log.logger.warning("%s; %s is what is in %s of it", error, reference, constants.HF_HUB_CACHE)
        return CachedRepository(reference, str(error))


class HubRepository:
    """The files of a repository on the hub, at the commit that its revision is now.

    Attributes:
        names: paths of the files.
    """

    def __init__(self, reference: Reference) -> None:
        """Asks the hub which files there are."""
        self._reference = reference
        with translated(reference):
            api = HfApi(library_name="pyggml", library_version=__version__)
            info = api.model_info(reference.repo_id, revision=reference.revision, timeout=constants.HF_HUB_ETAG_TIMEOUT)
            self._commit, names = str(info.sha), [file.rfilename for file in info.siblings or ()]
        if not _COMMIT.fullmatch(self._commit):
            raise DownloadError(
                f"{constants.ENDPOINT} does not answer as a hub does: {self._commit!r:.80} is not a commit"
            )
        self.names: Collection[str] = frozenset(name for name in names if is_plain_path(name))

    def fetch(self, name: str) -> Path:
        """One of them on this machine."""
        return self.bring([name], None) / name

    def bring(self, names: Sequence[str], progress: Progress | None) -> Path:
        """Downloads files, as far as they are not there, and returns the directory that they are in.

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
                f"{constants.ENDPOINT} does not answer as a hub does: asked for {name} at commit {self._commit}, it "
                f"tells of {file.commit_hash!r:.80}"
            )
        return file

    def _remember(self, directory: Path, name: str) -> None:
        """Lets the cache know what the revision is, for when the hub is not asked; asking by its name does that."""
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
                f"{self._reference} takes {required} bytes, and {place} has room for {available}; {ELSEWHERE}",
                required,
                available,
            )


class CachedRepository:
    """The same without asking the hub: what was downloaded of it.

    Attributes:
        names: paths of the files.
    """

    def __init__(self, reference: Reference, reason: str) -> None:
        """Looks into the cache; ``reason`` says why not on the hub."""
        self._complaint = f"{reason}, and {{}} is not in {constants.HF_HUB_CACHE}"
        snapshot = _snapshot(reference)
        self.names: Collection[str] = frozenset() if snapshot is None else frozenset(_files(snapshot))
        if snapshot is None or not self.names:
            raise DownloadError(self._complaint.format(reference), is_temporary=True)
        self._directory = snapshot

    def fetch(self, name: str) -> Path:
        """One of them."""
        return self.bring([name], None) / name

    def bring(self, names: Sequence[str], progress: Progress | None) -> Path:
        """The directory that they are in.

        Raises:
            DownloadError: one is not.
        """
        del progress
        for name in names:
            if name not in self.names:
                raise DownloadError(self._complaint.format(name), is_temporary=True)
        return self._directory


def _snapshot(reference: Reference) -> Path | None:
    """The directory in the cache of what the revision was when it was last seen; None: there is none."""
    try:
        return Path(
            snapshot_download(
                reference.repo_id,
                revision=reference.revision,
                cache_dir=constants.HF_HUB_CACHE,
                local_files_only=True,
                allow_patterns=[],  # whether it is complete is for us to say
            )
        )
    except LocalEntryNotFoundError:
        return None


def _files(directory: Path) -> Iterator[str]:
    for path, _, names in os.walk(directory):
        for name in names:
            file = Path(path, name)
            if file.exists():  # a link without its blob is what an interrupted clean-up leaves
                yield file.relative_to(directory).as_posix()


def _require_address() -> None:
    try:
        address = urlsplit(constants.ENDPOINT)
        is_usable = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise InvalidParameterError(
            f"HF_ENDPOINT is {constants.ENDPOINT!r}; an address such as https://huggingface.co was expected"
        )
