"""The grammar of references: ``hf:ORG/REPO[@REVISION][:FILE]``."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from urllib.parse import unquote

from pyggml._core.checks import shown
from pyggml.errors import InvalidParameterError

_SCHEME = "hf:"
_GRAMMAR = "hf:ORG/REPO[@REVISION][:FILE]"
# An id, or an address as browsers show it, as ollama takes it ("hf.co/org/repo") or as huggingface_hub writes it;
# and a reference in capitals.
_MEANT = re.compile(
    r"(?P<address>(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/|(?i:hf):(?://)?)?"
    r"(?!datasets/|spaces/|huggingface\.co/|hf\.co/)(?P<reference>[^/?#]+/[^/?#]+)"
    r"(?:/(?:blob|resolve|raw|tree)/(?P<revision>[^/?#]+))?"
    r"(?:/(?P<path>[^?#]*))?(?:[?#].*)?"
)
#: How the names of files end, which no repository's does.
_FILES = (".gguf", ".safetensors", ".json", ".bin")

# As the hub allows them: https://huggingface.co/docs/huggingface_hub/package_reference/utilities#validate_repo_id
_NAME = re.compile(r"(?![-.])[A-Za-z0-9._-]+(?<![-.])")
_MAX_REPO_ID = 96
# As git allows them: no control characters, none of " ~^:?*[\", no ".." and no empty part.
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
    """Whether a source is a reference, well-formed or not, rather than a path."""
    return isinstance(source, (str, os.PathLike)) and str(source).startswith(_SCHEME)


def reference_meant_by(source: object) -> str | None:
    """The reference that a source probably stands for: an id as transformers takes it, or an address on the hub.

    None: it is nothing of that form.
    """
    found = _MEANT.fullmatch(source) if isinstance(source, str) else None
    if found is None or not (found["address"] or (found["revision"] is None and not found["path"])):
        return None
    meant, revision, path = parsed(found["reference"]), unquote(found["revision"] or ""), unquote(found["path"] or "")
    if revision not in ("", "main"):
        meant = replace(meant, revision=revision)
    if path.endswith(".gguf"):
        meant = replace(meant, file=path)
    return None if meant.repo_id.endswith(_FILES) or _flaw(meant) else str(meant)


def parse_reference(source: str) -> Reference:
    """Parses a reference.

    Raises:
        InvalidParameterError: it is malformed; the message says how.
    """
    if not isinstance(source, str):
        raise InvalidParameterError(f"a reference such as {_SCHEME}org/repo was expected, not {shown(source)}")
    rest = source.removeprefix(_SCHEME)
    reference = parsed(rest)
    flaw = f"there are slashes after {_SCHEME}" if rest.startswith("//") else _flaw(reference)
    if flaw:
        meant = reference_meant_by("hf://" + rest.lstrip("/"))
        form = f"{_GRAMMAR}, here probably {meant}" if meant else _GRAMMAR
        raise InvalidParameterError(f"{source!r} is not a valid reference: {flaw}; the form is {form}")
    return reference


def parsed(text: str) -> Reference:
    """The parts of a reference without "hf:", which may be wrong."""
    location, has_file, file = text.partition(":")
    repo_id, has_revision, revision = location.partition("@")
    return Reference(repo_id, revision if has_revision else None, file if has_file else None)


def _flaw(reference: Reference) -> str | None:
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
    """Whether a relative path stays inside its directory and means the same on every system."""
    is_inside = all(part not in ("", ".", "..") for part in path.split("/"))
    return is_inside and not any(character in "\\:" or character < " " for character in path)
