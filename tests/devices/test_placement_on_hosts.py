"""Models over several devices: two hosts on the loopback, which need no GPU, each lend one.

What is where comes from the engine's own buffers, and greedy answers must be the CPU's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import family_models, models
from support.servers.remote_servers import KEY, server

import pyggml
from pyggml._native.backend import Device
from pyggml._native.context import Context
from pyggml._native.placement import ALL, resolve_placement
from pyggml.files.model_files import gguf_at
from pyggml.memory.estimate import require_memory, resolve
from pyggml.memory.planner import Planner, memory_used_by
from pyggml.memory.search import DeviceMemory
from pyggml.options import MemoryOptions, PlacementOptions
from pyggml.remote import ExportedDevices, connect

N_LAYERS = 8
SIZE = family_models.Size(n_layer=N_LAYERS, n_embd=256, n_ff=512)
EXPERTS = SIZE.n_expert * 3 * 4 * SIZE.n_embd * SIZE.n_ff  # bytes, of one layer
BESIDE_EXPERTS = 1  # what else of the mixture is on the devices takes as much as the experts of one layer, and a bit
PROMPT = "a story about "
SMALL: dict[str, Any] = {"n_ctx": 512, "n_parallel": 1, "n_threads": 1, "prefix_cache": False}


@pytest.fixture(scope="module")
def devices() -> Iterator[Sequence[Device]]:
    """The devices of two hosts."""
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(server()) for _ in range(2)]
        hosts = [stack.enter_context(connect(each.address, KEY)) for each in running]
        yield [device for host in hosts for device in host.devices]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two models of eight layers, one of them a mixture of experts."""
    folder = tmp_path_factory.mktemp("models")
    vocabulary = family_models.small_vocabulary("<end>")
    return {
        layout: family_models.write(
            folder / f"{layout}.gguf", "llama", vocabulary, layout=layout, own_output=True, size=SIZE
        )
        for layout in ("llama", "mixtral")
    }


@pytest.fixture(scope="module")
def on_cpu(paths: dict[str, Path]) -> dict[str, tuple[int, ...]]:
    """The CPU's answers."""
    return {name: answer(pyggml.load(path, device="cpu", **SMALL)) for name, path in paths.items()}


def answer(llm: pyggml.LLM) -> tuple[int, ...]:
    with llm:
        return tuple(llm.generate(PROMPT, max_tokens=12, temperature=0, ignore_eos=True).token_ids)


@contextlib.contextmanager
def loaded(path: Path, devices: Sequence[Device], **options: Any) -> Iterator[pyggml.LLM]:
    placement = resolve_placement(PlacementOptions(**options), devices)
    # Mapped, main memory would count whatever of the file lies between the weights that stay there.
    with pyggml.Model(path, placement=placement, use_mmap=False) as model, pyggml.load(model, **SMALL) as llm:
        assert llm.model.placement == placement
        yield llm


def cached(memory: Sequence[DeviceMemory]) -> list[int]:
    """Count the layers whose cache is in main memory and on each device."""
    one = sum(share.cache_bytes for share in memory) / N_LAYERS
    return [round(share.cache_bytes / one) for share in memory]


# --- what is where -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "used", "expected"),
    [
        ({}, (0, 1), [0, 5, 3]),  # halves of nine: the layers and the output
        ({"tensor_split": "3,1"}, (0, 1), [0, 7, 1]),
        ({"tensor_split": [0, 1]}, (0, 1), [0, 0, 8]),
        ({"device": "rpc:1,rpc:0", "tensor_split": [3, 1]}, (1, 0), [0, 7, 1]),
        ({"split_mode": "none"}, (0,), [0, 8]),
        ({"split_mode": "none", "main_gpu": 1}, (1,), [0, 8]),
        ({"device": "rpc:1"}, (1,), [0, 8]),
        ({"n_gpu_layers": 3, "tensor_split": [1, 2]}, (0, 1), [6, 1, 1]),  # the last two layers, and the output
        ({"n_gpu_layers": 0}, (0, 1), [8, 0, 0]),
    ],
)
def test_layers_and_their_cache_are_divided(
    options: dict[str, Any],
    used: Sequence[int],
    expected: list[int],
    devices: Sequence[Device],
    paths: dict[str, Path],
    on_cpu: dict[str, tuple[int, ...]],
) -> None:
    with loaded(paths["llama"], devices, **options) as llm:
        assert [share.name for share in llm.memory] == ["CPU", *(devices[index].name for index in used)]
        assert cached(llm.memory) == expected
        assert [share.weights_bytes > 0 for share in llm.memory[1:]] == [count > 0 for count in expected[1:]]
        assert answer(llm) == on_cpu["llama"]


def test_weights_follow_the_split(devices: Sequence[Device], paths: dict[str, Path]) -> None:
    """All layers are equally large, so the weights are divided as the layers are."""
    with loaded(paths["llama"], devices, tensor_split=[1, 3], n_gpu_layers=8) as llm:
        first, second = (share.weights_bytes for share in llm.memory[1:])
    assert first / (first + second) == pytest.approx(2 / 8, abs=0.05)


def test_overrides_move_single_tensors(
    devices: Sequence[Device], paths: dict[str, Path], on_cpu: dict[str, tuple[int, ...]]
) -> None:
    with loaded(paths["llama"], devices, device="rpc:0") as llm:
        before = [share.weights_bytes for share in llm.memory]
    n_ffn = EXPERTS // SIZE.n_expert
    overrides = {r"blk\.[0-3]\.ffn": "cpu", r"blk\.0": "rpc"}
    with loaded(paths["llama"], devices, device="rpc:0", override_tensor=overrides) as llm:
        main, remote = (share.weights_bytes for share in llm.memory)
        assert before[1] - remote == pytest.approx(4 * n_ffn, rel=0.01)
        assert main - before[0] == pytest.approx(4 * n_ffn, rel=0.01)
        assert answer(llm) == on_cpu["llama"]
    with loaded(paths["llama"], devices, tensor_split=[1, 0], override_tensor=r"blk\.2\.ffn=rpc:1") as llm:
        assert llm.memory[2].weights_bytes == pytest.approx(n_ffn, rel=0.01)
        assert answer(llm) == on_cpu["llama"]


@pytest.mark.slow_except("0-8", "3-5")
@pytest.mark.parametrize(("n_cpu_moe", "n_kept"), [(0, 8), (3, 5), (100, 0), ("all", 0)])
def test_experts_stay_in_main_memory(
    n_cpu_moe: Any,
    n_kept: int,
    devices: Sequence[Device],
    paths: dict[str, Path],
    on_cpu: dict[str, tuple[int, ...]],
) -> None:
    with loaded(paths["mixtral"], devices, n_cpu_moe=n_cpu_moe) as llm:
        assert sum(share.weights_bytes for share in llm.memory[1:]) // EXPERTS == n_kept + BESIDE_EXPERTS
        assert cached(llm.memory)[0] == 0
        assert answer(llm) == on_cpu["mixtral"]


def test_everything_of_a_model_is_where_the_model_is(devices: Sequence[Device], paths: dict[str, Path]) -> None:
    """Seeds of other libraries lost the device on the way to one of these."""
    with loaded(paths["llama"], devices, tensor_split=[1, 1]) as llm:
        places = {"the engine": llm.memory}
        with Context(llm.model, n_ctx=512) as context:
            places["a context"] = memory_used_by(context)
        vectors = llm.embed(["one", "two"])
        with llm._embedder.queue._encoders["tokens"]._context as context:  # type: ignore[attr-defined]
            places["embeddings"] = memory_used_by(context)
        for what, memory in places.items():
            assert cached(memory) == [0, 5, 3], what
            assert all(share.compute_bytes > 0 for share in memory), what
        with pyggml.load(paths["llama"], device="cpu", **SMALL) as reference:
            assert vectors == pytest.approx(reference.embed(["one", "two"]), abs=1e-4)
            assert llm.tokenize(PROMPT) == reference.tokenize(PROMPT)


@pytest.mark.slow
def test_a_state_goes_on_elsewhere(devices: Sequence[Device], paths: dict[str, Path]) -> None:
    """It is the same bytes, whichever devices its cache is on."""
    ids = [3, 1, 4, 1, 5, 9, 2, 6]
    rows = []
    with pyggml.Model(paths["llama"], device="cpu") as reference, loaded(paths["llama"], devices) as llm:
        for first, second in ((reference, llm.model), (llm.model, reference)):
            with Context(first, n_ctx=512) as one, Context(second, n_ctx=512) as other:
                one.decode(ids[:-1])
                other.state_restore(one.state_save())
                other.decode(ids[-1:])
                rows.append(other.logits())
    assert rows[0] == pytest.approx(rows[1], abs=1e-3)


# --- the plan ------------------------------------------------------------------------------------------------------


@pytest.mark.slow_except("{}", "{'tensor_split': [3, 1]}", "{'n_gpu_layers': 4}", "{'n_cpu_moe': 2}")
@pytest.mark.parametrize(
    "options", [{}, {"tensor_split": [3, 1]}, {"n_gpu_layers": 4}, {"n_cpu_moe": 2}, {"split_mode": "none"}], ids=str
)
def test_the_plan_is_what_the_model_takes(
    options: dict[str, Any], devices: Sequence[Device], paths: dict[str, Path]
) -> None:
    path = paths["mixtral"]
    wanted = MemoryOptions(**options, n_ctx=512, n_parallel=1)
    with Planner(gguf_at(path), resolve_placement(wanted, devices)) as planner:
        planned = planner.memory_of(resolve(planner, wanted))
    with loaded(path, devices, **options) as llm:
        for plan, taken in zip(planned, llm.memory, strict=True):
            assert plan.name == taken.name
            assert plan.weights_bytes == taken.weights_bytes
            if plan.name != "CPU":  # where the plan adds what is not in the engine's buffers
                assert plan.cache_bytes == taken.cache_bytes
                assert plan.compute_bytes == pytest.approx(taken.compute_bytes, abs=4 << 20)


def test_a_later_plan_divides_as_the_model_was(devices: Sequence[Device], paths: dict[str, Path]) -> None:
    """Though the devices' free memory is another by then: placing reads it once."""
    shrunk = [dataclasses.replace(devices[0], memory_free=3), dataclasses.replace(devices[1], memory_free=1)]
    with loaded(paths["llama"], shrunk) as llm:
        assert cached(llm.memory) == [0, 7, 1]
        with Context(llm.model, n_ctx=1024) as context:  # planned on another copy of the model
            assert cached(memory_used_by(context)) == [0, 7, 1]


def test_an_estimate_asks_the_hosts(paths: dict[str, Path], tmp_path: Path) -> None:
    """As a server does before it loads a model, with the same options."""
    key = tmp_path / "key"
    key.write_bytes(KEY)
    key.chmod(0o600)
    with server() as running:
        options: dict[str, Any] = {"rpc": [running.address], "rpc_key": key, "device": "rpc:0", "n_ctx": 512}
        planned = pyggml.memory.estimate.estimate(paths["llama"], **options)
        with pyggml.load(paths["llama"], **options, n_threads=1) as llm:
            assert [share.weights_bytes for share in planned.devices[1:]] == [llm.memory[1].weights_bytes]
        assert cached(planned.devices)[1] == N_LAYERS
        assert json.loads(json.dumps(planned.to_dict()))["rpc"] == [running.address]


@pytest.fixture(scope="module")
def small(paths: dict[str, Path]) -> Iterator[Sequence[Device]]:
    """The device of a host that lends as much as the mixture takes with the experts of two layers in main memory."""
    wanted = MemoryOptions(device="cpu", n_ctx=512, n_parallel=1)
    with Planner(gguf_at(paths["mixtral"]), resolve_placement(wanted)) as planner:
        main = planner.memory_of(resolve(planner, wanted))[0]
    loan = ExportedDevices(("cpu",), max_bytes=int((main.total_bytes - 2 * EXPERTS) / 0.9), n_threads=1)
    with server(loan) as running, connect(running.address, KEY) as host:
        yield host.devices


def test_auto_moves_experts_before_layers(
    small: Sequence[Device], paths: dict[str, Path], on_cpu: dict[str, tuple[int, ...]]
) -> None:
    path = paths["mixtral"]
    wanted = MemoryOptions(n_gpu_layers="auto", n_ctx=512, n_parallel=1)
    with Planner(gguf_at(path), resolve_placement(wanted, small)) as planner:
        settings = resolve(planner, wanted)
        assert settings.n_gpu_layers == ALL
        assert 1 <= settings.n_cpu_moe <= 4
        assert planner.memory_of(settings)[1].has_headroom
        fewer = dataclasses.replace(settings, n_cpu_moe=settings.n_cpu_moe - 1)
        assert not planner.memory_of(fewer)[1].has_headroom
        without = resolve(planner, dataclasses.replace(wanted, n_cpu_moe=0))
        assert 0 < without.n_gpu_layers < N_LAYERS
        assert without.n_cpu_moe == 0
        placement = planner.placement_of(settings)
    with pyggml.Model(path, placement=placement) as model, pyggml.load(model, **SMALL) as llm:
        assert answer(llm) == on_cpu["mixtral"]


def test_no_room_names_the_device_and_what_would_fit(small: Sequence[Device], paths: dict[str, Path]) -> None:
    wanted = MemoryOptions(n_ctx=2048, n_parallel=1)
    with Planner(gguf_at(paths["mixtral"]), resolve_placement(wanted, small)) as planner:
        said = rf"needs .* on {small[0].name}, but .*use .*n_gpu_layers=\d .*or n_cpu_moe=\d"
        with pytest.raises(pyggml.OutOfMemoryError, match=said):
            require_memory(planner, resolve(planner, wanted))


# --- within layers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", [None, [3, 1]])
def test_tensors_are_divided(
    split: Any, devices: Sequence[Device], paths: dict[str, Path], on_cpu: dict[str, tuple[int, ...]]
) -> None:
    with loaded(paths["llama"], devices, split_mode="tensor", tensor_split=split) as llm:
        assert [share.name for share in llm.memory] == ["CPU", *(device.name for device in devices)]
        assert all(share.weights_bytes and share.cache_bytes for share in llm.memory[1:])
        assert llm.memory[0].cache_bytes == 0
        assert answer(llm) == on_cpu["llama"]


# --- what devices cannot do ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_rows_are_not_divided_by_hosts(devices: Sequence[Device], paths: dict[str, Path]) -> None:
    placement = resolve_placement(PlacementOptions(split_mode="row"), devices)
    with pytest.raises(
        pyggml.InvalidParameterError, match=f'cannot divide tensors of {devices[0].name} by rows: "layer"'
    ):
        pyggml.Model(paths["llama"], placement=placement)


@pytest.mark.slow
def test_tensors_are_not_divided_for_every_architecture(devices: Sequence[Device], tmp_path: Path) -> None:
    placement = resolve_placement(PlacementOptions(split_mode="tensor"), devices)
    with pytest.raises(pyggml.InvalidParameterError, match=r"cannot divide .*mamba.*\"layer\" works for every model"):
        pyggml.Model(models.write_mamba(tmp_path / "mamba.gguf"), placement=placement)
