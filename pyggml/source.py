"""Resolution of a source, which is a path, a reference or None, to a model's files."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path

from pyggml import hub
from pyggml._core.checks import callback, is_path
from pyggml.errors import InvalidParameterError, ModelNotFoundError
from pyggml.files.model_files import ModelFiles, model_at
from pyggml.progress import Progress

#: The model that ships with the package: a demonstration, not an assistant.
SHIPPED_MODEL = Path(__file__).parent / "assets" / "pyggml-demo-q8_0.gguf"

# "llama3.2", "qwen3:0.6b"
_LIBRARY_NAME = re.compile(
    r"(?!.*\.(?:gguf|bin|json|safetensors)$)[a-z][a-z-]*\d[a-z0-9._-]*(?::[\w.-]+)?|[a-z][\w.-]*:[\w.-]+"
)

Source = str | os.PathLike[str] | None


def identify(source: Source, progress: Progress | None = None) -> ModelFiles:
    """Return the model of ``source``, downloading it first if it is a reference.

    Args:
        source: path of a ``.gguf`` file (the first of a split set) or of a directory with a checkpoint, a reference
            such as ``hf:org/repo``, or None for the model that ships with pyggml.
        progress: called with 0..1 during a download; returning False stops it.

    Raises:
        As :func:`locate`.
        ModelNotFoundError: there is nothing at the path.
        ModelLoadError: the path exists but is not a model.
    """
    return model_at(locate(source, progress))


def locate(source: Source, progress: Progress | None = None, noun: str = "model") -> Path:
    """Return the path of the model of ``source``, which may not exist.

    Arguments as for :func:`identify`; messages call it ``noun``.

    Raises:
        InvalidParameterError: ``source`` is neither a path nor a reference.
        ModelNotFoundError: there is nothing at that path, and it resembles a reference without "hf:", another file
            name, or a name of ollama's library.
        DownloadError, DiskFullError, MissingPackageError: as :func:`pyggml.hub.fetch`.
    """
    callback("progress", progress)
    if source is None:
        return SHIPPED_MODEL
    if not isinstance(source, (str, os.PathLike)):
        raise InvalidParameterError(f"the {noun} must be given as a path, not {type(source).__name__}")
    path = hub.fetch(os.fspath(source), progress) if hub.is_reference(source) else Path(source)
    if not is_path(path):
        raise InvalidParameterError(f"the path of the {noun} holds a NUL character, or an unpaired surrogate")
    hint = "" if os.path.lexists(path) else _hint(source, path)
    if hint:
        raise ModelNotFoundError(f"there is no {noun} file at {source}; {hint}")
    return path


def _hint(source: str | os.PathLike[str], path: Path) -> str:
    """Suggest what a path that does not exist probably stands for; "" without a suggestion."""
    meant = hub.guess_reference(source)
    if meant is not None:
        return f"if that is a repository of the Hugging Face hub, {meant!r} downloads it"
    if path.parts[:1] == ("~",):
        return f"only shells read ~ as the home directory: {os.path.expanduser(path)!r}"  # noqa: PTH111 - never raises
    near = difflib.get_close_matches(path.name, _names_in(path.parent), n=1)
    if near:
        return f"did you mean {str(path.with_name(near[0]))!r}?"
    if _LIBRARY_NAME.fullmatch(str(source)):
        return (
            "if that is a name of ollama's library, find the model on huggingface.co: 'hf:org/repo:q4_k_m' downloads it"
        )
    return ""


def _names_in(folder: Path) -> list[str]:
    """Names of the GGUF files and directories in a folder; none if it cannot be read."""
    try:
        return [each.name for each in folder.iterdir() if each.suffix == ".gguf" or each.is_dir()]
    except OSError:
        return []
