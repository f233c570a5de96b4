"""The process that tries cases. It reads one per line, and writes a line when it has begun and when it is through.

A case is a number, or a list of parts.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from fuzz import fuzzer


def main() -> None:
    name, seed = sys.argv[1], int(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever else is printed is not an answer
    module = fuzzer.named(name)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        shared = Path(folder) / "shared"
        shared.mkdir()
        prepared = module.prepare(shared)
        print(json.dumps({"ready": True}), file=answers)
        for line in sys.stdin:
            asked = json.loads(line)
            parts = fuzzer.case(module, seed, asked) if isinstance(asked, int) else asked
            print(json.dumps(_outcome(module, prepared, parts, Path(folder) / "work")), file=answers)


def _outcome(module: fuzzer.Fuzzer, prepared: Any, parts: list[fuzzer.Part], work: Path) -> dict[str, str]:
    work.mkdir()
    try:
        return {"outcome": module.run(prepared, parts, work)}
    except fuzzer.Finding as finding:
        kind, words = finding.args
        return {"wrong": kind, "words": words}
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return {
            "wrong": f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}",
            "words": f"{error!r:.500}",
        }
    finally:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(work)


if __name__ == "__main__":
    main()
