"""What is well, what could be better and what is wrong, and the way out of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pyggml.cli.doctor.gpu import Gpu
from pyggml.cli.doctor.machine import used_features
from pyggml.units import bytes_text, counted

#: "note": something that could be done; "warning": pyggml works, but not as it could; "failed": it does not.
Status = Literal["ok", "note", "warning", "failed"]

_LITTLE_MEMORY = 1 << 30
_LITTLE_DISK = 5 * 10**9
_REBUILD = "pip install --force-reinstall --no-deps --no-cache-dir --no-binary pyggml pyggml"
_IN_A_CHECKOUT = '(in a checkout, "." in place of the last word)'

# Vendor of a GPU -> backends that compute on it, the best first, and their devices' kinds as pyggml.load() takes them.
_BACKENDS = {
    "NVIDIA": {"CUDA": "cuda", "Vulkan": "vulkan"},
    "AMD": {"ROCm": "rocm", "Vulkan": "vulkan"},
    "Intel": {"SYCL": "sycl", "Vulkan": "vulkan"},
    "Apple": {"MTL": "mtl"},
}
# What descriptions of their devices say, for backends of several vendors.
_WORDS = {
    "NVIDIA": ("nvidia", "geforce", "quadro", "tesla"),
    "AMD": ("amd", "radeon"),
    "Intel": ("intel",),
    "Apple": ("apple",),
}
# What makes a vendor's backend see fewer devices.
_HIDING = {"NVIDIA": "CUDA_VISIBLE_DEVICES", "AMD": "HIP_VISIBLE_DEVICES", "Intel": "ONEAPI_DEVICE_SELECTOR"}


@dataclass(frozen=True)
class Check:
    """Something that was looked at.

    Attributes:
        name: what.
        status: how it is.
        text: in words.
        advice: what to do; None: nothing.
    """

    name: str
    status: Status
    text: str
    advice: str | None = None


def checks(facts: dict[str, Any], gpus: Sequence[Gpu], failure: str | None, *, has_rocm: bool) -> list[Check]:
    """All of them.

    Args:
        facts: of the machine ("processor"), and what the engine told ("build", "cpu", "memory", ...), as far as it
            came.
        gpus: those of the machine.
        failure: what ended the engine's process before it had told everything.
        has_rocm: whether the kernel offers an AMD GPU to ROCm.
    """
    found = [_engine(facts, failure)]
    if "build" in facts and "cpu" in facts:
        found.append(_processor(facts))
    found += _gpus(facts, gpus, has_rocm=has_rocm)
    if "memory" in facts:
        found.append(_memory(facts["memory"]))
    if "cache" in facts:
        found.append(_cache(facts["cache"]))
    return [*found, *(_self_test(test) for test in facts.get("self_test", []))]


def _engine(facts: dict[str, Any], failure: str | None) -> Check:
    if failure is None:
        return Check("engine", "ok", f"{facts['build']['engine']} starts")
    when = "while it answered a question" if "cache" in facts else "when it started"
    return Check(
        "engine", "failed", f"the engine failed {when}: {failure}", f"build pyggml here: {_REBUILD} {_IN_A_CHECKOUT}"
    )


def _processor(facts: dict[str, Any]) -> Check:
    used, has = used_features(facts["cpu"]["used"]), facts["processor"]["features"]
    if has is None:
        return Check("processor", "ok", f"the build uses {_list(used)}; what this processor has, the system hides")
    lacking = [name for name in used if name not in has]
    if lacking:
        return Check(
            "processor",
            "failed",
            f"the build uses {_list(lacking)}, which this processor does not have: it will crash",
            f"build pyggml here: {_REBUILD} {_IN_A_CHECKOUT}",
        )
    missed = [name for name in has if name not in used]
    if missed:
        text = f"this processor has {_list(missed)}, and the build makes no use of that"
        return Check("processor", "warning", text, _faster(facts["build"]))
    return Check("processor", "ok", f"the build uses all that this processor has for it: {_list(used)}")


def _faster(build: dict[str, Any]) -> str:
    """How to get a build that uses more of the processor."""
    if build["portable"]:
        return f'build for this processor alone: CMAKE_ARGS="-DPYGGML_PORTABLE=OFF" {_REBUILD} {_IN_A_CHECKOUT}'
    if "GGML_NATIVE" in build["options"]:
        return (
            f"it was built on another machine, or by a compiler ({build['compiler']}) that does not know them. Build "
            f"it here, with a newer one: {_REBUILD} {_IN_A_CHECKOUT}"
        )
    return f'it was built for processors in general: CMAKE_ARGS="-DGGML_NATIVE=ON" {_REBUILD} {_IN_A_CHECKOUT}'


def _gpus(facts: dict[str, Any], gpus: Sequence[Gpu], *, has_rocm: bool) -> Iterator[Check]:
    devices = facts.get("devices")
    if not gpus and devices is not None:
        seen = [device for device in devices if device["type"] in ("gpu", "igpu")]
        names = _list([f"{device['name']} ({device['description']})" for device in seen])
        yield Check("GPU", "ok", f"the engine sees {names}" if seen else "none is seen in this machine")
    for vendor in dict.fromkeys(gpu.vendor for gpu in gpus):
        own = [gpu for gpu in gpus if gpu.vendor == vendor]
        yield from _of_vendor(facts, own, has_rocm=has_rocm)


def _of_vendor(facts: dict[str, Any], gpus: Sequence[Gpu], *, has_rocm: bool) -> Iterator[Check]:
    vendor, ready = gpus[0].vendor, [gpu for gpu in gpus if gpu.missing is None]
    for gpu in gpus:
        if gpu.missing is not None:
            status: Status = "note" if ready else "warning"
            yield Check("GPU", status, f"{gpu.name} ({gpu.seen}) cannot be used: {gpu.missing}", gpu.remedy)
    names = _list([gpu.name for gpu in ready])
    if not ready or "devices" not in facts:
        if ready:
            yield Check("GPU", "note", f"{names} is there; first the engine has to start")
        return
    backends = [backend for backend in _BACKENDS[vendor] if backend in facts["build"]["backends"]]
    in_use = [device for device in facts["devices"] if _is_of(device, vendor, backends)]
    if in_use:
        used = _list([f"{device['name']} ({device['description']})" for device in in_use])
        of_all = f", of {len(ready)} {vendor} GPUs" if len(ready) > len(in_use) else ""
        yield Check("GPU", "note" if of_all else "ok", f"the engine sees {used}{of_all}")
    elif backends:
        yield _unseen(facts, vendor, backends[0], names)
    else:
        # An Intel GPU mostly shares the main memory with the processor, and gains little.
        status = "note" if vendor == "Intel" else "warning"
        text = f"{names} is there, and this build cannot use it: it was built for {_list(facts['build']['backends'])}"
        yield Check("GPU", status, text, _to_build(facts["advice"], vendor, has_rocm=has_rocm))


def _is_of(device: dict[str, Any], vendor: str, backends: Sequence[str]) -> bool:
    """Whether a device is one of the vendor's. Vulkan serves all of them: there only the description tells."""
    kind = device["name"].rstrip("0123456789")
    description = device["description"].lower()
    return kind in backends and (kind != "Vulkan" or any(word in description for word in _WORDS[vendor]))


def _unseen(facts: dict[str, Any], vendor: str, backend: str, names: str) -> Check:
    hiding = _HIDING.get(vendor, "")
    if hiding in os.environ:
        text = f"{names} is there and the build has {backend}, but {hiding}={os.environ[hiding]} leaves no device"
        return Check("GPU", "note", text, f"unset {hiding} to use it")
    text = f"{names} is there and the build has {backend}, but the engine sees no device of it"
    return Check("GPU", "failed", text, facts["advice"][_BACKENDS[vendor][backend]])


def _to_build(advice: dict[str, str], vendor: str, *, has_rocm: bool) -> str:
    best = next(iter(_BACKENDS[vendor].values()))
    if vendor == "Intel" or (vendor == "AMD" and not has_rocm):
        best = "vulkan"
    return advice[best]


def _memory(memory: dict[str, int | None]) -> Check:
    usable = memory["usable_bytes"] or 0
    limits = {
        "the machine": memory["machine_bytes"],
        "its control group (a container's limit)": memory["cgroup_bytes"],
        "ulimit -v": memory["address_space_bytes"],
    }
    by = min((name for name, value in limits.items() if value is not None), key=lambda name: limits[name] or 0)
    text = f"{bytes_text(usable)} for this process, by {by}"
    if usable < _LITTLE_MEMORY:
        return Check("memory", "warning", text, "most models need more: free some, or raise the limit")
    if memory["address_space_bytes"] is not None:
        return Check("memory", "note", text, "mapped model files count against ulimit -v: ulimit -v unlimited")
    return Check("memory", "ok", text)


def _cache(cache: dict[str, Any]) -> Check:
    if "error" in cache:
        return Check("cache", "failed", cache["error"], "set PYGGML_CACHE to a folder that can be written to")
    held = f"{counted(cache['n_models'], 'model')}, {bytes_text(cache['size_bytes'])}"
    text = f"{cache['path']}: {held}; {bytes_text(cache['free_bytes'])} free"
    if not cache["writable"]:
        advice = "Hugging Face directories cannot be imported: name another place in PYGGML_CACHE"
        return Check("cache", "failed", f"{cache['path']} cannot be written to", advice)
    if cache["free_bytes"] < _LITTLE_DISK:
        return Check("cache", "warning", text, "little room for imports: name another place in PYGGML_CACHE")
    return Check("cache", "ok", text)


def _self_test(test: dict[str, Any]) -> Check:
    name = f"self test on {test['device']}"
    if test["error"]:
        return Check(name, "failed", test["error"], "please report this, with all of the above")
    if not test["right"]:
        text = f"the shipped model answered wrongly: {test['answer']!r}"
        return Check(name, "failed", text, "please report this, with all of the above")
    return Check(name, "ok", f"the shipped model answers {test['answer']!r}")


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"
