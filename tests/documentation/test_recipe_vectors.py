"""The recipes of docs/how-to/store-vectors.md, with the stores that they are for."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.paths import ROOT

import pyggml

PAGE = ROOT / "docs" / "how-to" / "store-vectors.md"
SQLITE, FAISS, PGVECTOR = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def output(code: str, folder: Path) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_sqlite(tmp_path: Path) -> None:
    pytest.importorskip("apsw", reason="apsw is not installed in this environment")
    pytest.importorskip("sqlite_vec", reason="sqlite-vec is not installed in this environment")
    nearest, other = output(SQLITE, tmp_path)
    assert nearest == "0.000 The dog was happy."
    assert float(other.split()[0]) > 0
    assert (tmp_path / "notes.db").exists()


def test_faiss(tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="faiss-cpu is not installed in this environment")
    exact, bits = output(FAISS, tmp_path)
    assert exact.startswith("[('The dog was happy.', 1.0), ")
    assert bits.startswith("[('The dog was happy.', 0), ")


def test_pgvector(tmp_path: Path) -> None:
    pgvector = pytest.importorskip("pgvector", reason="pgvector is not installed in this environment")
    code = PGVECTOR.replace("print(as_vector[:20], as_bits[:20])", "print(as_vector)\nprint(as_bits)")
    as_vector, as_bits = output(code, tmp_path)
    with pyggml.load() as llm:
        floats = llm.embed_query("The dog was happy.", normalize=True)
        bits = llm.embed_query("The dog was happy.", dtype="binary")
    # pgvector's own package reads the texts as the arrays that they were made of.
    np.testing.assert_array_equal(pgvector.Vector.from_text(as_vector).to_numpy(), floats)
    np.testing.assert_array_equal(pgvector.Bit.from_text(as_bits).to_numpy(), np.unpackbits(bits).astype(bool))
    half = pgvector.HalfVector.from_text(as_vector).to_numpy()
    np.testing.assert_array_equal(half.astype(np.float16), floats.astype(np.float16))
