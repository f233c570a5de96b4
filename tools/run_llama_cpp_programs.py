"""Run public programs that use llama-cpp-python's interface, each with one line changed: the import.

    python tools/run_llama_cpp_programs.py                       fetches them with git, and runs them
    python tools/run_llama_cpp_programs.py --reference PYTHON    also unchanged, with the llama-cpp-python of PYTHON
    python tools/run_llama_cpp_programs.py --url 'DIR/{owner}/{name}'    takes them from clones that are there

The programs are listed in tests/data/llama_cpp_programs.json, by commit and with the SHA-256 of their files; none of
them is part of pyggml. Each runs in a folder of its own, in which the path of its model leads to SmolLM2-135M-Instruct.
The results go to tests/data/llama_cpp_program_runs.json, where those of programs that were not run again stay, and from
there to docs/reference/integrations.md; the outputs go to build/clients/programs.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import make_integrations
import real_models

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests" / "data" / "llama_cpp_programs.json"
KEPT = ROOT / "tests" / "data" / "llama_cpp_program_runs.json"
CACHE = ROOT / "build" / "clients" / "programs"
SITE = "https://github.com"
TIME_LIMIT_S = 120
REFERENCE_VERSION = "0.3.36"  # llama-cpp-python of the kept results
_EXCEPTION = re.compile(r"^[\w.]+(?:Error|Exception|Interrupt)\b.*", re.MULTILINE)
_NUMPY_FLOAT = re.compile(r"np\.float32\((.*?)\)")
_IMPORT = re.compile(r"^(\s*from )(llama_cpp[\w.]* import )", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Program:
    """A public program.

    Attributes:
        repository: owner and name.
        commit: the commit of which the files are.
        files: path -> SHA-256 of the files that it needs; the first is the program.
        model: where it looks for its model, from its folder or that of the user.
        stdin: what is typed into it.
        uses: the parts of the interface that it uses.
    """

    repository: str
    commit: str
    files: dict[str, str]
    model: str
    stdin: str = ""
    uses: str

    @property
    def path(self) -> str:
        """The program's path."""
        return next(iter(self.files))


@dataclass(frozen=True)
class Run:
    """A run of a program.

    Attributes:
        status: its exit status.
        error: the exception that ended it, or that it was ended; "": none.
        output: what it printed.
        seconds: how long it took, with loading.
    """

    status: int
    error: str
    output: str
    seconds: float

    @property
    def ending(self) -> str:
        """Its end, for the table."""
        return "runs" if self.status == 0 else f"ends with `{self.error or self.status}`"

    @property
    def shape(self) -> Any:
        """The keys and types of the dictionary that it prints; None if it prints text."""
        found = re.search(r"^\{.*\}\s*\Z", self.output, re.DOTALL | re.MULTILINE)
        if found is None:
            return None
        try:
            return shape_of(json.loads(found[0]))
        except json.JSONDecodeError:
            return shape_of(ast.literal_eval(_NUMPY_FLOAT.sub(r"\1", found[0].strip())))


def shape_of(value: Any) -> Any:
    """Return the keys and types of nested dictionaries; of lists, those of the first item that is not None."""
    if isinstance(value, dict):
        is_table = len(value) > 0 and all(isinstance(each, float) for each in value.values())
        return "table" if is_table else {key: shape_of(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shape_of(each) for each in value if each is not None][:1]
    return type(value).__name__


def programs() -> list[Program]:
    """Return the programs that are listed."""
    return [Program(**each) for each in json.loads(LIST.read_text(encoding="utf-8"))]


def file_of(program: Program, path: str, url: str) -> bytes:
    """Return a file of a program, as committed.

    Args:
        program: the program.
        path: the file's path.
        url: where repositories are, with ``{owner}`` and ``{name}``.

    Raises:
        ValueError: the file has another digest.
        CalledProcessError: git cannot fetch it.
    """
    owner, name = program.repository.split("/")
    address = url.format(owner=owner, name=name)
    folder = Path(address)
    if not folder.is_dir():
        folder = CACHE / f"{owner}+{name}"
        if not folder.exists():
            clone = ["git", "clone", "--quiet", "--bare", "--filter=blob:none", address, str(folder)]
            subprocess.run(clone, check=True)
    show = ["git", "-C", str(folder), "show", f"{program.commit}:{path}"]
    content = subprocess.run(show, check=True, capture_output=True).stdout
    digest = hashlib.sha256(content).hexdigest()
    if digest != program.files[path]:
        raise ValueError(f"{program.repository}: {path} has the SHA-256 {digest}, not {program.files[path]}")
    return content


def changed(source: str) -> str:
    """Return a program with its import changed.

    Raises:
        ValueError: it has not exactly one line that imports from llama_cpp.
    """
    text, n_changed = _IMPORT.subn(r"\1pyggml.compat.\2", source)
    if n_changed != 1:
        raise ValueError(f"{n_changed} lines import from llama_cpp, not one")
    return text


def run(program: Program, interpreter: str, url: str, model: Path, *, change: bool) -> Run:
    """Run a program in a new folder.

    Args:
        program: the program.
        interpreter: the Python that runs it.
        url: as for :func:`file_of`.
        model: the file in the place of its model.
        change: change its import.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in program.files:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(file_of(program, path, url))
        if change:
            file = folder / program.path
            file.write_text(changed(file.read_text(encoding="utf-8")), encoding="utf-8")
        (folder / program.model).parent.mkdir(parents=True, exist_ok=True)
        (folder / program.model).symlink_to(model)
        started = time.perf_counter()
        try:
            done = subprocess.run(
                [interpreter, program.path],
                cwd=folder,
                env={**os.environ, "HOME": name, "PYTHONIOENCODING": "utf-8"},
                input=program.stdin.encode(),
                capture_output=True,
                timeout=TIME_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Run(1, f"no end after {TIME_LIMIT_S} s", "", TIME_LIMIT_S)
        seconds = time.perf_counter() - started
    exceptions = _EXCEPTION.findall(done.stderr.decode(errors="replace")) if done.returncode else []
    error = exceptions[-1] if exceptions else ""
    return Run(done.returncode, error, done.stdout.decode(errors="replace"), seconds)


def table(kept: Mapping[str, Mapping[str, str]]) -> str:
    """Return the table of kept results, in Markdown.

    Args:
        kept: repository -> how its program ended with pyggml, and with llama-cpp-python.
    """
    lines = [f"| Program | Uses | With pyggml | With llama-cpp-python {REFERENCE_VERSION} |", "| --- | --- | --- | --- |"]
    for program in programs():
        address = f"{SITE}/{program.repository}/blob/{program.commit}/{program.path}"
        found = kept.get(program.repository, {"pyggml": "not run", "llama_cpp": "not run"})
        link = f"[{program.repository}]({address})"
        lines.append(f"| {link} | {program.uses} | {found['pyggml']} | {found['llama_cpp']} |")
    return "\n".join(lines) + "\n"


def _comparison(ours: Run, theirs: Run) -> str:
    if (ours.status, ours.error) != (theirs.status, theirs.error):
        return theirs.ending
    if ours.output == theirs.output:
        return f"{theirs.ending}, with the same output"
    if ours.shape != theirs.shape:
        return f"{theirs.ending}, with other keys or types: `{theirs.shape}`"
    return f"{theirs.ending}, with the same keys and types" if ours.shape else theirs.ending


def main() -> int:
    """Run the programs, and write the table; return the number of those that fail only with pyggml."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", metavar="PYTHON", help="an interpreter with llama-cpp-python")
    parser.add_argument("--url", default=f"{SITE}/{{owner}}/{{name}}", help="where repositories are")
    parser.add_argument("--only", metavar="TEXT", default="", help="only repositories with this in their name")
    given = parser.parse_args()
    model = real_models.fetch("smollm2")
    CACHE.mkdir(parents=True, exist_ok=True)
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    n_failed = 0
    for program in (each for each in programs() if given.only in each.repository):
        runs = {"pyggml": run(program, sys.executable, given.url, model, change=True)}
        if given.reference:
            runs["llama_cpp"] = run(program, given.reference, given.url, model, change=False)
        for name, found in runs.items():
            output = CACHE / f"{program.repository.replace('/', '+')}.{name}.txt"
            output.write_text(f"{found.output}\n[{found.status}] {found.error}\n", encoding="utf-8")
        ours, theirs = runs["pyggml"], runs.get("llama_cpp")
        before = kept.get(program.repository, {}).get("llama_cpp", "not run")
        kept[program.repository] = {
            "pyggml": ours.ending,
            "llama_cpp": before if theirs is None else _comparison(ours, theirs),
        }
        KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        print(program.repository, kept[program.repository], *(f"{found.seconds:.1f} s" for found in runs.values()))
        n_failed += ours.status != 0 and (theirs is None or theirs.status == 0)
    make_integrations.write_table("programs", table(kept))
    return n_failed


if __name__ == "__main__":
    sys.exit(main())
