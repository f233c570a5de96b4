"""A growing chat with Gemma 3, whose layers have sliding windows, in the command and over HTTP."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
import real_models
from support.command import pyggml
from support.servers import servers

from pyggml.server import ModelSpec, Settings, create_app

RULES = "Answer in one short sentence. " + " ".join(
    f"Rule {number}: say nothing about topic number {number} unless it is asked for." for number in range(50)
)
LOAD = {"n_ctx": 8192, "chat_template": "gemma"}  # the published file is that of the base model, without a template
QUESTIONS = [f"What is the capital of {country}?" for country in ("France", "Italy", "Spain", "Japan", "Peru", "Chad")]


@pytest.fixture(scope="module")
def gemma() -> Path:
    path = real_models.path("gemma3")
    if path is None:
        pytest.skip("Gemma 3 is not in the cache: run python tools/real_models.py")
    return path


def require_growth(turns: list[tuple[int, int]]) -> None:
    """Each turn's prompt is cached up to the end of the last one: (tokens of the prompt, of which were cached)."""
    assert turns[0][1] == 0
    for (n_before, _), (n_prompt, n_cached) in itertools.pairwise(turns):
        assert n_cached >= n_before - 1
        assert n_cached >= 0.95 * n_prompt


def test_over_http(gemma: Path) -> None:
    app = create_app(Settings(models=(ModelSpec(str(gemma), name="gemma"),), load=LOAD))
    messages: list[Any] = [{"role": "system", "content": RULES}]
    turns = []
    with servers.serving(app) as url:
        for question in QUESTIONS:
            messages.append({"role": "user", "content": question})
            body = {"model": "gemma", "messages": messages, "max_tokens": 24, "temperature": 0}
            answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=120).raise_for_status().json()
            messages.append(answer["choices"][0]["message"])
            usage = answer["usage"]
            turns.append((usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]))
    require_growth(turns)


def test_in_the_command(gemma: Path) -> None:
    options = ["--n-ctx", 8192, "--chat-template", "gemma", "--temperature", 0, "--max-tokens", 24, "--stats"]
    done = pyggml("chat", gemma, "--system", RULES, *options, stdin="\n".join(QUESTIONS) + "\n")
    assert done.code == 0, done.err
    found = re.findall(r"([\d,]+) prompt tokens(?: \(([\d,]+) cached\))?", done.err)
    require_growth([(int(prompt.replace(",", "")), int((cached or "0").replace(",", ""))) for prompt, cached in found])
    assert len(found) == len(QUESTIONS)
