"""The cache that all tools of the hub share: https://huggingface.co/docs/huggingface_hub/guides/manage-cache.

A repository's ``blobs`` are files by the hash of what is in them, its ``snapshots`` are directories of links to them,
one for each commit, and its ``refs`` say which commit a branch or tag was when it was last seen.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from pyggml.errors import DiskFullError, DownloadError, InferError
from pyggml.files.disk import NO_ROOM
from pyggml.hub.reference import Reference

#: What the hub calls a commit. Nothing else is made part of a path.
COMMIT = re.compile(r"[0-9a-f]{40}")


@contextlib.contextmanager
def in_cache(cache: Path, reference: Reference) -> Iterator[None]:
    """Tells what the file system refuses as what cannot be done with ``reference``."""
    try:
        yield
    except InferError:
        raise
    except OSError as error:
        if error.errno in NO_ROOM:
            raise DiskFullError(
                f"the disk of {cache} is full; what has come of {reference} is kept there; HF_HOME says where else to "
                "keep models"
            ) from error
        raise DownloadError(f"{reference} cannot be kept in {cache}: {error}") from error


class RepositoryCache:
    """The part of the cache that one repository has. Nothing of it need exist."""

    def __init__(self, cache: Path, reference: Reference) -> None:
        folder = f"models--{reference.repo_id.replace('/', '--')}"
        self.root = cache / folder
        self._locks = cache / ".locks" / folder
        self._revision = reference.revision or "main"

    def commit(self) -> str | None:
        """What the revision is: itself, or what it was when it was last seen; None: it was not."""
        if COMMIT.fullmatch(self._revision):
            return self._revision
        try:
            commit = (self.root / "refs" / self._revision).read_text().strip()
        except (OSError, ValueError):
            return None
        return commit if COMMIT.fullmatch(commit) else None

    def remember(self, commit: str) -> None:
        """Notes what the revision is, for when the hub is not asked. A cache that cannot be written has what it has."""
        if self._revision != commit and self.commit() != commit:
            ref = self.root / "refs" / self._revision
            with contextlib.suppress(OSError):
                ref.parent.mkdir(parents=True, exist_ok=True)
                new = ref.with_name(f".{ref.name}.{secrets.token_hex(4)}.new")
                new.write_text(commit)
                new.replace(ref)

    def snapshot(self, commit: str) -> Path:
        """Directory of the files of a commit."""
        return self.root / "snapshots" / commit

    def blob(self, etag: str) -> Path:
        """Where the content with a hash is."""
        return self.root / "blobs" / etag

    def lock(self, etag: str) -> Path:
        """Of whoever downloads it; its directory is made."""
        self._locks.mkdir(parents=True, exist_ok=True)
        return self._locks / f"{etag}.lock"

    def link(self, etag: str, path: Path) -> None:
        """Makes ``path``, in a snapshot, the content with a hash."""
        blob = self.blob(etag)
        path.parent.mkdir(parents=True, exist_ok=True)
        link = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
        try:
            link.symlink_to(os.path.relpath(blob, path.parent))
        except OSError:  # a file system without links: the layout then has the file itself there
            blob.replace(path)
        else:
            link.replace(path)
