"""A downloaded model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyggml.hub.file_selection import has_type
from pyggml.hub.reference import Reference, split_reference


@dataclass(frozen=True)
class Download:
    """A model in the cache of huggingface_hub.

    Attributes:
        reference: the reference that loads it.
        path: the GGUF file (the first of a split set), or the directory of a checkpoint.
        n_bytes: size of its files on disk.
        used: time of its last use, in seconds since the epoch.
        files: its files, most of them links, and the files that they lead to.
    """

    reference: Reference
    path: Path
    n_bytes: int
    used: float
    files: tuple[tuple[Path, Path], ...]

    def matches(self, name: str) -> bool:
        """Check whether a name is a reference to this model or its repository, or the name of its file.

        Args:
            name: the name, such as "hf:org/repo", "org/repo" or "model.gguf".
        """
        other = split_reference(name.removeprefix("hf:"))
        if other.repo_id != self.reference.repo_id:
            return name in (self.path.name, str(self.path))
        is_revision = other.revision in (None, self.reference.revision)
        file = self.reference.file
        return is_revision and (other.file in (None, file) or (file is not None and has_type(file, str(other.file))))

    is_called = matches  # its name in earlier versions
