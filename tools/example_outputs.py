"""Update the transcripts in examples/README.md and the outputs in examples/tour.ipynb, by running both.

    python tools/example_outputs.py          after a change to an example or to the demonstration model

Each console block of the README is a session in a folder with the examples and, once tools/real_models.py has fetched
it, SmolLM2; blocks that name that model stay as they are without it. Lines that begin with "$ " run in a shell, those
that begin with "> " are typed into the program that runs, and a command that ends with "&" serves the next ones.
Tests compare both files with what they print today.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import real_models

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
README = EXAMPLES / "README.md"
NOTEBOOK = EXAMPLES / "tour.ipynb"

BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```)", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
TYPED = re.compile(r"^> (.+)\n", re.MULTILINE)
#: Parts that depend on the version, the machine and what else it does: numbers, and how a stream is cut into events.
VARYING = re.compile(r'\d[\d.,]*(?=%| ms| s\b| tokens| forward| of them)|(?<=pyggml )[\d.]+|(?<=error )\S+|"\ndata: "')

_PORT = "8000"  # in the README; sessions use a free one
_PATIENCE_S = 60.0


def blocks(text: str) -> dict[str, str]:
    """The console blocks of a page, by the example that the first command runs."""
    return {_script(block): block for block in BLOCK.findall(text)}


def needs_real_model(block: str) -> bool:
    """Return True if a session uses SmolLM2."""
    return real_models.MODELS["smollm2"].file in block


def replayed(block: str) -> str:
    """Run a session and return it with the outputs of today; one that differs in VARYING parts stays as it is."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(EXAMPLES, folder / "examples", ignore=shutil.ignore_patterns("__pycache__", ".*"))
        (folder / "tools").symlink_to(ROOT / "tools")
        if model := real_models.path("smollm2"):
            (folder / model.name).symlink_to(model)
        played = _play_typed(block, folder) if TYPED.search(block) else _play_commands(block, folder)
    return block if VARYING.sub("", played) == VARYING.sub("", block) else played


def executed(notebook: Any) -> Any:
    """Run a notebook and return a copy with its outputs, without times and versions."""
    import nbformat
    from nbclient import NotebookClient

    done = nbformat.from_dict(notebook)  # type: ignore[no-untyped-call]
    NotebookClient(done, timeout=100, kernel_name="python3", record_timing=False).execute()
    done.metadata = notebook.metadata
    for cell in done.cells:
        if cell.cell_type == "code":
            cell.outputs = _joined(cell.outputs)
    return done


def _joined(outputs: list[Any]) -> list[Any]:
    """Join what was printed in chunks, because the chunks are not the same each time."""
    joined: list[Any] = []
    for output in outputs:
        if joined and output.output_type == joined[-1].output_type == "stream" and output.name == joined[-1].name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def _script(block: str) -> str:
    return Path(re.findall(r"examples/\w+\.py", block)[0]).name


def _play_commands(block: str, folder: Path) -> str:
    """Run the commands of a session in a shell."""
    port = str(_free_port())
    lines = []
    with contextlib.ExitStack() as ended:
        for command, _ in COMMAND.findall(block):
            lines.append(f"$ {command}\n")
            line = f'python() {{ "{sys.executable}" "$@"; }}\n{command}'.replace(f":{_PORT}/", f":{port}/")
            if command.endswith("&"):
                ended.enter_context(_server([*shlex.split(command)[1:-1], "--port", port], folder, int(port)))
                continue
            run = subprocess.run(["sh", "-c", line], cwd=folder, capture_output=True, text=True, encoding="utf-8")
            if run.returncode != 0:
                raise RuntimeError(f"{command}\n{run.stdout}{run.stderr}")
            lines.append(f"{run.stdout.rstrip()}\n")
    return "".join(lines)


def _play_typed(block: str, folder: Path) -> str:
    """Run the only command of a session in a terminal, and type its lines."""
    from support.terminal import Terminal  # in tests/

    [(command, shown)] = COMMAND.findall(block)
    typed = TYPED.findall(shown)
    with Terminal(program=shlex.split(command)[1:], columns=120, cwd=folder) as terminal:
        for n, line in enumerate([*typed, "\x04"]):
            terminal.wait_until(lambda n=n: sum(row.startswith(">") for row in terminal.rows) > n, "prompt")  # type: ignore[misc]
            terminal.send(line if line == "\x04" else f"{line}\r")
        if code := terminal.wait_for_exit():
            raise RuntimeError(f"{command} ended with {code}:\n{terminal.text}")
    shown = terminal.text.rstrip("> \n")
    return f"$ {command}\n{shown}\n"


@contextlib.contextmanager
def _server(arguments: list[str], folder: Path, port: int) -> Iterator[None]:
    """Run a Python program that serves a port."""
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{arguments[0]} does not serve port {port}")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def main() -> None:
    import nbformat

    sys.path.insert(0, str(ROOT / "tests"))
    os.environ["PYTHONIOENCODING"] = "utf-8"
    text = README.read_text("utf-8")
    for block in blocks(text).values():
        if not needs_real_model(block) or real_models.path("smollm2"):
            text = text.replace(block, replayed(block))
    README.write_text(text, "utf-8")
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    nbformat.write(executed(notebook), NOTEBOOK)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
