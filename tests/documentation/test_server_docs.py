"""docs/reference/server.md: its curl lines and programs run against a server, and its tables are current."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import make_server_options
import pytest
from support.paths import ROOT
from support.servers.servers import ServerProcess, serving

from pyggml.server import PartialSettings, create_app, read_settings

TEXT = (ROOT / "docs" / "reference" / "server.md").read_text()
ADDRESS = "http://127.0.0.1:8080"
CONSOLE = re.compile(r"^```console\n(\$ (?:PYGGML|curl).*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"\$ ((?:[^\n]*\\\n)*[^\n]*)\n(.*)", re.DOTALL)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ServerProcess() as server:
        yield server.url


@pytest.mark.slow_except(every=2)
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
@pytest.mark.parametrize("block", CONSOLE.findall(TEXT), ids=lambda block: block.split("--json")[0].split("\n")[0])
def test_command_lines_print_what_is_shown(block: str, url: str) -> None:
    found = COMMAND.fullmatch(block)
    assert found is not None
    line, shown = found[1].replace(ADDRESS, url), found[2].rstrip()
    run = f'pyggml() {{ "{sys.executable}" -m pyggml "$@"; }}\n{line}'
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYGGML_")}
    done = subprocess.run(["sh", "-c", run], capture_output=True, text=True, env=env, check=False)
    anything = ".*".join(map(re.escape, shown.split("...")))
    assert re.fullmatch(anything, (done.stdout + done.stderr).rstrip(), re.DOTALL), (done.stdout, done.stderr)


def test_there_are_such_lines() -> None:
    assert len(CONSOLE.findall(TEXT)) >= 9
    assert TEXT.count("$ curl") == sum(block.count("$ curl") for block in CONSOLE.findall(TEXT))


def test_openais_client_gets_an_answer(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    program = next(block for block in blocks("py") if "OpenAI" in block)
    names: dict[str, object] = {}
    exec(program.replace(ADDRESS, url), names)
    names["client"].close()  # type: ignore[attr-defined]
    assert capsys.readouterr().out == "The sky is blue.\n"


def test_it_is_mounted_in_another_application() -> None:
    names: dict[str, object] = {}
    exec(next(block for block in blocks("python") if "mount" in block), names)
    with serving(names["app"]) as url:  # type: ignore[arg-type]
        body = {"messages": [{"role": "user", "content": "What colour is the sky?"}], "temperature": 0}
        answer = httpx.post(f"{url}/llm/v1/chat/completions", json=body, timeout=60).json()
        assert answer["choices"][0]["message"]["content"] == "The sky is blue."


def test_the_file_can_be_used(tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    path.write_text(blocks("toml")[0])
    (tmp_path / "keys.txt").write_text("sk-1\n")
    (tmp_path / "model.gguf").touch()
    settings = read_settings(PartialSettings(), {}, path)
    assert [each.key for each in settings.read_api_keys()] == ["sk-1"]
    assert [model.source for model in settings.models] == ["hf:Qwen/Qwen3-0.6B-GGUF", str(tmp_path / "model.gguf")]
    assert settings.load_options(settings.models[1]) == {"max_queue": 512, "n_ctx": 4096, "n_parallel": 8}


@pytest.mark.slow
def test_the_table_of_options_is_that_of_today() -> None:
    assert make_server_options.refreshed(TEXT) == TEXT, "run python tools/make_server_options.py"


@pytest.mark.slow
def test_the_table_of_paths_is_that_of_the_application() -> None:
    table = TEXT.partition("| Clients of |")[2].partition("\n\n")[0]
    listed = {*re.findall(r"`(/[\w/-]+)`", table)}
    app = create_app(page=False)
    there = {path for path in (getattr(route, "path", "") for route in app.routes) if "{" not in path}
    asyncio.run(app.state.worker.models.aclose())
    assert len(listed) > 15
    assert listed <= there
    said = {*re.findall(r"/[\w/-]*(?:\.json)?", TEXT)}
    assert there <= said


def test_the_versions_of_clients_are_those_of_the_tests() -> None:
    table = TEXT.partition("The tests use these clients")[2].partition("\n\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| ([a-z-]+) \| (\d[\d.]*\d)", table, re.MULTILINE)
    assert len(rows) >= 6
    required = (ROOT / "pyproject.toml").read_text()
    for name, version in rows:
        assert re.search(rf'"{name}(\[\w+\])?>={re.escape(version)}["; ]', required), f"{name} {version}"
