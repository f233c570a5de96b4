"""What a model is, and whether it will fit, before its weights are read."""

from pyggml.diagnostics.estimate import DeviceMemory, MemoryEstimate, Suggestions, estimate

__all__ = ["DeviceMemory", "MemoryEstimate", "Suggestions", "estimate"]
