"""Limits of the tokens that a model spends on reasoning."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import models

import pyggml

TEMPLATES = models.VOCABULARIES / "templates"
QWEN, R1 = TEMPLATES / "Qwen-Qwen3-0.6B.jinja", TEMPLATES / "deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja"
ASK = [{"role": "user", "content": "Is it?"}]
SPECIAL = ("<think>", "</think>", "<tool_call>", "</tool_call>")
A = ord("a")  # the byte vocabulary's token


@pytest.fixture(scope="module")
def llm(model_dir: Path) -> Iterator[pyggml.LLM]:
    path = models.write_llama(model_dir / "reasoning.gguf", models.byte_vocabulary(*SPECIAL))
    with pyggml.load(path, n_ctx=2048, n_parallel=4, n_threads=1) as llm:
        yield llm


def writing(text: str, llm: pyggml.LLM, then: int = A) -> Callable[[Any, Any], Any]:
    """A processor that makes the model write a text, of which forced tokens replace some, and then the same token."""
    tokens = llm.tokenize(text, add_special=False)
    start: list[int] = []

    def processor(ids: Any, _logits: Any) -> int:
        start[:] = start or [len(ids)]
        n = len(ids) - start[0]
        return tokens[n] if n < len(tokens) else then

    return processor


def chat(llm: pyggml.LLM, text: str, template: Path = QWEN, **options: Any) -> pyggml.ChatCompletion:
    settings: Any = {"max_tokens": 40, **options}
    done: pyggml.ChatCompletion = llm.chat(ASK, chat_template=template, logits_processor=writing(text, llm), **settings)
    return done


def test_reasoning_ends_at_its_budget(llm: pyggml.LLM) -> None:
    done = chat(llm, "<think>" + "b" * 30, reasoning_budget=5)
    assert done.message.reasoning_content == "bbbbb"
    assert done.message.content == "b" * 24 + "a" * 9  # 40 tokens, of which two are tags
    assert done.text.startswith("<think>bbbbb</think>bb")


def test_shorter_reasoning_is_not_affected(llm: pyggml.LLM) -> None:
    text = "<think>bbb</think>yes"
    without = chat(llm, text)
    done = chat(llm, text, reasoning_budget=4)
    assert (done.token_ids, done.message) == (without.token_ids, without.message)
    assert done.message.reasoning_content == "bbb"
    never = chat(llm, "yes" * 9, reasoning_budget=2)
    assert never.text == "yes" * 9 + "a" * 13


def test_a_message_leads_to_the_answer(llm: pyggml.LLM) -> None:
    done = chat(llm, "<think>" + "b" * 30, reasoning_budget=3, reasoning_budget_message=" Enough.")
    assert done.message.reasoning_content == "bbb Enough."
    assert done.text.startswith("<think>bbb Enough.</think>")


def test_a_prompt_that_begins_the_reasoning(llm: pyggml.LLM) -> None:
    done = chat(llm, "b" * 30, R1, reasoning_budget=5)
    assert done.message.reasoning_content.strip() == "bbbbb"
    assert done.text.startswith("bbbbb</think>b")
    none = chat(llm, "b" * 30, R1, reasoning_budget=0)
    assert (none.message.reasoning_content.strip(), none.text[:9]) == ("", "</think>b")


def test_no_reasoning(llm: pyggml.LLM) -> None:
    """With 0, the template turns it off; if the model reasons nevertheless, it ends at once."""
    off = llm.chat(ASK, chat_template=QWEN, thinking=False, max_tokens=1).prompt_tokens
    assert chat(llm, "yes", reasoning_budget=0).prompt_tokens == off
    on = chat(llm, "<think>bbb", reasoning_budget=0, thinking=True)
    assert on.prompt_tokens < off
    assert on.text.startswith("<think></think>bba") or on.text.startswith("<think></think>b")
    assert on.message.reasoning_content == ""


def test_each_stretch_has_the_budget(llm: pyggml.LLM) -> None:
    done = chat(llm, "<think>bbbbbb<think>cccccc", reasoning_budget=2)
    assert done.text.startswith("<think>bb</think>bbb<think>cc</think>c")


def test_characters_are_not_cut(llm: pyggml.LLM) -> None:
    """A budget that ends within a character extends to the next token that ends one."""
    done = chat(llm, "<think>b🙂ccc", reasoning_budget=2)
    assert done.message.reasoning_content == "b🙂c"


def test_a_message_that_is_continued(llm: pyggml.LLM) -> None:
    messages = [*ASK, {"role": "assistant", "content": "", "reasoning_content": "So"}]
    options: dict[str, Any] = {"chat_template": QWEN, "continue_final_message": True, "max_tokens": 20}
    done = llm.chat(messages, reasoning_budget=3, logits_processor=writing("b" * 20, llm), **options)
    assert done.token_ids.count(llm.tokenize("</think>", add_special=False)[0]) <= 1


def test_with_a_schema_and_with_tools(llm: pyggml.LLM) -> None:
    schema = {"enum": ["yes", "no"]}
    random: dict[str, Any] = {"max_tokens": 200, "seed": 1, "temperature": 1}
    done = llm.chat(ASK, chat_template=QWEN, json_schema=schema, reasoning_budget=6, **random)
    assert json.loads(done.message.content) in ("yes", "no")
    assert len(llm.tokenize(done.message.reasoning_content, add_special=False)) <= 6

    def is_it(sure: bool) -> None:
        """Tell."""

    call = '<tool_call>\n{"name": "is_it", "arguments": {"sure": true}}\n</tool_call>'
    options: dict[str, Any] = {"chat_template": QWEN, "tool_choice": "required", "max_tokens": 300}
    end = next(iter(llm.stop_tokens))
    processor = writing(f"<think>bbbbx\n\n{call}", llm, end)  # x is replaced by the tag
    called = llm.chat(ASK, [is_it], reasoning_budget=4, logits_processor=processor, **options)
    assert called.finish_reason == "tool_calls", called
    assert (called.message.reasoning_content, called.message.tool_calls[0].arguments) == ("bbbb", {"sure": True})


def test_it_needs_no_row_and_changes_no_random_number(llm: pyggml.LLM) -> None:
    options: dict[str, Any] = {"chat_template": R1, "max_tokens": 30, "temperature": 1.5, "seed": 3, "ignore_eos": True}
    plain = llm.chat(ASK, **options)
    limited = llm.chat(ASK, reasoning_budget=4, logprobs=2, **options)
    assert limited.token_ids[:4] == plain.token_ids[:4]
    assert limited.token_ids[4] == llm.tokenize("</think>", add_special=False)[0]
    assert len(limited.logprobs or ()) == len(limited.token_ids)


def test_streams_and_batches(llm: pyggml.LLM) -> None:
    options: dict[str, Any] = {"chat_template": R1, "max_tokens": 20, "reasoning_budget": 4, "ignore_eos": True}
    options["temperature"] = 0
    expected = llm.chat(ASK, **options)
    stream = llm.stream_chat(ASK, **options)
    assert "".join(chunk.text for chunk in stream) == expected.text
    assert [each.token_ids for each in llm.chat_batch([ASK] * 3, **options)] == [expected.token_ids] * 3
    assert [each.token_ids for each in llm.chat(ASK, n=2, **options)] == [expected.token_ids] * 2


@pytest.mark.slow
def test_a_model_in_another_process(llm: pyggml.LLM) -> None:
    options: dict[str, Any] = {"chat_template": R1, "max_tokens": 20, "reasoning_budget": 4, "temperature": 0}
    with pyggml.load(llm.source, n_ctx=2048, n_threads=1, isolate=True) as isolated:
        assert isolated.chat(ASK, **options).token_ids == llm.chat(ASK, **options).token_ids


def test_templates_without_reasoning(llm: pyggml.LLM) -> None:
    plain = llm.chat(ASK, max_tokens=9, temperature=0)
    assert llm.chat(ASK, max_tokens=9, temperature=0, reasoning_budget=2).token_ids == plain.token_ids


def test_what_is_refused(llm: pyggml.LLM) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match="reasoning_budget needs a chat"):
        llm.generate("Once", reasoning_budget=5)
    with pytest.raises(pyggml.InvalidParameterError, match="reasoning_budget needs a chat"):
        llm._engine.submit([5, 6], reasoning_budget=5)
    with pytest.raises(pyggml.InvalidParameterError, match="reasoning_budget must be between 0"):
        llm.chat(ASK, reasoning_budget=-1)
    with pytest.raises(pyggml.InvalidParameterError, match="without reasoning_budget"):
        llm.chat(ASK, reasoning_budget_message="So.")
