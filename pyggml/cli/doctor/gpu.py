"""Which GPUs are in this machine, and what is missing to use them, as far as files show: nothing is asked to compute.

Everything is read below ``root``, so that tests can lay out a machine in a folder.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pyggml.cli.doctor.machine import pairs, text_of

_VENDORS = {0x10DE: "NVIDIA", 0x1002: "AMD", 0x8086: "Intel"}
_DISPLAY, _ACCELERATOR = 0x03, 0x12  # PCI base classes; GPUs of data centres call themselves accelerators
_PROGRAM_DIRS = ("usr/bin", "usr/local/bin", "usr/local/nvidia/bin", "usr/lib/wsl/lib")
_SMI_TIMEOUT_S = 20
_Missing = tuple[str, str] | tuple[()]  # what is missing to use a GPU and what to do about it, or nothing


class Gpu(NamedTuple):
    """A GPU: vendor, product or else PCI ids, where it was seen, what is missing to use it, and what to do about it."""

    vendor: str
    name: str
    seen: str
    missing: str | None = None
    remedy: str | None = None


class _Pci(NamedTuple):
    vendor: str
    ids: str
    address: str
    driver: str | None

    def gpu(self, missing: _Missing = (), name: str = "") -> Gpu:
        seen = f"PCI {self.address}, {f'driver {self.driver}' if self.driver else 'no driver'}"
        return Gpu(self.vendor, name or f"{self.vendor} GPU (PCI {self.ids})", seen, *missing)

    def without(self, driver: str, called: str) -> tuple[str, str]:
        """What is missing where this driver does not drive it."""
        if self.driver == "vfio-pci":
            return "it is set aside for virtual machines (vfio-pci)", "give it back to the host, or use it in the guest"
        instead = f"; {self.driver} drives it" if self.driver not in (None, driver) else ""
        return f"{called} is not loaded{instead}", f"install {called} on the machine itself, and restart it"


def find_gpus(root: Path = Path("/")) -> list[Gpu]:
    """The GPUs of this machine that something could be built for; a server's display adapter is none of these."""
    if platform.system() == "Darwin":
        return [Gpu("Apple", "Apple GPU", "the processor")] if platform.machine() == "arm64" else []
    pci = list(_pci_devices(root))
    nvidia = [device for device in pci if device.vendor == "NVIDIA"]
    return [
        *(_nvidia(root, nvidia) if nvidia else _nvidia_off_the_bus(root)),
        *(device.gpu(_amd_missing(root, device)) for device in pci if device.vendor == "AMD"),
        *(device.gpu() for device in pci if device.vendor == "Intel"),
    ]


def has_rocm(root: Path = Path("/")) -> bool:
    """Whether the kernel offers an AMD GPU for computing, which ROCm needs: not every display adapter qualifies."""
    nodes = root.glob("sys/class/kfd/kfd/topology/nodes/*/properties")
    return any(pairs(node, " ").get("simd_count", "0") != "0" for node in nodes)


def _pci_devices(root: Path) -> Iterator[_Pci]:
    for folder in sorted(root.glob("sys/bus/pci/devices/*")):
        try:
            vendor_id, device_id, kind = (int(text_of(folder / name), 16) for name in ("vendor", "device", "class"))
        except ValueError:
            continue
        vendor, link = _VENDORS.get(vendor_id), folder / "driver"
        if vendor and (kind >> 16 == _DISPLAY or (kind >> 16 == _ACCELERATOR and vendor != "Intel")):
            driver = link.readlink().name if link.is_symlink() else None
            yield _Pci(vendor, f"{vendor_id:04x}:{device_id:04x}", folder.name, driver)


def _nvidia(root: Path, pci: list[_Pci]) -> Iterator[Gpu]:
    names = _smi_names(root)
    for index, device in enumerate(pci):
        driver_says = pairs(root / "proc/driver/nvidia/gpus" / device.address / "information", ":")
        name = driver_says.get("Model") or (names[index] if len(names) == len(pci) else "")
        nodes = [*root.glob("dev/nvidiactl"), *root.glob(f"dev/nvidia{driver_says.get('Device Minor', '[0-9]')}")]
        if not (root / "proc/driver/nvidia/version").exists():
            missing: _Missing = device.without("nvidia", "NVIDIA's driver")
        elif len(nodes) < 2:
            missing = (
                "the driver is loaded, but its files in /dev (nvidiactl, nvidia0 ...) are not there",
                "in a container: start it with access to the GPU (docker run --gpus all); else run nvidia-smi as root",
            )
        else:
            missing = _closed(root, nodes) or _no_libcuda(root)
        yield device.gpu(missing, name)


def _nvidia_off_the_bus(root: Path) -> Iterator[Gpu]:
    """NVIDIA's GPUs that are no PCI devices: those that Windows lends to its Linux, and those of Jetson boards."""
    if (root / "dev/dxg").exists():
        for name in _smi_names(root):
            yield Gpu("NVIDIA", name, "nvidia-smi", *(_closed(root, [root / "dev/dxg"]) or _no_libcuda(root)))
    if (root / "etc/nv_tegra_release").exists():
        name = text_of(root / "proc/device-tree/model").strip(" \n\0") or "NVIDIA Jetson"
        yield Gpu("NVIDIA", name, "/etc/nv_tegra_release", *_no_libcuda(root))


def _amd_missing(root: Path, device: _Pci) -> _Missing:
    nodes = [*root.glob("dev/kfd"), *root.glob("dev/dri/renderD*")]
    if device.driver != "amdgpu":
        return device.without("amdgpu", "the driver amdgpu")
    if not nodes:
        remedy = "in a container: start it with --device /dev/kfd --device /dev/dri"
        return "/dev/kfd and /dev/dri/renderD* are not there", remedy
    closed = [_closed(root, [node], "join the groups render and video") for node in nodes]
    return closed[0] if all(closed) else ()


def _closed(root: Path, nodes: list[Path], remedy: str = "ask for access to it") -> _Missing:
    node = next((node for node in nodes if not os.access(node, os.R_OK | os.W_OK)), None)
    return (f"/{node.relative_to(root)} may not be opened by this user", remedy) if node else ()


def _no_libcuda(root: Path) -> _Missing:
    try:
        if root == Path("/") or not any(root.glob("usr/lib/**/libcuda.so.1")):
            ctypes.CDLL(str("libcuda.so.1" if root == Path("/") else root / "libcuda.so.1"))
    except OSError:
        remedy = "in a container: start it with NVIDIA's runtime (docker run --gpus all); else install the driver again"
        return "the driver's library libcuda.so.1 is not found", remedy
    return ()


def _smi_names(root: Path) -> list[str]:
    """What nvidia-smi calls the GPUs; nothing where it is not there, or fails."""
    folders = [os.environ.get("PATH", "")] * (root == Path("/")) + [str(root / folder) for folder in _PROGRAM_DIRS]
    command = [
        shutil.which("nvidia-smi", path=os.pathsep.join(folders)) or "",
        "--query-gpu=name",
        "--format=csv,noheader",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SMI_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]
