"""The models of a server without the server, for tests of how they are loaded and unloaded."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

import pyggml
from pyggml.memory.estimate import estimate
from pyggml.server import ModelSpec, Settings
from pyggml.server.http.errors import RequestError
from pyggml.server.models.pool import ModelPool
from pyggml.server.observability.observer import Observer

T = TypeVar("T")
SMALL: dict[str, Any] = {"n_ctx": 512, "n_threads": 1, "device": "cpu"}
NEED = estimate(**{name: SMALL[name] for name in ("n_ctx", "device")}).total_bytes
PATIENCE_S = 30


class Diary(Observer):
    """A record of loads and unloads, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.loaded: set[str] = set()
        self.most = 0

    def model_loaded(self, name: str, seconds: float) -> None:
        assert seconds > 0
        self.lines.append(f"+{name}")
        self.loaded.add(name)
        self.most = max(self.most, len(self.loaded))

    def model_failed(self, name: str, error: Exception) -> None:
        self.lines.append(f"!{name}: {type(error).__name__}")

    def model_unloaded(self, name: str) -> None:
        self.lines.append(f"-{name}")
        self.loaded.remove(name)


def copied(folder: Path) -> list[Path]:
    """The shipped model as a.gguf, b.gguf and c.gguf, in a folder with a space in its name."""
    home = folder / "my models"
    home.mkdir()
    return [Path(shutil.copy(pyggml.SHIPPED_MODEL, home / f"{name}.gguf")) for name in "abc"]


@contextlib.asynccontextmanager
async def opened(sources: Sequence[Any], diary: Observer | None = None, **options: Any) -> AsyncIterator[ModelPool]:
    """ModelPool that are not loaded yet, closed in the end."""
    specs = tuple(each if isinstance(each, ModelSpec) else ModelSpec(each) for each in sources)
    found = ModelPool(Settings(models=specs, load=SMALL, **options), diary or Diary())
    try:
        yield found
    finally:
        await found.aclose()


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    async def limited() -> T:
        return await asyncio.wait_for(main(), PATIENCE_S)

    return asyncio.run(limited())


async def answer(offered: ModelPool, name: str, n: int = 4) -> tuple[str, str]:
    async with offered.lease(name) as served:
        done = await served.llm.agenerate("Once upon a time", max_tokens=n)
        assert len(done.token_ids) == n
        return served.name, done.text


async def refusal(offered: ModelPool, name: str) -> RequestError:
    with pytest.raises(RequestError) as caught:
        await answer(offered, name)
    return caught.value
