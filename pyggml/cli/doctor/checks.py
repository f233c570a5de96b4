"""What works, what could be better and what is wrong, each with the way out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from pyggml.cli.doctor.gpu import Gpu
from pyggml.cli.doctor.machine import used_features
from pyggml.units import bytes_text, counted

#: "note": something that could be done; "warning": pyggml works, but not as it could; "failed": it does not.
Status = Literal["ok", "note", "warning", "failed"]

_LITTLE_MEMORY, _LITTLE_DISK = 1 << 30, 5 * 10**9
_INSTALL = (
    "pip install --force-reinstall --no-deps --no-cache-dir --no-binary pyggml pyggml "
    '(in a checkout, "." in place of the last word)'
)
_REPORT = "please report this, with all of the above"


class _Vendor(NamedTuple):
    backends: dict[str, str]  # the best first, and what load() calls their devices
    words: str  # one of which is in the descriptions of its devices, for backends that serve several vendors
    hiding: str = ""  # the variable that makes its backend see fewer devices


_VENDORS = {
    "NVIDIA": _Vendor({"CUDA": "cuda", "Vulkan": "vulkan"}, "nvidia geforce quadro tesla", "CUDA_VISIBLE_DEVICES"),
    "AMD": _Vendor({"ROCm": "rocm", "Vulkan": "vulkan"}, "amd radeon", "HIP_VISIBLE_DEVICES"),
    "Intel": _Vendor({"SYCL": "sycl", "Vulkan": "vulkan"}, "intel", "ONEAPI_DEVICE_SELECTOR"),
    "Apple": _Vendor({"MTL": "mtl"}, "apple"),
}
#: The kinds of devices that :func:`_gpus` may need advice about.
DEVICE_KINDS = sorted({kind for vendor in _VENDORS.values() for kind in vendor.backends.values()})


class Check(NamedTuple):
    """Something that was looked at: what, how it is, that in words, and what to do; None: nothing."""

    name: str
    status: Status
    text: str
    advice: str | None = None


def checks(facts: dict[str, Any], gpus: Sequence[Gpu], failure: str | None, *, has_rocm: bool) -> Iterator[Check]:
    """All of them, of what the engine said ("build", "cpu" ...) as far as it came, and the "processor" of the machine.

    The failure is what ended the engine too early; ``has_rocm``: the kernel offers an AMD GPU to ROCm.
    """
    if failure is None:
        yield Check("engine", "ok", f"{facts['build']['engine']} starts")
    else:
        when = "while it answered a question" if "cache" in facts else "when it started"
        yield Check("engine", "failed", f"the engine failed {when}: {failure}", f"build pyggml here: {_INSTALL}")
    if "build" in facts and "cpu" in facts:
        yield _processor(facts["build"], used_features(facts["cpu"]["used"]), facts["processor"]["features"])
    if not gpus and "devices" in facts:
        seen = [device for device in facts["devices"] if device["type"] in ("gpu", "igpu")]
        yield Check("GPU", "ok", f"the engine sees {_names(seen)}" if seen else "none is seen in this machine")
    for vendor in dict.fromkeys(gpu.vendor for gpu in gpus):
        yield from _gpus(facts, vendor, [gpu for gpu in gpus if gpu.vendor == vendor], has_rocm=has_rocm)
    if "memory" in facts:
        yield _memory(facts["memory"])
    if "cache" in facts:
        yield _cache(facts["cache"])
    for test in facts.get("self_test", ()):
        said = f"the shipped model answer{'s' if test['right'] else 'ed wrongly:'} {test['answer']!r}"
        outcome: tuple[Status, str | None] = ("ok", None) if test["right"] else ("failed", _REPORT)
        yield Check(f"self test on {test['device']}", outcome[0], test["error"] or said, outcome[1])


def _processor(build: dict[str, Any], used: list[str], has: list[str] | None) -> Check:
    if has is None:
        return Check("processor", "ok", f"the build uses {_list(used)}; the system hides what this processor has")
    lacking, unused = [name for name in used if name not in has], [name for name in has if name not in used]
    if lacking:
        text = f"the build uses {_list(lacking)}, which this processor does not have: it will crash"
        return Check("processor", "failed", text, f"build pyggml here: {_INSTALL}")
    if not unused:
        return Check("processor", "ok", f"the build uses everything it can of this processor: {_list(used)}")
    advice = f'it was built for processors in general: CMAKE_ARGS="-DGGML_NATIVE=ON" {_INSTALL}'
    if build["portable"]:
        advice = f'build for this processor alone: CMAKE_ARGS="-DPYGGML_PORTABLE=OFF" {_INSTALL}'
    elif "GGML_NATIVE" in build["options"]:
        advice = f"built on another machine, or by an old compiler ({build['compiler']}). Build it here: {_INSTALL}"
    return Check("processor", "warning", f"this processor has {_list(unused)}, which the build does not use", advice)


def _gpus(facts: dict[str, Any], vendor: str, gpus: Sequence[Gpu], *, has_rocm: bool) -> Iterator[Check]:
    ready = [gpu.name for gpu in gpus if gpu.missing is None]
    for gpu in gpus:
        if gpu.missing is not None:
            text = f"{gpu.name} ({gpu.seen}) cannot be used: {gpu.missing}"
            yield Check("GPU", "note" if ready else "warning", text, gpu.remedy)
    if not ready:
        return
    if "devices" not in facts:
        yield Check("GPU", "note", f"{_list(ready)} is there; first the engine has to start")
        return
    known, built = _VENDORS[vendor], facts["build"]["backends"]
    backends = [backend for backend in known.backends if backend in built]
    in_use = [device for device in facts["devices"] if _is_of(device, known, backends)]
    if in_use:
        rest = f", of {len(ready)} {vendor} GPUs" if len(ready) > len(in_use) else ""
        yield Check("GPU", "note" if rest else "ok", f"the engine sees {_names(in_use)}{rest}")
    elif backends and known.hiding in os.environ:
        text = f"{_list(ready)} is there, but {known.hiding}={os.environ[known.hiding]} hides it from {backends[0]}"
        yield Check("GPU", "note", text, f"unset {known.hiding} to use it")
    elif backends:
        text = f"{_list(ready)} is there and the build has {backends[0]}, but the engine sees no device of it"
        yield Check("GPU", "failed", text, facts["advice"][known.backends[backends[0]]])
    else:
        # Intel's mostly share the main memory with the processor, and gain little.
        is_best_served_by_vulkan = vendor == "Intel" or (vendor == "AMD" and not has_rocm)
        kind = "vulkan" if is_best_served_by_vulkan else next(iter(known.backends.values()))
        text = f"{_list(ready)} is there, and this build cannot use it: it was built for {_list(built)}"
        yield Check("GPU", "note" if vendor == "Intel" else "warning", text, facts["advice"][kind])


def _is_of(device: dict[str, Any], vendor: _Vendor, backends: Sequence[str]) -> bool:
    """Whether a device is one of the vendor's. Vulkan serves all of them, so there the description has to tell."""
    kind, description = device["name"].rstrip("0123456789"), device["description"].lower()
    return kind in backends and (kind != "Vulkan" or any(word in description for word in vendor.words.split()))


def _memory(memory: dict[str, Any]) -> Check:
    limits = {
        "the machine": memory["machine_bytes"],
        "its control group (a container's limit)": memory["cgroup_bytes"],
        "ulimit -v": memory["address_space_bytes"],
    }
    least = min((name for name, value in limits.items() if value is not None), key=lambda name: limits[name])
    text = f"{bytes_text(memory['usable_bytes'])} for this process, limited by {least}"
    if memory["usable_bytes"] < _LITTLE_MEMORY:
        return Check("memory", "warning", text, "most models need more: free some, or raise the limit")
    if memory["address_space_bytes"] is not None:
        return Check("memory", "note", text, "mapped model files count against ulimit -v: ulimit -v unlimited")
    return Check("memory", "ok", text)


def _cache(cache: dict[str, Any]) -> Check:
    if "error" in cache:
        return Check("cache", "failed", cache["error"], "set PYGGML_CACHE to a folder that can be written to")
    if not cache["writable"]:
        advice = "Hugging Face directories cannot be imported: name another place in PYGGML_CACHE"
        return Check("cache", "failed", f"{cache['path']} cannot be written to", advice)
    holds = f"{counted(cache['n_models'], 'model')}, {bytes_text(cache['size_bytes'])}"
    text = f"{cache['path']}: {holds}; {bytes_text(cache['free_bytes'])} free"
    if cache["free_bytes"] < _LITTLE_DISK:
        return Check("cache", "warning", text, "little room for imports: name another place in PYGGML_CACHE")
    return Check("cache", "ok", text)


def _names(devices: Sequence[dict[str, Any]]) -> str:
    return _list([f"{device['name']} ({device['description']})" for device in devices])


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"
