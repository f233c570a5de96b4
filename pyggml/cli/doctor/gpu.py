"""Which GPUs are in this machine, by what the system shows of them: no driver is asked to compute anything.

Everything is read below ``root``, so that tests can lay out a machine of their own in a folder.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_VENDORS = {0x10DE: "NVIDIA", 0x1002: "AMD", 0x8086: "Intel"}
_DISPLAY = 0x03  # PCI base classes
_ACCELERATOR = 0x12
# Data centre parts of these vendors call themselves accelerators; the accelerators of others are no GPUs.
_ACCELERATORS_OF = {"NVIDIA", "AMD"}

_LIBRARY_DIRS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib/aarch64-linux-gnu/nvidia",
    "usr/lib/aarch64-linux-gnu/tegra",
    "usr/lib64",
    "usr/lib",
    "usr/local/nvidia/lib64",
    "usr/local/cuda/compat",
    "usr/lib/wsl/lib",
)
_PROGRAM_DIRS = ("usr/bin", "usr/local/bin", "usr/local/nvidia/bin", "usr/lib/wsl/lib")
_SMI_TIMEOUT_S = 20

_LIBCUDA = "libcuda.so.1"
_NO_LIBCUDA = (
    f"the driver's library {_LIBCUDA} is not found",
    "in a container: start it with NVIDIA's runtime (docker run --gpus all); else install NVIDIA's driver anew",
)


@dataclass(frozen=True)
class Gpu:
    """A GPU, as far as it can be seen.

    Attributes:
        vendor: "NVIDIA", "AMD", "Intel" or "Apple".
        name: the product, if anything tells it, else the PCI ids.
        seen: where it was seen.
        missing: what a program needs to use it and does not find; None: nothing.
        remedy: what to do about that.
    """

    vendor: str
    name: str
    seen: str
    missing: str | None = None
    remedy: str | None = None


@dataclass(frozen=True)
class _PciDevice:
    vendor: str
    ids: str
    address: str
    driver: str | None


def find_gpus(root: Path = Path("/"), system: str | None = None, processor: str | None = None) -> list[Gpu]:
    """The GPUs of this machine that something could be built for.

    Display adapters of virtual machines and servers are left out: nothing computes on them.

    Args:
        root: stands before every path.
        system: as ``platform.system()`` tells it, which is asked without.
        processor: as ``platform.machine()`` does.
    """
    if (system or platform.system()) == "Darwin":
        is_apple = (processor or platform.machine()) == "arm64"
        return [Gpu("Apple", "Apple GPU", "the processor")] if is_apple else []
    pci = list(_pci_devices(root))
    return [
        *_nvidia(root, [device for device in pci if device.vendor == "NVIDIA"]),
        *_jetson(root),
        *_amd(root, [device for device in pci if device.vendor == "AMD"]),
        *(Gpu("Intel", _pci_name(device), _pci_place(device)) for device in pci if device.vendor == "Intel"),
    ]


def _nvidia(root: Path, pci: list[_PciDevice]) -> Iterator[Gpu]:
    if not pci and _is_wsl(root):  # Windows shows no PCI devices
        for name in _smi_names(root):
            yield Gpu("NVIDIA", name, "nvidia-smi", *_nvidia_missing(root, None))
        return
    told = _smi_names(root) if pci else []
    for index, device in enumerate(pci):
        otherwise = told[index] if len(told) == len(pci) else _pci_name(device)
        name = _nvidia_information(root, device).get("Model", otherwise)
        yield Gpu("NVIDIA", name, _pci_place(device), *_nvidia_missing(root, device))


def _jetson(root: Path) -> Iterator[Gpu]:
    """NVIDIA's boards, whose GPU is no PCI device."""
    if not (root / "etc/nv_tegra_release").exists():
        return
    name = _text(root / "proc/device-tree/model").strip(" \n\0") or "NVIDIA Jetson"
    if _has_library(root, _LIBCUDA):
        yield Gpu("NVIDIA", name, "/etc/nv_tegra_release")
    else:
        yield Gpu("NVIDIA", name, "/etc/nv_tegra_release", *_NO_LIBCUDA)


def _nvidia_missing(root: Path, device: _PciDevice | None) -> tuple[str | None, str | None]:
    if device is not None and not (root / "proc/driver/nvidia/version").exists():
        return _no_driver(device, "nvidia", "NVIDIA's driver")
    nodes = [root / "dev/dxg"]
    if device is not None:
        number = _nvidia_information(root, device).get("Device Minor", "[0-9]")
        nodes = [root / "dev/nvidiactl", *sorted(root.glob(f"dev/nvidia{number}"))]
        if not nodes[0].exists() or len(nodes) == 1:
            return (
                "the driver is loaded, but its files in /dev (nvidiactl, nvidia0 ...) are not there",
                "in a container: start it with access to the GPU (docker run --gpus all); else run nvidia-smi as root",
            )
    closed = [node for node in nodes if not os.access(node, os.R_OK | os.W_OK)]
    if closed:
        return f"/{closed[0].relative_to(root)} may not be opened by this user", "ask for access to it"
    return (None, None) if _has_library(root, _LIBCUDA) else _NO_LIBCUDA


def _no_driver(device: _PciDevice, wanted: str, called: str) -> tuple[str, str]:
    if device.driver == "vfio-pci":
        return "it is set aside for virtual machines (vfio-pci)", "give it back to the host, or use it in the guest"
    instead = f"; {device.driver} drives it" if device.driver not in (None, wanted) else ""
    return f"{called} is not loaded{instead}", f"install {called} on the machine itself, and restart it"


def _nvidia_information(root: Path, device: _PciDevice) -> dict[str, str]:
    """What the driver tells of a GPU."""
    lines = _text(root / "proc/driver/nvidia/gpus" / device.address / "information").splitlines()
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _smi_names(root: Path) -> list[str]:
    folders = [*os.environ.get("PATH", "").split(os.pathsep)] if root == Path("/") else []
    folders += [str(root / folder) for folder in _PROGRAM_DIRS]
    program = shutil.which("nvidia-smi", path=os.pathsep.join(folders))
    if program is None:
        return []
    try:
        done = subprocess.run(
            [program, "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=_SMI_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []  # it is there, but tells nothing
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def _amd(root: Path, pci: list[_PciDevice]) -> Iterator[Gpu]:
    for device in pci:
        missing, remedy = _amd_missing(root, device)
        yield Gpu("AMD", _pci_name(device), _pci_place(device), missing, remedy)


def _amd_missing(root: Path, device: _PciDevice) -> tuple[str | None, str | None]:
    if device.driver != "amdgpu":
        return _no_driver(device, "amdgpu", "the driver amdgpu")
    nodes = [*root.glob("dev/kfd"), *root.glob("dev/dri/renderD*")]
    if not nodes:
        return (
            "/dev/kfd and /dev/dri/renderD* are not there",
            "in a container: start it with --device /dev/kfd --device /dev/dri",
        )
    if not any(os.access(node, os.R_OK | os.W_OK) for node in nodes):
        return f"/{nodes[0].relative_to(root)} may not be opened by this user", "join the groups render and video"
    return None, None


def has_rocm(root: Path = Path("/")) -> bool:
    """Whether the kernel offers an AMD GPU for computing, which ROCm needs: not every display adapter is such."""
    for node in root.glob("sys/class/kfd/kfd/topology/nodes/*/properties"):
        words = [line.split() for line in _text(node).splitlines()]
        if any(len(line) == 2 and line[0] == "simd_count" and line[1].isdigit() and int(line[1]) for line in words):
            return True
    return False


def _pci_devices(root: Path) -> Iterator[_PciDevice]:
    for folder in sorted(root.glob("sys/bus/pci/devices/*")):
        vendor_id, device_id, kind = (_hexadecimal(folder / name) for name in ("vendor", "device", "class"))
        vendor = _VENDORS.get(vendor_id or 0)
        if vendor is None or kind is None:
            continue
        base = kind >> 16
        if base == _DISPLAY or (base == _ACCELERATOR and vendor in _ACCELERATORS_OF):
            driver = folder / "driver"
            bound = driver.readlink().name if driver.is_symlink() else None
            ids = f"{vendor_id:04x}:{device_id or 0:04x}"
            yield _PciDevice(vendor, ids, folder.name, bound)


def _pci_name(device: _PciDevice) -> str:
    return f"{device.vendor} GPU (PCI {device.ids})"


def _pci_place(device: _PciDevice) -> str:
    return f"PCI {device.address}, {f'driver {device.driver}' if device.driver else 'no driver'}"


def _is_wsl(root: Path) -> bool:
    """Whether Windows lends its GPU to this Linux."""
    return (root / "dev/dxg").exists()


def _has_library(root: Path, name: str) -> bool:
    if any((root / folder / name).exists() for folder in _LIBRARY_DIRS):
        return True
    if root != Path("/"):
        return False
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _hexadecimal(file: Path) -> int | None:
    try:
        return int(_text(file).strip(), 16)
    except ValueError:
        return None


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
