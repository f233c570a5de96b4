"""Limits of this machine. csrc/tests/boundary/test_machine_limits.cpp tests simulated control groups."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pyggml import ffi, lib, system
from pyggml._native.backend import devices


def run(script: str) -> int:
    """Run a script in a separate process; return the number that it prints."""
    command = [sys.executable, "-c", textwrap.dedent(script)]
    return int(subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout)


def memory_line(name: str) -> int:
    """Bytes in a line of /proc/meminfo."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))


needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, sets limits and affinity")


def test_memory_is_what_the_cpu_has_free() -> None:
    cpu = next(device for device in devices() if device.type == "cpu")
    assert 0 < lib.pyg_memory_available() < cpu.memory_total
    assert abs(cpu.memory_free - lib.pyg_memory_available()) < 2**30  # moments apart


@needs_linux
def test_memory_is_at_most_what_the_machine_has() -> None:
    assert lib.pyg_memory_available() <= memory_line("MemTotal")
    assert lib.pyg_memory_available() <= memory_line("MemAvailable") + 2**30


@pytest.mark.slow
@needs_linux
def test_memory_under_ulimit() -> None:
    script = """
        import resource
        from pyggml import ffi, lib
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (300 << 20), resource.RLIM_INFINITY))
        print(lib.pyg_memory_available())
    """
    assert 250 << 20 < run(script) <= 300 << 20


def test_cores_are_some_of_the_processors() -> None:
    assert 1 <= lib.pyg_cpu_count() <= (os.cpu_count() or 1)


@pytest.mark.slow
@needs_linux
def test_cores_under_affinity() -> None:
    script = """
        import os
        from pyggml import ffi, lib
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        print(lib.pyg_cpu_count())
    """
    assert run(script) == 1


@pytest.mark.slow
@needs_linux
def test_affinity_is_the_processes_and_not_the_threads() -> None:
    script = """
        import os, threading
        from pyggml import ffi, lib
        before = lib.pyg_cpu_count()
        counts = []

        def bound():
            os.sched_setaffinity(threading.get_native_id(), {min(os.sched_getaffinity(0))})
            counts.append(lib.pyg_cpu_count())

        thread = threading.Thread(target=bound)
        thread.start()
        thread.join()
        print(counts[0] - before)
    """
    assert run(script) == 0


def test_the_limits_one_by_one() -> None:
    memory, cpu = ffi.new("pyg_memory_limits *"), ffi.new("pyg_cpu_limits *")
    lib.pyg_memory_get_limits(memory)
    lib.pyg_cpu_get_limits(cpu)
    least = min(memory.machine, memory.groups, memory.address_space)
    assert abs(least - lib.pyg_memory_available()) < 2**30  # moments apart
    assert min(cpu.n_cores, cpu.n_quota) == lib.pyg_cpu_count() or cpu.n_quota == 0
    assert cpu.n_processors >= cpu.n_cores or cpu.n_processors == 0


def test_what_the_system_module_says() -> None:
    cpu, memory, build = system.cpu_limits(), system.memory_limits(), system.build_info()
    assert (cpu.n_usable, cpu.n_quota is None or cpu.n_quota < 2**31 - 1) == (lib.pyg_cpu_count(), True)
    limits = [memory.machine_bytes, memory.cgroup_bytes, memory.address_space_bytes]
    least = min(limit for limit in limits if limit is not None)
    assert abs(memory.usable_bytes - least) < 2**30  # moments apart
    assert "CPU" in build.backends
    assert "GGML_CPU" in build.options
    assert build.engine.startswith("llama.cpp b")
    assert list(build.module.glob("_pyggml.*"))
    assert all(name and "=" not in name for name in system.cpu_features())


@pytest.mark.slow
def test_how_the_module_was_built() -> None:
    info = dict(line.split("=", 1) for line in ffi.string(lib.pyg_build_info()).decode().splitlines())
    assert {"compiler", "build_type", "system", "portable"} <= info.keys()
    assert info["GGML_CPU"] == "ON"
    # Options of a backend that is off mean nothing.
    assert ("GGML_CUDA_GRAPHS" in info) <= ("GGML_CUDA" in info)
