"""Update the outputs under the examples of README and docs, by running them.

    python tools/update_outputs.py [PAGE ...]       after a change to the shipped model or to what an example does

A block of Python whose next block is ``text`` shows its output there: the page's Python blocks run as one program, in
order. On the pages in SHOWN_IN_A_SHELL the lines of console blocks that begin with "$ " run as well, and what follows
each is what it printed. A test compares all of it with the pages in the repository.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
RECIPES = [  # are programs that need servers and clients
    DOCS / "how-to" / "embed-in-fastapi.md",
    DOCS / "how-to" / "embed-in-flask-and-django.md",
    DOCS / "how-to" / "store-vectors.md",
    DOCS / "how-to" / "use-in-jupyter.md",
    DOCS / "how-to" / "use-with-multiprocessing.md",
]
PAGES = [ROOT / "README.md", *sorted({*DOCS.rglob("*.md")} - {*RECIPES})]
SHOWN_IN_A_SHELL = [DOCS / "how-to" / "use-the-command-line.md"]

PYTHON = re.compile(r"^```python\n(.*?)^```\n(?P<shown>\n*```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
NUMBER = re.compile(r"\d[\d.,]* m?s|\d[\d.,]* tokens/s")  # which are not the same each time

_END_OF_BLOCK = "\x1e\n"


def refreshed(page: Path, folder: Path) -> str:
    """A page's text with the outputs of today; one that differs in times and speeds only stays as it is.

    Args:
        page: which one.
        folder: where its code runs; it may bring files that the examples read.

    Raises:
        RuntimeError: the page's Python program failed.
    """
    text = page.read_text(encoding="utf-8")
    if PYTHON.search(text):
        text = _with_python_outputs(text, folder)
    if page in SHOWN_IN_A_SHELL:
        text = _with_console_outputs(text, folder)
    return text


def _with_python_outputs(text: str, folder: Path) -> str:
    printed = iter(_run_blocks([found[1] for found in PYTHON.finditer(text)], folder))

    def block(found: re.Match[str]) -> str:
        output = f"{next(printed).rstrip()}\n"
        shown = f"\n```text\n{_newer(found[3], output)}```\n" if found["shown"] else ""
        return f"```python\n{found[1]}```\n{shown}"

    return PYTHON.sub(block, text)


def _run_blocks(blocks: list[str], folder: Path) -> list[str]:
    """Run the blocks as one program and return what each printed."""
    program = "".join(f"{block}\nprint({_END_OF_BLOCK[:-1]!r}, flush=True)\n" for block in blocks)
    environment = os.environ | {"PYGGML_CACHE": str(folder / "cache"), "PYTHONIOENCODING": "utf-8"}
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, cwd=folder, env=environment, capture_output=True, text=True, encoding="utf-8")
    if done.returncode != 0:
        raise RuntimeError(f"{program}\n{done.stderr}")
    return done.stdout.split(_END_OF_BLOCK)[:-1]


def _with_console_outputs(text: str, folder: Path) -> str:
    def block(found: re.Match[str]) -> str:
        return f"```console\n{COMMAND.sub(command, found[1])}```"

    def command(found: re.Match[str]) -> str:
        return f"$ {found[1]}\n{_newer(found[2], _typed(found[1], folder))}"

    return CONSOLE.sub(block, text)


def _newer(shown: str, printed: str) -> str:
    return shown if NUMBER.sub("#", shown) == NUMBER.sub("#", printed) else printed


def _typed(command: str, folder: Path) -> str:
    """Return the output of a command line."""
    run = ["sh", "-c", f'pyggml() {{ "{sys.executable}" -m pyggml "$@"; }}\n{command}']
    done = subprocess.run(run, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout


def main() -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    from support import example_files

    for page in [Path(name).resolve() for name in sys.argv[1:]] or PAGES:
        with tempfile.TemporaryDirectory() as folder:
            example_files.write(Path(folder), page.read_text(encoding="utf-8"))
            text = refreshed(page, Path(folder))
        if text != page.read_text(encoding="utf-8"):
            page.write_text(text, encoding="utf-8")
            print(f"{page.relative_to(ROOT)}: other outputs")


if __name__ == "__main__":
    main()
