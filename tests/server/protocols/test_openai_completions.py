"""OpenAI's completions of texts, as a client of HTTP sees them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest
from support.paths import DATA
from support.servers import servers

import pyggml
from pyggml.server import Settings, create_app

PROMPT = "Once upon a time"
FORM: Any = json.loads((DATA / "openai_forms.json").read_text(encoding="utf-8"))["text_completion"]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with servers.serving() as url:
        yield url


@pytest.fixture(scope="module")
def llm() -> Iterator[pyggml.LLM]:
    with pyggml.load() as llm:
        yield llm


def post(url: str, **body: Any) -> httpx.Response:
    return httpx.post(f"{url}/v1/completions", json={"prompt": PROMPT, "max_tokens": 8, **body}, timeout=60)


def completed(url: str, **body: Any) -> dict[str, Any]:
    answer = post(url, **body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    require_form(found)
    return found


def streamed(url: str, **body: Any) -> list[dict[str, Any]]:
    body = {"prompt": PROMPT, "max_tokens": 8, "stream": True, **body}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60) as answer:
        data = [data for _, data in servers.events([*answer.iter_lines()])]
    assert data[-1] == "[DONE]"
    chunks = [json.loads(each) for each in data[:-1]]
    for chunk in chunks:
        require_form(chunk)
    return chunks


def require_form(found: dict[str, Any]) -> None:
    """OpenAI's own class wants a reason in every chunk and a logprob for every token, and its answers lack both."""
    form = json.loads(json.dumps(found))
    for choice in form["choices"]:
        choice["finish_reason"] = choice["finish_reason"] or "stop"
        for name, nothing in (("token_logprobs", 0), ("top_logprobs", {})):
            if choice["logprobs"] and choice["logprobs"][name]:
                choice["logprobs"][name] = [each or nothing for each in choice["logprobs"][name]]
    jsonschema.validate(form, FORM)


def texts(chunks: list[dict[str, Any]], n: int) -> list[str]:
    found = [""] * n
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        found[choice["index"]] += choice["text"]
    return found


@pytest.mark.slow
def test_it_continues_a_text(url: str, llm: pyggml.LLM) -> None:
    expected = llm.generate(PROMPT, max_tokens=8)
    for prompt in (PROMPT, [PROMPT], llm.tokenize(PROMPT), [llm.tokenize(PROMPT)]):
        found = completed(url, prompt=prompt, temperature=0)
        end = {"finish_reason": "length", "stop_reason": "max_tokens"}
        assert found["choices"] == [{"index": 0, "text": expected.text, "logprobs": None, **end}]
        assert found["usage"]["prompt_tokens"] == expected.prompt_tokens
        assert found["usage"]["completion_tokens"] == 8
    chunks = streamed(url, stream_options={"include_usage": True})
    assert texts(chunks, 1) == [expected.text]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 2) + ["length"]
    assert [chunk["choices"][0].get("stop_reason") for chunk in chunks[-3:-1]] == [None, "max_tokens"]
    assert chunks[-2]["choices"][0]["text"] == ""
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] == expected.prompt_tokens + 8


@pytest.mark.slow
def test_several_prompts_with_several_answers(url: str, llm: pyggml.LLM) -> None:
    prompts = [PROMPT, "The dog"]
    expected = [llm.generate(prompt, max_tokens=8).text for prompt in prompts for _ in range(2)]
    found = completed(url, prompt=prompts, n=2, temperature=0)
    assert [choice["text"] for choice in found["choices"]] == expected
    assert [choice["index"] for choice in found["choices"]] == [0, 1, 2, 3]
    assert found["usage"]["prompt_tokens"] == sum(len(llm.tokenize(prompt)) for prompt in prompts)
    assert found["usage"]["completion_tokens"] == 32
    assert texts(streamed(url, prompt=prompts, n=2, temperature=0), 4) == expected


def test_the_prompt_is_repeated(url: str, llm: pyggml.LLM) -> None:
    expected = PROMPT + llm.generate(PROMPT, max_tokens=8).text
    assert completed(url, echo=True)["choices"][0]["text"] == expected
    assert texts(streamed(url, echo=True), 1) == [expected]
    assert completed(url, echo=True, prompt=llm.tokenize(PROMPT))["choices"][0]["text"] == expected


def test_logprobs(url: str, llm: pyggml.LLM) -> None:
    expected = llm.generate(PROMPT, max_tokens=8, logprobs=2).logprobs
    assert expected is not None
    logprobs = completed(url, logprobs=2)["choices"][0]["logprobs"]
    assert logprobs["token_logprobs"] == pytest.approx([each.logprob for each in expected], abs=0.05)
    assert [len(top) for top in logprobs["top_logprobs"]] == [2] * 8
    assert completed(url, logprobs=0)["choices"][0]["logprobs"]["top_logprobs"] is None
    pieces = [chunk["choices"][0]["logprobs"] for chunk in streamed(url, logprobs=2)[:-1]]
    for name in ("tokens", "text_offset"):
        assert [each for piece in pieces for each in piece[name]] == logprobs[name]


def test_a_text_is_scored(url: str, llm: pyggml.LLM) -> None:
    """As lm-evaluation-harness asks for it."""
    text = "The dog was happy."
    expected = llm.generate(text, max_tokens=0, prompt_logprobs=1).prompt_logprobs
    assert expected is not None
    (choice,) = completed(url, prompt=text, echo=True, logprobs=1, max_tokens=0)["choices"]
    assert (choice["text"], "".join(choice["logprobs"]["tokens"])) == (text, text)
    assert choice["logprobs"]["token_logprobs"][0] is choice["logprobs"]["top_logprobs"][0] is None
    found = choice["logprobs"]["token_logprobs"][1:]
    assert found == pytest.approx([each.logprob for each in expected if each], abs=0.05)


def test_the_best_of_several(url: str) -> None:
    seeded = {"seed": 3, "temperature": 2, "max_tokens": 4}
    several = completed(url, n=4, logprobs=0, **seeded)["choices"]
    means = [sum(choice["logprobs"]["token_logprobs"]) for choice in several]
    found = completed(url, best_of=4, **seeded)
    assert [choice["text"] for choice in found["choices"]] == [several[means.index(max(means))]["text"]]
    assert found["choices"][0]["logprobs"] is None
    assert found["usage"]["completion_tokens"] == 16


def test_special_tokens_mean_what_they_spell(url: str, llm: pyggml.LLM) -> None:
    prompt = llm.apply_chat_template([{"role": "user", "content": "What colour is the sky?"}])
    assert completed(url, prompt=prompt, max_tokens=None)["choices"][0]["text"] == "The sky is blue."


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": None}, None),
        ({"prompt": []}, None),
        ({"prompt": [PROMPT, 5]}, None),
        ({"prompt": {"a": 1}}, None),
        ({"prompt": [10**6]}, None),
        ({"prompt": [-1]}, None),
        ({"prompt": [2**40]}, None),
        ({"suffix": "the end"}, "suffix"),
        ({"best_of": 1, "n": 2}, "best_of"),
        ({"best_of": 2, "stream": True}, "best_of"),
        ({"echo": True, "logprobs": 1, "stream": True}, "echo"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
    ],
)
def test_what_is_refused(body: dict[str, Any], param: str | None, url: str) -> None:
    answer = post(url, **body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error"), answer.text
    assert answer.json()["error"]["param"] == param or param is None
    assert len(answer.json()["error"]["message"]) < 1000


@pytest.mark.slow
def test_an_answer_that_runs_out_of_time_is_cut() -> None:
    with servers.serving(create_app(Settings(request_timeout=0.2))) as url:
        done = completed(url, max_tokens=None, ignore_eos=True, n=8)
        ends = {(choice["finish_reason"], choice["stop_reason"]) for choice in done["choices"]}
        assert ends == {("length", "timeout")}
        assert done["usage"]["completion_tokens"] < 8 * 1000
        assert streamed(url, max_tokens=None, ignore_eos=True)[-1]["choices"][0]["finish_reason"] == "length"
