"""Results as JSON values, in a plain form or in that of OpenAI's API."""

from __future__ import annotations

import codecs
import dataclasses
import math
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypedDict, TypeVar, cast, overload

from pyggml._core.checks import invalid, shown
from pyggml._core.hints import Record

if TYPE_CHECKING:
    from typing_extensions import Unpack


R = TypeVar("R", bound="Result")

# JSON has no infinity; OpenAI's API writes this for a token of probability 0.
_NEVER = -9999.0


class NamesTokens(Protocol):
    """The part of a tokenizer that names tokens."""

    def piece(self, token_id: int) -> bytes:
        """Return the bytes that a token adds to a text; special tokens add none.

        Args:
            token_id: the token.
        """

    def decode(self, token_ids: Sequence[int], *, remove_special: bool) -> str:
        """Convert token ids to text, with the names of special tokens.

        Args:
            token_ids: the tokens.
            remove_special: leave out special tokens.
        """


class Logprob(Protocol):
    """A token and the logarithm of its probability."""

    @property
    def token_id(self) -> int: ...

    @property
    def logprob(self) -> float: ...


class Logprobs(Logprob, Protocol):
    """A logprob, with the most likely tokens at its position."""

    @property
    def top(self) -> Sequence[Logprob]: ...


class JSONReady:
    """A dataclass with a plain form."""

    #: Names of properties that its plain form has too.
    _derived: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and properties as JSON values."""
        return plain_fields(self)


@dataclasses.dataclass(frozen=True)
class Origin:
    """The request of a result, as OpenAI's form names it. All chunks of a stream and its completion have the same.

    Attributes:
        model: the model's name.
        id: a random id, without OpenAI's prefix.
        created: when the result began, in seconds since 1970.
    """

    model: str = ""
    id: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)
    created: int = dataclasses.field(default_factory=lambda: int(time.time()))


class Envelope(TypedDict, total=False):
    """The fields of OpenAI's form that may replace a result's own.

    Attributes:
        id: the request's id, which all chunks of a stream share.
        model: the model's name; that of its file if it is left out.
        created: when the request was made, in seconds since 1970; when its result began if it is left out.
        index: the number of the choice; 0 if it is left out.
        tokenizer: gives logprobs the texts of tokens, such as ``llm.tokenizer``. Without one they are written
            ``token_id:42``, as in vLLM.
    """

    id: str
    model: str
    created: int
    index: int
    tokenizer: NamesTokens


class Result(Record):
    """A completion or a chunk of one: a dataclass with a plain form and OpenAI's."""

    #: OpenAI's name of such an object, and the prefix of its ids.
    _openai: ClassVar[tuple[str, str]]
    #: The request that it belongs to; None if the caller made it.
    _origin: Origin | None
    #: The form of its output that was requested; None if none was.
    _json_schema: Any

    def _keep(self, **private: Any) -> None:
        """Set attributes that are no fields."""
        for name, value in private.items():
            object.__setattr__(self, name, value)

    @overload
    def to_dict(self, form: Literal["plain"] = "plain") -> dict[str, Any]: ...

    @overload
    def to_dict(self, form: Literal["openai"], **envelope: Unpack[Envelope]) -> dict[str, Any]: ...

    def to_dict(self, form: str = "plain", **envelope: Unpack[Envelope]) -> dict[str, Any]:
        """Return the result as JSON values, ready for :func:`json.dumps`.

        Args:
            form: "plain": the attributes by name. "openai": the object that OpenAI's API would send, with vLLM's
                ``stop_reason``. It has no finish reason for a generation that was cancelled or timed out, which is
                "length" there, with the ``stop_reason`` "cancelled" or "timeout".
            **envelope: for "openai": ``id``, ``model``, ``created``, ``index``, the choice's number, and the
                ``tokenizer`` that names the tokens of logprobs (without one they are ``token_id:42``).

        Raises:
            InvalidParameterError: there is no such form, or the plain one was requested with an envelope.
        """
        if not isinstance(form, str):
            raise invalid(f"form must be 'plain' or 'openai', not {shown(form)}")
        if form == "openai" and not envelope.keys() <= Envelope.__annotations__.keys():
            other = next(name for name in envelope if name not in Envelope.__annotations__)
            raise invalid(f"to_dict('openai') has no parameter {other!r}; it has {', '.join(Envelope.__annotations__)}")
        if form == "openai":
            return self._in_openais_form(**envelope)
        if form != "plain":
            raise invalid(f"form must be 'plain' or 'openai', not {form!r}")
        if envelope:
            raise invalid(f"{', '.join(envelope)} are for to_dict('openai')")
        return plain_fields(self)

    def _in_openais_form(
        self,
        *,
        id: str = "",
        model: str | None = None,
        created: int | None = None,
        index: int = 0,
        tokenizer: NamesTokens | None = None,
    ) -> dict[str, Any]:
        kind, prefix = self._openai
        origin = self._origin or Origin()
        return {
            "id": id or f"{prefix}-{origin.id}",
            "object": kind,
            "created": origin.created if created is None else created,
            "model": origin.model if model is None else model,
            "choices": [{"index": index, **self._choice(tokenizer)}],
            **self._usage(),
        }

    def _choice(self, tokenizer: NamesTokens | None) -> dict[str, Any]:
        """Return the only choice, in OpenAI's form."""
        raise NotImplementedError

    def _usage(self) -> dict[str, Any]:
        """Return the token counts in OpenAI's form; empty for a chunk."""
        return {}


def changed(result: R, **changes: Any) -> R:
    """Copy a result with other values of some fields, and with what it keeps in addition."""
    copy: R = dataclasses.replace(cast(Any, result), **changes)
    copy._keep(**{name: value for name, value in vars(result).items() if name.startswith("_")})
    return copy


# --- plain --------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Return a value as JSON values: dataclasses and named tuples become objects, keys and paths text."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain_fields(value)
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, (tuple, list)):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return _NEVER if value == -math.inf else value
    return str(value) if isinstance(value, Path) else value


def plain_fields(value: Any) -> dict[str, Any]:
    """Return the public fields of a dataclass, and the properties in its ``_derived``, as JSON values."""
    names = [each.name for each in dataclasses.fields(value) if not each.name.startswith("_")]
    return {name: plain(getattr(value, name)) for name in (*names, *getattr(value, "_derived", ()))}


# --- OpenAI ------------------------------------------------------------------------------------------------------


def end(reason: str | None, stop_reason: str | int | None) -> dict[str, Any]:
    """Return OpenAI's name of a finish reason, and for a result that has ended vLLM's field, which says more."""
    if reason is None:
        return {"finish_reason": None}
    if reason in ("cancelled", "timeout"):
        return {"finish_reason": "length", "stop_reason": reason}
    return {"finish_reason": reason, "stop_reason": stop_reason}


def text_logprobs(logprobs: Sequence[Logprobs] | None, tokenizer: NamesTokens | None) -> dict[str, Any] | None:
    """Return the logprobs of a completion."""
    if logprobs is None:
        return None
    return {
        "tokens": [_text(each.token_id, tokenizer) for each in logprobs],
        "token_logprobs": [plain(each.logprob) for each in logprobs],
        "top_logprobs": [_alternatives(each, tokenizer) for each in logprobs],
        "text_offset": TextOffsets(tokenizer).of(logprobs),
    }


def _alternatives(entry: Logprobs, tokenizer: NamesTokens | None) -> dict[str, Any]:
    """Return the most likely tokens and, as in OpenAI's API, the token itself; of equal names the more likely token."""
    if not entry.top:
        return {}
    own = _text(entry.token_id, tokenizer)
    found: dict[str, Any] = {}
    for top in entry.top:
        name = own if top.token_id == entry.token_id else _name(top.token_id, tokenizer)
        found.setdefault(name, plain(top.logprob))
    found[own] = plain(entry.logprob)
    return found


class TextOffsets:
    """Offsets of consecutive tokens in their text, in characters. A token within a character has that one's offset."""

    def __init__(self, tokenizer: NamesTokens | None) -> None:
        """Begin at the start of the text.

        Args:
            tokenizer: the model's tokenizer; None: the offsets are those of the tokens' numbers as text.
        """
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._n_characters = 0

    def of(self, tokens: Sequence[Logprob]) -> list[int]:
        """Return the offsets of the next tokens.

        Args:
            tokens: the tokens, as in ``logprobs``.
        """
        return [self._next(each.token_id) for each in tokens]

    def _next(self, token_id: int) -> int:
        piece = _text(token_id, None).encode() if self._tokenizer is None else self._tokenizer.piece(token_id)
        if piece and piece[0] & 0xC0 != 0x80:  # it does not continue a character, which would then be U+FFFD
            self._n_characters += len(self._decoder.decode(b"", final=True))
        offset = self._n_characters
        self._n_characters += len(self._decoder.decode(piece))
        return offset


def chat_logprobs(logprobs: Sequence[Logprobs] | None, tokenizer: NamesTokens | None) -> dict[str, Any] | None:
    """Return the logprobs of a chat completion."""
    if logprobs is None:
        return None
    content = [
        {**_token(each, tokenizer), "top_logprobs": [_token(top, tokenizer) for top in each.top]} for each in logprobs
    ]
    return {"content": content, "refusal": None}


def _token(entry: Logprob, tokenizer: NamesTokens | None) -> dict[str, Any]:
    piece = None if tokenizer is None else tokenizer.piece(entry.token_id)
    return {
        "token": f"token_id:{entry.token_id}" if piece is None else piece.decode("utf-8", "replace"),
        "bytes": None if piece is None else list(piece),
        "logprob": plain(entry.logprob),
    }


def _text(token_id: int, tokenizer: NamesTokens | None) -> str:
    r"""Return the text of a token; part of a character as OpenAI writes it, ``bytes:\xe2\x82``."""
    if tokenizer is None:
        return f"token_id:{token_id}"
    piece = tokenizer.piece(token_id)
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


def _name(token_id: int, tokenizer: NamesTokens | None) -> str:
    """Return the text of a token, or the name of a special one, which has no text."""
    text = _text(token_id, tokenizer)
    return text if text or tokenizer is None else tokenizer.decode([token_id], remove_special=False)
