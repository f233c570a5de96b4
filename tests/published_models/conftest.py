"""Published models that ``tools/real_models.py`` has fetched, shared by all files; without them the tests skip."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import real_models
from support.servers import servers

import pyggml
from pyggml.server import ModelSpec, Settings, create_app


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.real)


def published(name: str) -> Path:
    path = real_models.path(name)
    if path is None:
        pytest.skip(f"{real_models.MODELS[name].file} is not in the cache: run python tools/real_models.py")
    return path


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    return published("smollm2")


@pytest.fixture(scope="session", params=real_models.MODELS)
def model_path(request: pytest.FixtureRequest) -> Path:
    return published(request.param)


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> Iterator[pyggml.LLM]:
    with pyggml.load(smollm2_path, n_ctx=8192, n_parallel=16) as llm:
        llm.embed(".", pooling="mean")  # opens a context for embeddings; in a test it would count as a leak
        yield llm


@pytest.fixture(scope="session")
def url(smollm2_path: Path) -> Iterator[str]:
    """A server of it, which decodes greedily unless a request says otherwise."""
    spec = ModelSpec(str(smollm2_path), name="smollm2")
    app = create_app(Settings(models=(spec,), load={"n_ctx": 4096}, sampling={"temperature": 0}))
    with servers.serving(app) as url:
        httpx.post(f"{url}/v1/embeddings", json={"input": "."}, timeout=60).raise_for_status()  # as above
        yield url
