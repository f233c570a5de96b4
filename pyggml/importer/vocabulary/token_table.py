"""The tokens of a vocabulary by id, each with its score and type, while it is being put together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyggml.errors import TokenizerError
from pyggml.vocab import TokenType

MAX_TOKENS = 2**22  # the largest vocabularies known have a sixteenth
_MAX_CHARACTERS = 2**14


@dataclass(frozen=True, slots=True)
class Token:
    """One entry of the vocabulary.

    Attributes:
        text: as the engine stores it.
        type: what it is.
        score: what orders merges, or a log-probability; of no meaning in other vocabularies.
    """

    text: str
    type: TokenType = TokenType.NORMAL
    score: float = 0.0


@dataclass
class TokenTable:
    """Tokens by id, with unique texts.

    Attributes:
        by_id: the tokens; ids may be missing until the table is filled up.
        ids: the id of each text.
    """

    by_id: dict[int, Token] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)

    def add(self, token_id: object, token: Token, where: str) -> None:
        """Adds a token, or says more about the one that has this id and text already.

        Args:
            token_id: where it stands.
            token: what stands there.
            where: the place in the files, for messages.

        Raises:
            TokenizerError: no id, one that has another token, a text that has another id, or an unusable text.
        """
        if not isinstance(token_id, int) or isinstance(token_id, bool) or not 0 <= token_id < MAX_TOKENS:
            raise TokenizerError(
                f"{where}: {token.text!r:.80} has the id {token_id!r:.40}: 0 to {MAX_TOKENS - 1} can be"
            )
        present = self.by_id.get(token_id)
        if present is not None and present.text != token.text:
            raise TokenizerError(
                f"{where}: {token.text!r:.80} has the id {token_id}, which is that of {present.text!r:.80}"
            )
        if self.ids.setdefault(token.text, token_id) != token_id:
            raise TokenizerError(f"{where}: {token.text!r:.80} has the ids {self.ids[token.text]} and {token_id}")
        if present is None:
            _require_storable(token.text, where)
        self.by_id[token_id] = token

    def require_whole(self, where: str) -> None:
        """Checks that ids run from 0 without a hole.

        Raises:
            TokenizerError: there is a hole, or nothing at all.
        """
        if not self.by_id:
            raise TokenizerError(f"{where}: a vocabulary without tokens")
        missing = next((i for i in range(len(self.by_id)) if i not in self.by_id), None)
        if missing is not None:
            raise TokenizerError(f"{where}: no token has the id {missing}, and ids go up to {max(self.by_id)}")

    def fitted(self, n_tokens: int) -> list[Token]:
        """As many tokens as the model's embedding has rows; those without a token get an unused one."""
        return [self.by_id.get(i) or Token(self._filler(i), TokenType.UNUSED) for i in range(n_tokens)]

    def _filler(self, token_id: int) -> str:
        text = f"[PAD{token_id}]"
        while text in self.ids:
            text = f"[{text}]"
        return text


def texts_by_id(vocab: object, where: str) -> Iterator[tuple[str, object]]:
    """Texts and ids of the "vocab" of a BPE or WordPiece model.

    Raises:
        TokenizerError: it is none.
    """
    if not isinstance(vocab, dict):
        raise TokenizerError(f"{where}: an object was expected, not {vocab!r:.100}")
    if len(vocab) > MAX_TOKENS:
        raise TokenizerError(f"{where} has {len(vocab)} tokens; {MAX_TOKENS} are the most that is read")
    items: Mapping[str, Any] = vocab
    yield from items.items()


def _require_storable(text: str, where: str) -> None:
    if not text:
        raise TokenizerError(f"{where}: a token without a text")
    if len(text) > _MAX_CHARACTERS:
        raise TokenizerError(f"{where}: a token of {len(text)} characters; {_MAX_CHARACTERS} are the most that is read")
    if "\0" in text:
        raise TokenizerError(f"{where}: the token {text!r:.80} holds a NUL, at which the engine would cut it")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise TokenizerError(f"{where}: the token {text!r:.80} holds half a character") from None
