"""docs/how-to/migrate-from-other-libraries.md: the right-hand column runs, with a hub on loopback for repositories."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.checkpoints import lora_files
from support.checkpoints.hf_llama import HFLlama
from support.paths import ROOT
from support.servers.hub_server import hub_at
from support.servers.servers import ServerProcess

import pyggml
from pyggml.source import SHIPPED_MODEL

PAGE = ROOT / "docs" / "how-to" / "migrate-from-other-libraries.md"
NAMES = re.search(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| (.*) \| `([^`]+)` \|$", re.MULTILINE)
CELLS = [(theirs, ours.replace(r"\|", "|")) for theirs, ours in ROW.findall(PAGE.read_text())]
REPOSITORIES = {"Qwen/Qwen3-0.6B-GGUF": "Qwen3-0.6B-Q8_0.gguf"}


@pytest.fixture
def names() -> Iterator[dict[str, Any]]:
    """Names that the page's Python block defines."""
    assert NAMES is not None
    found: dict[str, Any] = {}
    exec(NAMES[1], found)
    with found["llm"]:
        yield found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory for the cells, with a model, an adapter, a checkpoint and a text."""
    shutil.copy(SHIPPED_MODEL, tmp_path / "model.gguf")
    lora_files.write_adapter(tmp_path / "law.gguf", SHIPPED_MODEL)
    HFLlama().write(tmp_path / "my-model")
    (tmp_path / "text.txt").write_text("Once upon a time, there was a little dog named Max. " * 20)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYGGML_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_the_page_has_rows_for_every_library() -> None:
    sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    counts = {section.splitlines()[0]: len(ROW.findall(section)) for section in sections}
    assert counts.pop("Missing features") == 0
    assert len(counts) == 8
    assert min(counts.values()) >= 3
    table_lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert len(CELLS) == len(table_lines) - 2 * len(counts), "a row that the tests do not see"


@pytest.mark.slow_except(every=35)
@pytest.mark.parametrize(("theirs", "ours"), CELLS, ids=[ours[:60] for _, ours in CELLS])
def test_the_right_column_runs(
    theirs: str,  # noqa: ARG001 - read in failures
    ours: str,
    names: dict[str, Any],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with hub_at(folder, monkeypatch) if "hf" in ours else nullcontext() as hub:
        if hub is not None:
            for repository, file in REPOSITORIES.items():
                hub.add(repository, {file: SHIPPED_MODEL.read_bytes()})
            hub.add("HuggingFaceTB/SmolLM2-135M-Instruct", _files(folder / "my-model"))
        if ours.startswith("pyggml serve"):
            _serve(ours, folder)
        elif ours.split()[0] in ("pyggml", "echo"):
            _type(ours)
        else:
            _run(ours, names)


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _serve(line: str, folder: Path) -> None:
    (folder / "keys.txt").write_text("sk-1\n")
    env = {"PYGGML_CACHE": str(folder / "cache")}
    with ServerProcess(*shlex.split(line)[2:], env=env) as server:
        asked = httpx.get(f"{server.url}/v1/models", headers={"authorization": "Bearer sk-1"}, timeout=60)
        assert len(asked.raise_for_status().json()["data"]) == 1 + line.count("--lora ")


def _type(line: str) -> None:
    program = f'pyggml() {{ "{sys.executable}" -m pyggml "$@"; }}\n{line}'
    done = subprocess.run(["sh", "-c", program], input="What colour is the sky?\n", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def _run(code: str, names: dict[str, Any]) -> None:
    """Runs a statement, or an expression whose value it closes where that can be closed; both may await."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        compiled = compile(code, "<cell>", "eval", flags)
    except SyntaxError:
        compiled = compile(code, "<cell>", "exec", flags)
    value = eval(compiled, {**names})
    if inspect.iscoroutine(value):
        value = asyncio.run(value)
    if isinstance(value, pyggml.LLM):
        value.close()
