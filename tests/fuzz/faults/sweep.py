"""Each scenario with every n-th call failing, once and from there on, instead of random ones.

cd tests && python -m fuzz.faults.sweep [SCENARIO ...] [--kinds ALLOCATION ...] [--at-most 2000]
"""

from __future__ import annotations

import argparse
import errno
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fuzz import fuzzer
from fuzz.__main__ import MAX_OF_A_KIND, keep
from fuzz.faults import ERRORS, Kind
from fuzz.faults.scenarios import SCENARIOS
from fuzz.process import Process


def main() -> None:
    parser = argparse.ArgumentParser(prog="sweep", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"default: all of {', '.join(SCENARIOS)}")
    parser.add_argument(
        "--kinds", nargs="+", choices=[each.name for each in Kind], default=[each.name for each in Kind]
    )
    parser.add_argument("--at-most", type=int, default=2000, help="cases of each way; evenly spread if there are more")
    parser.add_argument("--findings", type=Path, default=Path("../build/fuzz"), help="default: %(default)s")
    args = parser.parse_args()
    n_findings = 0
    for scenario in args.scenarios or SCENARIOS:
        for kind in args.kinds:
            n_findings += _sweep(scenario, kind, args.at_most, args.findings)
    sys.exit(1 if n_findings else 0)


def _sweep(scenario: str, kind: str, at_most: int, findings: Path) -> int:
    outcomes: Counter[str] = Counter()
    start, number, n_findings = time.monotonic(), 0, 0
    with Process("faults", fuzzer.named("faults"), 0) as process:
        counted = process.run([{"scenario": scenario, "kind": kind, "at": None}])
        if counted.is_finding:
            raise RuntimeError(f"{scenario} fails without faults: {counted.outcome}: {counted.words}")
        n_calls = int(counted.outcome.split()[1])
        for case in _cases(scenario, kind, min(n_calls, at_most)):
            result = process.run([case])
            outcomes[result.outcome] += 1
            if result.is_finding:
                n_findings += 1
                if outcomes[result.outcome] <= MAX_OF_A_KIND:
                    keep(findings, "faults", f"{scenario}-{kind}", number, result, [case])
                process.stop()
            number += 1
    if number:
        seconds = time.monotonic() - start
        print(f"{scenario}, {kind} ({n_calls} calls): {number} cases in {seconds:.0f} s, {n_findings} findings")
        for outcome, n in outcomes.most_common():
            print(f"{n:8} {outcome}")
        sys.stdout.flush()
    return n_findings


def _cases(scenario: str, kind: str, n: int) -> Iterator[fuzzer.Part]:
    """In each way in which calls of the kind fail, `n` of them, from the first to the last."""
    for error in ERRORS.get(Kind[kind], (0,)):
        for lasts in (False,) if error == errno.EINTR else (False, True):  # what is interrupted for ever never ends
            for i in range(n):
                yield {"scenario": scenario, "kind": kind, "at": (i + 0.5) / n, "lasts": lasts, "error": error}


if __name__ == "__main__":
    main()
