"""Several models: selected by name, loaded on demand, and described before they are loaded."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from support.checkpoints import models
from support.checkpoints.hf_llama import HFLlama
from support.servers import servers
from support.servers.hub_server import HubServer, hub_at
from support.servers.several_models import NEED, PATIENCE_S, SMALL, Diary, answer, copied, opened, refusal, run

import pyggml
from pyggml.server import ModelSpec, Settings, create_app
from pyggml.server.http.errors import RequestError
from pyggml.server.models.pool import DEFAULT, ModelPool
from pyggml.server.observability.observer import Observer


@pytest.fixture
def copies(tmp_path: Path) -> list[Path]:
    return copied(tmp_path)


# --- names ------------------------------------------------------------------------------------------------------


def test_models_are_found_by_their_names(copies: list[Path]) -> None:
    async def main() -> None:
        specs = [ModelSpec(copies[0], aliases=("first", "gpt-4o")), copies[1], ModelSpec(copies[2], "mine:tag")]
        async with opened(specs) as offered:
            assert offered.names == ["a", "b", "mine:tag"]
            found = {name: (await offered.info(name)).name for name in ("", DEFAULT, "a", "gpt-4o", "b:latest")}
            assert found == {"": "a", DEFAULT: "a", "a": "a", "gpt-4o": "a", "b:latest": "b"}
            assert (await offered.info("mine:tag")).name == "mine:tag"
            for unknown in ("A", "mine", "c", "b:q4", str(copies[0]), "hf:org/repo"):
                error = await refusal(offered, unknown)
                assert (error.failure.status, error.failure.code) == (404, "model_not_found")
                assert "'a', 'b', 'mine:tag'" in error.failure.message
            assert offered.loaded == []

    run(main)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (None, "pyggml-demo-q8_0"),
        ("some/where/model.Q4_K_M.gguf", "model.Q4_K_M"),
        ("some/where/model-00001-of-00003.gguf", "model"),
        ("some/Qwen2.5-0.5B/", "Qwen2.5-0.5B"),
        ("hf:org/repo", "org/repo"),
        ("hf:org/repo@main:q4_k_m", "org/repo"),
        (".", Path.cwd().name),
    ],
)
def test_a_model_is_called_after_its_file_or_repository(source: str | None, name: str) -> None:
    assert ModelPool(Settings(models=(ModelSpec(source),)), Observer()).names == [name]


@pytest.mark.parametrize(
    "specs",
    [
        (ModelSpec("x/a.gguf"), ModelSpec("y/a.gguf")),
        (ModelSpec("x/a.gguf"), ModelSpec("b.gguf", aliases=("a",))),
        (ModelSpec("hf:org/repo:q4_0"), ModelSpec("hf:org/repo:q8_0")),
        (ModelSpec(None), ModelSpec(None)),
    ],
)
def test_two_of_one_name_are_refused_at_once(specs: tuple[ModelSpec, ...]) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match=r"have the same name .*another name"):
        create_app(Settings(models=specs))


# --- loading ----------------------------------------------------------------------------------------------------


def test_the_first_is_loaded_at_the_start_and_the_others_when_asked_for(copies: list[Path]) -> None:
    async def main() -> None:
        diary = Diary()
        async with opened(copies, diary) as offered:
            assert offered.not_ready_reason() == "the model is being loaded"  # whoever asks begins to load it
            await offered.start()
            assert diary.lines == ["+a"]
            assert offered.not_ready_reason() is None
            assert await answer(offered, "c") == ("c", (await answer(offered, DEFAULT))[1])
            assert diary.lines == ["+a", "+c"]
        assert diary.lines == ["+a", "+c", "-a", "-c"]

    run(main)


def test_all_are_loaded_at_the_start_if_asked_as_far_as_there_is_room(copies: list[Path]) -> None:
    async def main() -> None:
        two: dict[str, Any] = {"max_memory": 2 * NEED + 1000}
        for options, expected in (({}, ["+a", "+b", "+c"]), (two, ["+a", "+b", "!c: OutOfMemoryError"])):
            diary = Diary()
            async with opened(copies, diary, load_all=True, **options) as offered:
                await offered.start()
                assert diary.lines == expected

    run(main)


def test_one_load_serves_all_who_wait(copies: list[Path]) -> None:
    async def main() -> None:
        diary = Diary()
        async with opened(copies, diary) as offered:
            answers = await asyncio.gather(*(answer(offered, "b") for _ in range(16)))
            assert len(set(answers)) == 1
            assert diary.lines == ["+b"]

    run(main)


def test_who_waits_may_leave_without_harm_to_the_others(copies: list[Path]) -> None:
    async def main() -> None:
        diary = Diary()
        async with opened(copies, diary) as offered:
            tasks = [asyncio.create_task(answer(offered, "a")) for _ in range(4)]
            await asyncio.sleep(0)
            for task in tasks[:3]:
                task.cancel()
            assert (await tasks[3])[0] == "a"
            assert all(task.cancelled() for task in tasks[:3])
            assert diary.lines == ["+a"]

    run(main)


def test_a_load_goes_on_when_everybody_has_left(copies: list[Path]) -> None:
    async def main() -> None:
        diary = Diary()
        async with opened(copies, diary) as offered:
            task = asyncio.create_task(answer(offered, "a"))
            while offered._states[offered._catalogue.default].stage != "load":
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
            await offered.start()
            assert diary.lines == ["+a"]

    run(main)


def test_it_closes_while_it_loads(copies: list[Path]) -> None:
    async def main() -> None:
        async with opened(copies, max_loaded_models=1) as offered:
            tasks = [asyncio.create_task(answer(offered, name)) for name in "abcabc"]
            await asyncio.sleep(0.01)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, (tuple, RequestError, pyggml.ClosedError)) for each in results), results
        assert offered.loaded == []

    run(main)


@pytest.mark.slow
def test_a_model_works_in_one_loop_after_another(copies: list[Path]) -> None:
    offered = ModelPool(Settings(models=tuple(map(ModelSpec, copies)), load=SMALL, max_loaded_models=1), Observer())
    for _ in range(3):
        found = run(lambda: _all(offered, "abcabc"))
        assert [name for name, _ in found] == list("abcabc")
    asyncio.run(offered.aclose())


async def _all(offered: ModelPool, names: str) -> list[tuple[str, str]]:
    return await asyncio.gather(*(answer(offered, name) for name in names))


# --- what cannot be loaded --------------------------------------------------------------------------------------


def test_a_broken_model_answers_why_and_is_read_again_once_it_is_repaired(copies: list[Path]) -> None:
    async def main() -> None:
        diary = Diary()
        whole = copies[1].read_bytes()
        copies[1].write_bytes(whole[:5000])
        async with opened(copies, diary) as offered:
            await offered.start()
            errors = await asyncio.gather(*(refusal(offered, "b") for _ in range(8)))
            assert {error.failure.status for error in errors} == {503}
            assert {error.failure.code for error in errors} == {"model_not_loaded"}
            (message,) = {error.failure.message for error in errors}
            assert message.startswith("the model 'b' cannot be loaded: b.gguf is damaged or cut short")
            assert "my models" not in message
            assert "/" not in message
            again = await refusal(offered, "b")
            assert again.failure.message == message
            assert diary.lines == ["+a", "!b: ModelLoadError"]  # it was read once
            assert (await offered.info("b")).architecture is None

            copies[1].write_bytes(whole)
            await asyncio.sleep(1.0)
            assert (await answer(offered, "b"))[0] == "b"
            assert (await offered.info("b")).architecture == "llama"

    run(main)


def test_a_file_that_is_gone_says_nothing_of_its_neighbours(copies: list[Path]) -> None:
    async def main() -> None:
        async with opened(copies) as offered:
            copies[1].unlink()
            with pytest.raises(pyggml.ModelNotFoundError, match="no model file"):
                await offered.start()  # whoever starts it is told everything
        async with opened(copies) as offered:
            failure = (await refusal(offered, "b")).failure
            assert (failure.status, failure.message) == (503, "the model 'b' cannot be loaded: its file does not exist")

    run(main)


def test_a_first_model_that_is_broken_keeps_the_server_from_starting(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "bad.gguf").write_bytes(b"hello")
        async with opened([tmp_path / "bad.gguf"]) as offered:
            with pytest.raises(pyggml.ModelLoadError, match=r"is not a GGUF file"):
                await offered.start()

    run(main)


def test_a_reference_is_downloaded_when_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(hub: HubServer) -> None:
        diary = Diary()
        async with opened([None, "hf:tiny/stories", "hf:tiny/gone"], diary) as offered:
            await offered.start()
            assert not hub.requests
            found = await asyncio.gather(*(answer(offered, "tiny/stories") for _ in range(4)))
            assert {name for name, _ in found} == {"tiny/stories"}
            assert len(hub.asked("GET", "stories.gguf")) == 1
            assert diary.lines == ["+pyggml-demo-q8_0", "+tiny/stories"]
            info = await offered.info("tiny/stories:latest")
            assert (info.kind, info.architecture, info.file_type) == ("hub", "llama", "Q8_0")

            failure = (await refusal(offered, "tiny/gone")).failure
            assert (failure.status, failure.code) == (503, "model_not_loaded")
            assert failure.message.startswith("the model 'tiny/gone' cannot be loaded: there is no tiny/gone at ")

    with hub_at(tmp_path, monkeypatch) as hub:
        hub.add("tiny/stories", {"stories.gguf": pyggml.SHIPPED_MODEL.read_bytes()})
        run(lambda: main(hub))


def test_downloads_leave_threads_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(_source: str, goes_on: Callable[[Any], bool]) -> Path:  # from a hub that sends nothing
        while goes_on(None):
            time.sleep(0.01)
        raise pyggml.DownloadError("it was stopped")

    async def main() -> None:
        names = [f"tiny/{i}" for i in range(40)]
        async with opened([None, *(f"hf:{name}" for name in names)]) as offered:
            waiting = [asyncio.create_task(answer(offered, name)) for name in names]
            await asyncio.sleep(0)
            assert await answer(offered, DEFAULT)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    monkeypatch.setattr(pyggml.hub, "fetch", fetch)
    run(main)


def test_a_directory_is_imported_when_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYGGML_CACHE", str(tmp_path / "cache"))
    HFLlama().write(tmp_path / "Llama-9.1-Tiny")

    async def main() -> None:
        async with opened([None, tmp_path / "Llama-9.1-Tiny"]) as offered:
            before = await offered.info("Llama-9.1-Tiny")
            assert (before.architecture, before.is_loaded) == ("llama", False)
            assert (await answer(offered, "Llama-9.1-Tiny"))[0] == "Llama-9.1-Tiny"
            after = await offered.info("Llama-9.1-Tiny")
            assert after.is_loaded
            assert after.n_params == before.n_params

    run(main)


# --- what is known ----------------------------------------------------------------------------------------------


def test_what_is_known_of_a_model_before_it_is_loaded_and_after(copies: list[Path]) -> None:
    async def main() -> None:
        with pyggml.load() as llm:
            size, n_params = llm.model.size_bytes, llm.model.n_params
        async with opened([None, copies[1], "hf:org/repo"]) as offered:
            before, _, remote = await offered.infos()
            await answer(offered, DEFAULT)
            after = await offered.info()
            for info in (before, after):
                assert (info.name, info.kind, info.architecture) == ("pyggml-demo-q8_0", "shipped", "llama")
                assert (info.size_bytes, info.n_params, info.n_ctx, info.file_type) == (size, n_params, 512, "Q8_0")
                assert info.file_bytes == pyggml.SHIPPED_MODEL.stat().st_size
                assert info.created == int(pyggml.SHIPPED_MODEL.stat().st_mtime)
            assert (before.is_loaded, after.is_loaded) == (False, True)
            assert (before.memory_bytes, after.memory_bytes) == (None, NEED)
            assert (remote.name, remote.kind, remote.architecture, remote.report) == ("org/repo", "hub", None, None)

    run(main)


# --- as an application ------------------------------------------------------------------------------------------


def test_over_http(copies: list[Path]) -> None:
    app = create_app(copies, load=SMALL, max_loaded_models=1)
    with servers.serving(app) as url:
        assert httpx.get(f"{url}/health").json()["model"] == "a"
        for name in ("b", "a", "c"):
            answered = httpx.post(f"{url}/tokenize", json={"model": name, "content": "Once"}, timeout=PATIENCE_S)
            assert answered.status_code == 200
        health = httpx.get(f"{url}/health").json()  # the first is not loaded any more
        assert (health["model"], health["architecture"], health["model_size_bytes"]) == ("a", "llama", 3701760)
        assert httpx.get(f"{url}/ready").status_code == 200
        missing = httpx.post(f"{url}/tokenize", json={"model": "d", "content": "Once"})
        assert missing.status_code == 404
        assert "'a', 'b', 'c'" in missing.json()["error"]["message"]


def test_an_open_model_is_served_and_left_open(own_llm: pyggml.LLM, tiny_path: Path) -> None:
    app = create_app([own_llm, tiny_path], max_loaded_models=1)
    with servers.serving(app) as url:
        for name in (DEFAULT, "tiny", "pyggml-demo-q8_0"):
            answered = httpx.post(f"{url}/tokenize", json={"model": name, "content": "Once"}, timeout=PATIENCE_S)
            assert answered.status_code == 200
        assert len(app.state.worker.models.loaded) == 2
    assert own_llm.generate("Once", max_tokens=2).token_ids


@pytest.mark.slow
def test_a_model_that_only_embeds(bert_path: Path, tiny_path: Path) -> None:
    app = create_app([bert_path, tiny_path], max_loaded_models=1)
    with servers.serving(app) as url:
        for name in (DEFAULT, "tiny", "bert"):
            body = {"model": name, "input": "Hello"}
            assert httpx.post(f"{url}/v1/embeddings", json=body, timeout=PATIENCE_S).status_code == 200
        assert httpx.get(f"{url}/ready").status_code == 200
        refused = httpx.post(f"{url}/v1/completions", json={"model": "bert", "prompt": "Hello"})
        assert refused.status_code == 400
        message = refused.json()["error"]["message"]
        assert "(bert.gguf) does not generate text" in message, message


def test_in_another_application_whose_lifespan_begins_and_ends_it() -> None:
    async def main() -> None:
        inner = create_app(load=SMALL)
        models = inner.state.worker.models

        @contextlib.asynccontextmanager
        async def lifespan(_app: Starlette) -> AsyncIterator[None]:
            async with inner.router.lifespan_context(inner):
                yield

        outer = Starlette(routes=[Mount("/llm", inner)], lifespan=lifespan)
        for _ in range(2):  # it can be started again
            async with outer.router.lifespan_context(outer):
                assert len(models.loaded) == 1
                async with httpx.AsyncClient(
                    transport=httpx.ASGITransport(outer), base_url="http://localhost"
                ) as client:
                    assert (await client.post("/llm/tokenize", json={"content": "Once"})).json()["tokens"]
            assert models.loaded == []

    run(main)


def test_without_a_lifespan_the_first_request_loads() -> None:
    async def main() -> None:
        app = create_app(load=SMALL)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            assert (await client.get("/health")).json()["architecture"] == "llama"
            assert (await client.post("/tokenize", json={"content": "Once"})).json()["tokens"]
            assert (await client.get("/ready")).json() == {"ready": True, "reason": None}
        await app.state.worker.models.aclose()

    run(main)


@pytest.mark.slow
def test_the_loop_runs_while_a_model_loads(tmp_path: Path) -> None:
    """A file of 100,000 tokens takes long enough to load to be noticed."""

    async def main() -> None:
        words = [f"word{i}" for i in range(100_000)]
        path = models.write_llama(tmp_path / "wide.gguf", models.byte_vocabulary(words=words))
        async with opened([path]) as offered:
            loading = asyncio.create_task(answer(offered, DEFAULT))
            loop = asyncio.get_running_loop()
            longest, before = 0.0, loop.time()
            while not loading.done():
                await asyncio.sleep(0.001)
                longest, before = max(longest, loop.time() - before), loop.time()
            await loading
            assert longest < 0.5, longest

    run(main)
