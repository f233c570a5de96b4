"""Sessions: conversations that keep their messages, in memory and in files."""

from __future__ import annotations

import asyncio
import copy
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import saved_sessions
from support.checkpoints import lora_files

import pyggml
from pyggml import LLM, ChatMessage, InvalidParameterError, SavedStateError, SavedStateNotFoundError, Session

SYSTEM = {"role": "system", "content": "You answer in one sentence."}
SKY, HOT = "What colour is the sky?", "What is the opposite of hot?"
LOAD: dict[str, Any] = {"n_ctx": 2048, "n_parallel": 4, "n_threads": 1}
OPTIONS: dict[str, Any] = {"max_tokens": 24, "temperature": 0.9, "seed": 5}


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with pyggml.load(**LOAD) as llm:
        yield llm


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def get_weather(city: str) -> str:
    """Weather of a city.

    Args:
        city: its name.
    """
    return city


# --- turns ------------------------------------------------------------------------------------------------------


def test_a_session_is_a_chat_that_keeps_its_messages(llm: LLM) -> None:
    session = llm.session([SYSTEM], **OPTIONS)
    messages: list[Any] = [SYSTEM]
    for question in (SKY, HOT, "Why?"):
        messages.append(user(question))
        expected = llm.chat(messages, **OPTIONS)
        done = session.chat(question)
        assert done.token_ids == expected.token_ids
        messages.append(expected.message)
        assert session.messages == pyggml.checked_messages(messages)
    llm.reset()
    first, second = llm.session([SYSTEM], **OPTIONS), None
    first.chat(SKY)
    second = first.chat(HOT)
    assert second.cached_tokens >= 0.9 * (second.prompt_tokens - len(llm.tokenize(HOT)) - 10)


def test_the_four_ways_give_one_conversation(llm: LLM) -> None:
    sessions = [llm.session([SYSTEM], **OPTIONS) for _ in range(4)]

    async def in_a_loop() -> None:
        for question in (SKY, HOT):
            await sessions[2].achat(question)
            async with sessions[3].astream_chat(question) as stream:
                async for _ in stream:
                    pass

    for question in (SKY, HOT):
        sessions[0].chat(question)
        for _ in sessions[1].stream_chat(question):
            pass
    asyncio.run(in_a_loop())
    assert len(sessions[0].messages) == 5
    assert all(session.messages == sessions[0].messages for session in sessions)


def test_what_a_turn_may_add(llm: LLM) -> None:
    one = llm.session([SYSTEM, user(SKY)], **OPTIONS)
    assert one.chat().text == llm.chat([SYSTEM, user(SKY)], **OPTIONS).text
    for turn in (user(HOT), ChatMessage("user", HOT), [user(HOT)], [ChatMessage("user", HOT)]):
        two = one.fork()
        two.chat(turn)
        assert [each["role"] for each in two.messages] == ["system", "user", "assistant", "user", "assistant"]
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    three = llm.session([user("Weather?"), {"role": "assistant", "content": "", "tool_calls": [call]}], **OPTIONS)
    result = {"role": "tool", "tool_call_id": "abcdefghi", "name": "get_weather", "content": "sunny"}
    three.chat([result], tools=[get_weather], tool_choice="none")
    assert [each["role"] for each in three.messages] == ["user", "assistant", "tool", "assistant"]


def test_options_of_one_turn(llm: LLM) -> None:
    session = llm.session(params=pyggml.SamplingParams(max_tokens=3, temperature=0), ignore_eos=True)
    assert len(session.chat(SKY).token_ids) == 3
    assert len(session.chat(HOT, max_tokens=5).token_ids) == 5
    assert len(session.chat(HOT).token_ids) == 3


def test_a_continued_message(llm: LLM) -> None:
    start = [user(SKY), {"role": "assistant", "content": "The sky is"}]
    session = llm.session(start, **OPTIONS)
    done = session.chat(continue_final_message=True)
    assert session.messages == [user(SKY), {"role": "assistant", "content": "The sky is" + done.message.content}]


def test_a_fork_continues_on_its_own(llm: LLM) -> None:
    llm.reset()
    session = llm.session([SYSTEM, user("word " * 100)], **OPTIONS)
    session.chat()
    before = session.messages
    branches = [session.fork() for _ in range(2)]
    branches[0].options["max_tokens"] = 2
    done = [branch.chat(text) for branch, text in zip(branches, (SKY, HOT), strict=True)]
    assert session.messages == before
    assert len(done[0].token_ids) <= 2
    assert done[1].cached_tokens > 100
    assert [len(branch.messages) for branch in branches] == [5, 5]


# --- turns that do not end ---------------------------------------------------------------------------------------


def test_a_turn_that_is_cancelled_or_fails_adds_nothing(llm: LLM) -> None:
    session = llm.session([SYSTEM], **{**OPTIONS, "ignore_eos": True, "max_tokens": 500})
    with session.stream_chat(SKY) as stream:
        next(stream)
    stream = session.stream_chat(SKY)
    next(stream)
    stream.cancel()
    assert stream.finish().finish_reason == "cancelled"
    dropped = session.stream_chat(SKY)
    next(dropped)
    del dropped
    try:
        session.chat("word " * 4000)
    except pyggml.ContextOverflowError:  # whose traceback holds the failed turn
        assert session.chat(SKY, max_tokens=0).finish_reason == "length"
        session = llm.session([SYSTEM], **session.options)
    else:
        pytest.fail("the turn does not fit")

    async def in_a_loop() -> None:
        task = asyncio.create_task(session.achat(SKY))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        unused = session.astream_chat(SKY)
        closed = session.astream_chat(SKY)
        async with closed:
            pass
        assert "not started" in repr(unused)

    asyncio.run(in_a_loop())
    assert session.messages == [SYSTEM]
    assert session.chat(SKY, max_tokens=4).finish_reason == "length"
    assert len(session.messages) == 3


def test_one_turn_at_a_time(llm: LLM) -> None:
    session = llm.session([SYSTEM], **{**OPTIONS, "ignore_eos": True, "max_tokens": 1000})
    with session.stream_chat(SKY) as stream:
        next(stream)
        with pytest.raises(InvalidParameterError, match="another turn of this session is still running"):
            session.chat(HOT)
        session.fork().chat(HOT, max_tokens=3)

    async def in_a_loop() -> None:
        async with session.astream_chat(SKY) as first:
            await anext(first)
            with pytest.raises(InvalidParameterError, match="another turn"):
                await session.achat(HOT)
        one, two = (session.astream_chat(text, max_tokens=3) for text in (SKY, HOT))
        assert (await one.finish()).finish_reason == "length"
        with pytest.raises(InvalidParameterError, match="another turn of this session ended first"):
            await two.finish()

    asyncio.run(in_a_loop())
    assert [each["content"] for each in session.messages[:2]] == [SYSTEM["content"], SKY]
    assert len(session.messages) == 3


def test_a_cancelled_turn_is_over_at_once(llm: LLM) -> None:
    session = llm.session([SYSTEM], **{**OPTIONS, "ignore_eos": True, "max_tokens": 1000})
    stream = session.stream_chat(SKY)
    next(stream)
    stream.cancel()
    session.chat(HOT, max_tokens=3)

    async def in_a_loop() -> None:
        stream = session.astream_chat(SKY)
        await anext(stream)
        stream.cancel()
        await session.achat(HOT, max_tokens=3)

    asyncio.run(in_a_loop())
    assert [each["content"] for each in session.messages if each["role"] == "user"] == [HOT, HOT]


def test_a_cancelled_turn_that_ended_nevertheless_adds_nothing_after_another(llm: LLM) -> None:
    session = llm.session([SYSTEM], **OPTIONS)
    stream = session.stream_chat(SKY, max_tokens=1)
    while stream._request.finish_reason is None and not stream._request.read_now():
        pass  # until the engine has ended it
    stream.cancel()
    session.chat(HOT)
    stream.finish()
    assert [each["content"] for each in session.messages[:2]] == [SYSTEM["content"], HOT]
    assert len(session.messages) == 3


def test_the_second_of_two_turns_is_refused_before_it_generates(llm: LLM) -> None:
    session = llm.session([SYSTEM], **{**OPTIONS, "ignore_eos": True, "max_tokens": 40})
    before = llm.stats().n_generated_tokens

    async def both() -> list[Any]:
        return list(await asyncio.gather(session.achat(SKY), session.achat(HOT), return_exceptions=True))

    refused: list[Any] = []
    answers: list[Any] = []
    for result in asyncio.run(both()):
        (refused if isinstance(result, InvalidParameterError) else answers).append(result)
    assert len(refused) == len(answers) == 1
    assert "another turn of this session is still running" in str(refused[0])
    assert llm.stats().n_generated_tokens - before == 40
    assert [each["role"] for each in session.messages] == ["system", "user", "assistant"]
    assert session.messages[-1]["content"] == answers[0].message.content


def test_threads_have_sessions_of_their_own(llm: LLM) -> None:
    found: dict[int, list[Any]] = {}

    def converse(i: int) -> None:
        session = llm.session([SYSTEM], **OPTIONS)
        for question in (SKY, HOT):
            session.chat(question)
        found[i] = session.messages

    threads = [threading.Thread(target=converse, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found[i] == found[0] for i in range(6))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda llm: llm.session().chat(), "no messages yet"),
        (lambda llm: llm.session([{"role": "robot", "content": ""}]), "role"),
        (lambda llm: llm.session(temprature=1), "temperature"),
        (lambda llm: llm.session(max_tokens="many"), "max_tokens"),
        (lambda llm: llm.session().chat(5), "messages"),
        (lambda llm: llm.session().chat(SKY, n=3), "n"),
        (lambda llm: copy.copy(llm.session()), "fork"),
    ],
)
def test_what_is_refused(llm: LLM, make: Any, message: str) -> None:
    with pytest.raises(pyggml.InferError, match=message):
        make(llm)


# --- files ------------------------------------------------------------------------------------------------------


def test_a_session_continues_after_a_restart(llm: LLM, tmp_path: Path) -> None:
    session = llm.session([SYSTEM], **OPTIONS)
    for question in (SKY, "word " * 100):
        session.chat(question)
    path = tmp_path / "session"
    n_tokens = session.save(path)
    assert n_tokens > 100
    expected = session.fork().chat(HOT)
    command = [sys.executable, saved_sessions.__file__, llm.model.path, json.dumps(LOAD), "session", str(path), HOT]
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    token_ids, cached, n_prompt, computed, messages, _ = json.loads(out)
    assert token_ids == expected.token_ids
    assert messages == [*session.messages, user(HOT), *pyggml.checked_messages([expected.message])]
    assert cached >= n_tokens - 1
    assert computed == n_prompt - cached
    assert cached > 0.8 * n_prompt


def test_options_are_saved_too(llm: LLM, tmp_path: Path) -> None:
    params = pyggml.SamplingParams(max_tokens=7, stop=["x"], logit_bias={5: float("-inf")}, seed=3, temperature=0.5)
    session = llm.session([SYSTEM], [get_weather], params, tool_choice="none", logit_bias={6: -1.0}, thinking=False)
    session.chat(SKY)
    session.save(tmp_path / "session")
    loaded = llm.session(tmp_path / "session", seed=4)
    assert loaded.messages == session.messages
    tools = loaded.options.pop("tools")
    assert loaded.options.pop("params") == params
    assert loaded.options == {"tool_choice": "none", "logit_bias": {6: -1.0}, "thinking": False, "seed": 4}
    assert tools[0]["function"]["name"] == "get_weather"
    assert loaded.chat(HOT).text == session.chat(HOT, seed=4).text
    fresh = llm.session(str(tmp_path / "session"), [get_weather])
    assert fresh.options["tools"] == [get_weather]


def test_a_salt_in_params(llm: LLM, tmp_path: Path) -> None:
    params = pyggml.SamplingParams(max_tokens=4, cache_salt="tenant")
    session = llm.session([SYSTEM], params=params)
    session.chat(SKY)
    n_saved = session.save(tmp_path / "session")
    llm.reset()
    done = llm.session(tmp_path / "session").chat(HOT)
    assert done.cached_tokens >= n_saved - 1 > 0


def test_an_empty_session(llm: LLM, tmp_path: Path) -> None:
    assert llm.session(**OPTIONS).save(tmp_path / "empty") == 0
    session = llm.session(tmp_path / "empty")
    assert (session.messages, session.options) == ([], OPTIONS)


async def _saved(session: Session, path: Path) -> int:
    return await session.asave(path)


def test_saving_in_a_loop(llm: LLM, tmp_path: Path) -> None:
    session = llm.session([SYSTEM, user(SKY)], **OPTIONS)
    assert asyncio.run(_saved(session, tmp_path / "session")) == session.save(tmp_path / "session")
    assert llm.session(tmp_path / "session").messages == session.messages


@pytest.mark.parametrize("name", ["json_schema", "chat_template", "grammar"])
def test_options_that_a_file_cannot_hold(llm: LLM, tmp_path: Path, name: str) -> None:
    options: dict[str, Any] = {
        "json_schema": int,
        "chat_template": llm.chat_templates(),
        "grammar": pyggml.Grammar('root ::= "a"'),
    }
    session = llm.session([SYSTEM], **{name: options[name]})
    with pytest.raises(InvalidParameterError, match=f"cannot hold the session's option {name}"):
        session.save(tmp_path / "session")
    assert not list(tmp_path.iterdir())
    options["chat_template"].close()


def test_a_field_of_params_that_a_file_cannot_hold_is_named(llm: LLM, tmp_path: Path) -> None:
    params = pyggml.SamplingParams(grammar=pyggml.Grammar('root ::= "a"'))
    with pytest.raises(InvalidParameterError, match=r"option params\.grammar, a Grammar"):
        llm.session([SYSTEM], params=params).save(tmp_path / "session")


@pytest.mark.parametrize("options", [{"type_k": "q8_0"}, {"prefix_cache": False}, {"n_ctx": 128}])
def test_a_session_whose_cells_do_not_fit_keeps_its_messages(
    llm: LLM, tmp_path: Path, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    session = llm.session([SYSTEM, user("word " * 150)], max_tokens=4)
    path = tmp_path / "session"
    session.save(path)
    with pyggml.load(**{**LOAD, **options}) as other, caplog.at_level("WARNING", "pyggml"):
        loaded = other.session(path)
        assert loaded.messages == session.messages
        (record,) = (each for each in caplog.records if "session" in each.message)
        assert record.message.startswith("the session continues, but computes its tokens again: ")
        with pytest.raises((SavedStateError, InvalidParameterError)):
            other.restore(path)
        data = bytearray(path.read_bytes())
        data[-5] ^= 1
        path.write_bytes(data)
        with pytest.raises(SavedStateError, match="is damaged"):
            other.session(path)


def test_a_session_with_an_adapter_saves_only_messages(tiny_path: Path, tmp_path: Path) -> None:
    adapter = lora_files.write_adapter(tmp_path / "law.gguf", tiny_path)
    path = tmp_path / "session"
    with pyggml.load(tiny_path, n_ctx=512, n_threads=1, chat_template="chatml") as llm:
        llm.load_adapter(adapter)
        session = llm.session([user("Hi")], max_tokens=4, adapter="law")
        session.chat()
        before = llm.stats().n_prompt_tokens
        assert session.save(path) == 0
        assert llm.stats().n_prompt_tokens == before
        loaded = llm.session(path)
        assert (loaded.messages, loaded.options) == (session.messages, session.options)
        with pytest.raises(SavedStateError, match="without KV cells"):
            llm.restore(path)
        llm.default_adapters = "law"
        assert llm.session([user("Hi")]).save(path) == 0
        assert llm.session([user("Hi")], adapter={}).save(path) > 0


def test_files_that_are_no_session(llm: LLM, tmp_path: Path) -> None:
    with pytest.raises(SavedStateNotFoundError, match="there is no saved state"):
        llm.session(tmp_path / "none")
    llm.save("Once upon a time", tmp_path / "prefix")
    with pytest.raises(SavedStateError, match="holds a prompt, not a session"):
        llm.session(tmp_path / "prefix")
    with pytest.raises(SavedStateError, match="not a file"):
        llm.session(tmp_path)
    for text in ("You are friendly.", "You are friendly. " * 300):
        with pytest.raises(SavedStateNotFoundError, match=r"You are friendly.*; a conversation begins with messages"):
            llm.session(text)


def test_an_endless_conversation(tmp_path: Path) -> None:
    """Saved and continued, though its older turns do not fit the context."""
    with pyggml.load(n_ctx=512, n_threads=1) as llm:
        session = llm.session([SYSTEM], overflow="shift", **OPTIONS)
        for i in range(12):
            session.chat(f"Question {i}: " + "word " * 30)
        assert session.chat(SKY).dropped_messages > 0
        assert len(session.messages) == 27
        session.save(tmp_path / "session")
        loaded = llm.session(tmp_path / "session")
        assert loaded.chat(HOT).token_ids == session.chat(HOT).token_ids
