"""The files of a Hugging Face directory that say something about its tokenizer, of transformers 4 and 5 alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyggml.errors import TokenizerError, TokenizerNotFoundError
from pyggml.files.json_file import read_bytes, read_object
from pyggml.tokenizer import sentencepiece as _sentencepiece
from pyggml.tokenizer.sentencepiece import SentencePieceModel

Json = Mapping[str, Any]

_NAMES = ("tokenizer.json", "tokenizer.model")
_UNREADABLE = ("tekken.json", "vocab.json", "merges.txt", "vocab.txt", "*.tiktoken", "spiece.model")
_SAVE = "AutoTokenizer.from_pretrained(...).save_pretrained(...) of the transformers package writes a tokenizer.json"


@dataclass(frozen=True)
class TokenizerDirectory:
    """What the files say; a file that is not there says nothing.

    Attributes:
        path: of the directory.
        config: the model's ``config.json``.
        tokenizer_json: Hugging Face's own format, complete; empty: the tokenizer is ``sentencepiece``.
        sentencepiece: the ``tokenizer.model``, read only where there is no ``tokenizer.json``.
        tokenizer_config: settings, templates in transformers 4, the kinds of added tokens.
        special_tokens: ``special_tokens_map.json``: which token has which part.
        added_tokens: ``added_tokens.json``: ids of added tokens, without their kinds.
        generation: ``generation_config.json``.
    """

    path: Path
    config: Json
    tokenizer_json: Json
    sentencepiece: SentencePieceModel | None
    tokenizer_config: Json
    special_tokens: Json
    added_tokens: Json
    generation: Json

    @property
    def tokenizer_file(self) -> Path:
        """The file that the tokens come from."""
        return self.path / ("tokenizer.json" if self.tokenizer_json else "tokenizer.model")


def read_directory(path: Path, config: Json) -> TokenizerDirectory:
    """Reads them.

    Raises:
        TokenizerNotFoundError: there is no tokenizer.
        TokenizerError: a file is damaged; names it.
    """
    content = read_object(path / "tokenizer.json")
    if content and not isinstance(content.get("model"), dict):
        raise TokenizerError(f'{path / "tokenizer.json"}: it has no "model"')
    return TokenizerDirectory(
        path=path,
        config=config,
        tokenizer_json=content,
        sentencepiece=None if content else _sentencepiece_model(path),
        tokenizer_config=read_object(path / "tokenizer_config.json"),
        special_tokens=read_object(path / "special_tokens_map.json"),
        added_tokens=read_object(path / "added_tokens.json"),
        generation=read_object(path / "generation_config.json"),
    )


def _sentencepiece_model(path: Path) -> SentencePieceModel:
    file = path / "tokenizer.model"
    data = read_bytes(file)
    if data is None:
        raise TokenizerNotFoundError(_missing(path))
    try:
        return _sentencepiece.parse(data)
    except TokenizerError as error:
        raise TokenizerError(f"{file}: {error}") from None


def _missing(path: Path) -> str:
    others = [file.name for pattern in _UNREADABLE for file in sorted(path.glob(pattern))]
    found = f"; {', '.join(others)} cannot be read here: {_SAVE}" if others else ""
    return f"there is no {' or '.join(_NAMES)} in {path}{found}"
