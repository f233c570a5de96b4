"""Outputs in examples/README.md and examples/tour.ipynb are those of runs; tools/example_outputs.py updates them.

Sessions with SmolLM2 are in tests/published_models/test_examples.py.
"""

from __future__ import annotations

import shutil
from typing import Any

import example_outputs
import nbformat
import pytest
from support.paths import ROOT

README = (ROOT / "examples" / "README.md").read_text("utf-8")
SESSIONS = {
    name: block for name, block in example_outputs.blocks(README).items() if not example_outputs.needs_real_model(block)
}
STALE = "if the new outputs are right: python tools/example_outputs.py"


@pytest.mark.slow
@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_goes_as_the_readme_shows(name: str) -> None:
    if "curl" in SESSIONS[name] and not shutil.which("curl"):
        pytest.skip("needs curl")
    assert example_outputs.replayed(SESSIONS[name]) == SESSIONS[name], STALE


def texts(notebook: Any) -> list[str]:
    """The outputs of each cell as text. Other forms, such as HTML, are tested where they are made."""
    assert not any(output.output_type == "error" for cell in notebook.cells for output in cell.get("outputs", ()))
    return [
        "".join(output.get("text") or output.data["text/plain"] for output in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.slow
def test_the_notebook_has_the_outputs_of_a_run() -> None:
    notebook = nbformat.read(example_outputs.NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    shown = texts(notebook)
    assert len(shown) >= 8
    assert texts(example_outputs.executed(notebook)) == shown, STALE
