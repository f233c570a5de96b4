"""Slots of the KV cache, as in llama-server's API: monitoring, saving, restoring and erasing."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, RootModel
from starlette.responses import JSONResponse, Response

from pyggml import SavedStateError
from pyggml.server.http import errors
from pyggml.server.http.errors import Failure, RequestError, error_response, strip_folders
from pyggml.server.http.generation import cache_salt
from pyggml.server.http.request import ServerRequest
from pyggml.server.http.request_body import Body
from pyggml.server.models.pool import DEFAULT, LoadedModel

# Plain names, also on other systems; a leading dot would hide a file.
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")


class SlotInfo(BaseModel):
    """A slot of the KV cache, with llama-server's names.

    Attributes:
        id: its index.
        n_ctx: size of the context in tokens, which the slots share.
        speculative: false.
        is_processing: a request runs in it.
        n_tokens: number of tokens that have cells in it, of the running request or cached.
    """

    id: int
    n_ctx: int
    speculative: bool
    is_processing: bool
    n_tokens: int


class SlotList(RootModel[list[SlotInfo]]):
    """The slots of a model."""


class SlotAction(Body):
    """The file of an action on a slot, and its model.

    Attributes:
        filename: plain name of a file in the directory of the setting ``slot_save_path``, to save to or to restore.
        model: name of the model.
    """

    may_be_empty: ClassVar[bool] = True

    filename: str = ""
    model: str = DEFAULT


class SlotResult(BaseModel):
    """The result of an action on a slot: what was saved, restored or erased.

    Attributes:
        id_slot: index of the slot.
        filename: the file that was saved or restored.
        n_saved: number of tokens that were saved.
        n_written: size of the file in bytes.
        n_restored: number of tokens that were restored.
        n_read: size of the file in bytes.
        n_erased: number of tokens that were evicted.
        timings: duration of the action, ``save_ms`` or ``restore_ms``.
    """

    id_slot: int
    filename: str | None = None
    n_saved: int | None = None
    n_written: int | None = None
    n_restored: int | None = None
    n_read: int | None = None
    n_erased: int | None = None
    timings: dict[str, float] | None = None


async def slots(request: ServerRequest) -> Response:
    """List the slots of a model: the first one, unless the query names another."""
    query = request.http.query_params
    llm = (await request.lease_model(query.get("model", DEFAULT))).llm
    found = [
        SlotInfo(
            id=slot.index,
            n_ctx=llm.n_ctx,
            speculative=False,
            is_processing=slot.is_running,
            n_tokens=slot.n_tokens,
        )
        for slot in llm.slots()
    ]
    if query.get("fail_on_no_slot") and all(slot.is_processing for slot in found):
        failure = Failure(503, "unavailable", "no slot is free: all of them run requests", "no_slot")
        return error_response(request.protocol, failure)  # what a probe asks for, and no error of the server
    return JSONResponse(SlotList(found).model_dump())


async def act_on_slot(request: ServerRequest, body: SlotAction) -> Response:
    """Save, restore or erase the tokens of a slot, as the query's ``action`` says."""
    folder = request.worker.settings.slot_save_path
    if folder is None:
        message = "this server does not support actions on slots: start it with --slot-save-path DIRECTORY"
        raise RequestError(Failure(501, "invalid", message, "not_supported"))
    action = _ACTIONS.get(name := request.http.query_params.get("action", ""))
    if action is None:
        raise errors.invalid(f"the action {name!r:.80} is none of {', '.join(_ACTIONS)}", "action")
    model = await request.lease_model(body.model, takes_adapter=True)
    slot = _slot_index(request, model)
    return await request.run_in_thread(lambda: JSONResponse(_result(slot, action(request, model, slot, body, folder))))


def _save(request: ServerRequest, model: LoadedModel, slot: int, body: SlotAction, folder: Path) -> dict[str, Any]:
    path, salt, start_s = _path(request, body, folder), cache_salt(request), time.monotonic()
    tokens = model.llm.slot_tokens(slot, cache_salt=salt, adapter={})
    if not tokens:
        message = f"the slot {slot} is empty, or a request with adapters used it: there is nothing to save"
        raise errors.invalid(message, "id_slot")
    n_saved = model.llm.save(tokens, path, cache_salt=salt, adapter={})
    n_written = path.stat().st_size
    return {"filename": body.filename, "n_saved": n_saved, "n_written": n_written, "timings": {"save_ms": _ms(start_s)}}


def _restore(request: ServerRequest, model: LoadedModel, slot: int, body: SlotAction, folder: Path) -> dict[str, Any]:
    del slot  # requests start from the tokens in whatever slot they run
    path, start_s = _path(request, body, folder), time.monotonic()
    if path.is_symlink() or not path.is_file():
        raise RequestError(Failure(404, "not_found", f"there is no saved file {body.filename}", "file_not_found"))
    try:
        n_restored = model.llm.restore(path, cache_salt=cache_salt(request))
    except SavedStateError as error:
        raise errors.invalid(strip_folders(str(error), path), "filename", "saved_state") from None
    n_read = path.stat().st_size
    timings = {"restore_ms": _ms(start_s)}
    return {"filename": body.filename, "n_restored": n_restored, "n_read": n_read, "timings": timings}


def _erase(request: ServerRequest, model: LoadedModel, slot: int, body: SlotAction, folder: Path) -> dict[str, Any]:
    del body, folder
    return {"n_erased": model.llm.erase_slot(slot, cache_salt=cache_salt(request), adapter=request.adapter)}


_ACTIONS = {"save": _save, "restore": _restore, "erase": _erase}


def _result(slot: int, fields: dict[str, Any]) -> dict[str, Any]:
    return SlotResult(id_slot=slot, **fields).model_dump(exclude_none=True)


def _slot_index(request: ServerRequest, model: LoadedModel) -> int:
    text = str(request.http.path_params["id_slot"])
    if text.isdecimal() and len(text) < _MAX_DIGITS and int(text) < model.llm.n_parallel:
        return int(text)
    raise errors.invalid(f"there is no slot {text!r:.80}; slots are 0 to {model.llm.n_parallel - 1}", "id_slot")


_MAX_DIGITS = 10


def _path(request: ServerRequest, body: SlotAction, folder: Path) -> Path:
    """Return the path of the file in the operator's directory.

    Where each API key has a prefix cache of its own, so it has files: a client could otherwise restore another's.
    """
    if not _FILE_NAME.fullmatch(body.filename):
        message = (
            f"the filename {body.filename!r:.80} is not plain: it has up to 200 letters, digits, dots, dashes and "
            "underscores, and does not begin with a dot"
        )
        raise errors.invalid(message, "filename")
    salt = cache_salt(request)
    return folder / (body.filename if salt is None else f"{salt.strip()[:32]}-{body.filename}")


def _ms(start_s: float) -> float:
    return round(1000 * (time.monotonic() - start_s), 3)
