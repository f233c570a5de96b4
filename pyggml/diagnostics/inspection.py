"""Inspection of a model without reading its weights."""

from __future__ import annotations

from typing import cast

from pyggml import families
from pyggml._native.model import Model
from pyggml.chat.template_selection import missing_template_advice
from pyggml.diagnostics._facts import ModelFacts, Problems
from pyggml.diagnostics._gguf import read_gguf
from pyggml.diagnostics._hugging_face import read_hugging_face
from pyggml.diagnostics._sizes import ModelSizes, sizes_of
from pyggml.diagnostics._template import template_of
from pyggml.diagnostics._weights import by_layer, by_part, by_type, main_type
from pyggml.diagnostics.adapter import require_model
from pyggml.diagnostics.report import (
    LoadPlan,
    ModelReport,
    Problem,
    QuantizationReport,
    TemplateReport,
    VariantKind,
)
from pyggml.families import Variant
from pyggml.memory.llm_context import default_n_ctx, generates, n_ctx_limit
from pyggml.options.recommended import recommended
from pyggml.progress import ProgressOption, progress_function, shows_progress
from pyggml.quant import GGMLType
from pyggml.source import Source, identify
from pyggml.types import SamplingParams
from pyggml.units import bits_per_weight

# Errors with which a model loads and generates, but does not chat or stop correctly.
_LOADS_WITH = frozenset({"template-unreadable", "template-fails", "bad-token-id"})


@shows_progress("Downloading {}")
def inspect(source: Source = None, progress: ProgressOption = None) -> ModelReport:
    """Report a model's properties and problems, and the plan for loading it.

    Reads only metadata, so 100 GB take no longer than 100 MB. A broken model also gets a report with its problems,
    as long as its header or ``config.json`` can be read.

    Args:
        source: path of a ``.gguf`` file (the first of a split set), or of a Hugging Face directory; or a reference,
            ``hf:org/repo``, which is downloaded first, weights and all. None: the model that ships with pyggml.
        progress: called with 0 to 1 during a download; returning False stops it. None: a bar in a notebook; False:
            no bar.

    Raises:
        ModelNotFoundError: there is no model.
        ModelLoadError: neither the header nor the ``config.json`` can be read.
        InvalidParameterError: not a path, or a LoRA adapter, for which there is :func:`~pyggml.inspect_adapter`.
        OutOfMemoryError: there is not enough memory for the inspection.
        EngineError: no thread can be started to check the chat template.
        DownloadError, DiskFullError, MissingPackageError: as for :func:`~pyggml.load`, with a reference.
    """
    files = identify(source, progress_function(progress))
    require_model(files)
    facts = read_hugging_face(files) if files.format == "huggingface" else read_gguf(files)
    try:
        return _report(facts)
    finally:
        if facts.check.model is not None:
            facts.check.model.close()


def _report(facts: ModelFacts) -> ModelReport:
    problems = Problems(facts.problems)
    model, failed = facts.check.model, facts.check.failed
    template = None if model is None else template_of(model, problems)
    remarks: tuple[str, ...] = ()
    if model is not None and failed not in ("architecture", "sizes") and generates(model):
        _check_stop_tokens(facts, problems)
        if model.chat_template() is None:
            remarks = (f"there is no chat template: {missing_template_advice(model)}",)
    sampling = None if model is None else _sampling(model, problems)
    sizes = sizes_of(facts.check.sizes, facts.metadata, facts.rope)
    n_bytes = sum(tensor.n_bytes for tensor in facts.tensors)
    architecture = str(facts.metadata.get("general.architecture", ""))
    variant = _variant(facts, sizes, template)
    ordered = tuple(sorted(problems, key=lambda problem: problem.severity))  # errors come before warnings
    return ModelReport(
        path=facts.path,
        format=facts.format,
        files=tuple(facts.files),
        name=next(iter(facts.names), ""),
        architecture=architecture,
        family=facts.match.family.name,
        variant=variant.title,
        variant_kind=_kind(facts, variant),
        n_params=facts.n_params,
        n_bytes=n_bytes,
        n_tensors=len(facts.tensors),
        types=by_type(facts.tensors),
        parts=by_part(facts.tensors),
        layers=by_layer(facts.tensors),
        quantization=QuantizationReport(*facts.storage, bits_per_weight(n_bytes, facts.n_params)),
        **sizes.values,
        per_layer=sizes.per_layer,
        rope=sizes.rope,
        tied_embeddings=facts.is_tied,
        vocabulary=facts.vocabulary,
        chat_template=template,
        recommended_sampling=sampling,
        problems=ordered,
        remarks=remarks,
        plan=_plan(facts, ordered),
        metadata=facts.metadata,
    )


def _check_stop_tokens(facts: ModelFacts, problems: Problems) -> None:
    if facts.vocabulary is not None and not facts.vocabulary.stop_tokens:
        wanted = ", ".join(map(repr, facts.match.family.stop_tokens)) or "any text that the engine knows as an end"
        problems.error(
            "no-stop-token",
            f"the vocabulary has no token to stop at, so generation would never end: neither {wanted} as a special "
            "token, nor eos_token_id in the metadata. Set that to the id of the token that ends a text",
        )


def _sampling(model: Model, problems: Problems) -> SamplingParams | None:
    found = recommended(model.metadata, default_n_ctx(model))
    for note in found.notes:
        problems.warning("bad-sampling", note)
    return found.params


def _kind(facts: ModelFacts, variant: Variant) -> VariantKind:
    """The kind of a variant, or "quantised" if the weights are and it has no more specific one."""
    type = GGMLType.__members__.get(main_type(facts.tensors))
    is_gguf = facts.format == "gguf"
    is_quantized = type is not None and type.is_quantized if is_gguf else facts.storage.method != "none"
    return "quantised" if is_quantized and variant.kind in ("", "meta") else cast("VariantKind", variant.kind)


def _variant(facts: ModelFacts, sizes: ModelSizes, template: TemplateReport | None) -> Variant:
    values = sizes.values
    shown = {
        **values,
        "n_ctx": values["n_ctx_train"],
        "architecture": facts.metadata.get("general.architecture"),
        "n_vocab": 0 if facts.vocabulary is None else facts.vocabulary.n_tokens,
        "rope_base": sizes.rope.base,
        "is_grouped": values["n_head_kv"] < values["n_head"],
    }
    source = "" if template is None else template.source
    return families.variant_of(facts.match.family, facts.names, source, shown)


def _plan(facts: ModelFacts, problems: tuple[Problem, ...]) -> LoadPlan:
    refusals = [each.message for each in problems if each.severity == "error" and each.code not in _LOADS_WITH]
    model, family = facts.check.model, facts.match.family
    kind = families.kind_of(family)
    return LoadPlan(
        loads=not refusals,
        refusal=refusals[0] if refusals else None,
        family=family.title,
        factory="use_auto" if kind is None else kind.factory,
        python_class="LLM" if kind is None else kind.name,
        n_ctx=0 if model is None else default_n_ctx(model),
        n_ctx_limit=None if model is None else n_ctx_limit(model),
        imports=facts.format == "huggingface",
        import_type=facts.import_type,
        ignored_keys=tuple(facts.ignored_keys),
    )
