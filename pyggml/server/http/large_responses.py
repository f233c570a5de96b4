"""Responses with a long list, encoded in a thread without blocking the event loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.responses import Response

from pyggml.server.http.sse import as_json

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

S = TypeVar("S", "list[Any]", "npt.NDArray[np.int32]")

# Numbers or small objects, encoded within a few milliseconds.
_SLICE = 4096


def large_json_response(name: str, slices: Iterable[list[Any]], **others: Any) -> Response:
    """Return a response with a JSON object: a long list called ``name``, and ``others``.

    json.dumps() of the whole list would hold the GIL until it is done; each slice takes a few milliseconds.
    """
    items = b",".join(as_json(each).encode()[1:-1] for each in slices if each)
    rest = as_json(others).encode()[1:]
    return Response(
        b"{%b:[%b]%b%b" % (as_json(name).encode(), items, b"," if others else b"", rest), media_type="application/json"
    )


def in_slices(items: S) -> Iterator[S]:
    """Yield the items of a long list or array in slices."""
    for start in range(0, len(items), _SLICE):
        yield items[start : start + _SLICE]
