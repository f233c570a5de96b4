"""Reads and validates bodies."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from pydantic import BaseModel
from starlette.requests import ClientDisconnect, Request

from pyggml.server.failures import ClientGone

Body = TypeVar("Body", bound=BaseModel)

# From this size on, parsing takes longer than about a millisecond and must not run in the event loop.
_LONG_BYTES = 32_768


async def read_body(request: Request, model: type[Body]) -> tuple[Body, bool]:
    """Reads a body and validates it. Returns, too, whether it is long: whatever looks at all of it belongs in a thread.

    Raises:
        ClientGone: the client left before it had sent everything.
        ValidationError: it is not JSON, or does not validate.
    """
    try:
        raw = await request.body()
    except ClientDisconnect:
        raise ClientGone from None
    if len(raw) < _LONG_BYTES:
        return model.model_validate_json(raw), False
    return await asyncio.to_thread(model.model_validate_json, raw), True
