"""The README's first example prints what it shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from support.paths import ROOT

EXAMPLE = re.compile(r"```py\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


def test_the_first_example(smollm2_path: Path) -> None:
    found = EXAMPLE.search((ROOT / "README.md").read_text("utf-8"))
    assert found is not None
    program, shown = found.groups()
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=smollm2_path.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == shown
