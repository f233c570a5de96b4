"""What a model family is: a declaration, read by the code beside it, which knows no family by name."""

from __future__ import annotations

from dataclasses import dataclass, field


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


@dataclass(frozen=True)
class Family:
    """Models that were made alike and end alike.

    Attributes:
        name: short, unique: "llama3".
        title: for messages: "Llama 3, 3.1, 3.2".
        stop_tokens: the special tokens that end its generations, the most usual first.
        architectures: ``general.architecture`` of its GGUF files.
        model_types: ``model_type`` of its ``config.json`` files.
        hf_architectures: ``architectures`` of the same, for those without a known ``model_type``.
        required_tokens: special tokens that are all in its vocabularies; without one of them it is another family.
        signs: what tells it apart.
        needs_sign: one of the signs must be seen; its tokens alone say too little.
        text_tokens: tokens that the engine takes for an end wherever they occur, and that are plain text here.
    """

    name: str
    title: str
    stop_tokens: tuple[str, ...]
    architectures: tuple[str, ...] = ()
    model_types: tuple[str, ...] = ()
    hf_architectures: tuple[str, ...] = ()
    required_tokens: tuple[str, ...] = ()
    signs: Signs = field(default_factory=Signs)
    needs_sign: bool = False
    text_tokens: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.title
