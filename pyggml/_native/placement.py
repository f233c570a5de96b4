"""Placement of a model: its devices, and the part of the model on each.

Only this module interprets ``device=`` and related options. :func:`resolve_placement` is called once, before a model is
opened; its result determines the memory plan, the model, and all objects that belong to the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pyggml._core.checks import INT32_MAX, c_string, choice, device_name, finite, integer, invalid, items, shown
from pyggml._core.device_names import AUTO, CPU, RPC, find_named, parse_device_name, split_device_names
from pyggml._core.ffi import ffi, lib
from pyggml._core.log import logger
from pyggml._native.backend import (
    Device,
    automatic_gpus,
    devices,
    inability_of,
    local_gpus,
    no_device,
    unused_gpu,
    warn_of_unused_gpu,
)
from pyggml._native.placement_options import MAX_DEVICES, PlacementOptions, SplitMode
from pyggml.errors import DeviceError

_SPLIT_MODES: dict[SplitMode, int] = {
    name: getattr(lib, f"LLAMA_SPLIT_MODE_{name.upper()}") for name in get_args(SplitMode)
}


ALL = -1  # layers


@dataclass(frozen=True)
class Placement:
    """The devices of a model.

    Attributes:
        devices: the engine's names of the devices with layers, first layers first; () for the CPU alone.
        split_mode: distribution of the model over them.
        tensor_split: share of each of them, in any unit; () if the engine decides, as with one device.
        n_gpu_layers: number of layers on them, counted from the last; -1: all.
        n_cpu_moe: number of layers whose experts stay in main memory, counted from the first; -1: all.
        overrides: patterns of tensors' names, and the engine's names of the devices for those tensors; the first
            matching pattern counts.
    """

    devices: tuple[str, ...] = ()
    split_mode: SplitMode = "layer"
    tensor_split: tuple[float, ...] = ()
    n_gpu_layers: int = ALL
    n_cpu_moe: int = 0
    overrides: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        devices = tuple(items("devices", self.devices))
        for device in devices:
            device_name(device)
        split = tuple(finite("a number of tensor_split", part, 0) for part in items("tensor_split", self.tensor_split))
        overrides = tuple(_override(pair) for pair in items("overrides", self.overrides))
        for name, value in (("devices", devices), ("tensor_split", split), ("overrides", overrides)):
            object.__setattr__(self, name, value)
        choice("split_mode", self.split_mode, [*_SPLIT_MODES])
        integer("n_gpu_layers", self.n_gpu_layers, ALL, INT32_MAX)
        integer("n_cpu_moe", self.n_cpu_moe, ALL, INT32_MAX)
        if len(self.devices) > MAX_DEVICES:
            n = len(self.devices)
            raise invalid(f"device names {n} devices; a model can use at most {MAX_DEVICES}: name fewer")
        if self.tensor_split and len(self.tensor_split) != len(self.devices):
            raise invalid(f"tensor_split has {len(self.tensor_split)} numbers for {len(self.devices)} devices")

    def native(self) -> list[Any]:
        """Return a ``pyg_placement *``, and the objects that it points to, which must live as long."""
        names = [ffi.new("char[]", name.encode()) for name in self.devices]
        texts = [[ffi.new("char[]", text.encode()) for text in pair] for pair in self.overrides]
        arrays = {
            "devices": ffi.new("const char *[]", names),
            "tensor_split": ffi.new("float[]", self.tensor_split) if self.tensor_split else ffi.NULL,
            "overrides": ffi.new("pyg_override[]", texts),
        }
        placement = ffi.new(
            "pyg_placement *",
            {
                **arrays,
                "n_devices": len(names),
                "n_overrides": len(texts),
                "split_mode": _SPLIT_MODES[self.split_mode],
                "n_gpu_layers": self.n_gpu_layers,
                "n_cpu_moe": self.n_cpu_moe,
            },
        )
        return [placement, names, texts, arrays]


def _override(pair: object) -> tuple[str, str]:
    texts = items("an override", pair)
    if len(texts) != 2 or not all(isinstance(text, str) for text in texts):
        raise invalid(f"an override is a pattern and the name of a device, not {shown(pair)}")
    for text in texts:
        c_string("a text of overrides", text)
    return texts[0], texts[1]


def resolve_placement(options: PlacementOptions, hosts: Sequence[Device] = ()) -> Placement:
    """Resolve the options to devices. The memory plan resolves numbers of layers that are "auto".

    Args:
        options: the caller's options.
        hosts: the devices of connected hosts, in the order of ``rpc=``. "auto" uses them before this machine's GPUs,
            and "rpc:0" is the first of them.

    Raises:
        DeviceError: there is no such device.
        InvalidParameterError: the options and the devices contradict each other.
    """
    n_gpu_layers, n_cpu_moe = options.n_gpu_layers, options.n_cpu_moe
    names = split_device_names(options.device)
    available = _AvailableDevices(hosts) if parse_device_name(names[0]).kind != CPU or options.override_tensor else None
    chosen = available.chosen(names) if available else []
    _require_effect(hosts, chosen, options)
    split = _split(options, chosen)
    if options.split_mode == "none" and chosen:
        chosen = [_main(options, chosen)]
    return Placement(
        devices=tuple(device.name for device in chosen),
        split_mode=options.split_mode if chosen else "none",
        tensor_split=split,
        n_gpu_layers=n_gpu_layers if isinstance(n_gpu_layers, int) else ALL,
        n_cpu_moe=ALL if n_cpu_moe == "all" else n_cpu_moe or 0,
        overrides=_overrides(options, available, chosen) if available else (),
    )


class _AvailableDevices:
    """The devices available for a model: this machine's, and those of its hosts."""

    def __init__(self, hosts: Sequence[Device]) -> None:
        own = devices()
        self.remote = hosts
        self.gpus = local_gpus(own)
        self.all = [*own, *hosts]

    def chosen(self, names: Sequence[str]) -> list[Device]:
        """Return the devices for layers; [] for the CPU alone."""
        if parse_device_name(names[0]).kind == AUTO:
            own = automatic_gpus(self.gpus)
            if not own and not self.remote:
                warn_of_unused_gpu()
            return [*self.remote, *own]
        picked = [self.named(name) for name in names]
        for name, device in zip(names, picked, strict=True):
            if device.type == "accel":
                raise invalid(f'{name!r} assists the CPU: device="cpu" uses it')
            if picked.count(device) > 1:
                raise invalid(f"device names {device.name} twice")
        return [device for device in picked if device.type != "cpu"]

    def named(self, name: str) -> Device:
        device = find_named(name, self.all, self.gpus)
        if device is None:
            raise no_device(name, self.all)
        if reason := inability_of(device):
            raise DeviceError(reason)
        return device


def _require_effect(hosts: Sequence[Device], chosen: Sequence[Device], options: PlacementOptions) -> None:
    """Reject options without an effect on the chosen devices."""
    if hosts and not any(device.kind == RPC for device in chosen):
        raise invalid(
            f'rpc connects hosts, but device={options.device!r} uses none of their devices: leave device at "auto", or '
            'add "rpc:0" to it'
        )
    if not chosen:
        for name in ("tensor_split", "main_gpu"):
            if getattr(options, name) is not None:
                raise invalid(f"{name} needs GPUs, and this model runs on the CPU; pyggml.devices() lists the devices")
        _warn_of_layers_without_gpu(options)


def _warn_of_layers_without_gpu(options: PlacementOptions) -> None:
    """Llama.cpp's command lines have ``-ngl 99`` for all layers, wherever they run: so it is no error."""
    n = options.n_gpu_layers
    if not isinstance(n, int) or n <= 0:  # -1, "all" and "auto" mean what there is
        return
    if parse_device_name(split_device_names(options.device)[0]).kind == CPU:
        raise invalid(f'n_gpu_layers={n} has no effect with device="{options.device}": leave one of them out')
    reason = unused_gpu() or "this machine has none that pyggml supports"
    logger.warning("n_gpu_layers=%d has no effect, because %s; -1 uses a GPU only where there is one", n, reason)


def _split(options: PlacementOptions, chosen: Sequence[Device]) -> tuple[float, ...]:
    split: Sequence[float] | None = options.tensor_split  # type: ignore[assignment]
    if split is not None and len(split) != len(chosen):
        raise invalid(
            f"tensor_split has {len(split)} number{'s' * (len(split) != 1)}, but the model's devices are "
            f"{', '.join(device.name for device in chosen)}: give one number for each, 0 for none of the model"
        )
    if split is not None:
        return tuple(split)
    if len(chosen) < 2 or options.split_mode not in ("layer", "row"):
        return ()
    # Fixed here: the engine would divide anew by the memory that is free then, whenever it plans.
    free = tuple(float(device.memory_free) for device in chosen)
    return free if any(free) else (1.0,) * len(chosen)


def _main(options: PlacementOptions, chosen: Sequence[Device]) -> Device:
    index = options.main_gpu or 0
    if index >= len(chosen):
        names = ", ".join(device.name for device in chosen)
        raise invalid(f"main_gpu={index} must be from 0 to {len(chosen) - 1} ({names})")
    return chosen[index]


def _overrides(
    options: PlacementOptions, available: _AvailableDevices, chosen: Sequence[Device]
) -> tuple[tuple[str, str], ...]:
    wanted: dict[str, str] = options.override_tensor or {}  # type: ignore[assignment]
    pairs = [(pattern, available.named(name)) for pattern, name in wanted.items()]
    for pattern, device in pairs:
        if device.type != "cpu" and device not in chosen:
            raise invalid(
                f"override_tensor places {pattern!r} on {device.name}, which is not among the model's devices "
                f"({', '.join(each.name for each in chosen) or 'the CPU alone'}): name it in device, too"
            )
    return tuple((pattern, device.name) for pattern, device in pairs)
