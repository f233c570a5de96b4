"""examples/village.py: fifty characters in one model's batches, and a budget of time."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from support import recipes
from support.examples import EXAMPLES, printed, run
from support.terminal import Terminal

SPEAKS = re.compile(r'^(\w+) the \w+: "(.+)" \(goes to the (\w+)\)$', re.MULTILINE)
ROUND = re.compile(r"^\[(\d+) of (\d+) were ready in time; (\d+) tokens in (\d+) forward passes, ", re.MULTILINE)


@pytest.mark.slow
def test_all_speak_in_shared_forward_passes() -> None:
    shown = printed("village.py", stdin="I lost my red kite\nbeach\n")
    rounds = [tuple(map(int, found)) for found in ROUND.findall(shown)]
    assert len(rounds) == 3
    for n_ready, n_all, n_tokens, n_steps in rounds:
        assert n_ready == n_all == 50
        assert n_tokens > 5 * n_steps
    assert len(SPEAKS.findall(shown)) >= 10
    assert shown.count("You are here: forest") == 2
    assert shown.count("You are here: beach") == 1


@pytest.mark.slow
def test_the_same_seed_is_the_same_game() -> None:
    first, again, other = (
        SPEAKS.findall(printed("village.py", "--seed", seed, "--characters", 20, stdin="\n\n")) for seed in (1, 1, 2)
    )
    assert first == again != other


@pytest.mark.slow
def test_those_who_are_late_are_cancelled(tmp_path: Path) -> None:
    talker = recipes.write_talker(tmp_path / "talker.gguf")
    start = time.monotonic()
    shown = printed("village.py", "-m", talker, "--budget", 0.05, stdin="\n\n\n")
    rounds = ROUND.findall(shown)
    assert len(rounds) == 4
    assert all(int(n_ready) < 50 for n_ready, *_ in rounds)
    assert "has no time" in shown
    assert time.monotonic() - start < 60


@pytest.mark.slow
@pytest.mark.parametrize("key", ["\x03", "\x04"], ids=["ctrl-c", "ctrl-d"])
def test_a_key_leaves_the_game(key: str) -> None:
    with Terminal("--characters", 5, program=(str(EXAMPLES / "village.py"),)) as terminal:
        terminal.wait_for("You are here: forest")
        terminal.wait_until(lambda: terminal.rows[-1] == ">", "prompt")
        terminal.send(key)
        assert terminal.wait_for_exit(again=key) == 0
        assert not terminal.shows("Traceback")


@pytest.mark.slow
def test_more_characters_than_names() -> None:
    done = run("village.py", "--characters", 51)
    assert done.returncode == 1
    assert "50 inhabitants" in done.stderr
