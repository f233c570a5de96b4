"""``adapter_config.json`` of a PEFT directory, with strict accounting: nothing that changes the results is ignored."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyggml._core.checks import shown
from pyggml.errors import ModelLoadError, ModelNotFoundError, UnsupportedArchitectureError
from pyggml.files.config import Config, Keys
from pyggml.files.json_file import read_object
from pyggml.files.model_files import ADAPTER_CONFIG, ADAPTER_WEIGHTS, is_adapter_among

_PICKLE = "adapter_model.bin"

_MERGE = "Merge the adapter with peft's merge_and_unload(), and convert the whole model"

#: Initialisations that leave the base model as it is. With the others, an adapter is relative to changed weights.
_PLAIN_INIT = (True, False, None, "gaussian", "eva", "orthogonal")

_KEYS = Keys(
    computes={
        "use_dora": False,
        "use_qalora": False,
        "use_bdlora": None,
        "lora_bias": False,
        "layer_replication": None,
        "trainable_token_indices": None,
        "arrow_config": None,
        "kasa_config": None,
        "monteclora_config": None,
        "velora_config": None,
        "invocation_string": None,  # of the first activated LoRAs: text, which depends on a tokenizer
    },
    inert=frozenset(
        {
            "auto_mapping",
            "corda_config",
            "ensure_weight_tying",
            "eva_config",
            "fan_in_fan_out",
            "inference_mode",
            "layers_pattern",
            "loftq_config",
            "lora_dropout",
            "lora_ga_config",
            "megatron_config",
            "megatron_core",
            "peft_version",
            "qalora_group_size",
            "revision",
            "runtime_config",
            "target_parameters",  # the tensors' shapes say it again
            "task_type",
        }
    ),
    is_complete=False,
)

# Limits of expressions in alpha_pattern, which anyone can write: Python's re may take exponential time.
_MAX_EXPRESSION = 200
_MAX_REPEATS = 2
_MAX_STEPS = 10**9
_RISKY = re.compile(r"\)[*+?{]|[*+?}][*+{]|\{|\(\?(?!:)|\\[1-9]")


def is_peft(path: Path) -> bool:
    """Check whether a path is the directory of a PEFT adapter, and not of a model.

    Args:
        path: the path.
    """
    try:
        return is_adapter_among([file.name for file in path.iterdir()])
    except OSError:
        return False


@dataclass(frozen=True)
class PeftConfig:
    """The settings of an adapter.

    Attributes:
        path: the file.
        rank: rank of the matrices, unless they have another.
        alpha: strength of the change.
        is_rslora: divide alpha by the root of the rank (rank-stabilised LoRA), not by the rank.
        alphas: alphas of single modules.
        has_ranks: True if the ranks of single modules differ.
        invocation_tokens: token ids after which an activated LoRA takes effect.
        base_model: name or path of the base model; "" if it does not say.
        everywhere: last parts of the names of modules that are changed in all blocks.
    """

    path: Path
    rank: int
    alpha: float
    is_rslora: bool
    alphas: Patterns
    has_ranks: bool
    invocation_tokens: tuple[int, ...]
    base_model: str
    everywhere: frozenset[str]

    def scaling(self, module: str, rank: int) -> float:
        """Return the factor of the product of a module's matrices.

        Args:
            module: its name in the base model.
            rank: the rank of its matrices.
        """
        alpha = self.alphas.find(module)
        return (self.alpha if alpha is None else alpha) / (math.sqrt(rank) if self.is_rslora else rank)


class Patterns:
    """Numbers by expressions for the names of modules, of which the first that matches a name, or its end, counts."""

    def __init__(self, path: Path, key: str, values: Mapping[str, float]) -> None:
        """Compile the expressions.

        Raises:
            UnsupportedArchitectureError: an expression may take very long.
            ModelLoadError: it is not valid.
        """
        self._plain: dict[str, tuple[int, float]] = {}
        self._expressions: list[tuple[int, re.Pattern[str], float]] = []
        self._path, self._key, self._n_steps = path, key, 0
        for number, (text, value) in enumerate(values.items()):
            if re.fullmatch(r"[\w.-]*", text):
                self._plain.setdefault(text, (number, value))
                continue
            if len(text) > _MAX_EXPRESSION or _RISKY.search(text) or len(re.findall(r"[*+]", text)) > _MAX_REPEATS:
                raise self._too_complex(text)
            try:
                self._expressions.append((number, re.compile(rf"(.*\.)?({text})$"), value))
            except re.error as error:
                raise ModelLoadError(f"{path}: {text!r:.100} in {key} is no regular expression: {error}") from None

    def find(self, name: str) -> float | None:
        """Return the number for a module's name; None if no expression matches.

        Args:
            name: the name.

        Raises:
            UnsupportedArchitectureError: the expressions may take very long for all the names.
        """
        parts = name.split(".") if self._plain else []
        ends = (".".join(parts[i:]) for i in range(len(parts)))
        found = [self._plain[end] for end in ends if end in self._plain]
        for number, pattern, value in self._expressions:
            self._n_steps += len(name) ** (_MAX_REPEATS + 1)
            if self._n_steps > _MAX_STEPS:
                raise self._too_complex(pattern.pattern)
            if pattern.match(name):
                found.append((number, value))
        return min(found)[1] if found else None

    def _too_complex(self, text: str) -> UnsupportedArchitectureError:
        return UnsupportedArchitectureError(
            f"{self._path}: the expression {text!r:.100} in {self._key} is too complex: write the modules' names out"
        )


def read_config(directory: Path) -> PeftConfig:
    """Read the configuration in the directory of an adapter.

    Raises:
        ModelNotFoundError: the directory or the file is missing.
        ModelLoadError: the file is broken, or has a value that cannot be.
        UnsupportedArchitectureError: the adapter does more than LoRA.
    """
    path = directory / ADAPTER_CONFIG
    if not path.is_file():
        raise ModelNotFoundError(f"{directory} has no {ADAPTER_CONFIG}: the directory of a PEFT adapter was expected")
    config = Config(path, read_object(path))
    kind = config.get("peft_type")
    if kind not in (None, "LORA"):
        raise UnsupportedArchitectureError(
            f"{path}: peft_type is {shown(kind)}; the engine has adapters of one kind, 'LORA'. {_MERGE}"
        )
    _require_plain(config)
    alphas = _numbers(config, "alpha_pattern")
    found = PeftConfig(
        path=path,
        rank=config.integer("r"),
        alpha=config.number("lora_alpha"),
        is_rslora=config.flag("use_rslora", False),
        alphas=Patterns(path, "alpha_pattern", alphas),
        has_ranks=bool(_numbers(config, "rank_pattern")),
        invocation_tokens=_invocation_tokens(config),
        base_model=_text(config, "base_model_name_or_path"),
        everywhere=_everywhere(config),
    )
    config.require_all_known(_KEYS)
    return found


def weights_of(directory: Path) -> Path:
    """Return the file with the weights of an adapter.

    Raises:
        ModelNotFoundError: there is none.
        ModelLoadError: there is one of another format.
    """
    path = directory / ADAPTER_WEIGHTS
    if path.is_file():
        return path
    if (directory / _PICKLE).exists():
        raise ModelLoadError(
            f"{directory} has its weights in {_PICKLE}, a format that pyggml does not open because it can run code; "
            "save them as safetensors: load the adapter with peft, and call save_pretrained()"
        )
    raise ModelNotFoundError(f"{directory} has no {ADAPTER_WEIGHTS}: copy or download it as well")


def _require_plain(config: Config) -> None:
    """Refuse what is more than a low-rank change of the base model's own weights."""
    saved = config.get("modules_to_save")
    if saved:
        raise UnsupportedArchitectureError(
            f"{config.path}: modules_to_save is {shown(saved)}: whole modules were trained, which a LoRA adapter "
            f"cannot carry. {_MERGE}"
        )
    bias = config.get("bias")
    if bias not in (None, "none", "all", "lora_only"):
        raise config.error("bias", '"none"')
    init = config.get("init_lora_weights")
    if not any(init is each or (isinstance(init, str) and init.lower() == each) for each in _PLAIN_INIT):
        raise UnsupportedArchitectureError(
            f"{config.path}: init_lora_weights is {shown(init)}, which also changed the base model's weights, so the "
            "adapter alone does not describe the change. Save it with peft's "
            "save_pretrained(..., path_initial_model_for_weight_conversion=...)"
        )
    if config.get("use_dora") is True:
        raise UnsupportedArchitectureError(
            f"{config.path}: use_dora is true: DoRA also scales each row of the changed weight, for which the engine "
            f"has no product. {_MERGE}"
        )


def _invocation_tokens(config: Config) -> tuple[int, ...]:
    tokens = config.get("alora_invocation_tokens")
    if tokens is None:
        return ()
    if not isinstance(tokens, list) or not all(type(each) is int and 0 <= each < 2**31 for each in tokens):
        raise config.error("alora_invocation_tokens", "a list of token ids")
    if not 0 < len(tokens) < 2**16:
        raise config.error("alora_invocation_tokens", "1 to 65,535 token ids")
    return tuple(tokens)


def _numbers(config: Config, key: str) -> dict[str, float]:
    """Read an object of positive numbers by expression."""
    values = config.section(key)
    return {} if values is None else {name: values.number(name) for name in values.values}


def _text(config: Config, key: str) -> str:
    value = config.get(key)
    if value is not None and not isinstance(value, str):
        raise config.error(key, "a text")
    return value or ""


def _everywhere(config: Config) -> frozenset[str]:
    """Names in ``target_modules`` without a block, if no other key restricts them to some blocks."""
    names: Any = config.get("target_modules")
    is_restricted = any([config.get("layers_to_transform") is not None, bool(config.get("exclude_modules"))])
    if is_restricted or not isinstance(names, list):
        return frozenset()
    return frozenset(name for name in names if isinstance(name, str) and "." not in name)
