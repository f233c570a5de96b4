"""What a model family is: a declaration, read by the code beside it, which knows no family by name."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyggml.families._layout import Architecture


@dataclass(frozen=True)
class Signs:
    """What tells a family from others of the same architecture, beside the tokens that it must have.

    Attributes:
        tokens: special tokens that are all in its vocabularies and in few others.
        names: words, or words in a row, of the names its models go by: lower case, without punctuation.
        template: pieces of text, one of which is in its chat templates.
        n_vocab: the sizes its vocabularies come in.
    """

    tokens: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    template: tuple[str, ...] = ()
    n_vocab: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Variant:
    """A model of a family, or several that share a name.

    Attributes:
        title: what it is called.
        names: words in a row, one of which its names have: lower case, without punctuation.
        sizes: those that it has and that others of the family do not have; each with all of its values. Their names are
            "architecture", "n_layer", "n_embd", "n_head_kv", "n_vocab", "n_expert", "n_ctx", "rope_base" and
            "is_grouped" (several query heads share a key head).
        template: text that is in its chat template.
    """

    title: str
    names: tuple[str, ...] = ()
    sizes: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    template: str = ""


@dataclass(frozen=True)
class Family:
    """Models that were made alike and end alike.

    Attributes:
        name: short, unique: "llama3".
        title: for messages: "Llama 3, 3.1, 3.2 or 3.3".
        stop_tokens: the special tokens that end its generations, the most usual first.
        builds: the architectures its models have, by all their names. Those with a layout can be imported.
        required_tokens: special tokens that are all in its vocabularies; without one of them it is another family.
        signs: what tells it apart.
        needs_sign: one of the signs must be seen; its tokens alone say too little.
        precedence: of families that fit a model equally well the one with the highest is taken, then the first by name.
        text_tokens: tokens that the engine takes for an end wherever they occur, and that are plain text here.
        classes: public classes that take its models, the most specific first: "Qwen3" stands for ``pyggml.Qwen3`` and
            ``Inference.use_qwen3``. Naming a class here is what makes it.
        variants: models that ``inspect`` tells apart. Of several that fit the first is taken.
    """

    name: str
    title: str
    stop_tokens: tuple[str, ...]
    builds: tuple[Architecture, ...] = ()
    required_tokens: tuple[str, ...] = ()
    signs: Signs = field(default_factory=Signs)
    needs_sign: bool = False
    precedence: int = 0
    text_tokens: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = ()

    @property
    def architectures(self) -> tuple[str, ...]:
        """``general.architecture`` of its GGUF files."""
        return tuple(dict.fromkeys(build.architecture for build in self.builds))

    @property
    def model_types(self) -> tuple[str, ...]:
        """``model_type`` of its ``config.json`` files."""
        return _each(build.model_types for build in self.builds)

    @property
    def hf_architectures(self) -> tuple[str, ...]:
        """``architectures`` of the same, for those without a known ``model_type``."""
        return _each(build.hf_architectures for build in self.builds)

    def __str__(self) -> str:
        return self.title


#: For what no family fits: it ends where its file and the engine say.
GENERIC = Family(name="generic", title="of no known family", stop_tokens=())


@dataclass(frozen=True)
class Kind:
    """A class of models, such as :class:`pyggml.Qwen3`.

    Attributes:
        name: of the class.
        families: those it takes.
    """

    name: str
    families: tuple[Family, ...]

    @property
    def factory(self) -> str:
        """The method of :class:`pyggml.Inference` that loads it."""
        return f"use_{self.name.lower()}"

    def __str__(self) -> str:
        return "; ".join(family.title for family in self.families)


def _each(names: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(itertools.chain.from_iterable(names)))
