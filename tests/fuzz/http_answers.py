"""Requirements for the server's responses, for every request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from pyggml.server.app import PROTOCOLS
from pyggml.server.http.errors import Failure, Problem
from pyggml.server.http.sse import EVENTS, LINES
from pyggml.server.protocols.endpoint import Protocol

#: What may come from 500 on: a probe, a queue or a limit of time that says so; never a failure of the server.
TEMPORARY = (503, 504)

_LEAST = Failure(400, "invalid", "x")
_MOST = Failure(400, "invalid", "x", "code", "param", (Problem("field", "wrong"),), 1, "id")


def require_answer(status: int, headers: Mapping[str, str], body: bytes) -> None:
    """Checks a whole answer: of which kind it is, that its pieces can be read, and that what failed is said in form."""
    assert status < 500 or status in TEMPORARY, f"status {status}: {body[:300]!r}"
    kind = headers.get("content-type", "").partition(";")[0]
    if kind == EVENTS:
        _require_events(body)
    elif kind == LINES:
        _require_lines(body)
    elif kind == "application/json":
        value = read_json(body)
        if status >= 400 and "cancelled" not in value and "ready" not in value:
            assert any(is_failure(protocol, value) for protocol in PROTOCOLS), f"{status} is no error's form: {value}"
    else:  # the page has no such file
        assert status < 400 or status == 404 or not body, f"{status} with {kind!r}: {body[:100]!r}"


def is_failure(protocol: Protocol, value: Any) -> bool:
    """Return True if a value is an error body in a protocol's format."""
    return _is_between(protocol.error_body(_LEAST), value, protocol.error_body(_MOST))


def _is_between(least: Any, value: Any, most: Any) -> bool:
    """Return True if a value has all keys of `least`, no keys that `most` lacks, and the same types."""
    if not isinstance(most, dict):
        return isinstance(value, (str, int, list, type(None)))
    if not isinstance(value, dict) or not least.keys() <= value.keys() <= most.keys():
        return False
    return all(_is_between(least.get(key, {}), each, most[key]) for key, each in value.items())


def _require_events(body: bytes) -> None:
    """Check that events end with their protocol's last event, or with an error."""
    text = body.decode()
    assert text.endswith("\n\n"), f"an event is cut off: {text[-200:]!r}"
    events = [event for event in text.split("\n\n") if event and not event.startswith(":")]
    for event in events:
        data = [line.removeprefix("data: ") for line in event.split("\n") if line.startswith("data: ")]
        assert data, f"an event without data: {event!r:.200}"
        if data != ["[DONE]"]:
            read_json("\n".join(data).encode())
    last = events[-1]
    ends = (
        "[DONE]",
        '"stop":true',
        "event: end",
        "event: message_stop",
        "event: response.completed",
        "event: response.incomplete",
    )
    is_failed = "event: error" in last or '"error"' in last or "event: response.failed" in last
    assert is_failed or any(end in last for end in ends), f"a stream ends with {last!r:.300}"


def _require_lines(body: bytes) -> None:
    lines = [read_json(line) for line in body.splitlines()]
    assert lines[-1].get("done") is True or "error" in lines[-1], f"a stream ends with {lines[-1]}"


def read_json(text: bytes) -> Any:
    """A value of JSON, which has no NaN, and no letters that are no letters."""
    return json.loads(text.decode("utf-8"), parse_constant=_no_constant)


def _no_constant(name: str) -> NoReturn:
    raise AssertionError(f"{name} is no JSON")
