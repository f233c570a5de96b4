"""From a path to a report on the model there, whose weights are not read."""

from __future__ import annotations

from pyggml import families
from pyggml.diagnostics._evidence import Evidence, Problems
from pyggml.diagnostics._gguf import read_gguf
from pyggml.diagnostics._hugging_face import read_hugging_face
from pyggml.diagnostics._sizes import Sizes, sizes_of
from pyggml.diagnostics._template import template_of
from pyggml.diagnostics._weights import by_layer, by_part, by_type
from pyggml.diagnostics.report import LoadPlan, ModelReport, Problem, QuantizationReport, TemplateReport
from pyggml.memory.llm_context import default_n_ctx, generates, n_ctx_limit
from pyggml.model import Progress
from pyggml.source import Source, identify

# Errors with which a model loads all the same: it generates, and does not chat or does not stop as it should.
_LOADS_WITH = frozenset({"template-unreadable", "template-fails", "bad-token-id"})


def inspect(source: Source = None, progress: Progress | None = None) -> ModelReport:
    """Says what a model is, whether something is wrong with it, and what pyggml would do with it.

    Reads metadata only: as quick for 100 GB as for 100 MB. A model that is broken gets a report that says so, as long
    as anything can be said of it.

    Args:
        source: path of a ``.gguf`` file (of a split set the first), or of a Hugging Face directory; a reference,
            ``hf:org/repo``, which is downloaded first, weights and all; None: the model that ships with pyggml.
        progress: called with 0..1 while something is downloaded; returning False stops it.

    Raises:
        ModelNotFoundError: nothing is there.
        ModelLoadError: not even the header, or the ``config.json``, can be read.
        InvalidParameterError: not a path.
        DownloadError, DiskFullError, MissingPackageError: as :func:`~pyggml.load`, of a reference.
    """
    files = identify(source, progress)
    evidence = read_hugging_face(files) if files.format == "huggingface" else read_gguf(files)
    try:
        return _report(evidence)
    finally:
        if evidence.survey.model is not None:
            evidence.survey.model.close()


def _report(evidence: Evidence) -> ModelReport:
    problems = Problems(evidence.problems)
    model, failed = evidence.survey.model, evidence.survey.failed
    template = None if model is None else template_of(model, problems)
    if model is not None and failed not in ("architecture", "sizes") and generates(model):
        _check_stop_tokens(evidence, problems)
    sizes = sizes_of(evidence.survey.sizes, evidence.metadata, evidence.rope)
    n_bytes = sum(tensor.n_bytes for tensor in evidence.tensors)
    architecture = str(evidence.metadata.get("general.architecture", ""))
    ordered = tuple(sorted(problems, key=lambda problem: problem.severity))  # errors come before warnings
    return ModelReport(
        path=evidence.path,
        format=evidence.format,
        files=tuple(evidence.files),
        name=next(iter(evidence.names), ""),
        architecture=architecture,
        family=evidence.match.family.name,
        variant=_variant(evidence, sizes, template),
        n_params=evidence.n_params,
        n_bytes=n_bytes,
        n_tensors=len(evidence.tensors),
        types=by_type(evidence.tensors),
        parts=by_part(evidence.tensors),
        layers=by_layer(evidence.tensors),
        quantization=_quantization(evidence, n_bytes),
        **sizes.values,
        per_layer=sizes.per_layer,
        rope=sizes.rope,
        tied_embeddings=evidence.is_tied,
        vocabulary=evidence.vocabulary,
        chat_template=template,
        problems=ordered,
        plan=_plan(evidence, ordered),
        metadata=evidence.metadata,
    )


def _check_stop_tokens(evidence: Evidence, problems: Problems) -> None:
    if evidence.vocabulary is not None and not evidence.vocabulary.stop_tokens:
        wanted = ", ".join(map(repr, evidence.match.family.stop_tokens)) or "any text that the engine knows as an end"
        problems.error(
            "no-stop-token",
            f"the vocabulary has no token to stop at, so generation would never end: it was searched for {wanted} as a "
            "special token, and the metadata for eos_token_id. Set that to the id of the token that ends a text",
        )


def _variant(evidence: Evidence, sizes: Sizes, template: TemplateReport | None) -> str:
    values = sizes.values
    shown = {
        **values,
        "n_ctx": values["n_ctx_train"],
        "architecture": evidence.metadata.get("general.architecture"),
        "n_vocab": 0 if evidence.vocabulary is None else evidence.vocabulary.n_tokens,
        "rope_base": sizes.rope.base,
        "is_grouped": values["n_head_kv"] < values["n_head"],
    }
    source = "" if template is None else template.source
    return families.variant_of(evidence.match.family, evidence.names, source, shown)


def _quantization(evidence: Evidence, n_bytes: int) -> QuantizationReport:
    storage = evidence.storage
    per_weight = 8 * n_bytes / evidence.n_params if evidence.n_params else 0.0
    return QuantizationReport(storage.name, storage.method, storage.bits, storage.group_size, round(per_weight, 3))


def _plan(evidence: Evidence, problems: tuple[Problem, ...]) -> LoadPlan:
    refusals = [each.message for each in problems if each.severity == "error" and each.code not in _LOADS_WITH]
    model, family = evidence.survey.model, evidence.match.family
    kind = families.kind_of(family)
    return LoadPlan(
        loads=not refusals,
        refusal=refusals[0] if refusals else None,
        family=family.title,
        factory="use_auto" if kind is None else kind.factory,
        python_class="LLM" if kind is None else kind.name,
        n_ctx=0 if model is None else default_n_ctx(model),
        n_ctx_limit=None if model is None else n_ctx_limit(model),
        imports=evidence.format == "huggingface",
        import_type=evidence.import_type,
    )
