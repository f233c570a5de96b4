"""Options of batch jobs: those of the command, wrong ones, and jobs that never start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import models
from support.command import called

import pyggml
from pyggml import batch

HI = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps({"prompt": "A cat"}) + "\n")
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_job_that_never_started_does_not_block_the_next_one(rows: Path, tmp_path: Path) -> None:
    line = ["batch", rows, "--out", tmp_path / "out.jsonl", "-n", 3]
    for wrong, message in ((["-m", "nope.gguf"], "no model file at nope.gguf"), (["-c", 100_000_000], "n_ctx=")):
        failed = called(*line, *wrong)
        assert failed.code == 1
        assert message in failed.err
        assert "Progress is saved" not in failed.err
        assert not (tmp_path / "out.jsonl.part").exists()
    assert called(*line).code == 0


def test_a_journal_without_answers_gives_way_to_another_job(llm: pyggml.LLM, rows: Path, tmp_path: Path) -> None:
    journal = tmp_path / "out.jsonl.part"
    journal.write_text('{"pyggml_batch": 1, "model": ["killed before its first answer"]}\n')
    assert batch.run(rows, tmp_path / "out.jsonl", llm, params={"max_tokens": 1}).n_done == 1
    journal.write_text('{"line": "of another program"}\n')
    with pytest.raises(pyggml.InvalidParameterError, match="journal of another job"):
        batch.run(rows, tmp_path / "out.jsonl", llm)
    assert journal.exists()


def test_only_a_job_that_can_resume_is_said_to_resume(rows: Path, tmp_path: Path) -> None:
    (tmp_path / "out.jsonl.part").write_text('{"pyggml_batch": 1}\n[0, {"answer": "x"}]\n')
    failed = called("batch", rows, "--out", tmp_path / "out.jsonl")
    assert "is the journal of another job" in failed.err
    assert "again to resume" not in failed.err


def test_the_command_has_the_parallel_sequences_and_the_template(tmp_path: Path) -> None:
    path, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    path.write_text(json.dumps({"messages": HI}) + "\n")
    model = models.write_llama(tmp_path / "plain.gguf")  # has no chat template
    assert "--chat-template" in called("batch", "--help").out
    for words in (["--n-parallel", 2], ["-np", 2], ["--parallel", 2]):
        done = called("batch", path, "--out", out, "-m", model, "-n", 2, "--chat-template", "chatml", "--force", *words)
        assert done.code == 0, done
        assert read(out)[0]["answer_tokens"] == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 5}, r"no parameter 'max_tokens': pass params=\{'max_tokens': \.\.\.\}"),
        ({"max_new_tokens": 5}, r"pass params=\{'max_tokens': \.\.\.\}"),
        ({"force": True}, "it is 'overwrite' here"),
        ({"model_path": "m"}, "it is 'model' here"),
        ({"n_paralel": 2}, "did you mean 'n_parallel'"),
    ],
)
def test_options_of_others_get_hints_at_once(rows: Path, tmp_path: Path, options: Any, message: str) -> None:
    with pytest.raises(pyggml.UnknownParameterError, match=message):
        batch.run(rows, tmp_path / "out.jsonl", **options)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "-"], "not written to standard output"),
        (["--output-file", "z.jsonl"], "--out OUT"),
        (["-o", "z.jsonl"], "-o: it is '--out OUT'"),
        (["--input-file", "d.jsonl"], "ROWS is an argument"),
        (["more.jsonl", "--out", "z.jsonl"], "-m MODEL"),
    ],
)
def test_the_command_line_of_others_gets_hints(rows: Path, words: list[str], message: str) -> None:
    assert message in called("batch", rows, *words).err


def test_what_is_no_file_and_lines_that_are_no_rows(llm: pyggml.LLM, rows: Path, tmp_path: Path) -> None:
    given: Any = [{"prompt": "x"}]
    with pytest.raises(pyggml.InvalidParameterError, match=r"source must be the path .*llm.generate_batch\(prompts\)"):
        batch.run(given, tmp_path / "out.jsonl", llm)
    rows.write_text('{"prompt": "A cat"}\n\n{torn\n{"prompt": "x", "answer": 1}\n')
    batch.run(rows, tmp_path / "out.jsonl", llm)
    _, torn, taken = (row["answer_error"] for row in read(tmp_path / "out.jsonl"))
    assert torn == "line 3 is not JSON: Expecting property name enclosed in double quotes at column 2"
    assert "already has a field 'answer': --column NAME" in taken


def test_rows_and_tables_without_one_question_say_so(llm: pyggml.LLM, tmp_path: Path) -> None:
    lines = [{"prompt": "A cat", "messages": HI}, {"text": "A cat"}, {"prompt": "A cat", "tools": [{}]}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    batch.run(tmp_path / "in.jsonl", tmp_path / "out.jsonl", llm)
    both, neither, tools = (row["answer_error"] for row in read(tmp_path / "out.jsonl"))
    assert "the row has both 'prompt' and 'messages'" in both
    assert "neither 'prompt' nor 'messages', only 'text': --prompt NAME" in neither
    assert "the row has tools, but a prompt is only continued" in tools
    (tmp_path / "in.csv").write_text("id;prompt\n1;A cat\n")
    with pytest.raises(pyggml.InvalidParameterError, match=r"only 'id;prompt'.*Commas separate the columns"):
        batch.run(tmp_path / "in.csv", tmp_path / "table.jsonl", llm)


def test_sampling_parameters_beside_the_prompt_give_a_warning(llm: pyggml.LLM, tmp_path: Path) -> None:
    row = {"prompt": "A cat", "max_new_tokens": 4, "params": {"max_tokens": 2}, "id": 1}
    (tmp_path / "in.jsonl").write_text(f"{json.dumps(row)}\n" * 2)
    with pytest.warns(
        UserWarning, match="the field 'max_new_tokens'.*in its field 'params'.*\"max_tokens\": 4"
    ) as found:
        batch.run(tmp_path / "in.jsonl", tmp_path / "out.jsonl", llm)
    assert len(found) == 1
    assert [each["answer_tokens"] for each in read(tmp_path / "out.jsonl")] == [2, 2]


def test_a_request_of_openais_format_among_prompts(llm: pyggml.LLM, tmp_path: Path) -> None:
    rows = [{"prompt": "A cat", "params": {"max_tokens": 1}}, {"custom_id": "a", "url": "/v1/completions", "body": {}}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    batch.run(tmp_path / "in.jsonl", tmp_path / "out.jsonl", llm)
    assert "the format of OpenAI's batch API" in read(tmp_path / "out.jsonl")[1]["answer_error"]
