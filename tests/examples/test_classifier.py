"""examples/classifier.py: files in, labels with probabilities out."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from support.examples import EXAMPLES, printed, run

MESSAGES = EXAMPLES / "data" / "messages.csv"
LABELS = {"complaint", "question", "praise"}


@pytest.mark.parametrize("options", [[], pytest.param(["--calibrate"], marks=pytest.mark.slow)], ids=["", "calibrate"])
def test_csv(options: list[str]) -> None:
    before = list(csv.DictReader(io.StringIO(MESSAGES.read_text())))
    after = list(csv.DictReader(io.StringIO(printed("classifier.py", MESSAGES, *options))))
    assert [row["text"] for row in after] == [row["text"] for row in before]
    for old, new in zip(before, after, strict=True):
        if old["label"]:
            assert (new["label"], new["probability"]) == (old["label"], "")
        else:
            assert new["label"] in LABELS
            assert 1 / 3 <= float(new["probability"]) <= 1


@pytest.mark.slow
def test_json_lines(tmp_path: Path) -> None:
    rows = [{"text": "A red\nball.", "label": "thing"}, {"text": "A cat.", "label": "animal"}, {"text": "A dog."}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    done = [json.loads(line) for line in printed("classifier.py", tmp_path / "rows.jsonl").splitlines()]
    assert done[:2] == [{"text": "A red ball.", "label": "thing"}, {"text": "A cat.", "label": "animal"}]
    assert done[2]["label"] in ("thing", "animal")
    assert 0.5 <= float(done[2]["probability"]) <= 1


@pytest.mark.slow
def test_a_text_that_is_too_long_costs_only_its_label(tmp_path: Path) -> None:
    rows = [("A cat.", "animal"), ("A ball.", "toy"), ("word " * 3000, ""), ("A dog.", "")]
    (tmp_path / "rows.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    done = run("classifier.py", tmp_path / "rows.csv")
    assert done.returncode == 0, done.stderr
    assert "tokens" in done.stderr
    *_, long, last = csv.DictReader(io.StringIO(done.stdout))
    assert not long["label"]
    assert last["label"] in ("animal", "toy")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,label\nHello,\n", "label at least one row"),
        ("content,label\nHello,greeting\n", "every row needs a text"),
        ("text,label\nHello,ab\nBye,ab\nYes,abc\nNo,\n", "rename some"),
    ],
    ids=["no labels", "no texts", "the same first token"],
)
def test_mistakes_are_explained(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "rows.csv").write_text(content)
    done = run("classifier.py", tmp_path / "rows.csv")
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
