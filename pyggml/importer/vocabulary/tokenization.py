"""The common result of reading any kind of tokenizer: how text is cut into tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyggml.importer.vocabulary.token_table import TokenTable


@dataclass
class Cut:
    """How the engine is to cut text into tokens.

    Attributes:
        model: the kind of tokenizer, for ``tokenizer.ggml.model``.
        tokens: the tokens, without added ones.
        metadata: further keys, such as merges.
        has_scores: whether the tokens' scores are meaningful.
        differences: what the engine does differently from the tokenizer, each as part of a sentence.
    """

    model: str
    tokens: TokenTable
    metadata: dict[str, object] = field(default_factory=dict)
    has_scores: bool = False
    differences: list[str] = field(default_factory=list)
