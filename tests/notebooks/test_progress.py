"""Progress outside notebooks, and streams that display themselves in a terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest

import pyggml
from pyggml.progress import progress_bar, shows_progress, source_name

STORY: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 12}


def test_outside_a_notebook_the_callers_function_is_called_or_none() -> None:
    def report(_fraction: float) -> None: ...

    for progress, expected in ((None, None), (False, None), (report, report)):
        with progress_bar("Working", progress) as function:
            assert function is expected


def test_the_decorator_passes_arguments_on() -> None:
    @shows_progress("Working on {}")
    def work(source: object, n: int = 1, progress: Any = None) -> tuple[object, int, Any]:
        """Work."""
        return source, n, progress

    assert work("a") == ("a", 1, None)
    assert work("a", 2, False) == ("a", 2, None)
    assert work(source="a", progress=print) == ("a", 1, print)
    assert work.__doc__ == "Work."
    with pytest.raises(TypeError, match=r"work\(\) missing 1 required positional argument: 'source'"):
        work()  # type: ignore[call-arg]


def test_names_of_sources() -> None:
    assert source_name("hf:org/repo:file.gguf") == "hf:org/repo:file.gguf"
    assert source_name(Path("folder/model.gguf")) == source_name("folder/model.gguf/") == "model.gguf"
    assert source_name(None) == "the model"


def test_false_is_accepted_everywhere(llm: pyggml.LLM, tiny_path: Path, tmp_path: Path) -> None:
    pyggml.load(tiny_path, n_ctx=64, progress=False).close()
    pyggml.Inference.cpu().use_auto(tiny_path, n_ctx=64, progress=False).close()
    pyggml.quantize(tiny_path, tmp_path / "q8.gguf", "q8_0", progress=False)
    pyggml.inspect(tiny_path, progress=False)
    assert len(llm.generate_batch(["a", "b"], max_tokens=1, progress=False)) == 2
    with pytest.raises(pyggml.InvalidParameterError, match="progress must be a function"):
        pyggml.load(tiny_path, progress=True)  # type: ignore[arg-type]


def test_neither_ipython_nor_jinja_nor_widgets_are_imported_before_they_are_needed() -> None:
    program = (
        "import sys, pyggml, pyggml.progress, pyggml._core.html_forms\n"
        "assert not pyggml.progress.in_kernel()\n"
        "assert not {'IPython', 'ipywidgets', 'ipykernel'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# --- display ------------------------------------------------------------------------------------------------------


def test_a_stream_prints_its_text_and_has_ended(llm: pyggml.LLM, capsys: pytest.CaptureFixture[str]) -> None:
    stream = llm.stream(**STORY)
    stream.display()
    expected = llm.generate(**STORY).text
    assert capsys.readouterr().out == f"{expected}\n"
    assert stream.completion.text == expected
    assert list(stream) == []


def test_it_prints_only_what_was_not_taken(llm: pyggml.LLM, capsys: pytest.CaptureFixture[str]) -> None:
    stream = llm.stream(**STORY)
    taken = next(stream).text
    stream.display()
    assert taken + capsys.readouterr().out == f"{stream.completion.text}\n"


def test_asynchronous_streams(llm: pyggml.LLM, run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> str:
        stream = llm.astream_chat([{"role": "user", "content": "What colour is the sky?"}])
        await stream.display()
        return stream.completion.message.content

    assert capsys.readouterr().out == ""
    assert run(main()) == "The sky is blue."
    assert capsys.readouterr().out == "The sky is blue.\n"


def test_an_exception_while_printing_cancels(llm: pyggml.LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = llm.stream("Once upon a time", max_tokens=16_000, ignore_eos=True)

    def fail(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.print", fail)
    with pytest.raises(KeyboardInterrupt):
        stream.display()
    assert stream.completion.finish_reason == "cancelled"


def test_reasoning(thinking_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked: Any = [{"role": "user", "content": "?"}]
    with pyggml.load(thinking_path, n_ctx=4096, n_threads=1) as llm:
        stream = llm.stream_chat(asked, max_tokens=40, grammar='root ::= "ab</think>cd"', temperature=0)
        stream.display()
    assert stream.completion.message.content == "cd"
    assert capsys.readouterr().out.lstrip() == "ab\n\ncd\n"


def test_tool_calls(llm: pyggml.LLM, capsys: pytest.CaptureFixture[str]) -> None:
    def get_weather(city: Literal["Oslo"]) -> None:
        """Tells the weather."""

    bias = {llm.tokenize(text, add_special=False)[-1]: value for text, value in (('"', 20), ("}", 8))}
    asked: Any = [{"role": "user", "content": "How is the weather?"}]
    stream = llm.stream_chat(
        asked, [get_weather], tool_choice="required", parallel_tool_calls=False, max_tokens=200, logit_bias=bias
    )
    stream.display()
    (call,) = stream.completion.message.tool_calls
    assert capsys.readouterr().out.endswith(f"get_weather({call.arguments_text})\n")
