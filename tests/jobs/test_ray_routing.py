"""The routing policy for replicas, and requests that another process answers, without Ray."""

from __future__ import annotations

import asyncio
import json
import pickle
import random
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from support.recipes import write_talker
from support.servers import servers
from support.servers.remote_servers import until

import pyggml
from pyggml.ray.routing import PrefixIndex, prefix_hashes
from pyggml.server import ForwardedRequest, ModelSpec, Settings, WorkerProxy, create_app, run_forwarded

QUESTION = {"role": "user", "content": "What colour is the sky?"}


def chat(*texts: str, system: str = "") -> dict[str, Any]:
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    return {"messages": [{"role": "system", "content": system}, *messages] if system else messages}


def test_marks_are_common_where_prompts_are() -> None:
    short, long = prefix_hashes(chat("Hello")), prefix_hashes(chat("Hello", "Hi!", "How are you?"))
    assert short == long[:1]
    assert long[-1] not in prefix_hashes(chat("Hello", "Hi!", "How are they?"))
    text = "word " * 1000
    one, two = prefix_hashes({"prompt": text + "A"}), prefix_hashes({"prompt": text + "B"})
    common = max(n_bytes for n_bytes, _ in {*one} & {*two})
    assert 0.8 * len(text) <= common <= len(text)
    assert len(prefix_hashes({"prompt": "x" * 8_000_000})) < 60
    assert prefix_hashes(chat("Hello")) != prefix_hashes({**chat("Hello"), "tools": [{"type": "function"}]})
    assert prefix_hashes({}) == prefix_hashes({"messages": None}) == prefix_hashes({"input": 3}) == ()


def test_a_message_is_the_same_however_a_client_repeats_it() -> None:
    plain = prefix_hashes({"messages": [QUESTION]})
    parts = [{"type": "text", "text": QUESTION["content"], "cache_control": {"type": "ephemeral"}}]
    assert prefix_hashes({"messages": [{"role": "user", "content": parts}]}) == plain


@pytest.mark.parametrize("odd", [[None], [{"content": [{"text": None}]}], [[1, 2], "x"], ["\ud800"], {"a": 1}])
def test_odd_prompts_have_marks_or_none(odd: Any) -> None:
    for name in ("messages", "prompt", "input", "tools", "system"):
        prefix_hashes({name: odd})


def test_a_conversation_stays_unless_its_replica_is_busy() -> None:
    known: PrefixIndex[str] = PrefixIndex(slack=2)
    loads = {"a": 0, "b": 0, "c": 0}
    first, second = prefix_hashes(chat("Hello")), prefix_hashes(chat("Hello", "Hi!", "How are you?"))
    home = known.rank(first, loads)[0]
    known.record(first, home)
    assert known.rank(second, {**loads, home: 2})[0] == home
    assert known.rank(second, {**loads, home: 3})[0] != home
    assert sorted(known.rank(second, loads)) == ["a", "b", "c"]
    others = {name: 0 for name in loads if name != home}
    assert sorted(known.rank(second, others)) == sorted(others)
    assert known.rank(second, {}) == []


def test_a_conversation_that_has_moved_stays_where_it_is() -> None:
    known: PrefixIndex[str] = PrefixIndex(slack=2)
    turns = [prefix_hashes(chat(*["text"] * n)) for n in (1, 3, 5)]
    known.record(turns[0], "a")
    known.record(turns[1], "b")
    assert known.rank(turns[2], {"a": 0, "b": 0})[0] == "b"


def test_conversations_with_one_system_prompt_spread_over_replicas() -> None:
    known: PrefixIndex[str] = PrefixIndex(slack=4)
    loads = dict.fromkeys("abcd", 0)
    homes = []
    for n in range(200):
        request = prefix_hashes(chat(f"Question {n}", system="Be brief. " * 500))
        homes.append(known.rank(request, loads)[0])
        known.record(request, homes[-1])
    assert all(40 <= homes.count(name) <= 60 for name in loads)


def test_texts_about_one_document_meet() -> None:
    known: PrefixIndex[str] = PrefixIndex(slack=4)
    chosen: dict[int, set[str]] = {}
    order = [number for number in range(20) for _ in range(5)]
    random.Random(0).shuffle(order)
    for n, number in enumerate(order):
        request = prefix_hashes({"prompt": f"Document {number}. " * 500 + f"Question {n}?"})
        replica = known.rank(request, dict.fromkeys("abcd", 0))[0]
        known.record(request, replica)
        chosen.setdefault(number, set()).add(replica)
    assert sum(map(len, chosen.values())) <= 30  # at random, each of five questions elsewhere, some 60


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyggml.ray.routing._MAX_CONVERSATIONS", 10)
    monkeypatch.setattr("pyggml.ray.routing._MAX_HASHES", 30)
    known: PrefixIndex[int] = PrefixIndex(slack=4)
    for n in range(1000):
        known.record(prefix_hashes(chat(f"Question {n}")), n % 50)
    assert len(known._conversations) == 10
    assert len(known._replicas_of) == 30
    assert len(known._conversation_bytes) == 10


# --- the relay ----------------------------------------------------------------------------------------------------


class Here:
    """Answers in this process what a relay sends on, and fails when it is told to."""

    def __init__(self, model: Path | None = None) -> None:
        self.llm = pyggml.load(model, n_ctx=None if model is None else 8192)
        self.app = create_app(self.llm)
        self.requests: list[ForwardedRequest] = []
        self.fails_after: int | None = None
        self.fails_with: Exception = pyggml.HostLostError("the replica at 10.0.0.1 is lost")

    async def send_on(
        self, request: ForwardedRequest, fields: Mapping[str, Any]
    ) -> AsyncGenerator[Sequence[Mapping[str, Any]], None]:
        del fields
        self.requests.append(request)
        request = pickle.loads(pickle.dumps(request))
        n_pieces = 0
        pieces = run_forwarded(self.app, request)
        try:
            while self.fails_after != n_pieces:
                yield pickle.loads(pickle.dumps(await anext(pieces)))
                n_pieces += 1
            raise type(self.fails_with)(str(self.fails_with))  # a new one, as a traceback keeps what it passes
        except StopAsyncIteration:
            pass
        finally:
            await pieces.aclose()


@contextmanager
def relayed(here: Here, **options: Any) -> Iterator[str]:
    with here.llm, servers.serving(WorkerProxy(Settings(**options), here.send_on)) as url:  # type: ignore[arg-type]
        yield url


@pytest.mark.slow
def test_requests_are_answered_as_by_the_application_itself() -> None:
    here = Here()
    body = {"messages": [QUESTION], "stream": True, "max_tokens": 8}
    with relayed(here) as url, servers.serving(here.app) as direct:
        for path in ("/v1/models", "/health", "/nothing"):
            answer, expected = httpx.get(f"{url}{path}"), httpx.get(f"{direct}{path}")
            assert answer.status_code == expected.status_code
        client, own = (openai.OpenAI(base_url=f"{each}/v1", api_key="x") for each in (url, direct))
        texts = []
        for each in (client, own):
            chunks = each.chat.completions.create(model="default", **body)  # type: ignore[call-overload]
            texts.append("".join(chunk.choices[0].delta.content or "" for chunk in chunks))
        assert texts[0] == texts[1] != ""
        refused = httpx.post(f"{url}/v1/chat/completions", json={"model": "other", "messages": [QUESTION]})
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
        torn = httpx.post(f"{url}/v1/chat/completions", content=b'{"messages')
        assert torn.status_code == 400
    assert here.requests[0].model == pyggml.SHIPPED_MODEL.stem


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """So slow that an answer comes in pieces, however busy the machine is."""
    return write_talker(tmp_path_factory.mktemp("models") / "talker.gguf")


@pytest.mark.slow
def test_a_stream_whose_replica_is_lost_ends_with_an_error_for_its_client(talker: Path) -> None:
    here = Here(talker)
    here.fails_after = 2
    body = {"messages": [QUESTION], "stream": True, "max_tokens": 4096}
    with relayed(here) as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0)
        with pytest.raises(openai.APIError, match="is lost: send the request again"):
            for _ in client.chat.completions.create(model="default", **body):  # type: ignore[call-overload]
                pass
        lines = httpx.post(f"{url}/api/chat", json=body).text.splitlines()
        assert "error" in json.loads(lines[-1])
        assert "10.0.0.1" not in lines[-1]


def test_what_cannot_be_sent_on_is_refused_in_the_words_of_the_protocol() -> None:
    here = Here()
    here.fails_after = 0
    body = {"messages": [QUESTION], "max_tokens": 8}
    with relayed(here, max_body_bytes=1024) as url:
        lost = httpx.post(f"{url}/v1/messages", json=body)
        assert (lost.status_code, lost.json()["type"]) == (503, "error")
        here.fails_with = pyggml.QueueFullError("too many requests are waiting")
        busy = httpx.post(f"{url}/v1/chat/completions", json=body)
        assert (busy.status_code, busy.headers["retry-after"]) == (429, "1")
        n_sent = len(here.requests)
        large = httpx.post(f"{url}/v1/chat/completions", content=b" " * 2000)
        assert (large.status_code, len(here.requests)) == (413, n_sent)


def test_a_client_that_leaves_frees_the_replica(talker: Path) -> None:
    here = Here(talker)
    body = {"messages": [QUESTION], "stream": True, "max_tokens": 100_000, "ignore_eos": True}
    with relayed(here) as url:
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body) as answer:
            lines = answer.iter_lines()  # kept: the connection would close with it
            next(lines)
            assert until(lambda: len(here.app.state.worker.running_requests) == 1)
        assert until(lambda: not len(here.app.state.worker.running_requests))


def test_each_model_is_found_by_all_of_its_names() -> None:
    found: list[str] = []

    async def send_on(
        request: ForwardedRequest, fields: Mapping[str, Any]
    ) -> AsyncGenerator[Sequence[Mapping[str, Any]], None]:
        del fields
        found.append(request.model)
        raise pyggml.ClosedError("no replica")
        yield ()

    models = (ModelSpec(name="one"), ModelSpec(name="two", aliases=("zwei",)))
    relay = WorkerProxy(Settings(models=models), send_on)  # type: ignore[arg-type]
    with servers.serving(relay) as url:  # type: ignore[arg-type]
        for name in ("one", "two", "zwei", "two:latest", "default", None, "three", 4):
            assert httpx.post(f"{url}/v1/completions", json={"model": name, "prompt": "A"}).status_code == 503
    assert found == ["one", "two", "two", "two", "one", "one", "one", "one"]


@pytest.mark.slow
def test_the_head_of_an_answer_comes_with_its_first_piece() -> None:
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        del scope
        assert (await receive())["body"] == b"body"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(0.01)
        for piece in (b"1", b"2"):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await asyncio.sleep(0.01)
        await send({"type": "http.response.body", "body": b"3", "more_body": False})

    async def answered() -> list[list[str]]:
        return [
            [each["type"] for each in piece] async for piece in run_forwarded(slow, ForwardedRequest("m", {}, b"body"))
        ]

    pieces = asyncio.run(answered())
    assert [len(piece) for piece in pieces] == [3, 1]
    assert pieces[0][0] == "http.response.start"
