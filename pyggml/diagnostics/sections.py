"""Text of a report: sections of facts, which ``str(report)`` prints and the command formats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyggml._core.fields import fields_of
from pyggml.types import SamplingParams
from pyggml.units import bytes_text, count_text, counted, percent_text, ranges

if TYPE_CHECKING:
    from pyggml.diagnostics.report import LayerReport, ModelReport, TensorShare, VocabularyReport

_FORMATS = {"gguf": "GGUF", "huggingface": "Hugging Face directory"}
_MAX_SPECIAL = 12


@dataclass(frozen=True)
class ReportSection:
    """A section of a report as text. Control characters from files are escaped.

    Attributes:
        title: title of the section; of the first one, the model's name.
        shares: parts of the model's bytes, the largest first.
        facts: names and values.
    """

    title: str
    shares: tuple[TensorShare, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """The shares with their sizes, and the facts."""
        total = sum(share.n_bytes for share in self.shares) or 1
        return (*((share.name, _size(share.n_bytes, total)) for share in self.shares), *self.facts)

    def __str__(self) -> str:
        width = max((len(name) for name, _ in self.rows), default=0)
        return "\n".join([self.title, *(f"  {name:{width}}  {text}" for name, text in self.rows)])


def sections_of(report: ModelReport) -> Iterator[ReportSection]:
    """Yield the sections: the model, its sizes, loading it, and its problems."""
    yield ReportSection(printable(report.name or report.path.name), facts=_facts(_model(report)))
    yield ReportSection("Tokens", facts=_facts(_tokens(report)))
    if report.n_tensors:
        yield ReportSection("Size by component", report.parts)
        yield ReportSection("Types", report.types, _facts(_layers(report)))
    yield ReportSection("With pyggml", facts=_facts(_loading(report)))
    if report.remarks:
        remarks = _facts(("remark", text) for text in report.remarks)
        yield ReportSection(counted(len(remarks), "remark"), facts=remarks)
    problems = _facts((problem.severity, f"{problem.message} [{problem.code}]") for problem in report.problems)
    yield ReportSection(counted(len(problems), "problem") if problems else "No problems found.", facts=problems)


def _size(n_bytes: int, total: int) -> str:
    return f"{percent_text(n_bytes / total):>4}  {bytes_text(n_bytes)}"


def printable(text: str) -> str:
    """Return the text with control characters escaped."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def _facts(rows: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The rows with a value."""
    return tuple((name, printable(text)) for name, text in rows if text)


def _model(report: ModelReport) -> Iterator[tuple[str, str]]:
    yield "file" if report.format == "gguf" else "directory", str(report.path)
    n_bytes = sum(file.n_bytes for file in report.files)
    yield "format", f"{_FORMATS[report.format]}, {counted(len(report.files), 'file')}, {bytes_text(n_bytes)}"
    kind = f" ({report.variant_kind})" if report.variant and report.variant_kind else ""
    yield "model", _joined(f"{report.variant}{kind}", report.architecture and f"architecture {report.architecture}")
    if report.n_tensors:
        yield "weights", f"{count_text(report.n_params)} in {counted(report.n_tensors, 'tensor')}"
        yield "stored as", f"{report.quantization.name}, {report.quantization.bits_per_weight:.3g} bits each"
    else:
        yield "weights", "none"
    yield "layers", f"{report.n_layer}, {report.n_embd:,} wide, feed-forward {report.n_ff:,}" if report.n_layer else ""
    yield "experts", _experts(report)
    yield "attention", _attention(report)
    yield "positions", _positions(report)
    yield "context", f"{report.n_ctx_train:,} tokens" if report.n_ctx_train else ""
    output = "shares the embedding's weights" if report.tied_embeddings else "has weights of its own"
    yield "output", output if report.n_tensors else ""
    for name, values in report.per_layer.items():
        yield name, ", ".join(f"{value} in {counted(n, 'layer')}" for value, n in Counter(values).most_common())


def _experts(report: ModelReport) -> str:
    if not report.n_expert:
        return ""
    width = f", {report.n_ff_expert:,} wide" if report.n_ff_expert else ""
    return f"{report.n_expert} in each layer, {report.n_expert_used} used for each token{width}"


def _attention(report: ModelReport) -> str:
    if not report.n_head:
        return ""
    heads = f"{report.n_head} heads of {report.head_dim}"
    keys = f"{report.n_head_kv} for keys and values" if report.n_head_kv != report.n_head else ""
    return _joined(heads, keys, report.sliding_window and f"window of {report.sliding_window:,} tokens")


def _positions(report: ModelReport) -> str:
    rope = report.rope
    if not rope.type:
        return ""
    if rope.type == "none":
        return "no rotations"
    scaling = "" if rope.scaling == "none" else f"{rope.scaling} scaling"
    factor = "" if rope.factor == 1.0 else f"factor {rope.factor:g}"
    original = rope.n_ctx_original and f"made for {rope.n_ctx_original:,} tokens"
    dims = rope.n_dims not in (0, report.head_dim) and f"{rope.n_dims} columns of each head"
    return _joined(f"rotations ({rope.type}), base {rope.base:g}", scaling, factor, original, dims)


def _tokens(report: ModelReport) -> Iterator[tuple[str, str]]:
    if report.vocabulary is None:
        yield "vocabulary", "none that can be read"
    else:
        yield from _vocabulary(report.vocabulary)
    template = report.chat_template
    if template is None:
        is_bad = any(problem.code.startswith("template") for problem in report.problems)
        yield "chat template", "cannot be read" if is_bad else "none"
        return
    supports = template.supports
    features = {
        "system messages": supports.system,
        "tools": supports.tools,
        "parallel calls": supports.tools and supports.parallel_tool_calls,
        "thinking": supports.thinking,
        "reasoning effort": supports.reasoning_effort,
    }
    yield "chat template", ", ".join(name for name, is_there in features.items() if is_there) or "plain turns"
    yield "more templates", ", ".join(template.names)


def _vocabulary(vocabulary: VocabularyReport) -> Iterator[tuple[str, str]]:
    kind = f"{vocabulary.type} ({vocabulary.pre_tokenizer})" if vocabulary.pre_tokenizer else vocabulary.type
    adds = [name for name, is_added in (("BOS", vocabulary.add_bos), ("EOS", vocabulary.add_eos)) if is_added]
    yield "vocabulary", _joined(f"{vocabulary.n_tokens:,} tokens", kind, adds and f"adds {' and '.join(adds)}")
    yield "ends at", ", ".join(f"{text} ({id})" for id, text in vocabulary.stop_tokens.items())
    special = [f"{role} {token.text} ({token.id})" for role, token in vocabulary.special.items()]
    more = [f"and {len(special) - _MAX_SPECIAL} more"] if len(special) > _MAX_SPECIAL else []
    yield "special", ", ".join(special[:_MAX_SPECIAL] + more)
    has_own = vocabulary.tokenizer not in (None, "engine")
    yield "tokenizer", f"the checkpoint's own, in the file ({vocabulary.tokenizer})" if has_own else ""


def _layers(report: ModelReport) -> Iterator[tuple[str, str]]:
    """A row for each kind of layer, if layers are stored in different types."""
    kinds: dict[frozenset[str], list[LayerReport]] = {}
    for layer in report.layers if report.layers_differ else ():
        kinds.setdefault(frozenset(layer.types), []).append(layer)
    for alike in kinds.values():
        yield " + ".join(alike[0].types), f"layers {ranges([layer.index for layer in alike])}"


def _loading(report: ModelReport) -> Iterator[tuple[str, str]]:
    plan = report.plan
    if not plan.loads:
        yield "loads", f"no: {plan.refusal}"
        return
    yield "loads", f"with load() or Inference.{plan.factory}()"
    yield "family", plan.family
    limit = f"at most {plan.n_ctx_limit:,}" if plan.n_ctx_limit is not None else ""
    yield "context", _joined(f"{plan.n_ctx:,} tokens by default", limit)
    yield "sampling", _sampling(report.recommended_sampling)
    yield "imported as", plan.import_type or "" if plan.imports else ""
    yield "ignored keys", ", ".join(plan.ignored_keys)


def _sampling(params: SamplingParams | None) -> str:
    """The recommended sampling parameters that differ from the defaults."""
    if params is None:
        return ""
    fields = fields_of(SamplingParams).values()
    given = [(each.name, getattr(params, each.name)) for each in fields if getattr(params, each.name) != each.default]
    shown = [f"{name} {value:g}" for name, value in given if isinstance(value, (int, float))]
    greedy = ["greedy"] if params.temperature == 0 else []
    return "recommended: " + ", ".join(greedy + shown)


def _joined(*parts: object) -> str:
    return ", ".join(str(part) for part in parts if part)
