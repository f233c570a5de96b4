"""What the system shows of this machine, without the engine and without secrets."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import resource
import sys
from pathlib import Path
from typing import Any

_PACKAGES = ("numpy", "cffi", "tokenizers", "huggingface_hub", "click", "rich", "prompt_toolkit", "matplotlib")
# Settings that change what pyggml does; no value of them is secret. Of the others only that they are set is shown.
_ENVIRONMENT = (
    *("PYGGML_CACHE", "PYGGML_CACHE_GB", "HF_HOME", "HF_HUB_OFFLINE", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    *("ROCR_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES"),
)
_SECRET = ("HF_TOKEN", "HF_ENDPOINT")
# The engine's name of a feature, and its flags in /proc/cpuinfo, on x86 and on Arm; all of them are needed.
_FEATURES = """
    SSE3=pni SSSE3=ssse3 AVX=avx AVX2=avx2 F16C=f16c FMA=fma BMI2=bmi2 AVX_VNNI=avx_vnni
    AVX512=avx512f,avx512cd,avx512bw,avx512dq,avx512vl AVX512_VBMI=avx512vbmi AVX512_VNNI=avx512_vnni
    AVX512_BF16=avx512_bf16 AMX_INT8=amx_tile,amx_int8
    NEON=asimd ARM_FMA=asimd FP16_VA=asimdhp DOTPROD=asimddp MATMUL_INT8=i8mm SVE=sve SME=sme
"""
_FLAGS = {name: set(flags.split(",")) for name, flags in (feature.split("=") for feature in _FEATURES.split())}


def processor(root: Path = Path("/")) -> dict[str, Any]:
    """The processor: its "model", and those of its "features" that the engine can use; None: the system hides them."""
    found = pairs(root / "proc/cpuinfo", ":")
    flags = (found.get("flags") or found.get("Features") or "").split()
    features = [name for name, needed in _FLAGS.items() if needed.issubset(flags)] if flags else None
    return {"model": found.get("model name") or platform.processor() or None, "features": features}


def used_features(used: list[str]) -> list[str]:
    """Those of the engine's words that are names of features of processors."""
    return [name for name in used if name in _FLAGS]


def memory() -> dict[str, int | None]:
    """Bytes of main memory, and the limits of this process as ``ulimit`` shows them; None: no limit."""
    total = pairs(Path("/proc/meminfo"), ":").get("MemTotal", "").removesuffix(" kB")
    limits = {"ulimit_v_bytes": resource.RLIMIT_AS, "ulimit_l_bytes": resource.RLIMIT_MEMLOCK}
    found = {name: resource.getrlimit(limit)[0] for name, limit in limits.items()}
    known = {name: None if value == resource.RLIM_INFINITY else value for name, value in found.items()}
    return {"total_bytes": int(total) * 1024 if total else None, **known}


def versions() -> dict[str, str | None]:
    """The system, Python, and the packages that matter; None: not installed."""
    containers = {"/.dockerenv": "docker", "/run/.containerenv": "podman", "/dev/dxg": "WSL"}
    return {
        "system": pairs(Path("/etc/os-release"), "=").get("PRETTY_NAME", platform.system()).strip('"'),
        "kernel": f"{platform.release()} {platform.machine()}",
        "libc": " ".join(platform.libc_ver()).strip() or None,
        "container": next((name for file, name in containers.items() if Path(file).exists()), None),
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "interpreter": sys.executable,
        **{package: _version(package) for package in _PACKAGES},
    }


def environment() -> dict[str, str]:
    """The settings that are there."""
    found = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    return found | {name: "(set)" for name in _SECRET if name in os.environ}


def pairs(file: Path, separator: str) -> dict[str, str]:
    """The names and values in the lines of a file, of several values the first; empty where it cannot be read."""
    lines = [line.partition(separator) for line in reversed(text_of(file).splitlines())]
    return {name.strip(): value.strip() for name, _, value in lines}


def text_of(file: Path) -> str:
    """What is in a file; nothing where it cannot be read."""
    with contextlib.suppress(OSError):
        return file.read_text(errors="replace")
    return ""


def _version(package: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None
