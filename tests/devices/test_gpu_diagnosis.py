"""Diagnosis of GPUs that are not used: on this machine, and on simulated machines made of files."""

from __future__ import annotations

import ctypes
import dataclasses
import logging
import os
import platform
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.machine_tree import MadeUp, compile_library

import pyggml
from pyggml._native import backend, placement
from pyggml.gpus import nvidia
from pyggml.gpus.diagnosis import Build, Diagnosis, capability_problem, diagnose, explain_missing_device, find_problems
from pyggml.gpus.hardware import Gpu, find_gpus, has_rocm
from pyggml.gpus.kinds import KINDS

CUDA0 = SimpleNamespace(name="CUDA0", kind="cuda", description="NVIDIA H200", capability="9.0")
CPU_BUILD = Build(["CPU"], [])
CUDA_BUILD = Build(["CPU", "CUDA"], [], cuda=12)
TO_BUILD = 'CMAKE_ARGS="-DGGML_CUDA=ON" pip install --force-reinstall --no-deps .'


@pytest.fixture
def made_up(tmp_path: Path) -> MadeUp:
    return MadeUp(tmp_path)


class TestFindingGpus:
    def test_nothing(self, made_up: MadeUp) -> None:
        assert find_gpus(made_up.root) == []
        made_up.file("sys/bus/pci/devices/0000:00:00.0/class", "nonsense")
        assert find_gpus(made_up.root) == []

    @pytest.mark.parametrize(
        ("vendor", "kind"),
        [
            ("0x1af4", "0x038000"),  # virtio
            ("0x1234", "0x030000"),  # QEMU
            ("0x1a03", "0x030000"),  # a server's console
            ("0x10de", "0x040300"),  # the sound of a graphics card
            ("0x8086", "0x0b4000"),  # a coprocessor
            ("0x8086", "0x120000"),  # an accelerator that is no GPU
            ("0x1da3", "0x120000"),
        ],
    )
    def test_what_is_no_gpu_to_compute_on(self, made_up: MadeUp, vendor: str, kind: str) -> None:
        made_up.pci(vendor, "0x0001", kind)
        assert find_gpus(made_up.root) == []

    def test_nvidia(self, made_up: MadeUp) -> None:
        made_up.nvidia()
        assert find_gpus(made_up.root) == [Gpu("NVIDIA", "NVIDIA H200", "PCI 0000:01:00.0, driver nvidia")]

    def test_nvidia_without_a_driver(self, made_up: MadeUp) -> None:
        made_up.pci("0x10de", "0x2335", "0x030200")
        (gpu,) = find_gpus(made_up.root)
        assert (gpu.name, gpu.seen) == ("NVIDIA GPU (PCI 10de:2335)", "PCI 0000:01:00.0, no driver")
        assert gpu.missing == "NVIDIA's driver, nvidia, is not loaded"

    @pytest.mark.parametrize(
        ("driver", "words"), [("nouveau", "the GPU uses nouveau"), ("vfio-pci", "virtual machines")]
    )
    def test_nvidia_with_another_driver(self, made_up: MadeUp, driver: str, words: str) -> None:
        made_up.pci("0x10de", "0x2335", "0x030000", driver)
        assert words in (find_gpus(made_up.root)[0].missing or "")

    @pytest.mark.parametrize(
        ("lost", "words"),
        [
            ("dev/nvidiactl", "/dev"),
            ("dev/nvidia0", "/dev"),
            ("usr/lib/x86_64-linux-gnu/libcuda.so.1", "libcuda.so.1"),
        ],
    )
    def test_nvidia_hidden_from_a_container(self, made_up: MadeUp, lost: str, words: str) -> None:
        made_up.nvidia()
        (made_up.root / lost).unlink()
        (gpu,) = find_gpus(made_up.root)
        assert words in (gpu.missing or "")
        assert "docker run --gpus all" in (gpu.remedy or "")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may open everything")
    def test_nvidia_of_others(self, made_up: MadeUp) -> None:
        made_up.nvidia()
        (made_up.root / "dev/nvidia0").chmod(0)
        assert "this user may not open /dev/nvidia0" in (find_gpus(made_up.root)[0].missing or "")

    def test_one_of_two_is_given_to_a_container(self, made_up: MadeUp) -> None:
        made_up.nvidia()
        made_up.nvidia(model="NVIDIA A100", minor=1, address="0000:02:00.0")
        (made_up.root / "dev/nvidia1").unlink()
        first, second = find_gpus(made_up.root)
        assert (first.name, first.missing) == ("NVIDIA H200", None)
        assert second.name == "NVIDIA A100"
        assert "/dev" in (second.missing or "")
        in_use = Build(["CPU", "CUDA"], [CUDA0])
        statuses = [found.status for found in diagnose(in_use, made_up.machine) if "A100" in found.text]
        assert statuses == ["note"]

    def test_nvidia_smi_tells_names(self, made_up: MadeUp) -> None:
        """Windows lends a GPU to its Linux without any PCI device or /proc/driver."""
        made_up.file("dev/dxg")
        assert find_gpus(made_up.root) == []
        program = made_up.file("usr/lib/wsl/lib/nvidia-smi", "#!/bin/sh\necho NVIDIA GeForce RTX 4090\n")
        program.chmod(0o755)
        (gpu,) = find_gpus(made_up.root)
        assert (gpu.name, gpu.seen) == ("NVIDIA GeForce RTX 4090", "nvidia-smi")
        assert "libcuda.so.1" in (gpu.missing or "")
        made_up.file("usr/lib/wsl/lib/libcuda.so.1")
        assert find_gpus(made_up.root)[0].missing is None

    @pytest.mark.parametrize("script", ["exit 9", "echo failed >&2; exit 1", "true"])
    def test_an_nvidia_smi_that_tells_nothing(self, made_up: MadeUp, script: str) -> None:
        made_up.file("dev/dxg")
        made_up.file("usr/lib/wsl/lib/nvidia-smi", f"#!/bin/sh\n{script}\n").chmod(0o755)
        assert find_gpus(made_up.root) == []

    def test_a_driver_that_names_no_product(self, made_up: MadeUp) -> None:
        made_up.nvidia()
        (made_up.root / "proc/driver/nvidia/gpus/0000:01:00.0/information").unlink()
        (gpu,) = find_gpus(made_up.root)
        assert (gpu.name, gpu.missing) == ("NVIDIA GPU (PCI 10de:2335)", None)

    def test_amd(self, made_up: MadeUp) -> None:
        made_up.pci("0x1002", "0x74a1", "0x120000", "amdgpu")  # calls itself an accelerator
        assert "/dev/kfd" in (find_gpus(made_up.root)[0].missing or "")
        made_up.file("dev/kfd")
        assert find_gpus(made_up.root) == [Gpu("AMD", "AMD GPU (PCI 1002:74a1)", "PCI 0000:01:00.0, driver amdgpu")]

    def test_amd_without_a_driver(self, made_up: MadeUp) -> None:
        made_up.pci("0x1002", "0x744c", "0x030000")
        assert "amdgpu, is not loaded" in (find_gpus(made_up.root)[0].missing or "")

    def test_what_rocm_computes_on(self, made_up: MadeUp) -> None:
        assert not has_rocm(made_up.root)
        node = "sys/class/kfd/kfd/topology/nodes/{}/properties"
        made_up.file(node.format(0), "cpu_cores_count 16\nsimd_count 0\n")
        assert not has_rocm(made_up.root)
        made_up.file(node.format(1), "cpu_cores_count 0\nsimd_count 1216\n")
        assert has_rocm(made_up.root)

    def test_intel(self, made_up: MadeUp) -> None:
        made_up.pci("0x8086", "0x9a49", "0x030000", "i915", "0000:00:02.0")
        assert find_gpus(made_up.root) == [Gpu("Intel", "Intel GPU (PCI 8086:9a49)", "PCI 0000:00:02.0, driver i915")]

    def test_jetson(self, made_up: MadeUp) -> None:
        """Its GPU is no PCI device."""
        made_up.file("etc/nv_tegra_release", "# R36 (release), REVISION: 4.0")
        assert "libcuda.so.1" in (find_gpus(made_up.root)[0].missing or "")
        made_up.file("usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1")
        made_up.file("proc/device-tree/model", "NVIDIA Jetson Orin Nano\0")
        assert find_gpus(made_up.root) == [Gpu("NVIDIA", "NVIDIA Jetson Orin Nano", "/etc/nv_tegra_release")]

    def test_apple(self, made_up: MadeUp, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(platform, "system", lambda: "Darwin")
        for processor, vendors in (("arm64", ["Apple"]), ("x86_64", [])):
            monkeypatch.setattr(platform, "machine", lambda processor=processor: processor)
            assert [gpu.vendor for gpu in find_gpus(made_up.root)] == vendors


class TestTheDriver:
    VERSION = (
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\n"
        "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n"
    )
    OPEN = (
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs@x)  Sun Jul 27 2025\n"
    )

    def test_its_version(self, made_up: MadeUp) -> None:
        assert nvidia.driver_version(made_up.root) is None
        for text, version in ((self.VERSION, "535.129.03"), (self.OPEN, "580.65.06"), ("NVRM version: ...\n", None)):
            made_up.file("proc/driver/nvidia/version", text)
            assert nvidia.driver_version(made_up.root) == version

    def test_what_is_seen_of_it(self, made_up: MadeUp) -> None:
        made_up.nvidia()
        made_up.file("proc/driver/nvidia/version", self.VERSION)
        assert find_gpus(made_up.root)[0].seen == "PCI 0000:01:00.0, driver nvidia 535.129.03"

    def test_the_cuda_that_it_knows(self, made_up: MadeUp) -> None:
        assert nvidia.max_cuda_version(made_up.root) is None
        made_up.file("usr/lib/x86_64-linux-gnu/libcuda.so.1", "no library")
        assert nvidia.max_cuda_version(made_up.root) is None
        made_up.libcuda(12020)
        assert nvidia.max_cuda_version(made_up.root) == (12, 2)

    def test_what_it_says_when_it_does_not_start(self, made_up: MadeUp) -> None:
        assert nvidia.startup_error(made_up.root) is None
        made_up.libcuda(12020, 802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized")
        refusal = nvidia.startup_error(made_up.root)
        assert refusal is not None
        assert refusal.text.endswith("not initialised yet (CUDA_ERROR_SYSTEM_NOT_READY, 802)")
        assert "nvidia-fabricmanager" in (refusal.remedy or "")

    def test_words_of_its_own(self, made_up: MadeUp) -> None:
        made_up.libcuda(12020, 46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "devices are busy or unavailable")
        text = "devices are busy or unavailable (CUDA_ERROR_DEVICE_UNAVAILABLE, 46)"
        assert nvidia.startup_error(made_up.root) == (text, None)

    def test_capability(self, made_up: MadeUp) -> None:
        assert nvidia.compute_capability("0000:01:00.0", made_up.root) is None
        made_up.libcuda(13000)
        assert nvidia.compute_capability("0000:01:00.0", made_up.root) == "9.0"
        assert nvidia.compute_capability("0000:02:00.0", made_up.root) is None

    @pytest.mark.parametrize(("arch", "text"), [(500, "5.0"), (750, "7.5"), (900, "9.0"), (1210, "12.1")])
    def test_capabilities_as_the_compiler_counts_them(self, arch: int, text: str) -> None:
        assert nvidia.format_capability(arch) == text

    def test_the_cuda_of_a_module(self, tmp_path: Path) -> None:
        module = tmp_path / "libggml-cuda.so"
        assert nvidia.cuda_version_of(module) is None
        for content, version in ((b"", None), (b"\0libggml-base.so\0", None), (b"x\0libcudart.so.12\0y", 12)):
            module.write_bytes(content)
            assert nvidia.cuda_version_of(module) == version

    def test_here(self) -> None:
        """The system's own loader is asked here, and not the files."""
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            assert nvidia.libcuda_error() == "libcuda.so.1 was not found"
            assert (nvidia.max_cuda_version(), nvidia.startup_error(), nvidia.compute_capability("0000:01:00.0")) == (
                None,
                None,
                None,
            )
        else:
            assert nvidia.libcuda_error() is None
            assert nvidia.max_cuda_version() > (10, 0)  # type: ignore[operator]


def why(kind: str, build: Build, made_up: MadeUp) -> str:
    return explain_missing_device(kind, build, made_up.machine)


class TestWhyThereIsNoDevice:
    """The hint at the end of a DeviceError: for each part that may be missing, and for several at once."""

    def test_no_hardware(self, made_up: MadeUp) -> None:
        assert why("cuda", CUDA_BUILD, made_up) == 'this machine has no NVIDIA GPU; use device="auto"'
        assert why("gpu", CUDA_BUILD, made_up) == 'this machine has no GPU that pyggml supports; use device="auto"'

    def test_no_hardware_but_a_driver_without(self, made_up: MadeUp) -> None:
        """The engine leaves Mesa's software driver out unless it is named."""
        made_up.file("usr/share/vulkan/icd.d/lvp_icd.x86_64.json", "{}")
        assert why("vulkan", Build(["CPU", "Vulkan"], []), made_up) == (
            "this machine has no GPU; for tests, set GGML_VK_VISIBLE_DEVICES=0 to use Mesa's slow CPU driver"
        )

    def test_no_hardware_and_no_build(self, made_up: MadeUp) -> None:
        """Hardware first: who has none need not build."""
        assert why("cuda", CPU_BUILD, made_up) == (
            "this machine has no NVIDIA GPU (also, this build cannot use CUDA: it was built for CPU; building it would "
            'not help here); use device="auto"'
        )

    def test_other_hardware(self, made_up: MadeUp) -> None:
        made_up.nvidia()
        assert why("rocm", Build(["CPU", "ROCm"], []), made_up) == (
            'this machine has no AMD GPU, but NVIDIA H200; use device="cuda" for it'
        )

    def test_no_driver(self, made_up: MadeUp) -> None:
        made_up.pci("0x10de", "0x2335", "0x030200", "nouveau")
        assert why("cuda", CUDA_BUILD, made_up) == (
            "NVIDIA GPU (PCI 10de:2335) (PCI 0000:01:00.0, driver nouveau) cannot be used: NVIDIA's driver, nvidia, is "
            "not loaded; the GPU uses nouveau: install NVIDIA's driver on the host, and restart it"
        )

    def test_no_driver_and_no_build(self, made_up: MadeUp) -> None:
        made_up.pci("0x10de", "0x2335", "0x030200")
        driver, build = why("cuda", CPU_BUILD, made_up).split("; and ")
        assert driver.startswith("NVIDIA GPU (PCI 10de:2335) (PCI 0000:01:00.0, no driver) cannot be used: ")
        assert build == (
            "this build cannot use CUDA: it was built for CPU: build pyggml with it, in the folder of pyggml's source: "
            f"{TO_BUILD}; that needs NVIDIA's CUDA toolkit"
        )

    def test_a_container_without_the_gpus_files(self, made_up: MadeUp) -> None:
        """The bus of the machine shows in every container, and so does what its driver says of itself."""
        made_up.nvidia()
        made_up.file(".dockerenv")
        for node in ("nvidiactl", "nvidia0"):
            (made_up.root / "dev" / node).unlink()
        (made_up.root / "usr/lib/x86_64-linux-gnu/libcuda.so.1").unlink()
        text = why("cuda", CUDA_BUILD, made_up)
        assert "the driver is loaded, but /dev/nvidiactl and /dev/nvidia* do not exist: " in text
        assert "in a container: docker run --gpus all;" in text

    def test_a_sandbox_without_the_bus(self, made_up: MadeUp) -> None:
        """GVisor shows the files of a GPU, and no bus."""
        made_up.file("dev/nvidiactl")
        made_up.file("dev/nvidia0")
        made_up.file("dev/nvidia-uvm")
        made_up.libcuda(12020)
        assert find_gpus(made_up.root) == [Gpu("NVIDIA", "NVIDIA GPU", "/dev/nvidia0")]
        assert "it was built for CPU" in why("gpu", CPU_BUILD, made_up)

    def test_wsl(self, made_up: MadeUp) -> None:
        made_up.file("dev/dxg")
        assert why("cuda", CUDA_BUILD, made_up) == (
            "WSL has no NVIDIA GPU: nvidia-smi lists none; install NVIDIA's driver in Windows, but not in WSL"
        )

    @pytest.mark.parametrize("value", ["", "-1", " -1,0", "1", "none"])
    def test_hidden(self, made_up: MadeUp, value: str) -> None:
        made_up.nvidia()
        made_up.environment["CUDA_VISIBLE_DEVICES"] = value
        assert why("cuda", CUDA_BUILD, made_up) == (
            f"CUDA_VISIBLE_DEVICES={value} hides it from CUDA: unset CUDA_VISIBLE_DEVICES to use it"
        )

    @pytest.mark.parametrize("value", ["0", "0,1", "GPU-8932f937", "MIG-GPU-8932f937/1/0"])
    def test_not_hidden(self, made_up: MadeUp, value: str) -> None:
        made_up.nvidia()
        made_up.environment["CUDA_VISIBLE_DEVICES"] = value
        assert [problem.part for problem in find_problems("cuda", CPU_BUILD, made_up.machine)] == ["build"]

    def test_an_old_driver(self, made_up: MadeUp) -> None:
        made_up.nvidia()
        made_up.libcuda(12020)
        made_up.file("proc/driver/nvidia/version", TestTheDriver.VERSION)
        assert why("cuda", Build(["CPU", "CUDA"], [], cuda=13), made_up) == (
            "NVIDIA's driver 535.129.03 supports CUDA up to 12.2, but this build needs CUDA 13: update the driver to "
            "580 or newer, or use a build for CUDA 12"
        )
        assert "that needs NVIDIA's CUDA toolkit, 12.x for this driver" in why("cuda", CPU_BUILD, made_up)

    def test_a_driver_of_the_same_major_version_will_do(self, made_up: MadeUp) -> None:
        made_up.nvidia()
        made_up.libcuda(12020, 999, "CUDA_ERROR_UNKNOWN", "unknown error")
        (problem,) = find_problems("cuda", CUDA_BUILD, made_up.machine)
        assert problem.text == "NVIDIA's driver does not start: it gives no reason (CUDA_ERROR_UNKNOWN, 999)"
        assert "modprobe nvidia_uvm" in (problem.remedy or "")

    @pytest.mark.parametrize(
        ("library", "found", "remedy"),
        [
            ("libcudart.so.12", "the run-time library libcudart.so.12", 'pip install "pyggml[cuda12]"'),
            ("libcublas.so.13", "the run-time library libcublas.so.13", 'pip install "pyggml[cuda13]"'),
            ("libcuda.so.1", "the driver's library libcuda.so.1", "install NVIDIA's driver"),
            ("libvulkan.so.77", "the run-time library libvulkan.so.77", "apt install libvulkan1"),
            ("libstrange.so.5", "the run-time library libstrange.so.5", "install the package with libstrange.so.5"),
        ],
    )
    def test_no_libraries(self, made_up: MadeUp, library: str, found: str, remedy: str) -> None:
        """The words are those of the loader here, of a real module whose library is gone."""
        made_up.nvidia()
        lost, module = made_up.root / library, made_up.root / "libggml-cuda.so"
        compile_library("int f(void) { return 1; }", lost, {}, f"-Wl,-soname,{library}")
        compile_library("int f(void); int g(void) { return f(); }", module, {}, str(lost))
        lost.unlink()
        with pytest.raises(OSError, match="cannot open shared object file") as error:
            ctypes.CDLL(str(module))
        text = why("cuda", Build(["CPU"], [], {"cuda": str(error.value)}, cuda=12), made_up)
        assert text.startswith(f"{found}, which ")
        assert remedy in text
        assert "was built for" not in text

    def test_a_module_of_another_kind_of_system(self, made_up: MadeUp) -> None:
        made_up.nvidia()
        words = "/lib/libc.so.6: version `GLIBC_2.38' not found (required by libggml-cuda.so)"
        assert why("cuda", Build(["CPU"], [], {"cuda": words}), made_up) == (
            f"the CUDA module of this build does not load: {words}: rebuild it here, in the folder of pyggml's "
            f"source: {TO_BUILD}"
        )

    def test_everything_seems_to_be_there(self, made_up: MadeUp) -> None:
        made_up.nvidia()
        refused = {"cuda": "failed to initialize CUDA: out of memory"}
        assert why("cuda", Build(["CPU", "CUDA"], [], refused=refused), made_up) == (
            "CUDA, which this build has, finds no device: failed to initialize CUDA: out of memory: check that "
            "nvidia-smi lists it"
        )

    def test_everything_at_once(self, made_up: MadeUp) -> None:
        """In the order in which to put it right."""
        made_up.nvidia()
        made_up.libcuda(12020)
        made_up.environment["CUDA_VISIBLE_DEVICES"] = "-1"
        (made_up.root / "dev/nvidia0").unlink()
        words = "libcudart.so.13: cannot open shared object file: No such file or directory"
        found = find_problems("cuda", Build(["CPU"], [], {"cuda": words}, cuda=13), made_up.machine)
        assert [problem.part for problem in found] == ["driver", "driver", "settings", "libraries"]

    def test_more_than_there_are(self, made_up: MadeUp) -> None:
        made_up.nvidia()
        build = Build(["CPU", "CUDA"], [CUDA0], cuda=12)
        counted = 'devices are numbered from 0; the last is "{}:0"'
        assert why("cuda", build, made_up) == counted.format("cuda")
        assert why("gpu", build, made_up) == counted.format("gpu")
        made_up.nvidia("NVIDIA A100", 1, "0000:02:00.0")
        made_up.environment["CUDA_VISIBLE_DEVICES"] = "0"
        assert why("cuda", build, made_up) == f"{counted.format('cuda')}; CUDA_VISIBLE_DEVICES=0 hides the others"
        (made_up.root / "dev/nvidia1").unlink()
        assert "; NVIDIA A100 (PCI 0000:02:00.0, driver nvidia) cannot be used: " in why("cuda", build, made_up)

    def test_amd(self, made_up: MadeUp) -> None:
        made_up.amd()
        assert "-DGGML_HIP=ON" in why("gpu", CPU_BUILD, made_up)
        assert why("rocm", Build(["CPU", "ROCm"], []), made_up) == (
            "ROCm, which this build has, finds no device, and gives no reason: check that rocminfo lists it, and that "
            "you can open /dev/kfd"
        )
        made_up.environment["ROCR_VISIBLE_DEVICES"] = "-1"
        assert "ROCR_VISIBLE_DEVICES=-1 hides it from ROCm" in why("rocm", Build(["CPU", "ROCm"], []), made_up)

    def test_an_amd_gpu_that_rocm_cannot_use(self, made_up: MadeUp) -> None:
        made_up.amd()
        made_up.file("sys/class/kfd/kfd/topology/nodes/1/properties", "simd_count 0\n")
        assert "-DGGML_VULKAN=ON" in why("gpu", CPU_BUILD, made_up)
        assert "does not support this GPU for ROCm" in why("rocm", CPU_BUILD, made_up)

    def test_vulkan(self, made_up: MadeUp) -> None:
        made_up.nvidia()
        build = Build(["CPU", "Vulkan"], [])
        assert why("vulkan", build, made_up).startswith("no Vulkan driver is installed ")
        assert "NVIDIA_DRIVER_CAPABILITIES=all" in why("vulkan", build, made_up)
        made_up.file("usr/share/vulkan/icd.d/nvidia_icd.json", "{}")
        assert "check that vulkaninfo lists it" in why("vulkan", build, made_up)
        made_up.environment["GGML_DISABLE_VULKAN"] = "1"
        assert "GGML_DISABLE_VULKAN=1 hides it from Vulkan" in why("vulkan", build, made_up)

    def test_names_that_are_no_kind_of_gpu(self, made_up: MadeUp) -> None:
        assert '"cpu", "gpu", "cuda", "rocm"' in why("nonsense", CPU_BUILD, made_up)
        assert "pyggml doctor" in why("", CPU_BUILD, made_up)
        assert "pyggml rpc-serve" in why("rpc", CPU_BUILD, made_up)

    @pytest.mark.parametrize("kind", KINDS)
    def test_every_kind_has_a_command(self, kind: str) -> None:
        """It is one that a shell and pip understand."""
        words = shlex.split(KINDS[kind].build_command().partition(": ")[2])
        assert words == [
            f"CMAKE_ARGS=-D{KINDS[kind].option}=ON",
            *["pip", "install", "--force-reinstall", "--no-deps", "."],
        ]


class TestHowGpusAreUsed:
    def found(self, build: Build, made_up: MadeUp) -> list[Diagnosis]:
        return [*diagnose(build, made_up.machine)]

    def test_a_build_that_cannot_use_it(self, made_up: MadeUp) -> None:
        made_up.nvidia()
        (found,) = self.found(CPU_BUILD, made_up)
        assert (found.status, found.text) == (
            "warning",
            "found NVIDIA H200, but this build cannot use CUDA: it was built for CPU",
        )
        assert TO_BUILD in (found.advice or "")

    def test_one_that_is_used(self, made_up: MadeUp) -> None:
        made_up.nvidia()
        vulkan = SimpleNamespace(name="Vulkan0", kind="vulkan", description="NVIDIA H200", capability=None)
        for device in (CUDA0, vulkan):
            build = Build(["CPU", device.kind], [device])
            assert self.found(build, made_up) == [("ok", f"the engine sees {device.name} (NVIDIA H200)", None)]

    def test_one_that_is_older_than_the_build(self, made_up: MadeUp) -> None:
        made_up.nvidia("Tesla P40")
        p40 = SimpleNamespace(name="CUDA0", kind="cuda", description="Tesla P40", capability="6.1")
        seen, old = self.found(Build(["CPU", "CUDA"], [p40], capabilities=("7.5", "10.0")), made_up)
        assert (seen.status, old.status) == ("ok", "failed")
        assert old.text == (
            "CUDA0 (Tesla P40) has the compute capability 6.1, but the CUDA code of this build is for 7.5 and newer"
        )
        assert 'CMAKE_ARGS="-DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=61" pip install' in (old.advice or "")
        for capability in ("7.5", "8.9", "12.0"):
            device = SimpleNamespace(**{**vars(p40), "capability": capability})
            assert capability_problem(device, Build(["CUDA"], [device], capabilities=("7.5", "10.0"))) is None
        assert capability_problem(p40, Build(["CUDA"], [p40])) is None

    def test_one_of_two(self, made_up: MadeUp) -> None:
        made_up.nvidia()
        made_up.nvidia(minor=1, address="0000:02:00.0")
        (found,) = self.found(Build(["CPU", "CUDA"], [CUDA0]), made_up)
        assert (found.status, found.text) == ("note", "the engine sees CUDA0 (NVIDIA H200), of 2 NVIDIA GPUs")

    def test_one_of_another_vendor(self, made_up: MadeUp) -> None:
        """Vulkan serves them all: that it has one device does not mean it has this one."""
        made_up.nvidia()
        made_up.file("usr/share/vulkan/icd.d/intel_icd.json", "{}")
        intel = SimpleNamespace(name="Vulkan0", kind="vulkan", description="Intel(R) Graphics", capability=None)
        (found,) = self.found(Build(["CPU", "Vulkan"], [intel]), made_up)
        assert (found.status, "vulkaninfo" in (found.advice or "")) == ("failed", True)

    def test_one_that_the_engine_does_not_see(self, made_up: MadeUp) -> None:
        made_up.nvidia()
        assert [found.status for found in self.found(CUDA_BUILD, made_up)] == ["failed"]
        made_up.environment["CUDA_VISIBLE_DEVICES"] = ""
        (found,) = self.found(CUDA_BUILD, made_up)
        assert (found.status, found.advice) == ("note", "unset CUDA_VISIBLE_DEVICES to use it")

    def test_one_whose_driver_is_missing(self, made_up: MadeUp) -> None:
        made_up.pci("0x10de", "0x2335", "0x030200")
        (found,) = self.found(CUDA_BUILD, made_up)
        assert found.status == "warning"
        assert "cannot be used: NVIDIA's driver, nvidia, is not loaded" in found.text

    def test_intel(self, made_up: MadeUp) -> None:
        """Most of them share the main memory: that none is used is no fault."""
        made_up.pci("0x8086", "0x9a49", "0x030000", "i915", "0000:00:02.0")
        made_up.file("usr/share/vulkan/icd.d/intel_icd.json", "{}")
        (found,) = self.found(CPU_BUILD, made_up)
        assert (found.status, "-DGGML_VULKAN=ON" in (found.advice or "")) == ("note", True)


@pytest.fixture
def nothing_said() -> Iterator[None]:
    backend.warn_of_unused_gpu.cache_clear()
    yield
    backend.warn_of_unused_gpu.cache_clear()


HAS_GPU = any(device.type in ("gpu", "igpu") for device in pyggml.devices())


@pytest.mark.skipif(HAS_GPU, reason="this build uses a GPU")
@pytest.mark.usefixtures("nothing_said")
class TestAGpuThatIsNotUsed:
    @pytest.fixture
    def here(self, made_up: MadeUp, monkeypatch: pytest.MonkeyPatch) -> MadeUp:
        """This machine, were it that one."""
        monkeypatch.setattr(backend, "Machine", lambda: made_up.machine)
        return made_up

    def said(self, caplog: pytest.LogCaptureFixture, device: str = "auto") -> list[str]:
        with caplog.at_level(logging.WARNING, "pyggml"), pyggml.load(device=device, n_ctx=256):
            pass
        return [record.getMessage() for record in caplog.records if record.name == "pyggml"]

    def test_load_says_so_once(self, here: MadeUp, caplog: pytest.LogCaptureFixture) -> None:
        here.nvidia()
        (line,) = self.said(caplog)
        assert line.startswith('running on the CPU, as with device="cpu", although this machine has a GPU: ')
        assert "found NVIDIA H200, but this build cannot use CUDA" in line
        assert TO_BUILD in line
        assert len(self.said(caplog)) == 1

    def test_who_asks_for_the_cpu_hears_nothing(self, here: MadeUp, caplog: pytest.LogCaptureFixture) -> None:
        here.nvidia()
        assert self.said(caplog, "cpu") == []

    def test_nothing_to_say(self, here: MadeUp, caplog: pytest.LogCaptureFixture) -> None:
        assert self.said(caplog) == []
        here.nvidia()
        here.environment["CUDA_VISIBLE_DEVICES"] = ""  # somebody meant it
        backend.warn_of_unused_gpu.cache_clear()
        assert pyggml.unused_gpu() is None

    def test_every_name_of_a_gpu_is_refused(self, here: MadeUp) -> None:
        here.nvidia()
        for name in ("cuda", "cuda:3", "gpu"):
            with pytest.raises(pyggml.DeviceError) as error:
                pyggml.load(device=name)
            seen = ", ".join(device.name for device in pyggml.devices())
            assert str(error.value).startswith(f'there is no device "{name}"; this build sees: {seen}; ')
            assert TO_BUILD in str(error.value)
        for name in ("rocm", "hip", "metal", "sycl"):
            with pytest.raises(pyggml.DeviceError, match=r"this machine has no \w+ GPU, but NVIDIA H200"):
                pyggml.load(device=name)


@pytest.mark.skipif(HAS_GPU, reason="this build uses a GPU")
@pytest.mark.usefixtures("nothing_said")
def test_a_device_older_than_the_build(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Were this build one for newer GPUs than the machine has: no test machine is like that."""
    old = pyggml.Device("CUDA0", "cuda", "Tesla P40", "gpu", 1 << 34, 1 << 34, "0000:01:00.0", "6.1")
    every = [*pyggml.devices(), old]
    monkeypatch.setattr(backend, "_build", lambda seen: Build(["CUDA"], seen, capabilities=("7.5",)))
    monkeypatch.setattr(backend, "devices", lambda: every)
    monkeypatch.setattr(placement, "devices", lambda: every)
    with pytest.raises(pyggml.DeviceError, match=r"compute capability 6\.1.*-DCMAKE_CUDA_ARCHITECTURES=61"):
        pyggml.load(device="cuda")
    assert pyggml.find_device("cuda") == old
    with caplog.at_level(logging.WARNING, "pyggml"), pyggml.load(n_ctx=256) as llm:
        assert llm.where == "on CPU"
    (line,) = [record.getMessage() for record in caplog.records if "compute capability 6.1" in record.getMessage()]
    assert line.startswith("running on the CPU")


@pytest.mark.slow
def test_where_a_model_is() -> None:
    with pyggml.load(device="cpu", n_ctx=256) as llm:
        assert llm.where == "on CPU"
        assert repr(llm).endswith(", on CPU)")
        cpu, *_ = llm.memory
        gpu = dataclasses.replace(
            cpu, name="CUDA0", weights_bytes=3 * cpu.weights_bytes, cache_bytes=3 * cpu.cache_bytes
        )
        llm.memory = (cpu, gpu)
        assert llm.where == "75% on CUDA0, 25% on CPU"
