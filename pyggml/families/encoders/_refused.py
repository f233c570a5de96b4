"""Encoders that the engine cannot compute, by name, with the reason."""

from __future__ import annotations

from pyggml.families._layout import Architecture


def _without_graph(missing: str) -> str:
    return f"the engine has no graph for {missing}"


#: They have no name in the engine.
REFUSED = (
    Architecture("", ("mpnet",), ("MPNetModel",), _without_graph("its relative positions")),
    Architecture("", ("gte", "new"), ("GteModel", "NewModel"), _without_graph("rotations together with a GELU gate")),
    Architecture("", ("albert",), ("AlbertModel",), _without_graph("blocks that share their weights")),
    Architecture("", ("deberta", "deberta-v2"), ("DebertaV2Model",), _without_graph("disentangled attention")),
    Architecture("", ("electra",), ("ElectraModel",), _without_graph("an embedding narrower than the blocks")),
    Architecture("", ("xlnet",), ("XLNetModel",), _without_graph("its relative positions")),
)
