"""What huggingface_hub, and what it is built on, raises, as pyggml's exceptions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub import constants
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from pyggml.errors import DiskFullError, DownloadError, InferError, ModelNotFoundError
from pyggml.files.disk import NO_ROOM
from pyggml.hub.reference import Reference

#: The way out of a disk that is full.
ELSEWHERE = "HF_HOME says where else to keep models"

# The base of all errors of the HTTP library, which is httpx or httpx2 as huggingface_hub's version has it.
_TRANSPORT_ERROR = HfHubHTTPError.__bases__[0]

_LOGIN = "set HF_TOKEN or run 'hf auth login'"


@contextmanager
def translated(reference: Reference) -> Iterator[None]:
    """Turns what a call into huggingface_hub raises into an :class:`InferError`; put around nothing but such calls."""
    try:
        yield
    except Exception as error:
        raise _translation(error, reference) from error


def _translation(error: BaseException, reference: Reference) -> InferError:
    if isinstance(error, LocalEntryNotFoundError) and error.__cause__ is not None:  # neither on the hub nor here
        return _translation(error.__cause__, reference)
    endpoint, repo_id = constants.ENDPOINT, reference.repo_id
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
    if isinstance(error, RevisionNotFoundError):
        return ModelNotFoundError(f"{repo_id} at {endpoint} has no revision {reference.revision or 'main'!r}")
    if isinstance(error, EntryNotFoundError):
        return ModelNotFoundError(f"{repo_id} at {endpoint} has lost a file of {reference}: {_first_line(error)}")
    if isinstance(error, GatedRepoError) or status == 403:
        return DownloadError(f"access to {repo_id} is restricted: ask for it at {endpoint}/{repo_id}, then {_LOGIN}")
    if isinstance(error, RepositoryNotFoundError) or status == 404:
        return ModelNotFoundError(f"there is no {repo_id} at {endpoint}, or it is private: then {_LOGIN}")
    if status == 401:
        return DownloadError(f"{endpoint} gives {repo_id} only for a valid token, and got none or another: {_LOGIN}")
    if status is not None:
        is_temporary = status >= 500 or status in (408, 429)
        return DownloadError(f"{endpoint} answered {status} when asked for {repo_id}", is_temporary=is_temporary)
    if isinstance(error, (_TRANSPORT_ERROR, OfflineModeIsEnabled)):
        return DownloadError(f"{endpoint} cannot be reached: {_first_line(error)}", is_temporary=True)
    if isinstance(error, OSError):
        return _of_system(error, reference)
    return DownloadError(f"{endpoint} does not answer as a hub does: {_first_line(error)}")


def _of_system(error: OSError, reference: Reference) -> InferError:
    cache = constants.HF_HUB_CACHE
    if error.errno in NO_ROOM:
        return DiskFullError(f"the disk of {cache} became full while {reference} was downloaded; {ELSEWHERE}")
    if error.errno is not None:
        return DownloadError(f"{reference} cannot be kept in {cache}: {error}")
    message = f"{reference} did not come as {constants.ENDPOINT} describes it: {_first_line(error)}"
    return DownloadError(message, is_temporary=True)


def _first_line(error: BaseException) -> str:
    name, text = type(error).__name__, str(error).strip()
    return f"{name}: {text.splitlines()[0]}" if text else name
