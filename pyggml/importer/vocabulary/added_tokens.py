"""Tokens that are looked for in a text before it is cut: those of chats, and the white space of some vocabularies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyggml.errors import TokenizerError
from pyggml.importer.vocabulary.token_table import Token, TokenTable
from pyggml.tokenizer.files import TokenizerDirectory
from pyggml.vocab import TokenType

_WHITESPACE_RULES = ("lstrip", "rstrip", "single_word")


@dataclass(frozen=True)
class AddedToken:
    """One of them.

    Attributes:
        id: of the token.
        text: found in texts as it is.
        is_special: not looked for in text that is to be taken as it is.
        is_normalized: looked for after the text has been normalised.
        rules: what else is asked for where it is found, such as "lstrip".
        where: the place in the files.
    """

    id: Any
    text: str
    is_special: bool
    is_normalized: bool
    rules: tuple[str, ...]
    where: str

    @property
    def type(self) -> TokenType:
        """What the engine is to take it for."""
        return TokenType.CONTROL if self.is_special else TokenType.USER_DEFINED


def added_tokens(files: TokenizerDirectory) -> list[AddedToken]:
    """All of them; of those that several files name, what the first says: ``tokenizer.json`` knows best.

    Raises:
        TokenizerError: a file is damaged; names the place.
    """
    found: dict[str, AddedToken] = {}
    for token in _named(files):
        found.setdefault(token.text, token)
    return list(found.values())


def _named(files: TokenizerDirectory) -> Iterator[AddedToken]:
    yield from _listed(files.tokenizer_json.get("added_tokens"), f'{files.path / "tokenizer.json"}: "added_tokens"')
    yield from _decoded(
        files.tokenizer_config.get("added_tokens_decoder"),
        f'{files.path / "tokenizer_config.json"}: "added_tokens_decoder"',
    )
    special = set(_special_texts(files))
    where = str(files.path / "added_tokens.json")
    for text, token_id in files.added_tokens.items():
        yield AddedToken(token_id, text, text in special, False, (), where)


def _listed(tokens: object, where: str) -> Iterator[AddedToken]:
    if not isinstance(tokens, (list, type(None))):
        raise TokenizerError(f"{where}: a list was expected, not {tokens!r:.100}")
    for i, token in enumerate(tokens or ()):
        yield _added(token.get("id") if isinstance(token, dict) else None, token, f"{where}[{i}]")


def _decoded(tokens: object, where: str) -> Iterator[AddedToken]:
    if not isinstance(tokens, (dict, type(None))):
        raise TokenizerError(f"{where}: an object was expected, not {tokens!r:.100}")
    for token_id, token in (tokens or {}).items():
        yield _added(int(token_id) if token_id.isdecimal() else token_id, token, f"{where}[{token_id!r:.40}]")


def _added(token_id: object, token: object, where: str) -> AddedToken:
    if not isinstance(token, dict) or not isinstance(token.get("content"), str):
        raise TokenizerError(f'{where}: an object with a "content" was expected, not {token!r:.100}')
    rules = tuple(rule for rule in _WHITESPACE_RULES if token.get(rule))
    is_special, is_normalized = bool(token.get("special")), bool(token.get("normalized"))
    return AddedToken(token_id, token["content"], is_special, is_normalized, rules, where)


def _special_texts(files: TokenizerDirectory) -> Iterator[str]:
    """The texts of tokens that have a part to play, by the older files."""
    for source in (files.tokenizer_config, files.special_tokens):
        for key, value in source.items():
            if key.endswith("_token"):
                yield from filter(None, [text_of(value)])
            elif key == "additional_special_tokens" and isinstance(value, list):
                yield from filter(None, map(text_of, value))


def text_of(token: object) -> str | None:
    """The text of a token that a file names, plainly or as an object."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def add_to(table: TokenTable, tokens: Sequence[AddedToken], n_vocab: int | None) -> list[AddedToken]:
    """Puts them into the table, except those beyond the model's embedding.

    Args:
        table: what the tokenizer has without them.
        tokens: to add; where the table has them, they get their type.
        n_vocab: rows of the embedding, where known.

    Returns:
        Those that were left out.

    Raises:
        TokenizerError: an id is none, or has another token already.
    """
    dropped: list[AddedToken] = []
    for token in tokens:
        beyond = n_vocab is not None and isinstance(token.id, int) and token.id >= n_vocab
        if beyond and token.text not in table.ids:
            dropped.append(token)
            continue
        present = table.by_id.get(table.ids.get(token.text, -1), Token(token.text))
        type = TokenType.UNKNOWN if present.type is TokenType.UNKNOWN else token.type
        table.add(token.id, Token(token.text, type, present.score), token.where)
    return dropped


def differences(tokens: Sequence[AddedToken]) -> Iterator[str]:
    """What the engine does differently when it looks for these tokens in a text."""
    ruled = [token for token in tokens if token.rules]
    if ruled:
        names = ", ".join(repr(token.text) for token in ruled[:3])
        yield f"added tokens with rules that the engine does not have ({', '.join(ruled[0].rules)}: {names})"
    overlap = _overlapping(tokens)
    if overlap:
        yield f"added tokens of which one can begin inside another: {overlap[0]!r} and {overlap[1]!r}"


def _overlapping(tokens: Sequence[AddedToken]) -> tuple[str, str] | None:
    """Two that a text can hold so that they share characters; which is found then, differs.

    Runs of one character do not count: of them, both find the longest first.
    """
    texts = [token.text for token in tokens]
    beginnings = {text[:n]: text for text in texts if len(text) <= 256 for n in range(1, len(text))}
    for text in texts:
        for n in range(1, min(len(text), 256)):
            other = beginnings.get(text[-n:])
            if other is not None and len({*text, *other}) > 1:
                return text, other
    return None
