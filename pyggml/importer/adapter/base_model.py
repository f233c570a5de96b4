"""The base model of an adapter: its tensors, and the sizes that a checkpoint's rows are reordered by."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pyggml.errors import ModelLoadError, UnsupportedArchitectureError
from pyggml.families import LAYOUTS, Layout, Sizes
from pyggml.files.model_files import ModelFiles, model_at
from pyggml.files.weights import Weight
from pyggml.gguf import GGUFReader, MetadataValue
from pyggml.importer.gguf_weight import GGUFWeight
from pyggml.importer.plan import read_plan
from pyggml.progress import Progress
from pyggml.source import locate

#: Largest size in a file's metadata that is believed.
_MAX_SIZE = 2**31 - 1
_MAX_ROWS = 2**24  # of queries, keys and values together


@dataclass(frozen=True)
class BaseModel:
    """A model that adapters are made for, of which only headers were read. Immutable.

    Attributes:
        path: the GGUF file, or the directory.
        architecture: the engine's name for its architecture.
        shapes: name of each tensor in the GGUF file -> its shape, columns last, without leading dimensions of 1.
        layouts: layouts of the checkpoints that it may come from.
        block_sizes: the sizes of each block; one for all of them if they are the same.
        weights: the tensors as matrices, whose rows are read on demand.
    """

    path: Path
    architecture: str
    shapes: Mapping[str, tuple[int, ...]]
    layouts: tuple[Layout, ...]
    block_sizes: Sequence[Sizes]
    weights: Mapping[str, Weight] = field(repr=False)

    @classmethod
    def of(cls, source: Base, progress: Progress | None = None) -> BaseModel:
        """Read the headers of a model, unless that has been done.

        Args:
            source: path of a ``.gguf`` file (the first of a split set) or of a Hugging Face directory, a reference,
                or a BaseModel, which is returned.
            progress: called with 0..1 during a download.

        Raises:
            ModelNotFoundError: there is no such file, or one of a split set is missing.
            ModelLoadError: a file is broken.
            UnsupportedArchitectureError: a directory cannot be imported.
            InvalidParameterError, DownloadError, MissingPackageError: as :func:`pyggml.source.locate`.
        """
        if isinstance(source, BaseModel):
            return source
        files = model_at(locate(source, progress))
        return cls._of_directory(files) if files.format == "huggingface" else cls._of_files(files)

    @classmethod
    def of_gguf(cls, path: Path) -> BaseModel:
        """Read the headers of a GGUF file or split set; errors as for :meth:`of`.

        Args:
            path: the file, or the first of the set.
        """
        return cls._of_files(model_at(path))

    @classmethod
    def _of_directory(cls, files: ModelFiles) -> BaseModel:
        plan = read_plan(files)
        shapes = {tensor.name: trimmed(tensor.shape) for tensor in plan.tensors}
        weights = {tensor.name: tensor.weight for tensor in plan.tensors}
        return cls(files.path, plan.layout.architecture, shapes, (plan.layout,), (plan.sizes,), weights)

    @classmethod
    def _of_files(cls, files: ModelFiles) -> BaseModel:
        shapes: dict[str, tuple[int, ...]] = {}
        weights: dict[str, Weight] = {}
        architecture = ""
        block_sizes: tuple[Sizes, ...] = (_NO_SIZES,)
        for file in files.files:
            with GGUFReader(file, header_only=True) as reader:
                shapes |= {info.name: info.shape for info in reader.tensors.values()}
                weights |= {info.name: GGUFWeight(file, info) for info in reader.tensors.values()}
                if not architecture:
                    architecture = _architecture(reader)
                    block_sizes = _sizes_of(reader.metadata, architecture)
        layouts = tuple(layout for layout in LAYOUTS if layout.architecture == architecture)
        return cls(files.path, architecture, shapes, layouts, block_sizes, weights)

    @property
    def n_layer(self) -> int:
        """Number of blocks."""
        return self.block_sizes[0].n_layer

    @property
    def n_vocab(self) -> int:
        """Number of token ids: rows of the embedding; 0 if it has none."""
        return (self.shapes.get("token_embd.weight") or (0,))[0]

    @property
    def is_tied(self) -> bool:
        """True if the output layer shares the embedding's weights."""
        return "output.weight" not in self.shapes

    def sizes(self, block: int) -> Sizes:
        """Return the sizes of a block.

        Args:
            block: its number.

        Raises:
            ModelLoadError: the model's file does not say, or not plausibly.
        """
        sizes = self.block_sizes[min(block, len(self.block_sizes) - 1)]
        if not 0 < sizes.n_qkv <= _MAX_ROWS:
            raise ModelLoadError(f"{self.path} does not say how many attention heads its blocks have, and how wide")
        return sizes


#: A model's file or directory, a reference to one, or what was read of it already.
Base = str | os.PathLike[str] | BaseModel


def _architecture(reader: GGUFReader) -> str:
    found, kind = (reader.metadata.get(f"general.{key}") for key in ("architecture", "type"))
    if kind == "adapter":
        raise ModelLoadError(f"{reader.path} is an adapter itself; the model that adapters are made for was expected")
    if not isinstance(found, str) or not found:
        raise ModelLoadError(f"{reader.path} has no general.architecture, so it is not a model")
    return found


_NO_SIZES = Sizes(n_layer=0, n_embd=0, n_head=0, n_head_kv=0, head_dim=0, n_ff=0, n_expert=0, n_vocab=0)


def _sizes_of(metadata: Mapping[str, MetadataValue], architecture: str) -> tuple[Sizes, ...]:
    """The sizes of each block by the metadata of a file; 0 where it does not say, or not plausibly."""

    def numbers(key: str) -> list[int]:
        value = metadata.get(f"{architecture}.{key}", 0)
        values = value.tolist() if isinstance(value, np.ndarray) else [value]
        return [each if type(each) is int and 0 <= each <= _MAX_SIZE else 0 for each in values] or [0]

    def per_block(key: str, block: int) -> int:
        values = numbers(key)
        return values[min(block, len(values) - 1)]

    n_embd, n_head = numbers("embedding_length")[0], numbers("attention.head_count")
    n_head_kv = numbers("attention.head_count_kv")
    if n_head_kv == [0]:
        n_head_kv = n_head

    def sizes(block: int) -> Sizes:
        heads = n_head[min(block, len(n_head) - 1)]
        return Sizes(
            n_layer=numbers("block_count")[0],
            n_embd=n_embd,
            n_head=heads,
            n_head_kv=n_head_kv[min(block, len(n_head_kv) - 1)],
            head_dim=per_block("attention.key_length", block) or n_embd // max(heads, 1),
            n_ff=per_block("feed_forward_length", block),
            n_expert=numbers("expert_count")[0],
            n_vocab=numbers("vocab_size")[0],
        )

    n_different = max(len(n_head), len(n_head_kv))  # the lists are in memory already, so not absurdly long
    return tuple(map(sizes, range(n_different)))


def trimmed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape as a GGUF file keeps it, without leading dimensions of 1."""
    while len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    return shape


def require_layouts(base: BaseModel) -> None:
    """Raise UnsupportedArchitectureError if the names of a checkpoint's modules are unknown for an architecture."""
    if not base.layouts:
        raise UnsupportedArchitectureError(
            f"{base.path}: pyggml does not know how checkpoints of the architecture {base.architecture!r:.80} name "
            "their modules. Convert the adapter to GGUF with llama.cpp's convert_lora_to_gguf.py"
        )
