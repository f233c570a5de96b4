"""What there is to say about a model: plain values, ready for JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pyggml.chat.types import ChatAbilities
from pyggml.diagnostics.sections import ReportSection, sections_of
from pyggml.files.model_files import Format
from pyggml.memory.estimate import EstimateOptions, MemoryEstimate, estimate

if TYPE_CHECKING:
    from typing_extensions import Unpack

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class FileReport:
    """A file that holds weights.

    Attributes:
        path: of it.
        n_bytes: it has.
        n_tensors: in it.
    """

    path: Path
    n_bytes: int
    n_tensors: int


@dataclass(frozen=True)
class TensorShare:
    """Tensors that have something in common, such as their type.

    Attributes:
        name: of what they have in common: "Q4_K", "attention" ...
        n_tensors: how many they are.
        n_params: numbers in them; for packed checkpoints, the integers that they are packed in.
        n_bytes: of their data.
    """

    name: str
    n_tensors: int
    n_params: int
    n_bytes: int


@dataclass(frozen=True)
class LayerReport:
    """The weights of one layer.

    Attributes:
        index: of the layer, from 0.
        n_bytes: of its tensors.
        types: type -> bytes, the largest first.
    """

    index: int
    n_bytes: int
    types: Mapping[str, int]


@dataclass(frozen=True)
class QuantizationReport:
    """How the weights are stored.

    Attributes:
        name: "Q4_K - Medium", "BF16", "gptq 4 bits in groups of 128" ...
        method: "gguf"; of checkpoints "compressed-tensors", "fp8", "gptq", "awq", or "none".
        bits: of one weight without its scales, where all quantised weights have the same; else None.
        group_size: weights that share a scale; None: not quantised, one scale for each row, or several sizes.
        bits_per_weight: of all tensors, with everything: their bytes * 8 / their parameters.
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
        type: how columns are paired: "norm", "neox", "mrope" ...; "none": the model has no rotations.
        base: of the frequencies.
        scaling: "none", "linear", "yarn", "longrope"; "llama3" and others as "factors": one for each frequency.
        factor: by which positions are squeezed; 1.0 for none.
        n_ctx_original: tokens before the context was stretched; None: it was not, or nothing says so.
        n_dims: columns of a head that are rotated.
    """

    type: str
    base: float
    scaling: str
    factor: float
    n_ctx_original: int | None
    n_dims: int


@dataclass(frozen=True)
class SpecialToken:
    """A token with a part to play.

    Attributes:
        id: of the token.
        text: as the vocabulary has it.
    """

    id: int
    text: str


@dataclass(frozen=True)
class VocabularyReport:
    """The tokens of a model.

    Attributes:
        type: how text is cut: "bpe", "spm", "ugm", "wpm" ...; "none": it has no vocabulary.
        pre_tokenizer: how byte-level BPE cuts text first: "llama-bpe", "qwen2" ...; "" for the others.
        n_tokens: how many there are.
        special: part -> token: "bos", "eos", "eot", "pad", "unk", "fim_pre" ...
        stop_tokens: token id -> text of what ends a generation, as :func:`pyggml.load` would have it.
        add_bos: texts begin with BOS.
        add_eos: texts end with EOS.
        tokenizer: why the engine's own tokenizer does not do for an imported file, so that the checkpoint's encodes;
            None: it does, or that is not known yet.
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
        names: of the model's further templates.
        supports: what it can express.
    """

    source: str
    names: tuple[str, ...]
    supports: ChatAbilities


@dataclass(frozen=True)
class Problem:
    """Something that is wrong with a model.

    Attributes:
        severity: "error": it does not load, or not as it was made; "warning": it works, and may surprise.
        code: a name that stays: "missing-tensor", "truncated" ...; docs/inspect.md has them all.
        message: what is wrong, and the way out.
    """

    severity: Severity
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.message} [{self.code}]"


@dataclass(frozen=True)
class LoadPlan:
    """What :func:`pyggml.load` would do.

    Attributes:
        loads: whether it would load the model.
        refusal: why not, else None.
        family: title of the family it would be taken for.
        factory: method of :class:`pyggml.Inference` that is for this family: "use_qwen3", or "use_auto" for any.
        python_class: class that this gives: "Qwen3", or "LLM".
        n_ctx: cells of the context without a say of the caller.
        n_ctx_limit: the longest context that computes what the model does, where the engine would compute something
            else beyond; None: up to the length it was trained for, and further with less sense.
        imports: the checkpoint is made a GGUF file first.
        import_type: the type that most of its weights have in that file; None: nothing is imported.
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


@dataclass(frozen=True)
class ModelReport:
    """What a model is, by its metadata; see :func:`pyggml.inspect`. Numbers that nothing tells are 0.

    Attributes:
        path: of the GGUF file or the directory.
        format: "gguf" or "huggingface".
        files: that hold the weights.
        name: what the model calls itself; "" when it does not.
        architecture: as the engine calls it: "llama", "qwen3" ...; "" when it is not known.
        family: short name of its family: "llama3"; "generic" where it is of none that pyggml knows.
        variant: what it is, as closely as can be told: "Llama 3.2", "Phi-4-mini".
        n_params: weights of the model.
        n_bytes: of all tensors.
        n_tensors: how many there are.
        types: the tensors by type, the largest share first.
        parts: the tensors by what they do: "embedding", "attention", "feed-forward", "experts", "output", "norms",
            "other"; the largest share first.
        layers: each layer's weights.
        quantization: how they are stored.
        n_layer: blocks.
        n_embd: width of the residual stream.
        n_head: query heads.
        n_head_kv: key and value heads.
        head_dim: width of a head.
        n_ff: width inside of a feed-forward block.
        n_expert: in a layer; 0: a dense model.
        n_expert_used: for each token.
        n_ff_expert: width inside of an expert; 0: as ``n_ff``.
        sliding_window: tokens that layers with a window look back; 0: all see everything.
        n_ctx_train: tokens it was made to look back on.
        per_layer: for sizes that are not the same in all layers, name -> the size in each; above is the largest.
        rope: its rotations.
        tied_embeddings: the output shares the embedding's weights.
        vocabulary: None when it cannot be read.
        chat_template: None when it has none, or none that can be read.
        problems: what is wrong, errors first; empty for a good model.
        plan: what pyggml would do with it.
        metadata: what the file says of itself, arrays and long texts aside.
    """

    path: Path
    format: Format
    files: tuple[FileReport, ...]
    name: str
    architecture: str
    family: str
    variant: str
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
    problems: tuple[Problem, ...]
    plan: LoadPlan
    metadata: Mapping[str, object] = field(default_factory=dict, repr=False)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong that would keep it from working."""
        return all(problem.severity != "error" for problem in self.problems)

    @property
    def layers_differ(self) -> bool:
        """Whether some layers are stored in other types than others."""
        return len({frozenset(layer.types) for layer in self.layers}) > 1

    def estimate(self, **options: Unpack[EstimateOptions]) -> MemoryEstimate:
        """What :func:`pyggml.load` of this model would take, and what would fit.

        Args:
            options: the keywords of :func:`pyggml.memory.estimate.estimate`, which raises what is wrong with them.
        """
        return estimate(self.path, **options)

    def sections(self) -> tuple[ReportSection, ...]:
        """The report in words, part by part; ``str(report)`` is all of them."""
        return tuple(sections_of(self))

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.sections()))

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON values; ids become keys as text."""
        values = {each.name: _plain(getattr(self, each.name)) for each in dataclasses.fields(self)}
        return values | {"ok": self.ok, "layers_differ": self.layers_differ}


def _plain(value: object) -> Any:
    """A value as JSON has it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value
