"""Makes up bodies of requests: good ones of every endpoint, and what may become of them on the way."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np

from fuzz import damage
from pyggml.server.app import PROTOCOLS
from pyggml.server.protocols.endpoint import Endpoint

Body = dict[str, Any]

_SCHEMA = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
_FUNCTION = {"name": "weather", "description": "d", "parameters": _SCHEMA}
_TOOL = {"type": "function", "function": _FUNCTION}
_ASKED = {"role": "user", "content": "th"}
_IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
_CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
_TALK = [
    {"role": "system", "content": "be short"},
    {"role": "user", "content": [{"type": "text", "text": "the bath"}]},
    {"role": "assistant", "content": None, "tool_calls": [_CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "18"},
    {"role": "user", "content": "and?"},
]
_ANTHROPIC_TALK = [
    {"role": "user", "content": [{"type": "text", "text": "th", "cache_control": {"type": "ephemeral"}}]},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Rome"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "18"}]},
]
_ITEMS = [
    {"role": "user", "content": [{"type": "input_text", "text": "th"}]},
    {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "18"},
]
_LIMIT = {"max_tokens": 2}

#: Path -> good bodies.
GOOD: dict[str, list[Body]] = {
    "/v1/chat/completions": [
        {"messages": [_ASKED], **_LIMIT},
        {"messages": _TALK, "tools": [_TOOL], "tool_choice": "auto", "stream": True, **_LIMIT},
        {"messages": [_ASKED], "stream": True, "stream_options": {"include_usage": True}, "n": 2, **_LIMIT},
        {"messages": [_ASKED], "logprobs": True, "top_logprobs": 3, "logit_bias": {"104": 5, "th": False}, **_LIMIT},
        {"messages": [_ASKED], "response_format": {"type": "json_schema", "json_schema": {"schema": _SCHEMA}},
        **_LIMIT},
        {"messages": [_ASKED], "functions": [_FUNCTION], "function_call": {"name": "weather"}, **_LIMIT},
        {"messages": [{"role": "user", "content": [_IMAGE]}], **_LIMIT},
    ],
    "/v1/completions": [
        {"prompt": "the", "echo": True, "logprobs": 2, "stop": ["x", "yy"], **_LIMIT},
        {"prompt": ["a", "b"], "n": 2, "best_of": 2, "stream": True, **_LIMIT},
        {"prompt": [[1, 2], [3]], "grammar": 'root ::= "a" [b-d]*', "seed": 7, **_LIMIT},
        {"prompt": [1, 2, 3], "json_schema": _SCHEMA, "temperature": 1.0, "samplers": ["top_k", "dry"], **_LIMIT},
        {"prompt": "a", "guided_choice": ["yes", "no"], "structured_outputs": {"json": _SCHEMA}, **_LIMIT},
    ],
    "/v1/embeddings": [{"input": ["a", "the"], "encoding_format": "base64", "dimensions": 8}, {"input": [1, 2, 3]}],
    "/v1/rerank": [{"query": "a", "documents": ["b", {"text": "c"}], "top_n": 1}, {"query": "a", "texts": ["b"]}],
    "/v1/responses": [
        {"input": "th", "max_output_tokens": 2, "instructions": "be short", "metadata": {"a": "b"}},
        {"input": _ITEMS, "tools": [{"type": "function", **_FUNCTION}], "stream": True, "max_output_tokens": 2},
        {"input": "x", "text": {"format": {"type": "json_schema", "name": "n", "schema": _SCHEMA}},
        "max_output_tokens": 2},
    ],
    "/v1/messages": [
        {"model": "default", "messages": [_ASKED], **_LIMIT, "system": [{"type": "text", "text": "s"}]},
        {"model": "default", "messages": _ANTHROPIC_TALK, "stream": True, **_LIMIT,
         "tools": [{"name": "weather", "input_schema": _SCHEMA}], "tool_choice": {"type": "auto"}},
        {"model": "default", "messages": [_ASKED], "stop_sequences": ["x"],
         "thinking": {"type": "enabled", "budget_tokens": 1024}, **_LIMIT},
    ],
    "/v1/messages/count_tokens": [{"model": "default", "messages": [_ASKED], "system": "s"}],
    "/api/generate": [
        {"model": "default", "prompt": "the", "options": {"num_predict": 2, "temperature": 1, "stop": ["x"]}},
        {"model": "default", "prompt": "the", "raw": True, "stream": False, "options": {"num_predict": 2},
        "format": "json"},
        {"model": "default", "context": [1, 2], "suffix": "b", "logprobs": True, "options": {"num_predict": 2,
        "seed": 1}},
    ],
    "/api/chat": [
        {"model": "default", "messages": [{"role": "user", "content": "th"}], "options": {"num_predict": 2}},
        {"model": "default", "messages": _TALK[:1], "stream": False, "tools": [_TOOL], "think": False,
         "format": _SCHEMA, "keep_alive": "5m", "options": {"num_predict": 2}},
    ],
    "/api/embed": [{"model": "default", "input": ["a", "b"], "truncate": True, "dimensions": 4}],
    "/api/embeddings": [{"model": "default", "prompt": "a", "keep_alive": 0}],
    "/api/show": [{"model": "default"}],
    "/execute": [
        {"prompt": "the", "job_id": "j", "temperature": 0.5, "stop": "x", "timeout_s": 1.0, **_LIMIT},
        {"prompt": [1, 2], "json_schema": _SCHEMA, "logit_bias": {"5": -1}, **_LIMIT},
    ],
    "/cancel": [{"job_id": "j"}],
    "/tokenize": [{"content": "the bath", "with_pieces": True, "add_special": True}],
    "/detokenize": [{"tokens": [1, 2, 257]}],
    "/completion": [{"prompt": "the bath", "n_predict": 4}, {"prompt": [1, "the"], "n_probs": 2, "stream": True}],
    "/embedding": [{"content": "the bath"}],
    "/v1/responses/input_tokens": [{"input": "the bath"}],
    "/v1/batches": [{"input_file_id": "file-1", "endpoint": "/v1/embeddings", "completion_window": "24h"}],
    "/v1/messages/batches": [
        {"requests": [{"custom_id": "a", "params": {"model": "tiny", "max_tokens": 2, "messages": [_ASKED]}}]}
    ],
    "/apply-template": [{"messages": [_ASKED], "tools": [_TOOL], "chat_template_kwargs": {"enable_thinking": False}}],
}  # fmt: skip
_SAME = {
    "/v2/rerank": "/v1/rerank",
    **{path: f"/v1{path}" for path in ("/chat/completions", "/completions", "/embeddings", "/responses", "/rerank")},
}

ENDPOINTS: list[Endpoint] = [endpoint for protocol in PROTOCOLS for endpoint in protocol.endpoints]

#: More values that a field may well have, besides `damage.STRANGE`.
PLAUSIBLE: tuple[Any, ...] = (
    0.5, 1, 2, 100, 1e-9, -2, 10**7, 2**32, "auto", "none", "required", "th" * 3000, "</s>", "<|im_end|>", "é€😀",
    "é" * 50,
    ["x"], [["a"]], ["a"] * 300, [[1, 2]], [-1], [10**10], [257, 258], {"type": "json_object"}, {"type": "text"},
    {"5": 1},
    _SCHEMA, [_TOOL], [_ASKED], [_ASKED] * 50, 'root ::= "a"', 'root ::= root "a"', "root ::= (((", {"$ref": "#"},
    {"type": "object", "properties": {"a": {"$ref": "#"}}}, {"type": "string", "pattern": "(a*)*b"}, "5m", -1, "-1",
    {"type": "array", "items": {"type": "integer"}, "minItems": 10**6}, {"type": "string", "maxLength": 10**9},
    [None, 5],
    {"type": "function", "function": {"name": "weather"}}, {"type": "function", "function": {"name": "x"}}, "default",
)  # fmt: skip


def good(path: str, random: np.random.Generator) -> Body:
    """A body that the endpoint takes."""
    some = GOOD.get(_SAME.get(path, path)) or [{"model": "x"}]
    body: Body = damage.copied(some[int(random.integers(len(some)))])
    return body


def changed(endpoint: Endpoint, body: Body, random: np.random.Generator) -> Body:
    """The same with other values of some fields, strange or plausible ones, or without some."""
    for _ in range(int(random.integers(1, 4))):
        kind = random.random()
        if kind < 0.5:
            damage.with_changed_value(body, random, is_key=kind < 0.1)
            continue
        names = list(endpoint.body.model_fields) if endpoint.body else ["x"]
        values = PLAUSIBLE if kind < 0.85 else damage.STRANGE
        body[names[int(random.integers(len(names)))]] = copy.deepcopy(values[int(random.integers(len(values)))])
    return body


def written(body: Any, random: np.random.Generator) -> bytes:
    """The bytes of a body, which may be damaged as texts are."""
    text = json.dumps(body, ensure_ascii=bool(random.random() < 0.7))
    content = text.encode("utf-8", "surrogatepass")
    kind = random.random()
    if kind < 0.7:
        return content
    if kind < 0.75:
        encoding = str(random.choice(["utf-16", "utf-32-le", "utf-8-sig", "cp037"]))
        return text.encode(encoding, "replace")
    if kind < 0.85:
        return damage.with_changed_bytes(content, random)
    return damage.with_changed_span(content, random)
