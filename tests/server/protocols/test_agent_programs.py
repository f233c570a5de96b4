"""Requests as programs send them that cannot run in the tests: Codex, Claude Code and Open WebUI.

Each has the fields and headers of the program's own, with shorter texts and fewer tools.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from support.servers import servers

from pyggml.server import ModelSpec, Settings, create_app

QUESTION, SAID = "What colour is the sky?", "The sky is blue."


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    # Claude Code asks for models by these names unless variables name others.
    spec = ModelSpec(None, name="demo", aliases=("claude-sonnet-4-5-20250929", "claude-haiku-4-5-20251001"))
    app = create_app(Settings(models=(spec,)))
    with servers.serving(app) as url, httpx.Client(base_url=url, timeout=60) as client:
        client.post("/v1/embeddings", json={"input": "a"})  # makes their context, which then stays
        yield client


def events(response: httpx.Response) -> list[dict[str, Any]]:
    """The data of server-sent events."""
    assert response.status_code == 200, response.text
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


# --- Codex ---------------------------------------------------------------------------------------------------

SHELL = {
    "type": "function",
    "name": "shell",
    "description": "Runs a shell command and returns its output.",
    "strict": False,
    "parameters": {
        "type": "object",
        "properties": {
            "command": {"type": "array", "items": {"type": "string"}, "description": "The command to execute"},
            "workdir": {"type": "string"},
            "timeout_ms": {"type": "number"},
        },
        "required": ["command"],
        "additionalProperties": False,
    },
}


def text(role: str, content: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": content}]}


def codex(*items: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "model": "default",
        "instructions": "Answer in one word.",
        "input": [text("developer", "<permissions>read-only</permissions>"), *items],
        "tools": [SHELL],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0199a213-81c0-7800-8aa1-bbab2a035a53",
        "text": {"verbosity": "medium"},
        "temperature": 0,  # not Codex's, so that the answer is known
        "max_output_tokens": 24,
        **changes,
    }


CODEX_HEADERS = {
    "Authorization": "Bearer none",
    "originator": "codex_cli_rs",
    "User-Agent": "codex_cli_rs/0.60.1 (Debian 12; x86_64) xterm",
    "conversation_id": "0199a213-81c0-7800-8aa1-bbab2a035a53",
    "session_id": "0199a213-81c0-7800-8aa1-bbab2a035a53",
    "Accept": "text/event-stream",
}


def test_codex_asks(http: httpx.Client) -> None:
    found = events(http.post("/v1/responses", json=codex(text("user", QUESTION)), headers=CODEX_HEADERS))
    kinds = [event["type"] for event in found]
    assert (kinds[0], kinds[-1]) in (
        ("response.created", "response.completed"),
        ("response.created", "response.incomplete"),
    )
    done = [event["item"] for event in found if event["type"] == "response.output_item.done"]
    assert done[-1]["content"][0]["type"] == "output_text"
    assert found[-1]["response"]["usage"]["total_tokens"] > 0


def test_codex_sends_back_what_its_tool_said(http: httpx.Client) -> None:
    output = json.dumps({"output": "blue\n", "metadata": {"exit_code": 0, "duration_seconds": 0.1}})
    turns = [
        text("user", QUESTION),
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None},
        {"type": "function_call", "name": "shell", "arguments": '{"command": ["ls"]}', "call_id": "call_1"},
        {"type": "function_call_output", "call_id": "call_1", "output": output},
    ]
    found = events(http.post("/v1/responses", json=codex(*turns), headers=CODEX_HEADERS))
    assert found[-1]["type"] in ("response.completed", "response.incomplete")


def test_codex_calls_a_tool(http: httpx.Client) -> None:
    # So few commands that a model which knows no tools comes to an end.
    parameters = {**SHELL["parameters"], "properties": {"command": {"enum": [["ls"], ["pwd"]]}}}  # type: ignore[dict-item]
    body = codex(
        text("user", QUESTION),
        tool_choice="required",
        tools=[{**SHELL, "parameters": parameters}],
        max_output_tokens=300,
    )
    found = events(http.post("/v1/responses", json=body, headers=CODEX_HEADERS))
    (item,) = [event["item"] for event in found if event["type"] == "response.output_item.done"]
    assert (item["type"], item["name"]) == ("function_call", "shell")
    assert json.loads(item["arguments"])["command"] in (["ls"], ["pwd"])


def test_codexs_other_tools_are_left_out(http: httpx.Client) -> None:
    lark = {"type": "grammar", "syntax": "lark", "definition": 'start: "a"'}
    others = [
        {"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": lark},
        {"type": "web_search", "external_web_access": False},
        {"type": "namespace", "name": "mcp", "description": "", "tools": [SHELL]},
    ]
    turns = [
        text("user", "Look it up."),
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "sky"}},
        {"type": "custom_tool_call", "call_id": "call_1", "name": "apply_patch", "input": "*** Begin Patch"},
        {"type": "custom_tool_call_output", "call_id": "call_1", "output": "Done."},
        text("user", QUESTION),
    ]
    found = events(http.post("/v1/responses", json=codex(*turns, tools=[SHELL, *others]), headers=CODEX_HEADERS))
    done = found[-1]["response"]
    assert done["skipped_tools"] == ["custom", "web_search", "namespace"]
    only = codex(*turns[:1], stream=False)
    assert "skipped_tools" not in http.post("/v1/responses", json=only, headers=CODEX_HEADERS).json()


# --- Claude Code ---------------------------------------------------------------------------------------------

CACHED = {"cache_control": {"type": "ephemeral"}}
BASH = {
    "name": "Bash",
    "description": "Executes a bash command.",
    "input_schema": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "The command to execute"},
            "timeout": {"type": "number"},
            "run_in_background": {"type": "boolean"},
        },
        "required": ["command"],
        "additionalProperties": False,
    },
}
CLAUDE_HEADERS = {
    "x-api-key": "none",
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,fine-grained-tool-streaming-2025-05-14",
    "anthropic-dangerous-direct-browser-access": "true",
    "x-app": "cli",
    "User-Agent": "claude-cli/2.0.50 (external, cli)",
}


def claude(*turns: dict[str, Any], **changes: Any) -> dict[str, Any]:
    asked = [
        {"type": "text", "text": "<system-reminder>Today is a day.</system-reminder>"},
        {"type": "text", "text": QUESTION, **CACHED},
    ]
    return {
        "model": "claude-sonnet-4-5-20250929",
        "max_tokens": 32000,
        "system": [
            {"type": "text", "text": "You are Claude Code.", **CACHED},
            {"type": "text", "text": "Answer in one word.", **CACHED},
        ],
        "messages": [{"role": "user", "content": asked}, *turns],
        "tools": [BASH],
        "metadata": {"user_id": "user_0_account__session_0199a213"},
        "stream": True,
        "temperature": 0,
        **changes,
    }


def test_claude_code_asks(http: httpx.Client) -> None:
    body = claude(max_tokens=24)
    found = events(http.post("/v1/messages?beta=true", json=body, headers=CLAUDE_HEADERS))
    kinds = [event["type"] for event in found if event["type"] != "ping"]
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    assert "".join(event["delta"].get("text", "") for event in found if event["type"] == "content_block_delta")


def test_claude_code_asks_for_as_many_tokens_as_fit(http: httpx.Client) -> None:
    body = claude(max_tokens=32000, stop_sequences=["."], tools=[])
    found = events(http.post("/v1/messages?beta=true", json=body, headers=CLAUDE_HEADERS))
    assert found[-1]["type"] == "message_stop"


def test_claude_code_sends_back_what_its_tool_said(http: httpx.Client) -> None:
    result = [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "blue"}], **CACHED}
    ]
    turns = [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}},
            ],
        },
        {"role": "user", "content": [*result, {"type": "text", "text": "<system-reminder>Go on.</system-reminder>"}]},
    ]
    body = claude(*turns, max_tokens=16)
    found = events(http.post("/v1/messages?beta=true", json=body, headers=CLAUDE_HEADERS))
    assert found[-1]["type"] == "message_stop"


def test_claude_codes_other_tools_are_left_out(http: httpx.Client) -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
    turns: list[dict[str, Any]] = [
        {
            "role": "assistant",
            "content": [
                {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "sky"}},
                {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
                {"type": "text", "text": "It is"},
            ],
        },
        {"role": "user", "content": QUESTION},
    ]
    body = claude(*turns, max_tokens=16, tools=[BASH, search])
    found = events(http.post("/v1/messages?beta=true", json=body, headers=CLAUDE_HEADERS))
    assert found[0]["message"]["skipped_tools"] == ["web_search_20250305"]
    assert found[-1]["type"] == "message_stop"
    whole = http.post("/v1/messages", json={**body, "stream": False}, headers=CLAUDE_HEADERS).json()
    assert whole["skipped_tools"] == ["web_search_20250305"]
    counted = {name: body[name] for name in ("model", "system", "messages", "tools")}
    with_tool = http.post("/v1/messages/count_tokens", json=counted, headers=CLAUDE_HEADERS).json()["input_tokens"]
    without = http.post("/v1/messages/count_tokens", json={**counted, "tools": [BASH]}, headers=CLAUDE_HEADERS).json()
    assert with_tool == without["input_tokens"]


def test_claude_codes_small_requests(http: httpx.Client) -> None:
    quota = {"model": "claude-haiku-4-5-20251001", "max_tokens": 1, "messages": [{"role": "user", "content": "quota"}]}
    done = http.post("/v1/messages?beta=true", json=quota, headers=CLAUDE_HEADERS).json()
    assert (done["stop_reason"], done["usage"]["output_tokens"]) == ("max_tokens", 1)
    counted = {name: value for name, value in claude().items() if name in ("model", "system", "messages", "tools")}
    n_tokens = http.post("/v1/messages/count_tokens?beta=true", json=counted, headers=CLAUDE_HEADERS).json()
    assert n_tokens["input_tokens"] > 20


# --- Open WebUI ----------------------------------------------------------------------------------------------

WEBUI_HEADERS = {"Authorization": "Bearer none", "X-OpenWebUI-User-Name": "A", "X-OpenWebUI-User-Role": "admin"}


def test_open_webui_by_openais_api(http: httpx.Client) -> None:
    model, *aliases = http.get("/v1/models", headers=WEBUI_HEADERS).json()["data"]
    assert [(each["id"], each["root"]) for each in aliases] == [(name, "demo") for name in model["aliases"]]
    body = {
        "stream": True,
        "model": model["id"],
        "messages": [{"role": "system", "content": "Answer in one word."}, {"role": "user", "content": QUESTION}],
        "stream_options": {"include_usage": True},
        "temperature": 0,
    }
    found = events(http.post("/v1/chat/completions", json=body, headers=WEBUI_HEADERS))
    pieces = [choice["delta"].get("content") or "" for event in found for choice in event["choices"]]
    assert "".join(pieces) == "Blue."
    assert found[-1]["usage"]["total_tokens"] > 0
    title = {
        "model": model["id"],
        "messages": [{"role": "user", "content": f"### Task:\nGenerate a title.\n### Chat:\n{QUESTION}"}],
        "stream": False,
        "max_completion_tokens": 8,
        "metadata": {"task": "title_generation", "chat_id": "0199a213"},
    }
    done = http.post("/v1/chat/completions", json=title, headers=WEBUI_HEADERS).json()
    assert done["choices"][0]["finish_reason"] in ("stop", "length")


def test_open_webui_by_ollamas_api(http: httpx.Client) -> None:
    assert http.get("/api/version").json()["version"]
    assert "models" in http.get("/api/ps").json()
    model, *aliases = http.get("/api/tags").json()["models"]
    assert len(aliases) == 2
    assert http.post("/api/show", json={"model": model["model"]}).json()["model_info"]
    body = {
        "model": model["model"],
        "messages": [{"role": "user", "content": QUESTION}],
        "options": {"temperature": 0, "num_predict": 50},
        "stream": True,
        "keep_alive": "5m",
    }
    lines = http.post("/api/chat", json=body, headers=WEBUI_HEADERS).text.splitlines()
    assert "".join(json.loads(line)["message"]["content"] for line in lines) == SAID
    assert json.loads(lines[-1])["done"]
    found = http.post("/api/embed", json={"model": model["model"], "input": ["a", "b"], "truncate": True}).json()
    assert len(found["embeddings"]) == 2


def test_open_webuis_retrieval(http: httpx.Client) -> None:
    body = {"model": "default", "input": ["a dog", "a cat"]}
    rows = http.post("/v1/embeddings", json=body, headers=WEBUI_HEADERS).json()["data"]
    assert [row["index"] for row in rows] == [0, 1]
