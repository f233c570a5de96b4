"""What a program and the process of its engine tell each other: JSON and arrays, nothing that is executed."""

from __future__ import annotations

import dataclasses
import json
import os
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pyggml import errors
from pyggml._core.fields import fields_of
from pyggml.errors import EngineError, InferError
from pyggml.options import LoadOptions
from pyggml.types import Grammar, SamplingParams

if TYPE_CHECKING:
    from pyggml.generation.pending_request import PendingRequest

_LENGTH = struct.Struct("<I")

#: Options that mean something to the process of the engine; the others are dealt with in the program.
_LOADING = [
    name
    for name in fields_of(LoadOptions)
    if name not in ("source", "tokenizer", "progress", "chat_template", "max_queue", "queue_full", "isolate")
]
# Parameters that are in a request's other fields, or concern only texts.
_NOT_SAMPLING = ("stop", "stop_token_ids", "ignore_eos", "json_schema", "timeout_s")
_SAMPLING = {name: field for name, field in fields_of(SamplingParams).items() if name not in _NOT_SAMPLING}

#: What errors say besides their message.
_DETAILS = ("required_bytes", "available_bytes", "is_temporary")


class Asked(NamedTuple):
    """A generation as the process of the engine gets it, besides its prompt.

    Attributes:
        params: its sampling parameters, as in :class:`~pyggml.generation.pending_request.PendingRequest`.
        stop_token_ids: all tokens that end it.
        timeout_s: its time limit, counted from now; None: no limit.
        watched: whether somebody reads its tokens as they come.
    """

    params: SamplingParams
    stop_token_ids: list[int]
    timeout_s: float | None
    watched: bool


# --- to the process ---------------------------------------------------------------------------------------------


def said(**fields: object) -> bytes:
    """The bytes of a call."""
    return json.dumps(fields, default=_as_json).encode()


def heard(data: bytes) -> dict[str, Any]:
    """The fields of a call."""
    fields: dict[str, Any] = json.loads(data)
    return fields


def loading(options: LoadOptions) -> dict[str, Any]:
    """The options that the process loads with."""
    return {name: getattr(options, name) for name in _LOADING}


def asking(request: PendingRequest, timeout_s: float | None) -> bytes:
    """The bytes that stand for an :class:`Asked`."""
    params = request.params
    changed = {name: value for name, field in _SAMPLING.items() if (value := getattr(params, name)) != field.default}
    if params.logit_bias:
        changed["logit_bias"] = [(int(token_id), float(bias)) for token_id, bias in params.logit_bias.items()]
    return said(params=changed, stop=request.stop_token_ids, timeout_s=timeout_s, watched=request.is_streamed)


def asked(data: bytes) -> Asked:
    """What :func:`asking` says."""
    fields = heard(data)
    values = fields["params"]
    if "logit_bias" in values:
        values["logit_bias"] = dict(values["logit_bias"])
    if isinstance(values.get("grammar"), dict):
        values["grammar"] = Grammar(**values["grammar"])
    return Asked(SamplingParams(**values), fields["stop"], fields["timeout_s"], fields["watched"])


def _as_json(value: object) -> object:
    if isinstance(value, Grammar):
        return dataclasses.asdict(value)
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):  # of numpy
        return value.tolist()
    return list(value)  # type: ignore[call-overload]


# --- from the process -------------------------------------------------------------------------------------------


def message(fields: Mapping[str, object], array: bytes | memoryview = b"") -> bytes:
    """A message of an answer: fields, and the bytes of an array."""
    text = json.dumps(fields).encode()
    return b"".join((_LENGTH.pack(len(text)), text, array))


def failed(error: InferError) -> bytes:
    """The message that raises the error in the program."""
    details = {name: getattr(error, name) for name in _DETAILS if hasattr(error, name)}
    return message({"error": type(error).__name__, "text": str(error), "details": details})


def taken_apart(data: memoryview) -> tuple[dict[str, Any], memoryview]:
    """The fields of a message, and its array, which shares the message's memory.

    Raises:
        InferError: the one that the message stands for; EngineError: it stands for nothing.
    """
    try:
        (length,) = _LENGTH.unpack_from(data)
        fields = json.loads(bytes(data[_LENGTH.size : _LENGTH.size + length]))
        if not isinstance(fields, dict):
            raise ValueError("not an object")
        error = _error_of(fields) if "error" in fields else None
    except (struct.error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise EngineError(f"the engine's process sent what makes no sense ({error})") from None
    if error is not None:
        raise error
    return fields, data[_LENGTH.size + length :]


def _error_of(fields: Mapping[str, Any]) -> InferError:
    kind = getattr(errors, str(fields["error"]), None)
    if not (isinstance(kind, type) and issubclass(kind, InferError)):
        kind = EngineError
    error = kind(str(fields["text"]))
    for name, value in dict(fields.get("details", {})).items():
        if name in _DETAILS and hasattr(error, name):
            setattr(error, name, int(value))
    return error
