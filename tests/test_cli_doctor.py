"""``pyggml doctor``: on this machine, on machines laid out in folders, and with engines that do not start."""

from __future__ import annotations

import copy
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command import fails, pyggml

import pyggml as library
from pyggml.cli.doctor import anonymous, machine, verdict
from pyggml.cli.doctor.checks import Check, checks
from pyggml.cli.doctor.gpu import Gpu, find_gpus, has_rocm
from pyggml.cli.doctor.probe import Probe, probe

BYTES = {"type": ["integer", "null"], "minimum": 0}
TEXT = {"type": ["string", "null"]}
OUTPUT = {
    "type": "object",
    "required": ["ok", "build", "processor", "memory", "devices", "versions", "environment", "cache", "gpus", "checks"],
    "additionalProperties": False,
    "properties": {
        "ok": {"type": "boolean"},
        "build": {
            "type": "object",
            "required": ["pyggml", "engine", "compiler", "build_type", "portable", "options", "backends", "module"],
        },
        "processor": {"type": "object", "required": ["model", "features", "n_cores", "n_usable"]},
        "memory": {"type": "object", "additionalProperties": BYTES, "required": ["total_bytes", "usable_bytes"]},
        "devices": {"type": "array", "items": {"type": "object", "required": ["name", "type", "memory_total"]}},
        "versions": {"type": "object", "additionalProperties": TEXT, "required": ["python", "numpy", "cffi", "libc"]},
        "environment": {"type": "object", "additionalProperties": {"type": "string"}},
        "cache": {"type": "object", "required": ["path", "n_models", "size_bytes", "free_bytes", "writable"]},
        "gpus": {"type": "array", "items": {"type": "object", "required": ["vendor", "name", "seen", "missing"]}},
        "checks": {
            "type": "array",
            "minItems": 5,
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "status": {"enum": ["ok", "note", "warning", "failed"]},
                    "text": {"type": "string", "minLength": 1},
                    "advice": TEXT,
                },
                "required": ["name", "status", "text", "advice"],
                "additionalProperties": False,
            },
        },
    },
}


@cache
def told_here() -> Probe:
    """What the engine of this build says."""
    return probe()


def told(**changes: Any) -> dict[str, Any]:
    """What it would say with some facts changed, as "topic__name"; and the processor that it says it uses."""
    facts = copy.deepcopy(told_here().facts)
    facts["processor"] = {
        "model": "made up",
        "features": [name for name in facts["cpu"]["used"] if name in machine.FEATURES],
    }
    for name, value in changes.items():
        topic, _, key = name.partition("__")
        if key:
            facts[topic][key] = value
        else:
            facts[topic] = value
    return facts


def judged(facts: dict[str, Any], gpus: list[Gpu] | None = None, *, rocm: bool = False) -> dict[str, Check]:
    """The checks, by name; the last of a name."""
    return {check.name: check for check in checks(facts, gpus or [], None, has_rocm=rocm)}


class TestHere:
    def test_all_is_well(self, tmp_path: Path) -> None:
        done = pyggml("doctor", env={"PYGGML_CACHE": str(tmp_path)})
        assert (done.code, done.err) == (0, "")
        assert re.search(rf"^  pyggml +{re.escape(library.__version__)}$", done.out, re.MULTILINE)
        assert "the shipped model answers 'The sky is blue.'" in done.out
        assert re.search(rf"^  PYGGML_CACHE +{re.escape(str(tmp_path))}$", done.out, re.MULTILINE)
        assert "\x1b" not in done.out
        assert done.out.splitlines()[-1] in ("All is well.", "Everything works; see the warnings.")

    def test_json(self, tmp_path: Path) -> None:
        done = pyggml("doctor", "--json", env={"PYGGML_CACHE": str(tmp_path), "HF_TOKEN": "hf_secret"})
        assert (done.code, done.err) == (0, "")
        printed = json.loads(done.out)
        jsonschema.validate(printed, OUTPUT)
        assert printed["ok"]
        assert printed["processor"]["n_usable"] == library.lib.pyg_cpu_count()
        assert [device["name"] for device in printed["devices"]] == [device.name for device in library.devices()]
        assert printed["environment"]["HF_TOKEN"] == "(set)"

    @pytest.mark.parametrize("option", [[], ["--json"]])
    def test_it_names_no_user_and_tells_no_secret(self, tmp_path: Path, option: list[str]) -> None:
        home = tmp_path / "home" / "alice"
        home.mkdir(parents=True)
        env = {
            "HOME": str(home),
            "USER": "alice",
            "LOGNAME": "alice",
            "HF_HOME": "/data/alice/hub",
            "HF_TOKEN": "hf_secret",
            "HF_ENDPOINT": "https://alice:secret@hub.example",
            "PYGGML_CACHE": str(home / "models"),
        }
        done = pyggml("doctor", *option, env=env)
        assert done.code == 0, done
        assert "alice" not in done.out
        assert "secret" not in done.out
        assert "~/models" in done.out
        assert "/data/<user>/hub" in done.out

    def test_a_cache_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        for place in (tmp_path / "file", "/proc/nowhere"):
            done = pyggml("doctor", env={"PYGGML_CACHE": str(place)})
            assert (done.code, done.err) == (1, "")
            assert f"{place} cannot be written to" in done.out
            assert "-> imported models need a place: set PYGGML_CACHE to a folder you can write to" in done.out
            assert done.out.splitlines()[-1].endswith("checks failed.")

    def test_bad_input(self) -> None:
        assert "--bogus" in fails(2, "doctor", "--bogus")
        assert "extra" in fails(2, "doctor", "me")

    def test_no_fake_gpu(self) -> None:
        """What is found here is on the bus, or lent by Windows."""
        for gpu in find_gpus():
            assert gpu.seen.startswith("PCI ") or gpu.seen in ("nvidia-smi", "the processor")


class TestEnginesThatFail:
    def failing(self, program: str, timeout_s: float = 60) -> Probe:
        return probe([sys.executable, "-c", program], timeout_s)

    def test_the_compiled_module_is_missing(self) -> None:
        program = "import sys; sys.modules['pyggml._pyggml'] = None; from pyggml.cli.doctor.probe import main; main()"
        result = self.failing(program)
        assert result.facts == {}
        assert result.failure is not None
        assert "compiled module could not be imported" in result.failure
        (engine, gpu) = checks({"processor": {}}, [Gpu("NVIDIA", "H200", "PCI 0")], result.failure, has_rocm=False)
        assert (engine.name, engine.status) == ("engine", "failed")
        assert "pip install" in (engine.advice or "")
        assert "the engine has to start first" in gpu.text

    def test_a_user_without_a_home(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("HOME", "XDG_CACHE_HOME", "PYGGML_CACHE"):
            monkeypatch.delenv(name, raising=False)
        nobody = "import os; os.getuid = lambda: 2**31 - 9"  # a number that no user has
        result = self.failing(f"{nobody}; from pyggml.cli.doctor.probe import main; main()")
        assert result.failure is None
        (cache,) = [
            check
            for check in checks({**result.facts, "processor": machine.processor()}, [], None, has_rocm=False)
            if check.name == "cache"
        ]
        assert (cache.status, "no home directory" in cache.text) == ("failed", True)
        assert "PYGGML_CACHE" in (cache.advice or "")

    def test_the_whole_report_of_one(self, tmp_path: Path) -> None:
        """Python runs this at every start, so neither the command nor its engine finds the compiled module."""
        (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['pyggml._pyggml'] = None\n")
        done = pyggml("doctor", env={"PYTHONPATH": str(tmp_path)})
        assert (done.code, done.err) == (1, "")
        assert "failed  engine: the engine failed when it started: pyggml's compiled module could not" in done.out
        assert "-> build pyggml here: pip install" in done.out
        assert done.out.splitlines()[-1].startswith("1 of ")
        printed = json.loads(pyggml("doctor", "--json", env={"PYTHONPATH": str(tmp_path)}).out)
        assert (printed["ok"], printed["build"], printed["devices"]) == (False, {}, [])
        assert printed["versions"]["numpy"]

    def test_an_instruction_that_the_processor_does_not_know(self) -> None:
        """What was told before counts; a line that was cut off does not."""
        program = (
            "import os, signal\n"
            """print('{"cache": {"path": "x"}}\\n{"self_t', end="", flush=True)\n"""
            "os.kill(os.getpid(), signal.SIGILL)"
        )
        result = self.failing(program)
        assert result.facts == {"cache": {"path": "x"}}
        assert "SIGILL" in (result.failure or "")
        assert "instructions that this processor does not know" in (result.failure or "")

    def test_other_ends(self) -> None:
        assert self.failing("import os; os.abort()").failure == "it was ended by SIGABRT: it gave no reason"
        assert self.failing("raise SystemExit('no disk')").failure == "no disk"
        assert self.failing("raise SystemExit(3)").failure == "it gave no reason"
        assert self.failing("pass").failure == "it gave no reason"

    @pytest.mark.slow
    def test_no_end(self) -> None:
        result = self.failing("""print('{"build": 1}', flush=True); import time; time.sleep(60)""", timeout_s=5)
        assert result == Probe({"build": 1}, "it did not end within 5 seconds")

    def test_a_wrong_answer(self) -> None:
        test = {"device": "CPU", "right": False, "answer": "The sky is green.", "error": None}
        found = judged(told(self_test=[test]))["self test on CPU"]
        assert found.status == "failed"
        assert "The sky is green." in found.text
        test |= {"answer": None, "error": "EngineError: broken"}
        found = judged(told(self_test=[test]))["self test on CPU"]
        assert (found.status, found.text) == ("failed", "EngineError: broken")


class Machine:
    """A folder that stands for "/"."""

    def __init__(self, root: Path) -> None:
        self.root = root

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

    def gpus(self) -> list[Gpu]:
        return find_gpus(self.root)


@pytest.fixture
def made_up(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


class TestFindingGpus:
    def test_nothing(self, made_up: Machine) -> None:
        assert made_up.gpus() == []
        made_up.file("sys/bus/pci/devices/0000:00:00.0/class", "nonsense")
        assert made_up.gpus() == []

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
    def test_what_is_no_gpu_to_compute_on(self, made_up: Machine, vendor: str, kind: str) -> None:
        made_up.pci(vendor, "0x0001", kind)
        assert made_up.gpus() == []

    def test_nvidia(self, made_up: Machine) -> None:
        made_up.nvidia()
        assert made_up.gpus() == [Gpu("NVIDIA", "NVIDIA H200", "PCI 0000:01:00.0, driver nvidia")]

    def test_nvidia_without_a_driver(self, made_up: Machine) -> None:
        made_up.pci("0x10de", "0x2335", "0x030200")
        (gpu,) = made_up.gpus()
        assert (gpu.name, gpu.seen) == ("NVIDIA GPU (PCI 10de:2335)", "PCI 0000:01:00.0, no driver")
        assert gpu.missing == "NVIDIA's driver, nvidia, is not loaded"

    @pytest.mark.parametrize(("driver", "words"), [("nouveau", "nouveau drives it"), ("vfio-pci", "virtual machines")])
    def test_nvidia_with_another_driver(self, made_up: Machine, driver: str, words: str) -> None:
        made_up.pci("0x10de", "0x2335", "0x030000", driver)
        assert words in (made_up.gpus()[0].missing or "")

    @pytest.mark.parametrize(
        ("lost", "words"),
        [
            ("dev/nvidiactl", "/dev"),
            ("dev/nvidia0", "/dev"),
            ("usr/lib/x86_64-linux-gnu/libcuda.so.1", "libcuda.so.1"),
        ],
    )
    def test_nvidia_hidden_from_a_container(self, made_up: Machine, lost: str, words: str) -> None:
        made_up.nvidia()
        (made_up.root / lost).unlink()
        (gpu,) = made_up.gpus()
        assert words in (gpu.missing or "")
        assert "docker run --gpus all" in (gpu.remedy or "")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may open everything")
    def test_nvidia_of_others(self, made_up: Machine) -> None:
        made_up.nvidia()
        (made_up.root / "dev/nvidia0").chmod(0)
        assert "this user may not open /dev/nvidia0" in (made_up.gpus()[0].missing or "")

    def test_one_of_two_is_given_to_a_container(self, made_up: Machine) -> None:
        made_up.nvidia()
        made_up.nvidia(model="NVIDIA A100", minor=1, address="0000:02:00.0")
        (made_up.root / "dev/nvidia1").unlink()
        first, second = made_up.gpus()
        assert (first.name, first.missing) == ("NVIDIA H200", None)
        assert second.name == "NVIDIA A100"
        assert "/dev" in (second.missing or "")
        found = checks(told(), [first, second], None, has_rocm=False)
        assert [check.status for check in found if "A100" in check.text] == ["note"]

    def test_nvidia_smi_tells_names(self, made_up: Machine) -> None:
        """Windows lends a GPU to its Linux without any PCI device or /proc/driver."""
        made_up.file("dev/dxg")
        assert made_up.gpus() == []
        program = made_up.file("usr/lib/wsl/lib/nvidia-smi", "#!/bin/sh\necho NVIDIA GeForce RTX 4090\n")
        program.chmod(0o755)
        (gpu,) = made_up.gpus()
        assert (gpu.name, gpu.seen) == ("NVIDIA GeForce RTX 4090", "nvidia-smi")
        assert "libcuda.so.1" in (gpu.missing or "")
        made_up.file("usr/lib/wsl/lib/libcuda.so.1")
        assert made_up.gpus()[0].missing is None

    @pytest.mark.parametrize("script", ["exit 9", "echo failed >&2; exit 1", "true"])
    def test_an_nvidia_smi_that_tells_nothing(self, made_up: Machine, script: str) -> None:
        made_up.file("dev/dxg")
        made_up.file("usr/lib/wsl/lib/nvidia-smi", f"#!/bin/sh\n{script}\n").chmod(0o755)
        assert made_up.gpus() == []

    def test_a_driver_that_names_no_product(self, made_up: Machine) -> None:
        made_up.nvidia()
        (made_up.root / "proc/driver/nvidia/gpus/0000:01:00.0/information").unlink()
        (gpu,) = made_up.gpus()
        assert (gpu.name, gpu.missing) == ("NVIDIA GPU (PCI 10de:2335)", None)

    def test_amd(self, made_up: Machine) -> None:
        made_up.pci("0x1002", "0x74a1", "0x120000", "amdgpu")  # calls itself an accelerator
        assert "/dev/kfd" in (made_up.gpus()[0].missing or "")
        made_up.file("dev/kfd")
        assert made_up.gpus() == [Gpu("AMD", "AMD GPU (PCI 1002:74a1)", "PCI 0000:01:00.0, driver amdgpu")]

    def test_amd_without_a_driver(self, made_up: Machine) -> None:
        made_up.pci("0x1002", "0x744c", "0x030000")
        assert "amdgpu, is not loaded" in (made_up.gpus()[0].missing or "")

    def test_what_rocm_computes_on(self, made_up: Machine) -> None:
        assert not has_rocm(made_up.root)
        node = "sys/class/kfd/kfd/topology/nodes/{}/properties"
        made_up.file(node.format(0), "cpu_cores_count 16\nsimd_count 0\n")
        assert not has_rocm(made_up.root)
        made_up.file(node.format(1), "cpu_cores_count 0\nsimd_count 1216\n")
        assert has_rocm(made_up.root)

    def test_intel(self, made_up: Machine) -> None:
        made_up.pci("0x8086", "0x9a49", "0x030000", "i915", "0000:00:02.0")
        assert made_up.gpus() == [Gpu("Intel", "Intel GPU (PCI 8086:9a49)", "PCI 0000:00:02.0, driver i915")]

    def test_jetson(self, made_up: Machine) -> None:
        """Its GPU is no PCI device."""
        made_up.file("etc/nv_tegra_release", "# R36 (release), REVISION: 4.0")
        assert "libcuda.so.1" in (made_up.gpus()[0].missing or "")
        made_up.file("usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1")
        made_up.file("proc/device-tree/model", "NVIDIA Jetson Orin Nano\0")
        assert made_up.gpus() == [Gpu("NVIDIA", "NVIDIA Jetson Orin Nano", "/etc/nv_tegra_release")]

    def test_apple(self, made_up: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(platform, "system", lambda: "Darwin")
        for processor, vendors in (("arm64", ["Apple"]), ("x86_64", [])):
            monkeypatch.setattr(platform, "machine", lambda processor=processor: processor)
            assert [gpu.vendor for gpu in made_up.gpus()] == vendors


NVIDIA = Gpu("NVIDIA", "NVIDIA H200", "PCI 0000:01:00.0, driver nvidia")
AMD = Gpu("AMD", "AMD GPU", "PCI 0000:01:00.0, driver amdgpu")
CUDA0 = {"name": "CUDA0", "description": "NVIDIA H200", "type": "gpu", "memory_total": 1, "memory_free": 1}


class TestGpusAndTheBuild:
    def test_none(self) -> None:
        assert judged(told(build__backends=["CPU"]))["GPU"].status == "ok"

    def test_a_build_that_cannot_use_it(self) -> None:
        """The advice is what the library says where CUDA is asked for."""
        check = judged(told(build__backends=["CPU"], devices=[]), [NVIDIA])["GPU"]
        assert check.status == "warning"
        assert "found NVIDIA H200, but this build cannot use it" in check.text
        if all(device.type == "cpu" for device in library.devices()):
            with pytest.raises(library.DeviceError) as error:
                library.load(device="cuda")
            assert str(error.value).endswith(check.advice or "?")
            words = shlex.split((check.advice or "").partition(": ")[2].partition("; ")[0])
            assert words[:3] == ["CMAKE_ARGS=-DGGML_CUDA=ON", "pip", "install"]

    @pytest.mark.parametrize(
        ("gpu", "rocm", "option"),
        [
            (AMD, True, "GGML_HIP"),
            (AMD, False, "GGML_VULKAN"),
            (Gpu("Intel", "Intel GPU", "PCI"), False, "GGML_VULKAN"),
            (Gpu("Apple", "Apple GPU", "the processor"), False, "GGML_METAL"),
        ],
    )
    def test_what_to_build(self, gpu: Gpu, rocm: bool, option: str) -> None:
        advice = judged(told(build__backends=["CPU"], devices=[]), [gpu], rocm=rocm)["GPU"].advice
        assert f"-D{option}=ON" in (advice or "")

    def test_one_that_is_used(self) -> None:
        for backend, name in (("CUDA", "CUDA0"), ("Vulkan", "Vulkan0")):
            facts = told(build__backends=["CPU", backend], devices=[{**CUDA0, "name": name}])
            check = judged(facts, [NVIDIA])["GPU"]
            assert (check.status, check.text) == ("ok", f"the engine sees {name} (NVIDIA H200)")

    def test_one_of_two(self) -> None:
        check = judged(told(build__backends=["CPU", "CUDA"], devices=[CUDA0]), [NVIDIA, NVIDIA])["GPU"]
        assert (check.status, check.text) == ("note", "the engine sees CUDA0 (NVIDIA H200), of 2 NVIDIA GPUs")

    def test_one_of_another_vendor(self) -> None:
        """Vulkan serves them all: that it has one device does not mean it has this one."""
        intel = {**CUDA0, "name": "Vulkan0", "description": "Intel(R) Graphics"}
        check = judged(told(build__backends=["CPU", "Vulkan"], devices=[intel]), [NVIDIA])["GPU"]
        assert check.status == "failed"
        assert "vulkaninfo" in (check.advice or "") or "GGML_VULKAN" in (check.advice or "")

    def test_one_that_the_engine_does_not_see(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        facts = told(build__backends=["CPU", "CUDA"], devices=[])
        assert judged(facts, [NVIDIA])["GPU"].status == "failed"
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        check = judged(facts, [NVIDIA])["GPU"]
        assert (check.status, check.advice) == ("note", "unset CUDA_VISIBLE_DEVICES to use it")

    def test_one_whose_driver_is_missing(self) -> None:
        gpu = Gpu("NVIDIA", "NVIDIA GPU", "PCI", "NVIDIA's driver is not loaded", "install it")
        check = judged(told(build__backends=["CPU"]), [gpu])["GPU"]
        assert (check.status, check.advice) == ("warning", "install it")
        assert "cannot be used: NVIDIA's driver is not loaded" in check.text


class TestProcessors:
    X86 = "sse4_1 pni ssse3 avx avx2 f16c fma bmi2"

    def features(self, made_up: Machine, line: str) -> list[str] | None:
        made_up.file("proc/cpuinfo", f"processor\t: 0\nmodel name\t: Made Up\n{line}\n\nprocessor\t: 1\n")
        found = machine.processor(made_up.root)
        assert found["model"] == "Made Up"
        features: list[str] | None = found["features"]
        return features

    def test_what_it_has(self, made_up: Machine) -> None:
        old = ["SSE3", "SSSE3", "AVX", "AVX2", "F16C", "FMA", "BMI2"]
        assert self.features(made_up, f"flags\t\t: {self.X86}") == old
        partly = f"flags\t\t: {self.X86} avx512f avx512cd"  # the engine wants five of them
        assert self.features(made_up, partly) == old
        new = f"flags\t\t: {self.X86} avx512f avx512cd avx512bw avx512dq avx512vl avx512_vnni amx_tile amx_int8"
        assert self.features(made_up, new) == [*old, "AVX512", "AVX512_VNNI", "AMX_INT8"]
        arm = ["NEON", "ARM_FMA", "DOTPROD", "MATMUL_INT8"]
        assert self.features(made_up, "Features\t: fp asimd asimddp i8mm") == arm

    def test_one_that_tells_nothing(self, made_up: Machine) -> None:
        assert self.features(made_up, "vendor\t: ?") is None
        check = judged(told(processor__features=None))["processor"]
        assert check.status == "ok"
        assert "the system hides" in check.text

    def test_all_of_it_is_used(self) -> None:
        assert judged(told())["processor"].status == "ok"

    def test_what_the_build_misses(self) -> None:
        features = [*told()["processor"]["features"], "AMX_INT8", "SVE"]
        options = {True: "another machine", False: "GGML_NATIVE=ON"}
        for is_native, advice in options.items():
            facts = told(
                processor__features=features,
                build__options=["GGML_NATIVE"] if is_native else [],
                build__portable=False,
            )
            check = judged(facts)["processor"]
            assert check.status == "warning"
            assert "AMX_INT8, SVE" in check.text
            assert advice in (check.advice or "")
        check = judged(told(processor__features=features, build__portable=True))["processor"]
        assert "PYGGML_PORTABLE=OFF" in (check.advice or "")

    def test_what_the_processor_misses(self) -> None:
        check = judged(told(processor__features=["SSE3"], cpu__used=["SSE3", "AVX2", "REPACK"]))["processor"]
        assert check.status == "failed"
        assert "the build uses AVX2, which this processor does not have" in check.text


class TestMemoryAndCache:
    def limits(self, **changes: int | None) -> Check:
        memory: Mapping[str, int | None] = {
            "usable_bytes": 8 << 30,
            "machine_bytes": 8 << 30,
            "cgroup_bytes": None,
            "address_space_bytes": None,
        }
        return judged(told(memory={**memory, **changes}))["memory"]

    def test_who_limits(self) -> None:
        assert self.limits() == Check("memory", "ok", "8.59 GB for this process, limited by the machine")
        assert "container" in self.limits(usable_bytes=2 << 30, cgroup_bytes=2 << 30).text
        check = self.limits(usable_bytes=4 << 30, address_space_bytes=4 << 30)
        assert (check.status, "ulimit -v" in check.text) == ("note", True)
        assert self.limits(usable_bytes=1 << 20, cgroup_bytes=1 << 20).status == "warning"

    def test_a_full_disk(self) -> None:
        assert judged(told(cache__free_bytes=10**9))["cache"].status == "warning"

    def test_ulimit_here(self) -> None:
        command = f"ulimit -v 30000000; exec {shlex.quote(sys.executable)} -m pyggml doctor --json"
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
        printed = json.loads(done.stdout)
        assert printed["memory"]["ulimit_v_bytes"] == 30_000_000 * 1024
        assert printed["memory"]["address_space_bytes"] < 30_000_000 * 1024


def test_the_verdict() -> None:
    def last(*statuses: Any) -> str:
        return verdict([Check("x", status, "y", "z")._asdict() for status in statuses])

    assert last("ok", "note") == "All is well."
    assert last("ok", "warning") == "Everything works; see the warnings."
    assert last("failed", "warning", "ok") == "1 of 3 checks failed."


def test_anonymous(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER"):
        monkeypatch.setenv(name, "bob")
    monkeypatch.setenv("HOME", "/home/bob")
    given = {"a": ["/home/bob/x", "/home/bobby/x", 3, None], "b": "see /srv/bob:/mnt/bob/y and bob"}
    assert anonymous(given) == {
        "a": ["~/x", "/home/bobby/x", 3, None],
        "b": "see /srv/<user>:/mnt/<user>/y and bob",
    }
