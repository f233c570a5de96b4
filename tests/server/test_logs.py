"""The server's log: a line for each request, tracebacks of unexpected errors, and no text of prompts."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from support.servers import servers

import pyggml.server
from pyggml.server.observability.logs import JSONFormatter, RepeatFilter, TextFormatter

SECRET = "Once upon a midnight dreary"


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def of(self, request_id: str, event: str = "request") -> logging.LogRecord:
        """The one line about a request."""
        servers.eventually(lambda: bool(self._of(request_id, event)))
        (found,) = self._of(request_id, event)
        return found

    def _of(self, request_id: str, event: str) -> list[logging.LogRecord]:
        about = [(record, getattr(record, "fields", {})) for record in self.records]
        return [record for record, each in about if (each.get("id"), each.get("event")) == (request_id, event)]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[Lines]:
    logger, lines = logging.getLogger("pyggml.server"), Lines()
    logger.addHandler(lines)
    before = logger.level
    logger.setLevel(logging.DEBUG)
    yield lines
    logger.setLevel(before)
    logger.removeHandler(lines)
    for records in (lines.records, caplog.get_records("call")):
        records.clear()  # which hold stacks, and with them models


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with servers.serving() as url:
        yield url


def fields(record: logging.LogRecord) -> dict[str, Any]:
    return record.fields  # type: ignore[attr-defined,no-any-return]


def ask(url: str, request_id: str, **body: Any) -> httpx.Response:
    content = {"prompt": SECRET, "max_tokens": 6, **body}
    return httpx.post(f"{url}/execute", json=content, headers={"x-request-id": request_id}, timeout=60)


def test_a_line_for_each_request(url: str, log: Lines) -> None:
    answer = ask(url, "my-id.1")
    assert answer.headers["x-request-id"] == "my-id.1"
    end = json.loads(servers.events(answer.text.splitlines())[-1][1])
    record = log.of("my-id.1")
    assert record.levelno == logging.INFO
    found = fields(record)
    assert found.pop("duration_s") >= found.pop("ttft_s") >= end["timings"]["ttft_s"] - 1e-6
    assert found.pop("queue_s") >= 0
    assert found == {
        "event": "request",
        "id": "my-id.1",
        "method": "POST",
        "route": "/execute",
        "status": 200,
        "outcome": "ok",
        "model": httpx.get(f"{url}/health").json()["model"],
        "client": "127.0.0.1",
        "prompt_tokens": end["prompt_tokens"],
        "cached_tokens": end["cached_tokens"],
        "generated_tokens": 6,
        "finish_reasons": "length",
    }


def test_what_is_refused_has_a_line_too(url: str, log: Lines) -> None:
    assert ask(url, "bad", temperature="hot").status_code == 400
    assert fields(log.of("bad"))["outcome"] == "client_error"
    assert ask(url, "stranger", model="stranger").status_code == 404
    assert fields(log.of("stranger"))["error"] == "model_not_found"
    answer = httpx.get(f"{url}/nothing", headers={"x-request-id": "lost"})
    assert (answer.status_code, answer.headers["x-request-id"]) == (404, "lost")
    assert fields(log.of("lost"))["path"] == "/nothing"


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize("given", ["", "two words", "x" * 129, "caf\u00e9", "tab\there"])
def test_ids_that_are_not_plain_are_replaced(given: str, url: str) -> None:
    answer = httpx.get(f"{url}/health", headers=[(b"x-request-id", given.encode("latin-1"))])
    assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])


def test_probes_are_for_those_who_want_everything(url: str, log: Lines) -> None:
    for path in ("health", "ready", "metrics"):
        httpx.get(f"{url}/{path}", headers={"x-request-id": path})
        assert log.of(path).levelno == logging.DEBUG


def test_no_text_of_prompts_and_answers(url: str, log: Lines) -> None:
    text = "".join(
        json.loads(data)["text"]
        for name, data in servers.events(ask(url, "quiet").text.splitlines())
        if name == "token"
    )
    ask(url, "wrong", top_p=7)
    ask(url, "grammar", grammar=f"root ::= {SECRET}")
    for each in ("quiet", "wrong", "grammar"):
        log.of(each)
    for formatter in (TextFormatter(), JSONFormatter()):
        for record in log.records:
            line = formatter.format(record)
            assert "midnight" not in line
            assert text not in line


def test_prompts_and_answers_for_those_who_ask(log: Lines) -> None:
    with servers.serving(pyggml.server.create_app(pyggml.server.Settings(log_prompts=True))) as url:
        ask(url, "open")
        found = fields(log.of("open"))
    assert found["body"] == {"prompt": SECRET, "max_tokens": 6}
    assert len(found["answers"]) == 1
    json.loads(JSONFormatter().format(log.of("open")))


def test_a_failure_has_its_stack_once_and_the_client_none(log: Lines) -> None:
    app = pyggml.server.create_app()

    def fail() -> str:
        raise RuntimeError("the disk is on fire in /srv/models")

    app.state.worker.models.not_ready_reason = fail
    with servers.serving(app) as url:
        answer = httpx.get(f"{url}/ready", headers={"x-request-id": "broken"})
        assert answer.status_code == 500
        assert "fire" not in answer.text
        assert "/srv" not in answer.text
        assert log.of("broken").levelno == logging.WARNING
        record = log.of("broken", "failure")
    assert record.levelno == logging.ERROR
    assert "RuntimeError: the disk is on fire" in TextFormatter().format(record)
    assert "RuntimeError: the disk is on fire" in json.loads(JSONFormatter().format(record))["stack"]


def test_nothing_that_clients_send_makes_a_line(url: str, log: Lines) -> None:
    httpx.get(
        f"{url}/x%0A2026-01-01T00:00:00.000Z%20INFO%20request%20id=forged%1b[2J", headers={"x-request-id": "evil"}
    )
    line = TextFormatter().format(log.of("evil"))
    assert "\n" not in line
    assert "\x1b" not in line
    assert 'path="/x\\n2026' in line
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO request id=evil method=GET path=", line)


@pytest.mark.slow
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_command_writes_it(log_format: str) -> None:
    with servers.ServerProcess("--log-format", log_format) as server:
        ask(server.url, "mine")
        httpx.get(f"{server.url}/health")
        servers.eventually(lambda: "mine" in server.log)
        server.stop()
    lines = [line for line in server.log.splitlines() if not line.startswith("pyggml: ")]
    if log_format == "json":
        entries = [json.loads(line) for line in lines]
        assert [entry["event"] for entry in entries] == ["model_loaded", "request", "model_unloaded"]
        assert (entries[1]["id"], entries[1]["generated_tokens"], entries[1]["level"]) == ("mine", 6, "info")
    else:
        assert [line.split()[2] for line in lines] == ["model_loaded", "request", "model_unloaded"]
        assert " generated_tokens=6 " in lines[1]


def test_what_the_engine_repeats_is_logged_once() -> None:
    def record(text: str, **extra: Any) -> logging.LogRecord:
        return logging.makeLogRecord({"msg": text, **extra})

    is_new = RepeatFilter().filter
    assert [is_new(record(text)) for text in "aaba"] == [True, False, True, True]
    assert [is_new(record("request", fields={"event": "request"})) for _ in range(2)] == [True, True]
