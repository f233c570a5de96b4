"""What each kind of GPU device needs from the machine and from the build."""

from __future__ import annotations

from typing import NamedTuple

from pyggml.gpus.hardware import VENDORS

#: How to build pyggml with an option; CMake's definitions go in front.
INSTALL = "pip install --force-reinstall --no-deps ."


class Kind(NamedTuple):
    """A kind of device, and what it needs.

    Attributes:
        label: what people call the system behind it.
        option: the build option that turns it on.
        toolkit: what the build needs.
        look: the program that lists what it can see.
        lists: the environment variables that hold the numbers of the devices it may see.
        switches: other variables that hide devices from it.
        module: the file of its loadable module.
    """

    label: str
    option: str
    toolkit: str
    look: str
    lists: tuple[str, ...]
    switches: tuple[str, ...]
    module: str

    @property
    def vendors(self) -> tuple[str, ...]:
        """Whose GPUs it computes on."""
        return tuple(name for name, vendor in VENDORS.items() if any(KINDS[kind] is self for kind in vendor.kinds))

    @property
    def to_build(self) -> str:
        """The command that builds pyggml with it."""
        return self.to_build_with()

    def to_build_with(self, *definitions: str) -> str:
        """The same, with further definitions of CMake."""
        defined = " ".join((f"-D{self.option}=ON", *definitions))
        return f'in the folder of pyggml\'s source: CMAKE_ARGS="{defined}" {INSTALL}'


#: By the names that ``device=`` has for them.
KINDS = {
    "cuda": Kind(
        "CUDA",
        "GGML_CUDA",
        "NVIDIA's CUDA toolkit",
        "nvidia-smi",
        ("CUDA_VISIBLE_DEVICES",),
        (),
        "libggml-cuda.so",
    ),
    "rocm": Kind(
        "ROCm",
        "GGML_HIP",
        "AMD's ROCm with its HIP SDK",
        "rocminfo",
        ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),  # HIP reads CUDA's, too
        (),
        "libggml-hip.so",
    ),
    "vulkan": Kind(
        "Vulkan",
        "GGML_VULKAN",
        "Vulkan's headers and glslc",
        "vulkaninfo",
        ("GGML_VK_VISIBLE_DEVICES",),
        ("GGML_DISABLE_VULKAN",),
        "libggml-vulkan.so",
    ),
    "sycl": Kind(
        "SYCL",
        "GGML_SYCL",
        "Intel's oneAPI compiler",
        "sycl-ls",
        (),
        ("ONEAPI_DEVICE_SELECTOR",),
        "libggml-sycl.so",
    ),
    "metal": Kind(
        "Metal",
        "GGML_METAL",
        "a Mac with Xcode's command line tools",
        "system_profiler SPDisplaysDataType",
        (),
        (),
        "libggml-metal.so",
    ),
}


def best_kind(vendor: str, *, rocm: bool) -> str:
    """The kind to build first for a vendor's GPUs; ``rocm``: the kernel offers an AMD GPU to ROCm."""
    return "vulkan" if vendor == "AMD" and not rocm else VENDORS[vendor].kinds[0]
