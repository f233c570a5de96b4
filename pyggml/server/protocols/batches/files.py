"""``/v1/files``: files for batches, in OpenAI's format."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from pyggml.server.http import errors
from pyggml.server.http.request import ServerRequest
from pyggml.server.http.request_body import read_bytes
from pyggml.server.protocols.batches.file_store import StoredFile
from pyggml.server.protocols.endpoint import Endpoint
from pyggml.server.protocols.pages import page


class File(BaseModel):
    """A file."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    filename: str
    purpose: str
    status: str


class FileList(BaseModel):
    """Files, the newest first."""

    object: Literal["list"]
    data: list[File]
    has_more: bool


class DeletedFile(BaseModel):
    """A file that is deleted."""

    id: str
    object: Literal["file"]
    deleted: bool


async def upload(request: ServerRequest) -> Response:
    """Store a file, sent as a form (multipart/form-data) with the fields ``file`` and ``purpose``."""
    raw = await read_bytes(request.http, request.worker.settings)
    file = await request.run_in_thread(_file, request.http.headers.get("content-type", ""), raw)
    request.worker.batches.files.add(request.owner, file)
    return JSONResponse(file.to_dict())


async def list_files(request: ServerRequest) -> Response:
    """List the files."""
    files = request.worker.batches.files.all(request.owner)
    purpose = request.http.query_params.get("purpose")
    items = [file.to_dict() for file in files if purpose in (None, file.purpose)]
    return JSONResponse({"object": "list", **page(items, request.http.query_params, "after")})


async def describe(request: ServerRequest) -> Response:
    """Describe a file."""
    return JSONResponse(_find(request).to_dict())


async def content(request: ServerRequest) -> Response:
    """Return the content of a file."""
    return Response(_find(request).content, media_type="application/octet-stream")


async def delete(request: ServerRequest) -> Response:
    """Delete a file."""
    id = request.http.path_params["id"]
    request.worker.batches.files.remove(request.owner, id)
    return JSONResponse({"id": id, "object": "file", "deleted": True})


def _find(request: ServerRequest) -> StoredFile:
    return request.worker.batches.files.find(request.owner, request.http.path_params["id"])


def _file(content_type: str, raw: bytes) -> StoredFile:
    """Read a form with a file.

    Raises:
        RequestError: 400, it is not a form, or has no file or purpose.
    """
    boundary = _BOUNDARY.search(content_type)
    if not content_type.lower().startswith("multipart/form-data") or boundary is None:
        raise errors.invalid("send the file as a form, with the Content-Type multipart/form-data", "file")
    fields: dict[str, tuple[str, bytes]] = {}
    for part in b"\r\n".join((b"", raw)).split(f"\r\n--{boundary[1] or boundary[2]}".encode("latin-1"))[1:_MAX_FIELDS]:
        head, _, content = part.partition(b"\r\n\r\n")
        names = dict(_PARAMETER.findall(head.decode("utf-8", "replace")))
        fields[names.get("name", "")] = names.get("filename", "file"), content
    for name in ("file", "purpose"):
        if name not in fields:
            raise errors.invalid(f"the form needs the field {name!r}", name)
    purpose = fields["purpose"][1].decode("utf-8", "replace")
    if purpose != "batch":
        raise errors.invalid(f"purpose {purpose!r:.100} is not supported: it must be 'batch'", "purpose")
    name, content = fields["file"]
    return StoredFile(name[:_MAX_NAME], purpose, content)


_BOUNDARY = re.compile(r'boundary=(?:"([^"\r\n]{1,70})"|([^\s;"]{1,70}))', re.IGNORECASE)
_PARAMETER = re.compile(r'\b(name|filename)="([^"\r\n]*)"')
_MAX_FIELDS = 20
_MAX_NAME = 255


ENDPOINTS = (
    Endpoint("POST", "/v1/files", upload, File),
    Endpoint("GET", "/v1/files", list_files, FileList),
    Endpoint("GET", "/v1/files/{id}", describe, File),
    Endpoint("DELETE", "/v1/files/{id}", delete, DeletedFile),
    Endpoint("GET", "/v1/files/{id}/content", content, stream_type="application/octet-stream"),
)
