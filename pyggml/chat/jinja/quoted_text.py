"""Text that knows which of its characters come from a message, whatever a template does to it."""

# ruff: noqa: D102  # the methods of str need no documentation

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, SupportsIndex

if TYPE_CHECKING:
    from typing_extensions import Self

_OWN, _QUOTED = b"\0", b"\1"
_SAME_CASE = ("upper", "lower", "capitalize", "casefold", "swapcase", "title")
_PADDING = ("center", "ljust", "rjust", "zfill")


class QuotedText(str):
    """A string with one flag per character: True if the character comes from a message.

    Methods that move or copy characters move their flags along. The result of any other method counts as quoted as a
    whole, so that nothing from a message is ever taken for the template's own text.
    """

    __slots__ = ("_flags",)  # templates cannot read attributes with an underscore
    _flags: bytes

    def __new__(cls, text: str = "", flags: bytes | None = None) -> Self:
        """Combine a text with its flags; None: all of it comes from a message."""
        made = super().__new__(cls, text)
        made._flags = _QUOTED * len(text) if flags is None else flags
        return made

    def __str__(self) -> QuotedText:
        return self

    def __repr__(self) -> str:
        return QuotedText(super().__repr__())

    def __format__(self, spec: str) -> str:
        return QuotedText(super().__format__(spec))

    def __deepcopy__(self, memo: object) -> QuotedText:
        return self

    def __getnewargs__(self) -> tuple[str, bytes]:  # type: ignore[override]
        return str.__str__(self), self._flags

    def __getitem__(self, key: SupportsIndex | slice) -> QuotedText:
        text = super().__getitem__(key)
        return QuotedText(text, self._flags[key] if isinstance(key, slice) else bytes((self._flags[key],)))

    def __iter__(self) -> Iterator[str]:
        return (QuotedText(char, bytes((flag,))) for char, flag in zip(super().__iter__(), self._flags, strict=True))

    def __add__(self, other: str) -> str:
        return concatenated((self, other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> str:
        return concatenated((other, self)) if isinstance(other, str) else NotImplemented

    def __mul__(self, n: SupportsIndex) -> QuotedText:
        return QuotedText(super().__mul__(n), self._flags * n)

    __rmul__ = __mul__

    def __mod__(self, value: Any) -> QuotedText:
        return QuotedText(super().__mod__(value))

    def __rmod__(self, template: str) -> QuotedText:
        return QuotedText(str.__mod__(template, self))

    def lstrip(self, chars: str | None = None) -> QuotedText:
        return self[len(self) - len(super().lstrip(chars)) :]

    def rstrip(self, chars: str | None = None) -> QuotedText:
        return self[: len(super().rstrip(chars))]

    def strip(self, chars: str | None = None) -> QuotedText:
        return self.rstrip(chars).lstrip(chars)

    def removeprefix(self, prefix: str) -> QuotedText:
        return self[len(self) - len(super().removeprefix(prefix)) :]

    def removesuffix(self, suffix: str) -> QuotedText:
        return self[: len(super().removesuffix(suffix))]

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._parts(super().split(sep, maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._parts(super().rsplit(sep, maxsplit), sep)

    def splitlines(self, keepends: bool = False) -> list[str]:
        lines, start = [], 0
        for whole, line in zip(super().splitlines(True), super().splitlines(keepends), strict=True):
            lines.append(self[start : start + len(line)])
            start += len(whole)
        return list[str](lines)

    def partition(self, sep: str) -> tuple[str, str, str]:
        return self._around(len(super().partition(sep)[0]), sep)

    def rpartition(self, sep: str) -> tuple[str, str, str]:
        before, found, _ = super().rpartition(sep)
        return self._around(len(before), sep) if found else (QuotedText(), QuotedText(), self)

    def replace(self, old: str, new: str, count: SupportsIndex = -1) -> str:
        n = int(count)
        if not old or n == 0:  # an empty text is found between all characters
            return QuotedText(super().replace(old, new, n)) if n else self
        parts: list[str] = []
        for i, part in enumerate(self.split(old, n)):
            parts += [new, part] if i else [part]
        return concatenated(parts)

    def join(self, parts: Iterable[str]) -> str:
        joined: list[str] = []
        for i, part in enumerate(parts):
            joined += [self, part] if i else [part]
        return concatenated(joined)

    def _parts(self, parts: list[str], separator: str | None) -> list[str]:
        """Give the parts that a method split this text into their flags."""
        found: list[str] = []
        start = 0
        for part in parts:
            if separator is None:  # any white space, of which a part has none at its start
                start = self.find(part, start)
            found.append(self[start : start + len(part)])
            start += len(part) + len(separator or "")
        return found

    def _around(self, n_before: int, separator: str) -> tuple[str, str, str]:
        behind = n_before + len(separator)
        return self[:n_before], self[n_before:behind], self[behind:]


def _same_case(name: str) -> Callable[[QuotedText], QuotedText]:
    change: Callable[[str], str] = getattr(str, name)

    def method(self: QuotedText) -> QuotedText:
        text = change(self)
        return QuotedText(text, self._flags if len(text) == len(self) else None)

    return method


def _padding(name: str) -> Callable[..., QuotedText]:
    pad: Callable[..., str] = getattr(str, name)

    def method(self: QuotedText, *args: Any) -> QuotedText:
        text = pad(self, *args)
        start = text.find(self) if name != "zfill" else -1
        if start < 0:
            return QuotedText(text)
        behind = len(text) - start - len(self)
        return QuotedText(text, _OWN * start + self._flags + _OWN * behind)

    return method


def _as_a_whole(name: str) -> Callable[..., QuotedText]:
    change: Callable[..., str] = getattr(str, name)
    return lambda self, *args, **kwargs: QuotedText(change(self, *args, **kwargs))


for _name in _SAME_CASE:
    setattr(QuotedText, _name, _same_case(_name))
for _name in _PADDING:
    setattr(QuotedText, _name, _padding(_name))
for _name in ("expandtabs", "format", "format_map", "translate"):
    setattr(QuotedText, _name, _as_a_whole(_name))


def concatenated(parts: Iterable[str]) -> str:
    """Concatenate texts; the result is a :class:`QuotedText` if one of them is."""
    parts = list(parts)
    text = "".join(parts)
    if not any(isinstance(part, QuotedText) for part in parts):
        return text
    return QuotedText(text, b"".join(map(flags_of, parts)))


def flags_of(text: str) -> bytes:
    """The flags of each character of a text; those of a plain string are all False."""
    return text._flags if isinstance(text, QuotedText) else _OWN * len(text)


def holds_quoted(value: Any) -> bool:
    """Return True if a value is a :class:`QuotedText`, or a container with one anywhere in it."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, QuotedText):
            return True
        if isinstance(value, Mapping):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, (list, tuple, set)):
            waiting += value
    return False


def json_text(
    value: Any,
    *,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Convert a value to JSON text, as :func:`json.dumps` does; what is quoted in it stays so."""
    plain = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    if not holds_quoted(value):
        return plain.encode(value)
    margin = " " * indent if isinstance(indent, int) else indent
    return concatenated(_JSONText(plain, margin).parts(value))


class _JSONText:
    """A JSON encoder that keeps the flags of quoted texts."""

    def __init__(self, plain: json.JSONEncoder, margin: str | None) -> None:
        self._plain = plain
        self._margin = margin

    def parts(self, value: Any, level: int = 0) -> Iterator[str]:
        """The parts of a value's JSON text."""
        if isinstance(value, str):
            yield self._string(value)
        elif isinstance(value, Mapping):
            items = sorted(value.items()) if self._plain.sort_keys else value.items()
            members: list[tuple[tuple[str, ...], Any]] = [
                ((self._key(key), self._plain.key_separator), item) for key, item in items
            ]
            yield from self._container("{}", members, level)
        elif isinstance(value, (list, tuple)):
            yield from self._container("[]", [((), item) for item in value], level)
        else:
            yield self._plain.encode(value)

    def _container(self, brackets: str, members: list[tuple[tuple[str, ...], Any]], level: int) -> Iterator[str]:
        indented = self._margin is not None and bool(members)
        line = f"\n{self._margin}" if indented else ""
        yield brackets[0]
        for i, (key, item) in enumerate(members):
            yield (self._plain.item_separator if i else "") + line + (self._margin or "") * level * indented
            yield from key
            yield from self.parts(item, level + 1)
        yield (f"\n{(self._margin or '') * level}" if indented else "") + brackets[1]

    def _key(self, key: Any) -> str:
        if isinstance(key, str):
            return self._string(key)
        (text,) = json.loads(json.dumps({key: 0}))  # numbers, True and None have names of their own
        return self._string(text)

    def _string(self, text: str) -> str:
        encoded = self._plain.encode(str.__str__(text))
        if not isinstance(text, QuotedText):
            return encoded
        lengths = [len(self._plain.encode(char)) - 2 for char in str.__str__(text)]
        flags = b"".join(bytes((flag,)) * n for flag, n in zip(text._flags, lengths, strict=True))
        return QuotedText(encoded, _OWN + flags + _OWN)
