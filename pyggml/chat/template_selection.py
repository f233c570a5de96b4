"""Selection of a chat template by Jinja text, file or name, and of a built-in one for models without their own."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from pyggml._native.model import Model
from pyggml._native.vocab import Vocab
from pyggml.chat.builtin_templates import BUILT_IN
from pyggml.errors import InvalidParameterError
from pyggml.files.json_file import read_text

#: The start of the keys of a model's additional templates.
_ADDITIONAL = "tokenizer.chat_template."

#: Stands for the version of Mistral's template that matches the vocabulary.
_MISTRAL = "mistral"

# Names in other programs -> the name here. Case and punctuation make no difference.
_OTHER_NAMES = {"qwen": "chatml", "mistral-instruct": _MISTRAL, "command": "command-r", "chatglm": "chatglm4"}

# Texts in templates that look like special tokens, and those in many vocabularies without the format.
_MARKUP = re.compile(
    r"<[|｜][^<>'\" ]+[|｜]>|<\w+_of_\w+>|<seed:\w+>|\[/?[A-Z_]{3,}\]|\[\|\w+\|\]|<[用户AI]+>|</?role>|\[gMASK\]|<sop>"
)
_COMMON = frozenset({"<|endoftext|>", "<|user|>", "<|system|>", "<|assistant|>", "[SEP]"})
_ROLES = ("system", "user", "assistant")
_MIN_SIMILARITY = 0.8  # by difflib: one letter in five differs
_ROLE = "\" + m['role'] + \""


def additional_names(model: Model) -> tuple[str, ...]:
    """The names of a model's additional templates, such as "tool_use"."""
    return tuple(key[len(_ADDITIONAL) :] for key in model.metadata if key.startswith(_ADDITIONAL))


def template_text(model: Model, template: str | os.PathLike[str]) -> str:
    """Return the Jinja text that ``template`` stands for.

    It is Jinja text; the name of one of the model's additional templates, or of a built-in one; or a file.

    Raises:
        InvalidParameterError: there is no such template.
    """
    if not isinstance(template, str):
        return _file_text(template)
    if "{" in template:
        return template
    own = additional_names(model)
    if template in own:
        return model.chat_template(template) or ""
    name = _built_in(template, model.vocab)
    if name is not None:
        return BUILT_IN[name]
    if template and (_is_path(template) or _exists(template)):
        return _file_text(template)
    raise InvalidParameterError(_unknown(template, own))


def require_template_file(template: object) -> None:
    """Refuse the path of a template file that does not exist; for use before a model is opened."""
    if isinstance(template, os.PathLike) or (isinstance(template, str) and "{" not in template and _is_path(template)):
        _file_text(template)


def missing_template_advice(model: Model) -> str:
    """Advice for a model that has no chat template, as the rest of a sentence."""
    fitting = fitting_name(model.vocab)
    name = f"chat_template={fitting!r} fits its vocabulary" if fitting else "such as chat_template='chatml'"
    return (
        f"to chat with it, name a built-in template ({name}), or pass a template's Jinja text or file; to continue "
        "texts, as base models are trained to, use generate()"
    )


def fitting_name(vocab: Vocab) -> str | None:
    """The name of the built-in template whose special tokens a vocabulary has; None if there is none."""
    best, most = None, 0
    for name, jinja in BUILT_IN.items():
        tokens = _tokens_of(jinja)
        if len(tokens) > most and tokens - _COMMON and all(vocab.find(token) is not None for token in tokens):
            best, most = name, len(tokens)
    return _MISTRAL if best is not None and best.startswith(_MISTRAL) else best


def _tokens_of(jinja: str) -> set[str]:
    """The texts in a template that look like special tokens."""
    return {token for role in _ROLES for token in _MARKUP.findall(jinja.replace(_ROLE, role))}


def _built_in(name: str, vocab: Vocab) -> str | None:
    """The built-in template for any spelling of a name."""
    known = {_plain(each): each for each in (*BUILT_IN, _MISTRAL)} | {
        _plain(other): own for other, own in _OTHER_NAMES.items()
    }
    found = known.get(_plain(name))
    return _mistral(vocab) if found == _MISTRAL else found


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def _mistral(vocab: Vocab) -> str:
    """The version for a vocabulary: v1 has no special tokens, and those with the Tekken tokenizer use no spaces."""
    if vocab.find("[INST]") is None:
        return "mistral-v1"
    version = "v3" if vocab.find("[SYSTEM_PROMPT]") is None else "v7"
    return f"mistral-{version}-tekken" if vocab.type == "bpe" else f"mistral-{version}"


def _is_path(text: str) -> bool:
    """Return True if a text can only be a path: names have neither separators nor extensions."""
    return os.sep in text or "/" in text or text.endswith((".jinja", ".jinja2", ".j2", ".txt", ".json"))


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # too long for a path, or contains a NUL
        return False


def _file_text(path: str | os.PathLike[str]) -> str:
    try:
        text = read_text(Path(path), InvalidParameterError)
    except TypeError:
        raise InvalidParameterError(
            f"chat_template must be Jinja text, a name or a path, not {type(path).__name__}"
        ) from None
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidParameterError):
            raise
        raise InvalidParameterError(f"the chat template {os.fspath(path)!r:.200} could not be read: {error}") from None
    if text is None:
        raise InvalidParameterError(f"there is no chat template at {os.fspath(path)!r:.200}: no such file")
    if not text.strip():  # the engine would use the model's own template instead
        raise InvalidParameterError(f"the chat template {os.fspath(path)!r:.200} is an empty file")
    return text


def _unknown(name: str, own: Sequence[str]) -> str:
    known = [*own, *BUILT_IN, _MISTRAL]
    spelled = {_plain(each): each for each in known}
    near = [spelled[each] for each in difflib.get_close_matches(_plain(name), spelled, cutoff=_MIN_SIMILARITY)]
    meant = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    additional = f"the model has {', '.join(own)}, " if own else ""
    return (
        f"the chat template {name!r:.80} is neither Jinja text, nor an existing file, nor a known name: {meant}"
        f"{additional}built in are {', '.join(sorted([*BUILT_IN, _MISTRAL]))}"
    )
