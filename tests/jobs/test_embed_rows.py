"""Embeddings of the rows of a file, jobs that resume, and search."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import pyggml
from pyggml import batch
from pyggml.cli.program import program

TEXTS = [f"text {n} {'of words ' * (n % 9)}" for n in range(3000)]


@pytest.fixture(scope="module")
def llm(bert_path: Path) -> Iterator[pyggml.LLM]:
    with pyggml.load(bert_path, n_threads=1) as llm:
        llm.embed("makes the context, which is not any test's own")
        yield llm


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(TEXTS)))
    return path


def few(folder: Path, n: int = 20) -> Path:
    path = folder / "few.jsonl"
    path.write_text("".join(json.dumps({"id": i, "text": TEXTS[i]}) + "\n" for i in range(n)))
    return path


class Interrupted(Exception):
    pass


def interrupt(state: batch.EmbedProgress) -> None:
    if state.n_done - state.n_kept >= 1024:
        raise Interrupted


def test_formats(tmp_path: Path, llm: pyggml.LLM) -> None:
    expected, source = llm.embed(TEXTS[:20], normalize=True), few(tmp_path)
    for name in ("v.npy", "v.jsonl", "v.parquet"):
        report = batch.embed(source, tmp_path / name, llm, normalize=True)
        assert (report.n_rows, report.n_failed, report.n_dimensions) == (20, 0, llm.n_dimensions)
        assert not (tmp_path / f"{name}.part").exists()
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), expected)
    lines = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    assert [(line["id"], line["text"]) for line in lines] == list(enumerate(TEXTS[:20]))
    np.testing.assert_array_equal(np.array([line["embedding"] for line in lines], np.float32), expected)
    table = pq.read_table(tmp_path / "v.parquet")
    assert table.column_names == ["id", "text", "embedding", "embedding_error"]
    np.testing.assert_array_equal(np.array(table["embedding"].to_pylist(), np.float32), expected)


@pytest.mark.parametrize("dtype", ["float16", "int8", "binary"])
def test_types(tmp_path: Path, llm: pyggml.LLM, dtype: Any) -> None:
    expected, source = llm.embed(TEXTS[:20], dtype=dtype, dimensions=16), few(tmp_path)
    for name in ("v.npy", "v.parquet"):
        batch.embed(source, tmp_path / name, llm, dtype=dtype, dimensions=16)
    found = np.load(tmp_path / "v.npy")
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    column = pq.read_table(tmp_path / "v.parquet")["embedding"]
    np.testing.assert_array_equal(np.array(column.to_pylist()), expected)


def test_plain_text_and_other_fields(tmp_path: Path, llm: pyggml.LLM) -> None:
    source = tmp_path / "lines.txt"
    source.write_text("one\n\ntwo\n")
    batch.embed(source, tmp_path / "v.parquet", llm, column="vector")
    table = pq.read_table(tmp_path / "v.parquet")
    assert table["text"].to_pylist() == ["one", "two"]
    np.testing.assert_array_equal(np.array(table["vector"].to_pylist(), np.float32), llm.embed(["one", "two"]))
    comma = tmp_path / "table.csv"
    comma.write_text("title,body\na,one\nb,two\n")
    batch.embed(comma, tmp_path / "v.npy", llm, text="body")
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), llm.embed(["one", "two"]))


def test_rows_without_a_text(tmp_path: Path, llm: pyggml.LLM) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text('{"text": "one"}\n{"text": 5}\nnot JSON\n{"text": ""}\n{"text": "two"}\n')
    expected = llm.embed(["one", "two"])
    for name in ("v.npy", "v.jsonl", "v.parquet"):
        assert batch.embed(source, tmp_path / name, llm).n_failed == 3
    vectors = np.load(tmp_path / "v.npy")
    np.testing.assert_array_equal(vectors[[0, 4]], expected)
    assert not vectors[1:4].any()
    lines = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    assert [line["embedding"] is None for line in lines] == [False, True, True, True, False]
    errors = pq.read_table(tmp_path / "v.parquet")["embedding_error"].to_pylist()
    assert errors == [line.get("embedding_error") for line in lines]
    assert errors[1] == "the field 'text' has no text"
    assert "line 3 is not JSON" in errors[2]


class TestResuming:
    def test_computes_only_what_is_missing(
        self, tmp_path: Path, rows: Path, llm: pyggml.LLM, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        out, part = tmp_path / "v.npy", tmp_path / "v.npy.part"
        with pytest.raises(Interrupted):
            batch.embed(rows, out, llm, progress=interrupt)
        assert part.exists()
        assert not out.exists()
        with part.open("ab") as file:
            file.write(b"half of a vector")
        queued: list[int] = []
        submit = llm._embedder.queue.submit

        def count(job: Any) -> None:
            queued.append(job.n_waiting)
            submit(job)

        monkeypatch.setattr(llm._embedder.queue, "submit", count)
        report = batch.embed(rows, out, llm)
        assert report.n_kept == 1024
        assert sum(queued) == report.n_done - report.n_kept == len(TEXTS) - 1024
        np.testing.assert_array_equal(np.load(out), llm.embed(TEXTS))
        assert not part.exists()

    def test_another_job_is_refused(self, tmp_path: Path, rows: Path, llm: pyggml.LLM) -> None:
        out = tmp_path / "v.npy"
        with pytest.raises(Interrupted):
            batch.embed(rows, out, llm, progress=interrupt)
        with pytest.raises(pyggml.InvalidParameterError, match=r"vectors changed since.*restart=True"):
            batch.embed(rows, out, llm, dimensions=8)
        assert batch.embed(rows, out, llm, dimensions=8, restart=True).n_kept == 0
        assert np.load(out).shape == (len(TEXTS), 8)
        with pytest.raises(pyggml.InvalidParameterError, match="overwrite=True"):
            batch.embed(rows, out, llm)

    def test_other_files_are_not_overwritten(self, tmp_path: Path, llm: pyggml.LLM) -> None:
        (tmp_path / "v.npy.part").write_text("somebody's notes\n")
        with pytest.raises(pyggml.InvalidParameterError, match="not a file of vectors"):
            batch.embed(few(tmp_path), tmp_path / "v.npy", llm)
        assert (tmp_path / "v.npy.part").read_text() == "somebody's notes\n"

    def test_one_process_at_a_time(self, tmp_path: Path, rows: Path, llm: pyggml.LLM) -> None:
        out, messages = tmp_path / "v.npy", []

        def again(_state: batch.EmbedProgress) -> None:
            try:
                batch.embed(rows, out, llm)
            except pyggml.InvalidParameterError as error:
                messages.append(str(error))

        batch.embed(rows, out, llm, progress=again)
        assert len(messages) == 3
        assert all("another process is running this job" in message for message in messages)


def test_few_texts_are_in_memory(tmp_path: Path, rows: Path, llm: pyggml.LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    n_waiting: list[int] = []
    submit = llm._embedder.queue.submit

    def count(job: Any) -> None:
        submit(job)
        n_waiting.append(sum(len(each.results) for each in [*llm._embedder.queue._waiting]))

    monkeypatch.setattr(llm._embedder.queue, "submit", count)
    batch.embed(rows, tmp_path / "v.npy", llm)
    assert len(n_waiting) == 4  # an empty call, and three chunks
    assert max(n_waiting) <= 2 * 1024


def test_long_texts(tmp_path: Path, llm: pyggml.LLM) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text(json.dumps({"text": "word " * 600}) + "\n")
    batch.embed(source, tmp_path / "v.npy", llm)
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), llm.embed(["word " * 600], truncate=True))
    with pytest.raises(pyggml.ContextOverflowError):
        batch.embed(source, tmp_path / "w.npy", llm, truncate=False)
    assert not (tmp_path / "w.npy.part").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"out": "v.bin"}, "must end in .npy, .jsonl or .parquet"), ({"dimensions": 999}, "dimensions must be")],
)
def test_wrong_arguments(tmp_path: Path, llm: pyggml.LLM, options: dict[str, Any], message: str) -> None:
    out = tmp_path / options.pop("out", "v.npy")
    with pytest.raises(pyggml.InvalidParameterError, match=message):
        batch.embed(few(tmp_path), out, llm, **options)
    with pytest.raises(pyggml.UnknownParameterError):
        batch.embed(few(tmp_path), tmp_path / "v.npy", temperature=3)


class TestSimilar:
    def test_every_kind_of_file(self, tmp_path: Path, llm: pyggml.LLM) -> None:
        source = few(tmp_path)
        scores = llm.similarity(llm.embed_query(TEXTS[7]), llm.embed(TEXTS[:20]))
        order = np.argsort(-scores, kind="stable")[:3].tolist()
        files = [tmp_path / name for name in ("v.npy", "v.jsonl", "v.parquet")]
        for path in files:
            batch.embed(source, path, llm)
        for path in (source, *files):
            found = batch.similar(llm, TEXTS[7], path, top_n=3)
            assert [each.index for each in found] == order
            np.testing.assert_allclose([each.score for each in found], scores[order], rtol=1e-5)
            if path.suffix != ".npy":
                assert [each.row["id"] for each in found] == order
                assert "embedding" not in found[0].row

    @pytest.mark.parametrize("dtype", ["int8", "binary"])
    def test_every_type(self, tmp_path: Path, llm: pyggml.LLM, dtype: Any) -> None:
        source = few(tmp_path)
        for name in ("v.npy", "v.jsonl", "v.parquet"):
            batch.embed(source, tmp_path / name, llm, dtype=dtype)
            best = batch.similar(llm, TEXTS[7], tmp_path / name, top_n=1)[0]
            assert (best.index, round(best.score, 3)) == (7, 1)

    def test_rows_without_a_vector(self, tmp_path: Path, llm: pyggml.LLM) -> None:
        source = tmp_path / "rows.jsonl"
        source.write_text('{"text": "one"}\n{"text": 5}\n{"text": "two"}\n')
        batch.embed(source, tmp_path / "v.jsonl", llm)
        for path in (source, tmp_path / "v.jsonl"):
            assert sorted(each.index for each in batch.similar(llm, "two", path)) == [0, 2]

    def test_vectors_of_another_model(self, tmp_path: Path, llm: pyggml.LLM) -> None:
        np.save(tmp_path / "v.npy", np.zeros((3, 999), np.float32))
        with pytest.raises(pyggml.InvalidParameterError, match="vectors of 999 dimensions"):
            batch.similar(llm, "one", tmp_path / "v.npy")
        (tmp_path / "w.npy").write_text("no array")
        with pytest.raises(pyggml.InvalidParameterError, match="not an array"):
            batch.similar(llm, "one", tmp_path / "w.npy")


def test_commands(tmp_path: Path, bert_path: Path, llm: pyggml.LLM) -> None:
    source, out = tmp_path / "lines.txt", tmp_path / "v.parquet"
    source.write_text("dogs eat meat\nit rained all day\ncats sleep\n")
    model = ["-m", str(bert_path), "--n-threads", "1"]
    run = CliRunner().invoke
    done = run(program, ["embed", *model, str(source), "--out", str(out), "--dtype", "float16", "--normalize"])
    assert done.exit_code == 0, done.output
    vectors = llm.embed(["dogs eat meat", "it rained all day", "cats sleep"], normalize=True, dtype="float16")
    np.testing.assert_array_equal(np.array(pq.read_table(out)["embedding"].to_pylist(), np.float16), vectors)
    found = run(program, ["similar", *model, "dogs eat meat", str(out), "--top-n", "2"])
    assert found.output.splitlines()[0] == "1.0000  1  dogs eat meat"
    assert len(found.output.splitlines()) == 2
    as_json = run(program, ["similar", *model, "cats sleep", str(source), "--json", "--top-n", "1"])
    assert [(row["row"], row["text"]) for row in json.loads(as_json.output)] == [(3, "cats sleep")]
    partly = run(program, ["embed", *model, "-", "--out", str(tmp_path / "w.npy")], input='{"text": 3}\n{"text": "a"}')
    assert (partly.exit_code, "(1 without a text)" in partly.output) == (1, True)
