"""Runs cases, each in a process forked from this one, which has imported pyggml, used it, and closed everything.

Reads a line with the steps and a folder, writes a line with what came of it. In a case's process `main` returns: its
interpreter ends as any other's.
"""

from __future__ import annotations

import atexit
import faulthandler
import json
import os
import sys
from pathlib import Path
from typing import Any

from fuzz.sequences.world import N_TOKENS, PROMPTS, QUESTION, Answers, World

CASE_SECONDS = 40.0  # without doing anything; its own children have less

_world: World | None = None


def _late() -> None:
    for handler in _world.late if _world else []:
        handler()


atexit.register(_late)  # before pyggml's, so it is called after them


def main() -> None:
    global _world
    from fuzz.sequences.case import Case, make_once
    from fuzz.sequences.processes import ended

    answers = answers_alone()
    make_once()
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    print(json.dumps({"ready": True}), file=out)
    for line in sys.stdin:
        asked = json.loads(line)
        folder = Path(asked["folder"])
        child = os.fork()
        if child:
            print(json.dumps(outcome(folder, ended(child, CASE_SECONDS))), file=out)
            continue
        errors = os.open(folder / "errors", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(errors, 2)
        os.dup2(errors, 1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        faulthandler.enable()
        os.chdir(folder)
        case = Case(answers, folder)
        _world = case.world
        case.play(asked["steps"])
        return


def answers_alone() -> Answers:
    """Return one model's answers to the prompts, computed one after the other."""
    import pyggml

    with pyggml.load(n_threads=1, n_parallel=1, n_ctx=512, prefix_cache=False, deterministic=True) as llm:
        return Answers(
            [llm.generate(prompt, max_tokens=N_TOKENS, ignore_eos=True).token_ids for prompt in PROMPTS],
            llm.embed(PROMPTS[0]),
            llm.chat(QUESTION).message.content,
        )


def outcome(folder: Path, status: int) -> dict[str, Any]:
    """Faults that were written down, or an end other than the one expected."""
    faults = _lines(folder / "faults")
    expected = int((_lines(folder / "expected") or ["0"])[-1])
    errors = "\n".join(_lines(folder / "errors"))[-6000:]
    if faults:
        first = json.loads(faults[0])
        words = "\n".join([first["words"], *(json.loads(line)["kind"] for line in faults[1:20]), errors])
        return {"wrong": first["kind"], "words": words}
    if status != expected:
        return {"wrong": f"ended with {status} instead of {expected}", "words": errors}
    if "Exception ignored" in errors or "From cffi callback" in errors or "FATAL" in errors:
        return {"wrong": "it wrote to the terminal", "words": errors}
    return {"outcome": f"ended with {status}"}


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines() if path.exists() else []


if __name__ == "__main__":
    main()
