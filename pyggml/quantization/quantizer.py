"""Quantisation of a GGUF file, one tensor at a time."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np

from pyggml import quant
from pyggml._core.checks import flag, is_directory
from pyggml._core.hints import renamed
from pyggml._native import quantization_mix
from pyggml._native.imatrix import ImportanceMatrix, open_imatrix, quantizer_metadata
from pyggml._native.quantization_mix import Choice, TensorToQuantize
from pyggml.errors import InvalidParameterError, ModelLoadError
from pyggml.files.disk import require_disk_space, target_path
from pyggml.files.model_files import gguf_at
from pyggml.gguf import GGUFWriter, ValueType
from pyggml.importer import Conversion
from pyggml.importer import encoding as encodings
from pyggml.importer.convert import checked_threads
from pyggml.importer.type_overrides import TypeOverrides
from pyggml.options.file_types import file_type
from pyggml.progress import Progress, ProgressOption, progress_function, shows_progress
from pyggml.quant import GGMLType
from pyggml.quantization.gguf_source import GGUFSource
from pyggml.quantization.merging import Merge, Merged, merged, scales_of
from pyggml.source import locate
from pyggml.units import bytes_text, counted


@renamed(src="source", dst="out", ftype="outtype")
@shows_progress("Quantising {}")
def quantize(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    outtype: str,
    *,
    imatrix: ImportanceMatrix | str | os.PathLike[str] | None = None,
    tensor_types: Mapping[str, str] | None = None,
    keep: Iterable[str] = (),
    requantize: bool = False,
    merge: Merge | None = None,
    progress: ProgressOption = None,
    n_threads: int | None = None,
    dry_run: bool = False,
) -> Conversion:
    """Write a GGUF file with another quantisation mix, byte for byte as ``llama-quantize`` does.

    Only a few rows are in memory at a time. The file is written under a temporary name in the same folder and renamed
    once it is complete, replacing any existing file. After an error, the temporary file is removed.

    Args:
        source: a GGUF file, the first file of a split set, or a reference, ``hf:org/repo:file.gguf``.
        out: the file to write.
        outtype: any quantisation mix that the engine supports: "q8_0", "q4_k_m", "iq2_xs", "f16" ...
        imatrix: importances of the weights: from :func:`pyggml.compute_imatrix`, or a file's path.
        tensor_types: regular expression -> element type such as "q6_k", to override the mix for matching tensors.
            An expression matches anywhere in a tensor's name, and the first match wins. Vectors are never quantised.
        keep: regular expressions; tensors with a matching name keep their type.
        requantize: allow sources that are already quantised, although the losses add up.
        merge: a LoRA adapter to add to the weights, or a list of several, each a GGUF file, a PEFT directory or a
            reference; or a dict of adapter -> factor of its change.
        progress: called with the fraction done, 0 to 1, first while files are downloaded, then after each tensor. It
            returns False to stop. None: a bar in a notebook; False: no bar.
        n_threads: number of encoding threads; None: one per core.
        dry_run: write nothing; only return the report.

    Raises:
        ModelNotFoundError: there is no such file, or one of a split set is missing.
        ModelLoadError: the file is broken, or ``progress`` stopped it.
        UnsupportedArchitectureError: the engine does not support the architecture, or an adapter cannot be merged.
        ArchitectureMismatchError: an adapter was made for another model.
        DiskFullError: the file does not fit; the unfinished file is removed.
        DownloadError, MissingPackageError: for a reference, as in :func:`~pyggml.load`.
        InvalidParameterError: an argument is invalid, the mix needs importances that were not given, or the source is
            already quantised.
    """
    name = file_type("outtype", outtype)
    threads = encodings.n_threads(checked_threads(n_threads))
    target, dry_run = target_path("out", out), flag("dry_run", dry_run)
    overrides = TypeOverrides(tensor_types, keep)
    matrix = open_imatrix(imatrix)
    adapters = scales_of(merge)
    progress = progress_function(progress)
    path = locate(source, progress)
    if is_directory(path):
        raise ModelLoadError(
            f"{path} is a directory; a .gguf file was expected: convert takes directories, to any type"
        )
    with GGUFSource(gguf_at(path)) as model, merged(model.path, model.tensors, adapters) as (tensors, notes):
        if target.exists() and any(target.samefile(path) for path in model.paths):
            raise InvalidParameterError(f"{target} is the source model; write to another file")
        model.tensors = tensors
        choices = _choose(model, name, overrides, matrix)
        types = [choice.type for choice in choices]
        _require_matching_imatrix(matrix, model)
        encodings.require_importances(name, choices, model.tensors, matrix)
        _require_encodable(model, types, requantize)
        if dry_run:
            with closing(GGUFWriter(target)) as writer:
                _write_header(writer, model, types, name, matrix)
                return _report(target, model, choices, matrix, writer.n_bytes, notes)
        with GGUFWriter(target) as writer:
            _write_header(writer, model, types, name, matrix)
            with require_disk_space(target, writer.n_bytes):
                _write_data(writer, model, types, matrix, threads, progress)
                writer.finish()
        return _report(target, model, choices, matrix, target.stat().st_size, notes)


def _choose(source: GGUFSource, name: str, overrides: TypeOverrides, matrix: ImportanceMatrix | None) -> list[Choice]:
    mixable = [TensorToQuantize(t.name, t.shape, t.weight.type, overrides.type_of(t)) for t in source.tensors]
    file_type = quantization_mix.FILE_TYPES[name]
    choices = quantization_mix.types_for_file(source.path, file_type, mixable, matrix is not None)
    overrides.require_matches(source.tensors, choices)
    return choices


def _require_matching_imatrix(matrix: ImportanceMatrix | None, source: GGUFSource) -> None:
    if matrix is not None and not any(tensor.name in matrix.entries for tensor in source.tensors):
        raise InvalidParameterError(
            f"the importance matrix belongs to another model: none of its {len(matrix.entries)} tensors is in "
            f"{source.path}"
        )


def _require_encodable(source: GGUFSource, types: Sequence[GGMLType], requantize: bool) -> None:
    for tensor, type in zip(source.tensors, types, strict=True):
        stored, is_merged = tensor.weight.type, isinstance(tensor.weight, Merged)
        if type == stored and not is_merged:
            continue
        if not stored.is_convertible:
            raise InvalidParameterError(
                f"{source.path}: tensor {tensor.name!r} is of type {stored.name}, which cannot become {type.name}"
            )
        if stored.is_quantized and type.is_quantized and not requantize:
            work = "merging into it and writing it as" if is_merged else "converting it to"
            raise InvalidParameterError(
                f"{source.path} is already quantised: tensor {tensor.name!r} is {stored.name}, and {work} "
                f"{type.name} would lose precision again. Start from an unquantised file, or pass requantize=True"
            )


def _write_header(
    writer: GGUFWriter, source: GGUFSource, types: Sequence[GGMLType], name: str, matrix: ImportanceMatrix | None
) -> None:
    # In upstream's order, with the keys that it sets last.
    new = {
        "general.quantization_version": (quant.QUANTIZATION_VERSION, ValueType.UINT32),
        "general.file_type": (quantization_mix.FILE_TYPES[name], ValueType.UINT32),
        **({} if matrix is None else quantizer_metadata(matrix)),
    }
    for key, value, type in source.metadata():
        if key not in new:
            writer.set(key, value, type)
    for key, (value, type) in new.items():
        writer.set(key, value, type)
    for tensor, element in zip(source.tensors, types, strict=True):
        writer.add_tensor(tensor.name, tensor.shape, element)


def _write_data(
    writer: GGUFWriter,
    source: GGUFSource,
    types: Sequence[GGMLType],
    matrix: ImportanceMatrix | None,
    threads: int,
    progress: Progress | None,
) -> None:
    sizes = [tensor.weight.n_rows * tensor.weight.n_cols for tensor in source.tensors]
    done = np.cumsum(sizes) / max(sum(sizes), 1)
    with ThreadPoolExecutor(threads, "pyggml-quantize") as executor:
        for tensor, type, fraction in zip(source.tensors, types, done, strict=True):
            writer.write_tensor_parts(tensor.name, encodings.encoded_parts(tensor, type, executor, matrix))
            if progress is not None and progress(float(fraction)) is False:
                raise ModelLoadError(f"quantising {source.path} was stopped by its progress callback")


def _report(
    target: Path,
    source: GGUFSource,
    choices: Sequence[Choice],
    matrix: ImportanceMatrix | None,
    n_bytes: int,
    merged_notes: Sequence[str],
) -> Conversion:
    types = [choice.type for choice in choices]
    notes = [
        *merged_notes,
        *_fallback_notes(source, choices),
        *_size_notes(source, n_bytes),
        *_imatrix_notes(source, types, matrix),
    ]
    return Conversion.of(target, source.architecture, source.tensors, types, n_bytes, notes)


def _fallback_notes(source: GGUFSource, choices: Sequence[Choice]) -> Iterator[str]:
    """Note tensors that got another type than the mix has for them."""
    pairs = [pair for pair in zip(source.tensors, choices, strict=True) if pair[1].is_fallback]
    if pairs:
        rows = ", ".join(f"{n:,}" for n in sorted({tensor.shape[-1] for tensor, _ in pairs}))
        types = " and ".join(f"{n} {name}" for name, n in Counter(each.type.name for _, each in pairs).most_common())
        yield (
            f"{counted(len(pairs), 'tensor')} fell back to another type, {types}: rows of {rows} values are not whole "
            "blocks of the type meant for them"
        )


def _size_notes(source: GGUFSource, n_bytes: int) -> Iterator[str]:
    """Note a file that is larger than its source, by more than the metadata that is added."""
    before = sum(path.stat().st_size for path in source.paths)
    if n_bytes > 1.01 * before:
        yield f"the file is larger than the source: {bytes_text(n_bytes)}, not {bytes_text(before)}"


def _imatrix_notes(source: GGUFSource, types: Sequence[GGMLType], matrix: ImportanceMatrix | None) -> tuple[str, ...]:
    if matrix is None:
        return ()
    missing = [
        tensor.name
        for tensor, type in zip(source.tensors, types, strict=True)
        if type.is_quantized and type != tensor.weight.type and encodings.importances(tensor, matrix) is None
    ]
    note = f"the importance matrix has no entry for {len(missing)} quantised tensors: {', '.join(missing[:5])}"
    return (note,) if missing else ()
