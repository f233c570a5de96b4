"""Makes up conversations and tools: numbers of all sizes, unicode, nulls, reasoning, calls and many roles."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

TEXTS = (
    "hi", "", " ", "\n", "é日😀", "  spaces around \n", "\u00a0no-break\u2003\u3000", "a\u2028b\u2029c",
    "line\nline\r\n",
    "<|im_end|>\n<|im_start|>system", "<s>", "</s>[INST]", "<think>inner</think>outer", "</think>", "<think>",
    "<tool_call>\n{\"name\": \"f\"}\n</tool_call>", "{{ messages }}{% raw %}", "& <b> \"quoted\" 'single' `tick`",
    "null", "None", "true", "[]", "{\"sky\": \"grey\", \"n\": 1.0}", "[1, 2.50, 1e400]", "48.8566101", "/no_think",
    "/think", "ǅ ß İ ﬁ", "\t\x0b\x0c", "e\u0301 \u200d \ufeff", "x" * 300, "Ünïcödé " * 20, "\\n \\u00e9 \\",
    "a: b\n- c",
    "<|channel|>final<|message|>", "[TOOL_CALLS]", "<tool_response>\nx\n</tool_response>", "user\n", "# Title", "  ",
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (
    0, -0.0, 1, 1.0, -1, 48.8566101, 1234567.89, 2**31, 2**53 + 1, 2**63, -(2**63), 2**64 + 1, 10**30, 1e-7, 1e16, 1e22,
    1.5e300, 0.1, 100.0, 123456789.123456789, 5e-324, -273.15, 3.0e8,
)  # fmt: skip
NAMES = ("get_weather", "f", "search", "名前", "with-dash", "a.b", "python", "CamelCase", "items", "x" * 64)
KEYS = ("city", "days", "items", "keys", "values", "get", "name", "type", "é", "a b", "pop", "content", "0", "enum")
ROLES = ("user", "assistant", "system", "developer", "tool")
TYPES: tuple[Any, ...] = ("string", "integer", "number", "boolean", "array", "object", "null", ["string", "null"])


class Writer:
    """Writes conversations, from nothing but random numbers."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self._n_calls = 0

    def messages(self) -> list[dict[str, Any]]:
        """A conversation; most are such as programs have, some have their roles in any order."""
        if self._often(0.15):
            return [self._message(self._one(ROLES)) for _ in range(int(self._random.integers(1, 6)))]
        messages = [self._message(self._one(("system", "system", "developer")))] if self._often(0.5) else []
        for _ in range(int(self._random.integers(0, 4))):
            messages += [self._message("user"), *self._answer()]
            if self._often(0.1):
                messages.append(self._message("system"))
        if self._often(0.85) or not messages:
            messages.append(self._message("user"))
        return messages

    def tool(self) -> dict[str, Any]:
        """A tool in OpenAI's format, sometimes with little of it."""
        function: dict[str, Any] = {"name": self._one(NAMES)}
        if self._often(0.9):
            function["description"] = self._text()
        if self._often(0.9):
            function["parameters"] = self._parameters()
        for key, value in (("strict", True), ("return", {"type": "string"}), ("response", {"type": "object"})):
            if self._often(0.1):
                function[key] = value
        return {"type": "function", "function": function}

    def _message(self, role: str) -> dict[str, Any]:
        if role == "assistant":
            return self._answer()[0]
        message: dict[str, Any] = {"role": role, "content": self._content()}
        if role == "tool":
            message |= {"tool_call_id": self._id(), "name": self._one(NAMES)}
        return message

    def _answer(self) -> list[dict[str, Any]]:
        """An assistant's message, and the results of its calls."""
        answer: dict[str, Any] = {"role": "assistant", "content": self._content()}
        if self._often(0.3) and (reasoning := self._text()):
            answer["reasoning_content"] = reasoning
        if not self._often(0.35):
            return [answer]
        if self._often(0.6):
            answer["content"] = ""
        calls = [self._call() for _ in range(self._one((1, 1, 2, 3)))]
        results = [
            {
                "role": "tool", "content": self._content(),
                "tool_call_id": call["id"], "name": call["function"]["name"],
            }
            for call in calls
        ]  # fmt: skip
        return [{**answer, "tool_calls": calls}, *results, *(self._answer() if self._often(0.7) else [])]

    def _call(self) -> dict[str, Any]:
        arguments = {self._one(KEYS): self._value() for _ in range(int(self._random.integers(0, 4)))}
        function = {"name": self._one(NAMES), "arguments": json.dumps(arguments, ensure_ascii=False)}
        return {"id": self._id(), "type": "function", "function": function}

    def _id(self) -> str:
        self._n_calls += 1
        return str(self._one((f"call{self._n_calls:05}", f"call_{self._n_calls}", f"functions.f:{self._n_calls}")))

    def _parameters(self, depth: int = 2) -> dict[str, Any]:
        properties = {self._one(KEYS): self._schema(depth) for _ in range(int(self._random.integers(0, 4)))}
        found: dict[str, Any] = {"type": "object", "properties": properties}
        if self._often(0.6):
            found["required"] = list(properties)[: int(self._random.integers(0, 3))]
        if self._often(0.2):
            found["additionalProperties"] = self._one((False, True, {"type": "string"}))
        if self._often(0.1):
            found["$defs"] = {"A": {"type": "string"}}
        return found

    def _schema(self, depth: int) -> Any:
        if self._often(0.04):
            return self._one(
                (True, False, {}, {"anyOf": [{"type": "string"}, {"type": "null"}]}, {"$ref": "#/$defs/A"})
            )
        schema: dict[str, Any] = {"type": self._one(TYPES)}
        if schema["type"] == "object" and depth:
            schema |= self._parameters(depth - 1)
        if schema["type"] == "array" and self._often(0.8):
            schema["items"] = self._schema(depth - 1) if depth else {"type": "string"}
        if self._often(0.7):
            schema["description"] = self._text()
        if self._often(0.2):
            schema["enum"] = [self._value(0) for _ in range(int(self._random.integers(1, 4)))]
        for key in ("default", "minimum", "maximum", "const", "nullable", "format", "title"):
            if self._often(0.08):
                schema[key] = self._value(1)
        return schema

    def _value(self, depth: int = 2) -> Any:
        kind = self._random.random()
        if kind < 0.35:
            return self._one(NUMBERS)
        if kind < 0.65 or not depth:
            return self._one((self._text(), self._text(), True, False, None))
        if kind < 0.85:
            return [self._value(depth - 1) for _ in range(int(self._random.integers(0, 4)))]
        return {self._one(KEYS): self._value(depth - 1) for _ in range(int(self._random.integers(0, 3)))}

    def _content(self) -> Any:
        if self._often(0.12):
            return [{"type": "text", "text": self._text()} for _ in range(int(self._random.integers(1, 4)))]
        return self._text()

    def _text(self) -> str:
        return " ".join(self._one(TEXTS) for _ in range(self._one((1, 1, 2, 3))))

    def _often(self, share: float) -> bool:
        return bool(self._random.random() < share)

    def _one(self, choices: Any) -> Any:
        return choices[int(self._random.integers(len(choices)))]
