"""Chat templates, from all files in which versions of transformers store them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pyggml.errors import TokenizerError
from pyggml.files.json_file import read_object, read_text
from pyggml.tokenizer.files import TokenizerDirectory

_KEY = "tokenizer.chat_template"
_DEFAULT = "default"
_MAX_NAMED = 100


def chat_templates(files: TokenizerDirectory) -> dict[str, object]:
    """Return the metadata of the default template and of the named ones; the newest kind of file takes precedence."""
    templates: dict[str, str] = {}
    for name, text in _all(files):
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            raise TokenizerError(f"{files.path}: the chat template {name!r:.80} holds a NUL or a lone surrogate")
        templates.setdefault(name, text)
    if len(templates) > _MAX_NAMED:
        raise TokenizerError(f"{files.path} has {len(templates)} chat templates; pyggml reads at most {_MAX_NAMED}")
    default = templates.pop(_DEFAULT, None)
    metadata: dict[str, object] = {} if default is None else {_KEY: default}
    if templates:
        metadata["tokenizer.chat_templates"] = sorted(templates)
        metadata |= {f"{_KEY}.{name}": text for name, text in sorted(templates.items())}
    return metadata


def _all(files: TokenizerDirectory) -> Iterator[tuple[str, str]]:
    path = files.path
    text = read_text(path / "chat_template.jinja", TokenizerError)
    if text is not None:
        yield _DEFAULT, text
    for file in sorted((path / "additional_chat_templates").glob("*.jinja"))[: _MAX_NAMED + 1]:
        yield _name(file.stem), read_text(file, TokenizerError) or ""
    file = path / "chat_template.json"
    yield from _named(read_object(file, TokenizerError).get("chat_template"), file)
    yield from _named(files.tokenizer_config.get("chat_template"), path / "tokenizer_config.json")


def _named(templates: object, file: Path) -> Iterator[tuple[str, str]]:
    """One template, or several with names, as a list or an object."""
    if templates is None:
        return
    if isinstance(templates, str):
        templates = {_DEFAULT: templates}
    listed = templates if isinstance(templates, list) else [None]
    for name, text in templates.items() if isinstance(templates, dict) else map(_entry, listed):
        if not isinstance(name, str) or not isinstance(text, str):
            raise TokenizerError(f'{file}: "chat_template": named texts were expected, not {templates!r:.100}')
        yield _name(name), text


def _entry(entry: object) -> tuple[object, object]:
    return (entry.get("name"), entry.get("template")) if isinstance(entry, dict) else (None, None)


def _name(name: str) -> str:
    return re.sub(r"\W", "_", name, flags=re.ASCII)
