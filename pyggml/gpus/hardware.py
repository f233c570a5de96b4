"""The GPUs in this machine, and what is missing to use them."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pyggml.gpus import nvidia
from pyggml.gpus.files import pairs, text_of


class Vendor(NamedTuple):
    """How a vendor's GPUs are recognised and used."""

    pci_id: str
    kinds: tuple[str, ...]  # of device that use them, the one to build first
    words: tuple[str, ...]  # one of them is in the description of its devices: Vulkan serves several vendors
    driver: str = ""  # of Linux; "": whatever drives them will do


VENDORS = {
    "NVIDIA": Vendor("0x10de", ("cuda", "vulkan"), ("nvidia", "geforce", "quadro", "tesla"), "nvidia"),
    "AMD": Vendor("0x1002", ("rocm", "vulkan"), ("amd", "radeon"), "amdgpu"),
    "Intel": Vendor("0x8086", ("vulkan", "sycl"), ("intel",)),
    "Apple": Vendor("0x106b", ("metal",), ("apple",)),
}
# The files in /dev of each driver, how many of them a program needs, and the options that lend them to a container.
_NODES = {
    "nvidia": (("nvidiactl", "nvidia{}"), 2, "--gpus all"),
    "dxg": (("dxg",), 1, "--gpus all"),
    "tegra": ((), 0, "--gpus all"),
    "amdgpu": (("kfd", "dri/renderD*"), 1, "--device /dev/kfd --device /dev/dri"),
}
_SMI_TIMEOUT_S = 20


class Gpu(NamedTuple):
    """A GPU: vendor, product or else PCI ids, where it was seen, what is missing to use it, and what to do about it."""

    vendor: str
    name: str
    seen: str
    missing: str | None = None
    remedy: str | None = None


def find_gpus(root: Path = Path("/")) -> list[Gpu]:
    """The GPUs of this machine that pyggml could be built for, which leaves out a server's display adapter."""
    if platform.system() == "Darwin":
        return [Gpu("Apple", "Apple GPU", "the processor")] if platform.machine() == "arm64" else []
    return list(_on_the_bus(root)) or list(_off_the_bus(root))


def has_rocm(root: Path = Path("/")) -> bool:
    """Whether the kernel offers an AMD GPU for computing, which ROCm needs: not every GPU qualifies."""
    nodes = root.glob("sys/class/kfd/kfd/topology/nodes/*/properties")
    return any(pairs(node, " ").get("simd_count", "0") != "0" for node in nodes)


def _on_the_bus(root: Path) -> Iterator[Gpu]:
    vendors = {vendor.pci_id: name for name, vendor in VENDORS.items()}
    for folder in sorted(root.glob("sys/bus/pci/devices/*")):
        vendor_id, device_id, kind = (text_of(folder / name).strip() for name in ("vendor", "device", "class"))
        vendor, link = vendors.get(vendor_id), folder / "driver"
        # Displays are of class 03; the GPUs of data centres call themselves accelerators, 12.
        if vendor and kind.startswith("0x03" if vendor == "Intel" else ("0x03", "0x12")):
            driver = link.readlink().name if link.is_symlink() else ""
            about = pairs(root / "proc/driver/nvidia/gpus" / folder.name / "information", ":")
            name = about.get("Model", f"{vendor} GPU (PCI {vendor_id[2:]}:{device_id[2:]})")
            seen = f"PCI {folder.name}, {_shown_driver(root, driver)}"
            missing = _missing(root, vendor, driver, about.get("Device Minor", "[0-9]"))
            yield Gpu(vendor, name, seen, *next(missing, ()))


def _shown_driver(root: Path, driver: str) -> str:
    version = nvidia.driver_version(root) if driver == "nvidia" else None
    return f"driver {driver} {version or ''}".strip() if driver else "no driver"


def _off_the_bus(root: Path) -> Iterator[Gpu]:
    """NVIDIA's GPUs that are not PCI devices: lent by Windows to its Linux, seen from a sandbox, on Jetson boards."""
    for name in _smi_names(root) if (root / "dev/dxg").exists() else ():
        yield Gpu("NVIDIA", name, "nvidia-smi", *next(_missing(root, "NVIDIA", "dxg"), ()))
    for node in sorted(root.glob("dev/nvidia[0-9]*")):
        minor = node.name.removeprefix("nvidia")
        yield Gpu("NVIDIA", "NVIDIA GPU", f"/dev/{node.name}", *next(_missing(root, "NVIDIA", "nvidia", minor), ()))
    if (root / "etc/nv_tegra_release").exists():
        name = text_of(root / "proc/device-tree/model").strip(" \n\0") or "NVIDIA Jetson"
        yield Gpu("NVIDIA", name, "/etc/nv_tegra_release", *next(_missing(root, "NVIDIA", "tegra"), ()))


def _missing(root: Path, vendor: str, driver: str, minor: str = "") -> Iterator[tuple[str, str]]:
    """What is missing to use a GPU, and what to do about it, the first thing first."""
    if driver == "vfio-pci":
        yield "it is set aside for virtual machines (vfio-pci)", "give it back to the host, or use it in the guest"
    needed = VENDORS[vendor].driver
    if not needed:
        return
    if driver not in _NODES:
        instead = f"; {driver} drives it" if driver else ""
        remedy = f"install {vendor}'s driver on the machine itself, and restart it"
        yield f"{vendor}'s driver, {needed}, is not loaded{instead}", remedy
        return
    patterns, n_needed, docker = _NODES[driver]
    in_container = f"in a container: docker run {docker}; on the machine itself,"
    nodes = [node for pattern in patterns for node in root.glob(f"dev/{pattern.format(minor)}")]
    if len(nodes) < n_needed:
        files = " and ".join(f"/dev/{pattern.format('*')}" for pattern in patterns)
        yield f"the driver is loaded, but {files} are not there", f"{in_container} load the driver again"
    for node in nodes:
        if not os.access(node, os.R_OK | os.W_OK):
            remedy = "join the group that owns it (for AMD, render or video), or ask for access"
            yield f"this user may not open /{node.relative_to(root)}", remedy
    if vendor == "NVIDIA" and (failure := nvidia.libcuda_failure(root)):
        yield f"the driver's library {failure}", f"{in_container} install the driver again"


def _smi_names(root: Path) -> list[str]:
    """What nvidia-smi calls the GPUs; nothing if it is not there, or fails."""
    folders = [f"{root}/{folder}" for folder in ("usr/bin", "usr/local/bin", "usr/lib/wsl/lib")]
    program = shutil.which("nvidia-smi", path=os.pathsep.join(folders)) or ""
    command = [program, "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SMI_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]
