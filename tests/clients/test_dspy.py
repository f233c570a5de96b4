"""DSPy's own ``dspy.LM`` against the running server."""

from __future__ import annotations

import os
from typing import Any, Literal

import dspy
import pytest

QUESTION, SAID = "What colour is the sky?", "The sky is blue."
CONNECTION: Any = {
    "api_base": f"{os.environ['PYGGML_URL']}/v1",
    "api_key": "none",
    "temperature": 0,
    "max_tokens": 200,
    "cache": False,
    "num_retries": 0,
}


class Mood(dspy.Signature):
    """Tell the mood of a sentence."""

    sentence: str = dspy.InputField()
    mood: Literal["good", "bad"] = dspy.OutputField()


@pytest.mark.parametrize("model_type", ["chat", "responses"])
async def test_calls(model_type: Any) -> None:
    lm = dspy.LM("openai/demo", model_type=model_type, **CONNECTION)
    (said,) = lm(QUESTION)
    assert (said["text"] if isinstance(said, dict) else said) == SAID
    (said,) = await lm.acall(QUESTION)
    assert (said["text"] if isinstance(said, dict) else said) == SAID


def test_signatures_with_types() -> None:
    lm = dspy.LM("openai/smollm2", **CONNECTION)
    # The schema, which a catalogue of models knows of others, and not of this one.
    schema = {"type": "object", "properties": {"mood": {"enum": ["good", "bad"]}}, "required": ["mood"]}
    form = {"type": "json_schema", "json_schema": {"name": "mood", "schema": schema}}
    with dspy.context(lm=lm, adapter=dspy.JSONAdapter()):
        assert dspy.Predict(Mood, response_format=form)(sentence="I love it.").mood in ("good", "bad")
