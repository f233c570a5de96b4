"""What there is to know about a model, as a person likes to read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.text import Text

from pyggml.cli.show.tables import bars, facts, heading, plain, print_all, ranges
from pyggml.cli.show.units import bytes_text, count_text, counted

if TYPE_CHECKING:
    from pyggml import LayerReport, ModelReport, Problem, TensorShare, VocabularyReport

_COLOURS = {"error": "bold red", "warning": "yellow"}
_MAX_SPECIAL = 12


def show(report: ModelReport, console: Console) -> None:
    """Prints all of it."""
    print_all(console, _parts(report))


def _parts(report: ModelReport) -> Iterator[RenderableType]:
    yield Text(plain(report.name or report.path.name), style="bold")
    yield facts(_model(report))
    yield heading("Tokens")
    yield facts(_tokens(report))
    yield heading("Where the bytes are")
    yield _shares(report.parts, "cyan")
    yield heading("Types")
    yield _shares(report.types, "magenta")
    if report.layers_differ:
        yield facts(_layers(report.layers))
    yield heading("With pyggml")
    yield facts(_plan(report))
    yield _problems(report.problems)


def _model(report: ModelReport) -> Iterator[tuple[str, str]]:
    yield "file" if report.format == "gguf" else "directory", str(report.path)
    yield "format", f"{_FORMATS[report.format]}, {counted(len(report.files), 'file')}, {bytes_text(report.n_bytes)}"
    yield "model", _joined(report.variant, report.architecture and f"architecture {report.architecture}")
    yield "weights", f"{count_text(report.n_params)} in {counted(report.n_tensors, 'tensor')}"
    quantization = report.quantization
    yield "stored as", f"{quantization.name}, {quantization.bits_per_weight:.3g} bits each"
    yield "layers", f"{report.n_layer}, {report.n_embd:,} wide, feed-forward {report.n_ff:,}" if report.n_layer else ""
    yield "experts", _experts(report)
    yield "attention", _attention(report)
    yield "positions", _positions(report)
    yield "context", f"{report.n_ctx_train:,} tokens" if report.n_ctx_train else ""
    yield "output", "shares the embedding's weights" if report.tied_embeddings else "has weights of its own"
    for name, values in report.per_layer.items():
        yield name, ", ".join(f"{value} in {counted(n, 'layer')}" for value, n in Counter(values).most_common())


_FORMATS = {"gguf": "GGUF", "huggingface": "Hugging Face directory"}


def _experts(report: ModelReport) -> str:
    if not report.n_expert:
        return ""
    width = f", {report.n_ff_expert:,} wide" if report.n_ff_expert else ""
    return f"{report.n_expert} in a layer, {report.n_expert_used} of them for each token{width}"


def _attention(report: ModelReport) -> str:
    if not report.n_head:
        return ""
    heads = f"{report.n_head} heads of {report.head_dim}"
    keys = f"{report.n_head_kv} for keys and values" if report.n_head_kv != report.n_head else ""
    return _joined(heads, keys, report.sliding_window and f"window of {report.sliding_window:,} tokens")


def _positions(report: ModelReport) -> str:
    rope = report.rope
    if rope.type == "none":
        return "no rotations"
    scaling = "" if rope.scaling == "none" else f"{rope.scaling} scaling"
    factor = "" if rope.factor == 1.0 else f"factor {rope.factor:g}"
    original = rope.n_ctx_original and f"made for {rope.n_ctx_original:,} tokens"
    dims = rope.n_dims not in (0, report.head_dim) and f"{rope.n_dims} columns of a head"
    return _joined(f"rotations ({rope.type}), base {rope.base:g}", scaling, factor, original, dims)


def _tokens(report: ModelReport) -> Iterator[tuple[str, str]]:
    if report.vocabulary is not None:
        yield from _vocabulary(report.vocabulary)
    else:
        yield "vocabulary", "none that can be read"
    template = report.chat_template
    if template is None:
        is_bad = any(problem.code.startswith("template") for problem in report.problems)
        yield "chat template", "cannot be read" if is_bad else "none"
    else:
        able = template.supports
        can = {
            "system messages": able.system,
            "tools": able.tools,
            "parallel calls": able.tools and able.parallel_tool_calls,
            "thinking": able.thinking,
            "reasoning effort": able.reasoning_effort,
        }
        yield "chat template", ", ".join(name for name, is_there in can.items() if is_there) or "plain turns"
        yield "more templates", ", ".join(template.names)


def _vocabulary(vocabulary: VocabularyReport) -> Iterator[tuple[str, str]]:
    cut = f"{vocabulary.type} ({vocabulary.pre_tokenizer})" if vocabulary.pre_tokenizer else vocabulary.type
    adds = [name for name, is_added in (("BOS", vocabulary.add_bos), ("EOS", vocabulary.add_eos)) if is_added]
    yield "vocabulary", _joined(f"{vocabulary.n_tokens:,} tokens", cut, adds and f"adds {' and '.join(adds)}")
    yield "ends at", ", ".join(f"{text} ({id})" for id, text in vocabulary.stop_tokens.items())
    special = [f"{part} {token.text} ({token.id})" for part, token in vocabulary.special.items()]
    more = [f"and {len(special) - _MAX_SPECIAL} more"] if len(special) > _MAX_SPECIAL else []
    yield "special", ", ".join(special[:_MAX_SPECIAL] + more)
    yield "tokenizer", vocabulary.tokenizer or ""


def _shares(shares: Sequence[TensorShare], colour: str) -> RenderableType:
    return bars([(share.name, share.n_bytes, bytes_text(share.n_bytes)) for share in shares], colour)


def _layers(layers: Sequence[LayerReport]) -> Iterator[tuple[str, str]]:
    """A row for each kind of layer, by the types it has."""
    kinds: dict[frozenset[str], list[LayerReport]] = {}
    for layer in layers:
        kinds.setdefault(frozenset(layer.types), []).append(layer)
    for alike in kinds.values():
        yield " + ".join(alike[0].types), f"layers {ranges([layer.index for layer in alike])}"


def _plan(report: ModelReport) -> Iterator[tuple[str, str]]:
    plan = report.plan
    if not plan.loads:
        yield "loads", f"no: {plan.refusal}"
        return
    yield "loads", f"by load() or Inference.{plan.factory}()"
    yield "family", plan.family
    limit = f"at most {plan.n_ctx_limit:,}" if plan.n_ctx_limit is not None else ""
    yield "context", _joined(f"{plan.n_ctx:,} cells unless told otherwise", limit)
    yield "imported as", plan.import_type or "" if plan.imports else ""


def _problems(problems: Sequence[Problem]) -> RenderableType:
    if not problems:
        return Text("\nNo problems found.", style="green")
    rows = [
        (
            Text(problem.severity, style=_COLOURS[problem.severity]),
            Text.assemble(plain(problem.message), (f" [{problem.code}]", "dim")),
        )
        for problem in problems
    ]
    return Group(heading(counted(len(problems), "problem")), facts(rows))


def _joined(*parts: object) -> str:
    return ", ".join(str(part) for part in parts if part)
