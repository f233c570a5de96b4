"""Instructor against the running server. It pins jiter, which keeps openai back, and rich."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import instructor
import pytest
from openai import AsyncOpenAI, OpenAI
from support.response_forms import Pet

CONNECTION: Any = {"base_url": f"{os.environ['PYGGML_URL']}/v1", "api_key": "none", "max_retries": 0}
ASKED: Any = {
    "model": "default",
    "messages": [{"role": "user", "content": "A pet as JSON"}],
    "max_tokens": 300,
    # Lets a small model come to the point in JSON, instead of writing spaces.
    "extra_body": {"logit_bias": {'"': 20, "}": 8}},
}


@pytest.mark.parametrize("mode", [instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA])
def test_objects(mode: instructor.Mode) -> None:
    with OpenAI(**CONNECTION) as client:
        patched = instructor.from_openai(client, mode=mode)
        found = patched.chat.completions.create(response_model=Pet, max_retries=0, **ASKED)
    assert isinstance(found, Pet)


def test_lists_of_objects() -> None:
    not_empty = {"extra_body": {"logit_bias": {**ASKED["extra_body"]["logit_bias"], "{": 30}}}
    with OpenAI(**CONNECTION) as client:
        patched = instructor.from_openai(client, mode=instructor.Mode.TOOLS)
        found = list(patched.chat.completions.create_iterable(response_model=Pet, **{**ASKED, **not_empty}))
    assert found
    assert {type(each) for each in found} == {Pet}


def test_objects_that_grow() -> None:
    async def main() -> list[Any]:
        async with AsyncOpenAI(**CONNECTION) as client:
            patched = instructor.from_openai(client, mode=instructor.Mode.TOOLS)
            pieces = patched.chat.completions.create_partial(response_model=Pet, **ASKED)
            return [each async for each in pieces]

    *_, last = asyncio.run(main())
    assert (last.kind in ("cat", "dog"), isinstance(last.tame, bool)) == (True, True)
