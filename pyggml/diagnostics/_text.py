"""A report as text, one fact on a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyggml.diagnostics.report import ModelReport, RopeReport

_UNITS = (("T", 10**12), ("B", 10**9), ("M", 10**6), ("K", 10**3))
_BYTES = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("KB", 10**3))
_FORMATS = {"gguf": "GGUF", "huggingface": "Hugging Face directory"}


def text_of(report: ModelReport) -> str:
    """The report for somebody who reads it."""
    lines = [report.name or report.path.name]
    lines += [f"  {name:<14}{value}" for name, value in _facts(report) if value]
    lines += [f"  {problem}" for problem in report.problems]
    return "\n".join(lines)


def short(n: float) -> str:
    """A number of parameters: "1.1B"."""
    return _in_units(n, _UNITS)


def short_bytes(n: float) -> str:
    """A number of bytes: "4.1 GB"."""
    return _in_units(n, _BYTES, " ") if n >= _BYTES[-1][1] else f"{int(n)} bytes"


def _facts(report: ModelReport) -> Iterator[tuple[str, str]]:
    plan = report.plan
    files = f"{len(report.files)} files" if len(report.files) > 1 else ""
    yield "format", ", ".join(filter(None, [_FORMATS[report.format], files, short_bytes(report.n_bytes)]))
    yield "model", ", ".join(filter(None, [report.variant, report.architecture]))
    yield "parameters", f"{short(report.n_params)}, {report.quantization.bits_per_weight:.2f} bits each"
    yield "stored as", f"{report.quantization.name}: {_shares(report)}" if report.types else report.quantization.name
    yield "size", _size(report)
    yield "rotations", _rotations(report.rope)
    yield "vocabulary", _vocabulary(report)
    yield "stops at", _stops(report)
    yield "chat", _chat(report)
    yield "pyggml", f"loads it with {plan.factory}()" + _import(report) if plan.loads else "does not load it"
    yield "problems", "" if report.problems else "no problems"


def _size(report: ModelReport) -> str:
    window = f", window {report.sliding_window}" if report.sliding_window else ""
    experts = f", {report.n_expert_used} of {report.n_expert} experts" if report.n_expert else ""
    return (
        f"{report.n_layer} layers, width {report.n_embd}, {report.n_head} heads ({report.n_head_kv} for keys and "
        f"values) of {report.head_dim}, feed-forward {report.n_ff or report.n_ff_expert}{experts}, "
        f"context {report.n_ctx_train}{window}"
    )


def _shares(report: ModelReport) -> str:
    total = max(report.n_bytes, 1)
    return ", ".join(f"{share.name} {100 * share.n_bytes / total:.0f}%" for share in report.types)


def _rotations(rope: RopeReport) -> str:
    if rope.type == "none":
        return ""
    original = "" if rope.n_ctx_original is None else f" from {rope.n_ctx_original} tokens"
    scaling = "" if rope.scaling == "none" else f", stretched by {rope.factor:g}{original} ({rope.scaling})"
    return f"{rope.type}, base {rope.base:g}{scaling}"


def _vocabulary(report: ModelReport) -> str:
    vocabulary = report.vocabulary
    if vocabulary is None:
        return ""
    tied = "shared with the output" if report.tied_embeddings else ""
    return ", ".join(filter(None, [f"{vocabulary.n_tokens} tokens", vocabulary.type, vocabulary.pre_tokenizer, tied]))


def _stops(report: ModelReport) -> str:
    return "" if report.vocabulary is None else ", ".join(report.vocabulary.stop_tokens.values())


def _chat(report: ModelReport) -> str:
    if report.chat_template is None:
        return "no template"
    supports = report.chat_template.supports
    able = [name for name in ("system", "tools", "thinking") if getattr(supports, name)]
    return f"template with {', '.join(able)}" if able else "template"


def _import(report: ModelReport) -> str:
    return f", after importing it as {report.plan.import_type}" if report.plan.imports else ""


def _in_units(n: float, units: tuple[tuple[str, int], ...], space: str = "") -> str:
    return next((f"{n / size:.1f}{space}{unit}" for unit, size in units if n >= size), str(int(n)))
