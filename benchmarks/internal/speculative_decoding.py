"""Speculative decoding: tokens per second with guesses and without, in turns, on one loaded model.

    python benchmarks/internal/speculative_decoding.py [--rounds 5] [--model tinyllama-1.1b] [--published FILE.gguf]
                                                       [--only drafts] [--peer]

A model in the shape of a real one counts upwards (synthetic_models.py), so that it is known how much of a text repeats
the prompt: all of it, about nine of ten tokens, or nothing. ``--published`` adds a trained model: rewriting a text with
a small change, and JSON under schemas, with its own tokens. ``--only`` chooses cases by a part of their names.

A model with a draft counts as well, in text that does not repeat. Its draft has one of its layers and the same output;
four of five of its tokens are followed by the right one. ``--peer`` adds llama-server with the same files: plain, with
its look-up (--spec-type ngram-simple), and with the draft.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import harness
import llama_cpp_programs
from synthetic_models import COUNT, counting_draft_file, counting_model_file
from throughput import free_port, wait_until_ready

import pyggml
from pyggml import LLM, Completion

N_TOKENS = 128
N_CTX = 8192
KINDS = ("forced", "lookup", "model")
COUNTS = ("generated_tokens", *(f"n_{state}_{kind}" for kind in KINDS for state in ("drafted", "accepted")))
Ask = Callable[[int], tuple[Any, dict[str, Any]]]  # number of the request -> prompt, parameters

SCHEMAS: dict[str, dict[str, Any]] = {
    "person": {
        "type": "object",
        "properties": {
            "first_name": {"type": "string", "maxLength": 12},
            "last_name": {"type": "string", "maxLength": 12},
            "age_in_years": {"type": "integer", "minimum": 0, "maximum": 120},
            "is_married": {"type": "boolean"},
        },
        "required": ["first_name", "last_name", "age_in_years", "is_married"],
        "additionalProperties": False,
    },
    "weather": {
        "type": "object",
        "properties": {
            "location": {"enum": ["Berlin", "Paris", "London", "New York"]},
            "temperature_celsius": {"type": "integer", "minimum": -40, "maximum": 50},
            "conditions": {"enum": ["sunny", "partly cloudy", "raining heavily", "snowing"]},
            "wind": {
                "type": "object",
                "properties": {
                    "speed_kilometres_per_hour": {"type": "integer", "minimum": 0, "maximum": 200},
                    "direction": {"enum": ["north", "east", "south", "west"]},
                },
                "required": ["speed_kilometres_per_hour", "direction"],
                "additionalProperties": False,
            },
        },
        "required": ["location", "temperature_celsius", "conditions", "wind"],
        "additionalProperties": False,
    },
    "orders": {
        "type": "array",
        "minItems": 3,
        "maxItems": 3,
        "items": {
            "type": "object",
            "properties": {
                "product_identifier": {"type": "integer", "minimum": 1, "maximum": 9999},
                "quantity": {"type": "integer", "minimum": 1, "maximum": 99},
                "status": {"enum": ["ordered", "shipped", "delivered"]},
            },
            "required": ["product_identifier", "quantity", "status"],
            "additionalProperties": False,
        },
    },
}

SCHEMAS["invoice"] = {
    "type": "object",
    "properties": {
        "invoice_number": {"type": "integer", "minimum": 1, "maximum": 99999},
        "customer": {
            "type": "object",
            "properties": {
                "company_name": {"type": "string", "maxLength": 12},
                "country": {"enum": ["Germany", "France", "Italy", "Spain"]},
            },
            "required": ["company_name", "country"],
            "additionalProperties": False,
        },
        "total_amount": {"type": "integer", "minimum": 1, "maximum": 9999},
        "currency": {"enum": ["EUR", "USD", "GBP"]},
        "is_paid": {"type": "boolean"},
    },
    "required": ["invoice_number", "customer", "total_amount", "currency", "is_paid"],
    "additionalProperties": False,
}
SCHEMAS["issue"] = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 20},
        "severity": {"enum": ["low", "medium", "high", "critical"]},
        "affected_components": {
            "type": "array",
            "items": {"enum": ["database", "frontend", "backend", "network"]},
            "minItems": 1,
            "maxItems": 3,
        },
        "reproducible": {"type": "boolean"},
        "estimated_hours": {"type": "integer", "minimum": 1, "maximum": 40},
    },
    "required": ["title", "severity", "affected_components", "reproducible", "estimated_hours"],
    "additionalProperties": False,
}

STORY = (
    "Tim went to the park with his small brown dog. The dog saw a red ball under the big tree and ran to it. "
    "Tim was happy and threw the ball into the air, and the dog caught it. Then they went home for dinner."
)


def repeating(i: int) -> tuple[list[int], dict[str, Any]]:
    """A prompt of all tokens of a block, which the output repeats."""
    first = COUNT * (2 + i)
    block = list(range(first, first + COUNT))
    return [*block[i % 50 :], *block[: 20 + i % 50]], {"temperature": 0.0}


def mostly(i: int) -> tuple[list[int], dict[str, Any]]:
    """As :func:`repeating`, but one of about ten tokens is another one of the block, from which the text goes on."""
    rng = random.Random(i)
    first = COUNT * (2 + i)
    prompt, _ = repeating(i)
    allowed = list(range(first, first + COUNT))
    return prompt, {"temperature": 2.6, "seed": rng.randrange(1 << 30), "allowed_token_ids": allowed}


def unlike(i: int) -> tuple[list[int], dict[str, Any]]:
    """Random text, in which hardly any two tokens follow each other twice."""
    rng = random.Random(i)
    return [rng.randrange(300, 30000) for _ in range(300)], {"temperature": 50.0, "seed": rng.randrange(1 << 30)}


def counting(i: int) -> tuple[list[int], dict[str, Any]]:
    """A few tokens of a block, and none of them again within the output."""
    first = COUNT * (2 + i) + (29 * i) % 100
    return list(range(first, first + 20)), {"temperature": 0.0}


def measure(llm: LLM, ask: Ask, n_streams: int, rounds: int) -> tuple[harness.Figures, list[Completion]]:
    """Tokens per second of the decoding of ``n_streams`` requests together, with and without guesses."""
    done: list[Completion] = []

    def side(speculative: str) -> Callable[[int], float]:
        def run(number: int) -> float:
            found: dict[int, Completion] = {}

            def one(i: int) -> None:
                prompt, asked = ask(i)
                params: dict[str, Any] = {"max_tokens": N_TOKENS} | asked
                if "json_schema" not in params:
                    params["ignore_eos"] = True
                found[i] = llm.generate(prompt, **params, speculative=speculative)

            harness.together(one, n_streams)
            if speculative == "off":
                expected[number] = [found[i].token_ids for i in range(n_streams)]
            elif number in expected:
                same = expected[number] == [found[i].token_ids for i in range(n_streams)]
                assert same, "guesses changed the output"
            if speculative != "off" and number:
                done.extend(found.values())
            n_tokens = sum(each.timings.generated_tokens for each in found.values())
            seconds = sum(each.timings.decode_s for each in found.values()) / n_streams
            return n_tokens / seconds

        return run

    expected: dict[int, list[list[int]]] = {}
    return harness.interleaved({"auto": side("auto"), "off": side("off")}, rounds, "tokens/s"), done


def report(name: str, done: list[Completion]) -> None:
    """Print how many guesses were computed and right."""
    totals: Mapping[str, int] = {field: sum(getattr(each.timings, field) for each in done) for field in COUNTS}
    print(f"  {name}: " + ", ".join(f"{field} {value}" for field, value in totals.items()), flush=True)


Peer = Callable[[Any, dict[str, Any]], float]  # prompt, parameters -> tokens per second of decoding


@contextlib.contextmanager
def llama_server(model: Path, *options: str | Path) -> Iterator[Peer]:
    """llama-server with these options."""
    port = free_port()
    command = [llama_cpp_programs.llama_server(), "-m", model, "-c", N_CTX, "-np", 1, "-t", harness.n_cpus(), *options]
    command += ["--host", "127.0.0.1", "--port", port]
    log = llama_cpp_programs.SCRATCH / f"llama-server-{port}.log"
    with log.open("w") as file, subprocess.Popen(list(map(str, command)), stdout=file, stderr=file) as server:
        try:
            wait_until_ready(http.client.HTTPConnection("127.0.0.1", port), server, log)

            def decode(prompt: Any, params: dict[str, Any]) -> float:
                body = {"prompt": prompt, "n_predict": N_TOKENS, "ignore_eos": True, "cache_prompt": False, **params}
                connection = http.client.HTTPConnection("127.0.0.1", port)
                connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
                timings = json.load(connection.getresponse())["timings"]
                connection.close()
                time.sleep(0.1)  # its threads spin for a while
                return float(timings["predicted_per_second"])

            yield decode
        finally:
            server.terminate()


def compare_with_server(model: Path, draft: Path, rounds: int) -> None:
    """Print the speed of llama-server on the cases of one stream, plain and with its own speculation."""
    cases = {"all repeats the prompt": repeating, "nothing repeats": unlike, "drafts: four of five agree": counting}
    with contextlib.ExitStack() as stack:
        peers = {
            "plain": stack.enter_context(llama_server(model)),
            "look-up": stack.enter_context(llama_server(model, "--spec-type", "ngram-simple")),
            "draft": stack.enter_context(llama_server(model, "--spec-type", "draft-simple", "-md", draft)),
        }
        for case, ask in cases.items():
            print(f"llama-server, {case}")
            sides = {
                name: (lambda n, peer=peer, ask=ask: peer(*ask(n)))
                for name, peer in peers.items()
                if name != "draft" or "draft" in case
            }
            figures = harness.interleaved(sides, rounds, "tokens/s")
            for name in sides:
                if name != "plain":
                    print(f"  {name}: {harness.ratio(figures, name, 'plain'):.3g} times plain")


def compare(llm: LLM, name: str, cases: Mapping[str, tuple[Ask, int, float]], rounds: int) -> list[harness.Claim]:
    """Measure each case: its requests, how many at once, and the least speed relative to that without guesses."""
    claims = []
    for case, (ask, n_streams, least) in cases.items():
        what = f"{name}, {case}, {n_streams} at once"
        print(what)
        figures, done = measure(llm, ask, n_streams, rounds)
        report(case, done)
        claims.append(harness.at_least(what, harness.ratio(figures, "auto", "off"), least, "x"))
    return claims


def json_case(schema: dict[str, Any]) -> Ask:
    def ask(i: int) -> tuple[str, dict[str, Any]]:
        return f"JSON about example {i}:\n", {"json_schema": schema}

    return ask


def rewrite(i: int) -> tuple[str, dict[str, Any]]:
    names = ("Anna", "Ben", "Clara", "David", "Emma", "Felix", "Greta", "Henry", "Ida", "Jonas")
    name = names[i % len(names)]
    return (
        f"<|im_start|>user\nRepeat this text, but call Tim {name}:\n{STORY}<|im_end|>\n<|im_start|>assistant\n",
        {"temperature": 0.0, "max_tokens": 60},
    )


def main() -> int:
    """Measure, and print the verdict."""
    published = []
    if "--published" in sys.argv:
        at = sys.argv.index("--published")
        published = [sys.argv[at + 1]]
        del sys.argv[at : at + 2]
    only = ""
    if "--only" in sys.argv:
        at = sys.argv.index("--only")
        only = sys.argv[at + 1]
        del sys.argv[at : at + 2]
    has_peer = "--peer" in sys.argv
    if has_peer:
        sys.argv.remove("--peer")
    chosen = harness.options(__doc__, rounds=5, models=["tinyllama-1.1b"])
    claims = []

    def chosen_cases(cases: dict[str, tuple[Ask, int, float]]) -> dict[str, tuple[Ask, int, float]]:
        return {case: facts for case, facts in cases.items() if only in case}

    for name in chosen.model:
        model, draft = counting_model_file(name), counting_draft_file(name)
        with pyggml.load(model, n_ctx=N_CTX, n_parallel=8) as llm:
            cases: dict[str, tuple[Ask, int, float]] = {
                "all repeats the prompt": (repeating, 1, 2.8),
                "nine tenths repeat": (mostly, 1, 1.3),
                "nothing repeats": (unlike, 1, 0.97),
                "all of eight repeat": (repeating, 8, 1.2),
                "nothing of eight repeats": (unlike, 8, 0.98),
            }
            cases |= {f"JSON {each}": (json_case(SCHEMAS[each]), 1, 1.8) for each in SCHEMAS}
            claims += compare(llm, name, chosen_cases(cases), chosen.rounds)
        with pyggml.load(model, n_ctx=N_CTX, n_parallel=8, draft=draft) as llm:
            cases = {
                "drafts: four of five agree": (counting, 1, 1.9),
                "drafts: none is right": (unlike, 1, 0.97),
                "drafts: four of five agree, of eight": (counting, 8, 0.98),
                "drafts: none of eight is right": (unlike, 8, 0.98),
            }
            claims += compare(llm, name, chosen_cases(cases), chosen.rounds)
        if has_peer:
            compare_with_server(model, draft, chosen.rounds)
    for path in published:
        with pyggml.load(path, n_ctx=4096, n_parallel=8) as llm:
            trained: dict[str, tuple[Ask, int, float]] = {
                f"JSON {each}": (json_case(SCHEMAS[each]), 1, 1.8) for each in SCHEMAS
            }
            trained |= {"rewriting": (rewrite, 1, 1.0), "rewriting, eight": (rewrite, 8, 0.98)}
            claims += compare(llm, Path(path).stem, chosen_cases(trained), chosen.rounds)
    return harness.verdict(claims)


if __name__ == "__main__":
    sys.exit(main())
