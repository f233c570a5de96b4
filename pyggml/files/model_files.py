"""What a model on disk is: a GGUF file, a split set of them, or the directory of a checkpoint.

This is where the names of files are decided on. Nothing here opens one, but for the index of a sharded checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pyggml.errors import InvalidParameterError, ModelLoadError, ModelNotFoundError
from pyggml.files.json_file import read_object

Format = Literal["gguf", "huggingface"]
#: How the weights are kept: in one GGUF file or a split set; in ``model.safetensors``, in shards with an index, or in
#: Meta's ``consolidated.safetensors``; or nowhere that pyggml looks.
Weights = Literal["gguf", "split", "safetensors", "sharded", "consolidated", "none"]

CONFIG = "config.json"
#: What Meta and Mistral publish in its place.
PARAMS = "params.json"
SINGLE = "model.safetensors"
#: Says which shard holds which tensor.
INDEX = "model.safetensors.index.json"
CONSOLIDATED = "consolidated.safetensors"
#: The files that a tokenizer is made from, the preferred one first.
TOKENIZERS = ("tokenizer.json", "tokenizer.model")

_WEIGHTS: dict[str, Weights] = {SINGLE: "safetensors", INDEX: "sharded", CONSOLIDATED: "consolidated"}
# What an import reads besides the weights.
_BESIDE = frozenset(
    {
        CONFIG,
        *TOKENIZERS,
        "generation_config.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "chat_template.jinja",
        "chat_template.json",
    }
)
_TEMPLATES = re.compile(r"additional_chat_templates/[^/]+\.jinja")
_SPLIT = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<end>(?i:\.gguf))")
_PICKLES = (".bin", ".pth", ".pt", ".h5", ".msgpack")


@dataclass(frozen=True)
class ModelFiles:
    """A model on disk, by the names of its files; they may still be broken, or missing.

    Attributes:
        path: the GGUF file, of a split set the first; or the directory of a checkpoint.
        format: which of the two.
        weights: how they are kept.
        files: that hold them; of a sharded checkpoint none, since only its index knows.
        config: the ``config.json``, or else the ``params.json``, of a directory that has one.
        index: of a sharded checkpoint.
    """

    path: Path
    format: Format
    weights: Weights
    files: tuple[Path, ...] = ()
    config: Path | None = None
    index: Path | None = None


def model_at(path: Path) -> ModelFiles:
    """The model at a path.

    Raises:
        ModelNotFoundError: nothing is there.
        ModelLoadError: it cannot be read, or is a directory that holds no checkpoint.
    """
    try:
        if not path.is_dir():
            path.stat()
            return gguf_at(path)
        names = [file.name for file in path.iterdir()]
    except FileNotFoundError:
        raise ModelNotFoundError(f"there is no model file at {path}") from None
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read: {error.strerror}") from None
    files = _checkpoint(path, names)
    ggufs = sorted(name for name in names if name.endswith(".gguf"))
    # A directory of GGUF files may have a config.json as well.
    if ggufs and (files.config is None or not any(".safetensors" in name for name in names)):
        raise ModelLoadError(f"{path} is a directory; name one of the files in it: {', '.join(ggufs)}")
    if files.config is None:
        raise ModelLoadError(f"{path} is a directory with neither a .gguf file nor a {CONFIG} and its checkpoint")
    return files


def checkpoint_at(directory: Path) -> ModelFiles:
    """The checkpoint in a directory, however little of it is there.

    Raises:
        ModelNotFoundError: there is no such directory.
        InvalidParameterError: it is something else.
        ModelLoadError: it cannot be read.
    """
    if not directory.exists():
        raise ModelNotFoundError(f"there is no directory {directory}")
    if not directory.is_dir():
        raise InvalidParameterError(f"{directory} is no directory; that of a Hugging Face model was expected")
    try:
        return _checkpoint(directory, [file.name for file in directory.iterdir()])
    except OSError as error:
        raise ModelLoadError(f"{directory} cannot be read: {error.strerror}") from None


def gguf_at(path: Path) -> ModelFiles:
    """The GGUF file at a path, or the split set that begins with it."""
    names = split_set(path.name)
    if names is None:
        return ModelFiles(path, "gguf", "gguf", (path,))
    return ModelFiles(path, "gguf", "split", tuple(path.with_name(name) for name in names))


def split_set(name: str) -> list[str] | None:
    """The names of all files of the split set that a file belongs to, by its name; None: it is whole."""
    match = _SPLIT.fullmatch(name)
    if match is None:
        return None
    return [f"{match['stem']}-{i:05}-of-{match['count']}{match['end']}" for i in range(1, int(match["count"]) + 1)]


def main_weights(names: Collection[str]) -> str | None:
    """The file by which the weights of a checkpoint are found; None: there is none."""
    return next((name for name in _WEIGHTS if name in names), None)


def beside_weights(names: Collection[str]) -> list[str]:
    """What an import reads of a checkpoint besides its weights."""
    wanted = {*_BESIDE, PARAMS} if main_weights(names) == CONSOLIDATED else _BESIDE
    return sorted(name for name in names if name in wanted or _TEMPLATES.fullmatch(name))


def shards(index: Path) -> dict[str, set[str]]:
    """What an index says: name of a file beside it -> names of the tensors in it.

    Raises:
        ModelLoadError: it cannot be read, says nothing, or names a file elsewhere.
    """
    weight_map = read_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelLoadError(f"{index} has no weight_map")
    found: dict[str, set[str]] = {}
    for tensor, file in weight_map.items():
        if not isinstance(file, str) or not _is_plain_name(file):
            raise ModelLoadError(
                f"{index} says that tensor {tensor!r:.80} is in {file!r:.80}, which is no file of this directory"
            )
        found.setdefault(file, set()).add(tensor)
    return found


def why_no_weights(place: str, names: Collection[str]) -> str | None:
    """What to say of names among which :func:`main_weights` finds nothing, if the reason can be guessed from them."""
    pickles = sorted(name for name in names if name.endswith(_PICKLES))
    if not pickles:
        return None
    return (
        f"{place} holds its weights as {pickles[0]}, a format that can run code or that needs a framework, and that "
        "pyggml does not open; save them as safetensors"
    )


def _checkpoint(directory: Path, names: Collection[str]) -> ModelFiles:
    main = main_weights(names)
    config = next((name for name in (CONFIG, PARAMS) if name in names), None)
    return ModelFiles(
        directory,
        "huggingface",
        _WEIGHTS[main] if main is not None else "none",
        files=() if main in (None, INDEX) else (directory / main,),
        config=None if config is None else directory / config,
        index=directory / INDEX if main == INDEX else None,
    )


def _is_plain_name(name: str) -> bool:
    return name not in ("", ".", "..") and len(name) < 256 and not any(character in name for character in "/\\\0:")
