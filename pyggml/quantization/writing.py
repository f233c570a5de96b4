"""A GGUF file becomes another one with smaller weights: one tensor at a time, and it appears when it is whole."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyggml import mixture, quant
from pyggml._native import is_path
from pyggml.errors import InvalidParameterError, ModelLoadError
from pyggml.files.disk import room_for
from pyggml.files.model_files import gguf_at
from pyggml.gguf import GGUFWriter, ValueType
from pyggml.imatrix import ImportanceMatrix, open_imatrix, quantizer_metadata
from pyggml.importer import Conversion
from pyggml.importer import encoding as encodings
from pyggml.importer.convert import checked_threads
from pyggml.importer.plan import PlannedTensor
from pyggml.mixture import Choice, Mixable
from pyggml.model import Progress
from pyggml.quant import GGMLType
from pyggml.quantization.sources import GGUFSource
from pyggml.source import locate


def quantize(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    ftype: str,
    *,
    imatrix: ImportanceMatrix | str | os.PathLike[str] | None = None,
    tensor_types: Mapping[str, str] | None = None,
    keep: Iterable[str] = (),
    requantize: bool = False,
    progress: Progress | None = None,
    n_threads: int | None = None,
) -> Conversion:
    """Writes a GGUF file with its weights in another mixture of types, byte for byte as ``llama-quantize`` does.

    Memory holds a few rows, not the model. The file appears under its name when it is complete, and replaces what
    is there; until then it grows under another name beside it, of which nothing is left if anything fails.

    Args:
        src: a GGUF file; of a split set the first; or a reference to one, ``hf:org/repo:file.gguf``.
        dst: the file to write.
        ftype: any mixture that the engine's quantiser knows: "q8_0", "q4_k_m", "iq2_xs", "f16" ...
        imatrix: what matters in the weights: from :func:`pyggml.compute_imatrix`, or the path of a file.
        tensor_types: regular expression -> element type such as "q6_k", for tensors that shall not get what the
            mixture gives them; the first expression that is found in a tensor's name counts. Vectors and the like
            stay as they are.
        keep: regular expressions; the tensors in whose names one is found stay as they are.
        requantize: allow sources that are quantised already, although their losses add up.
        progress: called with the part that is done, 0 to 1, after each tensor, and before that while files are
            downloaded; returning False stops.
        n_threads: that encode; None: one for each core.

    Raises:
        ModelNotFoundError: there is no such file, or one of a split set is missing.
        ModelLoadError: it is broken, or ``progress`` stopped.
        UnsupportedArchitectureError: the engine does not know the architecture.
        DiskFullError: the file does not fit. Nothing is left of it.
        DownloadError, MissingPackageError: as :func:`~pyggml.load`, of a reference.
        InvalidParameterError: an argument that cannot be, a mixture that needs importances and has none, or a source
            that is quantised already.
    """
    name = _file_type(ftype)
    threads = encodings.n_threads(checked_threads(n_threads))
    target = _target(dst)
    wishes = _Wishes(tensor_types or {}, keep)
    matrix = open_imatrix(imatrix)
    with GGUFSource(gguf_at(locate(src, progress))) as source:
        _require_another(target, source)
        choices = _choose(source, name, wishes, matrix)
        types = [choice.type for choice in choices]
        _require_related(matrix, source)
        encodings.require_importances(name, choices, source.tensors, matrix)
        _require_encodable(source, types, requantize)
        n_bytes = sum(quant.nbytes(type, tensor.shape) for type, tensor in zip(types, source.tensors, strict=True))
        with room_for(target, n_bytes), GGUFWriter(target) as writer:
            _declare(writer, source, types, name, matrix)
            _write(writer, source, types, matrix, threads, progress)
        return _report(target, source, types, matrix)


@dataclass(frozen=True)
class _Wish:
    pattern: re.Pattern[str]
    type: GGMLType | None  # None: as it is


class _Wishes:
    """Which tensors are not to have what the mixture gives them."""

    def __init__(self, tensor_types: Mapping[str, str], keep: Iterable[str]) -> None:
        if isinstance(keep, str) or not isinstance(keep, Iterable):
            raise InvalidParameterError(f"keep must be a list of regular expressions, not {keep!r}")
        if not isinstance(tensor_types, Mapping):
            raise InvalidParameterError(f"tensor_types must map regular expressions to types, not be {tensor_types!r}")
        kept = [_Wish(_pattern(expression), None) for expression in keep]
        typed = [_Wish(_pattern(expression), _element_type(type)) for expression, type in tensor_types.items()]
        self._wishes = [*kept, *typed]

    def type_of(self, tensor: PlannedTensor) -> GGMLType | None:
        """The type that a tensor is to have; None: the mixture's choice."""
        for wish in self._wishes:
            if wish.pattern.search(tensor.name):
                return tensor.weight.type if wish.type is None else wish.type
        return None

    def require_all_found(self, tensors: Sequence[PlannedTensor], choices: Sequence[Choice]) -> None:
        """Raises InvalidParameterError for an expression that no tensor's name has, such as one misspelt."""
        names = [tensor.name for tensor, choice in zip(tensors, choices, strict=True) if choice.is_mixed]
        for wish in self._wishes:
            if not any(wish.pattern.search(name) for name in names):
                raise InvalidParameterError(
                    f"no tensor that could be quantised has {wish.pattern.pattern!r} in its name; they are called "
                    + ", ".join(sorted({re.sub(r"\d+", "0", name) for name in names}))
                )


def _pattern(expression: object) -> re.Pattern[str]:
    if not isinstance(expression, str):
        raise InvalidParameterError(f"a regular expression was expected, not {expression!r}")
    try:
        return re.compile(expression)
    except re.error as error:
        raise InvalidParameterError(f"{expression!r} is no regular expression: {error}") from None


def _element_type(name: object) -> GGMLType:
    types = {type.name.lower(): type for type in quant.types() if type.is_convertible}
    type = types.get(name.lower()) if isinstance(name, str) else None
    if type is None:
        raise InvalidParameterError(f"{name!r} is no element type; it may be {', '.join(types)}")
    return type


def _file_type(ftype: object) -> str:
    name = ftype.lower() if isinstance(ftype, str) else ""
    if name not in mixture.FILE_TYPES:
        raise InvalidParameterError(f"ftype is {ftype!r}; it may be {', '.join(sorted(mixture.FILE_TYPES))}")
    return name


def _target(dst: object) -> Path:
    if not is_path(dst):
        raise InvalidParameterError(f"the file to write must be given as a path, not as {dst!r}")
    return Path(dst)


def _require_another(target: Path, source: GGUFSource) -> None:
    if target.exists() and any(target.samefile(path) for path in source.paths):
        raise InvalidParameterError(f"{target} is the model itself; write to another file")


def _choose(source: GGUFSource, name: str, wishes: _Wishes, matrix: ImportanceMatrix | None) -> list[Choice]:
    mixable = [Mixable(t.name, t.shape, t.weight.type, wishes.type_of(t)) for t in source.tensors]
    choices = mixture.of_file(source.path, mixture.FILE_TYPES[name], mixable, matrix is not None)
    wishes.require_all_found(source.tensors, choices)
    return choices


def _require_related(matrix: ImportanceMatrix | None, source: GGUFSource) -> None:
    if matrix is not None and not any(tensor.name in matrix.entries for tensor in source.tensors):
        raise InvalidParameterError(
            f"the importance matrix is of another model: none of its {len(matrix.entries)} tensors is in {source.path}"
        )


def _require_encodable(source: GGUFSource, types: Sequence[GGMLType], requantize: bool) -> None:
    for tensor, type in zip(source.tensors, types, strict=True):
        stored = tensor.weight.type
        if type == stored:
            continue
        if not stored.is_convertible:
            raise InvalidParameterError(
                f"{source.path}: tensor {tensor.name!r} is of type {stored.name}, which cannot become {type.name}"
            )
        if stored.is_quantized and type.is_quantized and not requantize:
            raise InvalidParameterError(
                f"{source.path} is quantised already: tensor {tensor.name!r} is {stored.name}, and to make it "
                f"{type.name} would add a second loss to the first. Start from a file of floats, or say requantize=True"
            )


def _declare(
    writer: GGUFWriter, source: GGUFSource, types: Sequence[GGMLType], name: str, matrix: ImportanceMatrix | None
) -> None:
    # In upstream's order: what it sets anew comes last.
    new = {
        "general.quantization_version": (quant.QUANTIZATION_VERSION, ValueType.UINT32),
        "general.file_type": (mixture.FILE_TYPES[name], ValueType.UINT32),
        **({} if matrix is None else quantizer_metadata(matrix)),
    }
    for key, value, type in source.metadata():
        if key not in new:
            writer.set(key, value, type)
    for key, (value, type) in new.items():
        writer.set(key, value, type)
    for tensor, element in zip(source.tensors, types, strict=True):
        writer.add_tensor(tensor.name, tensor.shape, element)


def _write(
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


def _report(target: Path, source: GGUFSource, types: Sequence[GGMLType], matrix: ImportanceMatrix | None) -> Conversion:
    names = Counter(type.name for type in types)
    return Conversion(
        path=target,
        architecture=source.architecture,
        types=dict(sorted(names.items())),
        n_params=sum(tensor.weight.n_rows * tensor.weight.n_cols for tensor in source.tensors),
        n_bytes=target.stat().st_size,
        notes=_without_importances(source, types, matrix),
    )


def _without_importances(
    source: GGUFSource, types: Sequence[GGMLType], matrix: ImportanceMatrix | None
) -> tuple[str, ...]:
    if matrix is None:
        return ()
    without = [
        tensor.name
        for tensor, type in zip(source.tensors, types, strict=True)
        if type.is_quantized and type != tensor.weight.type and encodings.importances(tensor, matrix) is None
    ]
    if not without:
        return ()
    return (f"of {len(without)} quantised tensors the importance matrix knows nothing: {', '.join(without[:5])}",)
