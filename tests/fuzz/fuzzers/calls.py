"""Calls of everything that is public, with values of every kind: each is answered, or refused by name."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from support.checkpoints import hf_llama, models

from fuzz import hostile_values, surface
from fuzz.hostile_values import CallersError

MAX_SECONDS = 120.0
N_CALLS = 50  # of a case
SLOW_SHARE = 0.02  # of calls that load models or write files
WORDS = [
    *hostile_values.ALL,
    "closed_model",
    "closed_llm",
    "closed_context",
    "closed_sampler",
    "model",
    "llm",
    "context",
]

# How the objects of a case are made when they are first used; those in PREPARED are made once.
MADE = {
    "context": "Context(model, n_ctx=256, n_batch=64, n_seq_max=3, n_threads=1)",
    "sampler": "Sampler(model)",
    "engine": "Engine(Context(model, n_ctx=256, n_seq_max=2, n_threads=1), stop_token_ids=())",
    "request": "engine.submit([1, 2], max_tokens=3)",
    "stream": "llm.stream('x', max_tokens=3)",
    "chat_stream": "llm.stream_chat([{'role': 'user', 'content': 'x'}], max_tokens=3)",
    "templates": "ChatTemplates(model, 'chatml')",
    "parser": "templates.render([{'role': 'user', 'content': 'x'}]).parser()",
    "backend": "Backend('CPU', 1)",
    "reader": "gguf.GGUFReader(path)",
    "writer": "gguf.GGUFWriter('writer.gguf')",
    "message": "ChatMessage('user', 'x')",
    "matrix": "ImportanceMatrix({}, (), 1, 1)",
    "inference": "Inference.cpu()",
    "state": "a_state(context)",
    "path": "a_copy(tiny)",  # calls may overwrite it
}
# What else a call's documentation says that it raises.
MAY_COME: dict[str, tuple[type[Exception], ...]] = {"value_type": (KeyError,)}
NOT_CLOSED = {"llm", "model", "vocab", "tokenizer"}


def prepare(folder: Path) -> dict[str, Any]:
    os.environ |= {"HF_HUB_OFFLINE": "1", "PYGGML_CACHE": str(folder / "cache"), "HF_HOME": str(folder / "hub")}
    import pyggml
    from pyggml import cache, gguf, hub, memory, options, quant, schema, system
    from pyggml.options import sampling

    warnings.simplefilter("ignore")
    modules = (cache, gguf, hub, memory, options, quant, sampling, schema, system)
    names: dict[str, Any] = {module.__name__.rpartition(".")[2]: module for module in modules}
    names |= {name: getattr(pyggml, name) for name in pyggml.__all__} | hostile_values.NAMES
    vocabulary = {**models.byte_vocabulary(), "tokenizer.chat_template": models.BYTE_CHAT_TEMPLATE}
    path = models.write_llama(folder / "tiny.gguf", vocabulary)
    names |= {
        "tiny": path,
        "a_copy": a_copy,
        "hf": hf_llama.HFLlama().write(folder / "hf"),
        "F32": quant.GGMLType.F32,
        "a_state": a_state,
    }
    names["loop"] = asyncio.new_event_loop()
    names["llm"] = llm = pyggml.load(path, n_threads=1, n_parallel=2, n_ctx=512)
    names |= {"model": llm.model, "vocab": llm.model.vocab, "tokenizer": llm.tokenizer}
    names["completion"] = llm.generate("x", max_tokens=2)
    names["report"] = pyggml.inspect(path)
    closed_model, closed_context = pyggml.Model(path), pyggml.Context(llm.model, n_ctx=256)
    closed_sampler, closed_llm = pyggml.Sampler(llm.model).greedy(), pyggml.load(path, n_threads=1)
    for name, each in {
        "closed_model": closed_model,
        "closed_context": closed_context,
        "closed_sampler": closed_sampler,
        "closed_llm": closed_llm,
    }.items():
        _close(each)
        names[name] = each
    return names


def make(random: np.random.Generator) -> list[Any]:
    fast = [target for target in surface.targets() if not target.is_slow]
    slow = [target for target in surface.targets() if target.is_slow]
    return [
        _call(random, slow if random.random() < SLOW_SHARE else fast) for _ in range(random.integers(1, 2 * N_CALLS))
    ]


def run(prepared: dict[str, Any], parts: list[Any], folder: Path) -> str:
    case = Case(prepared)
    back = Path.cwd()
    os.chdir(folder)
    try:
        for part in parts:
            case.attempt(part)
    finally:
        os.chdir(back)
        case.close()
    return "through"


def _call(random: np.random.Generator, targets: list[surface.Target]) -> list[Any]:
    """[object, member, {parameter: expression}]; a property has None for its parameters."""
    target = targets[random.integers(len(targets))]
    object = f"closed_{target.object}" if target.object and random.random() < 0.05 else target.object
    if target.is_property:
        return [object, target.name, None]
    wrong = set(random.permutation(list(target.parameters))[: random.integers(3)].tolist())
    given = {}
    for name, is_required in target.parameters.items():
        usual = surface.USUAL.get(name, [])
        if name in wrong or (is_required and not usual):
            given[name] = WORDS[random.integers(len(WORDS))]
        elif is_required or (usual and random.random() < 0.5) or name in ("n_threads", "max_tokens"):
            given[name] = usual[random.integers(len(usual))]
    return [object, target.name, given]


class Case(dict[str, Any]):
    """The names that expressions of a case may use. Objects are made when they are needed, and closed at its end."""

    def __init__(self, prepared: dict[str, Any]) -> None:
        super().__init__(prepared)
        self._prepared = prepared

    def __missing__(self, name: str) -> Any:
        if name.startswith("closed_"):
            self[name] = one = self._one(name.removeprefix("closed_"))
            _close(one)
            return one
        if name not in MADE:
            raise KeyError(name)
        self[name] = eval(MADE[name], {}, self)
        return self[name]

    def _one(self, name: str) -> Any:
        return eval(MADE[name], {}, self) if name in MADE else self[name]

    def attempt(self, part: list[Any]) -> str:
        """Makes a call; returns what came of it. Any other exception than those that may come leaves."""
        from pyggml import InferError

        may_come: tuple[type[Exception], ...] = (InferError, CallersError, *MAY_COME.get(part[1], ()))
        given = part[2] or {}
        if {"key", "progress"} & given.keys():  # a function that takes something else is the caller's
            may_come += (TypeError,)
        if "key" in given:  # and so are the errors of a type that converts texts
            may_come += (ValueError,)

        try:
            call = self._bound(part)
        except (InferError, CallersError):
            return "no object"
        try:
            self._finish(call())
        except may_come as error:
            return type(error).__name__
        if part[1] == "close" and part[0] in MADE:  # "closed_..." has those that stay closed
            self.pop(part[0], None)
        return "answered"

    def _bound(self, part: list[Any]) -> Callable[[], Any]:
        object, name, given = part
        if object.removeprefix("closed_") in NOT_CLOSED and name in ("close", "__exit__"):
            object = ""
            name, given = "len", {}
            return lambda: None
        owner = eval(object, {}, self) if object else None
        if given is None:
            return lambda: getattr(owner, name)
        values = {key: eval(text, {}, self) for key, text in given.items()}
        function = getattr(owner, name) if object else eval(name, {}, self)
        return lambda: function(**values)

    def _finish(self, result: Any) -> None:
        """Takes what a call returned to its end."""
        if inspect.isawaitable(result):
            result = self["loop"].run_until_complete(asyncio.wait_for(_awaited(result), 60))
        if hasattr(result, "__anext__"):
            self["loop"].run_until_complete(asyncio.wait_for(_read(result), 60))
        elif isinstance(result, Iterator):
            list(itertools.islice(result, 5))
        if not isinstance(result, self["ChatTemplates"]) and not any(result is one for one in self.values()):
            _close(result)

    def close(self) -> None:
        for name, one in self.items():
            if name not in self._prepared:
                _close(one)


def a_copy(path: Path) -> Path:
    """A model's file in the folder of the case."""
    return Path(shutil.copy(path, Path.cwd() / "model.gguf"))


def a_state(context: Any) -> bytes:
    """A saved state."""
    context.memory_clear()
    context.decode([1, 2, 3])
    saved: bytes = context.state_save()
    return saved


async def _awaited(result: Any) -> Any:
    return await result


async def _read(stream: Any) -> None:
    with contextlib.suppress(StopAsyncIteration):
        for _ in range(5):
            await stream.__anext__()
    await stream.aclose()


def _close(one: object) -> None:
    close = getattr(one, "close", None) if type(one).__module__.startswith("pyggml") else None
    if close is not None:
        close()
