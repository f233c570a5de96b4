"""Facts about this machine from the operating system, without secrets."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from pyggml.gpus.files import read_pairs

if sys.platform != "win32":
    import resource

_PACKAGES = ("numpy", "cffi", "tokenizers", "huggingface_hub", "click", "rich", "prompt_toolkit", "matplotlib")
# Environment variables that affect pyggml. Values of _SECRETS are hidden.
_SETTINGS = (
    *("PYGGML_CACHE", "PYGGML_CACHE_GB", "HF_HOME", "HF_HUB_OFFLINE", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    *("ROCR_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES"),
)
_SECRETS = ("HF_TOKEN", "HF_ENDPOINT")
# The engine's name of a feature, and the flags in /proc/cpuinfo that it requires, on x86 and on Arm.
_FLAGS = """
    SSE3=pni SSSE3=ssse3 AVX=avx AVX2=avx2 F16C=f16c FMA=fma BMI2=bmi2 AVX_VNNI=avx_vnni
    AVX512=avx512f,avx512cd,avx512bw,avx512dq,avx512vl AVX512_VBMI=avx512vbmi AVX512_VNNI=avx512_vnni
    AVX512_BF16=avx512_bf16 AMX_INT8=amx_tile,amx_int8
    NEON=asimd ARM_FMA=asimd FP16_VA=asimdhp DOTPROD=asimddp MATMUL_INT8=i8mm SVE=sve SME=sme
"""
#: Processor features that the engine can use -> their flags.
FEATURES = {name: set(flags.split(",")) for name, flags in (feature.split("=") for feature in _FLAGS.split())}


def processor(root: Path = Path("/")) -> dict[str, Any]:
    """Return the processor's "model", and its "features" that the engine can use; None if the system hides them."""
    found = read_pairs(root / "proc/cpuinfo", ":")
    flags = (found.get("flags") or found.get("Features") or "").split()
    features = [name for name, needed in FEATURES.items() if needed.issubset(flags)] if flags else None
    return {"model": found.get("model name") or platform.processor() or None, "features": features}


def memory() -> dict[str, int | None]:
    """Return the bytes of main memory and the limits of this process, as in ``ulimit``; None: no limit, or unknown."""
    if sys.platform == "win32":
        return {"total_bytes": None, "ulimit_v_bytes": None, "ulimit_l_bytes": None}
    facts: dict[str, int | None] = {"total_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}
    for name, limit in {"ulimit_v_bytes": resource.RLIMIT_AS, "ulimit_l_bytes": resource.RLIMIT_MEMLOCK}.items():
        value = resource.getrlimit(limit)[0]
        facts[name] = None if value == resource.RLIM_INFINITY else value
    return facts


def versions() -> dict[str, str | None]:
    """Return the versions of the system, of Python and of relevant packages; None: not installed."""
    containers = {"/.dockerenv": "docker", "/run/.containerenv": "podman", "/dev/dxg": "WSL"}
    return {
        "system": read_pairs(Path("/etc/os-release"), "=").get("PRETTY_NAME", platform.system()).strip('"'),
        "kernel": f"{platform.release()} {platform.machine()}",
        "libc": " ".join(platform.libc_ver()).strip() or None,
        "container": next((name for file, name in containers.items() if Path(file).exists()), None),
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "interpreter": sys.executable,
        **{name: next((each.version for each in distributions(name=name)), None) for name in _PACKAGES},
    }


def environment() -> dict[str, str]:
    """Return the relevant environment variables that are set."""
    names = [name for name in (*_SETTINGS, *_SECRETS) if name in os.environ]
    return {name: "(set)" if name in _SECRETS else os.environ[name] for name in names}
