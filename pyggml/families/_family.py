"""Declaration of a model family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyggml.families._layout import Architecture


@dataclass(frozen=True)
class Signs:
    """Signs that distinguish a family from others of the same architecture, in addition to its required tokens.

    Attributes:
        tokens: special tokens that its vocabularies have, but few others.
        names: words, or sequences of words, in its models' names: lower case, without punctuation.
        template: texts, one of which occurs in its chat templates.
        n_vocab: its vocabulary sizes.
    """

    tokens: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    template: tuple[str, ...] = ()
    n_vocab: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Variant:
    """A model of a family, or several that share a name.

    Attributes:
        title: its name in messages.
        names: sequences of words, one of which occurs in its names: lower case, without punctuation.
        sizes: size -> values that distinguish it from others of the family. Possible sizes: "architecture", "n_layer",
            "n_embd", "n_head_kv", "n_vocab", "n_expert", "n_ctx", "rope_base" and "is_grouped" (several query heads
            share a key head).
        template: a text in its chat template.
        kind: "meta", "tiny" or "distilled", as in :class:`~pyggml.diagnostics.report.ModelReport`; "": none of them.
    """

    title: str
    names: tuple[str, ...] = ()
    sizes: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    template: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Family:
    """Models with the same architecture and the same stop tokens.

    Attributes:
        name: a short, unique name: "llama3".
        title: its name in messages: "Llama 3, 3.1, 3.2 or 3.3".
        stop_tokens: the special tokens that end its generations, the most usual first.
        more_stop_tokens: tokens of its published vocabularies at which the engine ends a generation as well, such as
            those of infilling. Only for documentation: they come from the files.
        builds: its models' architectures, with all their names. Those with a layout can be imported.
        required_tokens: special tokens that its vocabularies have. Where no family of the architecture has all of its
            own, any one of the stop tokens among them is enough.
        signs: what distinguishes it from others of the same architecture.
        needs_sign: True if a sign is required, because its required tokens alone are not conclusive.
        precedence: among families that fit equally well, the highest precedence wins, then the first name.
        text_tokens: tokens that the engine always treats as ends, but that are plain text in this family.
        classes: public classes for its models, the most specific first: "Qwen3" creates ``pyggml.Qwen3`` and
            ``Inference.use_qwen3``.
        aliases: other spellings of the first of these and of its method, known from other libraries.
        variants: models that ``inspect`` distinguishes; the first that fits wins.
        variant_kind: kind of its models, unless a variant has its own.
        is_encoder: True for models that embed texts or score pairs of them, and do not generate. Their stop tokens are
            those that end a text.
    """

    name: str
    title: str
    stop_tokens: tuple[str, ...]
    more_stop_tokens: tuple[str, ...] = ()
    builds: tuple[Architecture, ...] = ()
    required_tokens: tuple[str, ...] = ()
    signs: Signs = field(default_factory=Signs)
    needs_sign: bool = False
    precedence: int = 0
    text_tokens: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = ()
    variant_kind: str = ""
    is_encoder: bool = False

    @property
    def architectures(self) -> tuple[str, ...]:
        """``general.architecture`` of its GGUF files."""
        return tuple(dict.fromkeys(build.architecture for build in self.builds))

    @property
    def model_types(self) -> tuple[str, ...]:
        """``model_type`` of its ``config.json`` files."""
        return tuple(dict.fromkeys(name for build in self.builds for name in build.model_types))

    @property
    def hf_architectures(self) -> tuple[str, ...]:
        """``architectures`` of its ``config.json`` files, for those without a known ``model_type``."""
        return tuple(dict.fromkeys(name for build in self.builds for name in build.hf_architectures))

    def __str__(self) -> str:
        return self.title


#: The fallback for models of no known family: its stop tokens come from the file and the engine.
GENERIC = Family(name="generic", title="of no known family", stop_tokens=())


_METHOD = "use_"  # prefix of the methods of Inference


@dataclass(frozen=True)
class Kind:
    """A class of models, such as :class:`pyggml.Qwen3`.

    Attributes:
        name: the class's name.
        families: the families it accepts.
        aliases: other names of the class and of the method.
    """

    name: str
    families: tuple[Family, ...]
    aliases: tuple[str, ...] = ()

    @property
    def factory(self) -> str:
        """The method of :class:`pyggml.Inference` that loads it."""
        return f"{_METHOD}{self.name.lower()}"

    @property
    def other_names(self) -> tuple[str, ...]:
        """The other names of the class."""
        return tuple(name for name in self.aliases if not name.startswith(_METHOD))

    @property
    def other_factories(self) -> tuple[str, ...]:
        """The other names of the method."""
        return tuple(name for name in self.aliases if name.startswith(_METHOD))

    def __str__(self) -> str:
        return "; ".join(family.title for family in self.families)
