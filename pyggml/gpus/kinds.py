"""Requirements of each kind of GPU device: hardware, tools and build options."""

from __future__ import annotations

from typing import NamedTuple

from pyggml.gpus.hardware import VENDORS

#: The build command. CMake definitions go in front.
INSTALL = "pip install --force-reinstall --no-deps ."


class Kind(NamedTuple):
    """A kind of device and its requirements.

    Attributes:
        option: the build option that enables it.
        toolkit: the toolkit that the build needs.
        list_command: the program that lists its devices.
        module: the file of its loadable module.
        index_variables: environment variables that select devices by index.
        other_variables: other environment variables that hide devices.
    """

    label: str
    option: str
    toolkit: str
    list_command: str
    module: str
    index_variables: tuple[str, ...] = ()
    other_variables: tuple[str, ...] = ()

    @property
    def vendors(self) -> tuple[str, ...]:
        """Vendors of the GPUs that it supports."""
        return tuple(name for name, vendor in VENDORS.items() if any(KINDS[kind] is self for kind in vendor.kinds))

    def build_command(self, *definitions: str) -> str:
        """Return the command that builds pyggml for it, with further CMake definitions."""
        defined = " ".join((f"-D{self.option}=ON", *definitions))
        return f'in the folder of pyggml\'s source: CMAKE_ARGS="{defined}" {INSTALL}'


#: By their names in ``device=``.
KINDS = {
    "cuda": Kind(
        "CUDA", "GGML_CUDA", "NVIDIA's CUDA toolkit", "nvidia-smi", "libggml-cuda.so", ("CUDA_VISIBLE_DEVICES",)
    ),
    "rocm": Kind(
        "ROCm",
        "GGML_HIP",
        "AMD's ROCm with its HIP SDK",
        "rocminfo",
        "libggml-hip.so",
        ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),  # HIP reads CUDA's, too
    ),
    "vulkan": Kind(
        "Vulkan",
        "GGML_VULKAN",
        "Vulkan's headers and glslc",
        "vulkaninfo",
        "libggml-vulkan.so",
        ("GGML_VK_VISIBLE_DEVICES",),
        ("GGML_DISABLE_VULKAN",),
    ),
    "sycl": Kind(
        "SYCL",
        "GGML_SYCL",
        "Intel's oneAPI compiler",
        "sycl-ls",
        "libggml-sycl.so",
        other_variables=("ONEAPI_DEVICE_SELECTOR",),
    ),
    "metal": Kind(
        "Metal",
        "GGML_METAL",
        "a Mac with Xcode's command line tools",
        "system_profiler SPDisplaysDataType",
        "libggml-metal.so",
    ),
}


def best_kind(vendor: str, *, rocm: bool) -> str:
    """Return the preferred kind for a vendor's GPUs; ``rocm``: the kernel supports an AMD GPU for ROCm."""
    return "vulkan" if vendor == "AMD" and not rocm else VENDORS[vendor].kinds[0]
