"""Batch jobs on files of prompts: formats, failed rows, and jobs that are killed and resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import openai.types
import openai.types.chat
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from openai.types.batch_create_params import BatchCreateParams
from support.command import called

import pyggml
from pyggml import batch
from pyggml.batch import openai_rows

Json = dict[str, Any]

FOUR: Json = {"max_tokens": 4, "ignore_eos": True}


def written(path: Path, rows: Iterable[Json | str]) -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def read(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def prompts(n: int, **more: Any) -> list[Json]:
    return [{"id": index, "prompt": f"Tim had {index} cats", "params": FOUR, **more} for index in range(n)]


def request(index: int, **more: Any) -> Json:
    body = {"model": "gpt", "max_tokens": 4, "messages": [{"role": "user", "content": f"What is {index}?"}]}
    url = "/v1/chat/completions"
    return {"custom_id": f"row-{index}", "method": "POST", "url": url, "body": body, **more}


def repeats(llm: pyggml.LLM) -> bool:
    """Check for batch invariance, which CPUs without our kernels do not have."""
    return not llm.stats().not_batch_invariant


# --- plain rows -------------------------------------------------------------------------------------------------


def test_rows_get_what_the_model_says_in_their_order(llm: pyggml.LLM, tmp_path: Path) -> None:
    rows = prompts(20, note="kept")
    rows[3] = {
        "id": 3,
        "messages": [{"role": "user", "content": "What colour is the sky?"}],
        "params": {"max_tokens": 9},
    }
    report = batch.run(written(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl", llm)
    found = read(tmp_path / "out.jsonl")
    assert [row["id"] for row in found] == [*range(20)]
    assert found[7]["note"] == "kept"
    for row in found:
        if row["id"] != 3 and repeats(llm):
            assert row["answer"] == llm.generate(row["prompt"], **FOUR).text
    assert found[3]["answer"] == llm.chat(rows[3]["messages"], max_tokens=9).message.content
    assert (report.n_rows, report.n_done, report.n_failed, report.n_kept) == (20, 20, 0, 0)
    assert report.generated_tokens == sum(row["answer_tokens"] for row in found)
    assert not (tmp_path / "out.jsonl.part").exists()


def test_rows_that_fail_are_kept_and_stop_nothing(llm: pyggml.LLM, tmp_path: Path) -> None:
    bad: list[Json | str] = [
        *prompts(2),
        "{torn",
        "[1]",
        "[" * 100_000,
        '"\\ud800"',
        {"id": 4},
        {"prompt": []},
        {"prompt": "x " * 20_000},
        {"prompt": 5},
        {"prompt": "x", "params": {"max_tokns": 1}},
        {"prompt": "x", "params": {"prompt": "y"}},
        {"prompt": "x", "params": {"self": 1}},
        {"prompt": "x", "params": 4},
        {"prompt": "x", "params": "{"},
        {"prompt": "x", "answer_error": "taken"},
        {"messages": [{"role": "stranger"}]},
        {"messages": 3},
        {"prompt": "\ud800", "params": {"max_tokens": 1}},
        *prompts(2),
    ]
    source = written(tmp_path / "in.jsonl", bad)
    report = batch.run(source, tmp_path / "out.jsonl", llm)
    found = read(tmp_path / "out.jsonl")
    assert len(found) == len(bad) == report.n_done
    assert all(row["answer_error"] is None for row in [*found[:2], *found[-2:]])
    assert all(row["answer_error"] and row["answer"] is None for row in found[2:18]), [
        row["answer_error"] for row in found
    ]
    assert "ContextOverflowError" in found[8]["answer_error"]
    batch.run(source, tmp_path / "out.parquet", llm)
    table = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert [row["answer_error"] for row in table] == [row["answer_error"] for row in found]


def test_a_column_of_lines_has_one_type_or_is_json(llm: pyggml.LLM, tmp_path: Path) -> None:
    mixed = [1, "one", None, [1], 2**70]
    rows = [
        {**row, "mixed": mixed[index], "real": [1, 2.5][index % 2], "flag": True}
        for index, row in enumerate(prompts(5))
    ]
    batch.run(written(tmp_path / "in.jsonl", rows), tmp_path / "out.parquet", llm)
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.schema.field("real").type == pa.float64()
    assert table.schema.field("flag").type == pa.bool_()
    assert table.schema.field("id").type == table.schema.field("answer_tokens").type == pa.int64()
    assert table.column("mixed").to_pylist() == ["1", "one", None, "[1]", str(2**70)]


def test_parquet_keeps_its_types(llm: pyggml.LLM, tmp_path: Path) -> None:
    table = pa.table(
        {"id": pa.array([5, 6], pa.int8()), "prompt": ["A cat", None], "when": pa.array([1, 2], pa.date32())}
    )
    pq.write_table(table, tmp_path / "in.parquet")
    batch.run(tmp_path / "in.parquet", tmp_path / "out.parquet", llm, params=pyggml.SamplingParams(max_tokens=3))
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.select(table.column_names) == table
    assert found.column("answer").to_pylist() == [llm.generate("A cat", max_tokens=3).text, None]
    batch.run(tmp_path / "in.parquet", tmp_path / "out.jsonl", llm)
    assert read(tmp_path / "out.jsonl")[0]["when"] == "1970-01-02"


def test_an_empty_file_has_no_answers(llm: pyggml.LLM, tmp_path: Path) -> None:
    assert batch.run(written(tmp_path / "in.jsonl", ["", "  "]), tmp_path / "out.jsonl", llm).n_rows == 0
    assert (tmp_path / "out.jsonl").read_text() == ""


# --- OpenAI's format --------------------------------------------------------------------------------------------


def test_openais_format_is_answered_as_the_server_does(llm: pyggml.LLM, tmp_path: Path) -> None:
    rows: list[Json | str] = [request(index) for index in range(6)]
    rows[1] = request(1, url="/v1/completions", body={"model": "x", "prompt": "A cat", "max_tokens": 3})
    rows[2] = request(2, body={"model": "x", "messages": [], "max_tokens": -3})
    rows[3] = request(3, url="/v1/files")
    rows[4] = "{torn"
    rows.append(request(6, body={"stream": True, "messages": []}))
    rows.append(request(7, method="GET"))
    rows.append({"url": "/v1/completions", "body": {}})
    report = batch.run(written(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl", llm)
    found = read(tmp_path / "out.jsonl")
    assert len({row["id"] for row in found}) == len(rows)
    assert [row["custom_id"] for row in found] == [f"row-{n}" for n in range(4)] + [
        None,
        "row-5",
        "row-6",
        "row-7",
        None,
    ]
    for index in (0, 5):
        assert found[index]["error"] is None
        assert found[index]["response"]["status_code"] == 200
        body = openai.types.chat.ChatCompletion.model_validate(found[index]["response"]["body"], strict=True)
        asked = [{"role": "user", "content": f"What is {index}?"}]
        assert not repeats(llm) or body.choices[0].message.content == llm.chat(asked, max_tokens=4).message.content
    text = openai.types.Completion.model_validate(found[1]["response"]["body"], strict=True)
    assert not repeats(llm) or text.choices[0].text == llm.generate("A cat", max_tokens=3).text
    assert found[2]["response"]["status_code"] == 400
    assert found[2]["response"]["body"]["error"]["message"]
    for index in (3, 4, 6, 7, 8):
        assert found[index]["response"] is None
        assert found[index]["error"]["code"] == "invalid_request"
    assert report.n_failed == 6
    assert report.generated_tokens == 4 + 3 + 4
    batch.run(tmp_path / "in.jsonl", tmp_path / "out.parquet", llm)
    table = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert [row["custom_id"] for row in table] == [row["custom_id"] for row in found]
    assert json.loads(table[0]["response"])["body"]["choices"] == found[0]["response"]["body"]["choices"]


#: The example of OpenAI's guide to its batch API, as published.
PUBLISHED = """\
{"custom_id": "request-1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "gpt-3.5-turbo-0125", \
"messages": [{"role": "system", "content": "You are a helpful assistant."},\
{"role": "user", "content": "Hello world!"}],"max_tokens": 1000}}
{"custom_id": "request-2", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "gpt-3.5-turbo-0125", \
"messages": [{"role": "system", "content": "You are an unhelpful assistant."},\
{"role": "user", "content": "Hello world!"}],"max_tokens": 1000}}
"""


def test_openais_published_example_is_answered_as_its_guide_says(llm: pyggml.LLM, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("{torn, and yet the others say what they are\n" + PUBLISHED)
    batch.run(tmp_path / "in.jsonl", tmp_path / "out.jsonl", llm)
    broken, *found = read(tmp_path / "out.jsonl")
    assert broken["error"].keys() == {"code", "message"}
    for n, row in enumerate(found, 1):
        assert row.keys() == {"id", "custom_id", "response", "error"}
        assert row["id"].startswith("batch_req_")
        assert (row["custom_id"], row["error"]) == (f"request-{n}", None)
        assert row["response"].keys() == {"status_code", "request_id", "body"}
        assert row["response"]["request_id"]
        openai.types.chat.ChatCompletion.model_validate(row["response"]["body"], strict=True)
    assert {*openai_rows.URLS} - {"/v1/rerank", "/v1/score"} <= set(
        get_args(get_type_hints(BatchCreateParams)["endpoint"])
    )


# --- going on ---------------------------------------------------------------------------------------------------


def started(source: Path, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pyggml", "batch", source, "--out", out]
    return subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL)


def n_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.slow
def test_a_killed_job_goes_on_and_computes_nothing_twice(llm: pyggml.LLM, tmp_path: Path) -> None:
    source, out = written(tmp_path / "in.jsonl", prompts(600)), tmp_path / "out.jsonl"
    journal = tmp_path / "out.jsonl.part"
    known: list[bytes] = []
    for target in (60, 150, 300):
        with started(source, out) as process:
            while n_lines(journal) < target and process.poll() is None:
                time.sleep(0.002)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL, "it ended before it was killed"
        lines = [line for line in journal.read_bytes().splitlines(True) if line.endswith(b"\n")]
        assert lines[: len(known)] == known
        assert len(lines) >= target
        known = lines
        with journal.open("ab") as file:
            file.write(b'[599, {"answer": "to')  # what is torn is computed again
        assert not out.exists()
    report = batch.run(source, out, column="answer")
    assert report.n_kept == len(known) - 1
    assert report.n_done == 600
    batch.run(source, tmp_path / "whole.jsonl")
    found, whole = read(out), read(tmp_path / "whole.jsonl")
    for index, answer in map(json.loads, known[1:]):
        assert {**found[index], **answer} == found[index]  # nothing that was done is done again
    assert [row["id"] for row in found] == [*range(600)]
    if not repeats(llm):
        found, whole = ([row | {"answer": None} for row in each] for each in (found, whole))
    assert found == whole


@pytest.fixture
def stopped(llm: pyggml.LLM, tmp_path: Path) -> Path:
    """The output of a job that was stopped halfway."""

    def stop(state: batch.BatchProgress) -> None:
        if state.n_done == 10:
            raise RuntimeError("stop here")

    with pytest.raises(RuntimeError, match="stop here"):
        batch.run(written(tmp_path / "in.jsonl", prompts(20)), tmp_path / "out.jsonl", llm, progress=stop)
    return tmp_path / "out.jsonl"


def test_a_changed_job_does_not_go_on(llm: pyggml.LLM, stopped: Path) -> None:
    source = stopped.with_name("in.jsonl")
    with pytest.raises(pyggml.InvalidParameterError, match="params changed since"):
        batch.run(source, stopped, llm, params=pyggml.SamplingParams(temperature=1, seed=1))
    with pytest.raises(pyggml.InvalidParameterError, match="fields changed since"):
        batch.run(source, stopped, llm, column="text")
    with pytest.raises(pyggml.InvalidParameterError, match="options changed since"):
        batch.run(source, stopped, llm.source, n_ctx=512)
    rows = source.read_text()
    source.write_text(rows.replace("Tim", "Tom"))
    with pytest.raises(pyggml.InvalidParameterError, match="input changed since"):
        batch.run(source, stopped, llm)
    source.write_text(rows)
    assert batch.run(source, stopped, llm).n_kept >= 10


def test_a_job_can_begin_anew(llm: pyggml.LLM, stopped: Path) -> None:
    assert batch.run(stopped.with_name("in.jsonl"), stopped, llm, column="text", restart=True).n_kept == 0


def test_what_is_no_journal_is_not_overwritten(llm: pyggml.LLM, tmp_path: Path) -> None:
    (tmp_path / "out.jsonl.part").write_text("half a download\n")
    with pytest.raises(pyggml.InvalidParameterError, match="is not a journal"):
        batch.run(written(tmp_path / "in.jsonl", prompts(2)), tmp_path / "out.jsonl", llm)
    assert (tmp_path / "out.jsonl.part").read_text() == "half a download\n"


@pytest.mark.parametrize("tail", [b"\0\0\0", b'[1]\n[5, {"answer": "x"}]\n', b"[99, {}]\n", b"\xff\xfe\n", b"null\n"])
def test_a_damaged_end_is_cut_off(tail: bytes, llm: pyggml.LLM, stopped: Path) -> None:
    journal = stopped.with_name("out.jsonl.part")
    n_kept = n_lines(journal) - 1
    with journal.open("ab") as file:
        file.write(tail)
    assert batch.run(stopped.with_name("in.jsonl"), stopped, llm).n_kept == n_kept
    assert [row["id"] for row in read(stopped)] == [*range(20)]
    assert all(row["answer_error"] is None and row["answer_tokens"] == 4 for row in read(stopped))


def test_only_one_process_works_on_a_job(llm: pyggml.LLM, stopped: Path) -> None:
    import fcntl

    with stopped.with_name("out.jsonl.part").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for restart in (False, True):
            with pytest.raises(pyggml.InvalidParameterError, match="another process is running this job"):
                batch.run(stopped.with_name("in.jsonl"), stopped, llm, restart=restart)
    assert batch.run(stopped.with_name("in.jsonl"), stopped, llm).n_kept >= 10


def test_an_engine_that_is_gone_is_no_failed_row(tmp_path: Path, own_llm: pyggml.LLM) -> None:
    source = written(tmp_path / "in.jsonl", prompts(20))

    def close(state: batch.BatchProgress) -> None:
        if state.n_done == 8:
            own_llm.close()

    with pytest.raises(pyggml.ClosedError):
        batch.run(source, tmp_path / "out.jsonl", own_llm, progress=close)
    assert not (tmp_path / "out.jsonl").exists()
    assert batch.run(source, tmp_path / "out.jsonl", own_llm.source).n_failed == 0


# --- what is refused at once, and the command -------------------------------------------------------------------


def test_what_cannot_be_written_is_refused_before_the_work(llm: pyggml.LLM, tmp_path: Path) -> None:
    source = written(tmp_path / "in.jsonl", prompts(2))
    (tmp_path / "there.jsonl").write_text("mine")
    for out, message in (
        (tmp_path / "there.jsonl", "overwrite=True"),
        (source, "is the input"),
        (tmp_path, "directory"),
        (tmp_path / "no" / "out.jsonl", "no directory"),
        (tmp_path / "out.csv", r"must end in \.jsonl or \.parquet, the formats of answers: name it out\.jsonl"),
    ):
        with pytest.raises(pyggml.InvalidParameterError, match=message):
            batch.run(source, out, llm)
    with pytest.raises(pyggml.InvalidParameterError, match="no file"):
        batch.run(tmp_path / "none.jsonl", tmp_path / "out.jsonl", llm)
    with pytest.raises(pyggml.InvalidParameterError, match="another column"):
        batch.run(source, tmp_path / "out.jsonl", llm, column="id")
    with pytest.raises(pyggml.InvalidParameterError, match="is not a Parquet file, despite"):
        batch.run(source.rename(tmp_path / "in.parquet"), tmp_path / "out.jsonl", llm)
    source = (tmp_path / "in.parquet").rename(source)
    assert (tmp_path / "there.jsonl").read_text() == "mine"
    batch.run(source, tmp_path / "there.jsonl", llm, overwrite=True)
    assert len(read(tmp_path / "there.jsonl")) == 2


def test_the_command_answers_a_file(tmp_path: Path) -> None:
    rows: list[Json | str] = [{"text": "A cat"}, {"text": []}]
    source, out = written(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    done = called("batch", source, "--out", out, "--prompt", "text", "--max-tokens", 3)
    assert done.code == 1, done
    assert "2 of 2 rows (1 failed), " in done.err
    assert "tokens/s" in done.err
    assert [row["answer_tokens"] for row in read(out)] == [3, None]
    again = called("batch", source, "--out", out, "--prompt", "text")
    assert again.code == 1
    assert "say --force" in again.err
    strict = called("batch", source, "--out", out, "--prompt", "text", "--max-tokens", 3, "--force", "--strict")
    assert strict.code == 1
    assert "row 2 of 2 failed: EmptyPromptError: " in strict.err
    assert [row["answer_tokens"] for row in read(out)] == [3, None], "a strict job that fails replaces nothing"


def test_the_command_reads_standard_input(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    for text in ("A cat\n\nA dog\n", '{"prompt": "A cat"}\n{"prompt": "A dog"}\n'):
        done = called("batch", "-", "--out", out, "--max-tokens", 3, "--force", stdin=text)
        assert done.code == 0, done
        assert [(row["prompt"], row["answer_tokens"]) for row in read(out)] == [("A cat", 3), ("A dog", 3)]


def test_csv_and_plain_text(llm: pyggml.LLM, tmp_path: Path) -> None:
    three: Json = {"max_tokens": 3}
    expected = [llm.generate(prompt, max_tokens=3).text for prompt in ("A cat, and", "A dog")]
    table, out = tmp_path / "in.csv", tmp_path / "out.jsonl"
    table.write_text('\ufeffid,prompt,params\n7,"A cat, and",\n8,A dog,"{""seed"": 1}"\n9,one,,too many\n', "utf-8")
    report = batch.run(table, out, llm, params=three)
    assert (report.n_rows, report.n_failed) == (3, 1)
    found = read(out)
    assert [row["answer"] for row in found] == [*expected, None]
    assert found[0]["id"] == "7"
    assert "more values than columns" in found[2]["answer_error"]
    tabs = tmp_path / "in.tsv"
    tabs.write_text(f"prompt\tmessages\n\t{json.dumps([{'role': 'user', 'content': 'Hi'}])}\n")
    batch.run(tabs, out, llm, params=three, overwrite=True)
    assert read(out)[0]["answer"] == llm.chat([{"role": "user", "content": "Hi"}], **three).message.content
    lines = tmp_path / "in.txt"
    lines.write_bytes(b"A cat, and\r\n\nA dog\n\xff\n")
    batch.run(lines, tmp_path / "out.parquet", llm, params=three)
    table_out = pq.read_table(tmp_path / "out.parquet")
    assert table_out.column("answer").to_pylist() == [*expected, None]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "rows.json",
            '[\n  "a"\n]\n',
            r"no row to answer: line 1 is not JSON: .* Rows are JSON lines \(\.jsonl\)",
        ),
        ("rows.csv", "prompt\n\udcff\n", "rows.csv is not CSV in UTF-8: 'utf-8' codec can't decode"),
    ],
)
def test_files_without_rows_are_refused_at_once(
    llm: pyggml.LLM, tmp_path: Path, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(pyggml.InvalidParameterError, match=message):
        batch.run(tmp_path / name, tmp_path / "out.jsonl", llm)


def test_failed_rows_of_an_earlier_run_count(tmp_path: Path, own_llm: pyggml.LLM) -> None:
    source, out = written(tmp_path / "in.jsonl", [{"prompt": []}, *prompts(1)]), tmp_path / "out.jsonl"

    def stop(_: batch.BatchProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        batch.run(source, out, own_llm, progress=stop)
    report = batch.run(source, out, own_llm)
    assert (report.n_kept >= 1, report.n_failed) == (True, 1)


@pytest.mark.parametrize("params", [{"max_tokns": 3}, 5, {"top_k": -1}])
def test_wrong_params_are_refused_at_once(llm: pyggml.LLM, tmp_path: Path, params: Any) -> None:
    with pytest.raises(pyggml.InvalidParameterError):
        batch.run(written(tmp_path / "in.jsonl", prompts(1)), tmp_path / "out.jsonl", llm, params=params)


@pytest.mark.slow
def test_the_command_says_how_to_go_on(tmp_path: Path) -> None:
    source, out = written(tmp_path / "in.jsonl", prompts(2000)), tmp_path / "out.jsonl"
    with subprocess.Popen(
        [sys.executable, "-m", "pyggml", "batch", str(source), "--out", str(out)], stderr=subprocess.PIPE, text=True
    ) as process:
        while n_lines(tmp_path / "out.jsonl.part") < 20:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == 130, err
    assert "Run the same command again to resume." in err
