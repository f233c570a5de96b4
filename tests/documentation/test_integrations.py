"""The page with results of frameworks' tests: written from the kept results, with a row for each suite."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import make_integrations
import pytest
import run_llama_cpp_programs
from support.paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GUIDE = ROOT / "docs" / "how-to" / "use-with-frameworks.md"
# Sections whose frameworks are in this environment -> what their examples print.
HERE = {"LangChain": "The sky is blue.", "Pydantic AI": "The sky is blue.", "sentence-transformers' interface": "[["}

KEPT = json.loads(make_integrations.KEPT.read_text())


def test_the_page_shows_the_results() -> None:
    text = make_integrations.PAGE.read_text(encoding="utf-8")
    assert make_integrations.written(text, KEPT) == text, "python tools/make_integrations.py"


def test_every_suite_was_run_and_passed() -> None:
    clients = ROOT / "tests" / "clients"
    folders = {"http": clients, "in_process": clients / "in_process", "compat": clients / "compat"}
    suites = {kind: {_suite(path) for path in folder.glob("test_*.py")} for kind, folder in folders.items()}
    suites["http"].add("vercel-ai")
    assert suites == {kind: set(titles) for kind, titles in make_integrations.TITLES.items()}
    assert {f"{name}-{kind}" for kind, names in suites.items() for name in names} == set(KEPT), "make test-clients"
    assert {name: suite["failed"] for name, suite in KEPT.items() if suite["failed"]} == {}


def test_every_suite_has_an_environment() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = {name for name in project["dependency-groups"] if name.startswith(("client-", "compat-"))}
    titles = make_integrations.TITLES
    clients = {f"client-{name}" for name in (*titles["in_process"], *titles["http"]) if name != "vercel-ai"}
    assert groups == clients | {f"compat-{name}" for name in titles["compat"]}


def _suite(path: Path) -> str:
    return path.stem.removeprefix("test_").replace("_", "-")


def test_results_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_integrations, "RESULTS", tmp_path)
    (tmp_path / "llm-http.json").write_text('{"llm": "1"}')
    (tmp_path / "llm-http.xml").write_text(
        "<testsuites><testsuite><testcase/><testcase><failure/></testcase><testcase><skipped message='too  small.'/>"
        "</testcase><testcase><skipped type='pytest.xfail' message='too small'/></testcase></testsuite></testsuites>"
    )
    expected = {"versions": {"llm": "1"}, "passed": 1, "failed": 1, "skipped": {"Too small.": 2}}
    assert make_integrations.read("llm-http") == expected
    assert make_integrations.read("llm-in_process") is None


def test_public_programs_were_run() -> None:
    listed = run_llama_cpp_programs.programs()
    assert len(listed) == 10
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for program in listed for digest in program.files.values())
    kept = json.loads(run_llama_cpp_programs.KEPT.read_text(encoding="utf-8"))
    assert set(kept) == {program.repository for program in listed}
    assert run_llama_cpp_programs.table(kept) in make_integrations.PAGE.read_text(encoding="utf-8")
    for found in kept.values():
        assert found["pyggml"] == "runs" or found["llama_cpp"].startswith(found["pyggml"]), found


def test_only_the_import_of_a_program_is_changed() -> None:
    source = "import os\nfrom llama_cpp.llama import Llama\nprint(Llama)\n"
    assert run_llama_cpp_programs.changed(source) == source.replace("llama_cpp", "pyggml.compat.llama_cpp")
    with pytest.raises(ValueError, match="0 lines"):
        run_llama_cpp_programs.changed("import os\n")


def test_shapes_of_results_are_compared() -> None:
    shape_of = run_llama_cpp_programs.shape_of
    choice = {"text": "a", "logprobs": {"token_logprobs": [None, -1.0], "top_logprobs": [None, {" a": -1.0}]}}
    other = {"text": "b", "logprobs": {"token_logprobs": [None, -2.0], "top_logprobs": [None, {" b": -2.0, "c": -3.0}]}}
    assert shape_of(choice) == shape_of(other)
    assert shape_of(choice) != shape_of({"text": "a", "logprobs": None})


@pytest.fixture
def event_loop_of_thread() -> Iterator[None]:
    """The thread's event loop, closed afterwards: Pydantic AI's run_sync would create one and leave it open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


@pytest.mark.usefixtures("event_loop_of_thread")
@pytest.mark.parametrize("section", HERE)
def test_examples_of_the_guide_run(section: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = GUIDE.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].partition("\n## ")[0]
    (block,) = re.findall(r"^```py\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    exec(block.replace('"model.gguf"', "None"), {"__name__": section})
    assert HERE[section] in capsys.readouterr().out
