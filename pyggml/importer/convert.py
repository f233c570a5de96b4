"""A Hugging Face directory becomes a GGUF file: one tensor at a time, and the file appears when it is whole."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyggml import quant
from pyggml._native import integer
from pyggml.errors import InvalidParameterError, ModelLoadError
from pyggml.files.disk import room_for
from pyggml.files.model_files import ModelFiles, checkpoint_at
from pyggml.files.partial import PartialFile
from pyggml.gguf import GGUFWriter, ValueType
from pyggml.imatrix import ImportanceMatrix, open_imatrix, quantizer_metadata
from pyggml.importer import encoding
from pyggml.importer.encoding import choose_types, encoded_parts, require_outtype
from pyggml.importer.plan import ImportPlan, read_plan
from pyggml.importer.vocabulary import Vocabulary, read_vocabulary
from pyggml.model import Progress
from pyggml.quant import GGMLType
from pyggml.source import locate

#: Metadata key of ours: why the engine would cut some texts otherwise than the model's own tokenizer; most have none.
NEEDS_HF_TOKENIZER = "pyggml.needs_hf_tokenizer"

_MAX_THREADS = 512


class StoppedError(ModelLoadError):
    """A progress callback stopped a conversion."""


@dataclass(frozen=True)
class Conversion:
    """What became of a directory.

    Attributes:
        path: of the GGUF file.
        architecture: of the model, as the engine calls it.
        types: element type -> how many tensors have it.
        n_params: weights of the model.
        n_bytes: of the file.
        notes: what a user should know, such as where the engine's own tokenizer differs; most have none.
    """

    path: Path
    architecture: str
    types: dict[str, int]
    n_params: int
    n_bytes: int
    notes: tuple[str, ...]


def convert(
    hf_dir: str | os.PathLike[str],
    out: str | os.PathLike[str],
    outtype: str = "auto",
    progress: Progress | None = None,
    *,
    imatrix: ImportanceMatrix | str | os.PathLike[str] | None = None,
    n_threads: int | None = None,
) -> Conversion:
    """Writes the model of a Hugging Face directory as a GGUF file. Needs no PyTorch.

    Memory holds a few tensors, not the model. The file appears under its name when it is complete, and replaces what
    is there; until then it grows under another name beside it, of which nothing is left if anything fails.

    Args:
        hf_dir: with ``config.json``, safetensors and a tokenizer; or a reference to such a repository, ``hf:org/repo``.
        out: the file to write.
        outtype: "auto" keeps the precision of every weight; "f32", "f16", "bf16", or any mixture that the engine's
            quantiser knows ("q8_0", "q4_0", "q4_k_m" ...), made in the same pass.
        progress: called with the part that is done, 0 to 1, after each tensor, and before that while files are
            downloaded; returning False stops.
        imatrix: what matters in the weights, for mixtures: from :func:`pyggml.compute_imatrix`, or the path of a file.
        n_threads: that encode; None: one for each core.

    Raises:
        ModelNotFoundError: the directory, a file or a tensor is missing.
        ModelLoadError: a file is broken, or two contradict each other; the message names file and tensor.
        UnsupportedArchitectureError: the engine could not compute this model as it was made.
        TokenizerError: the tokenizer is missing or broken.
        DiskFullError: the file does not fit. Nothing is left of it.
        DownloadError, MissingPackageError: as :func:`~pyggml.load`, of a reference.
        InvalidParameterError: an argument that cannot be.
    """
    outtype = require_outtype(outtype)
    threads = checked_threads(n_threads)
    target = _target(out)
    contents = read_contents(checkpoint_at(locate(hf_dir, progress)), outtype, open_imatrix(imatrix))
    return write_model(contents, target, progress, threads)


@dataclass(frozen=True)
class GGUFContents:
    """All that is to be written, but for the data of the tensors, of which not a byte has been read yet.

    Attributes:
        plan: tensors and metadata.
        vocabulary: more metadata.
        imatrix: what matters in the weights, if that is known.
        types: of the tensors.
        file_type: the number that describes these as a whole.
    """

    plan: ImportPlan
    vocabulary: Vocabulary
    imatrix: ImportanceMatrix | None
    types: list[GGMLType]
    file_type: int


def read_contents(files: ModelFiles, outtype: str, imatrix: ImportanceMatrix | None = None) -> GGUFContents:
    """Reads what a directory holds, and checks that all of it can be carried.

    Args:
        files: the directory.
        outtype: spelled as the engine does.
        imatrix: what matters in the weights.

    Raises:
        InferError: as :func:`convert`.
    """
    plan = read_plan(files)
    vocabulary = read_vocabulary(files.path, {**plan.config.values, "vocab_size": plan.sizes.n_vocab})
    types, file_type = choose_types(outtype, plan.layout, plan.sizes, plan.tensors, imatrix)
    return GGUFContents(plan, vocabulary, imatrix, types, file_type)


def write_model(
    contents: GGUFContents,
    target: Path,
    progress: Progress | None,
    n_threads: int | None = None,
    file: PartialFile | None = None,
) -> Conversion:
    """Writes a model.

    Args:
        contents: what to write.
        target: the file.
        progress: as for :func:`convert`.
        n_threads: as for :func:`convert`.
        file: what becomes the target; tensors that are there already are not made again. None: a new one.

    Raises:
        StoppedError: the progress callback said so.
        InferError: as :func:`convert`.
    """
    n_bytes = sum(
        quant.nbytes(type, tensor.shape) for type, tensor in zip(contents.types, contents.plan.tensors, strict=True)
    )
    with room_for(target, n_bytes, 0 if file is None else file.n_allocated):  # noqa: SIM117
        with GGUFWriter(target, file=file) as writer:
            _set(writer, contents)
            for tensor, type in zip(contents.plan.tensors, contents.types, strict=True):
                writer.add_tensor(tensor.name, tensor.shape, type)
            _write_tensors(writer, contents, n_threads, progress)
    return _report(target, contents)


def write_vocabulary(contents: GGUFContents, target: Path) -> None:
    """Writes a GGUF file with everything but the weights."""
    with GGUFWriter(target) as writer:
        _set(writer, contents)


def checked_threads(n_threads: int | None) -> int | None:
    """How many threads encode, as a caller gave it."""
    return None if n_threads is None else integer("n_threads", n_threads, 1, _MAX_THREADS)


def report_progress(progress: Progress | None, fraction: float, directory: Path) -> None:
    """Tells how far the conversion of a directory is.

    Raises:
        StoppedError: the callback said so.
    """
    if progress is not None and progress(fraction) is False:
        raise StoppedError(f"converting {directory} was stopped by its progress callback")


def _target(out: object) -> Path:
    if not isinstance(out, (str, os.PathLike)) or "\0" in os.fspath(out):
        raise InvalidParameterError(f"the file to write must be given as a path, not as {out!r}")
    return Path(out)


def _set(writer: GGUFWriter, contents: GGUFContents) -> None:
    vocabulary = contents.vocabulary
    metadata: dict[str, Any] = {
        **contents.plan.metadata,
        "general.file_type": contents.file_type,
        **vocabulary.metadata,
    }
    if vocabulary.needs_hf_tokenizer is not None:
        metadata[NEEDS_HF_TOKENIZER] = vocabulary.needs_hf_tokenizer
    for key, value in metadata.items():
        writer.set(key, value, _value_type(value))
    for key, (value, type) in ({} if contents.imatrix is None else quantizer_metadata(contents.imatrix)).items():
        writer.set(key, value, type)


def _value_type(value: Any) -> ValueType | None:
    """What the writer would infer, except for what an empty list or the engine leaves open."""
    if isinstance(value, (list, tuple)) and not value:
        return ValueType.STRING
    return None


def _write_tensors(writer: GGUFWriter, contents: GGUFContents, threads: int | None, progress: Progress | None) -> None:
    plan = contents.plan
    sizes = [tensor.weight.n_rows * tensor.weight.n_cols for tensor in plan.tensors]
    done = np.cumsum(sizes) / max(sum(sizes), 1)
    missing = writer.missing()
    with ThreadPoolExecutor(encoding.n_threads(threads), "pyggml-convert") as executor:
        for tensor, type, fraction in zip(plan.tensors, contents.types, done, strict=True):
            if tensor.name not in missing:
                continue
            writer.write_tensor_parts(tensor.name, encoded_parts(tensor, type, executor, contents.imatrix))
            report_progress(progress, float(fraction), plan.config.path.parent)


def _report(target: Path, contents: GGUFContents) -> Conversion:
    plan, vocabulary = contents.plan, contents.vocabulary
    names = [type.name for type in contents.types]
    return Conversion(
        path=target,
        architecture=plan.layout.architecture,
        types={name: names.count(name) for name in sorted(set(names))},
        n_params=sum(tensor.weight.n_rows * tensor.weight.n_cols for tensor in plan.tensors),
        n_bytes=target.stat().st_size,
        notes=(*_losses(plan, contents.types), *_differences(vocabulary), *vocabulary.notes),
    )


def _losses(plan: ImportPlan, types: list[GGMLType]) -> tuple[str, ...]:
    """How far quantised weights are from the checkpoint's where no type holds them exactly."""
    errors = [
        tensor.weight.error
        for tensor, type in zip(plan.tensors, types, strict=True)
        if tensor.weight.error and type == tensor.weight.type
    ]
    if not errors:
        return ()
    return (
        f"{len(errors)} quantised tensors are not exact: their weights are off by {max(errors):.1e} of them at most",
    )


def _differences(vocabulary: Vocabulary) -> tuple[str, ...]:
    if vocabulary.needs_hf_tokenizer is None:
        return ()
    return (f"load it with tokenizer=, the engine alone cuts some texts otherwise: {vocabulary.needs_hf_tokenizer}",)
