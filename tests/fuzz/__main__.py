"""Runs fuzzers, each for so many seconds or cases; fails if anything was found."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections import Counter
from pathlib import Path

from fuzz import fuzzer
from fuzz.evolution import Evolution
from fuzz.minimise import minimised
from fuzz.process import Process, Result

MAX_OF_A_KIND = 3  # findings that are minimised and kept; the others of their kind are counted


def main() -> None:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="FUZZER", help=f"default: all of {', '.join(fuzzer.names())}")
    parser.add_argument("--time", type=float, default=60, help="seconds for each (default: %(default)s)")
    parser.add_argument("--cases", type=int, help="cases of each, instead of a time")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: one that changes")
    parser.add_argument("--first", type=int, default=0, help="the first case, to go on where another run ended")
    parser.add_argument("--findings", type=Path, default=Path("../build/fuzz"), help="default: %(default)s")
    parser.add_argument("--again", type=Path, metavar="FILE", help="try the case in this file once more")
    parser.add_argument("--evolve", type=Path, metavar="FOLDER", help="change cases that reached new code; kept there")
    args = parser.parse_args()
    wrong = sorted(set(args.names) - set(fuzzer.names()))
    if wrong:
        parser.error(f"there is no fuzzer {', '.join(wrong)}")
    if args.again:
        sys.exit(_again(args.again))
    n_findings = sum([_fuzz(name, args) for name in args.names or fuzzer.names()])
    sys.exit(1 if n_findings else 0)


def _again(file: Path) -> int:
    """Tries what a file in the folder of findings has; its folder's name begins with the fuzzer's."""
    found = json.loads(file.read_text())
    with Process(found["fuzzer"], fuzzer.named(found["fuzzer"]), 0) as process:
        result = process.run(found["parts"])
    print(result.outcome, result.words, sep="\n")
    return int(result.is_finding)


def _fuzz(name: str, args: argparse.Namespace) -> int:
    module = fuzzer.named(name)
    outcomes: Counter[str] = Counter()
    findings: Counter[str] = Counter()
    start, number = time.monotonic(), args.first
    evolution = Evolution(name, args.seed, args.evolve) if args.evolve else None
    with Process(name, module, args.seed, evolution.reached.path if evolution else None) as process:
        while number < args.first + args.cases if args.cases else time.monotonic() < start + args.time:
            case = evolution.made(number) if evolution else fuzzer.case(module, args.seed, number)
            result = process.run(case)
            outcomes[result.outcome] += 1
            if evolution:
                evolution.judge(case, result.is_finding)
            if result.is_finding:
                findings[result.outcome] += 1
                if findings[result.outcome] <= MAX_OF_A_KIND:
                    keep(args.findings, name, args.seed, number, result, case)
                process.stop()  # what it left behind is not the next one's fault
            number += 1
    print(
        f"{name}: cases {args.first} to {number - 1} of seed {args.seed} in {time.monotonic() - start:.0f} s, "
        f"{sum(findings.values())} findings{evolution or ''}"
    )
    for outcome, n in outcomes.most_common():
        print(f"{n:8} {'! ' * (outcome in findings)}{outcome}")
    sys.stdout.flush()
    return sum(findings.values())


def keep(folder: Path, name: str, seed: int | str, number: int, result: Result, parts: list[fuzzer.Part]) -> None:
    """Writes a finding down, with as few parts as it needs."""
    with Process(name, fuzzer.named(name), 0) as process:

        def still(some: list[fuzzer.Part]) -> bool:
            return process.run(some).outcome == result.outcome

        alone = still(parts)  # otherwise it needs what cases before it left behind
        parts = minimised(parts, still) if alone else parts
    target = folder / f"{name}-{seed}-{number}"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    about = {"fuzzer": name, "seed": seed, "number": number, "outcome": result.outcome, "alone": alone, "parts": parts}
    (target / "case.json").write_text(json.dumps(about, indent=1))
    (target / "words.txt").write_text(result.words)
    print(f"{name}: case {number} of seed {seed}: {result.outcome}; {target / 'case.json'}: {parts!r:.300}", flush=True)


if __name__ == "__main__":
    main()
