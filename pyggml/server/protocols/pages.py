"""Pages of lists, as clients of OpenAI's and Anthropic's APIs ask for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MAX_DIGITS = 10


def page(items: list[dict[str, Any]], query: Mapping[str, str], cursor: str) -> dict[str, Any]:
    """Return a page of a list: at most ``limit`` items, those after or before one of them.

    Args:
        items: the items, each with an ID.
        query: the query of the request.
        cursor: its field for the ID of the item before the page; ``before_id`` is that for the item after the page.
    """
    ids = [item["id"] for item in items]
    limit = int(query["limit"]) if query.get("limit", "").isdecimal() and len(query["limit"]) < _MAX_DIGITS else None
    first, last = 0, len(items)
    if query.get(cursor) in ids:
        first = ids.index(query[cursor]) + 1
    if query.get("before_id") in ids:
        last = ids.index(query["before_id"])
        first = first if limit is None else max(first, last - limit)
        has_more = first > 0
    else:
        last = last if limit is None else min(last, first + limit)
        has_more = last < len(items)
    found = items[first:last]
    return {
        "data": found,
        "first_id": found[0]["id"] if found else None,
        "last_id": found[-1]["id"] if found else None,
        "has_more": has_more,
    }
