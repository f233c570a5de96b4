"""Reads and validates bodies, within limits."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import anyio
from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import DictSchema, no_info_before_validator_function
from starlette.requests import ClientDisconnect, Request

from pyggml.server.http import errors
from pyggml.server.http.errors import ClientGone, Failure, RequestError

Model = TypeVar("Model", bound=BaseModel)

#: From this size on, parsing takes longer than about a millisecond and must not run in the event loop.
LONG_BYTES = 32_768
# Who sends faster has all the time that a large body takes; who sends a byte now and then does not.
_SLOWEST_BYTES_PER_S = 10_000
# An empty list takes three bytes of JSON and 64 of memory; this many are a megabyte at most for each kind.
_MAX_CONTAINERS = 100_000
# Lists of token ids are as long as a long context; the others are of what people write.
_MAX_IDS = 2**20
_MAX_ITEMS = 4096
# Not every version of pydantic that we take knows it for mappings.
_FAIL_FAST = {
    "list": {"fail_fast": True},
    "dict": {"fail_fast": True} if "fail_fast" in DictSchema.__annotations__ else {},
}


def _integer(value: Any) -> Any:
    """Refuses what pydantic would read as an integer: true, false and texts."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("int_type", "Input should be a valid integer")
    return value


def _number(value: Any) -> Any:
    """The same for numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("float_type", "Input should be a valid number")
    return value


_CHECKS = {"int": _integer, "float": _number}


def _bound(schema: Any) -> None:
    """Bounds every list and mapping in a schema that says nothing itself, and has numbers and bools be just that."""
    if isinstance(schema, list | tuple):
        for each in schema:
            _bound(each)
    if not isinstance(schema, dict) or _is_checked(schema):
        return
    if schema.get("type") in (*_CHECKS,):  # it may be a field of that name
        number = dict(schema)
        schema.clear()
        schema.update(no_info_before_validator_function(_CHECKS[number["type"]], number))
        return
    if schema.get("type") == "bool":
        schema["strict"] = True
    if schema.get("type") in ("list", "dict"):
        is_ids = schema.get("items_schema", {}).get("type") == "int"
        if is_ids:
            schema["items_schema"]["strict"] = True  # checked without Python, which a million ids would keep busy
        schema.setdefault("max_length", _MAX_IDS if is_ids else _MAX_ITEMS)
        # A description of each of a million wrong items would take gigabytes.
        schema.update(_FAIL_FAST[schema["type"]])
    for name, each in schema.items():
        if name != "keys_schema" and not (name == "items_schema" and isinstance(each, dict) and each.get("strict")):
            _bound(each)  # keys are texts in JSON, whatever they stand for


def _is_checked(schema: dict[str, Any]) -> bool:
    """Whether it is a number's that has its check."""
    return schema.get("type") == "function-before" and schema["function"].get("function") in _CHECKS.values()


class Body(BaseModel):
    """A body whose unknown fields are ignored, as the API's own server ignores them, and whose lists end somewhere."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True, protected_namespaces=())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Bounds every list and mapping that says nothing itself; one wrong item is enough to refuse it."""
        schema = handler(source)
        _bound(schema)
        return schema


async def read_body(request: Request, model: type[Model], max_bytes: int, timeout_s: float) -> tuple[Model, bool]:
    """Reads a body and validates it. Returns, too, whether it is long: whatever looks at all of it belongs in a thread.

    Args:
        request: the request.
        model: what its body must be.
        max_bytes: size of the largest body; nothing behind it is read.
        timeout_s: seconds within which it must have come, at a rate that any network has.

    Raises:
        ClientGone: the client left before it had sent everything.
        RequestError: 408, it did not come in time; 413, it is too large; 415, it is compressed.
        ValidationError: it is not JSON, or does not validate.
    """
    coding = request.headers.get("content-encoding", "")
    if coding.lower() not in ("", "identity"):
        message = f"the body is encoded as {coding!r:.80}, and bodies are read as they are: send it without that"
        raise RequestError(Failure(415, "invalid", message, "unsupported_encoding"))
    raw = await received(request, max_bytes, timeout_s)
    if len(raw) < LONG_BYTES:
        return _parsed(model, raw), False
    return await asyncio.to_thread(_validated, model, raw), True


async def received(request: Request, max_bytes: int, timeout_s: float) -> bytes:
    """Reads a body; arguments and errors are those of :func:`read_body`, which looks into it."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > max_bytes:
        raise _too_large(max_bytes)
    parts, size = [], 0
    try:
        with anyio.fail_after(timeout_s) as limit:
            async for part in request.stream():
                size += len(part)
                if size > max_bytes:
                    raise _too_large(max_bytes)
                parts.append(part)
                limit.deadline += len(part) / _SLOWEST_BYTES_PER_S
    except TimeoutError:
        message = f"the body took more than {timeout_s:g} s beyond what a slow network needs"
        raise RequestError(Failure(408, "timeout", message, "body_timeout")) from None
    except ClientDisconnect:
        raise ClientGone from None
    return b"".join(parts)


def _validated(model: type[Model], raw: bytes) -> Model:
    if raw.count(b"[") + raw.count(b"{") > _MAX_CONTAINERS:
        message = f"the body has more than {_MAX_CONTAINERS} lists and objects: send less in one request"
        raise RequestError(Failure(413, "too_large", message, "body_too_complex"))
    return _parsed(model, raw)


# Pydantic reads them, and no answer that repeats them could be written.
_MAY_BE_NO_NUMBER = re.compile(rb"NaN|Infinity|[eE]\+?[0-9]{3}|[0-9]{300}")


def _parsed(model: type[Model], raw: bytes) -> Model:
    body = model.model_validate_json(raw)
    if _MAY_BE_NO_NUMBER.search(raw):  # or a text
        try:
            json.loads(raw, parse_constant=_finite, parse_float=_finite)
        except ValueError as error:
            raise errors.invalid(f"the body has a number that JSON cannot hold: {error}") from None
    return body


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number:.40}")
    return value


def _too_large(max_bytes: int) -> RequestError:
    message = f"the body is larger than the {max_bytes} bytes that this server reads: send less in one request"
    return RequestError(Failure(413, "too_large", message, "body_too_large"))


# More of a text than any tokenizer puts into a token on average; and what schemas and grammars for people's forms have.
_MAX_TOKEN_CHARS = 64
_MAX_GRAMMAR_CHARS = 256 * 1024
_GRAMMARS = ("json_schema", "response_format", "grammar", "tools")


def require_fitting(n_ctx: int, texts: Iterable[object]) -> None:
    """Refuses a text that cannot fit into the context, which would take seconds to tokenize.

    Args:
        n_ctx: tokens that the context holds.
        texts: of which each must fit; those in token ids are quick to refuse anyway.

    Raises:
        RequestError: 400, a text cannot fit.
    """
    longest = max((len(text) for text in texts if isinstance(text, str)), default=0)
    if longest > n_ctx * _MAX_TOKEN_CHARS:
        message = f"the text has {longest} characters, which the {n_ctx} tokens of the context cannot hold: shorten it"
        raise errors.invalid(message, code="context_length_exceeded")


def require_reasonable(n_ctx: int, prompts: Iterable[object], options: Mapping[str, Any]) -> None:
    """Refuses at once what would be refused in the end, after seconds or minutes of work.

    Args:
        n_ctx: tokens that the context holds.
        prompts: as for :func:`require_fitting`.
        options: parameters of a request, of which grammars, schemas and tools are bounded.

    Raises:
        RequestError: 400, a prompt cannot fit, or a grammar is too large.
    """
    require_fitting(n_ctx, prompts)
    for name in _GRAMMARS:
        value = options.get(name)
        size = len(value) if isinstance(value, str) else len(json.dumps(value, default=str))
        if size > _MAX_GRAMMAR_CHARS:
            message = f"{name} has {size} characters, and may have {_MAX_GRAMMAR_CHARS} in one request: make it smaller"
            raise errors.invalid(message, name, "grammar_too_large")
