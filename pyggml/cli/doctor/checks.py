"""The checks, each with advice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from pyggml.cli.doctor.machine import FEATURES
from pyggml.gpus.diagnosis import Build, Diagnosis, Machine, diagnose, has_gpu_backend
from pyggml.units import bytes_text, counted

_Finding = tuple[str, ...]  # a check without its name
_LOW_MEMORY_BYTES, _LOW_DISK_BYTES = 1 << 30, 5 * 10**9
_LIMITS = {"machine": "the machine", "cgroup": "its control group (a container's limit)", "address_space": "ulimit -v"}
_INSTALL = "pip install --force-reinstall --no-deps . (in the folder of pyggml's source)"


class Check(NamedTuple):
    """The result of a check. Advice is None if there is nothing to do."""

    name: str
    status: str  # "ok", "note": can be improved, "warning": works with reduced performance, "failed": does not work
    text: str
    advice: str | None = None


def checks(facts: dict[str, Any], machine: Machine, failure: str | None) -> Iterator[Check]:
    """Run all checks.

    Args:
        facts: facts of the engine ("build", "cpu" ...), as far as it got, and the machine's "processor".
        machine: the machine's GPUs.
        failure: the error that stopped the engine; None: none.
    """
    if failure is None:
        yield Check("engine", "ok", f"{facts['build']['engine']} starts")
    else:
        when = "during the self test" if "cache" in facts else "at the start"
        yield Check("engine", "failed", f"the engine failed {when}: {failure}", f"build pyggml here: {_INSTALL}")
    if "cpu" in facts:
        yield Check("processor", *_processor(facts["build"], facts["cpu"]["used"], facts["processor"]["features"]))
    for finding in _gpus(facts, machine):
        yield Check("GPU", *finding)
    if "memory" in facts:
        yield Check("memory", *_memory(facts["memory"]))
    if "cache" in facts:
        yield Check("cache", *_cache(facts["cache"]))
    for test in facts.get("self_test", ()):
        yield Check(f"self test on {test['device']}", *_self_test(test))


def _processor(build: dict[str, Any], used: list[str], has: list[str] | None) -> _Finding:
    used = [name for name in used if name in FEATURES]  # the rest are no processor features
    if has is None:
        return "ok", f"the build uses {_list(used)}; the system hides the features of this processor"
    lacking, unused = [name for name in used if name not in has], [name for name in has if name not in used]
    if "AVX512_VNNI" in used and "AVX_VNNI" in unused:
        unused.remove("AVX_VNNI")  # the same instructions on narrower registers
    if lacking:
        text = f"the build uses {_list(lacking)}, which this processor lacks: it will crash"
        return "failed", text, f"build pyggml here: {_INSTALL}"
    if not unused:
        return "ok", f"the build uses all supported features of this processor: {_list(used)}"
    advice = f'this is a generic build; build for this processor: CMAKE_ARGS="-DGGML_NATIVE=ON" {_INSTALL}'
    if build["portable"] and has_gpu_backend(build["options"]):
        return "note", f"this processor has {_list(unused)}, which builds with a GPU do not use"
    if build["portable"]:
        advice = f'build for this processor: CMAKE_ARGS="-DPYGGML_PORTABLE=OFF" {_INSTALL}'
    elif "GGML_NATIVE" in build["options"]:
        advice = f"built on another machine, or with an old compiler ({build['compiler']}). Build it here: {_INSTALL}"
    return "warning", f"this processor has {_list(unused)}, which the build does not use", advice


def _gpus(facts: dict[str, Any], machine: Machine) -> Iterator[Diagnosis]:
    if "devices" not in facts:
        if machine.gpus:
            names = _list([gpu.name for gpu in machine.gpus])
            yield Diagnosis("note", f"found {names}, not checked because the engine failed")
    elif machine.gpus:
        known = ("backends", "unloaded", "refused", "cuda", "capabilities")
        devices = [SimpleNamespace(**device) for device in facts["devices"]]
        yield from diagnose(Build(devices=devices, **{name: facts["build"][name] for name in known}), machine)
    else:
        gpus = [device for device in facts["devices"] if device["type"] in ("gpu", "igpu")]
        seen = _list([f"{gpu['name']} ({gpu['description']})" for gpu in gpus])
        yield Diagnosis("ok", f"the engine sees {seen}" if gpus else "this machine has none")


def _memory(memory: dict[str, Any]) -> _Finding:
    usable = memory["usable_bytes"]
    limits = [words for name, words in _LIMITS.items() if memory[f"{name}_bytes"] == usable]
    text = f"{bytes_text(usable)} for this process, limited by {_list(limits)}"
    if usable < _LOW_MEMORY_BYTES:
        return "warning", text, "most models need more: free memory, or raise the limit"
    if memory["address_space_bytes"] is not None:
        return "note", text, "memory-mapped models count against ulimit -v: ulimit -v unlimited"
    return "ok", text


def _cache(cache: dict[str, Any]) -> _Finding:
    if not cache["writable"]:
        return "failed", cache["error"], "imports need a cache folder: set PYGGML_CACHE to a writable folder"
    holds = f"{counted(cache['n_models'], 'model')}, {bytes_text(cache['size_bytes'])}"
    text = f"{cache['path']}: {holds}; {bytes_text(cache['free_bytes'])} free"
    if cache["free_bytes"] < _LOW_DISK_BYTES:
        return "warning", text, "little disk space for imported models: set PYGGML_CACHE to another folder"
    return "ok", text


def _self_test(test: dict[str, Any]) -> _Finding:
    if test["right"]:
        return "ok", f"the shipped model answers {test['answer']!r}"
    text = test["error"] or f"the shipped model gave a wrong answer: {test['answer']!r}"
    return "failed", text, "please report this, with everything above"


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"
