"""Translation of exceptions from huggingface_hub and its HTTP library."""

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
from pyggml.files.disk import DISK_FULL_ERRORS
from pyggml.hub.reference import Reference

#: Advice for a full disk.
DISK_ADVICE = "set HF_HOME to a folder on another disk"

# Base class of the HTTP library's errors. The library is httpx or httpx2, depending on huggingface_hub's version.
_TRANSPORT_ERROR = HfHubHTTPError.__bases__[0]

_LOGIN = "set HF_TOKEN or run 'hf auth login'"


@contextmanager
def translate_errors(reference: Reference) -> Iterator[None]:
    """Translate exceptions of calls into huggingface_hub to :class:`InferError`."""
    try:
        yield
    except Exception as error:
        raise _translate(error, reference) from error


def _translate(error: BaseException, reference: Reference) -> InferError:
    if isinstance(error, LocalEntryNotFoundError) and error.__cause__ is not None:  # neither there nor in the cache
        return _translate(error.__cause__, reference)
    endpoint, repo_id = constants.ENDPOINT, reference.repo_id
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
    if isinstance(error, RevisionNotFoundError):
        return ModelNotFoundError(f"{repo_id} at {endpoint} has no revision {reference.revision or 'main'!r}")
    if isinstance(error, EntryNotFoundError):
        return ModelNotFoundError(f"{repo_id} at {endpoint} lacks a file of {reference}: {_first_line(error)}")
    if isinstance(error, GatedRepoError) or status == 403:
        return DownloadError(f"access to {repo_id} is restricted: request it at {endpoint}/{repo_id}, then {_LOGIN}")
    if isinstance(error, RepositoryNotFoundError) or status == 404:
        return ModelNotFoundError(f"there is no {repo_id} at {endpoint}; if it is private, {_LOGIN}")
    if status == 401:
        return DownloadError(f"{endpoint} requires a valid token for {repo_id}: {_LOGIN}")
    if status is not None:
        is_temporary = status >= 500 or status in (408, 429)
        return DownloadError(f"{endpoint} responded with status {status} for {repo_id}", is_temporary=is_temporary)
    if isinstance(error, (_TRANSPORT_ERROR, OfflineModeIsEnabled)):
        return DownloadError(f"{endpoint} cannot be reached: {_first_line(error)}", is_temporary=True)
    if isinstance(error, OSError):
        return _translate_os_error(error, reference)
    return not_a_hub(_first_line(error))


def not_a_hub(reason: str) -> DownloadError:
    """Return the error for responses that violate the hub's protocol."""
    return DownloadError(f"{constants.ENDPOINT} does not respond like a hub: {reason}")


def _translate_os_error(error: OSError, reference: Reference) -> InferError:
    cache = constants.HF_HUB_CACHE
    if error.errno in DISK_FULL_ERRORS:
        return DiskFullError(f"the disk of {cache} became full while downloading {reference}; {DISK_ADVICE}")
    if error.errno is not None:
        return DownloadError(f"{reference} cannot be stored in {cache}: {error}")
    message = f"the download of {reference} from {constants.ENDPOINT} is damaged: {_first_line(error)}"
    return DownloadError(message, is_temporary=True)


def _first_line(error: BaseException) -> str:
    name, text = type(error).__name__, str(error).strip()
    return f"{name}: {text.splitlines()[0]}" if text else name
