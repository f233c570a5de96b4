"""A repository as the hub has it, or as it was left in the cache; and the model in it, on this machine."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import closing
from pathlib import Path

from huggingface_hub import HfApi, constants, get_hf_file_metadata, hf_hub_url

from pyggml import _log
from pyggml._version import __version__
from pyggml.errors import DiskFullError, DownloadError, ModelLoadError
from pyggml.hub.cache import COMMIT, RepositoryCache, in_cache
from pyggml.hub.choice import choose
from pyggml.hub.environment import Environment, read_environment
from pyggml.hub.failures import translated
from pyggml.hub.reference import Reference, is_plain_path
from pyggml.hub.transfer import RemoteFile, download
from pyggml.model import Progress

# A hub chooses how it names contents; the name becomes that of a file.
_ETAG = re.compile(r"[A-Za-z0-9_-]{8,128}")


def fetch_model(reference: Reference, progress: Progress | None) -> Path:
    """The GGUF file or directory that a reference means, downloaded as far as it is not there.

    Raises:
        As :func:`pyggml.hub.fetch`.
    """
    environment = read_environment()
    with in_cache(environment.cache, reference):
        repository = _open(reference, environment)
        choice = choose(reference, repository)
    with closing(repository.download(choice.names)) as parts:
        for part in parts:
            if progress is not None and progress(part) is False:
                raise ModelLoadError(f"downloading {reference} was stopped by its progress callback")
    repository.remember()
    return repository.directory if choice.main is None else repository.directory / choice.main


def _open(reference: Reference, environment: Environment) -> HubRepository | CachedRepository:
    """The repository on the hub; in the cache where the hub cannot be asked, if it is there."""
    if environment.offline:
        return CachedRepository(reference, environment, f"{environment.offline} is set")
    try:
        return HubRepository(reference, environment)
    except DownloadError as error:
        if not error.is_temporary or RepositoryCache(environment.cache, reference).commit() is None:
            raise
        _log.logger.warning("%s; %s is what is in %s of it", error, reference, environment.cache)
        return CachedRepository(reference, environment, str(error))


class HubRepository:
    """The files of a repository at one commit, on the hub.

    Attributes:
        names: paths of the files.
        directory: where they come to.
    """

    def __init__(self, reference: Reference, environment: Environment) -> None:
        self._reference = reference
        self._environment = environment
        self._cache = RepositoryCache(environment.cache, reference)
        with translated(reference, environment.endpoint):
            api = HfApi(endpoint=environment.endpoint, library_name="pyggml", library_version=__version__)
            info = api.model_info(reference.repo_id, revision=reference.revision, timeout=constants.HF_HUB_ETAG_TIMEOUT)
            self._commit, names = str(info.sha), [file.rfilename for file in info.siblings or ()]
        if not COMMIT.fullmatch(self._commit):
            raise DownloadError(
                f"{environment.endpoint} does not answer as a hub does: {self._commit!r:.80} is no commit"
            )
        self.names: Collection[str] = frozenset(name for name in names if is_plain_path(name))
        self.directory = self._cache.snapshot(self._commit)

    def fetch(self, name: str) -> Path:
        """One of them on this machine."""
        for _ in self.download([name]):
            pass
        return self.directory / name

    def download(self, names: Iterable[str]) -> Generator[float]:
        """Brings files, and yields the part of them that is there; nothing when all of them were.

        Raises:
            As :func:`pyggml.hub.fetch`.
        """
        with in_cache(self._environment.cache, self._reference):
            files = [self._describe(name) for name in names if not (self.directory / name).exists()]
            self._require_room(files)
            n_bytes, n_done = max(sum(file.n_bytes for file in files), 1), 0
            for file in files:
                blob = self._cache.blob(file.etag)
                if not blob.exists():
                    with closing(download(file, blob, self._cache.lock(file.etag))) as counts:
                        yield from ((n_done + count) / n_bytes for count in counts)
                self._cache.link(file.etag, self.directory / file.name)
                n_done += file.n_bytes
                yield n_done / n_bytes

    def remember(self) -> None:
        """Lets the cache know that these are the files of the revision."""
        self._cache.remember(self._commit)

    def _describe(self, name: str) -> RemoteFile:
        endpoint = self._environment.endpoint
        with translated(self._reference, endpoint):
            url = hf_hub_url(self._reference.repo_id, name, revision=self._commit, endpoint=endpoint)
            metadata = get_hf_file_metadata(
                url,
                timeout=constants.HF_HUB_ETAG_TIMEOUT,
                library_name="pyggml",
                library_version=__version__,
                endpoint=endpoint,
            )
        if metadata.size is None or metadata.etag is None or not _ETAG.fullmatch(metadata.etag):
            raise DownloadError(
                f"{endpoint} does not answer as a hub does: it says of {name} that it has {metadata.size} bytes and "
                f"the hash {metadata.etag!r:.80}"
            )
        return RemoteFile(self._reference, endpoint, name, url, metadata.etag, metadata.size)

    def _require_room(self, files: list[RemoteFile]) -> None:
        required = sum(file.n_bytes for file in files if not self._cache.blob(file.etag).exists())
        place = next(path for path in (self._cache.root, *self._cache.root.parents) if path.exists())
        available = shutil.disk_usage(place).free
        if required > available:
            raise DiskFullError(
                f"{self._reference} takes {required} bytes, and {place} has room for {available}; HF_HOME says where "
                "else to keep models",
                required,
                available,
            )


class CachedRepository:
    """The same without asking the hub: what was downloaded of it.

    Attributes:
        names: paths of the files.
        directory: where they are.
    """

    def __init__(self, reference: Reference, environment: Environment, reason: str) -> None:
        """Looks into the cache; ``reason`` says why not on the hub."""
        cache = RepositoryCache(environment.cache, reference)
        commit = cache.commit()
        self._complaint = f"{reason}, and {{}} is not in {environment.cache}"
        if commit is None:
            raise DownloadError(self._complaint.format(reference), is_temporary=True)
        self.directory = cache.snapshot(commit)
        self.names: Collection[str] = frozenset(_files(self.directory))
        if not self.names:
            raise DownloadError(self._complaint.format(reference), is_temporary=True)

    def fetch(self, name: str) -> Path:
        """One of them."""
        if name not in self.names:
            raise DownloadError(self._complaint.format(name), is_temporary=True)
        return self.directory / name

    def download(self, names: Iterable[str]) -> Generator[float]:
        """Yields nothing, if they are there.

        Raises:
            DownloadError: one is not.
        """
        for name in names:
            self.fetch(name)
        yield from ()

    def remember(self) -> None:
        """Nothing was learnt."""


def _files(directory: Path) -> Iterator[str]:
    for path, _, names in os.walk(directory):
        for name in names:
            file = Path(path, name)
            if file.exists():  # a link without its blob is what an interrupted clean-up leaves
                yield file.relative_to(directory).as_posix()
