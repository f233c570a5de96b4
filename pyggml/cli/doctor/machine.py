"""The machine and what is installed on it, by what the system shows: nothing here needs the engine.

Files are read below ``root``, so that tests can lay out a machine of their own in a folder.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Any

_PACKAGES = (
    "numpy",
    "cffi",
    "tokenizers",
    "huggingface_hub",
    "click",
    "rich",
    "prompt_toolkit",
    "matplotlib",
)

# Settings that change what pyggml does; no value of them is secret.
_ENVIRONMENT = (
    "PYGGML_CACHE",
    "PYGGML_CACHE_GB",
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GGML_VK_VISIBLE_DEVICES",
    "HF_HOME",
    "HF_HUB_OFFLINE",
)
# Of these nothing but that they are there.
_SECRET = ("HF_TOKEN", "HF_ENDPOINT")

# The engine's name of a feature -> what stands for it in /proc/cpuinfo, on x86 and on Arm; all of them are needed.
_FEATURES: dict[str, tuple[str, ...]] = {
    "SSE3": ("pni",),
    "SSSE3": ("ssse3",),
    "AVX": ("avx",),
    "AVX2": ("avx2",),
    "F16C": ("f16c",),
    "FMA": ("fma",),
    "BMI2": ("bmi2",),
    "AVX_VNNI": ("avx_vnni",),
    "AVX512": ("avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"),
    "AVX512_VBMI": ("avx512vbmi",),
    "AVX512_VNNI": ("avx512_vnni",),
    "AVX512_BF16": ("avx512_bf16",),
    "AMX_INT8": ("amx_tile", "amx_int8"),
    "NEON": ("asimd",),
    "ARM_FMA": ("asimd",),
    "FP16_VA": ("asimdhp",),
    "DOTPROD": ("asimddp",),
    "MATMUL_INT8": ("i8mm",),
    "SVE": ("sve",),
    "SME": ("sme",),
}


def processor(root: Path = Path("/")) -> dict[str, Any]:
    """The processor: "model", and "features" of those that the engine can use; None where the system does not tell."""
    lines = _lines(root / "proc/cpuinfo")
    pairs = [(key.strip(), value.strip()) for key, _, value in (line.partition(":") for line in lines)]
    told = dict(reversed(pairs))  # the first processor's
    words = told.get("flags") or told.get("Features")
    flags = set((words or "").split())
    features = [name for name, needed in _FEATURES.items() if flags.issuperset(needed)]
    return {"model": told.get("model name") or platform.processor() or None, "features": features if words else None}


def used_features(used: list[str]) -> list[str]:
    """Those of the engine's words that name features of processors."""
    return [name for name in used if name in _FEATURES]


def memory(root: Path = Path("/")) -> dict[str, int | None]:
    """Bytes of main memory, and limits of this process as ``ulimit`` shows them; None: none."""
    total = next((int(line.split()[1]) * 1024 for line in _lines(root / "proc/meminfo") if "MemTotal:" in line), None)
    return {
        "total_bytes": total,
        "ulimit_v_bytes": _limit("RLIMIT_AS"),
        "ulimit_l_bytes": _limit("RLIMIT_MEMLOCK"),
    }


def versions(root: Path = Path("/")) -> dict[str, str | None]:
    """The system, Python, and the packages that matter; None: not installed."""
    release = dict(line.split("=", 1) for line in _lines(root / "etc/os-release") if "=" in line)
    libc = " ".join(platform.libc_ver()).strip()
    return {
        "system": release.get("PRETTY_NAME", "").strip('"') or f"{platform.system()} {platform.release()}",
        "kernel": f"{platform.release()} {platform.machine()}",
        "libc": libc or None,
        "container": _container(root),
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "interpreter": sys.executable,
        **{name: _version(name) for name in _PACKAGES},
    }


def environment() -> dict[str, str]:
    """The settings that are there, without what may be secret."""
    found = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    return found | {name: "(set)" for name in _SECRET if name in os.environ}


def _container(root: Path) -> str | None:
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    return "WSL" if (root / "dev/dxg").exists() else None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _limit(name: str) -> int | None:
    try:
        import resource
    except ModuleNotFoundError:
        return None
    value = resource.getrlimit(getattr(resource, name))[0]
    return None if value == resource.RLIM_INFINITY else value


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(errors="replace").splitlines()
    except OSError:
        return []
