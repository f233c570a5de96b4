"""Reports on models and memory estimates, without reading the weights."""

from pyggml.diagnostics.adapter import inspect_adapter
from pyggml.diagnostics.inspection import inspect
from pyggml.diagnostics.report import (
    FileReport,
    LayerReport,
    LoadPlan,
    ModelReport,
    Problem,
    QuantizationReport,
    RopeReport,
    SpecialToken,
    TemplateReport,
    TensorShare,
    VocabularyReport,
)
from pyggml.diagnostics.sections import ReportSection
from pyggml.memory.estimate import DeviceMemory, MemoryEstimate, Suggestions, estimate

__all__ = [
    "DeviceMemory",
    "FileReport",
    "LayerReport",
    "LoadPlan",
    "MemoryEstimate",
    "ModelReport",
    "Problem",
    "QuantizationReport",
    "ReportSection",
    "RopeReport",
    "SpecialToken",
    "Suggestions",
    "TemplateReport",
    "TensorShare",
    "VocabularyReport",
    "estimate",
    "inspect",
    "inspect_adapter",
]
