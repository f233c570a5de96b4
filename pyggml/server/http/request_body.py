"""Request bodies: read and validate them within limits."""

from __future__ import annotations

import difflib
import functools
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Literal

import anyio
from pydantic import AliasChoices, BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import DictSchema, no_info_before_validator_function
from starlette.requests import ClientDisconnect, Request

from pyggml.options import FORMATS
from pyggml.server.http import errors
from pyggml.server.http.cpu_threads import CpuThreads
from pyggml.server.http.disconnects import ClientDisconnectedError
from pyggml.server.http.errors import Failure, RequestError
from pyggml.server.observability.logs import logger
from pyggml.server.settings.options import Settings

#: From this size on, parsing takes longer than about a millisecond and must not run in the event loop.
LONG_BYTES = 32_768
# A client that sends at this rate gets more time for a large body; a client that sends single bytes does not.
_MIN_BYTES_PER_S = 10_000
# Similarity of two names from which on one is probably a typo of the other, as difflib measures it.
_NEAR = 0.85
# Unknown fields of an object that are compared with the known ones: each takes a tenth of a millisecond.
_MAX_COMPARED = 20
# An empty list takes 3 bytes of JSON and 64 bytes of memory.
_MAX_CONTAINERS = 100_000
# Lists of token IDs can be as long as a long context; other lists are written by people.
_MAX_IDS = 2**20
_MAX_ITEMS = 4096
# Old supported versions of pydantic do not have it for mappings.
_FAIL_FAST = {
    "list": {"fail_fast": True},
    "dict": {"fail_fast": True} if "fail_fast" in DictSchema.__annotations__ else {},
}


def _number_check(kind: Literal["int", "float"], name: str) -> Callable[[Any], Any]:
    """Return a validator that refuses booleans and strings, which pydantic would convert to numbers."""

    def check(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise PydanticCustomError(f"{kind}_type", f"Input should be a valid {name}")
        return value

    return check


_CHECKS = {"int": _number_check("int", "integer"), "float": _number_check("float", "number")}


def _add_limits(schema: Any) -> None:
    """Limit the length of all lists and mappings in a schema, and make numbers and booleans strict."""
    if isinstance(schema, list | tuple):
        for each in schema:
            _add_limits(each)
    if not isinstance(schema, dict) or _is_checked(schema):
        return
    if schema.get("type") in (*_CHECKS,):  # "type" may also be a field of the model
        number = dict(schema)
        schema.clear()
        schema.update(no_info_before_validator_function(_CHECKS[number["type"]], number))
        return
    if schema.get("type") == "bool":
        schema["strict"] = True
    if schema.get("type") in ("list", "dict"):
        is_ids = schema.get("items_schema", {}).get("type") == "int"
        if is_ids:
            schema["items_schema"]["strict"] = True  # checked in Rust: Python is too slow for a million IDs
        schema.setdefault("max_length", _MAX_IDS if is_ids else _MAX_ITEMS)
        # An error for each of a million wrong items would take gigabytes.
        schema.update(_FAIL_FAST[schema["type"]])
    for name, each in schema.items():
        if name != "keys_schema" and not (name == "items_schema" and isinstance(each, dict) and each.get("strict")):
            _add_limits(each)  # keys are always strings in JSON, also those that stand for numbers


def _is_checked(schema: dict[str, Any]) -> bool:
    """Return True if a number's schema already has its check."""
    return schema.get("type") == "function-before" and schema["function"].get("function") in _CHECKS.values()


class Body(BaseModel):
    """A request body. It ignores unknown fields, as the original APIs do, and limits the length of lists.

    A null means the same as an absent field. An unknown field whose name looks misspelled is logged as a warning.
    """

    model_config = ConfigDict(extra="ignore", populate_by_name=True, protected_namespaces=())

    #: Fields that are not supported, and the message and code of the error.
    unsupported: ClassVar[Mapping[str, tuple[str, str]]] = {}

    #: Terms in messages of the library, such as names of arguments, and what requests have instead.
    terms: ClassVar[Mapping[str, str]] = {}

    #: A request without a body has one without fields.
    may_be_empty: ClassVar[bool] = False

    def require_supported(self) -> None:
        """Refuse unsupported fields.

        Raises:
            RequestError: 400, a field is not supported.
        """
        for name, (message, code) in self.unsupported.items():
            if getattr(self, name):
                raise errors.invalid(message, name, code)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        known = known_names(cls)
        for name in itertools.islice((name for name in given if name not in known), _MAX_COMPARED):
            _warn_of_typo(cls, str(name)[:_MAX_NAME])
        return {name: value for name, value in given.items() if value is not None}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Allow null for every field that may be left out, because it means the same."""
        schema = handler(core_schema)
        resolved = handler.resolve_ref_schema(schema)
        for name, field in resolved.get("properties", {}).items():
            if name not in resolved.get("required", ()):
                resolved["properties"][name] = _nullable(field)
        return schema

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Limit all lists and mappings that have no limit; validation of a list stops at its first wrong item."""
        schema = handler(source)
        _add_limits(schema)
        return schema


class StrictBody(Body):
    """A part of a body that refuses unknown fields, because ignoring them would change what the model reads."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, given: Any) -> Any:
        if isinstance(given, dict):
            require_known_fields(given, known_names(cls))
        return given


def require_known_fields(given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse unknown fields of an object, except nulls.

    Raises:
        ValueError: a field is unknown.
    """
    unknown = [name for name, value in given.items() if value is not None and name not in known]
    if unknown:
        raise ValueError(f"unknown field {unknown[0][:_MAX_NAME]!r}; known are {', '.join(known)}")


_MAX_NAME = 100


@functools.lru_cache(maxsize=1000)  # so that a client's repeated typo is logged once
def _warn_of_typo(cls: type[Body], name: str) -> None:
    near = difflib.get_close_matches(name, known_names(cls), n=1, cutoff=_NEAR)
    if near:
        logger.warning("a request has the unknown field %r, which is ignored: did it mean %r?", name, near[0])


@functools.cache
def known_names(cls: type[Body]) -> Mapping[str, None]:
    """Return the names of a body's fields, including other servers' names, in their order."""
    names = dict.fromkeys(cls.model_fields)
    for each in cls.model_fields.values():
        if isinstance(each.validation_alias, AliasChoices):
            names |= dict.fromkeys(map(str, each.validation_alias.choices))
        elif isinstance(each.validation_alias, str):
            names[each.validation_alias] = None
    return names


async def read_and_validate(
    request: Request, model: type[Body], settings: Settings, threads: CpuThreads
) -> tuple[Body, bool]:
    """Read and validate a body. Also return True if it is long: work on all of it then belongs in a thread.

    Raises:
        ClientDisconnectedError: the client disconnected before the end of the body.
        RequestError: 400, a field is not supported; 408, timeout; 413, the body is too large; 415, it is compressed.
        ValidationError: it is not JSON, or does not validate.
    """
    coding = request.headers.get("content-encoding", "")
    if coding.lower() not in ("", "identity"):
        message = f"Content-Encoding {coding!r:.80} is not supported: send the body uncompressed"
        raise RequestError(Failure(415, "invalid", message, "unsupported_encoding"))
    raw = await read_bytes(request, settings)
    if not raw and model.may_be_empty:
        raw = b"{}"
    if len(raw) < LONG_BYTES:
        return _parse(model, raw), False
    return await threads.run("bodies", _parse_long, model, raw), True


async def read_bytes(request: Request, settings: Settings) -> bytes:
    """Read a body without validating it; the errors are those of :func:`read_and_validate`.

    Nothing beyond the maximum size is read. A large body has more time to arrive, for slow networks.
    """
    max_bytes, timeout_s = settings.max_body_bytes, settings.body_timeout
    content_length = request.headers.get("content-length", "")
    if content_length.isdecimal() and int(content_length[:20]) > max_bytes:
        raise _too_large(max_bytes)
    parts, size = [], 0
    try:
        with anyio.fail_after(timeout_s) as limit:
            async for part in request.stream():
                size += len(part)
                if size > max_bytes:
                    raise _too_large(max_bytes)
                parts.append(part)
                limit.deadline += len(part) / _MIN_BYTES_PER_S
    except TimeoutError:
        message = f"the body did not arrive within {timeout_s:g} s plus 1 s per {_MIN_BYTES_PER_S} bytes"
        raise RequestError(Failure(408, "timeout", message, "body_timeout")) from None
    except ClientDisconnect:
        raise ClientDisconnectedError from None
    return b"".join(parts)


def _parse_long(model: type[Body], raw: bytes) -> Body:
    if raw.count(b"[") + raw.count(b"{") > _MAX_CONTAINERS:
        message = f"the body has more than {_MAX_CONTAINERS} lists and objects: send less in one request"
        raise RequestError(Failure(413, "too_large", message, "body_too_complex"))
    return _parse(model, raw)


# Pydantic accepts these numbers, but a response that repeats them could not be encoded.
_POSSIBLY_NOT_FINITE = re.compile(rb"NaN|Infinity|[eE]\+?[0-9]{3}|[0-9]{300}")
_MAX_MATCH = 300
# Bytes that are searched at a time: a search holds the GIL, in a large body for a quarter of a second.
_SEARCHED = 65_536


def _may_not_be_finite(raw: bytes) -> bool:
    starts = range(0, len(raw), _SEARCHED)
    return any(_POSSIBLY_NOT_FINITE.search(raw, start, start + _SEARCHED + _MAX_MATCH) for start in starts)


def _parse(model: type[Body], raw: bytes) -> Body:
    body = model.model_validate_json(raw)
    body.require_supported()
    if _may_not_be_finite(raw):  # it may also be in a string
        try:
            json.loads(raw, parse_constant=_finite, parse_float=_finite)
        except ValueError as error:
            raise errors.invalid(f"the body has a number that is not finite: {error}") from None
    return body


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number:.40}")
    return value


def _too_large(max_bytes: int) -> RequestError:
    message = f"the body exceeds the limit of {max_bytes} bytes: send less in one request"
    return RequestError(Failure(413, "too_large", message, "body_too_large"))


# More characters than any tokenizer puts into a token on average.
_MAX_TOKEN_CHARS = 64
# More characters than realistic schemas and grammars have.
_MAX_GRAMMAR_CHARS = 256 * 1024
_GRAMMARS = (*FORMATS, "response_format", "tools")


def require_fitting(n_ctx: int, texts: Iterable[object]) -> None:
    """Refuse texts that are too long for the context without tokenizing them, which would take seconds.

    Token IDs among the texts are skipped, as their length is checked quickly later.

    Raises:
        RequestError: 400, a text does not fit.
    """
    longest = max((len(text) for text in texts if isinstance(text, str)), default=0)
    if longest > n_ctx * _MAX_TOKEN_CHARS:
        message = f"the text has {longest} characters and does not fit into the context of {n_ctx} tokens: shorten it"
        raise errors.invalid(message, code="context_length_exceeded")


def require_tractable(n_ctx: int, prompts: Iterable[object], options: Mapping[str, Any]) -> None:
    """Refuse early what would otherwise fail after seconds or minutes of work.

    Raises:
        RequestError: 400, a prompt does not fit, or a grammar, schema or list of tools is too large.
    """
    require_fitting(n_ctx, prompts)
    for name in _GRAMMARS:
        value = options.get(name)
        size = len(value) if isinstance(value, str) else len(json.dumps(value, default=str))
        if size > _MAX_GRAMMAR_CHARS:
            message = f"{name} has {size} characters; the limit is {_MAX_GRAMMAR_CHARS}: make it smaller"
            raise errors.invalid(message, name, "grammar_too_large")


_NOTES = frozenset({"title", "description", "default", "deprecated"})


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that allows null, too."""
    if isinstance(schema.get("type"), str) and not {"enum", "const"} & schema.keys():
        return {**schema, "type": [schema["type"], "null"]}
    choices = schema.get("anyOf")
    if choices is not None:
        return schema if {"type": "null"} in choices else {**schema, "anyOf": [*choices, {"type": "null"}]}
    notes = {name: value for name, value in schema.items() if name in _NOTES}
    rest = {name: value for name, value in schema.items() if name not in _NOTES}
    return {**notes, "anyOf": [rest, {"type": "null"}]} if rest else schema
