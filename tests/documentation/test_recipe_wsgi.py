"""docs/how-to/embed-in-flask-and-django.md under real servers: Flask's, Django's, and gunicorn with both."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import pytest
from support import recipes
from support.event_loops import until
from support.recipes import LONG, Server, chat

N_PARALLEL, MAX_QUEUE = 8, 16  # as the page has them

#: The page's commands, and how each is told where to listen.
STARTS = {
    "flask": ("flask run", "--port {}"),
    "django": ("python manage.py runserver --noreload", "{}"),
    "gunicorn-flask": ("gunicorn app:app", "--bind 127.0.0.1:{}"),
    "gunicorn-django": ("gunicorn manage:application", "--bind 127.0.0.1:{}"),
}
OTHERS = [kind for kind in STARTS if kind != "flask"]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's programs, and a model that talks until it is stopped."""
    directory = recipes.write_programs("embed-in-flask-and-django", tmp_path_factory.mktemp("wsgi"))
    recipes.write_talker(directory / "talker.gguf")
    return directory


@contextlib.contextmanager
def serve(programs: Path, kind: str, *options: str) -> Iterator[Server]:
    port, (start, where) = recipes.free_port(), STARTS[kind]
    words = [*recipes.command("embed-in-flask-and-django", start), *where.format(port).split(), *options]
    with recipes.serve(words, programs, port, MODEL=str(programs / "talker.gguf")) as server:
        yield server
    assert not server.complaints()


@pytest.fixture(
    scope="module", params=["flask", *(pytest.param(k, marks=pytest.mark.slow) for k in STARTS if k != "flask")]
)
def server(request: pytest.FixtureRequest, programs: Path) -> Iterator[Server]:
    with serve(programs, request.param) as server:
        yield server


@pytest.mark.slow
def test_it_streams_events(server: Server) -> None:
    with server.open("/chat", chat(max_tokens=20)) as answer:
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = answer.read().strip().split("\n\n")
    assert all(event.startswith('data: {"content":') for event in events)
    assert '"finish_reason": "length"' in events[-1]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (chat("a dog " * 10_000), "shorten the prompt"),
        ({"messages": [{"role": "usr", "content": "Hello"}]}, "roles are"),
        (chat(max_tokens="many"), "max_tokens"),
    ],
    ids=["too long", "unknown role", "no number"],
)
def test_what_is_wrong_is_a_400(server: Server, body: dict[str, Any], words: str) -> None:
    with server.open("/chat", body) as answer:
        assert answer.status == 400
        assert words in answer.read()


def test_who_goes_away_is_not_computed_for(server: Server) -> None:
    before = server.ask("/stats")["n_generated_tokens"]
    with server.open("/chat", LONG) as answer:
        answer.some()
    until(server.is_idle)
    assert server.ask("/stats")["n_generated_tokens"] < before + 4096


@pytest.mark.slow
def test_a_full_queue_is_a_429(server: Server) -> None:
    with ThreadPoolExecutor(N_PARALLEL + MAX_QUEUE) as pool:
        opened = list(pool.map(lambda _: server.open("/chat", LONG), range(N_PARALLEL)))
        until(lambda: server.ask("/stats")["n_running"] == N_PARALLEL)
        waiting = [pool.submit(server.open, "/chat", LONG) for _ in range(MAX_QUEUE)]
        until(lambda: server.ask("/stats")["n_queued"] == MAX_QUEUE)
        with server.open("/chat", LONG) as refused:
            assert refused.status == 429
            assert "16" in refused.read()
        for answer in opened:
            answer.close()
        for waited in as_completed(waiting):
            with waited.result() as answer:
                assert answer.status == 200
    until(server.is_idle)


@pytest.mark.slow
def test_without_json_it_is_a_client_error(server: Server) -> None:
    with server.open("/chat") as answer:
        assert answer.status == 405


@pytest.mark.slow
@pytest.mark.parametrize("options", [("--workers", "2"), ("--workers", "2", "--preload")], ids=["workers", "preload"])
def test_each_worker_loads_its_own_model(programs: Path, options: tuple[str, ...]) -> None:
    def ask(server: Server) -> int:
        with server.open("/chat", chat(max_tokens=20)) as answer:
            assert '"finish_reason": "length"' in answer.read()
            return answer.status

    with serve(programs, "gunicorn-flask", *options) as server, ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, [server] * 40)) == [200] * 40
        master = server.process.pid
        workers = Path(f"/proc/{master}/task/{master}/children").read_text().split()
        assert [has_model(process) for process in [str(master), *workers]] == [False, True, True]


def has_model(process: str) -> bool:
    return "talker.gguf" in Path(f"/proc/{process}/maps").read_text()


@pytest.mark.slow
def test_a_model_from_before_the_fork_says_so(programs: Path, tmp_path: Path) -> None:
    for file in programs.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "early.py").write_text("from app import app\nfrom model import model\nmodel()\n")
    (tmp_path / "gunicorn.conf.py").unlink()
    port, (start, where) = recipes.free_port(), STARTS["gunicorn-flask"]
    words = [word.replace("app:app", "early:app") for word in recipes.command("embed-in-flask-and-django", start)]
    words += [*where.format(port).split(), "--preload", "--threads", "4"]
    with (
        recipes.serve(words, tmp_path, port, MODEL=str(programs / "talker.gguf")) as server,
        server.open("/chat", chat(max_tokens=5)) as answer,
    ):
        assert answer.status == 503
        assert "before a fork" in answer.read()
