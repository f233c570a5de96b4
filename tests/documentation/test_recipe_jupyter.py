"""docs/how-to/use-in-jupyter.md in a real kernel: its cells in order, and interrupts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import nbformat
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel
from nbclient import NotebookClient
from support import recipes

CELLS = recipes.cells("use-in-jupyter")


@pytest.fixture(scope="module")
def notebook() -> Any:
    """The page as a notebook, executed."""
    cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]  # type: ignore[no-untyped-call]
    notebook = nbformat.v4.new_notebook(cells=cells)  # type: ignore[no-untyped-call]
    return NotebookClient(notebook, timeout=100, kernel_name="python3").execute()


@pytest.mark.slow
def test_the_cells_run(notebook: Any) -> None:
    loading, streaming, awaiting, showing, idle = notebook.cells
    assert loading.outputs == []
    assert "".join(output.text for output in streaming.outputs).count(" ") > 10
    assert awaiting.outputs[0].data["text/plain"].count("'") == 6
    assert showing.outputs[-1].data["text/markdown"] == "The sky is blue."
    assert idle.outputs[0].data["text/plain"] == "0"


class Kernel:
    """A kernel to send cells to."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager = manager
        self.client = client

    def run(self, code: str) -> tuple[str, str]:
        """Runs a cell. Returns what it printed or showed, and the name of the exception that ended it."""
        shown: list[str] = []

        def note(message: dict[str, Any]) -> None:
            content = message["content"]
            shown.append(content.get("text", "") or content.get("data", {}).get("text/plain", ""))

        reply = self.client.execute_interactive(code, output_hook=note, timeout=100)
        return "".join(shown), reply["content"].get("ename", "")

    def interrupt(self, code: str) -> str:
        """Starts a cell, interrupts it once it prints, and returns the name of the exception that ended it."""
        has_printed = False

        def interrupt(message: dict[str, Any]) -> None:
            nonlocal has_printed
            if message["msg_type"] == "stream" and not has_printed:
                has_printed = True
                self.manager.interrupt_kernel()

        reply = self.client.execute_interactive(code, output_hook=interrupt, timeout=100)
        return str(reply["content"].get("ename", ""))


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    manager, client = start_new_kernel()
    kernel = Kernel(manager, client)
    kernel.run("import asyncio, pyggml\nllm = pyggml.load(n_ctx=16384)")
    yield kernel
    client.stop_channels()
    manager.shutdown_kernel(now=True)


ENDLESS = "'Once upon a time', max_tokens=16_000, ignore_eos=True"


@pytest.mark.slow
@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(f"print('on'); llm.generate({ENDLESS})", marks=pytest.mark.slow),
        f"for chunk in llm.stream({ENDLESS}):\n    print(chunk.text)",
        pytest.param(f"print('on'); await llm.agenerate({ENDLESS})", marks=pytest.mark.slow),
        f"async with llm.astream({ENDLESS}) as s:\n    async for chunk in s:\n        print(chunk.text)",
    ],
    ids=["generate", "stream", "agenerate", "astream"],
)
def test_an_interrupt_ends_the_generation_and_nothing_else(kernel: Kernel, cell: str) -> None:
    before = time.monotonic()
    assert kernel.interrupt(cell) in ("KeyboardInterrupt", "CancelledError")
    shown, error = kernel.run("import time; time.sleep(0.3); print(llm.stats().n_running)")
    assert (shown.strip(), error) == ("0", "")
    assert time.monotonic() - before < 60
    shown, error = kernel.run("print(llm.generate('Once upon a time', max_tokens=2).finish_reason)")
    assert (shown.strip(), error) == ("length", "")


@pytest.mark.slow
def test_a_stream_that_is_shown_stays_in_out(kernel: Kernel) -> None:
    assert kernel.run(f"llm.stream({ENDLESS})")[1] == ""
    running = "import time; time.sleep(0.3); print(llm.stats().n_running)"
    assert kernel.run(running)[0].strip() == "1"
    assert kernel.run("_.close()")[1] == ""
    assert kernel.run(running)[0].strip() == "0"
