"""Facts from the headers and the configuration of a Hugging Face directory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from pyggml import families
from pyggml._native.metadata_check import check_metadata, gguf_of
from pyggml.diagnostics._checkpoint_headers import HeaderTensors
from pyggml.diagnostics._directory_vocabulary import inspect_vocabulary
from pyggml.diagnostics._facts import ModelFacts, Problems, Storage, TensorFacts
from pyggml.diagnostics._vocabulary import vocabulary_of
from pyggml.diagnostics._weights import main_type
from pyggml.diagnostics.report import FileReport
from pyggml.errors import InferError, ModelNotFoundError, OutOfMemoryError, UnsupportedArchitectureError
from pyggml.files.config import Config, read_config
from pyggml.files.model_files import ModelFiles
from pyggml.importer.encoding import choose_types
from pyggml.importer.layouts import layout_of
from pyggml.importer.plan import ImportPlan, OnProblem, as_stored, plan_import
from pyggml.importer.recommended_sampling import read_sampling
from pyggml.importer.safetensors import Checkpoint, TruncatedFileError, WrongShapeError
from pyggml.importer.schemes import scheme_of
from pyggml.importer.sentence_transformers import read_sentence_transformer

_S = TypeVar("_S")
_T = TypeVar("_T")

# Limit of reported problems with tensors and settings.
_MAX_ERRORS = 64
_NAME_KEYS = ("_name_or_path", "name_or_path")

#: Key of a config -> key of a GGUF file; for models that pyggml does not import.
_SIZES = {
    "num_hidden_layers": "block_count",
    "n_layer": "block_count",
    "hidden_size": "embedding_length",
    "n_embd": "embedding_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "intermediate_size": "feed_forward_length",
    "max_position_embeddings": "context_length",
    "sliding_window": "attention.sliding_window",
    "rope_theta": "rope.freq_base",
    "num_local_experts": "expert_count",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
}


def read_hugging_face(files: ModelFiles) -> ModelFacts:
    """Read the headers of a directory. The caller closes the model in the facts.

    Raises:
        ModelNotFoundError: there is no configuration.
        ModelLoadError: it cannot be read.
    """
    problems = Problems()
    config = read_config(files)
    layout = _supported("unknown-architecture", layout_of, config, problems)
    scheme = _supported("unknown-quantization", scheme_of, config, problems)
    checkpoint = _checkpoint(files, problems)
    sampling = read_sampling(files.path)
    sentence = _supported("unsupported-module", read_sentence_transformer, files.path, problems)
    plan = None
    if layout is not None and checkpoint is not None and sentence is not None and not problems:
        plan = _plan(partial(plan_import, config, layout, scheme, checkpoint, sampling, sentence), problems)
    values = config.values if plan is None else {**plan.config.values, "vocab_size": plan.sizes.n_vocab}
    vocabulary = inspect_vocabulary(files.path, values, problems)
    metadata = _sizes(config) if plan is None else dict(plan.metadata)
    # With Python's own numbers, as a file's header has them.
    metadata = {key: value.item() if isinstance(value, np.generic) else value for key, value in metadata.items()}
    for note in sampling.notes:
        problems.warning("bad-sampling", note)
    vocabulary_metadata = {} if vocabulary is None else vocabulary.metadata
    templates = {key: value for key, value in vocabulary_metadata.items() if "chat_template" in key}
    shown = {**metadata, **vocabulary_metadata}
    shown.pop("general.name", None)  # the import spells it so that the engine draws no conclusions from it
    check = check_metadata([gguf_of(shown)], config.path)
    if plan is None or vocabulary is None:
        match = families.of_config(config.values, None if vocabulary is None else vocabulary.special_texts)
    else:
        match = families.of_vocabulary({**metadata, **templates}, vocabulary.n_tokens, vocabulary.has_special)
        if check.failed:
            problems.error("engine-refuses", f"the engine cannot read the model's {check.failed}: {check.message}")
    stored = () if checkpoint is None else tuple(checkpoint.values())
    tensors = [TensorFacts(tensor.name, tensor.dtype, math.prod(tensor.shape), tensor.nbytes) for tensor in stored]
    counts = Counter(tensor.path for tensor in stored)
    paths = () if checkpoint is None else checkpoint.files
    if plan is None:  # the only sources, although they may be wrong
        n_params = sum(tensor.n_params for tensor in tensors)
        is_tied = config.values.get("tie_word_embeddings") is True
    else:
        n_params = sum(math.prod(tensor.shape) for tensor in plan.tensors)
        is_tied = not any(tensor.name == "output.weight" for tensor in plan.tensors)
    report = None
    if vocabulary is not None and check.model is not None:
        report = vocabulary.with_real_ids(vocabulary_of(check.model, match.family, ""))
    given = [metadata.get("general.name"), *(config.values.get(key) for key in _NAME_KEYS)]
    return ModelFacts(
        path=files.path,
        format=files.format,
        files=[FileReport(file, file.stat().st_size, counts[file]) for file in paths],
        names=[*dict.fromkeys(name for name in given if isinstance(name, str) and name), files.path.name],
        tensors=tensors,
        n_params=n_params,
        metadata={**metadata, **templates},
        match=match,
        check=check,
        vocabulary=report,
        storage=_storage(config, tensors),
        is_tied=is_tied,
        import_type=None if plan is None or not plan.tensors else _import_type(plan),
        ignored_keys=() if plan is None else plan.ignored,
        rope=_rope(config),
        problems=problems,
    )


# --- files and support ------------------------------------------------------------------------------------------------


def _supported(code: str, read: Callable[[_S], _T], source: _S, problems: Problems) -> _T | None:
    """A reader's result; None, and a problem, if pyggml does not support what its source names."""
    try:
        return read(source)
    except InferError as error:
        problems.error(code, str(error))
        return None


def _checkpoint(files: ModelFiles, problems: Problems) -> Checkpoint | None:
    try:
        return Checkpoint(files)
    except ModelNotFoundError as error:
        problems.error("missing-file", str(error))
    except TruncatedFileError as error:
        problems.error("truncated", str(error))
    except OutOfMemoryError:
        raise
    except InferError as error:
        problems.error("broken-file", str(error))
    return None


def _plan(plan_with: Callable[[OnProblem, type[HeaderTensors]], ImportPlan], problems: Problems) -> ImportPlan | None:
    """The plan of the import, without the tensors and settings that have problems; None if it cannot begin."""
    found = _ProblemCollector()
    try:
        plan = as_stored(plan_with(found, HeaderTensors))
    except OutOfMemoryError:
        raise
    except InferError as error:
        if not found.n_errors:
            found("setting", error)
        plan = None
    found.report_to(problems)
    return plan


class _ProblemCollector:
    """Collector of problems with tensors and settings, by code."""

    def __init__(self) -> None:
        self._messages: dict[str, list[str]] = {}
        self.n_errors = 0

    def __call__(self, what: str, error: InferError) -> None:
        self._messages.setdefault(_code(what, error), []).append(str(error))
        self.n_errors += 1
        if self.n_errors == _MAX_ERRORS:
            raise error

    def report_to(self, problems: Problems) -> None:
        """Add a problem for each kind."""
        for code, messages in self._messages.items():
            more = f", and {len(messages) - 1} more like this" if len(messages) > 1 else ""
            problems.error(code, f"{messages[0]}{more}")


def _code(what: str, error: InferError) -> str:
    if what == "leftover":
        return "unknown-tensor"
    if isinstance(error, ModelNotFoundError):
        return "missing-tensor"
    if isinstance(error, WrongShapeError):
        return "wrong-shape"
    if isinstance(error, UnsupportedArchitectureError):
        return "unsupported-setting"
    return "broken-tensor" if what == "tensor" else "broken-metadata"


# --- the import -------------------------------------------------------------------------------


def _sizes(config: Config) -> dict[str, object]:
    """The sizes of a model that pyggml does not import."""
    architecture = str(config.values.get("model_type", "unknown"))
    sizes: dict[str, object] = {"general.architecture": architecture}
    for name, key in _SIZES.items():
        value = config.values.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            sizes[f"{architecture}.{key}"] = value
    return sizes


def _import_type(plan: ImportPlan) -> str:
    types, _ = choose_types("auto", plan.layout, plan.sizes, plan.tensors)
    sizes: Counter[str] = Counter()
    for type, tensor in zip(types, plan.tensors, strict=True):
        sizes[type.name] += math.prod(tensor.shape)
    return sizes.most_common(1)[0][0]


# --- facts -----------------------------------------------------------------------------------------


def _rope(config: Config) -> dict[str, Any]:
    """Facts about rotations that a GGUF file lacks."""
    section = config.values.get("rope_parameters") or config.values.get("rope_scaling") or {}
    if not isinstance(section, dict):
        return {}
    section = section.get("full_attention", section)
    kind = section.get("rope_type", section.get("type", "default"))
    original = section.get("original_max_position_embeddings", config.values.get("original_max_position_embeddings"))
    scaling = "none" if kind == "default" else kind
    known = {"scaling": scaling, "factor": section.get("factor"), "n_ctx_original": original}
    return {name: value for name, value in known.items() if value is not None}


def _storage(config: Config, tensors: Sequence[TensorFacts]) -> Storage:
    section = config.values.get("quantization_config") or config.values.get("compression_config")
    if not isinstance(section, dict):
        return Storage(main_type(tensors), "none")
    method = str(section.get("quant_method"))
    if method == "compressed-tensors":
        bits, group_size = _group_bits(section)
    elif method == "fp8":
        block = section.get("weight_block_size")
        bits, group_size = 8, _positive(block[-1]) if isinstance(block, list) and block else None
    else:
        bits, group_size = _positive(section.get("bits")), _positive(section.get("group_size"))
    bits_text = "" if bits is None else f" {bits} bits"
    group_text = "" if group_size is None else f" in groups of {group_size}"
    return Storage(f"{method}{bits_text}{group_text}", method, bits, group_size)


def _group_bits(section: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """The bits and the group size of compressed-tensors, if all groups of modules are quantised alike."""
    groups = section.get("config_groups")
    weights = [group.get("weights") for group in groups.values() if isinstance(group, dict)] if groups else []
    found = {
        (_positive(each.get("num_bits")), _positive(each.get("group_size")))
        for each in weights
        if isinstance(each, dict)
    }
    return found.pop() if len(found) == 1 else (None, None)


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
