"""Convert a Hugging Face directory to a GGUF file, one tensor at a time."""

from __future__ import annotations

import logging
import os
import re
import shlex
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml import quant
from pyggml._core.checks import flag, integer
from pyggml._core.hints import renamed, with_hints
from pyggml._core.json_forms import JSONReady
from pyggml._core.log import logger
from pyggml._native.imatrix import ImportanceMatrix, open_imatrix, quantizer_metadata
from pyggml._native.model import TOKENIZER_JSON, Model
from pyggml.errors import DiskFullError, InvalidParameterError, ModelLoadError
from pyggml.files.atomic_file import PartialFile
from pyggml.files.disk import require_disk_space, target_path
from pyggml.files.model_files import ModelFiles, checkpoint_at, model_at
from pyggml.gguf import GGUFReader, GGUFWriter, ValueType
from pyggml.importer import encoding
from pyggml.importer.adapter import ADAPTER_TYPES, Base, convert_adapter, is_peft
from pyggml.importer.encoding import choose_types, encoded_parts, require_outtype
from pyggml.importer.notes import conversion_notes
from pyggml.importer.plan import ImportPlan, PlannedTensor, as_stored, read_plan
from pyggml.importer.safetensors import Checkpoint
from pyggml.importer.type_overrides import TypeOverrides
from pyggml.importer.vocabulary import Vocabulary, read_vocabulary
from pyggml.options.file_types import NO_IMATRIX_TYPES
from pyggml.progress import Progress, ProgressOption, progress_function, shows_progress
from pyggml.quant import GGMLType, nbytes
from pyggml.source import locate
from pyggml.tokenizer.hugging_face import carried_tokenizer, tokenizer_for
from pyggml.units import bits_per_weight, bytes_text

#: Checks a GGUF file and raises if it is not acceptable.
Accept = Callable[[Path], None]

_MAX_THREADS = 512


class StoppedError(ModelLoadError):
    """A progress callback stopped a conversion."""


@dataclass(frozen=True)
class Conversion(JSONReady):
    """The result of a conversion.

    Attributes:
        path: the GGUF file.
        architecture: the engine's name for the model's architecture.
        types: element type -> number of tensors of that type.
        n_params: number of weights.
        n_bytes: size of the file.
        bits_per_weight: average over all tensors, including scales, as in :func:`pyggml.inspect`.
        notes: things a user should know, such as that the file carries its own tokenizer; usually empty.
    """

    path: Path
    architecture: str
    types: dict[str, int]
    n_params: int
    n_bytes: int
    bits_per_weight: float
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        path: Path,
        architecture: str,
        tensors: Sequence[PlannedTensor],
        types: Sequence[GGMLType],
        n_bytes: int,
        notes: Iterable[str],
    ) -> Conversion:
        """Return the result for tensors that were written with these types to a file of ``n_bytes``.

        Args:
            path: the file.
            architecture: its architecture.
            tensors: its tensors.
            types: the type of each, in the same order.
            n_bytes: size of the file.
            notes: notes on differences from the source.
        """
        n_params = sum(tensor.weight.n_rows * tensor.weight.n_cols for tensor in tensors)
        n_tensor_bytes = sum(nbytes(type, tensor.shape) for tensor, type in zip(tensors, types, strict=True))
        return cls(
            path=path,
            architecture=architecture,
            types=dict(sorted(Counter(type.name for type in types).items())),
            n_params=n_params,
            n_bytes=n_bytes,
            bits_per_weight=bits_per_weight(n_tensor_bytes, n_params),
            notes=tuple(notes),
        )


@with_hints("converting")
@renamed(hf_dir="source")
@shows_progress("Converting {}")
def convert(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    outtype: str = "auto",
    progress: ProgressOption = None,
    *,
    imatrix: ImportanceMatrix | str | os.PathLike[str] | None = None,
    tensor_types: Mapping[str, str] | None = None,
    keep: Iterable[str] = (),
    n_threads: int | None = None,
    dry_run: bool = False,
    base: Base | None = None,
) -> Conversion:
    """Convert a Hugging Face directory, or that of a PEFT adapter, to a GGUF file, without PyTorch.

    Only a few tensors are in memory at a time. The file is written under a temporary name in the same folder; it gets
    its final name, replacing any existing file, once it is complete. If anything fails, the temporary file is removed.

    Args:
        source: a directory with ``config.json``, safetensors and a tokenizer; a directory with ``adapter_config.json``
            and ``adapter_model.safetensors``, a LoRA adapter; or a reference to such a repository, ``hf:org/repo``.
        out: the file to write.
        outtype: "auto" keeps the precision of every weight; "f32", "f16", "bf16", or any type that the engine's
            quantiser supports ("q8_0", "q4_0", "q4_k_m" ...), quantised in the same pass. An adapter
            has one of the first four.
        progress: called with the fraction done, 0 to 1, first while files are downloaded, then after each tensor;
            returning False stops. None: a bar in a notebook; False: no bar.
        imatrix: importances of the weights, for quantised types: from :func:`pyggml.compute_imatrix`, or a file's path.
        tensor_types: regular expression -> element type such as "q6_k", to override ``outtype`` for matching tensors.
            An expression matches anywhere in a tensor's name in the GGUF file, and the first match wins. Vectors are
            never quantised.
        keep: regular expressions; tensors with a matching name keep the type that the checkpoint stores.
        n_threads: number of encoding threads; None: one per core.
        dry_run: validate and return the result without writing the file.
        base: for an adapter, the model that it was made for: a GGUF file, a directory or a reference, of which only
            headers are read. None: the directory that ``adapter_config.json`` names.

    Raises:
        ModelNotFoundError: the directory, a file or a tensor is missing.
        ModelLoadError: a file is broken, or two contradict each other; the message names file and tensor.
        UnsupportedArchitectureError: the engine cannot run this model correctly.
        ArchitectureMismatchError: an adapter was made for another model than ``base``.
        TokenizerError: the tokenizer is missing or broken.
        DiskFullError: the file does not fit, and names the largest type that would; the unfinished file is removed.
        DownloadError, MissingPackageError: for a reference, as in :func:`~pyggml.load`.
        InvalidParameterError: an argument is invalid.
    """
    outtype = require_outtype(outtype)
    threads, dry_run = checked_threads(n_threads), flag("dry_run", dry_run)
    target, overrides = target_path("out", out), TypeOverrides(tensor_types, keep)
    progress = progress_function(progress)
    path = locate(source, progress)
    if is_peft(path):
        _require_plain_types(outtype, imatrix, overrides)
        return _convert_adapter(path, target, base, progress, outtype, dry_run)
    if base is not None:
        raise InvalidParameterError(f"base is for LoRA adapters, and {path} is not the directory of one")
    files = _directory_at(path)
    contents = read_contents(files, outtype, open_imatrix(imatrix), overrides or None)
    check_vocabulary(contents, target.name)
    if dry_run:
        with closing(GGUFWriter(target)) as writer:
            _write_header(writer, contents)
            return _report(target, contents, writer.n_bytes)
    return write_model(contents, target, progress, threads)


def _require_plain_types(outtype: str, imatrix: object, overrides: TypeOverrides) -> None:
    if outtype not in ADAPTER_TYPES:
        raise InvalidParameterError(f"outtype is {outtype!r}; an adapter's types are {', '.join(ADAPTER_TYPES)}")
    if imatrix is not None or overrides:
        raise InvalidParameterError("imatrix, tensor_types and keep are for models: an adapter is not quantised")


def _convert_adapter(
    directory: Path, target: Path, base: Base | None, progress: Progress | None, outtype: str, dry_run: bool
) -> Conversion:
    done = convert_adapter(directory, target, base, progress, outtype=outtype, dry_run=dry_run)
    return Conversion(
        path=target,
        architecture=done.architecture,
        types=dict(sorted(Counter(type for each in done.targets for type in (each.type_a, each.type_b)).items())),
        n_params=done.n_params,
        n_bytes=done.n_bytes,
        bits_per_weight=bits_per_weight(done.n_data_bytes, done.n_params),
        notes=done.notes,
    )


def _directory_at(path: Path) -> ModelFiles:
    """The checkpoint in a directory; a file is refused as by :func:`pyggml.load`, or with the function for it."""
    try:
        return checkpoint_at(path)
    except InvalidParameterError:
        GGUFReader(model_at(path).path, header_only=True).close()
        message = f"{path} is a GGUF file: quantize changes its type; convert takes directories"
        raise InvalidParameterError(message) from None


@dataclass(frozen=True)
class GGUFContents:
    """The contents of a GGUF file except the tensors' data, which has not been read yet.

    Attributes:
        types: element type of each tensor of the plan.
        file_type: the number that describes the types as a whole (``general.file_type``).
    """

    plan: ImportPlan
    vocabulary: Vocabulary
    imatrix: ImportanceMatrix | None
    types: list[GGMLType]
    file_type: int


def read_contents(
    files: ModelFiles,
    outtype: str,
    imatrix: ImportanceMatrix | None = None,
    overrides: TypeOverrides | None = None,
) -> GGUFContents:
    """Read a directory and check that all of it can be converted to an output type, in the engine's spelling."""
    plan = as_stored(read_plan(files)) if outtype == "auto" else read_plan(files)
    _log_ignored_keys(plan)
    vocabulary = read_vocabulary(files.path, {**plan.config.values, "vocab_size": plan.sizes.n_vocab})
    types, file_type = choose_types(outtype, plan.layout, plan.sizes, plan.tensors, imatrix, overrides)
    return GGUFContents(plan, vocabulary, imatrix, types, file_type)


def _log_ignored_keys(plan: ImportPlan) -> None:
    if not plan.ignored:
        return
    level, more = logging.INFO, ""
    if plan.has_own_code:
        level, more = logging.WARNING, "; the Python code that comes with the model may read them"
    logger.log(level, "%s: ignored %s, as transformers does%s", plan.config.path, ", ".join(plan.ignored), more)


def write_model(
    contents: GGUFContents,
    target: Path,
    progress: Progress | None,
    n_threads: int | None = None,
    file: PartialFile | None = None,
) -> Conversion:
    """Write a model; errors as for :func:`convert`, or StoppedError if the progress callback returned False.

    ``file`` is an unfinished file to continue, whose complete tensors are not written again; None: a new file.
    """
    with GGUFWriter(target, file=file) as writer:
        _write_header(writer, contents)
        try:
            with require_disk_space(target, writer.n_bytes, 0 if file is None else file.n_allocated):
                _write_tensors(writer, contents, n_threads, progress)
                writer.finish()
        except DiskFullError as error:
            advice = _smaller_type(contents, writer.n_bytes, error.available_bytes)
            raise DiskFullError(f"{error}; {advice}", error.required_bytes, error.available_bytes) from None
    return _report(target, contents, target.stat().st_size)


def _smaller_type(contents: GGUFContents, n_bytes: int, available: int) -> str:
    """Name the largest type with which the file would fit into ``available`` bytes, and the command for it."""
    plan = contents.plan
    header = n_bytes - _data_bytes(contents.plan, contents.types)
    for outtype in NO_IMATRIX_TYPES:
        types, _ = choose_types(outtype, plan.layout, plan.sizes, plan.tensors)
        size = header + _data_bytes(plan, types)
        if size <= min(available, n_bytes - 1):
            directory = plan.config.path.parent
            return (
                f"{outtype} would fit, in {bytes_text(size)}: pyggml convert {shlex.quote(str(directory))} OUT.gguf "
                f"{outtype}, or load(..., outtype={outtype!r})"
            )
    return "no smaller type of the weights would fit either"


def _data_bytes(plan: ImportPlan, types: Iterable[GGMLType]) -> int:
    return sum(quant.nbytes(type, tensor.shape) for tensor, type in zip(plan.tensors, types, strict=True))


def check_vocabulary(contents: GGUFContents, name: str, tokenizer: object = None, accept: Accept | None = None) -> None:
    """Check that the file's vocabulary will be accepted, before the weights are converted.

    Args:
        contents: what will be written.
        name: the file's name.
        tokenizer: the tokenizer that texts will be encoded with; None: the file's own.
        accept: called with a GGUF file that lacks only the weights; it refuses a file by raising.

    Raises:
        TokenizerError: the tokenizer cannot be used, or belongs to another model.
    """
    own = contents.vocabulary.metadata.get(TOKENIZER_JSON)
    if tokenizer is None and accept is None and own is None:
        return
    with tempfile.TemporaryDirectory(prefix="pyggml-") as folder:
        path = Path(folder) / name
        with GGUFWriter(path) as writer:
            _write_metadata(writer, contents)
        if accept is not None:
            accept(path)
        with Model(path, device="cpu", vocab_only=True) as model:
            if tokenizer is not None:
                tokenizer_for(model, tokenizer)
            elif own is not None:
                carried_tokenizer(str(own).encode(), model, str(contents.vocabulary.tokenizer_file))


def checked_threads(n_threads: int | None) -> int | None:
    """Validate the caller's number of encoding threads."""
    return None if n_threads is None else integer("n_threads", n_threads, 1, _MAX_THREADS)


def report_progress(progress: Progress | None, fraction: float, directory: Path) -> None:
    """Report the progress of a conversion; StoppedError if the callback returned False."""
    if progress is not None and progress(fraction) is False:
        raise StoppedError(f"converting {directory} was stopped by its progress callback")


def _write_header(writer: GGUFWriter, contents: GGUFContents) -> None:
    _write_metadata(writer, contents)
    for tensor, type in zip(contents.plan.tensors, contents.types, strict=True):
        writer.add_tensor(tensor.name, tensor.shape, type)


def _write_metadata(writer: GGUFWriter, contents: GGUFContents) -> None:
    metadata: dict[str, Any] = {
        **contents.plan.metadata,
        "general.name": name_for_engine(str(contents.plan.metadata["general.name"]), contents.vocabulary),
        "general.file_type": contents.file_type,
        **contents.vocabulary.metadata,
    }
    for key, value in metadata.items():
        is_empty = isinstance(value, (list, tuple)) and not value  # the writer cannot infer its type
        writer.set(key, value, ValueType.STRING if is_empty else None)
    for key, (value, type) in ({} if contents.imatrix is None else quantizer_metadata(contents.imatrix)).items():
        writer.set(key, value, type)


def name_for_engine(name: str, vocabulary: Vocabulary) -> str:
    """Return a model's name in a spelling that the engine does not take for Phi-3's by mistake.

    In a model whose name contains "phi-3", the engine strips whitespace after special tokens, and rejects vocabularies
    other than Phi-3's. The name is kept for tokenizers that do strip it.
    """
    texts: Any = vocabulary.metadata["tokenizer.ggml.tokens"]
    if vocabulary.has_rstrip_tokens and {"</s>", "<unk>", "<s>", "<|endoftext|>"} <= set(texts):
        return name
    return re.sub("(phi)-?(3)", r"\1 \2", name, flags=re.IGNORECASE)


def _write_tensors(writer: GGUFWriter, contents: GGUFContents, threads: int | None, progress: Progress | None) -> None:
    plan = contents.plan
    sizes = [tensor.weight.n_rows * tensor.weight.n_cols for tensor in plan.tensors]
    done = np.cumsum(sizes) / max(sum(sizes), 1)
    missing = writer.missing()
    with ThreadPoolExecutor(encoding.n_threads(threads), "pyggml-convert") as executor:
        for tensor, type, fraction in zip(plan.tensors, contents.types, done, strict=True):
            if tensor.name not in missing:
                continue
            parts = encoded_parts(tensor, type, executor, contents.imatrix)
            writer.write_tensor_parts(tensor.name, _checked_when_read(parts, plan.checkpoint))
            report_progress(progress, float(fraction), plan.config.path.parent)


def _checked_when_read(parts: Iterable[npt.NDArray[Any]], source: Checkpoint) -> Iterator[npt.NDArray[Any]]:
    """Yield the parts, then check that the files they were read from were complete."""
    yield from parts
    source.require_whole()


def _report(target: Path, contents: GGUFContents, n_bytes: int) -> Conversion:
    plan = contents.plan
    notes = conversion_notes(plan, contents.types, contents.vocabulary)
    return Conversion.of(target, plan.layout.architecture, plan.tensors, contents.types, n_bytes, notes)
