"""Placement of models: the forms of the options, contradictions, and the devices that "auto" takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import pyggml
from pyggml._core.device_names import KINDS, DeviceName, parse_device_name, split_device_names
from pyggml._native import placement as placement_module
from pyggml._native.backend import Device
from pyggml._native.placement import ALL, Placement, resolve_placement
from pyggml.options import LoadOptions, PlacementOptions, fields_of

CPU = Device("CPU", "cpu", "a CPU", "cpu", 16, 8)
BLAS = Device("BLAS", "blas", "a library", "accel", 0, 0)
CUDA = [Device(f"CUDA{index}", "cuda", "a GPU", "gpu", 100, 80 - 20 * index, f"bus-{index}") for index in range(3)]
VULKAN = Device("Vulkan0", "vulkan", "the same GPU", "gpu", 100, 80, "bus-0")
IGPU = Device("Vulkan1", "vulkan", "in the processor", "igpu", 16, 8, "bus-9")
RPC = [Device(f"RPC{index}", "rpc", "127.0.0.1:1", "gpu", 50, 40) for index in range(4)]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> list[Device]:
    """The devices that the engine is taken to see; a test may change the list."""
    seen = [*CUDA, VULKAN, IGPU, BLAS, CPU]
    monkeypatch.setattr(placement_module, "devices", lambda: seen)
    return seen


def place(hosts: Sequence[Device] = (), **options: Any) -> Placement:
    return resolve_placement(PlacementOptions(**options), hosts)


# --- forms ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cuda", "CUDA", "cuda:0", "Cuda0", "CUDA:0"])
def test_one_name_has_many_spellings(name: str) -> None:
    assert parse_device_name(name) == DeviceName("cuda", 0)


def test_kinds_go_by_the_engines_names_and_by_others() -> None:
    for kind in KINDS:
        for name in (kind.name, kind.engine_name, *kind.other_names):
            assert parse_device_name(f"{name}:2") == parse_device_name(f"{name.upper()}2") == DeviceName(kind.name, 2)
    assert parse_device_name("SomethingNew3") == DeviceName("somethingnew", 3)


@pytest.mark.parametrize("device", ["cuda:0,CUDA1", "cuda:0, CUDA1", "cuda:0/CUDA1", ["cuda:0", "CUDA1"]])
def test_several_names(device: Any) -> None:
    assert split_device_names(device) == ("cuda:0", "CUDA1")
    assert PlacementOptions(device=device).device == "cuda:0,CUDA1"


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("", 'device is empty: "auto" lets pyggml choose'),
        ("cuda:0,", "device is empty"),
        ([], "device is an empty list"),
        (["cuda", ""], "device is empty"),
        ("cpu,cuda", "names 'cpu' and others.*n_cpu_moe"),
        (["cuda", "auto"], "names 'auto' and others"),
        (0, 'a name such as "cuda:1", or a list of names, not 0'),
        (b"cuda", "not b'cuda'"),
        ({"": 0}, "not {'': 0}"),  # as transformers' device_map
        (["cuda", 1], "device must be text, not int"),
        ("cuda\0", "NUL"),
    ],
)
def test_no_device(device: Any, said: str) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match=said):
        PlacementOptions(device=device)


@pytest.mark.parametrize("split", ["3,1", "3/1", "3;1", "3, 1", [3, 1], (3.0, 1)])
def test_forms_of_a_split(split: Any) -> None:
    assert PlacementOptions(tensor_split=split).tensor_split == (3.0, 1.0)


@pytest.mark.parametrize(
    ("split", "said"),
    [
        ("3,x", r"tensor_split\[1\] must be a number, not 'x'"),
        ([1, -1], r"tensor_split\[1\] must be a finite number of at least 0"),
        ([float("nan")], r"tensor_split\[0\] must be a finite number"),
        ([0, 0], "needs at least one number above 0"),
        ([], "needs at least one number above 0"),
        (3, "a number for each device, such as"),
        ({"cuda:0": 1}, "a number for each device"),
    ],
)
def test_no_split(split: Any, said: str) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match=said):
        PlacementOptions(tensor_split=split)


@pytest.mark.parametrize(
    "overrides", ["exps=cpu,attn=cuda:1", ["exps=cpu", "attn=cuda:1"], {"exps": "cpu", "attn": "cuda:1"}]
)
def test_forms_of_overrides(overrides: Any) -> None:
    assert [*PlacementOptions(override_tensor=overrides).override_tensor.items()] == [  # type: ignore[union-attr]
        ("exps", "cpu"),
        ("attn", "cuda:1"),
    ]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ("exps", "takes pairs such as \"ffn_.\\*_exps=cpu\", not 'exps'"),
        (["=cpu"], "one device for each pattern"),
        ({"exps": "cuda:0,cuda:1"}, "one device for each pattern"),
        ({"exps": ""}, "device is empty"),
        ({"a" * 2000: "cpu"}, "longer than 1024 bytes"),
        ({"a\0": "cpu"}, "NUL"),
        ([7], "takes pairs"),
    ],
)
def test_no_overrides(overrides: Any, said: str) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match=said):
        PlacementOptions(override_tensor=overrides)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"split_mode": "rows"}, "split_mode must be one of 'layer', 'row', 'tensor', 'none'"),
        ({"main_gpu": -1}, "main_gpu must be between 0 and 15"),
        ({"main_gpu": 1}, 'only with split_mode="none"; device="cuda:1" alone names one GPU'),
        ({"split_mode": "none", "tensor_split": [1, 1]}, "leave out tensor_split"),
        ({"n_cpu_moe": -1}, "n_cpu_moe must be between 0"),
        ({"n_cpu_moe": "some"}, "n_cpu_moe must be an integer"),
        ({"n_gpu_layers": "many"}, "n_gpu_layers must be an integer, not 'many'; 'auto' and 'all' work too"),
    ],
)
def test_options_that_are_refused_anywhere(options: dict[str, Any], said: str) -> None:
    for cls in (PlacementOptions, LoadOptions):
        with pytest.raises(pyggml.InvalidParameterError, match=said):
            cls(**options)


# --- which devices -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("device", "names"),
    [
        ("cpu", ()),
        ("cuda", ("CUDA0",)),
        ("cuda:2", ("CUDA2",)),
        ("cuda:2,cuda:0", ("CUDA2", "CUDA0")),
        ("gpu", ("CUDA0",)),
        ("gpu:3", ("Vulkan0",)),
        ("gpu:4", ("Vulkan1",)),  # those that share the main memory come last
        ("vulkan:1,CUDA1", ("Vulkan1", "CUDA1")),
        ("auto", ("CUDA0", "CUDA1", "CUDA2")),  # Vulkan0 is the first of them again
    ],
)
def test_names_of_devices(device: str, names: tuple[str, ...]) -> None:
    assert place(device=device).devices == names


def test_auto_takes_what_there_is(machine: list[Device]) -> None:
    machine[:] = [IGPU, CPU]
    assert place().devices == ("Vulkan1",)
    machine[:] = [CPU]
    assert place() == Placement(split_mode="none")


@pytest.mark.usefixtures("machine")
def test_devices_of_hosts_belong_to_the_load_that_named_them() -> None:
    hosts = RPC[2:]
    assert place(hosts).devices == ("RPC2", "RPC3", "CUDA0", "CUDA1", "CUDA2")
    assert place(hosts, device="rpc:1").devices == ("RPC3",)
    assert place(hosts, device="cuda,rpc").devices == ("CUDA0", "RPC2")
    assert place(hosts, device="RPC3").devices == ("RPC3",)
    with pytest.raises(pyggml.DeviceError, match='no device "rpc:2"'):
        place(hosts, device="rpc:2")
    with pytest.raises(pyggml.DeviceError, match='no device "rpc"'):
        place(device="rpc")
    for device in ("cpu", "cuda:1"):
        with pytest.raises(pyggml.InvalidParameterError, match='add "rpc:0" to it'):
            place(hosts, device=device)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device": "blas"}, "'blas' assists the CPU"),
        ({"device": "cuda,CUDA0"}, "device names CUDA0 twice"),
        (
            {"tensor_split": [1, 1]},
            "has 2 numbers, but the model's devices are CUDA0, CUDA1, CUDA2: give one number for each",
        ),
        ({"device": "cuda:0,cuda:1", "tensor_split": [3, 1, 1]}, "has 3 numbers, but .* CUDA0, CUDA1"),
        ({"device": "cuda", "tensor_split": [3, 1]}, "has 2 numbers, but the model's devices are CUDA0"),
        ({"device": "cpu", "tensor_split": [1]}, "tensor_split needs GPUs"),
        ({"device": "cpu", "split_mode": "none", "main_gpu": 0}, "main_gpu needs GPUs"),
        ({"split_mode": "none", "main_gpu": 3}, r"main_gpu=3 must be from 0 to 2 \(CUDA0, CUDA1, CUDA2\)"),
        ({"device": "cuda", "override_tensor": {"exps": "cuda:1"}}, "CUDA1, which is not among .*name it in device"),
        ({"device": "cpu", "override_tensor": {"exps": "cuda"}}, r"\(the CPU alone\)"),
    ],
)
def test_options_that_the_devices_contradict(options: dict[str, Any], said: str) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match=said):
        place(**options)


def test_a_model_goes_to_a_limited_number_of_devices(machine: list[Device]) -> None:
    """The engine's arrays have no room for more."""
    machine[:0] = [dataclasses.replace(CUDA[0], name=f"CUDA{index}", device_id=f"{index}") for index in range(3, 17)]
    with pytest.raises(pyggml.InvalidParameterError, match="17 devices; a model can use at most 16: name fewer"):
        place()
    assert len(place(device=[f"CUDA{index}" for index in range(16)]).devices) == 16
    with pytest.raises(pyggml.InvalidParameterError, match="2 numbers for 1 devices"):
        Placement(devices=("CUDA0",), tensor_split=(1, 1))


def test_the_engine_has_that_limit_too(tiny_path: Path) -> None:
    placement = Placement()
    object.__setattr__(placement, "devices", ("CPU",) * 17)
    with pytest.raises(pyggml.InvalidParameterError, match="0 to 16 devices, not to 17"):
        pyggml.Model(tiny_path, placement=placement)


@pytest.mark.usefixtures("machine")
def test_a_device_that_is_not_there() -> None:
    for options in ({"device": "cuda:3"}, {"override_tensor": {"exps": "cuda:3"}}, {"device": "rocm"}):
        with pytest.raises(pyggml.DeviceError, match=r"no device .*this build sees: CUDA0, CUDA1, CUDA2, Vulkan0"):
            place(**options)


def test_the_cpu_alone_asks_for_no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The question would load the GPUs' libraries."""
    monkeypatch.setattr(placement_module, "devices", lambda: pytest.fail("devices were asked for"))
    assert place(device="cpu", n_cpu_moe=3) == Placement(split_mode="none", n_cpu_moe=3)


# --- what each takes -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("machine")
def test_shares_of_the_devices() -> None:
    assert place(device="cuda:0,cuda:1", tensor_split="3,1").tensor_split == (3, 1)
    assert place(device="cuda:0,cuda:1").tensor_split == (80, 60)  # their free memory
    assert place(device="cuda:1").tensor_split == ()
    assert place(split_mode="tensor").tensor_split == ()
    chosen = place(split_mode="none", main_gpu=1)
    assert (chosen.devices, chosen.tensor_split) == (("CUDA1",), ())


def test_devices_without_free_memory_share_alike(machine: list[Device]) -> None:
    machine[:] = [*(dataclasses.replace(gpu, memory_free=0) for gpu in CUDA), CPU]
    assert place().tensor_split == (1, 1, 1)


@pytest.mark.usefixtures("machine")
def test_numbers_of_layers() -> None:
    assert (place().n_gpu_layers, place().n_cpu_moe) == (ALL, 0)
    assert place(n_gpu_layers="auto").n_gpu_layers == ALL  # the plan of the memory decides
    assert place(n_gpu_layers=7, n_cpu_moe=2) == dataclasses.replace(place(), n_gpu_layers=7, n_cpu_moe=2)
    assert place(n_cpu_moe="all").n_cpu_moe == ALL
    assert place(n_gpu_layers="all") == place(n_gpu_layers=-1) == place()


def test_layers_are_not_put_on_a_gpu_that_is_not_there(machine: list[Device], caplog: pytest.LogCaptureFixture) -> None:
    for n_gpu_layers in (1, 99):
        with pytest.raises(pyggml.InvalidParameterError, match=f'{n_gpu_layers} has no effect with device="cpu"'):
            place(device="cpu", n_gpu_layers=n_gpu_layers)
    machine[:] = [CPU]
    with caplog.at_level("WARNING", "pyggml"):
        assert place(n_gpu_layers=99).devices == ()
    assert any("n_gpu_layers=99 has no effect, because" in message for message in caplog.messages)
    for wanted in (None, 0, -1, "all", "auto"):
        assert place(n_gpu_layers=wanted).devices == ()


@pytest.mark.usefixtures("machine")
def test_overrides_name_devices_as_the_engine_does() -> None:
    options: dict[str, Any] = {"device": "cuda:1", "override_tensor": "exps=Cpu,attn=cuda:1"}
    assert place(**options).overrides == (("exps", "CPU"), ("attn", "CUDA1"))


# --- the engine ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("use", [pyggml.load, pyggml.memory.estimate.estimate])
@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"ffn_up": "cpu", "ffn_nothing": "cpu"}, 'no tensor of the model matches "ffn_nothing"'),
        ({"(": "cpu"}, r'"\(" is not a regular expression'),
    ],
)
def test_patterns_are_checked_against_the_model(tiny_path: Path, use: Any, overrides: Any, said: str) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match=said):
        use(tiny_path, device="cpu", override_tensor=overrides)


def test_the_engine_refuses_names_it_does_not_know(tiny_path: Path) -> None:
    with pytest.raises(pyggml.DeviceError, match='no device "CUDA99"'):
        pyggml.Model(tiny_path, placement=Placement(devices=("CUDA99",)))


def test_a_model_knows_its_place(tiny_path: Path) -> None:
    with pyggml.load(tiny_path, device="cpu", override_tensor="ffn_up=cpu") as llm:
        assert llm.model.placement == Placement(split_mode="none", overrides=(("ffn_up", "CPU"),))
        assert [share.name for share in llm.memory] == ["CPU"]


@pytest.mark.slow_except("device", "n_gpu_layers", "split_mode", "tensor_split", "main_gpu", "n_cpu_moe")
@pytest.mark.parametrize("name", fields_of(PlacementOptions))
def test_an_open_model_stays_where_it_is(tiny_path: Path, name: str) -> None:
    values = {"device": "cpu", "split_mode": "none", "tensor_split": [1], "override_tensor": "ffn=cpu", "main_gpu": 0}
    options: dict[str, Any] = {name: values.get(name, 1)} | ({"split_mode": "none"} if name == "main_gpu" else {})
    with pyggml.Model(tiny_path) as model, pytest.raises(pyggml.InvalidParameterError, match="no effect on an open"):
        pyggml.load(model, **options)
