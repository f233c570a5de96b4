"""Inference: a device, and methods that load models of each family onto it.

The end of this file creates the classes (``Qwen3``, ``Phi3`` ...) and the methods that load them (``use_qwen3`` ...)
from the families' declarations. Type checkers and editors read ``_family_classes.pyi``, which ``make stubs`` writes
from the same declarations.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from pyggml import families
from pyggml._core.checks import INT32_MAX, integer
from pyggml._core.fields import fields_of, require_known
from pyggml._core.hints import hints
from pyggml._native.backend import find_device
from pyggml.cache import display_name
from pyggml.errors import ArchitectureMismatchError, TokenizerError
from pyggml.families import Family, Kind, Match
from pyggml.gguf import GGUFReader
from pyggml.importer.convert import Accept
from pyggml.llm import LLM
from pyggml.model_loader import model_file
from pyggml.options import LoadOptions
from pyggml.progress import progress_bar, source_name
from pyggml.source import Source

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from pyggml._family_classes import *  # noqa: F403
    from pyggml._family_classes import Factories
    from pyggml._keywords import LoadKeywords
else:
    Factories = object

TokenizerPath = str | os.PathLike[str] | None

_LOAD_KEYWORDS = [name for name in fields_of(LoadOptions) if name not in ("source", "tokenizer", "device")]


class FamilyModel(LLM):
    """An LLM that accepts only certain families: the base class of ``Qwen3``, ``Phi3`` and so on.

    Attributes:
        kind: the declaration that the class is made from.
        families: the families that it accepts.
        factory: name of the method of :class:`Inference` that loads it.
    """

    kind: ClassVar[Kind]
    families: ClassVar[tuple[Family, ...]]
    factory: ClassVar[str]

    def __init_subclass__(cls) -> None:
        """Copy the kind's fields to the class, where users look for them."""
        cls.families, cls.factory = cls.kind.families, cls.kind.factory

    @classmethod
    def family_of(cls, match: Match, path: Path) -> Family:
        """Return the family detected from a model's metadata, which must be one that this class accepts.

        Args:
            match: the detected family.
            path: the model's file, for messages.

        Raises:
            ArchitectureMismatchError: the class does not accept the model's family.
            TokenizerError: the architecture is right, but the vocabulary belongs to another family.
        """
        family = match.among(cls.families)
        if family is not None:
            return family
        architectures = {name for family in cls.families for name in family.architectures}
        if match.family is families.GENERIC and match.architecture in architectures:
            raise TokenizerError(_foreign_vocabulary(cls, match, display_name(path)))
        raise ArchitectureMismatchError(_mismatch(cls, match, display_name(path)))

    @classmethod
    def accept(cls, path: Path) -> None:
        """Refuse a model of another family, reading only the file's metadata.

        Args:
            path: the model's file.

        Raises:
            ArchitectureMismatchError, TokenizerError: as :meth:`family_of`.
        """
        match = _match(path)
        if match.architecture:  # without one the file is not a model, and loading will say so
            cls.family_of(match, path)

    def _acceptance(self) -> Accept:
        return self.accept

    def _family(self) -> Family:
        return self.family_of(families.of_model(self.model), Path(self.model.path))


class Inference(Factories):
    """Loads models onto one device. Safe to share between threads.

    Each ``use_...`` method checks the file before it loads the weights, and refuses a model of another family::

        inference = pyggml.Inference.auto()
        with inference.use_qwen3("qwen3-8b-q4_k_m.gguf", n_parallel=16) as model:
            print(await model.forward("Once upon a time", 100))

    They all take:

    - ``model_path``: path of a ``.gguf`` file, or any other source that :func:`pyggml.load` takes.
    - ``tokenizer_path``: a ``tokenizer.json``, a ``tokenizer.model``, or a directory with one, to use instead of the
      one in the model's file.
    - the options of :func:`pyggml.load`: ``n_ctx``, ``n_parallel`` ...

    They raise the errors of :func:`pyggml.load`, ArchitectureMismatchError if the model is of another family, and
    TokenizerError if the architecture is right but the vocabulary belongs to another family.

    Attributes:
        device: "auto", "cpu", "cuda:0", "cuda:0,cuda:1" ...
    """

    def __init__(self, device: str | Sequence[str] = "auto") -> None:
        """Select devices by name, as for :func:`pyggml.load`. They are opened when a model is loaded.

        Args:
            device: the devices' names, as for :func:`pyggml.load`.
        """
        self.device = device

    @classmethod
    def cpu(cls) -> Self:
        """Use only the CPU, even if there is a GPU."""
        return cls("cpu")

    @classmethod
    def cuda(cls, index: int = 0) -> Self:
        """Use an NVIDIA GPU.

        Args:
            index: index of the GPU, from 0.

        Raises:
            DeviceError: this build or this machine has no such GPU.
            InvalidParameterError: the index is not an integer of at least 0.
        """
        return cls._gpu("cuda", index)

    @classmethod
    def metal(cls, index: int = 0) -> Self:
        """Use Apple's GPU. Errors as :meth:`cuda`.

        Args:
            index: index of the GPU, from 0.
        """
        return cls._gpu("metal", index)

    @classmethod
    def gpu(cls, index: int = 0) -> Self:
        """Use a GPU of any kind that this build supports. Errors as :meth:`cuda`.

        Args:
            index: index of the GPU, from 0.
        """
        return cls._gpu("gpu", index)

    @classmethod
    def auto(cls) -> Self:
        """Use the GPUs that this build supports, or the CPU if there are none."""
        return cls("auto")

    def use_auto(
        self, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> LLM:
        """Load any model, as the class for its family, or as a plain LLM if there is no such class.

        Args:
            model_path: path of a ``.gguf`` file, or any other source that :func:`pyggml.load` takes.
            tokenizer_path: a ``tokenizer.json``, a ``tokenizer.model``, or a directory with one; None: the one in the
                model's file.
            **load_options: the other parameters of :func:`pyggml.load`.
        """
        _require_known(load_options)
        outtype = load_options.get("outtype", "auto")
        with progress_bar(f"Loading {source_name(model_path)}", load_options.get("progress")) as progress:
            path = model_file(model_path, progress, tokenizer_path, outtype=outtype)
        kind = families.kind_of(_match(path).family)
        options: LoadKeywords = {**load_options, "outtype": "auto"}  # it is a GGUF file now
        return self._open(LLM if kind is None else CLASSES[kind.name], path, tokenizer_path, options)

    @classmethod
    def _gpu(cls, kind: str, index: int) -> Self:
        device = f"{kind}:{integer('the index of a device', index, 0, INT32_MAX)}"
        find_device(device)
        return cls(device)

    def _open(self, kind: type[LLM], source: Source, tokenizer: TokenizerPath, options: LoadKeywords) -> LLM:
        _require_known(options)
        return kind(source, tokenizer, device=self.device, **options)

    def __repr__(self) -> str:
        return f"Inference({self.device!r})"


def _require_known(options: LoadKeywords) -> None:
    require_known(LoadOptions, options, known=_LOAD_KEYWORDS, more_hints=hints("inference"))


def _match(path: Path) -> Match:
    """Detect the family of a file from its metadata."""
    with GGUFReader(path) as reader:
        return families.of_gguf(reader.metadata)


def _mismatch(kind: type[FamilyModel], match: Match, file: str) -> str:
    right = families.kind_of(match.family)
    any_model = "load() and use_auto() load any model"
    way_out = any_model if right is None else f"{right.name} and {right.factory}() are for those; {any_model}"
    titles = ", ".join(family.title for family in kind.families)
    return (
        f"{_names_of(kind)} are for {titles}, and {file} is {match.family.title}: {', '.join(match.reasons)}; {way_out}"
    )


def _foreign_vocabulary(kind: type[FamilyModel], match: Match, file: str) -> str:
    wanted = [family for family in kind.families if match.architecture in family.architectures]
    tokens = "; ".join(f"{family.title} has {' or '.join(map(repr, family.stop_tokens))}" for family in wanted)
    return (
        f"{file} has the architecture {match.architecture!r}, which {_names_of(kind)} accept, but not the vocabulary: "
        f"{tokens}. Use a version of the model with its own tokenizer, or load it with load() or use_auto()"
    )


def _names_of(kind: type[FamilyModel]) -> str:
    """Both ways to load a class, since the caller may have used either."""
    return f"{kind.__name__} and {kind.factory}()"


def _class_of(kind: Kind) -> type[FamilyModel]:
    members = {"kind": kind, "__doc__": f"{kind}.", "__module__": __name__}
    return cast("type[FamilyModel]", type(kind.name, (FamilyModel,), members))


def _method_for(kind: type[FamilyModel]) -> Callable[..., LLM]:
    def use(
        self: Inference, model_path: Source, tokenizer_path: TokenizerPath = None, **load_options: Unpack[LoadKeywords]
    ) -> LLM:
        return self._open(kind, model_path, tokenizer_path, load_options)

    use.__name__, use.__qualname__ = kind.factory, f"Inference.{kind.factory}"
    use.__doc__ = f"Load {kind.kind}.\n\nArgs as :meth:`use_auto`.\n"
    use.__annotations__["return"] = kind.__name__
    return use


#: Name -> class, for each class that the families declare.
CLASSES: dict[str, type[FamilyModel]] = {kind.name: _class_of(kind) for kind in families.KINDS}
#: The same, with the other names of the classes.
NAMES: dict[str, type[FamilyModel]] = CLASSES | {
    name: CLASSES[kind.name] for kind in families.KINDS for name in kind.other_names
}
globals().update(NAMES)
for _class in CLASSES.values():
    _method = _method_for(_class)
    for _name in (_class.factory, *_class.kind.other_factories):
        setattr(Inference, _name, _method)
