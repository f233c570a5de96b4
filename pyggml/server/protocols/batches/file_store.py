"""Files in memory: the inputs and outputs of batches."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from pyggml.server.http.errors import Failure, RequestError


@dataclass(frozen=True)
class StoredFile:
    """A file.

    Attributes:
        name: its name.
        purpose: "batch", "batch_output" ...
        content: its content.
        id: its ID.
        created: time of its creation, in seconds since 1970.
    """

    name: str
    purpose: str
    content: bytes
    id: str = field(default_factory=lambda: f"file-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    def to_dict(self) -> dict[str, Any]:
        """Return the file in OpenAI's format."""
        return {
            "id": self.id,
            "object": "file",
            "bytes": len(self.content),
            "created_at": self.created,
            "filename": self.name,
            "purpose": self.purpose,
            "status": "processed",
        }


# Seconds for which files are kept even if there is no space for new ones.
_KEPT_S = 24 * 3600


class FileStore:
    """The files of all API keys, within a limit. Used in the event loop only."""

    def __init__(self, max_bytes: int) -> None:
        """Keep at most ``max_bytes``, and at most half of them for one API key."""
        self._max_bytes = max_bytes
        self._files: dict[tuple[str, str], StoredFile] = {}

    def add(self, owner: str, file: StoredFile) -> None:
        """Store a file.

        Raises:
            RequestError: 413, there is no space for it.
        """
        self.require_space(owner, len(file.content))
        self._files[owner, file.id] = file

    def require_space(self, owner: str, n_bytes: int) -> None:
        """Refuse files of ``n_bytes`` for which there is no space. Deletes files that are older than a day for them.

        Raises:
            RequestError: 413, there is no space.
        """
        if self._has_space(owner, n_bytes):
            return
        oldest = time.time() - _KEPT_S
        self._files = {name: file for name, file in self._files.items() if file.created > oldest}
        if not self._has_space(owner, n_bytes):
            half = ", half of it for one key" if owner else ""
            message = f"the server keeps at most max_stored_bytes={self._max_bytes} of files{half}: delete some of them"
            raise RequestError(Failure(413, "too_large", message, "files_full"))

    def _has_space(self, owner: str, n_bytes: int) -> bool:
        n_all = sum(len(file.content) for file in self._files.values())
        n_own = sum(len(file.content) for (each, _), file in self._files.items() if each == owner)
        most_own = self._max_bytes // 2 if owner else self._max_bytes
        return n_all + n_bytes <= self._max_bytes and n_own + n_bytes <= most_own

    def find(self, owner: str, id: str) -> StoredFile:
        """Return a file.

        Raises:
            RequestError: 404, there is no such file of this owner.
        """
        if (owner, id) not in self._files:
            raise RequestError(Failure(404, "not_found", f"there is no file {id!r:.200}", "file_not_found"))
        return self._files[owner, id]

    def remove(self, owner: str, id: str) -> None:
        """Delete a file.

        Raises:
            RequestError: 404, there is no such file of this owner.
        """
        self.find(owner, id)
        del self._files[owner, id]

    def all(self, owner: str) -> list[StoredFile]:
        """Return the owner's files, the newest first."""
        return [file for (each, _), file in reversed(self._files.items()) if each == owner]
