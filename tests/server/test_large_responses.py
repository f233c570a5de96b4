"""Responses with long lists."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from pyggml.server.http.large_responses import in_slices, large_json_response


@pytest.mark.parametrize("items", [[], [1], ["é", None, [1.5]], list(range(10_000)), [{"id": i} for i in range(5000)]])
@pytest.mark.parametrize("others", [{}, {"object": "list", "usage": {"total_tokens": 3}}])
def test_it_is_the_json_of_the_whole(items: list[Any], others: dict[str, Any]) -> None:
    answer = large_json_response("items", in_slices(items), **others)
    assert json.loads(bytes(answer.body)) == {"items": items, **others}
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.slow
def test_other_threads_have_their_turns_meanwhile() -> None:
    rows = [{"id": i, "piece": "word"} for i in range(300_000)]
    is_done = threading.Event()
    n_turns = 0

    def count() -> None:
        nonlocal n_turns
        while not is_done.is_set():
            n_turns += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        before = n_turns
        large_json_response("tokens", in_slices(rows))
        assert n_turns - before >= 5
    finally:
        is_done.set()
        thread.join()
