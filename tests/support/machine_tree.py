"""Machines made of files, to find GPUs and their drivers in."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from pyggml.gpus.diagnosis import Machine

# What pyggml asks of NVIDIA's driver, with the signatures of its cuda.h. It has one GPU, an H200 by its capability.
_LIBCUDA = """
#include <string.h>
int cuDriverGetVersion(int * version) { *version = VERSION; return 0; }
int cuInit(unsigned flags) { return flags ? 1 : CODE; }
int cuGetErrorName(int code, const char ** name) { *name = NAME; return code != CODE; }
int cuGetErrorString(int code, const char ** words) { *words = WORDS; return code != CODE; }
int cuDeviceGetByPCIBusId(int * device, const char * id) { *device = 7; return strcmp(id, "0000:01:00.0") != 0; }
int cuDeviceGetAttribute(int * value, int attribute, int device) {
    *value = attribute == 75 ? 9 : 0;
    return device != 7 || attribute < 75 || attribute > 76;
}
"""


class MadeUp:
    """A machine made of files: a folder that stands for "/", and its environment."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment: dict[str, str] = {}

    def file(self, path: str, text: str = "") -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def pci(
        self, vendor: str, device: str, kind: str, driver: str | None = None, address: str = "0000:01:00.0"
    ) -> None:
        folder = f"sys/bus/pci/devices/{address}"
        for name, value in {"vendor": vendor, "device": device, "class": kind}.items():
            self.file(f"{folder}/{name}", value + "\n")
        if driver:
            (self.root / folder / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")

    def nvidia(self, model: str = "NVIDIA H200", minor: int = 0, address: str = "0000:01:00.0") -> None:
        """A GPU with its driver, and all that a program needs."""
        self.pci("0x10de", "0x2335", "0x030200", "nvidia", address)
        self.file("proc/driver/nvidia/version", "NVRM version: ...\n")
        information = f"Model: \t\t {model}\nIRQ:   \t\t 88\nDevice Minor: \t {minor}\n"
        self.file(f"proc/driver/nvidia/gpus/{address}/information", information)
        self.file("dev/nvidiactl")
        self.file(f"dev/nvidia{minor}")
        self.file("usr/lib/x86_64-linux-gnu/libcuda.so.1")

    def amd(self) -> None:
        """A GPU with its driver, which calls itself an accelerator, and that ROCm can use."""
        self.pci("0x1002", "0x74a1", "0x120000", "amdgpu", "0000:03:00.0")
        self.file("dev/kfd")
        self.file("sys/class/kfd/kfd/topology/nodes/1/properties", "cpu_cores_count 0\nsimd_count 1216\n")

    def libcuda(self, version: int, code: int = 0, name: str = "CUDA_SUCCESS", words: str = "no error") -> None:
        """The driver's library as a real one: the CUDA it knows (12020 is 12.2), and what it says when it starts."""
        values = {"VERSION": version, "CODE": code, "NAME": f'"{name}"', "WORDS": f'"{words}"'}
        compile_library(_LIBCUDA, self.root / "usr/lib/x86_64-linux-gnu/libcuda.so.1", values)

    @property
    def machine(self) -> Machine:
        return Machine(self.root, self.environment)


def compile_library(source: str, to: Path, values: Mapping[str, object], *options: str) -> None:
    """Compiles C to a shared library; skips the test where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    to.parent.mkdir(parents=True, exist_ok=True)
    to.unlink(missing_ok=True)
    defined = [f"-D{name}={value}" for name, value in values.items()]
    command = [compiler, "-shared", "-fPIC", *defined, "-xc", "-", "-xnone", "-o", str(to), *options]
    subprocess.run(command, input=source, text=True, check=True)
