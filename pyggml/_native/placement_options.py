"""The options for the placement of a model: their forms, and checks for contradictions."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pyggml._core.checks import INT32_MAX, c_string, finite, invalid, items, shown
from pyggml._core.device_names import split_device_names
from pyggml._core.fields import Field, check, option_class

All = Literal["all"]
Auto = Literal["auto"]
SplitMode = Literal["layer", "row", "tensor", "none"]

MAX_DEVICES = 16  # upstream's llama_max_devices()
_MAX_PATTERN = 1024  # a longer one could overflow the stack of the engine's regex parser


@option_class
@dataclass(frozen=True, kw_only=True)
class PlacementOptions:
    """Options for the devices of a model, normalized: ``device`` to text, other collections to a tuple and a dict.

    Attributes:
        device: "auto" (GPUs this build can use, else the CPU), "cpu", "gpu", "cuda", "cuda:1", "cuda:0,cuda:1" ...
        n_gpu_layers: number of layers on the GPU; "auto": as many as fit; "all" or -1: all of them. None: all of them.
        split_mode: how several devices share the model: "layer" by layer, "row" or "tensor" within them, or "none".
        tensor_split: how much of the model each device takes, such as 3,1. None: in proportion to their free memory.
        main_gpu: with ``split_mode`` "none", which of the devices takes the model. None: the first.
        n_cpu_moe: number of layers whose experts stay in main memory, or "all". None: as few as ``n_gpu_layers`` needs.
        override_tensor: where tensors go whose names match, such as "ffn_.*_exps=cpu". None: as the other options say.
    """

    device: Annotated[str | Sequence[str], Field(letter="dev")] = "auto"
    n_gpu_layers: Annotated[int | Auto | All | None, Field(-1, INT32_MAX, letter="ngl")] = None
    split_mode: Annotated[SplitMode, Field(letter="sm")] = "layer"
    tensor_split: Annotated[str | Sequence[float] | None, Field(letter="ts")] = None
    main_gpu: Annotated[int | None, Field(0, MAX_DEVICES - 1, letter="mg")] = None
    n_cpu_moe: Annotated[int | All | None, Field(0, INT32_MAX, letter="ncmoe")] = None
    override_tensor: Annotated[str | Mapping[str, str] | Sequence[str] | None, Field(letter="ot")] = None

    def __post_init__(self) -> None:
        check(self)
        forms = {
            "device": ",".join(split_device_names(self.device)),
            "tensor_split": None if self.tensor_split is None else _parts(self.tensor_split),
            "override_tensor": None if self.override_tensor is None else _pairs(self.override_tensor),
        }
        for name, value in forms.items():
            object.__setattr__(self, name, value)
        self._require_agreement()

    def _require_agreement(self) -> None:
        if self.split_mode == "none" and self.tensor_split is not None:
            raise invalid('split_mode="none" puts the model on one device: leave out tensor_split')
        if self.split_mode != "none" and self.main_gpu is not None:
            raise invalid(
                f'main_gpu has an effect only with split_mode="none"; device="cuda:{self.main_gpu}" alone names one GPU'
            )


def _parts(split: str | Sequence[float]) -> tuple[float, ...]:
    """Return the shares of the devices, from numbers or text such as "3,1"."""
    if isinstance(split, str):
        given: Sequence[object] = [_number(part) for part in re.split("[,/;]", split)]
    else:
        given = items("tensor_split", split, "a number for each device, such as [3, 1]")
    parts = tuple(finite(f"tensor_split[{index}]", part, 0) for index, part in enumerate(given))  # type: ignore[arg-type]
    if not any(parts):
        raise invalid("tensor_split needs at least one number above 0")
    return parts


def _number(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


def _pairs(overrides: str | Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    """Return pattern -> name of a device, from pairs or text such as "exps=cpu"."""
    if isinstance(overrides, str):
        overrides = [text for text in overrides.split(",") if text.strip()]
    if isinstance(overrides, Mapping):
        pairs = [*overrides.items()]
    else:
        pairs = [_pair(text) for text in items("override_tensor", overrides)]
    for pattern, device in pairs:
        if len(c_string("a pattern of override_tensor", pattern)) > _MAX_PATTERN:
            raise invalid(f"a pattern of override_tensor is longer than {_MAX_PATTERN} bytes")
        if not pattern or len(split_device_names(device)) != 1:
            raise invalid(f"override_tensor takes one device for each pattern, not {shown((pattern, device))}")
    return dict(pairs)


def _pair(text: object) -> tuple[str, str]:
    pattern, equals, device = text.rpartition("=") if isinstance(text, str) else ("", "", "")
    if not equals:
        raise invalid(f'override_tensor takes pairs such as "ffn_.*_exps=cpu", not {shown(text)}')
    return pattern.strip(), device.strip()
