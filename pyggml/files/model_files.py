"""Recognition of a model on disk: a GGUF file, a split set of them, or the directory of a checkpoint.

All knowledge about file names is here. No file is opened except the index of a sharded checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Literal

from pyggml.errors import InvalidParameterError, ModelLoadError, ModelNotFoundError
from pyggml.files.json_file import read_object

Format = Literal["gguf", "huggingface"]
#: Storage of the weights: one GGUF file or a split set; ``model.safetensors``, shards with an index, or Meta's
#: ``consolidated.safetensors``; or no supported file.
Weights = Literal["gguf", "split", "safetensors", "sharded", "consolidated", "none"]

CONFIG = "config.json"
#: The configuration file of Meta and Mistral.
PARAMS = "params.json"
SINGLE = "model.safetensors"
#: The shard of each tensor.
INDEX = "model.safetensors.index.json"
CONSOLIDATED = "consolidated.safetensors"
#: Token ids, and recommended sampling parameters.
GENERATION_CONFIG = "generation_config.json"
#: The files that define a tokenizer, the preferred one first.
TOKENIZERS = ("tokenizer.json", "tokenizer.model")

#: The files of a PEFT adapter.
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
# Those, and weights in other formats.
_ADAPTER = re.compile(r"adapter_(config\.json|model\..*)")

#: The ``quantization_config`` of older checkpoints of NVIDIA.
QUANTIZATION = "hf_quant_config.json"

_WEIGHTS: dict[str, Weights] = {SINGLE: "safetensors", INDEX: "sharded", CONSOLIDATED: "consolidated"}
# Files that an import reads in addition to the weights.
_COMPANIONS = frozenset(
    {
        CONFIG,
        QUANTIZATION,
        *TOKENIZERS,
        GENERATION_CONFIG,
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "chat_template.jinja",
        "chat_template.json",
        "modules.json",
        "config_sentence_transformers.json",
    }
)
_SENTENCE_TRANSFORMERS = re.compile(r"sentence_[a-z-]+_config\.json")
# Chat templates, and modules of sentence-transformers.
_IN_FOLDERS = re.compile(r"additional_chat_templates/[^/]+\.jinja|\d+_\w+/(config\.json|model\.safetensors)")
_SPLIT = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<end>(?i:\.gguf))")
_PICKLES = (".bin", ".pth", ".pt", ".h5", ".msgpack")


@dataclass(frozen=True)
class ModelFiles:
    """A model on disk, recognised by file names; the files may still be broken or missing.

    Attributes:
        path: the GGUF file (the first of a split set), or the directory of a checkpoint.
        format: "gguf" or "huggingface".
        weights: the storage form of the weights.
        files: the files with the weights; empty for a sharded checkpoint, whose index lists them.
        config: the directory's ``config.json``, or else its ``params.json``, if it has one.
        index: the index of a sharded checkpoint.
    """

    path: Path
    format: Format
    weights: Weights
    files: tuple[Path, ...] = ()
    config: Path | None = None
    index: Path | None = None


def model_at(path: Path) -> ModelFiles:
    """Return the model at a path.

    Raises:
        ModelNotFoundError: there is nothing at the path.
        ModelLoadError: it cannot be read, or is a directory without a checkpoint.
    """
    try:
        if not path.is_dir():
            path.stat()
            if path.name in (CONFIG, INDEX) or path.suffix == ".safetensors":
                raise ModelLoadError(f"{path} is one file of a checkpoint; pass its directory, {path.parent}")
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
        raise ModelLoadError(f"{path} is a directory; pass the path of one of its files: {', '.join(ggufs)}")
    if files.config is None:
        raise ModelLoadError(f"{path} is a directory with neither a .gguf file nor a checkpoint with a {CONFIG}")
    return files


def checkpoint_at(directory: Path) -> ModelFiles:
    """Return the checkpoint in a directory, even an incomplete one.

    Raises:
        ModelNotFoundError: there is no such directory.
        InvalidParameterError: the path is not a directory.
        ModelLoadError: the directory cannot be read, or holds an adapter for another model.
    """
    try:
        names = [file.name for file in directory.iterdir()]
    except FileNotFoundError:
        raise ModelNotFoundError(f"there is no directory {directory}") from None
    except NotADirectoryError:
        raise InvalidParameterError(f"{directory} is not a directory; a Hugging Face model's was expected") from None
    except OSError as error:
        raise ModelLoadError(f"{directory} cannot be read: {error.strerror}") from None
    return _checkpoint(directory, names)


def gguf_at(path: Path) -> ModelFiles:
    """Return the GGUF file at a path, or the split set that begins with it."""
    names = split_set(path.name)
    if names is None:
        return ModelFiles(path, "gguf", "gguf", (path,))
    return ModelFiles(path, "gguf", "split", tuple(path.with_name(name) for name in names))


def split_set(name: str) -> list[str] | None:
    """Return the names of all files in a file's split set, judging by its name; None if it is not split."""
    match = _SPLIT.fullmatch(name)
    if match is None:
        return None
    return [f"{match['stem']}-{i:05}-of-{match['count']}{match['end']}" for i in range(1, int(match["count"]) + 1)]


def main_weights(names: Collection[str]) -> str | None:
    """Return the weights file, or index, of a checkpoint; None if there is none."""
    return next((name for name in _WEIGHTS if name in names), None)


def is_adapter_among(names: Collection[str]) -> bool:
    """Check whether a directory of these files holds a PEFT adapter and no model."""
    has_model = main_weights(names) is not None or any(name.endswith(".gguf") for name in names)
    return not has_model and any(map(_ADAPTER.fullmatch, names))


def companion_files(names: Collection[str]) -> list[str]:
    """Return the files of a checkpoint that an import reads in addition to the weights."""
    wanted = {*_COMPANIONS, PARAMS} if main_weights(names) == CONSOLIDATED else _COMPANIONS
    return sorted(
        name
        for name in names
        if name in wanted or _SENTENCE_TRANSFORMERS.fullmatch(name) or _is_template_or_module(name)
    )


def is_companion_in_folder(path: PurePath) -> bool:
    """Check whether an import reads a file in a folder of a checkpoint.

    Args:
        path: the file's path from the checkpoint's directory.
    """
    return _is_template_or_module(path.as_posix())


def _is_template_or_module(name: str) -> bool:
    return _IN_FOLDERS.fullmatch(name) is not None


def shards(index: Path) -> dict[str, set[str]]:
    """Read an index: name of a file in the same directory -> names of its tensors."""
    weight_map = read_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelLoadError(f"{index} has no weight_map")
    found: dict[str, set[str]] = {}
    for tensor, file in weight_map.items():
        if not isinstance(file, str) or not _is_plain_name(file):
            raise ModelLoadError(
                f"{index} lists tensor {tensor!r:.80} in {file!r:.80}, which is not a file name in this directory"
            )
        found.setdefault(file, set()).add(tensor)
    return found


def explain_missing_weights(place: str, names: Collection[str]) -> str | None:
    """Explain why :func:`main_weights` finds nothing among names; None if they give no clue."""
    if any(map(_ADAPTER.fullmatch, names)):
        return (
            f"{place} is an adapter ({ADAPTER_CONFIG}), not a model: load the model that it was made for, then "
            f"llm.load_adapter({place!r}); or write a file with both: "
            f"pyggml.quantize(model, out, outtype, merge={place!r})"
        )
    strays = sorted(name for name in names if name.endswith(".safetensors") and "/" not in name)
    if len(strays) == 1:
        return f"{place} has its weights in {strays[0]}; if that is the whole model, rename it to {SINGLE}"
    if strays:
        return f"{place} holds {', '.join(strays[:3])} ..., but no {INDEX} to say which tensor is in which file"
    pickles = sorted(name for name in names if name.endswith(_PICKLES))
    if not pickles:
        return None
    return (
        f"{place} has its weights in {pickles[0]}, a format that pyggml does not open because it can run code or needs "
        "a framework; save them as safetensors"
    )


def _checkpoint(directory: Path, names: Collection[str]) -> ModelFiles:
    main = main_weights(names)
    if is_adapter_among(names):
        raise ModelLoadError(explain_missing_weights(str(directory), names))
    # Mistral's repositories have both configurations, each with its own tensor names.
    configs = (PARAMS, CONFIG) if main == CONSOLIDATED else (CONFIG, PARAMS)
    config = next((name for name in configs if name in names), None)
    return ModelFiles(
        directory,
        "huggingface",
        "none" if main is None else _WEIGHTS[main],
        files=() if main in (None, INDEX) else (directory / main,),
        config=None if config is None else directory / config,
        index=directory / INDEX if main == INDEX else None,
    )


def _is_plain_name(name: str) -> bool:
    n_bytes = len(name.encode(errors="replace"))
    is_text = name.isprintable()  # and so without NUL, and without half a surrogate pair
    return name not in ("", ".", "..") and n_bytes < 256 and is_text and not any(each in name for each in "/\\:")
