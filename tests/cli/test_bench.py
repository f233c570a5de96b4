"""``pyggml bench``: the engine confirms the counts of tokens; no test depends on the times."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import random
import re
import signal
import statistics
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.checkpoints import models
from support.command import fails, pyggml

import pyggml as library
from pyggml.cli.bench.measure import Bench, Case, Side, random_prompts, seconds_of
from pyggml.cli.bench.report import labels
from pyggml.units import size_label

#: Everything, in a second.
QUICK = ("-p", "8,16", "-n", "4", "--parallel", "1,2", "-r", "3", "-t", "1")

NUMBER = {"type": "number", "exclusiveMinimum": 0}
COUNT = {"type": "integer", "minimum": 0}
SOME = {"type": "integer", "minimum": 1}
ROW = {
    "model": {"type": "string"},
    "device": {"type": "string"},
    "n_gpu_layers": {"type": ["integer", "null"]},
    "split_mode": {"type": "string"},
    "tensor_split": {"type": ["string", "null"]},
    "n_cpu_moe": {"type": ["integer", "string"]},
    "n_threads": {"type": ["integer", "null"]},
    "cache_type": {"type": "string"},
    "n_batch": SOME,
    "n_ubatch": SOME,
    "description": {"type": "string"},
    "n_params": SOME,
    "size_bytes": SOME,
    "kind": {"enum": ["prompt", "generate"]},
    "n_tokens": SOME,
    "n_depth": COUNT,
    "n_parallel": SOME,
    "n_threads_used": SOME,
    "repetitions": SOME,
    "tokens_per_s": NUMBER,
    "tokens_per_s_least": NUMBER,
    "tokens_per_s_most": NUMBER,
    "seconds": NUMBER,
}
RESULT = {**ROW, "samples_s": {"type": "array", "items": NUMBER, "minItems": 1}}


def strict(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


OUTPUT = strict(
    {
        "pyggml": {"const": library.__version__},
        "engine": {"type": "string", "pattern": "^b[0-9]+$"},
        "cpu": {"type": "string"},
        "n_cores": SOME,
        "devices": {"type": "array", "minItems": 1},
        "load_average": {"type": "number", "minimum": 0},
        "interrupted": {"type": "boolean"},
        "results": {"type": "array", "items": strict(RESULT)},
    }
)


def results(*arguments: object) -> list[dict[str, Any]]:
    """The output of ``--json``."""
    done = pyggml("bench", *arguments, "--json")
    assert (done.code, done.err) == (0, "")
    printed = json.loads(done.out)
    jsonschema.validate(printed, OUTPUT)
    assert not printed["interrupted"]
    found: list[dict[str, Any]] = printed["results"]
    return found


class TestOutput:
    @pytest.mark.slow
    def test_table(self) -> None:
        done = pyggml("bench", *QUICK)
        assert (done.code, done.err) == (0, "")
        lines = [line.split() for line in done.out.splitlines()]
        tests = [line[:3] for line in lines if line[:1] in (["prompt"], ["generate"])]
        assert tests == [
            ["prompt", "8", "1"],
            ["prompt", "8", "2"],
            ["prompt", "16", "1"],
            ["prompt", "16", "2"],
            ["generate", "4", "1"],
            ["generate", "4", "2"],
        ]
        assert "tokens/s" in done.out
        assert "of 3 repetitions" in done.out

    @pytest.mark.slow
    def test_table_of_two_sides(self, tiny_path: Path) -> None:
        shipped = Path(library.source.SHIPPED_MODEL)
        done = pyggml("bench", "-m", shipped, "-m", tiny_path, "-t", "1,2", "-p", 8, "-n", "none", "-r", 1)
        assert done.code == 0, done.err
        rows = [line.split() for line in done.out.splitlines() if line.rstrip().endswith(tuple("0123456789"))]
        named = [[word for word in row if word.endswith(".gguf")] for row in rows]
        assert [names for names in named if names] == [[shipped.name]] * 2 + [[tiny_path.name]] * 2
        assert "of first" in done.out

    @pytest.mark.slow
    @pytest.mark.parametrize("columns", [40, pytest.param(80, marks=pytest.mark.slow)])
    def test_narrow_terminals_show_all_that_tells_results_apart(self, tiny_path: Path, columns: int) -> None:
        """Each result's speed stands beneath what it is of, and nothing is cut."""
        lists = ("--parallel", "1,2", "-t", "1,2", "--cache-type", "f16,q8_0", "--n-ubatch", "64,128")
        models = ("-m", library.source.SHIPPED_MODEL, "-m", tiny_path)
        arguments = (*models, *lists, "-p", 8, "-n", "none", "-r", 1, "--no-warm-up")
        done = pyggml("bench", *arguments, env={"COLUMNS": str(columns)})
        assert done.code == 0, done.err
        assert "…" not in done.out
        first, *rows = done.out.split("of first\n")[1].split("\n\n")[0].split("prompt 8, ")
        assert first == ""
        figures = re.compile(r"\n( *[0-9.]+){4}$")
        assert all(figures.search(row.rstrip()) for row in rows)
        named = {" ".join(figures.sub("", row.rstrip()).split()) for row in rows}
        assert len(rows) == len(named) == 2 * 2**4
        assert f"2 requests, {tiny_path.name}, threads 2, cache q8_0, n_ubatch 128" in named
        assert all(len(line) <= columns for row in rows for line in row.splitlines()[1:])

    @pytest.mark.slow  # all that can be listed, twice each, is much
    def test_a_pipe_is_as_wide_as_the_table(self) -> None:
        lists = (
            "-t",
            "1,2",
            "--cache-type",
            "f16,q8_0",
            "-b",
            "128,256",
            "--n-ubatch",
            "64,128",
            "--device",
            "cpu,auto",
        )
        done = pyggml("bench", *lists, "--n-gpu-layers", "0,all", "-p", 8, "-n", "none", "-r", 1, "--no-warm-up")
        assert done.code == 0, done
        headings = next(line for line in done.out.splitlines() if line.startswith("test"))
        expected = "test device GPU layers threads cache n_batch n_ubatch tokens/s least most of first"
        assert " ".join(headings.split()) == expected
        assert len(headings) > 80

    @pytest.mark.slow
    def test_models_have_names_and_sizes(self) -> None:
        row = results("-p", 8, "-n", "none", "-r", 1, "--no-warm-up")[0]
        assert (row["model"], row["description"]) == ("pyggml-demo-q8_0.gguf", "llama 3.5M Q8_0")

    @pytest.mark.parametrize(
        ("n", "label"),
        [(512, "512"), (96_320, "96K"), (3_476_224, "3.5M"), (999_700_000, "1B"), (8_030_261_248, "8B")],
    )
    def test_sizes(self, n: int, label: str) -> None:
        assert size_label(n) == label

    @pytest.mark.slow
    def test_names_of_files_are_shown_as_they_are(self, tmp_path: Path) -> None:
        names = ["[bold]one.gguf", "two[red].gguf"]
        for name in names:
            (tmp_path / name).symlink_to(library.source.SHIPPED_MODEL)
        models = [word for name in names for word in ("-m", tmp_path / name)]
        done = pyggml("bench", *models, "-p", 8, "-n", "none", "-r", 1, "--no-warm-up")
        assert [done.out.count(name) for name in names] == [2, 2]  # what each is, and its row

    @pytest.mark.slow
    def test_json(self) -> None:
        rows = results(*QUICK)
        assert [(row["kind"], row["n_tokens"], row["n_parallel"]) for row in rows] == [
            ("prompt", 8, 1),
            ("prompt", 8, 2),
            ("prompt", 16, 1),
            ("prompt", 16, 2),
            ("generate", 4, 1),
            ("generate", 4, 2),
        ]
        for row in rows:
            speeds = [row["n_tokens"] * row["n_parallel"] / seconds for seconds in row["samples_s"]]
            assert len(speeds) == row["repetitions"] == 3
            assert row["tokens_per_s"] == pytest.approx(statistics.median(speeds))
            assert row["tokens_per_s_least"] == pytest.approx(min(speeds))
            assert row["tokens_per_s_most"] == pytest.approx(max(speeds))

    @pytest.mark.slow
    def test_every_combination_of_settings(self) -> None:
        lists = ["-t", "1,auto", "--cache-type", "f16,q8_0", "--n-ubatch", "64,128", "-b", "256", "--device", "cpu"]
        rows = results("-p", 8, "-n", "none", "-r", 1, *lists)
        settings = [(row["n_threads"], row["cache_type"], row["n_ubatch"]) for row in rows]
        assert settings == [(t, c, u) for t in (1, None) for c in ("f16", "q8_0") for u in (64, 128)]
        assert all((row["n_batch"], row["device"]) == (256, "cpu") for row in rows)
        assert all(row["n_threads_used"] == 1 for row in rows if row["n_threads"] == 1)

    @pytest.mark.slow
    def test_what_is_listed_twice_counts_once(self) -> None:
        assert len(results("-p", "8, 8,8", "-n", "none", "-r", 1, "--no-warm-up")) == 1

    @pytest.mark.slow
    def test_depths(self, tiny_path: Path, mamba_path: Path) -> None:
        rows = results("-m", tiny_path, "-m", mamba_path, "-p", 8, "-n", 4, "-d", "0,32", "-t", 1, "-r", 2)
        assert [row["n_depth"] for row in rows] == [0, 0, 32, 32] * 2

    @pytest.mark.slow
    def test_csv(self) -> None:
        done = pyggml("bench", *QUICK, "--csv")
        assert (done.code, done.err) == (0, "")
        rows = list(csv.DictReader(io.StringIO(done.out)))
        assert list(rows[0]) == list(ROW)
        assert [(row["kind"], row["n_tokens"], row["n_parallel"]) for row in rows] == [
            (row["kind"], str(row["n_tokens"]), str(row["n_parallel"])) for row in results(*QUICK)
        ]
        assert all(float(row["tokens_per_s"]) > 0 for row in rows)


class TestPlot:
    @pytest.mark.slow
    def test_png(self, tmp_path: Path) -> None:
        file = tmp_path / "speed.png"
        assert pyggml("bench", *QUICK, "--plot", file).code == 0
        data = file.read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", data[16:24])
        assert (width, height) == (1650, 750)  # two panels

    @pytest.mark.slow
    def test_what_it_says(self, tmp_path: Path) -> None:
        """An SVG keeps its texts, with matplotlib told to."""
        (tmp_path / "matplotlibrc").write_text("svg.fonttype: none\n")
        file = tmp_path / "speed.svg"
        arguments = (
            "-p",
            8,
            "-n",
            4,
            "--parallel",
            "1,2,4",
            "--cache-type",
            "f16,q8_0",
            "-t",
            1,
            "-r",
            1,
            "--plot",
            file,
        )
        assert pyggml("bench", *arguments, env={"MATPLOTLIBRC": str(tmp_path)}).code == 0
        drawn = file.read_text()
        for text in ("tokens per second", "concurrent requests", "cache f16", "cache q8_0", "Prefill", "llama"):
            assert text in drawn, text

    @pytest.mark.parametrize("name", ["speed.jpeg", "speed"])
    def test_formats(self, tmp_path: Path, name: str) -> None:
        assert ".png, .svg, .pdf" in fails(2, "bench", "--plot", tmp_path / name)

    def test_a_file_that_cannot_be_written_is_noticed_at_once(self, tmp_path: Path) -> None:
        """Before the model, which is not there either."""
        for path in (tmp_path / "nowhere" / "speed.png", "/proc/speed.png"):
            assert str(path) in fails(1, "bench", "-m", "missing.gguf", "--plot", path)

    def test_what_is_there_stays_when_nothing_is_measured(self, tmp_path: Path) -> None:
        file = tmp_path / "speed.png"
        assert "missing.gguf" in fails(1, "bench", "-m", "missing.gguf", "--plot", file)
        assert not file.exists()
        file.write_bytes(b"earlier")
        assert "missing.gguf" in fails(1, "bench", "-m", "missing.gguf", "--plot", file)
        assert file.read_bytes() == b"earlier"

    def test_without_matplotlib(self, tmp_path: Path) -> None:
        program = "import sys; sys.modules['matplotlib'] = None; from pyggml.cli import main; main()"
        command = [sys.executable, "-c", program, "bench", "--plot", str(tmp_path / "speed.png")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert done.stderr == "pyggml: --plot needs matplotlib: pip install matplotlib\n"


class TestBadInput:
    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("--prompt", "0"),
            ("--prompt", "12,-5"),
            ("--prompt", "many"),
            ("--prompt", "8,,16"),
            ("--generate", ""),
            ("--generate", "1.5"),
            ("--depth", "-1"),
            ("--parallel", "0"),
            ("--n-threads", "0"),
            ("--n-ubatch", "none"),
            ("--n-gpu-layers", "-1"),
            ("--cache-type", "f16,"),
            ("--repetitions", "0"),
        ],
    )
    def test_lists(self, option: str, value: str) -> None:
        assert option in fails(2, "bench", option, value)

    def test_nothing_to_measure(self) -> None:
        assert "nothing to measure" in fails(2, "bench", "-p", "none", "-n", "none")

    def test_two_formats(self) -> None:
        assert "--csv" in fails(2, "bench", "--json", "--csv")

    def test_models(self, tmp_path: Path) -> None:
        assert "missing.gguf" in fails(1, "bench", "-m", "missing.gguf")
        (tmp_path / "no.gguf").write_text("no model")
        assert "no.gguf" in fails(1, "bench", "-m", tmp_path / "no.gguf")

    def test_settings_that_the_library_refuses(self) -> None:
        assert "'q9_9' is not one of f32" in fails(2, "bench", "--cache-type", "f16,q9_9")
        assert "nonsense" in fails(1, "bench", "--device", "nonsense")
        assert "n_parallel" in fails(1, "bench", "-b", "4", "--parallel", "8")

    def test_a_model_that_does_not_generate(self, tmp_path: Path) -> None:
        encoder = models.write_bert(tmp_path / "bert.gguf")
        assert "does not generate" in fails(1, "bench", "-m", encoder, "-p", 8, "-n", 4, "-r", 1)

    def test_a_prompt_beyond_what_memory_there_is(self) -> None:
        assert "GB is available" in fails(1, "bench", "-p", 1_000_000, "--parallel", 256)


@pytest.mark.slow
def test_interrupt_shows_what_was_measured_so_far() -> None:
    """Once the bar says that a hundredth of it is measured, on a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "pyggml", "bench", "-p", "8", "-n", "4", "-r", "5000", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
        os.close(theirs)
        shown = b""
        while not re.search(rb"measuring.* [1-9][0-9]?%", shown, re.DOTALL):
            shown += os.read(ours, 1024)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        printed = json.loads(process.stdout.read())
    os.close(ours)
    assert process.returncode == 130
    assert printed["interrupted"]
    assert [row["kind"] for row in printed["results"]] == ["prompt", "generate"]
    jsonschema.validate(printed, OUTPUT)


class TestMeasuring:
    """Exactly the tokens that were asked for are computed, by the engine's own counters."""

    @pytest.mark.slow_except(every=2)
    @pytest.mark.parametrize(
        "case",
        [
            Case("prompt", 1),
            Case("prompt", 33),
            Case("prompt", 20, n_parallel=3),
            Case("prompt", 20, n_depth=30, n_parallel=3),
            Case("generate", 1),
            Case("generate", 12, n_parallel=4),
            Case("generate", 12, n_depth=40, n_parallel=2),
        ],
        ids=str,
    )
    def test_what_is_computed(self, case: Case) -> None:
        rng = random.Random(3)
        with library.load(n_ctx=1024, n_threads=1) as llm:
            for _ in range(2):  # nothing is known from the first time
                before = llm.stats()
                assert seconds_of(llm, case, rng) > 0
                after = llm.stats()
                n_prompt, n_generated = (case.n_tokens, 1) if case.kind == "prompt" else (1, case.n_tokens)
                n_first = case.n_parallel if case.n_depth else 0  # requests that only prepare
                computed = case.n_parallel * (case.n_depth + n_prompt)
                generated = case.n_parallel * n_generated + n_first
                assert after.n_prompt_tokens - before.n_prompt_tokens == computed
                assert after.n_cached_tokens - before.n_cached_tokens == case.n_parallel * case.n_depth
                assert after.n_generated_tokens - before.n_generated_tokens == generated
                assert after.n_preemptions == before.n_preemptions

    def test_a_depth_of_other_memories(self, tmp_path: Path) -> None:
        """States and sliding windows start from what was computed, too."""
        for write in (models.write_mamba, models.write_gemma2, models.write_jamba):
            with library.load(write(tmp_path / f"{write.__name__}.gguf"), n_threads=1) as llm:
                for case in (Case("prompt", 40, n_depth=60, n_parallel=2), Case("generate", 4, n_depth=60)):
                    seconds_of(llm, case, random.Random(1))
                    assert llm.stats().n_cached_tokens % 60 == 0

    def test_a_depth_without_the_prefix_cache(self) -> None:
        with (
            library.load(prefix_cache=False, n_threads=1) as llm,
            pytest.raises(library.UnsupportedArchitectureError, match="--depth"),
        ):
            seconds_of(llm, Case("prompt", 4, n_depth=8), random.Random(1))

    def test_prompts(self) -> None:
        with library.load(n_threads=1) as llm:
            prompts = random_prompts(llm.model.vocab, 8, 50, random.Random(0))
            special = set(llm.model.vocab.special_ids)
        assert [len(prompt) for prompt in prompts] == [50] * 8
        assert len({prompt[0] for prompt in prompts}) == 8
        assert not special.intersection(*prompts)

    @pytest.mark.slow
    def test_sides_take_turns(self) -> None:
        cases, sides = [Case("prompt", 4), Case("generate", 2)], [Side(None, n_threads=1), Side(None, n_threads=2)]
        with Bench(sides, cases) as bench:
            told: list[float] = []
            bench.load(told.append)
            assert told[-1] == 1.0
            assert all(0 <= part <= 1 for part in told)
            assert list(bench.warm_up())[-1] == 1.0
            assert not bench.results
            steps = bench.run(2)
            for n_measured in range(1, 5):
                next(steps)
                assert len(bench.results) == n_measured
            next(steps)  # and back
            assert [len(result.seconds) for result in bench.results] == [1, 1, 1, 2]
            assert [result.n_threads_used for result in bench.results] == [1, 2, 1, 2]
            assert list(steps)[-1] == pytest.approx(1.0)
            assert [len(result.seconds) for result in bench.results] == [2, 2, 2, 2]

    def test_settings_share_the_weights(self) -> None:
        sides = [Side(None, cache_type="f16"), Side(None, cache_type="q8_0"), Side(None, device="cpu")]
        before = library.lib.pyg_live_handles(library.lib.PYG_HANDLE_MODEL)
        with Bench(sides, [Case("generate", 2)]) as bench:
            bench.load()
            assert library.lib.pyg_live_handles(library.lib.PYG_HANDLE_MODEL) - before == 2

    @pytest.mark.slow
    def test_labels_tell_sides_apart(self) -> None:
        one = [Side("a/x.gguf")]
        assert list(labels(one).values()) == ["x.gguf"]
        threads = [Side("x.gguf", n_threads=None), Side("x.gguf", n_threads=2)]
        assert list(labels(threads).values()) == ["threads auto", "threads 2"]
        both = [Side("a/x.gguf", cache_type="f16"), Side("b/x.gguf", cache_type="q8_0")]
        assert list(labels(both).values()) == ["a/x.gguf, cache f16", "b/x.gguf, cache q8_0"]
