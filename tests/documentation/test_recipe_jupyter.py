"""docs/how-to/use-in-jupyter.md in a real kernel: its cells in order. tests/notebooks has more."""

from __future__ import annotations

from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from support import recipes

CELLS = recipes.cells("use-in-jupyter")


@pytest.mark.slow
def test_the_cells_run() -> None:
    cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]  # type: ignore[no-untyped-call]
    notebook = nbformat.v4.new_notebook(cells=cells)  # type: ignore[no-untyped-call]
    executed: Any = NotebookClient(notebook, timeout=100, kernel_name="python3").execute()
    loading, streaming, chatting, looping, awaiting, showing, idle = executed.cells
    assert loading.outputs == []
    assert _printed(streaming).count(" ") > 10
    assert _printed(chatting) == "The sky is blue.\n"
    assert "The sky is blue." in chatting.outputs[-1].data["text/html"]
    assert _printed(looping).count(" ") > 10
    assert awaiting.outputs[0].data["text/plain"].count("'") == 6
    assert showing.outputs[-1].data["text/markdown"] == "The sky is blue."
    assert idle.outputs[0].data["text/plain"] == "0"


def _printed(cell: Any) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")
