"""A model that was downloaded from the hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyggml.hub.file_selection import has_type
from pyggml.hub.reference import Reference, parsed


@dataclass(frozen=True)
class Download:
    """A model in the cache of huggingface_hub.

    Attributes:
        reference: what loads it.
        path: the GGUF file (the first of a split set), or the directory of a checkpoint.
        n_bytes: size of its files on disk.
        used: time of its last use, in seconds since the epoch.
        files: its files, most of them links, each with the file that it leads to.
    """

    reference: Reference
    path: Path
    n_bytes: int
    used: float
    files: tuple[tuple[Path, Path], ...]

    def is_called(self, name: str) -> bool:
        """Whether a name means this model: a reference to it or to its repository, or the name of its file."""
        asked = parsed(name.removeprefix("hf:"))
        if asked.repo_id != self.reference.repo_id:
            return name in (self.path.name, str(self.path))
        is_revision = asked.revision in (None, self.reference.revision)
        file = self.reference.file
        return is_revision and (asked.file in (None, file) or (file is not None and has_type(file, str(asked.file))))
