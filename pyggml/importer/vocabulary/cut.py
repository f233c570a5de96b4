"""What each kind of tokenizer comes to: the part of a vocabulary's metadata that says how text is cut."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyggml.importer.vocabulary.token_table import TokenTable


@dataclass
class Cut:
    """How the engine is to cut text, and with which tokens.

    Attributes:
        model: the kind, for ``tokenizer.ggml.model``.
        tokens: without those that were added.
        metadata: more keys, such as merges.
        has_scores: the tokens' scores mean something.
        differences: what the engine does differently from the tokenizer, each as part of a sentence.
    """

    model: str
    tokens: TokenTable
    metadata: dict[str, object] = field(default_factory=dict)
    has_scores: bool = False
    differences: list[str] = field(default_factory=list)
