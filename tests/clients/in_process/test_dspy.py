"""DSPy's programs with pyggml's engine."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Literal

import dspy
import pytest
from dspy.lm15 import Config, Message, Request
from support.response_forms import Pet

import pyggml
from pyggml.integrations.dspy import PyggmlEmbedder, PyggmlEngine, PyggmlLM

QUESTION, SAID = "What colour is the sky?", "The sky is blue."
SMOLLM2 = os.environ["PYGGML_TEST_MODEL"]


class Mood(dspy.Signature):
    """Tell the mood of a sentence."""

    sentence: str = dspy.InputField()
    mood: Literal["good", "bad"] = dspy.OutputField()


class Found(dspy.Signature):
    """Describe a pet."""

    question: str = dspy.InputField()
    pet: Pet = dspy.OutputField()


@pytest.fixture(scope="module")
def demo() -> Any:
    return PyggmlLM(temperature=0, max_tokens=100, cache=False)


@pytest.fixture(scope="module")
def smollm2() -> Any:
    return PyggmlLM(SMOLLM2, load_options={"n_ctx": 4096}, temperature=0, max_tokens=200, cache=False)


def test_calls(demo: Any) -> None:
    assert demo(QUESTION) == [SAID]
    assert demo(QUESTION, max_tokens=2) == ["The sky"]
    response = demo(Request(model=demo.model, messages=(Message.user(QUESTION),), system="Answer in one word."))
    assert (response.text, response.finish_reason) == ("Blue.", "stop")
    assert response.usage.output_tokens > 0
    assert demo.history[-1]["usage"]


async def test_coroutines(demo: Any) -> None:
    one, other = await asyncio.gather(demo.acall(QUESTION), demo.acall(QUESTION))
    assert one == other == [SAID]


def test_logprobs_and_other_parameters(demo: Any) -> None:
    config = Config(logprobs=2, max_tokens=20, extensions={"choices": ["Green", "Red"]})
    response = demo(Request(model=demo.model, messages=(Message.user(QUESTION),), config=config))
    assert response.text in ("Green", "Red")
    assert len(response.logprobs[0].top) == 2


@pytest.mark.parametrize("adapter", [dspy.JSONAdapter])
def test_signatures_with_types(adapter: Any, smollm2: Any) -> None:
    with dspy.context(lm=smollm2, adapter=adapter()):
        assert dspy.Predict(Mood)(sentence="I love it.").mood in ("good", "bad")
        assert isinstance(dspy.Predict(Found)(question="Which pet?").pet, Pet)
        assert dspy.ChainOfThought(Mood)(sentence="I love it.").mood in ("good", "bad")


def test_evaluation_runs_in_threads(smollm2: Any) -> None:
    examples = [dspy.Example(sentence=text, mood="good").with_inputs("sentence") for text in ("Fine.", "Great!", "Ah.")]
    with dspy.context(lm=smollm2, adapter=dspy.JSONAdapter()):
        evaluate = dspy.Evaluate(devset=examples, metric=dspy.evaluate.answer_exact_match, num_threads=3)
        evaluate.metric = lambda example, found, *_: example.mood == found.mood
        assert 0 <= evaluate(dspy.Predict(Mood)).score <= 100


def test_tools(smollm2: Any) -> None:
    from dspy.lm15 import FunctionTool, ToolChoice

    parameters = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}
    weather = FunctionTool("get_weather", "Tells the weather in a city.", parameters)
    config = Config(tool_choice=ToolChoice("required"), max_tokens=64)
    asked = Message.user("What is the weather in Oslo?")
    response = smollm2(Request(model=smollm2.model, messages=(asked,), tools=(weather,), config=config))
    (call,) = (part for part in response.message.parts if part.type == "tool_call")
    assert (call.name, call.input["city"] in ("Rome", "Oslo"), response.finish_reason) == (
        "get_weather",
        True,
        "tool_call",
    )
    told = Message.tool([dspy.lm15.tool_result(call.id, "It rains.", name="get_weather")])
    again = Request(model=smollm2.model, messages=(asked, response.message, told), tools=(weather,))
    assert isinstance(smollm2(again).text, str)


async def test_streams(smollm2: Any) -> None:
    listener = dspy.streaming.StreamListener("reasoning")
    with dspy.context(lm=smollm2, adapter=dspy.JSONAdapter()):
        program = dspy.streamify(dspy.ChainOfThought(Mood), stream_listeners=[listener])
        *pieces, found = [event async for event in program(sentence="I love it.")]
    # The listener cuts a field off at its end only if that is the end of a chunk, which may have several tokens.
    assert found.reasoning in "".join(piece.chunk for piece in pieces)
    engine = PyggmlEngine()
    request = Request(model="pyggml/demo", messages=(Message.user(QUESTION),), config=Config(temperature=0))
    deltas = [event.delta.text for event in engine.stream(request) if event.type == "delta"]
    assert "".join(deltas) == SAID


def test_errors_are_those_of_dspy(demo: Any) -> None:
    with pytest.raises(dspy.ContextWindowExceededError):
        demo("word " * 4000)
    with pytest.raises(dspy.utils.exceptions.LMError, match="min_p"):
        demo(Request(model=demo.model, messages=(Message.user("a"),), config=Config(extensions={"min_p": 7})))


def test_programs_are_saved(demo: Any, tmp_path: Path) -> None:
    program = dspy.Predict("question -> answer")
    program.set_lm(demo)
    program.save(tmp_path / "program.json")
    loaded = dspy.Predict("question -> answer")
    loaded.load(tmp_path / "program.json", allow_unsafe_lm_state=True)
    assert loaded.lm(QUESTION) == [SAID]
    assert loaded.lm.engine.llm is demo.engine.llm
    with pyggml.load() as own, pytest.raises(pyggml.InvalidParameterError, match="open LLM"):
        PyggmlEngine(own).dump_state()


def test_embedders() -> None:
    embedder = dspy.Embedder(PyggmlEmbedder(), batch_size=2)
    vectors = embedder(["a dog", "a cat", "the sky"])
    assert vectors.shape[0] == 3
    assert (vectors**2).sum(axis=1) == pytest.approx(1, abs=1e-3)
    retriever = dspy.retrievers.Embeddings(corpus=["The sky is blue.", "A dog barks."], embedder=embedder, k=1)
    assert len(retriever("Which colour has the sky?").passages) == 1
