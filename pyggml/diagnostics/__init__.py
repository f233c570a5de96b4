"""What a model is, before it is loaded."""

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

__all__ = [
    "FileReport",
    "LayerReport",
    "LoadPlan",
    "ModelReport",
    "Problem",
    "QuantizationReport",
    "RopeReport",
    "SpecialToken",
    "TemplateReport",
    "TensorShare",
    "VocabularyReport",
    "inspect",
]
