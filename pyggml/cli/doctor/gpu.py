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

#: What is missing to use a GPU and what to do about it, or nothing.
_Missing = tuple[str, str] | tuple[()]


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


class _Needs(NamedTuple):
    """What it takes to use a vendor's GPU: a driver, files in /dev (so many of them), and access to these."""

    driver: str
    called: str
    nodes: tuple[str, ...]
    n_nodes: int
    in_container: str
    for_access: str


_NEEDS = {
    "NVIDIA": _Needs("nvidia", "NVIDIA's driver", ("nvidiactl", "nvidia{}"), 2, "--gpus all", "ask for access to it"),
    "AMD": _Needs(
        *("amdgpu", "the driver amdgpu", ("kfd", "dri/renderD*"), 1),
        *("--device /dev/kfd --device /dev/dri", "join the groups render and video"),
    ),
}


def find_gpus(root: Path = Path("/")) -> list[Gpu]:
    """The GPUs of this machine that something could be built for; a server's display adapter is none of these."""
    if platform.system() == "Darwin":
        return [Gpu("Apple", "Apple GPU", "the processor")] if platform.machine() == "arm64" else []
    pci = list(_pci_devices(root))
    return [*(_on_the_bus(root, device) for device in pci), *_off_the_bus(root, has_pci=bool(pci))]


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


def _on_the_bus(root: Path, device: _Pci) -> Gpu:
    driver_says = pairs(root / "proc/driver/nvidia/gpus" / device.address / "information", ":")
    name = driver_says.get("Model", f"{device.vendor} GPU (PCI {device.ids})")
    seen = f"PCI {device.address}, {f'driver {device.driver}' if device.driver else 'no driver'}"
    return Gpu(device.vendor, name, seen, *_missing(root, device, driver_says.get("Device Minor", "[0-9]")))


def _off_the_bus(root: Path, *, has_pci: bool) -> Iterator[Gpu]:
    """NVIDIA's GPUs that are no PCI devices: those that Windows lends to its Linux, and those of Jetson boards."""
    if (root / "dev/dxg").exists() and not has_pci:
        closed = _closed(root, [root / "dev/dxg"], _NEEDS["NVIDIA"].for_access)
        for name in _smi_names(root):
            yield Gpu("NVIDIA", name, "nvidia-smi", *(closed or _no_libcuda(root)))
    if (root / "etc/nv_tegra_release").exists():
        name = text_of(root / "proc/device-tree/model").strip(" \n\0") or "NVIDIA Jetson"
        yield Gpu("NVIDIA", name, "/etc/nv_tegra_release", *_no_libcuda(root))


def _missing(root: Path, device: _Pci, minor: str) -> _Missing:
    if device.driver == "vfio-pci":
        return "it is set aside for virtual machines (vfio-pci)", "give it back to the host, or use it in the guest"
    needs = _NEEDS.get(device.vendor)
    if needs is None:
        return ()
    if device.driver != needs.driver:
        instead = f"; {device.driver} drives it" if device.driver else ""
        remedy = f"install {needs.called} on the machine itself, and restart it"
        return f"{needs.called} is not loaded{instead}", remedy
    nodes = [node for pattern in needs.nodes for node in root.glob(f"dev/{pattern.format(minor)}")]
    if len(nodes) < needs.n_nodes:
        missing = f"the driver is loaded, but its files /dev/{' and /dev/'.join(needs.nodes).format('*')} are not there"
        return missing, f"in a container: docker run {needs.in_container}; on the machine itself, load the driver again"
    return _closed(root, nodes, needs.for_access) or (_no_libcuda(root) if device.vendor == "NVIDIA" else ())


def _closed(root: Path, nodes: list[Path], remedy: str) -> _Missing:
    node = next((node for node in nodes if not os.access(node, os.R_OK | os.W_OK)), None)
    return (f"/{node.relative_to(root)} may not be opened by this user", remedy) if node else ()


def _no_libcuda(root: Path) -> _Missing:
    try:
        if root == Path("/") or not any(root.glob("usr/lib/**/libcuda.so.1")):
            ctypes.CDLL(str("libcuda.so.1" if root == Path("/") else root / "libcuda.so.1"))
    except OSError:
        remedy = "in a container: docker run --gpus all; on the machine itself, install the driver again"
        return "the driver's library libcuda.so.1 is not found", remedy
    return ()


def _smi_names(root: Path) -> list[str]:
    """What nvidia-smi calls the GPUs; nothing if it is not there, or fails."""
    folders = [os.environ.get("PATH", "")] * (root == Path("/")) + [str(root / folder) for folder in _PROGRAM_DIRS]
    program = shutil.which("nvidia-smi", path=os.pathsep.join(folders)) or ""
    command = [program, "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SMI_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]
