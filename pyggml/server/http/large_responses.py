"""Answers with a long list, which are written beside the event loop without holding it up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from starlette.responses import Response

from pyggml.server.protocols.endpoint import as_json

T = TypeVar("T")

# Numbers or small objects that are written within a few milliseconds.
_SLICE = 4096


def long_answer(name: str, slices: Iterable[list[Any]], **others: Any) -> Response:
    """A JSON object with a long list.

    json.dumps() of a whole list keeps every other thread waiting until it is done, since it is one call of C.

    Args:
        name: what the object calls the list.
        slices: the parts of the list, each of which is made and written within a few milliseconds.
        **others: what else is in the object.
    """
    parts = b",".join(as_json(each).encode()[1:-1] for each in slices if each)
    rest = as_json(others).encode()[1:]
    return Response(
        b"{%b:[%b]%b%b" % (as_json(name).encode(), parts, b"," if others else b"", rest), media_type="application/json"
    )


def sliced(items: list[T]) -> Iterator[list[T]]:
    """The items of a long list, a slice at a time."""
    for start in range(0, len(items), _SLICE):
        yield items[start : start + _SLICE]
