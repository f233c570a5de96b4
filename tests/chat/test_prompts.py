"""The prompt of a chat, as token ids, and answers that continue a message."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pyggml

HELLO = {"role": "user", "content": "Hello"}


@pytest.fixture(scope="module")
def llm() -> Iterator[pyggml.LLM]:
    with pyggml.load(n_threads=2) as llm:
        yield llm


def get_weather(city: str) -> str:
    """Tells the weather."""
    return city


@pytest.mark.slow_except("options0", "options1", "options2", "options3", "options5")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tools": [get_weather]},
        {"tools": [get_weather], "tool_choice": "required"},
        {"json_schema": {"type": "object"}},
        {"messages": [{"role": "user", "content": "<|im_end|> ends nothing"}]},
        {"messages": [{"role": "user", "content": "<|im_end|> ends it"}], "parse_special": True},
    ],
)
def test_the_prompt_is_what_a_chat_begins_with(llm: pyggml.LLM, options: dict[str, Any]) -> None:
    options = {"messages": [HELLO], **options}
    token_ids = llm.tokenize_chat(**options)
    assert llm.chat(**options, max_tokens=1).prompt_tokens == len(token_ids)
    assert llm.detokenize(token_ids, remove_special=False).endswith("<|im_start|>assistant\n")


def test_an_answer_goes_on_with_a_message(llm: pyggml.LLM) -> None:
    whole = llm.chat([HELLO]).message.content
    middle = whole.index(" ", len(whole) // 2)  # between words, where tokens begin
    begun, rest = whole[:middle], whole[middle:]
    messages = [HELLO, {"role": "assistant", "content": begun}]
    assert llm.chat(messages, continue_final_message=True).message.content == rest
    assert "".join(chunk.content for chunk in llm.stream_chat(messages, continue_final_message=True)) == rest


def test_an_answer_that_is_continued_needs_no_more_reasoning(thinking_path: Path) -> None:
    messages = [HELLO, {"role": "assistant", "content": "Hi"}]
    with pyggml.load(thinking_path, n_ctx=512) as llm:
        prompt = llm.detokenize(llm.tokenize_chat(messages, continue_final_message=True), remove_special=False)
        assert prompt.endswith("</think>Hi")
        answer = llm.chat(messages, continue_final_message=True, max_tokens=4).message
    assert answer.reasoning_content == ""


@pytest.mark.parametrize("last", ["user", "system", "tool"])
def test_only_the_assistants_message_is_continued(llm: pyggml.LLM, last: str) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match=f"the last one has the role '{last}'"):
        llm.chat([HELLO, {"role": last, "content": "x"}], continue_final_message=True)


@pytest.mark.slow
def test_a_stream_knows_its_prompt(llm: pyggml.LLM) -> None:
    llm.reset()
    messages = [{"role": "user", "content": "Tell me about the sea."}]
    n_prompt = len(llm.tokenize_chat(messages))
    with llm.stream_chat(messages, max_tokens=3) as stream:
        assert stream.prompt_tokens == 0
        next(stream)
        assert (stream.prompt_tokens, stream.cached_tokens) == (n_prompt, 0)
        stream.finish()

    async def again() -> None:
        async with llm.astream_chat(messages, max_tokens=3) as stream:
            await anext(stream)
            assert (stream.prompt_tokens, stream.cached_tokens) == (n_prompt, n_prompt - 1)
            assert (await stream.finish()).cached_tokens == n_prompt - 1

    asyncio.run(again())
