"""From a path, a reference, or nothing, to the model file or Hugging Face directory it means."""

from __future__ import annotations

import os
from pathlib import Path

from pyggml import hub
from pyggml._native import is_path
from pyggml.errors import InvalidParameterError, ModelLoadError, ModelNotFoundError
from pyggml.model import Progress

#: The model that ships with the package: a demonstration, not an assistant.
SHIPPED_MODEL = Path(__file__).parent / "assets" / "pyggml-demo-q8_0.gguf"

Source = str | os.PathLike[str] | None


def identify(source: Source, progress: Progress | None = None) -> Path:
    """The GGUF file, or the Hugging Face directory, that ``source`` means; what is referred to is downloaded.

    Args:
        source: path of a ``.gguf`` file (the first of a split set) or of a directory with a checkpoint, a reference
            such as ``hf:org/repo``, or None for the model that ships with pyggml.
        progress: called with 0..1 while something is downloaded; returning False stops it.

    Raises:
        ModelNotFoundError: nothing is there.
        ModelLoadError: something is there, but no model.
        InvalidParameterError: neither a path nor a reference.
        DownloadError, DiskFullError, MissingPackageError: as :func:`pyggml.hub.fetch`.
    """
    if source is None:
        return SHIPPED_MODEL
    if not isinstance(source, (str, os.PathLike)):
        raise InvalidParameterError(f"the model must be given as a path, not as {type(source).__name__}")
    path = hub.fetch(os.fspath(source), progress) if hub.is_reference(source) else Path(source)
    if not is_path(path):
        raise InvalidParameterError("the path of the model holds a NUL character, or an unpaired surrogate")
    try:
        if path.is_dir() and not _is_hugging_face(path):
            raise ModelLoadError(_directory_message(path))
        path.stat()
    except FileNotFoundError:
        raise ModelNotFoundError(f"there is no model file at {path}") from None
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read: {error.strerror}") from None
    return path


def _directory_message(path: Path) -> str:
    ggufs = sorted(file.name for file in path.glob("*.gguf"))
    if ggufs:
        return f"{path} is a directory; name one of the files in it: {', '.join(ggufs)}"
    return f"{path} is a directory with neither a .gguf file nor a config.json and its checkpoint"


def _is_hugging_face(path: Path) -> bool:
    """Whether a directory is a checkpoint, complete or not; those of GGUF files may have a config.json as well."""
    has_config = (path / "config.json").exists() or (path / "params.json").exists()
    return has_config and (any(path.glob("*.safetensors*")) or not any(path.glob("*.gguf")))
