"""Placement and memory plan of a draft model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyggml._native.model import Model
from pyggml._native.placement import Placement, resolve_placement
from pyggml._native.placement_options import PlacementOptions
from pyggml.files.model_files import gguf_at
from pyggml.memory.planner import Planner
from pyggml.options import MemoryOptions
from pyggml.source import identify

if TYPE_CHECKING:
    from pyggml._native.backend import Device


def draft_placement(options: MemoryOptions, hosts: Sequence[Device] = ()) -> Placement:
    """Return the placement of the draft model: on the devices that ``draft_device`` names, or else on the model's.

    Args:
        options: the options of the model.
        hosts: the devices of connected hosts, which "rpc:0" names.

    Raises:
        As :func:`~pyggml._native.placement.resolve_placement`.
    """
    device = options.device if options.draft_device is None else options.draft_device
    placement = PlacementOptions(device=device, n_gpu_layers=options.draft_n_gpu_layers)
    return resolve_placement(placement, hosts if options.draft_device is None or "rpc" in placement.device else ())


def draft_planner(options: MemoryOptions, hosts: Sequence[Device] = (), file: Path | None = None) -> Planner | None:
    """Return a planner for the draft model, with its own placement if it is an open Model; None: there is none.

    Args:
        options: the options of the model.
        hosts: as for :func:`draft_placement`.
        file: its GGUF file. None: the files that ``options.draft`` names, which may be a directory.

    Raises:
        As :func:`draft_placement`, and as :func:`~pyggml.source.identify`.
    """
    draft = options.draft
    if draft is None:
        return None
    if isinstance(draft, Model):
        return Planner(gguf_at(Path(draft.path)), draft.placement)
    return Planner(identify(draft) if file is None else gguf_at(file), draft_placement(options, hosts))
