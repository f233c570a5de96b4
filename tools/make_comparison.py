"""Write the README's comparison with other libraries, and the plot, from the results of benchmarks/.

    python tools/make_comparison.py       after benchmarks/compare_features.py or benchmarks/callers.py

A test holds the README and the plot to benchmarks/results/*.json, so no cell is written by hand.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks" / "common"))

import result_files
from plot import svg

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PLOT = ROOT / "docs" / "images" / "requests-per-second.svg"
BEGIN, END = "<!-- made by tools/make_comparison.py -->\n", "<!-- end -->\n"

Result = Mapping[str, Any]

SIDES = {"pyggml": "pyggml", "llama_cpp_python": "llama-cpp-python", "xllamacpp": "xllamacpp", "vllm": "vLLM"}

NOTES = (
    "vLLM's `LLM` is for one thread; its `AsyncLLM`, which the plot uses, is for many callers. Its answers under a "
    "schema were cut off within white space, which `disable_any_whitespace` would forbid. "
    "ollama is not in the table: it is built from Go modules, which the machine of these measurements cannot fetch. "
    "Its [documentation](https://github.com/ollama/ollama/blob/main/docs/faq.mdx) says that each model processes one "
    "request at a time unless `OLLAMA_NUM_PARALLEL` is set."
)


def _outcome(result: Result) -> str | None:
    """Return the text of an outcome common to all probes: a crash, a hang, not supported or failed; None: another."""
    if "died" in result:
        return f"**process dies** ({result['died']})"
    if "hung_s" in result:
        return f"hangs ({result['hung_s']} s)"
    if "not_offered" in result:
        return str(result["not_offered"])
    if "failed" in result:
        return "fails: " + str(result["failed"]).split(":")[0]
    return None


def _attempt(result: Result) -> str:
    """Return the text of an invalid request's outcome: the exception, and whether the library still responds."""
    if "answered" in result:
        return "no error"
    after = "" if result.get("works_after", True) else ", and no answers after it"
    return f"`{result['raised']}`{after}"


def _threads(results: list[Result]) -> str:
    """Summarise several runs: all answers right, errors, or another outcome."""
    words = [
        _outcome(each) or ("all right" if each["right"] == each["of"] else "errors or wrong answers")
        for each in results
    ]
    return _counted(words)


def _bad_files(results: Mapping[str, Result]) -> str:
    if not results:
        return "takes no GGUF"
    return _counted([_outcome(each) or ("exception" if "raised" in each else "loads") for each in results.values()])


def _counted(words: list[str]) -> str:
    """Count outcomes, the most frequent first; without a count if all are the same."""
    kinds = sorted(set(words), key=words.count, reverse=True)
    return kinds[0] if len(kinds) == 1 else ", ".join(f"{kind}: {words.count(kind)}" for kind in kinds)


def _checkpoint(result: Result) -> str:
    if "answered" not in result:
        return f"`{result['raised']}`"
    return "loads, and imports PyTorch" if result["imports_torch"] else "loads, without PyTorch"


def _event_loop(result: Result) -> str:
    pause = f"{result['longest_pause_ms']:,.0f} ms"
    return pause if result["coroutines"] else f"{pause} (no coroutines)"


def _gpu(result: Result) -> str:
    return "answers on the CPU, silently" if "answered" in result else f"`{result['raised']}`"


def _schema(result: Result) -> str:
    cut_off = f", {result['cut_off']} cut off" if result["cut_off"] else ""
    return f"{result['valid']} of {result['of']} valid{cut_off}"


def _impossible(result: Result) -> str:
    return "answers what is invalid" if "answered" in result else f"`{result['raised']}`"


def _end_of_turn(result: Result) -> str:
    ends = result["finish_reason"] == "stop" and "<|" not in result["text"]
    return "yes" if ends else f"no (`{result['finish_reason']}`)"


def _install(result: Result) -> str:
    n = result["distributions"]
    return f"{n} package{'s' * (n != 1)}, {result['mb']:,} MB"


def _cell(result: Any, words: Callable[[Any], str]) -> str:
    return (isinstance(result, dict) and _outcome(result)) or words(result)


#: Row of the table, the probe of benchmarks/features/probes.py, and how its result reads.
ROWS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("eight threads call one model, without a lock; five runs", "threads", _threads),
    ("a prompt longer than the context", "long_prompt", _attempt),
    ("a token id outside the vocabulary", "bad_token", _attempt),
    ("{n_bad} broken GGUF files", "bad_file", _bad_files),
    ("a Hugging Face directory", "checkpoint", _checkpoint),
    ("answers under a JSON schema, of at most 200 tokens", "schema", _schema),
    ("a schema that nothing can match", "impossible_schema", _impossible),
    ("an answer ends where the turn ends", "end_of_turn", _end_of_turn),
    ("cancelled within a prompt of 3,000 tokens: the next answer comes after", "cancel", lambda r: f"{r['ms']:,} ms"),
    ("an event loop's longest pause during one answer", "event_loop", _event_loop),
    ("a GPU asked for, where there is none", "gpu", _gpu),
    ("installed, with what it needs", "install", _install),
)


def table(features: Mapping[str, Any], callers: Mapping[str, Any]) -> str:
    """The table and the sentences around it."""
    sides = {key: features["sides"][key] for key in SIDES}
    head = ["", *(f"{name} {sides[key]['version']}" for key, name in SIDES.items())]
    lines = [_row(head), _row(["---"] * len(head))]
    n_bad = len(sides["pyggml"]["bad_file"])
    for what, probe, words in ROWS:
        cells = [_cell(seen[probe], words) for seen in sides.values()]
        lines.append(_row([what.format(n_bad=n_bad), *cells]))
    machine = features["machine"]
    measured = (
        f"Each cell is what a probe of [benchmarks/features](benchmarks/features/probes.py) saw on {machine['date']}, "
        f"with {_on(machine)}; the table is made of [its results](benchmarks/results/features.json). xllamacpp is the "
        "published wheel with the engine that is vendored here; vLLM is its build for CPUs, with the same models as "
        f"directories. {NOTES}"
    )
    plotted = f"![Requests per second against callers]({PLOT.relative_to(ROOT).as_posix()})"
    return "\n".join([*lines, "", measured, "", plotted, "", _about_the_plot(callers), ""])


def _about_the_plot(callers: Mapping[str, Any]) -> str:
    machine, asked = callers["machine"], callers["asked"]
    speeds = {side: medians(values) for side, values in callers["requests_per_s"].items()}
    counts = [1, 8, max(speeds["pyggml"])]
    ours = {side: "pyggml, bfloat16" if side.endswith("bfloat16") else "pyggml" for side in speeds}
    ahead = [side for side in speeds if speeds[side][counts[-1]] > speeds[ours[side]][counts[-1]]]
    figures = "; ".join(f"{side} {', '.join(f'{values[n]:.1f}' for n in counts)}" for side, values in speeds.items())
    return (
        f"Requests of {asked['n_prompt']} tokens that get {asked['n_tokens']}, to a model in the shape of "
        f"{asked['model']}, with {_on(machine)}: medians of {asked['rounds']} rounds, in which the sides take turns "
        f"([benchmarks/callers.py](benchmarks/callers.py)). Requests per second with {counts[0]}, {counts[1]} and "
        f"{counts[2]} callers: {figures}. Ahead of pyggml in the same type with {counts[2]}: "
        f"{' and '.join(ahead) or 'none'}. Models are Q4_K_M unless bfloat16 is named."
    )


def _on(machine: Mapping[str, Any]) -> str:
    return f"{machine['cores']} cores of an {machine['cpu']}"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def medians(values: Mapping[str, list[float]]) -> dict[int, float]:
    """Number of callers -> median over the rounds."""
    return {int(n): statistics.median(rounds) for n, rounds in values.items()}


def readme(text: str) -> str:
    """The README's text with the table and the sentences of today's results."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table(result_files.read('features'), result_files.read('callers'))}\n{END}{after}"


def plot() -> str:
    """The picture of today's results, as SVG."""
    speeds = {side: medians(values) for side, values in result_files.read("callers")["requests_per_s"].items()}
    return svg(speeds, x="callers", y="requests per second")


def main() -> None:
    README.write_text(readme(README.read_text(encoding="utf-8")), encoding="utf-8")
    PLOT.parent.mkdir(exist_ok=True)
    PLOT.write_text(plot(), encoding="utf-8")
    print(f"{README.relative_to(ROOT)}, {PLOT.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
