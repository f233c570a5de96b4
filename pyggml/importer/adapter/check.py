"""Checks of a GGUF adapter, before the engine reads it."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pyggml import quant
from pyggml._core.checks import is_path, shown
from pyggml.errors import (
    ArchitectureMismatchError,
    InferError,
    InvalidParameterError,
    ModelLoadError,
    UnsupportedArchitectureError,
)
from pyggml.gguf import GGMLType, GGUFReader, TensorInfo, ValueType
from pyggml.importer.adapter.base_model import BaseModel, trimmed
from pyggml.importer.adapter.peft_config import is_peft
from pyggml.importer.adapter.report import EMBEDDING, AdapterReport, AdapterTarget

#: Metadata keys of the format.
GENERAL_TYPE = "general.type"
ADAPTER_TYPE = "adapter.type"
ALPHA = "adapter.lora.alpha"
INVOCATION_TOKENS = "adapter.alora.invocation_tokens"
TASK_NAME = "adapter.lora.task_name"
PROMPT_PREFIX = "adapter.lora.prompt_prefix"
BASE_NAME = "general.base_model.0.name"
#: pyggml's own: blocks of the base model that the adapter was converted for.
BLOCK_COUNT = "pyggml.adapter.block_count"

_KNOWN = (ADAPTER_TYPE, ALPHA, INVOCATION_TOKENS, TASK_NAME, PROMPT_PREFIX)
_TEXTS = (GENERAL_TYPE, ADAPTER_TYPE, TASK_NAME, PROMPT_PREFIX, "general.architecture", "general.name", BASE_NAME)

#: The types that llama.cpp's converter writes.
_TYPES = (GGMLType.F32, GGMLType.F16, GGMLType.BF16, GGMLType.Q8_0)

# In the names of routers, the only matrices that may have a single row.
_SINGLE_ROW = "gate_inp"

# Values that are checked at a time: few enough to stay in the CPU's cache.
_CHUNK = 2**20


@dataclass(frozen=True)
class Pair:
    """The two matrices of a target, with shapes of equal length.

    Attributes:
        name: the target.
        a: header of ``lora_a``.
        b: header of ``lora_b``.
        shape_a: (rank, n_in), of experts (n_experts, rank, n_in), of the embedding (n_vocab, rank).
        shape_b: (n_out, rank), of experts (n_experts, n_out, rank), of the embedding (n_embd, rank).
    """

    name: str
    a: TensorInfo
    b: TensorInfo
    shape_a: tuple[int, ...]
    shape_b: tuple[int, ...]

    @property
    def is_embedding(self) -> bool:
        """True for the token embedding, whose ``lora_a`` is transposed."""
        return self.name == EMBEDDING

    @property
    def rank(self) -> int:
        """Rank of the change."""
        return self.shape_b[-1]

    @property
    def target_shape(self) -> tuple[int, ...]:
        """The shape of the weight that it fits, columns last."""
        if self.is_embedding:
            return (self.shape_a[0], self.shape_b[0])
        return (*self.shape_b[:-1], self.shape_a[-1])

    @property
    def target(self) -> AdapterTarget:
        """The target as the report has it."""
        n_experts = self.shape_b[0] if len(self.shape_b) == 3 else 0
        return AdapterTarget(self.name, self.rank, n_experts, self.a.type.name, self.b.type.name)


def is_adapter(source: str | os.PathLike[str]) -> bool:
    """Check whether a path is a LoRA adapter: a GGUF file that says so, or a PEFT directory.

    Args:
        source: the path; anything else, such as a reference, is none.
    """
    if not is_path(source):
        return False
    path = Path(source)
    try:
        if path.is_dir():
            return is_peft(path)
        with GGUFReader(path, header_only=True) as reader:
            return reader.metadata.get(GENERAL_TYPE) == "adapter"
    except (InferError, OSError):  # a name that is too long, say
        return False


def check_adapter(path: str | os.PathLike[str], base: BaseModel | None = None, *, data: bool = True) -> AdapterReport:
    """Check a LoRA adapter in a GGUF file, so that nothing in it is skipped in silence or aborts the engine.

    Args:
        path: the file.
        base: the model that it will be used with. None: only what the file says of itself is checked.
        data: read all values too, and refuse infinities and NaN. False: only the header.

    Raises:
        ModelNotFoundError: there is no such file.
        ModelLoadError: it is broken, is no LoRA adapter, or has tensors that would have no effect.
        ArchitectureMismatchError: it was made for another model than ``base``.
        UnsupportedArchitectureError: it has settings that pyggml does not know, or changes a weight that the engine
            cannot add to.
    """
    with GGUFReader(path) as reader:
        _check_keys(reader)
        pairs = pairs_of(reader)
        report = _report(reader, pairs, sha256="")
        if base is not None:
            _check_base(reader, report, pairs, base)
        if not data:
            return report
        return _report(reader, pairs, _check_values(reader, report))


def pairs_of(reader: GGUFReader) -> list[Pair]:
    """Return the targets of an adapter in the file's order, with consistent shapes; errors as check_adapter's."""
    names: dict[str, None] = {}
    for name in reader.tensors:
        target, dot, half = name.rpartition(".")
        if not dot or half not in ("lora_a", "lora_b"):
            raise ModelLoadError(f"{reader.path}: {_stray(name)}")
        names[target] = None
    if not names:
        raise ModelLoadError(f"{reader.path} has no tensors: the adapter changes nothing")
    return [_pair(reader, name) for name in names]


def _stray(name: str) -> str:
    """Explain a tensor that is no half of a pair."""
    if name.endswith("_norm.weight"):
        return (
            f"tensor {shown(name)} replaces a norm of the base model. The engine would skip it; merge the adapter with "
            "peft's merge_and_unload() instead, and convert the whole model"
        )
    return f"tensor {shown(name)} is neither a lora_a nor a lora_b: pyggml does not know what it does to a model"


def _pair(reader: GGUFReader, name: str) -> Pair:
    a, b = (reader.tensors.get(f"{name}.lora_{half}") for half in "ab")
    if a is None or b is None:
        missing, there = ("lora_a", "lora_b") if a is None else ("lora_b", "lora_a")
        raise ModelLoadError(f"{reader.path}: tensor {shown(name)} has a {there}, but no {missing}")
    for info in (a, b):
        if info.type not in _TYPES:
            raise ModelLoadError(
                f"{reader.path}: tensor {shown(info.name)} is of type {info.type.name}; adapters are stored as "
                f"{', '.join(type.name for type in _TYPES)}"
            )
    n_dims = max(len(a.shape), len(b.shape), 2)
    shape_a, shape_b = (((1,) * (n_dims - len(info.shape))) + info.shape for info in (a, b))
    found = Pair(name, a, b, shape_a, shape_b)
    if 0 in shape_a or 0 in shape_b:
        raise ModelLoadError(
            f"{reader.path}: the matrices of {shown(name)} are empty, {shape_a} and {shape_b}: its rank is 0"
        )
    rank_a = shape_a[-1] if found.is_embedding else shape_a[-2]
    if n_dims > 3 or rank_a != shape_b[-1] or shape_a[:-2] != shape_b[:-2] or (found.is_embedding and n_dims > 2):
        raise ModelLoadError(
            f"{reader.path}: the matrices of {shown(name)} do not fit each other: lora_a is {shape_a} and lora_b is "
            f"{shape_b}"
        )
    return found


def _check_keys(reader: GGUFReader) -> None:
    metadata, path = reader.metadata, reader.path
    for key in _TEXTS:
        if key in metadata and not isinstance(metadata[key], str):
            raise ModelLoadError(f"{path}: {key} is {shown(metadata[key])}; a text was expected")
    kind = metadata.get(GENERAL_TYPE, "model")
    if metadata.get("general.architecture") == "controlvector":
        raise UnsupportedArchitectureError(
            f"{path} is a control vector, which pyggml does not support; not a LoRA adapter"
        )
    if kind != "adapter":
        raise ModelLoadError(f"{path} is not an adapter: its general.type is {shown(kind)}")
    if metadata.get(ADAPTER_TYPE) != "lora":
        raise UnsupportedArchitectureError(
            f"{path}: adapter.type is {shown(metadata.get(ADAPTER_TYPE))}; the engine only supports 'lora'"
        )
    if not metadata.get("general.architecture"):
        raise ModelLoadError(f"{path} has no general.architecture, which names the kind of model it was made for")
    for key in metadata:
        if key.startswith("adapter.") and key not in _KNOWN:
            raise UnsupportedArchitectureError(
                f"{path}: pyggml does not know what {shown(key)} = {shown(metadata[key])} does to a model"
            )
    _check_alpha(reader)
    _check_invocation_tokens(reader)


def _check_alpha(reader: GGUFReader) -> None:
    """The engine's reader aborts for another type."""
    if ALPHA not in reader.metadata:
        return
    value = reader.metadata[ALPHA]
    if not isinstance(value, float) or reader.value_type(ALPHA) != ValueType.FLOAT32 or not math.isfinite(value):
        raise ModelLoadError(f"{reader.path}: {ALPHA} is {shown(value)}; a finite float32 number was expected")


def _check_invocation_tokens(reader: GGUFReader) -> None:
    if INVOCATION_TOKENS not in reader.metadata:
        return
    value = reader.metadata[INVOCATION_TOKENS]
    if not isinstance(value, np.ndarray) or value.dtype != np.uint32 or not 0 < value.size < 2**16:
        raise ModelLoadError(
            f"{reader.path}: {INVOCATION_TOKENS} is {shown(value)}; a list of token ids as uint32 was expected"
        )


def _check_base(reader: GGUFReader, report: AdapterReport, pairs: list[Pair], base: BaseModel) -> None:
    path = reader.path
    if report.architecture != base.architecture:
        raise ArchitectureMismatchError(
            f"{path} was made for models of the architecture {shown(report.architecture)}, and {base.path} is "
            f"{shown(base.architecture)}"
        )
    n_blocks = reader.metadata.get(BLOCK_COUNT)
    if n_blocks is not None and (not isinstance(n_blocks, int) or n_blocks != base.n_layer):
        raise ArchitectureMismatchError(
            f"{path} was made for a model of {shown(n_blocks)} blocks, and {base.path} has {base.n_layer}"
        )
    for pair in pairs:
        shape = base.shapes.get(pair.name)
        if shape is None:
            raise ArchitectureMismatchError(
                f"{path} changes {shown(pair.name)}, which {base.path} lacks. {_why(pair, base)}"
            )
        require_product(pair.name, shape, base, path)
        if trimmed(pair.target_shape) != shape:
            raise ArchitectureMismatchError(
                f"{path} changes a {shown(pair.name)} of shape {pair.target_shape}, and that of {base.path} is {shape}"
                ". It was made for another model"
            )
    require_tokens(report.invocation_tokens, base, path)


def require_tokens(tokens: Iterable[int], base: BaseModel, path: Path) -> None:
    """Refuse invocation tokens that the base model lacks.

    Args:
        tokens: their ids.
        base: the model.
        path: the adapter.

    Raises:
        ArchitectureMismatchError: an id is not one of its tokens'.
    """
    beyond = next((token for token in tokens if base.n_vocab and token >= base.n_vocab), None)
    if beyond is not None:
        raise ArchitectureMismatchError(
            f"{path} takes effect after the token id {beyond}, and {base.path} has {base.n_vocab} tokens. It was made "
            "for another model"
        )


def _why(pair: Pair, base: BaseModel) -> str:
    if pair.name == "output.weight" and base.is_tied:
        return "Its output layer shares the embedding's weights"
    return "It was made for another model"


def require_product(name: str, shape: tuple[int, ...], base: BaseModel, path: Path) -> None:
    """Refuse a target that the engine does not multiply with, so that the adapter would have no effect or abort.

    Args:
        name: the target.
        shape: its shape in the base model.
        base: the model.
        path: the adapter.

    Raises:
        UnsupportedArchitectureError: the engine cannot add to this weight.
    """
    reason = ""
    if name == EMBEDDING:
        if base.is_tied:
            reason = "the output layer shares the embedding's weights, and would change as well"
    elif name.startswith("cls."):
        reason = "the engine computes the classifier head without adapters"
    elif not name.endswith(".weight") or (len(shape) < 2 and _SINGLE_ROW not in name):
        reason = "the engine adds adapters to matrices only"
    elif name.endswith("token_embd.weight") or "conv" in name or name in ("position_embd.weight", "token_types.weight"):
        reason = "the engine does not multiply with it as with other matrices"
    if reason:
        raise UnsupportedArchitectureError(
            f"{path} changes {shown(name)} of {base.path}, which is not supported: {reason}"
        )


def _check_values(reader: GGUFReader, report: AdapterReport) -> str:
    """Refuse values that are not finite, and return the digest of all that the results depend on."""
    digest = hashlib.sha256(repr((report.architecture, report.alpha, report.invocation_tokens)).encode())
    for info in reader.tensors.values():
        digest.update(repr((info.name, info.type.name, info.shape)).encode("utf-8", "surrogatepass"))
        for rows, values in _rows(reader, info):
            digest.update(rows.data)
            if not np.isfinite(values).all():
                raise ModelLoadError(f"{reader.path}: tensor {shown(info.name)} has values that are infinite or NaN")
    reader.tensor(next(iter(reader.tensors)))  # raises if the file was truncated meanwhile
    return digest.hexdigest()


def _rows(reader: GGUFReader, info: TensorInfo) -> Iterator[tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]]:
    """Yield the bytes and the values of a tensor, some rows at a time."""
    n_cols = info.shape[-1]
    raw = reader.tensor(info.name).reshape(math.prod(info.shape[:-1]), -1)
    step = max(_CHUNK // n_cols, 1)
    for start in range(0, len(raw), step):
        rows = np.ascontiguousarray(raw[start : start + step])
        try:
            yield rows.view(np.uint8), quant.dequantize(rows, info.type, (len(rows), n_cols))
        except InvalidParameterError as error:
            raise ModelLoadError(f"{reader.path}: tensor {shown(info.name)} is damaged: {error}") from None


def _report(reader: GGUFReader, pairs: list[Pair], sha256: str) -> AdapterReport:
    metadata = reader.metadata
    tokens = metadata.get(INVOCATION_TOKENS)
    alpha = metadata.get(ALPHA, 0.0)
    return AdapterReport(
        path=reader.path,
        architecture=_text(metadata, "general.architecture"),
        name=_text(metadata, "general.name"),
        base_model=_text(metadata, BASE_NAME),
        alpha=alpha if isinstance(alpha, float) else 0.0,
        targets=tuple(pair.target for pair in pairs),
        invocation_tokens=tuple(tokens.tolist()) if isinstance(tokens, np.ndarray) else (),
        task_name=_text(metadata, TASK_NAME),
        prompt_prefix=_text(metadata, PROMPT_PREFIX),
        n_params=sum(math.prod(pair.shape_a) + math.prod(pair.shape_b) for pair in pairs),
        n_data_bytes=sum(info.nbytes for info in reader.tensors.values()),
        n_bytes=reader.path.stat().st_size,
        sha256=sha256,
    )


def _text(metadata: Mapping[str, object], key: str) -> str:
    value = metadata.get(key, "")
    return value if isinstance(value, str) else ""
