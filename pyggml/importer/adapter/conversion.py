"""Conversion of a PEFT directory to a GGUF adapter, without PyTorch."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml._core.checks import choice, is_directory, is_path, shown
from pyggml._native.quantization_mix import FILE_TYPES
from pyggml.errors import ArchitectureMismatchError, InvalidParameterError, ModelLoadError, ModelNotFoundError
from pyggml.files.disk import require_disk_space, target_path
from pyggml.files.weights import Floats, encode, widen
from pyggml.gguf import GGMLType, GGUFWriter, ValueType
from pyggml.importer.adapter import check
from pyggml.importer.adapter.base_model import Base, BaseModel
from pyggml.importer.adapter.check import check_adapter, require_product, require_tokens
from pyggml.importer.adapter.frozen import note_on
from pyggml.importer.adapter.peft_config import PeftConfig, read_config, weights_of
from pyggml.importer.adapter.peft_tensors import PeftPair, PeftTensors, read_tensors
from pyggml.importer.adapter.report import EMBEDDING, AdapterReport
from pyggml.importer.adapter.targets import Target, targets_of
from pyggml.importer.plan import directory_name
from pyggml.importer.safetensors import StoredTensor
from pyggml.progress import Progress
from pyggml.source import locate

#: Types of an adapter's matrices; "auto" keeps those of the checkpoint.
ADAPTER_TYPES = ("auto", "f32", "f16", "bf16")

_STORED = {"F32": GGMLType.F32, "F16": GGMLType.F16, "BF16": GGMLType.BF16, "F64": GGMLType.F32}
_REPOSITORY = re.compile(r"([\w.-]+)/([\w.-]+)")


@dataclass
class _Planned:
    """A weight of the base model, and the pairs that change it: one, or one for each expert that is changed."""

    target: Target
    pairs: list[tuple[Target, PeftPair, float]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def rank(self) -> int:
        """The largest rank: smaller matrices are padded with zeros."""
        return max(target.rank(pair) for target, pair, _ in self.pairs)

    @property
    def alphas(self) -> list[float]:
        """For each pair, the alpha with which the engine's factor, ``alpha / rank``, is that of peft."""
        with np.errstate(over="ignore"):  # checked when all are known
            return [float(np.float32(scaling * self.rank)) for _, _, scaling in self.pairs]

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shapes of ``lora_a`` and ``lora_b``."""
        shape, rank = self.target.shape, self.rank
        if self.name == EMBEDDING:
            return (shape[0], rank), (shape[1], rank)
        return (*shape[:-2], rank, shape[-1]), (*shape[:-1], rank)


def convert_adapter(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    base: Base | None = None,
    progress: Progress | None = None,
    *,
    outtype: str = "auto",
    dry_run: bool = False,
) -> AdapterReport:
    """Convert a PEFT directory to a GGUF adapter, as llama.cpp's ``convert_lora_to_gguf.py`` does.

    The file appears under its name when it is complete, replacing any existing file.

    Args:
        source: the directory with ``adapter_config.json`` and ``adapter_model.safetensors``, or a reference to one.
        out: the file to write.
        base: the model that the adapter was made for: a GGUF file, a directory, a reference, or what was read of it.
            None: the directory that ``adapter_config.json`` names, if there is such a directory.
        progress: called with the fraction done, 0 to 1; returning False stops.
        outtype: one of :data:`ADAPTER_TYPES`.
        dry_run: check everything but the values, and write nothing: the report has no digest.

    Raises:
        ModelNotFoundError: the directory, one of its files or the base model is missing.
        ModelLoadError: a file is broken, or has values that are infinite or NaN.
        ArchitectureMismatchError: the adapter was made for another model than ``base``.
        UnsupportedArchitectureError: the adapter is more than LoRA, or the engine cannot add to a weight.
        InvalidParameterError: an argument is invalid, or the base model is needed.
        DiskFullError: the file does not fit.
    """
    outtype = choice("outtype", outtype, ADAPTER_TYPES)
    target = target_path("out", out)
    directory = _directory(locate(source, progress))
    config = read_config(directory)
    tensors = read_tensors(weights_of(directory))
    model = _base(config, base, progress)
    require_tokens(config.invocation_tokens, model, directory)
    planned, alpha = _plan(config, tensors, model)
    notes = tuple(_notes(tensors, planned, model))
    types = [_types(each, alpha, outtype) for each in planned]
    with contextlib.ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / target.name if dry_run else target
        writer = stack.enter_context(GGUFWriter(path))
        _write_metadata(writer, config, model, directory, alpha, types)
        for each, (type_a, type_b) in zip(planned, types, strict=True):
            for half, shape, type in zip("ab", each.shapes, (type_a, type_b), strict=True):
                writer.add_tensor(f"{each.name}.lora_{half}", shape, type)
        if dry_run:
            n_bytes = writer.n_bytes
            writer.finish_without_data()
            return replace(check_adapter(path, model, data=False), path=target, n_bytes=n_bytes, notes=notes)
        with require_disk_space(target, writer.n_bytes):
            _write_tensors(writer, planned, types, alpha, tensors, model, progress)
            writer.finish()
    return replace(check_adapter(target, model), notes=notes)


@contextlib.contextmanager
def gguf_adapter(source: str | os.PathLike[str], base: Base | None = None) -> Iterator[Path]:
    """Yield an adapter as a GGUF file: its own path, or that of a temporary conversion, removed afterwards.

    Args:
        source: a GGUF adapter, a PEFT directory, or a reference to one.
        base: as for :func:`convert_adapter`.
    """
    path = locate(source)
    if not is_directory(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="pyggml-") as folder:
        file = Path(folder) / "adapter.gguf"
        convert_adapter(path, file, base)
        yield file


def _directory(path: Path) -> Path:
    if not path.exists():
        raise ModelNotFoundError(f"there is no directory {path}")
    if not is_directory(path):
        raise InvalidParameterError(f"{path} is not a directory; that of a PEFT adapter was expected")
    return path


def _base(config: PeftConfig, base: Base | None, progress: Progress | None) -> BaseModel:
    if base is not None:
        return BaseModel.of(base, progress)
    named = config.base_model
    if named and is_path(named) and Path(named).is_dir():
        return BaseModel.of(named)
    what = f", {named!r:.200}," if named else ""
    raise InvalidParameterError(
        f"the base model of the adapter in {config.path.parent}{what} is not on this machine under that name, and its "
        "sizes are needed: pass base=, a GGUF file, a directory or a reference"
    )


def _plan(config: PeftConfig, tensors: PeftTensors, base: BaseModel) -> tuple[list[_Planned], float]:
    """The weights to change, and the alpha for which most of them need not be rescaled."""
    planned: dict[str, _Planned] = {}
    for pair in tensors.pairs:
        for target in targets_of(pair, base, tensors.checkpoint.files[0]):
            require_product(target.name, base.shapes[target.name], base, config.path.parent)
            rank = target.rank(pair)
            if not config.has_ranks and rank != config.rank:
                raise ModelLoadError(
                    f"{tensors.checkpoint.files[0]}: the matrices of {shown(pair.module)} have rank {rank}, and by "
                    f"{config.path.name} r is {config.rank}"
                )
            each = planned.setdefault(target.name, _Planned(target))
            if any(target.expert in (None, other.expert) or other.expert is None for other, _, _ in each.pairs):
                raise ModelLoadError(
                    f"{tensors.checkpoint.files[0]} changes {target.name} twice, also by {shown(pair.module)}"
                )
            each.pairs.append((target, pair, config.scaling(target.parameter, rank)))
    _require_all_blocks(config, planned, base)
    _require_moderate(planned, config)
    alphas = Counter(alpha for each in planned.values() for alpha in each.alphas)
    alpha = alphas.most_common(1)[0][0]
    if not all(2.0**-126 <= each < 2.0**127 for each in alphas):
        raise ModelLoadError(f"{config.path}: float32 cannot hold the alphas of all matrices")
    return list(planned.values()), alpha


def _require_all_blocks(config: PeftConfig, planned: dict[str, _Planned], base: BaseModel) -> None:
    """Refuse an adapter that leaves out blocks of the base model, although its configuration names all of them."""
    kinds = {
        re.sub(r"^blk\.\d+\.", "", name)
        for name, each in planned.items()
        for target, _, _ in each.pairs
        if target.is_module and target.parameter.rpartition(".")[2] in config.everywhere
    }
    for name in base.shapes:
        head, _, kind = name.removeprefix("blk.").partition(".")
        if name.startswith("blk.") and head.isdecimal() and kind in kinds and name not in planned:
            raise ArchitectureMismatchError(
                f"the adapter in {config.path.parent} has no matrices for {name}, although it changes {kind} in every "
                f"block, of which {base.path} has {base.n_layer}. It was made for another model"
            )


def _require_moderate(planned: dict[str, _Planned], config: PeftConfig) -> None:
    """Refuse ranks of single experts that would make a small file a huge one, since all are padded to the largest."""
    for each in planned.values():
        if each.target.expert is not None and each.rank > max(each.target.shape[-2:]):
            raise ModelLoadError(
                f"the adapter in {config.path.parent} changes an expert of {each.name}, of shape "
                f"{each.target.shape[-2:]}, with the rank {each.rank}"
            )


def _notes(tensors: PeftTensors, planned: list[_Planned], base: BaseModel) -> Iterator[str]:
    by_module = {pair.module: target for each in planned for target, pair, _ in each.pairs}
    for module, stored in tensors.frozen.items():
        yield note_on(stored, by_module.get(module), tensors, base)


def _types(each: _Planned, alpha: float, outtype: str) -> tuple[GGMLType, GGMLType]:
    """Types of the two matrices: float32 where stored types differ, or where values have to be rescaled."""
    if outtype != "auto":
        return (GGMLType[outtype.upper()],) * 2
    a = {_STORED[pair.a.dtype] for _, pair, _ in each.pairs}
    b = {_STORED[pair.b.dtype] for _, pair, _ in each.pairs}
    if any(each_alpha != alpha for each_alpha in each.alphas):
        b.add(GGMLType.F32)
    return a.pop() if len(a) == 1 else GGMLType.F32, b.pop() if len(b) == 1 else GGMLType.F32


def _write_metadata(
    writer: GGUFWriter,
    config: PeftConfig,
    base: BaseModel,
    directory: Path,
    alpha: float,
    types: list[tuple[GGMLType, GGMLType]],
) -> None:
    most = Counter(type for both in types for type in both).most_common(1)[0][0]
    metadata: dict[str, tuple[Any, ValueType]] = {
        "general.architecture": (base.architecture, ValueType.STRING),
        check.GENERAL_TYPE: ("adapter", ValueType.STRING),
        check.ADAPTER_TYPE: ("lora", ValueType.STRING),
        "general.name": (directory_name(directory), ValueType.STRING),
        **_base_metadata(config.base_model),
        "general.file_type": (FILE_TYPES[most.name.lower()], ValueType.UINT32),
        check.ALPHA: (alpha, ValueType.FLOAT32),
        check.BLOCK_COUNT: (base.n_layer, ValueType.UINT32),
    }
    if config.invocation_tokens:
        metadata[check.INVOCATION_TOKENS] = (list(config.invocation_tokens), ValueType.UINT32)
    for key, (value, type) in metadata.items():
        writer.set(key, value, type)


def _base_metadata(named: str) -> dict[str, tuple[Any, ValueType]]:
    """The base model's name, and its repository if the name is one."""
    name = Path(named).name if named and "\0" not in named and named.isprintable() else ""
    if not name:
        return {}
    found: dict[str, tuple[Any, ValueType]] = {
        "general.base_model.count": (1, ValueType.UINT32),
        check.BASE_NAME: (name, ValueType.STRING),
    }
    match = _REPOSITORY.fullmatch(named)
    if match is not None and not Path(named).is_dir():
        found["general.base_model.0.organization"] = (match[1], ValueType.STRING)
        found["general.base_model.0.repo_url"] = (f"https://huggingface.co/{named}", ValueType.STRING)
    return found


def _write_tensors(
    writer: GGUFWriter,
    planned: list[_Planned],
    types: list[tuple[GGMLType, GGMLType]],
    alpha: float,
    tensors: PeftTensors,
    base: BaseModel,
    progress: Progress | None,
) -> None:
    for number, (each, both) in enumerate(zip(planned, types, strict=True), 1):
        for half, values, type in zip("ab", _matrices(each, alpha, tensors, base), both, strict=True):
            name = f"{each.name}.lora_{half}"
            try:
                encoded = encode(values, type)
            except InvalidParameterError as error:
                raise ModelLoadError(f"{name} cannot be stored as {type.name}: {error}") from None
            writer.write_tensor(name, encoded)
        tensors.checkpoint.require_whole()
        if progress is not None and progress(number / len(planned)) is False:
            raise ModelLoadError(
                f"converting {tensors.checkpoint.files[0].parent} was stopped by its progress callback"
            )


def _matrices(each: _Planned, alpha: float, tensors: PeftTensors, base: BaseModel) -> tuple[Floats, Floats]:
    """``lora_a`` and ``lora_b`` of a weight."""
    found = []
    for (target, pair, _), own_alpha in zip(each.pairs, each.alphas, strict=True):
        a, b = target.matrices(_floats(tensors, pair.a), _floats(tensors, pair.b), base)
        if own_alpha != alpha:
            with np.errstate(over="ignore"):
                b = np.asarray(b.astype(np.float64) * (own_alpha / alpha), np.float32)
            _require_finite(b, pair.b)
        found.append((target.expert, a, b))
    shape_a, shape_b = each.shapes
    if each.target.expert is None or len(shape_a) < 3:
        _, a, b = found[0]
    else:
        a, b = np.zeros(shape_a, np.float32), np.zeros(shape_b, np.float32)
        for expert, of_a, of_b in found:
            assert expert is not None
            a[expert, : len(of_a)], b[expert, :, : of_b.shape[1]] = of_a, of_b
    if a.shape != shape_a or b.shape != shape_b:
        raise ModelLoadError(
            f"the matrices of {each.name} become {a.shape} and {b.shape}; by {base.path} they are {shape_a} and "
            f"{shape_b}"
        )
    return np.ascontiguousarray(a), np.ascontiguousarray(b)


def _floats(tensors: PeftTensors, stored: StoredTensor) -> Floats:
    """The values of a tensor, all of them finite."""
    array: npt.NDArray[Any] = tensors.checkpoint.array(stored.name)
    with np.errstate(over="ignore"):  # float64 beyond float32's range: checked here
        values = widen(array, GGMLType.BF16 if stored.dtype == "BF16" else GGMLType.F32)
    _require_finite(values, stored)
    return values


def _require_finite(values: Floats, stored: StoredTensor) -> None:
    if not np.isfinite(values).all():
        raise ModelLoadError(f"{stored.path}: tensor {shown(stored.name)} has values that are infinite or NaN")
