"""Reads ``config.json`` without ignoring any key that could change what the model computes.

Every key is read by name. At the end, :meth:`Config.require_all_known` refuses the remaining keys, unless they are
known to be harmless (they only matter for training or sampling, for example) or switch something off.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pyggml.errors import ModelLoadError, UnsupportedArchitectureError

#: Keys that do not change a model's logits: names and versions, training, sampling, the cache, and anything that
#: another file says more reliably. Token ids are read with the vocabulary.
_HARMLESS = re.compile(
    r"""
    _.* | .*_version | .*dropout.* | .*_pdrop | .*_jitter_noise | .*initializer.* | .*aux_loss.* | .*_token_ids?
    | architectures | attn_implementation | auto_map | bad_words_ids | begin_suppress_tokens | chunk_size_feed_forward
    | compression_config | cross_attention_hidden_size | diversity_penalty | do_sample | dtype | early_stopping
    | finetuning_task | flash_attn | flash_rotary | forced_.* | fused_dense | gradient_checkpointing | id2label
    | is_decoder | is_encoder_decoder | label2id | length_penalty | max_length | max_sequence_length | min_length
    | model_max_length | model_name | model_type | name_or_path | no_repeat_ngram_size | num_beam.* | num_labels
    | num_return_sequences | output_attentions | output_hidden_states | output_router_logits | output_scores | prefix
    | pretraining_tp | problem_type | pruned_heads | quantization_config | remove_invalid_values | repetition_penalty
    | return_dict.* | rotary_emb_base | sep_token | seq_length | suppress_tokens | task_specific_params | temperature
    | tf_legacy_loss | tie_encoder_decoder | tokenizer_class | top_k | top_p | torch_dtype | torchscript | typical_p
    | unsloth.* | upcast_ln | use_bfloat16 | use_cache | use_flash_attn.* | use_fused.*
    """,
    re.VERBOSE,
)


class Config:
    """The object in a ``config.json``, or one nested in it.

    Attributes:
        path: the file.
        values: the raw values; only reading them with the methods below marks a key as known.
    """

    def __init__(self, path: Path, values: Mapping[str, Any], where: str = "") -> None:
        """Wraps the values.

        Args:
            path: the file.
            values: the object's values.
            where: the object's key with a trailing dot; empty at the top level.
        """
        self.path = path
        self.values: Mapping[str, Any] = MappingProxyType(dict(values))
        self._where = where
        self._known: set[str] = set()

    def get(self, key: str) -> Any:
        """The raw value of a key, None if it is missing."""
        self._known.add(key)
        return self.values.get(key)

    def integer(self, key: str, default: int | None = None) -> int:
        """Reads an integer of 1 or more.

        Args:
            key: the key.
            default: used if the key is missing or null; None: the key is required.

        Raises:
            ModelLoadError: the value is missing or something else.
        """
        value = self._or_default(key, default)
        if type(value) is not int or not 1 <= value < 2**31:
            raise self.error(key, "a positive integer")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Reads a positive number that float32 can hold; arguments and errors as for :meth:`integer`."""
        value = self._or_default(key, default)
        if type(value) not in (int, float) or not 2.0**-126 <= value < 2.0**127:
            raise self.error(key, "a positive number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """Reads a boolean; a missing key and null mean ``default``.

        Raises:
            ModelLoadError: the value is something else.
        """
        value = self._or_default(key, default)
        if type(value) is not bool:
            raise self.error(key, "true or false")
        return value

    def section(self, key: str) -> Config | None:
        """Reads a nested object, None if it is missing.

        Raises:
            ModelLoadError: the value is something else.
        """
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(key, "an object")
        return Config(self.path, value, f"{self._where}{key}.")

    def require(self, key: str, allowed: tuple[Any, ...]) -> None:
        """Refuses a value that the engine does not support.

        Args:
            key: the key.
            allowed: the supported values, first the one that a missing key or null means.

        Raises:
            UnsupportedArchitectureError: the value is something else.
        """
        value = self._or_default(key, allowed[0])
        if not any(value == each and type(value) is type(each) for each in allowed):
            listed = " or ".join(repr(each) for each in allowed)
            raise UnsupportedArchitectureError(
                f"{self.path}: {self._where}{key} is {_short(value)}; for this architecture, the engine only supports "
                f"{listed}"
            )

    def require_each(self, key: str, allowed: tuple[str, ...]) -> None:
        """Does the same for every value of a list, which must exist."""
        for value in self.get(key):
            if value not in allowed:
                raise UnsupportedArchitectureError(
                    f"{self.path}: {self._where}{key} has {_short(value)}; the engine only supports "
                    f"{' and '.join(allowed)}"
                )

    def require_all_known(self) -> None:
        """Refuses keys that were not read, are not known to be harmless, and switch something on.

        Raises:
            UnsupportedArchitectureError: there is such a key.
        """
        for key, value in self.values.items():
            is_off = value is not True and value in (None, False, 0, 1, "", [], {})
            if key not in self._known and not is_off and not _HARMLESS.fullmatch(key):
                raise UnsupportedArchitectureError(
                    f"{self.path}: pyggml does not know what {self._where}{key} = {_short(value)} does to this model. "
                    "If it does not change what the model computes, remove it from a copy of the file"
                )

    def error(self, key: str, expected: str) -> ModelLoadError:
        """The error to raise for a missing or invalid value."""
        if self.values.get(key) is None:
            return ModelLoadError(f"{self.path} has no {self._where}{key}; {expected} was expected")
        return ModelLoadError(f"{self.path}: {self._where}{key} is {_short(self.values[key])}; {expected} was expected")

    def _or_default(self, key: str, default: Any) -> Any:
        value = self.get(key)
        return default if value is None else value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
