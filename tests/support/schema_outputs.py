"""Outputs of a model that follow JSON schemas, several at once, judged by ``jsonschema``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

import pyggml
from pyggml import errors
from support import exact_json

N_PARALLEL = 8
TEMPERATURE = 0.8


class Output(NamedTuple):
    """One output.

    Attributes:
        kind: "valid"; "invalid"; "unfinished" after ``max_tokens``; "refused": no grammar; "unchecked": the validator
            cannot use the schema.
        text: the text, "" if refused.
        reason: of "invalid", "refused" and "unchecked".
    """

    kind: Literal["valid", "invalid", "unfinished", "refused", "unchecked"]
    text: str = ""
    reason: str = ""


def generate(
    llm: pyggml.LLM, schemas: Mapping[str, Any], *, max_tokens: int, seed: int
) -> Iterator[tuple[str, Output]]:
    """Generate one output by each schema, ``N_PARALLEL`` at once, and yield them by the schemas' names."""

    def one(number: int, schema: Any) -> Output:
        try:
            done = llm.chat(
                [{"role": "user", "content": _question(schema)}],
                json_schema=schema,
                json_schema_options={"unknown_keywords": "ignore"},
                temperature=TEMPERATURE,
                seed=seed + number,
                max_tokens=max_tokens,
            )
        except errors.GrammarError as error:
            return Output("refused", reason=str(error))
        text = done.message.content or ""
        return judged(schema, text) if done.finish_reason == "stop" else Output("unfinished", text)

    with ThreadPoolExecutor(N_PARALLEL) as pool:
        yield from zip(schemas, pool.map(one, range(len(schemas)), schemas.values()), strict=True)


def _question(schema: Any) -> str:
    about = schema.get("description", schema.get("title")) if isinstance(schema, dict) else None
    return f"Write a short example as JSON: {str(about or 'anything')[:200]}"


def judged(schema: Any, text: str) -> Output:
    """Validate a finished output."""
    try:
        verdict = exact_json.judge(exact_json.validator_of(schema), text)
    except exact_json.HugeNumberError as error:
        return Output("unchecked", text, str(error))
    return Output(verdict.kind, text, verdict.reason)
