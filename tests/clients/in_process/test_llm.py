"""The command ``llm`` and its Python interface, with pyggml's plugin found by entry point."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import llm
import pytest

SMOLLM2 = os.environ["PYGGML_TEST_MODEL"]
QUESTION, SAID = "What colour is the sky?", "The sky is blue."
PET = {
    "type": "object",
    "properties": {"kind": {"enum": ["cat", "dog"]}, "tame": {"type": "boolean"}},
    "required": ["kind", "tame"],
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("llm")


@pytest.fixture(autouse=True)
def user_path(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_USER_PATH", str(home))


def command(*arguments: str, code: int = 0, given: str = "") -> str:
    """Runs ``llm``, and returns its output or, if it must fail, its error."""
    # In another folder than the checkout, whose package has no compiled module unless it was built there.
    run = functools.partial(subprocess.run, cwd=Path(__file__).parent, timeout=120, check=False)
    done = run([sys.executable, "-m", "llm", *arguments], capture_output=True, text=True, input=given)
    assert done.returncode == code, done.stderr
    return (done.stderr if code else done.stdout).strip()


def test_the_command_answers_and_continues() -> None:
    demo = "-m", "pyggml/demo", "-o", "temperature", "0"
    assert "pyggml/demo" in command("models", "list")
    assert command(*demo, QUESTION) == SAID
    assert command(*demo, "--no-stream", QUESTION) == SAID
    assert command(*demo, "-s", "Answer in one word.", QUESTION) == "Blue."
    (logged,) = json.loads(command("logs", "list", "--json", "-n", "1"))
    assert (logged["model"], logged["response"], logged["output_tokens"] > 0) == ("pyggml/demo", "Blue.", True)
    assert command("-c", "And what colour is grass?")


def test_options_are_the_sampling_parameters() -> None:
    assert command("-m", "pyggml/demo", "-o", "temperature", "0", "-o", "max_tokens", "2", QUESTION) == "The sky"
    assert "unknown" not in command("models", "--options", "-q", "pyggml/demo")
    refused = command("-m", "pyggml/demo", "-o", "top_p", "7", QUESTION, code=1)
    assert "top_p" in refused


def test_schemas() -> None:
    found = command("-m", "pyggml/demo", "--schema", json.dumps(PET), "-o", "temperature", "0", "A pet as JSON")
    assert json.loads(found)["kind"] in ("cat", "dog")


def test_attachments_are_refused(tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    assert "attachments" in command("-m", "pyggml/demo", "-a", str(picture), QUESTION, code=1)


def test_models_are_added_by_name(tmp_path: Path) -> None:
    said = command("pyggml", "add", "small", SMOLLM2, "--load", "n_ctx", "1024")
    assert said.startswith("llm -m pyggml/small runs ")
    assert f"pyggml/small: {SMOLLM2} n_ctx=1024" in command("pyggml", "list")
    assert command("-m", "pyggml/small", "-o", "max_tokens", "3", "Hello")
    command("pyggml", "remove", "small")
    assert "pyggml/small" not in command("models", "list")
    assert "does not exist" in command("pyggml", "add", "none", str(tmp_path / "none.gguf"), code=1)
    assert "demonstration" in command("pyggml", "add", "demo", SMOLLM2, code=1)


def test_embeddings() -> None:
    vector = json.loads(command("embed", "-m", "pyggml/demo", "-c", "a dog"))
    assert sum(value**2 for value in vector) == pytest.approx(1, abs=1e-3)
    model = llm.get_embedding_model("pyggml/demo")
    first, second = model.embed_multi(["a dog", "a cat"])
    assert first == pytest.approx(vector, abs=1e-5)
    assert first != second


def get_weather(city: str) -> str:
    """Tells the weather in a city."""
    return f"It rains in {city}."


@pytest.mark.parametrize("stream", [True, False])
def test_tools_are_called_and_their_results_sent_back(stream: bool) -> None:
    model = _smollm2()
    options = {"temperature": 0, "max_tokens": 64}
    first = model.prompt("Use the tool: weather in Oslo?", tools=[get_weather], stream=stream, **options)
    text = first.text()
    calls = first.tool_calls()
    assert calls or text  # a model of this size may answer instead
    made = llm.ToolCall(name="get_weather", arguments={"city": "Oslo"}, tool_call_id="call_1")
    told = [
        llm.user("What is the weather in Oslo?"),
        llm.assistant(llm.parts.ToolCallPart(name=made.name, arguments=made.arguments, tool_call_id="call_1")),
        llm.tool_message(llm.parts.ToolResultPart(name="get_weather", output="It rains.", tool_call_id="call_1")),
    ]
    assert model.prompt(messages=told, tools=[get_weather], stream=stream, **options).text()


def test_conversations_stream_events() -> None:
    conversation = llm.get_model("pyggml/demo").conversation()
    response = conversation.prompt(QUESTION, temperature=0)
    assert "".join(event.chunk for event in response.stream_events() if event.type == "text") == SAID
    assert response.usage().input > 0
    assert conversation.prompt("Why?", temperature=0, max_tokens=5).text()


def test_coroutines() -> None:
    async def main() -> tuple[str, str, list[str]]:
        model = llm.get_async_model("pyggml/demo")
        pieces = [piece async for piece in model.prompt(QUESTION, temperature=0)]
        whole = await model.prompt(QUESTION, temperature=0, stream=False).text()
        return whole, (await model.prompt("A pet as JSON", schema=PET, temperature=0).text()), pieces

    whole, pet, pieces = asyncio.run(main())
    assert whole == "".join(pieces) == SAID
    assert set(json.loads(pet)) == {"kind", "tame"}


def _smollm2() -> Any:
    from pyggml.integrations.llm import PyggmlModel

    return PyggmlModel("pyggml/smollm2", SMOLLM2, {"n_ctx": 2048})
