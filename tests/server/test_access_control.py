"""Access control of the server: keys, hosts, origins, and limits of requests."""

from __future__ import annotations

import asyncio
import gzip
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from support.servers import servers

import pyggml
import pyggml.server
from pyggml.server.app import PROTOCOLS, create_app
from pyggml.server.http.access_control import HostOriginCheck
from pyggml.server.http.errors import RequestError, strip_paths
from pyggml.server.protocols.endpoint import Endpoint

KEYS = ("sk-first", "sk-second")


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Running]:
    with servers.running(body_timeout=1, max_body_bytes=100_000, max_choices=4) as server:
        yield server


@pytest.fixture(scope="module")
def locked() -> Iterator[servers.Running]:
    with servers.running(api_keys=KEYS, allowed_hosts=("models.test",), cors_origins=("https://ok.test",)) as server:
        yield server


def asked(server: servers.Running, request: bytes) -> bytes:
    """The answer to a request of any form, as long as the server keeps the connection open."""
    with socket.create_connection(server.host, 30) as client:
        client.sendall(request)
        answer = b""
        try:
            while part := client.recv(65536):
                answer += part
        except ConnectionResetError:
            pass
        return answer


def path_of(endpoint: Endpoint) -> str:
    return endpoint.path.replace("{name:path}", "a").replace("{name}", "a").replace("{response_id}", "a")


# --- keys -----------------------------------------------------------------------------------------------------


@pytest.mark.slow_except("headers0", "headers1", "headers2", "headers3", "headers4")
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer sk-wrong"},
        {"authorization": "Bearer"},
        {"authorization": "Basic sk-first"},
        {"authorization": "sk-first"},
        {"x-api-key": "sk-firs"},
        {"authorization": b"Bearer sk-first\xff"},
    ],
)
def test_what_needs_a_key_is_refused_without_one(headers: dict[str, Any], locked: servers.Running) -> None:
    answer = httpx.post(f"{locked.url}/execute", json={"prompt": "a", "max_tokens": 1}, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["error"]["code"] == "invalid_api_key"
    assert "sk-" not in answer.text


@pytest.mark.parametrize(
    "headers", [{"authorization": "Bearer sk-first"}, {"authorization": "bearer  sk-second"}, {"x-api-key": "sk-first"}]
)
def test_each_key_lets_in(headers: dict[str, str], locked: servers.Running) -> None:
    answer = httpx.post(f"{locked.url}/tokenize", json={"content": "a"}, headers=headers)
    assert answer.status_code == 200


@pytest.mark.slow
def test_every_endpoint_that_is_not_open_needs_a_key(locked: servers.Running) -> None:
    endpoints = [(protocol, endpoint) for protocol in PROTOCOLS for endpoint in protocol.endpoints]
    assert {endpoint.path for _, endpoint in endpoints if endpoint.is_open} >= {"/health", "/ready"}
    for protocol, endpoint in endpoints:
        answer = httpx.request(endpoint.method, locked.url + path_of(endpoint))
        assert (answer.status_code == 401) is not endpoint.is_open, endpoint.path
        if not endpoint.is_open:  # in the shape that the protocol's clients expect
            expected = protocol.error_body(servers.failure(401))
            assert servers.shape(answer.json()) == servers.shape(expected), endpoint.path


def test_keys_are_in_no_text_about_the_settings(locked: servers.Running) -> None:
    assert "sk-" not in repr(locked.worker.settings)
    assert "sk-" not in repr(vars(locked.worker.api_keys))


def test_a_prefix_cache_by_key_needs_keys() -> None:
    with pytest.raises(pyggml.InvalidParameterError, match="no effect without API keys"):
        create_app(pyggml.server.Settings(prefix_cache_scope="key"))


def test_each_key_has_a_prefix_cache_of_its_own() -> None:
    body = {"prompt": "Once upon a time there was a small dog", "max_tokens": 1}

    def cached(server: servers.Running, key: str, **more: str) -> int:
        headers = {"Authorization": f"Bearer {key}"}
        answer = httpx.post(server.url + "/v1/completions", json={**body, **more}, headers=headers).json()
        return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])

    with servers.running(api_keys=KEYS, prefix_cache_scope="key") as server:
        assert cached(server, KEYS[0]) == 0
        assert cached(server, KEYS[0]) > 0
        assert cached(server, KEYS[1]) == 0
        assert cached(server, KEYS[1], cache_salt="a user") == 0
        assert cached(server, KEYS[0], cache_salt="a user") == 0
        assert cached(server, KEYS[1]) > 0


# --- hosts and origins ----------------------------------------------------------------------------------------


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize(
    "host",
    ["evil.test", "evil.test:80", "127.0.0.1.evil.test", "0.0.0.0", "localhost.evil.test", "10.0.0.1", "[::2]", "["],
)
def test_a_name_that_points_to_this_machine_is_refused(host: str, server: servers.Running) -> None:
    answer = httpx.get(f"{server.url}/health", headers={"host": host})
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "forbidden_origin"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.9.9.9:1", "[::1]:80", "a.localhost"])
def test_names_of_loopback_are_served(host: str, server: servers.Running) -> None:
    assert httpx.get(f"{server.url}/health", headers={"host": host}).status_code == 200


def test_pages_of_others_cannot_send_requests(server: servers.Running) -> None:
    for origin in ("https://evil.test", "null", "http://127.0.0.1.evil.test", "http://[", "file://"):
        answer = httpx.post(f"{server.url}/execute", json={"prompt": "a"}, headers={"origin": origin})
        assert answer.status_code == 403, origin
    for origin in (server.url, "http://localhost:3000"):
        answer = httpx.post(f"{server.url}/tokenize", json={"content": "a"}, headers={"origin": origin})
        assert answer.status_code == 200, origin
        assert answer.headers["access-control-allow-origin"] == origin


def in_a_network(server: str, *, needs_key: bool = False, allowed: Sequence[str] = (), **headers: str) -> bool:
    """Return True if a request that reaches this address of the server is served."""
    check = HostOriginCheck(allowed, (), lambda: needs_key)
    scope = {"server": (server, 8080), "headers": [(name.encode(), value.encode()) for name, value in headers.items()]}
    try:
        check(scope)
    except RequestError as error:
        return error.failure.status != 403
    return True


LAN = "192.168.1.5"


def test_without_a_key_only_names_that_no_one_can_register_are_served() -> None:
    for host in (LAN, f"{LAN}:8080", "10.0.0.7", "[fd00::1]:80", "gpu-box", "gpu-box.local:80", "localhost"):
        assert in_a_network(LAN, host=host), host
    for host in ("evil.test", "192.168.1.5.evil.test", "0.0.0.0:8080", "[::]", "evil.com:8080", ""):
        assert not in_a_network(LAN, host=host), host
        assert in_a_network(LAN, host=host, needs_key=True), host
        assert not in_a_network("127.0.0.1", host=host, needs_key=True), host
    assert in_a_network(LAN, host="llm.example.com", allowed=["llm.example.com"])
    assert not in_a_network(LAN, host="evil.test", allowed=["llm.example.com"], needs_key=True)


def test_without_a_key_pages_of_other_hosts_cannot_send_requests() -> None:
    for origin in (f"http://{LAN}:8080", f"http://{LAN}:3000", f"https://{LAN}"):
        assert in_a_network(LAN, host=f"{LAN}:8080", origin=origin), origin
    for origin in ("https://evil.test", "null", "http://10.0.0.7", "http://localhost", "http://[", "file://"):
        assert not in_a_network(LAN, host=f"{LAN}:8080", origin=origin), origin
        assert in_a_network(LAN, host=f"{LAN}:8080", origin=origin, needs_key=True), origin


def test_origins_that_are_allowed_read_answers(locked: servers.Running) -> None:
    asks = {"origin": "https://ok.test", "access-control-request-method": "POST"}
    before = httpx.options(
        f"{locked.url}/tokenize", headers={**asks, "access-control-request-headers": "authorization"}
    )
    assert before.status_code == 200
    assert before.headers["access-control-allow-origin"] == "https://ok.test"
    headers = {"origin": "https://ok.test", "x-api-key": "sk-first", "host": "models.test:80"}
    answer = httpx.post(f"{locked.url}/tokenize", json={"content": "a"}, headers=headers)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://ok.test"
    other = httpx.options(f"{locked.url}/tokenize", headers={**asks, "origin": "https://evil.test"})
    assert "access-control-allow-origin" not in other.headers


# --- template variables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/apply-template"])
def test_template_variables_cannot_replace_the_conversation(path: str, server: servers.Running) -> None:
    messages = [{"role": "user", "content": "a"}]
    names = ("messages", "tools", "custom_tools", "add_generation_prompt", "bos_token", "eos_token", "unk_token")
    reserved: list[dict[str, object]] = [{name: messages} for name in names]
    nested: list[dict[str, object]] = [{name: {"messages": messages}} for name in ("template_kwargs", "chat_template")]
    for variables in [*reserved, *nested]:
        body = {"messages": messages, "max_tokens": 1, "chat_template_kwargs": variables}
        answer = httpx.post(server.url + path, json=body)
        assert answer.status_code == 400, variables
        assert next(iter(variables)) in answer.text or "messages" in answer.text


# --- bodies ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_large_body_is_refused_before_the_rest_comes(server: servers.Running) -> None:
    began = time.monotonic()
    head = b"POST /execute HTTP/1.1\r\nhost: localhost\r\n"
    declared = asked(server, head + b"content-length: 100001\r\n\r\n{")
    chunked = asked(server, head + b"transfer-encoding: chunked\r\n\r\n" + 9 * (b"3000\r\n" + b"a" * 0x3000 + b"\r\n"))
    for answer in (declared, chunked):
        assert answer.startswith(b"HTTP/1.1 413 "), answer
        assert b"body_too_large" in answer
    assert time.monotonic() - began < 20  # the connection does not stay open for the rest
    huge = httpx.post(f"{server.url}/execute", content=b"[" * 50_000_000)
    assert huge.status_code == 413


@pytest.mark.slow
def test_a_body_that_does_not_come_ends_the_request(server: servers.Running) -> None:
    answer = asked(server, b"POST /execute HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408 "), answer
    assert b"body_timeout" in answer


@pytest.mark.slow_except("content0", "content1", "content2", "content3")
@pytest.mark.parametrize(
    "content",
    [
        b'{"prompt":' + b"[" * 40_000 + b"]" * 40_000 + b"}",
        b'{"prompt":"a","json_schema":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}",
        b'{"prompt":"a","json_schema":{"const":' + b"9" * 90_000 + b"}}",
        b'{"prompt":["a"' + b',""' * 30_000 + b"]}",
        b'{"prompt":"a","stop":["a"' + b',"b"' * 20_000 + b"]}",
        b'{"prompt":"a","stop":["a"' + b",1" * 40_000 + b"]}",
        b'{"prompt":"a","logit_bias":{' + b",".join(b'"%d":"x"' % i for i in range(5000)) + b"}}",
        b'{"prompt":"a","logit_bias":{"' + b"k" * 90_000 + b'":"x"}}',
        b'{"prompt":"a","model":"' + b"m" * 90_000 + b'"}',
        b'{"prompt":"a","temperature":' + b"9" * 90_000 + b"}",
        b'{"prompt":"a","temperature":NaN}',
        b'{"prompt":"\xff"}',
        b'{"prompt":"\\ud800"}',
    ],
)
def test_bodies_that_are_made_to_hurt_get_short_answers_soon(content: bytes, server: servers.Running) -> None:
    began = time.monotonic()
    answer = httpx.post(f"{server.url}/execute", content=content, timeout=30)
    assert answer.status_code in (400, 404)
    assert len(answer.content) < 20_000
    assert time.monotonic() - began < 5
    assert httpx.get(f"{server.url}/health").status_code == 200


@pytest.mark.slow_except("NaN", "-Infinity", "1e999")
@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", f"{'9' * 400}.0"])
def test_what_is_no_number_is_not_repeated(number: str, server: servers.Running) -> None:
    """The answer would have it, and could not be written."""
    content = '{"input":"a","max_output_tokens":1,"metadata":{"NaN":%s}}'
    answer = httpx.post(f"{server.url}/v1/responses", content=content % number, timeout=30)
    assert answer.status_code == 400
    assert "a number that is not finite" in answer.json()["error"]["message"]
    assert httpx.post(f"{server.url}/v1/responses", content=content % '"1e999"', timeout=30).status_code == 200


def test_a_body_of_millions_of_lists_is_not_parsed() -> None:
    with servers.running() as server:
        content = b'{"prompt":"a","json_schema":{"a":[' + b"[]," * 2_000_000 + b"1]}}"
        answer = httpx.post(f"{server.url}/execute", content=content, timeout=30)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_complex")


@pytest.mark.slow_except("prompt")
@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("prompt", "a" * 7_000_000, "context_length_exceeded"),
        ("json_schema", {"type": "string", "pattern": "^" + "(a|b)?" * 100_000}, "grammar_too_large"),
        ("json_schema", {"const": "x" * 7_000_000}, "grammar_too_large"),
        ("grammar", 'root ::= "a"' + ' | "a"' * 300_000, "grammar_too_large"),
    ],
    ids=["prompt", "pattern", "constant", "grammar"],
)
def test_what_would_take_long_to_refuse_is_refused_soon(field: str, value: object, code: str) -> None:
    with servers.running(load={"n_ctx": 4096}) as server:
        began = time.monotonic()
        answer = httpx.post(f"{server.url}/execute", json={"prompt": "a", "max_tokens": 1, field: value}, timeout=60)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
        assert time.monotonic() - began < 10


_LONG = "a b " * 1_000_000


@pytest.mark.slow_except("/v1/messages-")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", {"max_tokens": 1, "messages": [{"role": "user", "content": "a"}], "system": _LONG}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "text", "text": _LONG}]}]}),
        ("/v1/embeddings", {"input": ["a", _LONG]}),
        ("/v1/rerank", {"query": " " * len(_LONG), "documents": ["a"] * 2000}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_text_that_cannot_fit_is_not_tokenized(path: str, body: dict[str, Any]) -> None:
    with servers.running() as server:
        answer = httpx.post(f"{server.url}{path}", json={"model": "default", **body}, timeout=60)
    assert answer.status_code == 400
    assert f"the text has {len(_LONG)} characters" in answer.json()["error"]["message"]


def test_a_compressed_body_is_refused_by_name(server: servers.Running) -> None:
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    content = gzip.compress(b'{"prompt":"a","max_tokens":1}')
    answer = httpx.post(f"{server.url}/execute", content=content, headers=headers, timeout=30)
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_encoding")
    assert "'gzip'" in answer.json()["error"]["message"]


def test_a_response_format_is_bounded_as_a_schema_is() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"const": "x" * 7_000_000}}}
    body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "response_format": form}
    with servers.running(load={"n_ctx": 4096}) as server:
        answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "grammar_too_large")


def test_every_list_in_every_body_is_bounded() -> None:
    unbounded = [
        f"{endpoint.path}: {place}"
        for protocol in PROTOCOLS
        for endpoint in protocol.endpoints
        if endpoint.body is not None
        for place in unbounded_in(endpoint.body.__pydantic_core_schema__)
    ]
    assert not unbounded, "their models must derive from pyggml.server.http.request_body.Body"


def unbounded_in(schema: Any, place: str = "") -> Iterator[str]:
    if isinstance(schema, dict):
        if schema.get("type") in ("list", "dict") and schema.get("max_length") is None:
            yield place
        for key, value in schema.items():
            yield from unbounded_in(value, f"{place}.{key}")
    elif isinstance(schema, list | tuple):
        for index, value in enumerate(schema):
            yield from unbounded_in(value, f"{place}[{index}]")


# --- failures -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("cannot open '/home/me too/models/a.gguf': no such file", "cannot open 'a.gguf': no such file"),
        ("there is no model at /srv/m/a.gguf: give another", "there is no model at a.gguf: give another"),
        ("~/models/q.gguf is damaged", "q.gguf is damaged"),
        ('"../../q r.gguf" is damaged', '"q r.gguf" is damaged'),
        ("needs 3 MB/s or 1/2", "needs 3 MB/s or 1/2"),
        ("see https://example.org/a/b", "see https://example.org/a/b"),
    ],
)
def test_paths_are_left_out_of_messages(message: str, expected: str) -> None:
    assert strip_paths(message) == expected


def test_what_is_not_there_is_said_in_json(server: servers.Running) -> None:
    for method, path, status in (("GET", "/nothing", 404), ("GET", "/execute", 405), ("DELETE", "/health", 405)):
        answer = httpx.request(method, server.url + path)
        assert answer.status_code == status
        assert answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/v1/v1/messages", "there is no path /v1/v1/messages; did you mean /v1/messages?"),
        ("/complete", "there is no path /complete; did you mean /completion?"),
        ("/v1/embedding", "there is no path /v1/embedding; did you mean /v1/embeddings?"),
        ("/" + "v1/" * 200, f"there is no path /{'v1/' * 200}; /openapi.json lists all paths"),
        ("/api/tags", "/api/tags does not support POST: use GET"),
    ],
    ids=lambda text: text[:30],
)
def test_a_wrong_path_is_told_the_right_one(path: str, message: str, server: servers.Running) -> None:
    assert message in httpx.post(server.url + path).text


@pytest.mark.slow
def test_a_mounted_server_answers_wrong_paths_in_their_protocol() -> None:
    app = create_app()
    with servers.serving(Starlette(routes=[Mount("/llm", app)])) as url:
        near = httpx.post(f"{url}/llm/v1/message").json()
        lost = httpx.post(f"{url}/llm/v1/messages/lost", headers={"x-request-id": "lost"}).json()
    assert near["error"]["message"].endswith("did you mean /llm/v1/messages?")
    assert (lost["type"], lost["request_id"]) == ("error", "lost")  # as Anthropic's clients expect it
    asyncio.run(app.state.worker.models.aclose())
