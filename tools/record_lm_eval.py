"""Record what lm-evaluation-harness computes with transformers, for tests that have neither it nor PyTorch.

    python tools/record_lm_eval.py        writes tests/data/lm_eval_hf.json

Needs an interpreter with ``lm-eval[hf]``, PyTorch and pyggml. The checkpoint is the demonstration model in F32.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support import lm_eval_tasks
from support.checkpoints import demo_checkpoint

_PACKAGES = ("lm-eval", "transformers", "torch")


def main() -> None:
    """Evaluate, and write the file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arguments = {
            "pretrained": str(demo_checkpoint.write(folder / "demo")),
            "dtype": "float32",
            "max_length": lm_eval_tasks.MAX_LENGTH,
        }
        found = lm_eval_tasks.evaluate("hf", folder / "tasks", model_args=arguments, device="cpu", batch_size=8)
    versions = {package: importlib.metadata.version(package) for package in _PACKAGES}
    content = {"versions": versions, "tasks": found}
    lm_eval_tasks.RECORDED.write_text(json.dumps(content, indent=1, default=_number) + "\n")


def _number(value: Any) -> Any:
    """A number of numpy's as one of Python's."""
    return value.item()


if __name__ == "__main__":
    main()
