"""Sweeps: tests with many cases, of which `make test` runs a sample, and `make test-all` and CI run all.

``@pytest.mark.slow_except("q4_0", "q8_0")`` marks all cases slow but those with these ids;
``@pytest.mark.slow_except(every=10)`` all but every tenth.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest


def mark_slow(items: Sequence[pytest.Item], config: pytest.Config) -> None:
    """Mark the cases of each sweep that are not in its sample.

    Raises:
        UsageError: none of the ids of a sample is a case, for instance because the cases were renamed.
    """
    sweeps: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        test, _, case_id = item.nodeid.partition("[")
        if case_id and item.get_closest_marker("slow_except"):
            sweeps[test].append(item)
    are_complete = not any("::" in argument for argument in config.args)
    for test, cases in sweeps.items():
        sample = _sample(cases)
        if not sample and are_complete:
            raise pytest.UsageError(f"{test}: none of its cases is named in its mark slow_except")
        for case in cases:
            if case not in sample:
                case.add_marker(pytest.mark.slow)


def _sample(cases: Sequence[pytest.Item]) -> Sequence[pytest.Item]:
    mark = next(cases[0].iter_markers("slow_except"))
    if every := mark.kwargs.get("every"):
        return cases[::every]
    return [case for case in cases if case.nodeid.partition("[")[2].removesuffix("]") in mark.args]
