"""``pyggml doctor``: on this machine, on machines laid out in folders, and with engines that do not start."""

from __future__ import annotations

import copy
import json
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
from support.command import fails, pyggml
from support.machine_tree import MadeUp

import pyggml as library
from pyggml.cli.doctor import anonymize, machine, verdict
from pyggml.cli.doctor.checks import Check, checks
from pyggml.cli.doctor.probe import Probe, probe
from pyggml.gpus.diagnosis import Machine
from pyggml.gpus.hardware import find_gpus

NOWHERE = Machine(Path("/nowhere"), {})  # has no GPU

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
    """The report of this build's engine."""
    return probe()


def told(**changes: Any) -> dict[str, Any]:
    """The same report with some facts changed, as "topic__name", and a made-up processor."""
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


def judged(facts: dict[str, Any], here: Machine = NOWHERE) -> dict[str, Check]:
    """The checks, by name; the last of a name."""
    return {check.name: check for check in checks(facts, here, None)}


class TestHere:
    @pytest.mark.slow
    def test_all_is_well(self, tmp_path: Path) -> None:
        done = pyggml("doctor", env={"PYGGML_CACHE": str(tmp_path)})
        assert (done.code, done.err) == (0, "")
        assert re.search(rf"^  pyggml +{re.escape(library.__version__)}$", done.out, re.MULTILINE)
        assert "the shipped model answers 'The sky is blue.'" in done.out
        assert re.search(rf"^  PYGGML_CACHE +{re.escape(str(tmp_path))}$", done.out, re.MULTILINE)
        assert "\x1b" not in done.out
        assert done.out.splitlines()[-1] in ("All checks passed.", "All checks passed, with warnings.")

    @pytest.mark.slow
    def test_json(self, tmp_path: Path) -> None:
        done = pyggml("doctor", "--json", env={"PYGGML_CACHE": str(tmp_path), "HF_TOKEN": "hf_secret"})
        assert (done.code, done.err) == (0, "")
        printed = json.loads(done.out)
        jsonschema.validate(printed, OUTPUT)
        assert printed["ok"]
        assert printed["processor"]["n_usable"] == library.lib.pyg_cpu_count()
        assert [device["name"] for device in printed["devices"]] == [device.name for device in library.devices()]
        assert printed["environment"]["HF_TOKEN"] == "(set)"

    @pytest.mark.slow
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

    @pytest.mark.slow
    def test_a_cache_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        for place in (tmp_path / "file", "/proc/nowhere"):
            done = pyggml("doctor", env={"PYGGML_CACHE": str(place)})
            assert (done.code, done.err) == (1, "")
            assert f"{place} is not writable" in done.out
            assert "-> imports need a cache folder: set PYGGML_CACHE to a writable folder" in done.out
            assert done.out.splitlines()[-1].endswith("checks failed.")

    def test_bad_input(self) -> None:
        assert "--bogus" in fails(2, "doctor", "--bogus")
        assert "extra" in fails(2, "doctor", "me")

    def test_no_fake_gpu(self) -> None:
        """Each GPU found on this machine is on the bus, or provided by Windows."""
        for gpu in find_gpus():
            assert gpu.seen.startswith(("PCI ", "/dev/nvidia")) or gpu.seen in ("nvidia-smi", "the processor")


class TestEnginesThatFail:
    def failing(self, program: str, timeout_s: float = 60) -> Probe:
        return probe([sys.executable, "-c", program], timeout_s)

    def test_the_compiled_module_is_missing(self, made_up: MadeUp) -> None:
        program = "import sys; sys.modules['pyggml._pyggml'] = None; from pyggml.cli.doctor.probe import main; main()"
        result = self.failing(program)
        assert result.facts == {}
        assert result.failure is not None
        assert "compiled module could not be imported" in result.failure
        made_up.nvidia()
        (engine, gpu) = checks({"processor": {}}, made_up.machine, result.failure)
        assert (engine.name, engine.status) == ("engine", "failed")
        assert "pip install" in (engine.advice or "")
        assert "not checked because the engine failed" in gpu.text

    @pytest.mark.slow
    def test_a_user_without_a_home(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("HOME", "XDG_CACHE_HOME", "PYGGML_CACHE"):
            monkeypatch.delenv(name, raising=False)
        no_user = "import os; os.getuid = lambda: 2**31 - 9"  # a number that no user has
        result = self.failing(f"{no_user}; from pyggml.cli.doctor.probe import main; main()")
        assert result.failure is None
        (cache,) = [
            check
            for check in checks({**result.facts, "processor": machine.processor()}, NOWHERE, None)
            if check.name == "cache"
        ]
        assert (cache.status, "no home directory" in cache.text) == ("failed", True)
        assert "PYGGML_CACHE" in (cache.advice or "")

    @pytest.mark.slow
    def test_the_whole_report_of_one(self, tmp_path: Path) -> None:
        """Python runs this at every start, so neither the command nor its engine finds the compiled module."""
        (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['pyggml._pyggml'] = None\n")
        done = pyggml("doctor", env={"PYTHONPATH": str(tmp_path)})
        assert (done.code, done.err) == (1, "")
        assert "failed  engine: the engine failed at the start: pyggml's compiled module could not" in done.out
        assert "-> build pyggml here: pip install" in done.out
        assert done.out.splitlines()[-1].startswith("1 of ")
        printed = json.loads(pyggml("doctor", "--json", env={"PYTHONPATH": str(tmp_path)}).out)
        assert (printed["ok"], printed["build"], printed["devices"]) == (False, {}, [])
        assert printed["versions"]["numpy"]

    def test_an_instruction_that_the_processor_does_not_know(self) -> None:
        """Complete lines before the crash count; an incomplete one does not."""
        program = (
            "import os, signal\n"
            """print('{"cache": {"path": "x"}}\\n{"self_t', end="", flush=True)\n"""
            "os.kill(os.getpid(), signal.SIGILL)"
        )
        result = self.failing(program)
        assert result.facts == {"cache": {"path": "x"}}
        assert "SIGILL" in (result.failure or "")
        assert "instructions that this processor lacks" in (result.failure or "")

    def test_other_ends(self) -> None:
        assert self.failing("import os; os.abort()").failure == "crashed with SIGABRT: no error message"
        assert self.failing("raise SystemExit('no disk')").failure == "no disk"
        assert self.failing("raise SystemExit(3)").failure == "no error message"
        assert self.failing("pass").failure == "no error message"

    @pytest.mark.slow
    def test_no_end(self) -> None:
        result = self.failing("""print('{"build": 1}', flush=True); import time; time.sleep(60)""", timeout_s=5)
        assert result == Probe({"build": 1}, "timeout after 5 seconds")

    @pytest.mark.slow
    def test_a_wrong_answer(self) -> None:
        test = {"device": "CPU", "right": False, "answer": "The sky is green.", "error": None}
        found = judged(told(self_test=[test]))["self test on CPU"]
        assert found.status == "failed"
        assert "The sky is green." in found.text
        test |= {"answer": None, "error": "EngineError: broken"}
        found = judged(told(self_test=[test]))["self test on CPU"]
        assert (found.status, found.text) == ("failed", "EngineError: broken")


@pytest.fixture
def made_up(tmp_path: Path) -> MadeUp:
    return MadeUp(tmp_path)


CUDA0 = {
    "name": "CUDA0",
    "kind": "cuda",
    "description": "NVIDIA H200",
    "type": "gpu",
    "memory_total": 1,
    "memory_free": 1,
    "capability": "9.0",
}


class TestGpus:
    """Display of the findings that tests/devices/test_gpu_diagnosis.py tests."""

    def test_none(self) -> None:
        assert judged(told(build__backends=["CPU"], devices=[]))["GPU"].text == "this machine has none"
        check = judged(told(devices=[CUDA0]))["GPU"]
        assert (check.status, check.text) == ("ok", "the engine sees CUDA0 (NVIDIA H200)")

    def test_a_build_that_cannot_use_it(self, made_up: MadeUp) -> None:
        made_up.nvidia()
        check = judged(told(build__backends=["CPU"], devices=[]), made_up.machine)["GPU"]
        assert (check.status, "this build cannot use CUDA" in check.text) == ("warning", True)
        assert "-DGGML_CUDA=ON" in (check.advice or "")

    def test_a_module_that_does_not_load(self, made_up: MadeUp) -> None:
        made_up.nvidia()
        words = "libcublas.so.12: cannot open shared object file: No such file or directory"
        facts = told(build__backends=["CPU"], build__unloaded={"cuda": words}, devices=[])
        check = judged(facts, made_up.machine)["GPU"]
        assert (check.status, "libcublas.so.12" in check.text) == ("failed", True)
        assert (check.advice or "").startswith('pip install "pyggml[cuda12]"')

    def test_one_that_is_used(self, made_up: MadeUp) -> None:
        made_up.nvidia()
        check = judged(told(build__backends=["CPU", "CUDA"], devices=[CUDA0]), made_up.machine)["GPU"]
        assert (check.status, check.text) == ("ok", "the engine sees CUDA0 (NVIDIA H200)")


class TestProcessors:
    X86 = "sse4_1 pni ssse3 avx avx2 f16c fma bmi2"

    def features(self, made_up: MadeUp, line: str) -> list[str] | None:
        made_up.file("proc/cpuinfo", f"processor\t: 0\nmodel name\t: Made Up\n{line}\n\nprocessor\t: 1\n")
        found = machine.processor(made_up.root)
        assert found["model"] == "Made Up"
        features: list[str] | None = found["features"]
        return features

    def test_what_it_has(self, made_up: MadeUp) -> None:
        old = ["SSE3", "SSSE3", "AVX", "AVX2", "F16C", "FMA", "BMI2"]
        assert self.features(made_up, f"flags\t\t: {self.X86}") == old
        partly = f"flags\t\t: {self.X86} avx512f avx512cd"  # the engine wants five of them
        assert self.features(made_up, partly) == old
        new = f"flags\t\t: {self.X86} avx512f avx512cd avx512bw avx512dq avx512vl avx512_vnni amx_tile amx_int8"
        assert self.features(made_up, new) == [*old, "AVX512", "AVX512_VNNI", "AMX_INT8"]
        arm = ["NEON", "ARM_FMA", "DOTPROD", "MATMUL_INT8"]
        assert self.features(made_up, "Features\t: fp asimd asimddp i8mm") == arm

    def test_one_that_tells_nothing(self, made_up: MadeUp) -> None:
        assert self.features(made_up, "vendor\t: ?") is None
        check = judged(told(processor__features=None))["processor"]
        assert check.status == "ok"
        assert "the system hides" in check.text

    def test_all_of_it_is_used(self) -> None:
        assert judged(told())["processor"].status == "ok"

    def test_what_the_build_misses(self) -> None:
        features = [*told()["processor"]["features"], "SVE", "SME"]  # of another family, so that no build here has them
        options = {True: "another machine", False: "GGML_NATIVE=ON"}
        for is_native, advice in options.items():
            facts = told(
                processor__features=features,
                build__options=["GGML_NATIVE"] if is_native else [],
                build__portable=False,
            )
            check = judged(facts)["processor"]
            assert check.status == "warning"
            assert "SVE, SME" in check.text
            assert advice in (check.advice or "")
        check = judged(told(processor__features=features, build__portable=True))["processor"]
        assert "PYGGML_PORTABLE=OFF" in (check.advice or "")
        with_gpu = told(
            processor__features=features, build__portable=True, build__options=["GGML_CPU_ALL_VARIANTS", "GGML_CUDA"]
        )
        assert judged(with_gpu)["processor"].status == "note"  # such builds have no other layout

    def test_wider_registers_stand_for_narrower_ones(self) -> None:
        used = ["SSE3", "AVX512", "AVX512_VNNI"]
        check = judged(told(processor__features=[*used, "AVX_VNNI"], cpu__used=used))["processor"]
        assert check.status == "ok"

    def test_what_the_processor_misses(self) -> None:
        check = judged(told(processor__features=["SSE3"], cpu__used=["SSE3", "AVX2", "REPACK"]))["processor"]
        assert check.status == "failed"
        assert "the build uses AVX2, which this processor lacks" in check.text


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

    @pytest.mark.slow
    def test_ulimit_here(self) -> None:
        command = f"ulimit -v 30000000; exec {shlex.quote(sys.executable)} -m pyggml doctor --json"
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
        printed = json.loads(done.stdout)
        assert printed["memory"]["ulimit_v_bytes"] == 30_000_000 * 1024
        assert printed["memory"]["address_space_bytes"] < 30_000_000 * 1024


def test_the_verdict() -> None:
    def last(*statuses: Any) -> str:
        return verdict([Check("x", status, "y", "z")._asdict() for status in statuses])

    assert last("ok", "note") == "All checks passed."
    assert last("ok", "warning") == "All checks passed, with warnings."
    assert last("failed", "warning", "ok") == "1 of 3 checks failed."


@pytest.mark.slow
def test_anonymous(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER"):
        monkeypatch.setenv(name, "bob")
    monkeypatch.setenv("HOME", "/home/bob")
    given = {"a": ["/home/bob/x", "/home/bobby/x", 3, None], "b": "see /srv/bob:/mnt/bob/y and bob"}
    assert anonymize(given) == {
        "a": ["~/x", "/home/bobby/x", 3, None],
        "b": "see /srv/<user>:/mnt/<user>/y and bob",
    }
