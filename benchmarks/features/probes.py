"""The probes: each does one thing that users do, with one side, and says what happened.

    python probes.py SIDE PROBE FILES       FILES: JSON, names and paths of what inputs.py made

The last line on standard output is the result as JSON. A process that ends without one died of the probe.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import inspect
import json
import os
import re
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from side import Answer, NotOffered, Side

Result = dict[str, Any]
Files = dict[str, str]

BEGINNING = "Once upon a time"
SKY = "What colour is the sky?"
QUESTIONS = (
    SKY,
    "What colour is grass?",
    "What colour is snow?",
    "What does a cow say?",
    "What does a dog say?",
    "How many legs does a dog have?",
    "How many legs does a bird have?",
    "How many legs does a spider have?",
)


def threads(side: Side, files: Files) -> Result:
    """Eight threads ask one model without a lock; each has the answers of one thread to compare with."""
    side.load(files["model"], n_parallel=8, n_ctx=1024)
    expected = [side.chat(question, 24).text for question in QUESTIONS]
    texts: list[str | None] = [None] * len(QUESTIONS)
    errors: list[str] = []

    def call(i: int) -> None:
        try:
            texts[i] = side.chat(QUESTIONS[i], 24).text
        except Exception as error:
            errors.append(_named(error))

    started = [threading.Thread(target=call, args=(i,)) for i in range(len(QUESTIONS))]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    right = sum(text == other for text, other in zip(texts, expected, strict=True))
    return {"right": right, "of": len(expected), "errors": errors}


def long_prompt(side: Side, files: Files) -> Result:
    """A prompt of 5,000 words for a context of 512 tokens."""
    side.load(files["model"])
    return _tried(side, lambda: side.generate("word " * 5000, 8))


def bad_token(side: Side, files: Files) -> Result:
    """A token id far outside the vocabulary."""
    side.load(files["model"])
    return _tried(side, lambda: side.generate([1, 10**6], 8))


def no_text(side: Side, files: Files) -> Result:
    """A prompt without a token."""
    side.load(files["model"])
    return _tried(side, lambda: side.generate([], 8))


def bad_file(side: Side, files: Files) -> Result:
    """A file that is no good model, named by ``bad``."""
    return _tried(None, lambda: _loaded(side, files["bad"]))


def checkpoint(side: Side, files: Files) -> Result:
    """A Hugging Face directory."""
    result = _tried(None, lambda: _loaded(side, files["checkpoint"]))
    return result | {"imports_torch": "torch" in sys.modules}


def schema(side: Side, files: Files) -> Result:
    """Ten answers under a JSON schema."""
    side.load(files["model"])
    asked = {
        "type": "object",
        "properties": {
            "kind": {"enum": ["dog", "cat", "bird"]},
            "legs": {"type": "integer", "minimum": 0, "maximum": 8},
            "code": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{2}$"},
            "tags": {"type": "array", "items": {"enum": ["small", "tame", "loud"]}, "minItems": 1, "maxItems": 2},
        },
        "required": ["kind", "legs", "code", "tags"],
        "additionalProperties": False,
    }
    animals = ("dog", "cat", "bird", "fish", "spider", "cow", "frog", "hen", "horse", "bee")
    answers = [side.chat(f"What is a {name}?", 200, asked) for name in animals]
    cut_off = sum(answer.finish_reason == "length" for answer in answers)
    return {"valid": sum(_is_valid(answer.text) for answer in answers), "of": len(answers), "cut_off": cut_off}


def impossible_schema(side: Side, files: Files) -> Result:
    """A schema that no value matches: three different ones of two."""
    side.load(files["model"])
    asked = {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 3, "maxItems": 3, "uniqueItems": True}
    return _tried(side, lambda: side.chat(SKY, 100, asked))


def end_of_turn(side: Side, files: Files) -> Result:
    """An answer that is one sentence, with room for many."""
    side.load(files["model"])
    answer = side.chat(SKY, 200)
    return {"text": answer.text, "finish_reason": answer.finish_reason}


def event_loop(side: Side, files: Files) -> Result:
    """The longest pause of an event loop while an answer of 200 tokens is generated in it."""
    side.load(files["slow model"], n_ctx=1024)
    coroutines = [name for name in dir(side.public) if not name.startswith("_") and _is_async(side.public, name)]

    async def pauses() -> tuple[float, float]:
        stop, longest = False, 0.0

        async def tick() -> None:
            nonlocal longest
            while not stop:
                before = time.perf_counter()
                await asyncio.sleep(0.005)
                longest = max(longest, time.perf_counter() - before - 0.005)

        await side.agenerate(BEGINNING, 1)
        ticking = asyncio.create_task(tick())
        await asyncio.sleep(0.05)
        start = time.perf_counter()
        await side.agenerate(BEGINNING, 64)
        seconds = time.perf_counter() - start
        stop = True
        await ticking
        return seconds, longest

    seconds, longest = asyncio.run(pauses())
    return {"coroutines": coroutines, "seconds": round(seconds, 3), "longest_pause_ms": round(longest * 1000, 1)}


def cancel(side: Side, files: Files) -> Result:
    """Cancel during a prompt of 3,000 tokens, and measure the latency of a short request."""
    side.load(files["slow model"], n_ctx=4096)
    long = [100 + (i * 7919) % 40_000 for i in range(3000)]
    short = [100 + (i * 104_729) % 40_000 for i in range(8)]

    def answered_after() -> float:
        start = time.perf_counter()
        side.generate(short, 1)
        return time.perf_counter() - start

    answered_after()
    alone = statistics.median(answered_after() for _ in range(3))
    start = time.perf_counter()
    stop = side.start(long, 8)
    time.sleep(0.5)
    cancelled = time.perf_counter()
    stop()
    ended = time.perf_counter()
    answered_after()
    return {
        "ms": round((time.perf_counter() - cancelled - alone) * 1000),
        "ended_ms": round((ended - cancelled) * 1000),
        "after_ms": round((cancelled - start) * 1000),
    }


def gpu(side: Side, files: Files) -> Result:
    """A GPU asked for, in the library's own way, on a machine without one."""
    return _tried(None, lambda: _loaded(side, files["model"], gpu=True))


def install(side: Side, files: Files) -> Result:
    """Count the installed dependencies, and check whether a request imports PyTorch."""
    side.load(files["model"])
    side.generate("The", 2)
    names = _with_dependencies(side.distribution)
    package = Path(str(sys.modules[side.public.__module__.split(".")[0]].__file__)).parent
    # Not from the list of its files: one that is installed from a checkout lists none.
    n_bytes = sum(path.stat().st_size for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc")
    n_bytes += sum(_n_bytes(importlib.metadata.distribution(name)) for name in names - {_key(side.distribution)})
    return {"distributions": len(names), "mb": round(n_bytes / 1e6), "imports_torch": "torch" in sys.modules}


def _tried(side: Side | None, act: Callable[[], Answer | None]) -> Result:
    """Run an action, and check that the side still responds afterwards."""
    try:
        answer = act()
    except NotOffered as error:
        return {"not_offered": str(error)}
    except Exception as error:
        result: Result = {"raised": type(error).__name__, "message": str(error).strip()[:300]}
    else:
        result = {"answered": answer.text[:80] if answer else ""}
    if side is not None:
        try:
            result["works_after"] = bool(side.generate(BEGINNING, 8).text)
        except Exception as error:
            result["works_after"] = False
            result["error_after"] = _named(error)
    return result


def _loaded(side: Side, path: str, **options: bool) -> Answer:
    side.load(path, **options)
    return side.generate(BEGINNING, 8)


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"


def _is_async(public: type, name: str) -> bool:
    member = inspect.getattr_static(public, name)
    return inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)


def _is_valid(text: str) -> bool:
    """Return True if a text matches the schema of :func:`schema`."""
    try:
        value = json.loads(text)
        return (
            value.keys() == {"kind", "legs", "code", "tags"}
            and value["kind"] in ("dog", "cat", "bird")
            and type(value["legs"]) is int
            and 0 <= value["legs"] <= 8
            and re.fullmatch(r"[A-Z]{3}-[0-9]{2}", value["code"]) is not None
            and 1 <= len(value["tags"]) <= 2
            and set(value["tags"]) <= {"small", "tame", "loud"}
        )
    except (ValueError, AttributeError, TypeError):
        return False


def _with_dependencies(name: str) -> set[str]:
    """A distribution and all that it requires without extras, as they are installed here."""
    found: set[str] = set()
    wanted = [name]
    while wanted:
        key = _key(wanted.pop())
        if key in found:
            continue
        try:
            requires = importlib.metadata.requires(key) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for another platform
        found.add(key)
        wanted += [re.split(r"[^\w.-]", line)[0] for line in requires if "extra ==" not in line]
    return found


def _key(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _n_bytes(distribution: importlib.metadata.Distribution) -> int:
    paths = {Path(str(distribution.locate_file(file))) for file in distribution.files or ()}
    return sum(path.stat().st_size for path in paths if path.is_file())


PROBES = {
    probe.__name__: probe
    for probe in (threads, long_prompt, bad_token, no_text, bad_file, checkpoint, schema, impossible_schema,
                  end_of_turn, event_loop, cancel, gpu, install)
}  # fmt: skip


def main() -> None:
    name, probe, files = sys.argv[1:]
    side: Side = importlib.import_module(f"with_{name}").Library()
    result = PROBES[probe](side, json.loads(files))
    print(f"\n{json.dumps(result)}", flush=True)
    os._exit(0)  # how a side ends its own process is not what was asked


if __name__ == "__main__":
    main()
