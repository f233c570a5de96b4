"""The report on a model: plain values, ready for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pyggml._core.html_forms import HTMLReady, Section
from pyggml._core.json_forms import JSONReady
from pyggml.chat.types import ChatAbilities
from pyggml.diagnostics.sections import ReportSection, sections_of
from pyggml.files.model_files import Format
from pyggml.memory.estimate import MemoryEstimate, estimate
from pyggml.types import SamplingParams

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pyggml._keywords import EstimateKeywords

Severity = Literal["error", "warning"]
VariantKind = Literal["", "meta", "tiny", "distilled", "quantised"]


@dataclass(frozen=True)
class FileReport:
    """A file that holds weights: its path, its size, and the number of its tensors.

    Attributes:
        path: the file.
        n_bytes: its size.
        n_tensors: number of its tensors.
    """

    path: Path
    n_bytes: int
    n_tensors: int


@dataclass(frozen=True)
class TensorShare:
    """Tensors that have something in common, such as their type.

    Attributes:
        name: what they have in common: "Q4_K", "attention" ...
        n_tensors: number of the tensors.
        n_params: number of weights in them; in packed checkpoints, of the integers that contain the weights.
        n_bytes: size of their data.
    """

    name: str
    n_tensors: int
    n_params: int
    n_bytes: int


@dataclass(frozen=True)
class LayerReport:
    """The weights of one layer.

    Attributes:
        index: index of the layer, from 0.
        n_bytes: size of its tensors.
        types: type -> bytes, largest first.
    """

    index: int
    n_bytes: int
    types: Mapping[str, int]


@dataclass(frozen=True)
class QuantizationReport:
    """Storage form of the weights.

    Attributes:
        name: "Q4_K - Medium", "BF16", "gptq 4 bits in groups of 128" ...
        method: "gguf"; for checkpoints "compressed-tensors", "fp8", "gptq", "awq", or "none".
        bits: bits per quantised weight, without scales; None if the number varies.
        group_size: number of weights that share a scale; None: not quantised, one scale per row, or several sizes.
        bits_per_weight: average over all tensors, including scales: bytes * 8 / parameters.
    """

    name: str
    method: str
    bits: int | None
    group_size: int | None
    bits_per_weight: float


@dataclass(frozen=True)
class RopeReport:
    """Rotary position embeddings.

    Attributes:
        type: how columns are paired: "norm", "neox", "mrope" ...; "none": the model has no rotations;
            "": unknown, since the model cannot be loaded.
        base: base of the frequencies.
        scaling: "none", "linear", "yarn", "longrope"; "llama3" and others as "factors": one for each frequency.
        factor: factor by which positions are compressed; 1.0: they are not.
        n_ctx_original: context length before it was extended; None: it was not, or the file does not say.
        n_dims: number of rotated columns of a head.
    """

    type: str
    base: float
    scaling: str
    factor: float
    n_ctx_original: int | None
    n_dims: int


@dataclass(frozen=True)
class SpecialToken:
    """A token with a role: its id, and its text in the vocabulary.

    Attributes:
        id: the token's id.
        text: its text in the vocabulary.
    """

    id: int
    text: str


@dataclass(frozen=True)
class VocabularyReport:
    """The tokens of a model.

    Attributes:
        type: kind of tokenizer: "bpe", "spm", "ugm", "wpm" ...; "none": there is no vocabulary.
        pre_tokenizer: pre-tokenizer of byte-level BPE: "llama-bpe", "qwen2" ...; "" for other types.
        n_tokens: number of tokens.
        special: role -> token; roles are "bos", "eos", "eot", "pad", "unk", "fim_pre" ...
        stop_tokens: token id -> text of each token that ends a generation, as with :func:`pyggml.load`.
        add_bos: whether encoding puts BOS before a text.
        add_eos: whether encoding puts EOS after a text.
        tokenizer: encoder of texts: "engine", or "tokenizer.huggingface.json", the checkpoint's own tokenizer in a GGUF
            file; None: a directory, for which the import decides.
    """

    type: str
    pre_tokenizer: str
    n_tokens: int
    special: Mapping[str, SpecialToken]
    stop_tokens: Mapping[int, str]
    add_bos: bool
    add_eos: bool
    tokenizer: str | None = None


@dataclass(frozen=True)
class TemplateReport:
    """A chat template that can be read.

    Attributes:
        source: its Jinja text.
        names: names of the model's other templates.
        supports: the abilities of the template.
    """

    source: str
    names: tuple[str, ...]
    supports: ChatAbilities


@dataclass(frozen=True)
class Problem:
    """A problem with a model.

    Attributes:
        severity: "error": the model does not load or work correctly; "warning": it works, but not as users may expect.
        code: stable name of the problem: "missing-tensor", "truncated" ...; docs/reference/model-inspection.md
            lists them.
        message: the problem, and its fix.
    """

    severity: Severity
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.message} [{self.code}]"


@dataclass(frozen=True)
class LoadPlan:
    """Plan of :func:`pyggml.load` for a model.

    Attributes:
        loads: whether it would load the model.
        refusal: why it would not; None if it would.
        family: title of the model's family.
        factory: method of :class:`pyggml.Inference` for this family: "use_qwen3", or "use_auto" for any.
        python_class: class of the result: "Qwen3", or "LLM".
        n_ctx: default context size, in tokens.
        n_ctx_limit: the longest context for which the engine's results match the original model; None: no limit,
            although quality drops beyond the training length.
        imports: whether the checkpoint would be converted to a GGUF file first.
        import_type: type of most weights in that file; None: nothing is imported.
        ignored_keys: keys of ``config.json`` that have no effect, because transformers does not know them either.
    """

    loads: bool
    refusal: str | None
    family: str
    factory: str
    python_class: str
    n_ctx: int
    n_ctx_limit: int | None
    imports: bool
    import_type: str | None
    ignored_keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelReport(HTMLReady, JSONReady):
    """Report on a model from its metadata; see :func:`pyggml.inspect`. Unknown numbers are 0.

    ``print`` shows its sections as text. A notebook shows the model and its problems, with the other sections folded.

    Attributes:
        path: path of the GGUF file or the directory.
        format: "gguf" or "huggingface".
        files: the files with the weights.
        name: name of the model according to the file; "" if it has none.
        architecture: the engine's name for the architecture: "llama", "qwen3" ...; "" if it is unknown.
        family: short name of the family: "llama3"; "generic" if pyggml knows none that fits.
        variant: the model, as exactly as the file shows: "Llama 3.2", "Phi-4-mini".
        variant_kind: "distilled": trained on the answers of a larger model (DeepSeek-R1-Distill); "tiny": a small model
            in a large one's architecture (TinyLlama); else "quantised", if most weights are; else "meta": a Llama of
            Meta, or one fine-tuned from it; "": none of these.
        n_params: number of weights.
        n_bytes: size of all tensors.
        n_tensors: number of tensors.
        types: the tensors by type, largest share first.
        parts: the tensors by purpose: "embedding", "attention", "feed-forward", "experts", "output", "norms", "other";
            largest share first.
        layers: the weights of each layer.
        quantization: the storage form of the weights.
        n_layer: number of layers.
        n_embd: width of the residual stream.
        n_head: number of query heads.
        n_head_kv: number of key and value heads.
        head_dim: width of a head.
        n_ff: inner width of a feed-forward block.
        n_expert: number of experts in a layer; 0: a dense model.
        n_expert_used: number of experts used for each token.
        n_ff_expert: inner width of an expert; 0: the same as ``n_ff``.
        sliding_window: size of the attention window in tokens; 0: no layer has one.
        n_ctx_train: training length, in tokens.
        per_layer: for sizes that differ between layers, name -> the size in each; the fields above have the largest.
        rope: rotary position embeddings.
        tied_embeddings: whether the output shares the embedding's weights.
        vocabulary: the vocabulary; None if it cannot be read.
        chat_template: the chat template; None if there is none that can be read.
        recommended_sampling: the sampling that the model's makers recommend; None: no recommendation.
        problems: the problems, errors first; empty for a good model.
        remarks: other facts worth knowing.
        plan: what :func:`pyggml.load` would do with it.
        metadata: the file's metadata, without arrays and long texts.
    """

    path: Path
    format: Format
    files: tuple[FileReport, ...]
    name: str
    architecture: str
    family: str
    variant: str
    variant_kind: VariantKind
    n_params: int
    n_bytes: int
    n_tensors: int
    types: tuple[TensorShare, ...]
    parts: tuple[TensorShare, ...]
    layers: tuple[LayerReport, ...]
    quantization: QuantizationReport
    n_layer: int
    n_embd: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_ff: int
    n_expert: int
    n_expert_used: int
    n_ff_expert: int
    sliding_window: int
    n_ctx_train: int
    per_layer: Mapping[str, tuple[int, ...]]
    rope: RopeReport
    tied_embeddings: bool
    vocabulary: VocabularyReport | None
    chat_template: TemplateReport | None
    recommended_sampling: SamplingParams | None
    problems: tuple[Problem, ...]
    remarks: tuple[str, ...]
    plan: LoadPlan
    metadata: Mapping[str, object] = field(default_factory=dict, repr=False)

    _derived = ("ok", "layers_differ")

    @property
    def ok(self) -> bool:
        """True if no problem prevents the model from working."""
        return all(problem.severity != "error" for problem in self.problems)

    @property
    def layers_differ(self) -> bool:
        """True if layers are stored in different types."""
        return len({frozenset(layer.types) for layer in self.layers}) > 1

    def estimate(self, **options: Unpack[EstimateKeywords]) -> MemoryEstimate:
        """Estimate the memory that :func:`pyggml.load` of this model would use.

        Args:
            options: the keywords of :func:`pyggml.memory.estimate.estimate`, which also raises errors for invalid ones.
        """
        return estimate(self.path, **options)

    def sections(self) -> tuple[ReportSection, ...]:
        """Return the sections of the report as text; ``str(report)`` joins them."""
        return tuple(sections_of(self))

    def _html_sections(self) -> Iterator[Section]:
        first, *others, problems = self.sections()
        yield Section(first.title, rows=first.rows)
        for section in others:
            yield Section(section.title, rows=section.rows, is_folded=True)
        yield Section(problems.title, rows=problems.rows)

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.sections()))
