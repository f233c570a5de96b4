"""Devices, and raw graphs computed on the CPU: results against numpy, and mistakes that must not end the process."""

from __future__ import annotations

import gc
import os
import re
import threading

import numpy as np
import pytest
from support.raw_graphs import Graph, add, graph_on, put, take

import pyggml
from pyggml import ffi, lib
from pyggml._core import c_calls
from pyggml._native.backend import Backend, Device, devices, find_device
from pyggml.errors import ClosedError, DeviceError, EngineError, InvalidParameterError


def test_the_cpu_is_a_device() -> None:
    cpus = [device for device in devices() if device.type == "cpu"]
    assert [cpu.name for cpu in cpus] == ["CPU"]
    assert cpus[0].description
    assert 2**28 < cpus[0].memory_total < 2**46
    assert 0 < cpus[0].memory_free <= cpus[0].memory_total
    with pytest.raises(AttributeError):
        cpus[0].name = "other"  # type: ignore[misc]
    assert isinstance(cpus[0], Device)


@pytest.mark.parametrize("n_threads", [None, 1, 2, 5])
def test_compute(n_threads: int | None) -> None:
    random = np.random.default_rng(0)
    a, b = random.standard_normal((2, 1000)).astype(np.float32)
    with Backend("CPU", n_threads) as backend:
        np.testing.assert_array_equal(add(backend, a, b), a + b)
        np.testing.assert_array_equal(add(backend, b, b), b + b)


def test_names_in_any_case() -> None:
    for name in ("CPU", "cpu", "Cpu"):
        with Backend(name) as backend:
            assert ffi.string(lib.ggml_backend_name(backend.handle)) == b"CPU"


def test_unknown_device() -> None:
    with pytest.raises(DeviceError, match=r'no device "CUDA99"; this build sees: .*CPU'):
        Backend("CUDA99")
    with pytest.raises(InvalidParameterError, match="device is empty"):
        Backend("")


@pytest.mark.parametrize(
    "name", ["cuda:77", "CUDA77", "rocm:77", "hip:77", "Vulkan77", "sycl:77", "metal:77", "mps:77"]
)
def test_the_error_says_how_to_get_a_device(name: str) -> None:
    """One text, wherever a device is asked for: of this build, or of the one that would have it."""
    advice = pyggml.device_advice(name)
    for ask in (Backend, lambda name: pyggml.load(device=name)):
        with pytest.raises(DeviceError, match=re.escape(f'no device "{name}"; this build sees: ')) as error:
            ask(name)
        assert str(error.value).endswith(advice)


@pytest.mark.parametrize("name", ["cpu", "CPU", "Cpu", "cpu:0", "CPU0"])
def test_spellings_of_a_name(name: str) -> None:
    assert find_device(name).name == "CPU"
    Backend(name).close()


def test_other_names_of_a_kind() -> None:
    """Metal is "MTL" to the engine and "mps" to PyTorch, HIP is "ROCm": the advice shows what was understood."""
    for name, other in (("MTL", "metal"), ("MTL", "mps"), ("metal:0", "MTL0"), ("rocm", "HIP"), ("rocm:1", "hip1")):
        assert pyggml.device_advice(name) == pyggml.device_advice(other) != pyggml.device_advice("nonsense")


def test_gpu_is_any_gpu() -> None:
    gpus = [device for kind in ("gpu", "igpu") for device in devices() if device.type == kind]
    for index, gpu in enumerate(gpus):
        assert find_device(f"gpu:{index}").name == gpu.name
    missing = "gpu" if not gpus else f"gpu:{len(gpus)}"
    for ask in (find_device, Backend, lambda name: pyggml.load(device=name)):
        with pytest.raises(DeviceError, match=f'no device "{missing}"; this build sees: .*CPU.*; '):
            ask(missing)


def test_devices_of_no_kind_that_is_known() -> None:
    for name in ("nonsense", ""):
        assert "pyggml doctor" in pyggml.device_advice(name)


def test_names_with_a_nul() -> None:
    with pytest.raises(InvalidParameterError, match="NUL"):
        Backend("CPU\0")


@pytest.mark.parametrize("n_threads", [0, -1, 513, 2**40])
def test_refused_thread_counts(n_threads: int) -> None:
    with pytest.raises(InvalidParameterError, match="n_threads"):
        Backend(n_threads=n_threads)


def test_close() -> None:
    backend = Backend()
    graph = Graph(backend)
    x = graph.input(4)
    cgraph = graph.of(lib.ggml_sqr(graph.ctx, x))
    backend.close()
    backend.close()
    with pytest.raises(ClosedError):
        backend.compute(cgraph)
    with pytest.raises(ClosedError):
        _ = backend.handle
    put(x, np.zeros(4, np.float32))  # the buffer lives on
    graph.free()


def test_a_dropped_backend_is_freed() -> None:
    gc.collect()
    before = lib.pyg_live_handles(lib.PYG_HANDLE_BACKEND)
    backend = Backend()
    assert lib.pyg_live_handles(lib.PYG_HANDLE_BACKEND) == before + 1
    del backend
    gc.collect()
    assert lib.pyg_live_handles(lib.PYG_HANDLE_BACKEND) == before


def test_things_that_are_no_graph() -> None:
    with Backend() as backend:
        for wrong in (None, 5, ffi.new("int *"), backend.handle):
            with pytest.raises(InvalidParameterError, match="ggml_cgraph"):
                backend.compute(wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidParameterError, match="NULL"):
            backend.compute(ffi.cast("struct ggml_cgraph *", 0))


def test_tensors_without_memory() -> None:
    with Backend() as backend, graph_on(None) as graph:
        x = graph.input(4)
        lib.ggml_set_name(x, b"homeless")
        with pytest.raises(InvalidParameterError, match=r'"homeless .* has no memory'):
            backend.compute(graph.of(lib.ggml_view_1d(graph.ctx, x, 2, 0)))
        with pytest.raises(InvalidParameterError, match="has no memory"):
            backend.compute(graph.of(lib.ggml_sqr(graph.ctx, x)))


def test_tensors_in_the_contexts_own_memory() -> None:
    """Memory of a ggml context is the CPU's to reach, without any buffer."""
    params = {"mem_size": 1 << 20, "mem_buffer": ffi.NULL, "no_alloc": False}
    ctx = lib.ggml_init(ffi.new("struct ggml_init_params *", params)[0])
    x = lib.ggml_new_tensor_1d(ctx, lib.GGML_TYPE_F32, 3)
    y = lib.ggml_sqr(ctx, x)
    floats = ffi.cast("float *", x.data)
    floats[0], floats[1], floats[2] = 1, 2, 3
    cgraph = lib.ggml_new_graph(ctx)
    lib.ggml_build_forward_expand(cgraph, y)
    with Backend() as backend:
        backend.compute(cgraph)
    assert list(ffi.cast("float *", y.data)[0:3]) == [1, 4, 9]
    lib.ggml_free(ctx)


def test_operations_the_device_cannot_do() -> None:
    with Backend() as backend, graph_on(backend) as graph:
        x = graph.input(256)
        packed = graph.input(256, type=lib.GGML_TYPE_IQ2_XXS)
        cgraph = graph.of(lib.ggml_cpy(graph.ctx, x, packed))
        with pytest.raises(InvalidParameterError, match=r"CPU cannot compute CPY .* of type iq2_xxs"):
            backend.compute(cgraph)


def test_a_failed_check_inside_the_engine_poisons_the_backend() -> None:
    """Rows that do not exist are an assert in the middle of a computation."""
    backend = Backend(n_threads=1)
    with graph_on(backend) as graph:
        table, rows = graph.input(4, 3), graph.input(1, type=lib.GGML_TYPE_I32)
        cgraph = graph.of(lib.ggml_get_rows(graph.ctx, table, rows))
        put(table, np.zeros((3, 4), np.float32))
        put(rows, np.array([1000], np.int32))
        with pytest.raises(EngineError, match=r"a check inside the engine failed: .*GGML_ASSERT"):
            backend.compute(cgraph)
        with pytest.raises(EngineError, match="can no longer be used"):
            backend.compute(cgraph)
    backend.close()
    with Backend(n_threads=1) as other:
        assert add(other, np.ones(2, np.float32), np.ones(2, np.float32)).tolist() == [2, 2]


def test_one_backend_for_many_threads() -> None:
    with Backend(n_threads=2) as backend:
        results: dict[int, bool] = {}

        def work(i: int) -> None:
            a = np.full(5000, i, np.float32)
            results[i] = all(np.array_equal(add(backend, a, a), a + a) for _ in range(20))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == dict.fromkeys(range(6), True)


@pytest.mark.parametrize("_", range(5))
def test_close_waits_for_a_computation(_: int) -> None:
    a = np.ones(100_000, np.float32)
    outcomes: list[bool | None] = []
    backend = Backend(n_threads=1)
    with graph_on(backend) as graph:  # made before: what is raw may not use a backend that is being closed
        x = graph.input(len(a))
        y = lib.ggml_add(graph.ctx, x, x)
        cgraph = graph.of(y)
        put(x, a)

        def work() -> None:
            try:
                while True:
                    backend.compute(cgraph)
                    outcomes.append(bool((take(y, a.shape) == 2).all()))
            except ClosedError:
                outcomes.append(None)

        thread = threading.Thread(target=work)
        thread.start()
        while not outcomes:
            thread.join(0.001)
        backend.close()
        thread.join()
    assert outcomes[-1] is None
    assert all(outcomes[:-1])


def test_a_forked_child_cannot_use_it() -> None:
    with Backend(n_threads=1) as backend:
        child = os.fork()
        if child == 0:
            try:
                _ = backend.handle
            except EngineError as error:
                os._exit(7 if "fork" in str(error) else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert add(backend, np.ones(2, np.float32), np.ones(2, np.float32)).tolist() == [2, 2]


@pytest.mark.slow
def test_the_native_side_checks_for_itself() -> None:
    device = ffi.new("pyg_device *")
    for index in (-1, len(devices()), 1000):
        with pytest.raises(InvalidParameterError, match=f"no device {index}"):
            c_calls.call(lib.pyg_device_get, index, device)
    out = ffi.new("pyg_backend **")
    with pytest.raises(InvalidParameterError, match="n_threads is -1"):
        c_calls.call(lib.pyg_backend_new, b"CPU", -1, out)
    with pytest.raises(DeviceError):
        c_calls.call(lib.pyg_backend_new, ffi.NULL, 1, out)
    assert out[0] == ffi.NULL
    with pytest.raises(ClosedError):
        c_calls.call(lib.pyg_backend_compute, ffi.NULL, ffi.NULL)
    lib.pyg_backend_free(ffi.NULL)
