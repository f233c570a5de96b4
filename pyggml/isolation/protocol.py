"""Requests to the engine's process and its replies: JSON and arrays, without executable data."""

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
from pyggml.generation.request_options import ReasoningTokens
from pyggml.options import LoadOptions
from pyggml.types import Grammar, SamplingParams

if TYPE_CHECKING:
    from pyggml.generation.pending_request import PendingRequest

_LENGTH = struct.Struct("<I")

# Options that the program handles.
_OWN_OPTIONS = ("source", "tokenizer", "outtype", "progress", "chat_template", "max_queue", "queue_full", "isolate")
#: Options that the engine's process needs.
_LOAD_OPTIONS = [name for name in fields_of(LoadOptions) if name not in (*_OWN_OPTIONS, "lora")]
# Parameters that are in other fields of a PendingRequest, or concern only texts.
_FORMATS = ("json_schema", "json_schema_options", "choices", "regex")
_NOT_SENT = ("stop", "stop_token_ids", "ignore_eos", *_FORMATS, "timeout_s", "logits_processor", "adapter")
_PARAMETERS = {name: field for name, field in fields_of(SamplingParams).items() if name not in _NOT_SENT}

#: Attributes of errors besides their message.
_ERROR_DETAILS = ("required_bytes", "available_bytes", "is_temporary")


class GenerationRequest(NamedTuple):
    """A request to generate, without its prompt. It is ``watched`` if its tokens are read as they are generated."""

    params: SamplingParams
    stop_token_ids: list[int]
    timeout_s: float | None
    watched: bool
    reasoning: ReasoningTokens | None


# --- requests ---------------------------------------------------------------------------------------------------


def encode_request(method: str, **arguments: object) -> bytes:
    """Encode a call of a method of the worker."""
    return _encode({"method": method, **arguments})


def decode_request(data: bytes) -> tuple[str, dict[str, Any]]:
    """Decode a call: the method and its arguments."""
    arguments: dict[str, Any] = json.loads(data)
    return arguments.pop("method"), arguments


def load_options(options: LoadOptions) -> dict[str, Any]:
    """Return the options that the process loads the model with."""
    return {name: getattr(options, name) for name in _LOAD_OPTIONS}


def encode_generation(request: PendingRequest, timeout_s: float | None, adapters: Mapping[str, float]) -> bytes:
    """Encode a :class:`GenerationRequest`, with adapters by their names in the process."""
    params = request.params
    changed = {name: value for name, field in _PARAMETERS.items() if (value := getattr(params, name)) != field.default}
    changed["adapter"] = adapters
    if params.logit_bias:
        changed["logit_bias"] = [(int(token_id), float(bias)) for token_id, bias in params.logit_bias.items()]
    fields = {"params": changed, "stop": request.stop_token_ids, "timeout_s": timeout_s, "reasoning": request.reasoning}
    return _encode({**fields, "watched": request.is_streamed})


def decode_generation(data: bytes) -> GenerationRequest:
    """Decode a request of :func:`encode_generation`."""
    fields = json.loads(data)
    values = fields["params"]
    if "logit_bias" in values:
        values["logit_bias"] = dict(values["logit_bias"])
    if isinstance(values.get("grammar"), dict):
        values["grammar"] = Grammar(**values["grammar"])
    reasoning = fields["reasoning"] and ReasoningTokens(*fields["reasoning"])
    return GenerationRequest(
        SamplingParams(**values), fields["stop"], fields["timeout_s"], fields["watched"], reasoning
    )


def _encode(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, default=_as_json).encode()


def _as_json(value: object) -> object:
    if isinstance(value, Grammar):
        return dataclasses.asdict(value)
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):  # a NumPy array or scalar
        return value.tolist()
    return list(value)  # type: ignore[call-overload]


# --- replies ----------------------------------------------------------------------------------------------------


def encode_reply(fields: Mapping[str, object], array: bytes | memoryview = b"") -> bytes:
    """Encode a reply: fields, and the bytes of an array."""
    text = json.dumps(fields).encode()
    return b"".join((_LENGTH.pack(len(text)), text, array))


def encode_error(error: InferError) -> bytes:
    """Encode a reply that raises the error in the program."""
    details = {name: getattr(error, name) for name in _ERROR_DETAILS if hasattr(error, name)}
    return encode_reply({"error": type(error).__name__, "text": str(error), "details": details})


def decode_reply(data: memoryview) -> tuple[dict[str, Any], memoryview]:
    """Decode a reply: its fields, and its array, which shares the reply's memory.

    Raises:
        InferError: the reply is an error; EngineError: the reply is invalid.
    """
    try:
        (length,) = _LENGTH.unpack_from(data)
        fields = json.loads(bytes(data[_LENGTH.size : _LENGTH.size + length]))
        if not isinstance(fields, dict):
            raise ValueError("not an object")
        error = _decode_error(fields) if "error" in fields else None
    except (struct.error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise EngineError(f"the engine's process sent an invalid reply ({error})") from None
    if error is not None:
        raise error
    return fields, data[_LENGTH.size + length :]


def _decode_error(fields: Mapping[str, Any]) -> InferError:
    kind = getattr(errors, str(fields["error"]), None)
    if not (isinstance(kind, type) and issubclass(kind, InferError)):
        kind = EngineError
    error = kind(str(fields["text"]))
    for name, value in dict(fields.get("details", {})).items():
        if name in _ERROR_DETAILS and hasattr(error, name):
            setattr(error, name, int(value))
    return error
