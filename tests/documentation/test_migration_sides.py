"""Rows of docs/how-to/migrate-from-other-libraries.md give the same on both sides, where the library is installed.

Its interpreter is this one, or the one that an environment variable names: PYGGML_PEER_TRANSFORMERS=/path/to/python
needs transformers 5 and PyTorch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documentation.test_migration import CELLS
from support.checkpoints.hf_llama import HFLlama

import pyggml

pytestmark = pytest.mark.slow

TEXT = "Once upon a time, there was a little dog."
MESSAGES = [{"role": "user", "content": "What colour is the sky?"}]
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}>{% endif %}"
)

#: Left-hand cells of the rows for transformers that are expressions; ``inputs`` and ``ids`` are what they are there.
ROWS = [
    'tokenizer(text)["input_ids"]',
    "tokenizer.decode(ids)",
    "tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)",
    "model.generate(**inputs, max_new_tokens=32)",
    "model(**inputs).logits",
]

THEIRS = """
import json, sys
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

folder, text, messages, rows = sys.argv[1], *map(json.loads, sys.argv[2:])
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
inputs, ids = tokenizer(text, return_tensors="pt", return_token_type_ids=False), [1, 2, 3]
with torch.no_grad():
    values = [eval(row) for row in rows]
print(json.dumps([value.tolist() if isinstance(value, torch.Tensor) else value for value in values]))
"""


def interpreter(library: str) -> str:
    """A Python that has the library; the test is skipped if there is none."""
    found = sys.executable if find_spec(library) else os.environ.get(f"PYGGML_PEER_{library.upper()}")
    if not found:
        pytest.skip(f"{library} is not installed, and PYGGML_PEER_{library.upper()} names no Python that has it")
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with a chat template."""
    path = HFLlama().write(tmp_path_factory.mktemp("sides") / "my-model")
    (path / "chat_template.jinja").write_text(TEMPLATE)
    return path


@pytest.fixture(scope="module")
def theirs(folder: Path) -> dict[str, Any]:
    """The values of the left-hand cells."""
    arguments = [str(folder), *map(json.dumps, (TEXT, MESSAGES, ROWS))]
    python = interpreter("transformers")
    done = subprocess.run([python, "-c", THEIRS, *arguments], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return dict(zip(ROWS, json.loads(done.stdout.splitlines()[-1]), strict=True))


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[pyggml.LLM]:
    with pyggml.load(folder, n_ctx=128, n_threads=1) as llm:
        yield llm


@pytest.mark.parametrize("row", ROWS)
def test_both_sides_give_the_same(row: str, theirs: dict[str, Any], llm: pyggml.LLM) -> None:
    names = {"llm": llm, "prompt": TEXT, "messages": MESSAGES}
    ours = eval(dict(CELLS)[f"`{row}`"], names)
    expected = theirs[row]
    if isinstance(ours, pyggml.Completion):
        new = expected[0][ours.prompt_tokens :]
        assert new[: len(ours.token_ids)] == [*ours.token_ids]
        assert len(new) - len(ours.token_ids) == (ours.finish_reason == "stop")  # theirs ends with the stop token
    elif isinstance(ours, np.ndarray):
        np.testing.assert_allclose(ours, np.array(expected[0]), atol=2e-3)
    else:
        assert ours == expected
