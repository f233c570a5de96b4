"""Types of the package as type checkers and editors see them from a program outside it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pyggml

#: Lines of a program, each with what a type checker must say about it: None, nothing.
LINES: list[tuple[str, str | None]] = [
    ("import pyggml", None),
    ("llm = pyggml.load('a.gguf', n_ctx=512)", None),
    ("messages = [{'role': 'user', 'content': 'a'}]", None),
    ("llm.generate('a', max_tokens=3, temperature=0.5, response_format={'type': 'text'})", None),
    ("llm.generate('a', max_token=3)", '"max_token".*did you mean "max_tokens"'),
    ("llm.generate('a', max_tokens='3')", '"max_tokens".*has incompatible type "str"'),
    ("llm.stream('a', temp=1)", '"temp"'),
    ("llm.generate_n('a', 2, top_pp=1)", '"top_pp".*did you mean "top_p"'),
    ("llm.chat(messages, max_tokens=3, tool_choice='none')", None),
    ("llm.chat(messages, max_token=3)", 'No overload variant of "chat"'),
    ("llm.stream_chat(messages, max_token=3)", '"max_token".*did you mean "max_tokens"'),
    ("llm.stream_chat(messages, tool_choise='none')", '"tool_choise".*did you mean "tool_choice"'),
    ("llm.chat(messages).message.content", None),
    ("llm.chat(messages, n=3)[0].message.content", None),
    ("llm.chat(messages, n=3).message", 'has no attribute "message"'),
    ("llm.chat_batch([messages], params=[pyggml.SamplingParams()], top_k=3)[0].message.content", None),
    ("llm.chat_batch([messages], return_exceptions=True)[0].message", '"InferError".* has no attribute "message"'),
    ("llm.generate_batch(['a', messages], return_exceptions=False)[0].text", None),
    ("llm.embed(['a']).shape", None),
    ("llm.embed(['a'], pooling='none', truncate=True)[0].shape", None),
    ("llm.embed(['a'], pooling='none').shape", 'has no attribute "shape"'),
    ("llm.stream_chat(messages, top_k='a')", '"top_k".*has incompatible type "str"'),
    ("pyggml.load('a.gguf', n_ctxx=512)", '"n_ctxx".*did you mean "n_ctx"'),
    ("pyggml.LLM('a.gguf', n_gpu_layer=1)", '"n_gpu_layer".*did you mean "n_gpu_layers"'),
    ("pyggml.Qwen3('a.gguf', n_gpu_layers='many')", '"n_gpu_layers".*has incompatible type'),
    ("pyggml.Inference.cpu().use_qwen3('a.gguf', n_ctxx=3)", '"n_ctxx".*did you mean "n_ctx"'),
    ("pyggml.SamplingParams(temp=1)", '"temp"'),
    ("pyggml.cache.cache_entries()", None),
    ("pyggml.AutoModel", 'no attribute "AutoModel"'),
    ("pyggml.Qwen3.from_pretrained('a')", 'no attribute "from_pretrained"'),
    ("llm.create_completion('a')", 'no attribute "create_completion"'),
    ("llm('a')", "not callable"),
    ("llm.generate('a').choices", 'no attribute "choices"'),
    ("llm.generate('a')['text']", "not indexable"),
    ("llm.generate('a').to_dict('openai', model='a')", None),
    ("llm.generate('a').to_dict('ollama')", 'No overload variant of "to_dict"'),
]


@pytest.mark.slow
def test_a_program_outside_the_package(tmp_path: Path) -> None:
    """Names that do not exist are errors, and those that do have their types; ``py.typed`` says that they count."""
    program = tmp_path / "program.py"
    program.write_text("\n".join(line for line, _ in LINES) + "\n", encoding="utf-8")
    # As for an installed package: found on the path, and not part of what is checked.
    environment = {**os.environ, "MYPYPATH": str(Path(pyggml.__file__).parent.parent)}
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--follow-imports=silent",
        "--python-version=3.10",
        "program.py",
    ]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    told: dict[int, str] = {}
    for number, message in re.findall(r"^program\.py:(\d+): error: (.*)$", done.stdout, re.MULTILINE):
        told[int(number)] = told.get(int(number), "") + message
    for number, (line, said) in enumerate(LINES, start=1):
        if said is None:
            assert number not in told, (line, told[number])
        else:
            assert re.search(said, told.get(number, "")), (line, told.get(number), done.stdout, done.stderr)


@pytest.mark.slow
def test_the_types_are_the_packages_own() -> None:
    assert (Path(pyggml.__file__).parent / "py.typed").exists()
