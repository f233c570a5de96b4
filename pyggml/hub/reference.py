"""Parser of references: ``hf:ORG/REPO[@REVISION][:FILE]``."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from urllib.parse import unquote

from pyggml._core.checks import shown
from pyggml.errors import InvalidParameterError

_SCHEME = "hf:"
_GRAMMAR = "hf:ORG/REPO[@REVISION][:FILE]"
# Similar forms: an id, a URL of the hub, ollama's "hf.co/org/repo", huggingface_hub's "hf://", or "HF:".
_SIMILAR = re.compile(
    r"(?P<address>(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/|(?i:hf):(?://)?)?"
    r"(?!datasets/|spaces/|huggingface\.co/|hf\.co/)(?P<reference>[^/?#]+/[^/?#]+)"
    r"(?:/(?:blob|resolve|raw|tree)/(?P<revision>[^/?#]+))?"
    r"(?:/(?P<path>[^?#]*))?(?:[?#].*)?"
)
# Suffixes of files, which names of repositories do not have.
_FILE_SUFFIXES = (".gguf", ".safetensors", ".json", ".bin")

# As allowed by the hub: https://huggingface.co/docs/huggingface_hub/package_reference/utilities#validate_repo_id
_NAME = re.compile(r"(?![-.])[A-Za-z0-9._-]+(?<![-.])")
_MAX_REPO_ID = 96
# As allowed by git: no control characters, none of " ~^:?*[\", no ".." and no empty part.
_REVISION = re.compile(r"(?!.*(?:\.\.|//|@\{))[^\x00-\x20\x7f~^:?*\[\\/][^\x00-\x20\x7f~^:?*\[\\]*(?<!/)")


@dataclass(frozen=True)
class Reference:
    """A model on the hub.

    Attributes:
        repo_id: ``ORG/REPO``.
        revision: branch, tag or commit; None: the default branch.
        file: path of a GGUF file in the repository, or the name of a quantisation; None: the repository's only model.
    """

    repo_id: str
    revision: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        return self.repository + (f":{self.file}" if self.file is not None else "")

    @property
    def repository(self) -> str:
        """The reference without the file."""
        return _SCHEME + self.repo_id + (f"@{self.revision}" if self.revision is not None else "")


def is_reference(source: object) -> bool:
    """Return True if a source is a reference, even a malformed one, and not a path.

    Args:
        source: the source, as for :func:`pyggml.load`.
    """
    return isinstance(source, (str, os.PathLike)) and str(source).startswith(_SCHEME)


def guess_reference(source: object) -> str | None:
    """Guess the reference for a source that is an id, as in transformers, or a URL of the hub; None: it is neither.

    Args:
        source: the text, such as "org/repo" or "https://huggingface.co/org/repo".
    """
    found = _SIMILAR.fullmatch(source) if isinstance(source, str) else None
    if found is None or not (found["address"] or (found["revision"] is None and not found["path"])):
        return None
    guess = split_reference(found["reference"])
    revision, path = unquote(found["revision"] or ""), unquote(found["path"] or "")
    if revision not in ("", "main"):
        guess = replace(guess, revision=revision)
    if path.endswith(".gguf"):
        guess = replace(guess, file=path)
    return None if guess.repo_id.endswith(_FILE_SUFFIXES) or _find_error(guess) else str(guess)


def parse_reference(source: str) -> Reference:
    """Parse a reference.

    Args:
        source: the reference, such as "hf:org/repo:q4_k_m".

    Raises:
        InvalidParameterError: it is malformed.
    """
    if not isinstance(source, str):
        raise InvalidParameterError(f"a reference such as {_SCHEME}org/repo was expected, not {shown(source)}")
    rest = source.removeprefix(_SCHEME)
    reference = split_reference(rest)
    error = f"there are slashes after {_SCHEME}" if rest.startswith("//") else _find_error(reference)
    if error:
        guess = guess_reference("hf://" + rest.lstrip("/"))
        form = f"{_GRAMMAR}, here probably {guess}" if guess else _GRAMMAR
        raise InvalidParameterError(f"{source!r} is not a valid reference: {error}; the form is {form}")
    return reference


def split_reference(text: str) -> Reference:
    """Split a reference without "hf:" into its parts, without validation."""
    location, has_file, file = text.partition(":")
    repo_id, has_revision, revision = location.partition("@")
    return Reference(repo_id, revision if has_revision else None, file if has_file else None)


def _find_error(reference: Reference) -> str | None:
    names = reference.repo_id.split("/")
    if len(names) != 2:
        return f"{reference.repo_id!r} does not name an organisation and a repository"
    for name in names:
        if not _NAME.fullmatch(name) or "--" in name or ".." in name:
            return f"the hub does not allow the name {name!r}"
    if len(reference.repo_id) > _MAX_REPO_ID:
        return f"{reference.repo_id!r} is longer than {_MAX_REPO_ID} characters"
    if reference.revision is not None and not _REVISION.fullmatch(reference.revision):
        return f"{reference.revision!r} is not a valid revision"
    if reference.file is not None and not is_plain_path(reference.file):
        return f"{reference.file!r} is not a valid path in a repository"
    return None


def is_plain_path(path: str) -> bool:
    """Return True if a relative path stays inside its directory and is the same on every system."""
    is_inside = all(part not in ("", ".", "..") for part in path.split("/"))
    return is_inside and not any(character in "\\:" or character < " " for character in path)
