"""``/api/pull``: download a model from the Hugging Face Hub, and offer it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

import pyggml
from pyggml.server.http import errors
from pyggml.server.http.errors import Failure, RequestError
from pyggml.server.http.request import ServerRequest
from pyggml.server.http.request_body import Body
from pyggml.server.http.streaming import stream_lines
from pyggml.server.settings.options import ModelSpec

Json = dict[str, Any]

# Ollama's names of repositories, for which "hf:" stands here.
_HUB = re.compile(r"(hf:|(https?://)?(hf\.co|huggingface\.co)/)(?=[^/])")
_ONE_AT_A_TIME = ThreadPoolExecutor(1, "pyggml.server.protocols.ollama.pull")
_STEPS = 1000


class PullRequest(Body):
    """A model to download.

    Attributes:
        model: a reference such as "hf:org/repo:q4_k_m", or as in ollama "hf.co/org/repo:Q4_K_M".
        name: older name of ``model``.
        stream: stream the progress as JSON lines.
    """

    model: str = ""
    name: str = ""
    stream: bool = True


class PullProgress(BaseModel):
    """Progress of the download, in thousandths."""

    status: str
    total: int | None = None
    completed: int | None = None


async def pull(request: ServerRequest, body: PullRequest) -> Response:
    """Download a model from the Hugging Face Hub, and offer it under the requested name."""
    name = body.model or body.name
    if not request.worker.settings.allow_pull:
        message = (
            "requests cannot download models: start the server with --allow-pull, or with the model; 'pyggml serve "
            "hf:org/repo' downloads one"
        )
        raise RequestError(Failure(403, "invalid", message, "models_are_fixed"))
    if (prefix := _HUB.match(name)) is None:
        message = f"{name!r:.200} is not on the Hugging Face Hub: name a repository, such as hf:org/repo"
        raise errors.invalid(message, "model")
    source = f"hf:{name[prefix.end() :]}"
    pyggml.hub.parse_reference(source)
    lines = _lines(request, name, source)
    if body.stream:
        return stream_lines(request, lines)
    return JSONResponse(await request.cancel_on_disconnect(_last(lines)))


async def _last(lines: AsyncGenerator[Json, None]) -> Json:
    async with contextlib.aclosing(lines):
        *_, last = [line async for line in lines]
    return last


async def _lines(request: ServerRequest, name: str, source: str) -> AsyncGenerator[Json, None]:
    yield {"status": "pulling manifest"}
    loop, stopped = asyncio.get_running_loop(), threading.Event()
    fractions: asyncio.Queue[float] = asyncio.Queue()

    def progress(fraction: float) -> bool:
        loop.call_soon_threadsafe(fractions.put_nowait, fraction)
        return not stopped.is_set()

    fetching = loop.run_in_executor(_ONE_AT_A_TIME, pyggml.hub.fetch, source, progress)
    fetching.add_done_callback(lambda done: done.cancelled() or done.exception())  # no one may await it
    shown = -1
    try:
        while not fetching.done():
            await asyncio.wait({fetching}, timeout=_INTERVAL_S)
            while not fractions.empty():
                completed = int(fractions.get_nowait() * _STEPS)
                if completed > shown:
                    shown = completed
            if shown >= 0:
                yield {"status": f"pulling {source}", "total": _STEPS, "completed": shown}
        await fetching
    finally:
        stopped.set()  # the client may have disconnected
        fetching.cancel()  # has no effect on a download that has begun, which ``stopped`` ends
    request.worker.models.offer(ModelSpec(source, name=name))
    yield {"status": "success"}


# Seconds between two lines.
_INTERVAL_S = 0.2
