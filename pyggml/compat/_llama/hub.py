"""Downloads of a file by a pattern, as ``Llama.from_pretrained`` takes it."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyggml


def fetch_file(
    repo_id: str,
    filename: str | None,
    additional_files: Sequence[str] | None,
    local_dir: str | os.PathLike[str] | None,
    cache_dir: str | os.PathLike[str] | None,
) -> str:
    """Download the only file of a repository that matches, and others with it, and return its path.

    Raises:
        MissingPackageError: huggingface_hub is not installed.
        InvalidParameterError: a pattern matches no file, or several.
        Exception: huggingface_hub's own, such as for a repository that does not exist.
    """
    try:
        from huggingface_hub import HfApi, hf_hub_download
    except ImportError as error:
        raise pyggml.MissingPackageError(
            f"Llama.from_pretrained needs huggingface_hub, which cannot be imported ({error}): "
            "pip install huggingface_hub"
        ) from None
    names = [each.rfilename for each in HfApi().model_info(repo_id).siblings or ()]
    folders: dict[str, Any] = {"local_dir": local_dir, "cache_dir": cache_dir}
    wanted = [_only(repo_id, names, pattern) for pattern in (filename or "*.gguf", *(additional_files or ()))]
    paths = [hf_hub_download(repo_id, name, **folders) for name in wanted]
    return str(Path(paths[0]))


def _only(repo_id: str, names: Sequence[str], pattern: str) -> str:
    found = [name for name in names if fnmatch.fnmatch(name, pattern)]
    if len(found) == 1:
        return found[0]
    problem = f"No file found in {repo_id} that match" if not found else f"Multiple files found in {repo_id} matching"
    raise pyggml.InvalidParameterError(f"{problem} {pattern}\n\nAvailable Files:\n{list(found or names)}")
