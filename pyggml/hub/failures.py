"""What huggingface_hub and the HTTP library below it raise, told in pyggml's exceptions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from pyggml.errors import DownloadError, InferError, ModelNotFoundError
from pyggml.hub.reference import Reference

# The base of all errors of the HTTP library, which is httpx or httpx2 as huggingface_hub's version has it.
_TRANSPORT_ERROR = HfHubHTTPError.__bases__[0]

_LOGIN = "set HF_TOKEN or run 'hf auth login'"


@contextmanager
def translated(reference: Reference, endpoint: str) -> Iterator[None]:
    """Turns what a call into huggingface_hub raises into an :class:`InferError`; put around nothing but such calls."""
    try:
        yield
    except Exception as error:
        raise _translation(error, reference, endpoint) from error


def _translation(error: Exception, reference: Reference, endpoint: str) -> InferError:
    repo_id = reference.repo_id
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
    return DownloadError(f"{endpoint} does not answer as a hub does: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    name, text = type(error).__name__, str(error).strip()
    return f"{name}: {text.splitlines()[0]}" if text else name
