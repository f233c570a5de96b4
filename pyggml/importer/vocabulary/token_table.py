"""The tokens of a vocabulary by id, with scores and types, while it is being assembled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyggml._native.vocab import TokenType
from pyggml.errors import TokenizerError

MAX_TOKENS = 2**22  # 16 times the largest known vocabularies
_MAX_CHARACTERS = 2**14


@dataclass(frozen=True, slots=True)
class Token:
    """One entry of the vocabulary.

    Attributes:
        text: its text as the engine stores it.
        type: its type.
        score: priority of its merge, or its log-probability; meaningless in other vocabularies.
    """

    text: str
    type: TokenType = TokenType.NORMAL
    score: float = 0.0


@dataclass
class TokenTable:
    """Tokens by id, with unique texts; ids may be missing until the table is complete."""

    by_id: dict[int, Token] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)

    def add(self, token_id: object, token: Token, where: str) -> None:
        """Add a token, or update the one with the same id and text; ``where`` is its location in the files."""
        if not isinstance(token_id, int) or isinstance(token_id, bool) or not 0 <= token_id < MAX_TOKENS:
            raise TokenizerError(
                f"{where}: {token.text!r:.80} has the id {token_id!r:.40}; ids are integers from 0 to {MAX_TOKENS - 1}"
            )
        present = self.by_id.get(token_id)
        if present is not None and present.text != token.text:
            raise TokenizerError(
                f"{where}: {token.text!r:.80} has the id {token_id}, which belongs to {present.text!r:.80}"
            )
        if self.ids.setdefault(token.text, token_id) != token_id:
            raise TokenizerError(f"{where}: {token.text!r:.80} has the ids {self.ids[token.text]} and {token_id}")
        if present is None:
            _require_storable(token.text, where)
        self.by_id[token_id] = token

    def require_dense(self, where: str) -> None:
        """Check that there are tokens, and no more unused ids than tokens; published vocabularies have some."""
        if not self.by_id:
            raise TokenizerError(f"{where}: the vocabulary is empty")
        if max(self.by_id) >= 2 * len(self.by_id):
            missing = next(i for i in range(len(self.by_id) + 1) if i not in self.by_id)
            raise TokenizerError(f"{where}: no token has the id {missing}, although ids go up to {max(self.by_id)}")

    def fitted(self, n_tokens: int) -> list[Token]:
        """Return one token per row of the model's embedding, with unused ones in the gaps."""
        return [self.by_id.get(i) or Token(self._filler(i), TokenType.UNUSED) for i in range(n_tokens)]

    def _filler(self, token_id: int) -> str:
        text = f"[PAD{token_id}]"
        while text in self.ids:
            text = f"[{text}]"
        return text


@dataclass
class Tokenization:
    """The engine's tokenisation of texts.

    Attributes:
        model: the kind of tokenizer, for ``tokenizer.ggml.model``.
        tokens: the tokens, without added ones.
        metadata: further keys, such as merges.
        has_scores: whether the tokens' scores are meaningful.
        differences: the engine's differences from the tokenizer, each a clause.
    """

    model: str
    tokens: TokenTable
    metadata: dict[str, object] = field(default_factory=dict)
    has_scores: bool = False
    differences: list[str] = field(default_factory=list)


def texts_by_id(vocab: object, where: str) -> Iterator[tuple[str, object]]:
    """Yield texts and ids from the "vocab" of a BPE or WordPiece model."""
    if not isinstance(vocab, dict):
        raise TokenizerError(f"{where}: an object was expected, not {vocab!r:.100}")
    if len(vocab) > MAX_TOKENS:
        raise TokenizerError(f"{where} has {len(vocab)} tokens; pyggml reads at most {MAX_TOKENS}")
    items: Mapping[str, Any] = vocab
    yield from items.items()


def _require_storable(text: str, where: str) -> None:
    if not text:
        raise TokenizerError(f"{where}: a token has an empty text")
    if len(text) > _MAX_CHARACTERS:
        raise TokenizerError(f"{where}: a token has {len(text)} characters; pyggml reads at most {_MAX_CHARACTERS}")
    if "\0" in text:
        raise TokenizerError(f"{where}: the token {text!r:.80} holds a NUL, at which the engine would truncate it")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise TokenizerError(f"{where}: the token {text!r:.80} holds a lone surrogate") from None
