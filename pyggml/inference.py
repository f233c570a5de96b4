"""Inference: a device, and the models of each family on it."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

from pyggml import families
from pyggml._native import INT32_MAX, integer
from pyggml.backend import device_advice, devices
from pyggml.errors import ArchitectureMismatchError, DeviceError, InvalidParameterError, TokenizerError
from pyggml.families import Family, Kind, Match, _kinds
from pyggml.gguf import GGUFReader
from pyggml.importer.cache import Imported
from pyggml.llm import LLM
from pyggml.loading import LoadOptions, model_files, open_llm
from pyggml.source import Source

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

TokenizerPath = str | os.PathLike[str] | None

_AnyKind = TypeVar("_AnyKind", bound=LLM)


class FamilyModel(LLM):
    """An LLM of certain families, and of no other: what the classes below are.

    Attributes:
        kind: which families, and how they are called.
        families: those it may be of.
        factory: the method of :class:`Inference` that loads it.
    """

    kind: ClassVar[Kind]
    families: ClassVar[tuple[Family, ...]]
    factory: ClassVar[str]

    def __init_subclass__(cls) -> None:
        """Spells the kind out."""
        cls.families, cls.factory = cls.kind.families, cls.kind.factory

    @classmethod
    def family_of(cls, match: Match, path: Path) -> Family:
        """The one of its families that a model is of.

        Args:
            match: what the model was found to be.
            path: where it is from.

        Raises:
            ArchitectureMismatchError: none of them.
            TokenizerError: the architecture of one of them, with somebody else's vocabulary.
        """
        family = match.among(cls.families)
        if family is not None:
            return family
        architectures = {name for family in cls.families for name in family.architectures}
        if match.family is families.GENERIC and match.architecture in architectures:
            raise TokenizerError(_foreign_vocabulary(cls, match, path.name))
        raise ArchitectureMismatchError(_mismatch(cls, match, path.name))

    @classmethod
    def accept(cls, path: Path) -> None:
        """Refuses the file of a model of another family, by its metadata alone.

        Raises:
            ArchitectureMismatchError, TokenizerError: as :meth:`family_of`.
        """
        match = _match(path)
        if match.architecture:  # else it is no model, and loading says what is wrong with it
            cls.family_of(match, path)

    def _family(self) -> Family:
        return self.family_of(families.of_model(self.model), Path(self.model.path))


_Kind = TypeVar("_Kind", bound=FamilyModel)


class Qwen3(FamilyModel):
    """Qwen3, dense or mixture of experts, and what DeepSeek made of it."""

    kind = _kinds.QWEN3


class Phi3(FamilyModel):
    """Phi-3, Phi-3.5 or Phi-4-mini."""

    kind = _kinds.PHI3


class Phi4(FamilyModel):
    """Phi-4 or Phi-4-mini."""

    kind = _kinds.PHI4


class Llama(FamilyModel):
    """Llama of any generation, TinyLlama, Yi, or DeepSeek-R1-Distill-Llama."""

    kind = _kinds.LLAMA


class Llama31(FamilyModel):
    """Llama 3, 3.1, 3.2 or 3.3."""

    kind = _kinds.LLAMA31


class SmolLM2(FamilyModel):
    """SmolLM or SmolLM2."""

    kind = _kinds.SMOLLM2


class Mistral(FamilyModel):
    """Mistral, Mixtral and their siblings."""

    kind = _kinds.MISTRAL


class Phi(FamilyModel):
    """Phi-1, Phi-1.5 or Phi-2."""

    kind = _kinds.PHI


class Qwen2(FamilyModel):
    """Qwen1.5, Qwen2 or Qwen2.5, dense or mixture of experts, or DeepSeek-R1-Distill-Qwen."""

    kind = _kinds.QWEN2


class Gemma(FamilyModel):
    """Gemma 1, 2 or 3."""

    kind = _kinds.GEMMA


_KINDS: tuple[type[FamilyModel], ...] = (Qwen3, Phi3, Phi4, Llama, Llama31, SmolLM2, Mistral, Phi, Qwen2, Gemma)


class Inference:
    """Loads models onto one device. Safe to share between threads.

    Each ``use_...`` method looks at the file before it loads the weights, and refuses a model of another family::

        inference = pyggml.Inference.auto()
        with inference.use_qwen3("qwen3-8b-q4_k_m.gguf", n_parallel=16) as model:
            print(await model.forward("Once upon a time", 100))

    All of them take:

    - ``model_path``: path of a ``.gguf`` file.
    - ``tokenizer_path``: a ``tokenizer.json``, a ``tokenizer.model``, or a directory with one, in place of the
      vocabulary in the model's file.
    - what :func:`pyggml.load` takes: ``n_ctx``, ``n_parallel`` ...

    and raise what :func:`pyggml.load` raises, ArchitectureMismatchError when the model is of another family, and
    TokenizerError when it is of the right architecture with somebody else's vocabulary.

    Attributes:
        device: "auto", "cpu", "cuda:0" ...
    """

    def __init__(self, device: str = "auto") -> None:
        """Takes a device by its name, as :func:`pyggml.load` does."""
        self.device = device

    @classmethod
    def cpu(cls) -> Self:
        """On the CPU alone, whatever else there is."""
        return cls("cpu")

    @classmethod
    def cuda(cls, index: int = 0) -> Self:
        """On an NVIDIA GPU.

        Raises:
            DeviceError: this build or this machine has no such GPU.
            InvalidParameterError: the index is no number from 0.
        """
        index = integer("the index of a CUDA device", index, 0, INT32_MAX)
        names = [device.name for device in devices()]
        if f"CUDA{index}" not in names:
            raise DeviceError(_no_cuda(index, names))
        return cls(f"cuda:{index}")

    @classmethod
    def auto(cls) -> Self:
        """On the GPUs that this build can use, else on the CPU."""
        return cls("auto")

    def use_qwen3(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadOptions]
    ) -> Qwen3:
        """Qwen3, dense or mixture of experts."""
        return self._open(Qwen3, model_path, tokenizer_path, load_options)

    def use_phi3(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadOptions]
    ) -> Phi3:
        """Phi-3, Phi-3.5 or Phi-4-mini."""
        return self._open(Phi3, model_path, tokenizer_path, load_options)

    def use_phi4(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadOptions]
    ) -> Phi4:
        """Phi-4, or Phi-4-mini."""
        return self._open(Phi4, model_path, tokenizer_path, load_options)

    def use_llama(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadOptions]
    ) -> Llama:
        """Llama of any generation, TinyLlama, Yi, or DeepSeek-R1-Distill-Llama."""
        return self._open(Llama, model_path, tokenizer_path, load_options)

    def use_llama31(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadOptions]
    ) -> Llama31:
        """Llama 3, 3.1, 3.2 or 3.3."""
        return self._open(Llama31, model_path, tokenizer_path, load_options)

    def use_smollm2(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadOptions]
    ) -> SmolLM2:
        """SmolLM or SmolLM2."""
        return self._open(SmolLM2, model_path, tokenizer_path, load_options)

    def use_mistral(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadOptions]
    ) -> Mistral:
        """Mistral, Mixtral, Ministral ..."""
        return self._open(Mistral, model_path, tokenizer_path, load_options)

    def use_phi(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadOptions]
    ) -> Phi:
        """Phi-1, Phi-1.5 or Phi-2."""
        return self._open(Phi, model_path, tokenizer_path, load_options)

    def use_qwen2(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadOptions]
    ) -> Qwen2:
        """Qwen1.5, Qwen2 or Qwen2.5, or DeepSeek-R1-Distill-Qwen."""
        return self._open(Qwen2, model_path, tokenizer_path, load_options)

    def use_gemma(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadOptions]
    ) -> Gemma:
        """Gemma 1, 2 or 3."""
        return self._open(Gemma, model_path, tokenizer_path, load_options)

    def use_auto(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadOptions]
    ) -> LLM:
        """Any model: as one of the classes above where it is of their families, else as a plain LLM."""
        _require_known(load_options)
        files = model_files(model_path, load_options.get("progress"), tokenizer_path)
        return self._load(_kind_for(_match(files.path)) or LLM, files, tokenizer_path, load_options)

    def _open(
        self, kind: type[_Kind], model_path: Source, tokenizer_path: TokenizerPath, options: LoadOptions
    ) -> _Kind:
        _require_known(options)
        files = model_files(model_path, options.get("progress"), tokenizer_path, accept=kind.accept)
        return self._load(kind, files, tokenizer_path, options)

    def _load(
        self, kind: type[_AnyKind], files: Imported, tokenizer_path: TokenizerPath, options: LoadOptions
    ) -> _AnyKind:
        tokenizer = files.tokenizer if tokenizer_path is None else tokenizer_path
        return open_llm(kind, files.path, tokenizer=tokenizer, device=self.device, **options)

    def __repr__(self) -> str:
        return f"Inference({self.device!r})"


def _require_known(options: LoadOptions) -> None:
    unknown = options.keys() - LoadOptions.__annotations__.keys()
    if unknown:
        raise InvalidParameterError(_unknown_options(unknown))


def _match(path: Path) -> Match:
    """The family of a file, by its metadata alone."""
    with GGUFReader(path) as reader:
        return families.of_gguf(reader.metadata)


def _kind_for(match: Match) -> type[FamilyModel] | None:
    """The class that is for this family before others."""
    found = families.kind_of(match.family)
    return next((kind for kind in _KINDS if kind.kind is found), None)


def _mismatch(kind: type[FamilyModel], match: Match, file: str) -> str:
    right = _kind_for(match)
    way_out = "use_auto() takes any model" if right is None else f"load it with {right.factory}(), or with use_auto()"
    return (
        f"{kind.factory}() is for {_titles(kind)}, and {file} is {match.family.title}: {', '.join(match.reasons)}; "
        f"{way_out}"
    )


def _foreign_vocabulary(kind: type[FamilyModel], match: Match, file: str) -> str:
    wanted = [family for family in kind.families if match.architecture in family.architectures]
    tokens = "; ".join(f"{family.title} has {', '.join(map(repr, family.required_tokens))}" for family in wanted)
    return (
        f"{file} has the architecture {match.architecture!r}, as {kind.factory}() wants it, but not the vocabulary: "
        f"{tokens}. Take the edition of the model with its own tokenizer, or load it with use_auto()"
    )


def _titles(kind: type[FamilyModel]) -> str:
    return ", ".join(family.title for family in kind.families)


def _no_cuda(index: int, names: list[str]) -> str:
    found = f"there is no CUDA device {index}; this build sees: {', '.join(names)}. "
    if any(name.startswith("CUDA") for name in names):
        return found + "Indices count from 0, among the GPUs that CUDA_VISIBLE_DEVICES leaves"
    return f"{found}Inference.auto() takes what there is; to have one, {device_advice('cuda')}"


def _unknown_options(unknown: Collection[str]) -> str:
    return (
        f"unknown option {', '.join(sorted(unknown))}; there are {', '.join(LoadOptions.__annotations__)}. The device "
        "is chosen by Inference.cpu(), Inference.cuda() and Inference.auto()"
    )
