"""Progress bars, streams, results and interrupted cells in a real kernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.checkpoints.hf_llama import HFLlama
from support.kernels import Kernel
from support.kernels import kernel as started
from support.servers.hub_server import hub_at

from pyggml.source import SHIPPED_MODEL

pytestmark = pytest.mark.slow

WIDGET = "application/vnd.jupyter.widget-view+json"
MANY = "['Once upon a time'] * 40, max_tokens=300, ignore_eos=True"
ENDLESS = "max_tokens=16_000, ignore_eos=True"
STORY = f"'Once upon a time', {ENDLESS}"
CHAT = f"[{{'role': 'user', 'content': 'Tell me a story.'}}], {ENDLESS}"


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with started("import asyncio, sys, time, pyggml\nllm = pyggml.load(n_ctx=16384)") as kernel:
        yield kernel


# --- progress -----------------------------------------------------------------------------------------------------


def test_a_bar_is_a_widget_that_ends_as_text(kernel: Kernel) -> None:
    sent = kernel.messages(f"done = llm.generate_batch({MANY})")
    shown = [content["data"] for kind, content in sent if kind == "display_data"]
    assert [(data["text/plain"], WIDGET in data) for data in shown] == [("Generating", True)]
    states = [content["data"].get("state", {}).get("value") for kind, content in sent if kind == "comm_msg"]
    fractions = [value for value in states if isinstance(value, float)]
    assert fractions == sorted(fractions)
    assert 0 < fractions[0] < fractions[-1] < 1
    assert any(isinstance(value, str) and value.endswith(" of 40") for value in states)
    *_, (_, last) = [each for each in sent if each[0] == "update_display_data"]
    assert last["data"]["text/plain"].startswith("Generating: done after ")
    assert WIDGET not in last["data"]
    closed = sum(kind == "comm_close" for kind, _ in sent)
    assert closed == 4, "the widgets stay in the front end"


def test_without_ipywidgets_it_is_text(kernel: Kernel) -> None:
    sent = kernel.messages(
        f"sys.modules['ipywidgets'] = None\ndone = await llm.agenerate_batch({MANY})\ndel sys.modules['ipywidgets']"
    )
    assert not [kind for kind, _ in sent if kind.startswith("comm")]
    texts = [content["data"] for kind, content in sent if kind == "update_display_data"]
    assert any("Generating: " in data["text/plain"] and data["text/plain"].endswith(" of 40") for data in texts)
    assert texts[-1]["text/plain"].startswith("Generating: done after ")


def test_false_shows_none_and_a_function_is_called_instead(kernel: Kernel) -> None:
    for progress in ("False", "lambda n, total: None"):
        sent = kernel.messages(f"done = llm.generate_batch({MANY}, progress={progress})")
        assert {kind for kind, _ in sent} <= {"status", "execute_input"}


def test_short_work_shows_no_bar(kernel: Kernel) -> None:
    sent = kernel.messages("other = pyggml.load(n_ctx=256)\nother.close()\nreport = pyggml.inspect()")
    assert {kind for kind, _ in sent} <= {"status", "execute_input"}


def test_a_forked_child_shows_none(kernel: Kernel) -> None:
    """It must not write to its parent's sockets."""
    child = "print(pyggml.progress.in_kernel(), flush=True)\n    os._exit(0)"
    cell = f"import os, pyggml.progress\nif not os.fork():\n    {child}\nos.wait()\nprint(pyggml.progress.in_kernel())"
    assert kernel.run(cell)[0].split() == ["False", "True"]


def test_every_kind_of_work_has_a_bar(kernel: Kernel) -> None:
    """With no delay, so that the short work of a small model shows them, too."""
    sent = kernel.messages(
        """
import pyggml.progress, tempfile
from pathlib import Path
pyggml.progress.DELAY_S = pyggml.progress.INTERVAL_S = 0
with tempfile.TemporaryDirectory() as folder:
    small = Path(folder, "small.gguf")
    pyggml.quantize(pyggml.SHIPPED_MODEL, small, "q4_0", requantize=True)
    pyggml.Inference.cpu().use_auto(small).close()
    pyggml.load(small, n_ctx=256).close()
    pyggml.perplexity(llm, [5] * 1024)
    pyggml.compute_imatrix(small, [5] * 1024)
    Path(folder, "rows.txt").write_text("Once upon a time\\n" * 3)
    await asyncio.to_thread(
        pyggml.batch.run, f"{folder}/rows.txt", f"{folder}/out.jsonl", llm, params={"max_tokens": 2}
    )
pyggml.progress.DELAY_S, pyggml.progress.INTERVAL_S = 0.5, 0.1
"""
    )
    shown = [content["data"]["text/plain"] for kind, content in sent if kind == "display_data"]
    assert shown == [
        "Quantising pyggml-demo-q8_0.gguf",
        "Loading small.gguf",
        "Loading small.gguf",
        "Computing a perplexity",
        "Computing an importance matrix",
        "Answering rows",
    ]
    ends = [content["data"]["text/plain"] for kind, content in sent if kind == "update_display_data"]
    assert [text.partition(": ")[0] for text in ends if ": done after" in text] == shown


def test_downloads_and_imports_have_a_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hub_at(tmp_path, monkeypatch) as hub:
        hub.add("tiny/stories", {"stories.gguf": SHIPPED_MODEL.read_bytes()})
        hub.add("tiny/llama", HFLlama().write(tmp_path / "llama"))
        with started("import pyggml, pyggml.progress\npyggml.progress.DELAY_S = 0") as kernel:
            cell = f"pyggml.hub.fetch('hf:tiny/stories')\nout = pyggml.convert('hf:tiny/llama', '{tmp_path}/out.gguf')"
            sent = kernel.messages(f"{cell}\npyggml.load('hf:tiny/llama').close()")
    shown = [content["data"]["text/plain"] for kind, content in sent if kind == "display_data"]
    assert shown == ["Downloading hf:tiny/stories", "Converting hf:tiny/llama", "Loading hf:tiny/llama"]


# --- streams and results ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cell",
    [
        "llm.stream('Once upon a time', max_tokens=20)",
        "llm.stream('Once upon a time', max_tokens=20).display()",
        "await llm.astream('Once upon a time', max_tokens=20).display()",
    ],
    ids=["last-line", "display", "async"],
)
def test_a_stream_prints_its_text(kernel: Kernel, cell: str) -> None:
    sent = kernel.messages(cell)
    printed = "".join(content["text"] for kind, content in sent if kind == "stream")
    expected, _ = kernel.run("print(llm.generate('Once upon a time', max_tokens=20).text)")
    assert printed == expected
    assert not [kind for kind, _ in sent if kind == "execute_result"]


def test_a_stream_that_was_shown_stays_in_out(kernel: Kernel) -> None:
    kernel.messages("llm.stream('Once upon a time', max_tokens=20)")
    assert kernel.run("stream = _\nprint(stream.completion.finish_reason)") == ("length\n", "")
    assert kernel.run("stream") == ("Stream(length, 20 tokens read)\n", "")


def test_an_asynchronous_stream_is_not_started(kernel: Kernel) -> None:
    assert kernel.run("llm.astream('Once upon a time')") == ("AsyncStream(not started)", "")


def test_results_are_shown_as_html(kernel: Kernel) -> None:
    results = ("llm.generate('a', max_tokens=2)", f"llm.chat({CHAT.replace('16_000', '2')})", "pyggml.inspect()")
    for result in (*results, "pyggml.inspect().estimate()", "pyggml.perplexity(llm, [5] * 1024)"):
        ((_, content),) = [each for each in kernel.messages(result) if each[0] == "execute_result"]
        assert content["data"]["text/html"].startswith("<div")
        assert content["data"]["text/plain"]


# --- interrupts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cell",
    {
        "generate": f"print('on'); llm.generate({STORY})",
        "stream": f"for chunk in llm.stream({STORY}):\n    print(chunk.text)",
        "last-line": f"llm.stream({STORY})",
        "display": f"llm.stream({STORY}).display()",
        "chat": f"print('on'); llm.chat({CHAT})",
        "stream_chat": f"for chunk in llm.stream_chat({CHAT}):\n    print(chunk.content)",
        "generate_batch": f"print('on'); llm.generate_batch([{STORY.partition(',')[0]}] * 9, {ENDLESS})",
        "chat_batch": f"print('on'); llm.chat_batch([{CHAT.partition(', max')[0]}] * 9, {ENDLESS})",
        "agenerate": f"print('on'); await llm.agenerate({STORY})",
        "astream": f"async with llm.astream({STORY}) as s:\n    async for chunk in s:\n        print(chunk.text)",
        "adisplay": f"await llm.astream({STORY}).display()",
        "achat": f"print('on'); await llm.achat({CHAT})",
        "agenerate_batch": f"print('on'); await llm.agenerate_batch([{STORY.partition(',')[0]}] * 9, {ENDLESS})",
        "gather": f"print('on'); await asyncio.gather(*(llm.agenerate({STORY}) for _ in range(3)))",
    }.items(),
    ids=lambda item: item[0],
)
def test_an_interrupt_frees_the_sequences_at_once(kernel: Kernel, cell: tuple[str, str]) -> None:
    error, _ = kernel.interrupt(cell[1])
    assert error in ("KeyboardInterrupt", "CancelledError")
    wait = (
        "start = time.monotonic()\nwhile llm.stats().n_running and time.monotonic() < start + 9:\n    time.sleep(0.002)"
    )
    shown, error = kernel.run(f"{wait}\nprint(llm.stats().n_running, llm.stats().n_queued, time.monotonic() - start)")
    assert error == ""
    n_running, n_queued, seconds = map(float, shown.split())
    assert (n_running, n_queued) == (0, 0)
    assert seconds < 0.5, "the generation was not cancelled"
    shown, error = kernel.run("print(llm.generate('Once upon a time', max_tokens=2).finish_reason)")
    assert (shown.strip(), error) == ("length", "")


def test_an_interrupted_bar_says_so(kernel: Kernel) -> None:
    error, replaced = kernel.interrupt(f"llm.generate_batch([{STORY.partition(',')[0]}] * 400, max_tokens=300)")
    assert error == "KeyboardInterrupt"
    assert replaced[-1].startswith("Generating: stopped at ")
    assert " of 400 after " in replaced[-1]
