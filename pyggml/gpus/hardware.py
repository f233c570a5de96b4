"""Detection of the GPUs in this machine, and of missing drivers."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pyggml.gpus import nvidia
from pyggml.gpus.files import read_pairs, read_text


class Vendor(NamedTuple):
    """A vendor of GPUs.

    Attributes:
        pci_id: the vendor's PCI id.
        kinds: kinds of device for its GPUs, the preferred one first.
        keywords: words in the descriptions of its devices, which tell them apart in Vulkan.
        driver: the required Linux driver; "": any.
    """

    pci_id: str
    kinds: tuple[str, ...]
    keywords: tuple[str, ...]
    driver: str = ""


#: The vendors of GPUs, by name.
VENDORS = {
    "NVIDIA": Vendor("0x10de", ("cuda", "vulkan"), ("nvidia", "geforce", "quadro", "tesla"), "nvidia"),
    "AMD": Vendor("0x1002", ("rocm", "vulkan"), ("amd", "radeon"), "amdgpu"),
    "Intel": Vendor("0x8086", ("vulkan", "sycl"), ("intel",)),
    "Apple": Vendor("0x106b", ("metal",), ("apple",)),
}
# By driver: its files in /dev, how many of them a program needs, and the Docker options that pass them on.
_NODES = {
    "nvidia": (("nvidiactl", "nvidia{}"), 2, "--gpus all"),
    "dxg": (("dxg",), 1, "--gpus all"),
    "tegra": ((), 0, "--gpus all"),
    "amdgpu": (("kfd", "dri/renderD*"), 1, "--device /dev/kfd --device /dev/dri"),
}
_SMI_TIMEOUT_S = 20


class Gpu(NamedTuple):
    """A GPU in this machine.

    Attributes:
        vendor: the vendor, a key of :data:`VENDORS`.
        name: its product name, or else its PCI ids.
        seen: the bus address or file by which it was found.
        missing: what is missing to use it; None: nothing.
        remedy: the fix.
    """

    vendor: str
    name: str
    seen: str
    missing: str | None = None
    remedy: str | None = None


def find_gpus(root: Path = Path("/")) -> list[Gpu]:
    """Find the GPUs that pyggml can be built for, without display adapters of servers.

    Args:
        root: the root of the file system, which is "/" unless in tests.
    """
    if platform.system() == "Darwin":
        return [Gpu("Apple", "Apple GPU", "the processor")] if platform.machine() == "arm64" else []
    return list(_find_pci_gpus(root)) or list(_find_other_gpus(root))


def has_rocm(root: Path = Path("/")) -> bool:
    """Return True if the kernel supports an AMD GPU for ROCm.

    Args:
        root: the root of the file system, which is "/" unless in tests.
    """
    nodes = root.glob("sys/class/kfd/kfd/topology/nodes/*/properties")
    return any(read_pairs(node, " ").get("simd_count", "0") != "0" for node in nodes)


def _find_pci_gpus(root: Path) -> Iterator[Gpu]:
    vendors = {vendor.pci_id: name for name, vendor in VENDORS.items()}
    for folder in sorted(root.glob("sys/bus/pci/devices/*")):
        vendor_id, device_id, kind = (read_text(folder / name).strip() for name in ("vendor", "device", "class"))
        vendor, link = vendors.get(vendor_id), folder / "driver"
        # PCI class 03 is for display controllers, 12 for accelerators such as data-centre GPUs.
        if vendor and kind.startswith("0x03" if vendor == "Intel" else ("0x03", "0x12")):
            driver = link.readlink().name if link.is_symlink() else ""
            info = read_pairs(root / "proc/driver/nvidia/gpus" / folder.name / "information", ":")
            name = info.get("Model", f"{vendor} GPU (PCI {vendor_id[2:]}:{device_id[2:]})")
            version = nvidia.driver_version(root) if driver == "nvidia" else None
            described = f"driver {driver} {version or ''}".strip() if driver else "no driver"
            missing = _find_problems(root, vendor, driver, info.get("Device Minor", "[0-9]"))
            yield Gpu(vendor, name, f"PCI {folder.name}, {described}", *next(missing, ()))


def _find_other_gpus(root: Path) -> Iterator[Gpu]:
    """Find NVIDIA GPUs that are not PCI devices: in WSL, in sandboxes and on Jetson boards."""
    for name in _smi_names(root) if (root / "dev/dxg").exists() else ():
        yield Gpu("NVIDIA", name, "nvidia-smi", *next(_find_problems(root, "NVIDIA", "dxg"), ()))
    for node in sorted(root.glob("dev/nvidia[0-9]*")):
        missing = _find_problems(root, "NVIDIA", "nvidia", node.name.removeprefix("nvidia"))
        yield Gpu("NVIDIA", "NVIDIA GPU", f"/dev/{node.name}", *next(missing, ()))
    if (root / "etc/nv_tegra_release").exists():
        name = read_text(root / "proc/device-tree/model").strip(" \n\0") or "NVIDIA Jetson"
        yield Gpu("NVIDIA", name, "/etc/nv_tegra_release", *next(_find_problems(root, "NVIDIA", "tegra"), ()))


def _find_problems(root: Path, vendor: str, driver: str, minor: str = "") -> Iterator[tuple[str, str]]:
    """Yield what is missing to use a GPU, and the fix, in the order of fixing."""
    if driver == "vfio-pci":
        yield "it is reserved for virtual machines (vfio-pci)", "return it to the host, or use it in the guest"
    needed = VENDORS[vendor].driver
    if not needed:
        return
    if driver not in _NODES:
        instead = f"; the GPU uses {driver}" if driver else ""
        remedy = f"install {vendor}'s driver on the host, and restart it"
        yield f"{vendor}'s driver, {needed}, is not loaded{instead}", remedy
        return
    patterns, n_needed, docker = _NODES[driver]
    in_container = f"in a container: docker run {docker}; on the host,"
    nodes = [node for pattern in patterns for node in root.glob(f"dev/{pattern.format(minor)}")]
    if len(nodes) < n_needed:
        files = " and ".join(f"/dev/{pattern.format('*')}" for pattern in patterns)
        yield f"the driver is loaded, but {files} do not exist", f"{in_container} reload the driver"
    for node in nodes:
        if not os.access(node, os.R_OK | os.W_OK):
            remedy = "add the user to the group that owns it (for AMD, render or video)"
            yield f"this user may not open /{node.relative_to(root)}", remedy
    if vendor == "NVIDIA" and (failure := nvidia.libcuda_error(root)):
        yield f"the driver's library {failure}", f"{in_container} reinstall the driver"


def _smi_names(root: Path) -> list[str]:
    """Return the names of GPUs from nvidia-smi; none if it is missing or fails."""
    folders = [f"{root}/{folder}" for folder in ("usr/bin", "usr/local/bin", "usr/lib/wsl/lib")]
    program = shutil.which("nvidia-smi", path=os.pathsep.join(folders)) or ""
    command = [program, "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SMI_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]
