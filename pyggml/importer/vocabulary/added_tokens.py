"""Added tokens, which are matched in a text before it is tokenised: chat tokens, in some vocabularies white space."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyggml._core.checks import shown
from pyggml._native.vocab import TokenType
from pyggml.errors import TokenizerError
from pyggml.importer.vocabulary.token_table import Token, TokenTable
from pyggml.tokenizer.files import TokenizerDirectory

#: Options for matching an added token.
WHITESPACE_RULES = ("lstrip", "rstrip", "single_word")


@dataclass(frozen=True)
class AddedToken:
    """An added token.

    Attributes:
        text: its text, which is matched literally.
        is_special: True if it is not matched in literal text.
        is_normalized: True if it is matched in the normalised text.
        rules: options for matching it, such as "lstrip".
        where: its location in the files, for messages.
    """

    id: Any
    text: str
    is_special: bool
    is_normalized: bool
    rules: tuple[str, ...]
    where: str

    @property
    def type(self) -> TokenType:
        """Its type for the engine."""
        return TokenType.CONTROL if self.is_special else TokenType.USER_DEFINED


def added_tokens(files: TokenizerDirectory) -> list[AddedToken]:
    """Return all added tokens; if several files name one, the first wins, ``tokenizer.json`` before all."""
    found: dict[str, AddedToken] = {}
    for token in _named(files):
        found.setdefault(token.text, token)
    return list(found.values())


def _named(files: TokenizerDirectory) -> Iterator[AddedToken]:
    yield from _listed(files.tokenizer_json.get("added_tokens"), f'{files.path / "tokenizer.json"}: "added_tokens"')
    where = f'{files.path / "tokenizer_config.json"}: "added_tokens_decoder"'
    yield from _decoded(files.tokenizer_config.get("added_tokens_decoder"), where)
    if "added_tokens_decoder" not in files.tokenizer_config:  # transformers reads the older file only then
        special = set(special_texts(files))
        where = str(files.path / "added_tokens.json")
        for text, token_id in files.added_tokens.items():
            is_special = text in special
            yield AddedToken(token_id, text, is_special, is_normalized=not is_special, rules=(), where=where)


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
    rules = tuple(rule for rule in WHITESPACE_RULES if token.get(rule))
    is_special, is_normalized = bool(token.get("special")), bool(token.get("normalized"))
    return AddedToken(token_id, token["content"], is_special, is_normalized, rules, where)


def special_texts(files: TokenizerDirectory) -> Iterator[str]:
    """Yield the texts of tokens with special roles, from the settings files."""
    for source in (files.tokenizer_config, files.special_tokens):
        for key, value in source.items():
            if key.endswith("_token"):
                yield from filter(None, [text_of(value)])
            elif key == "additional_special_tokens" and isinstance(value, list):
                yield from filter(None, map(text_of, value))


def text_of(token: object) -> str | None:
    """Return the text of a token that a file gives as a string or an object."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def add_to(table: TokenTable, tokens: Sequence[AddedToken], n_vocab: int | None) -> list[AddedToken]:
    """Add tokens to the table, and return those that have no row among the ``n_vocab`` of the embedding.

    Tokens that are already in the table only get their type.
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
    """Yield the engine's differences in matching these tokens."""
    ruled = [token for token in tokens if token.rules]
    if ruled:
        names = ", ".join(repr(token.text) for token in ruled[:3])
        yield f"added tokens with rules that the engine does not support ({', '.join(ruled[0].rules)}: {names})"
    overlap = _overlapping(tokens)
    if overlap:
        yield f"added tokens that can overlap in a text: {shown(overlap[0])} and {shown(overlap[1])}"


def _overlapping(tokens: Sequence[AddedToken]) -> tuple[str, str] | None:
    """Return two tokens that can overlap in a text, where the two tokenizers would choose differently.

    Runs of one character do not count: both tokenizers find the longest first.
    """
    texts = [token.text for token in tokens]
    beginnings = {text[:n]: text for text in texts if len(text) <= 256 for n in range(1, len(text))}
    for text in texts:
        for n in range(1, min(len(text), 256)):
            other = beginnings.get(text[-n:])
            if other is not None and len({*text, *other}) > 1:
                return text, other
    return None
