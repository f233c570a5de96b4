"""A short part of each fuzzer, from a seed that changes; ``make fuzz`` does the same for much longer."""

from __future__ import annotations

import time

import pytest
from fuzz import fuzzer
from fuzz.process import Process
from support.paths import ROOT

SECONDS = 4.0  # for each: all of them take less than a minute on two cores, with their starts

#: Not that of faults, which finds what docs/reference/errors.md tells of JSON values again (cases: test_faults.py).
NAMES = [name for name in fuzzer.names() if name != "faults"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_found(name: str) -> None:
    seed = int(time.time())
    findings, number = [], 0
    module = fuzzer.named(name)
    with Process(name, module, seed) as process:
        process.run([])  # once it has started
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or not number:
            result = process.run(number)
            if result.is_finding:
                findings.append(f"case {number}: {result.outcome}: {result.words}")
            number += 1
    print(f"{name}: {number} cases of seed {seed}")
    assert not findings, f"make fuzz FUZZERS={name} SEED={seed} finds it again, and makes it smaller: {findings[0]}"


def test_every_fuzzer_is_described() -> None:
    """The table of what is fuzzed has each of them."""
    table = (ROOT / "docs" / "explanation" / "reliability.md").read_text("utf-8")
    assert [name for name in fuzzer.names() if f"| `{name}`" not in table] == []
