"""A classifier for many texts: rows with a label are the examples, the others get a label and its probability.

python examples/classifier.py examples/data/messages.csv -m model.gguf > classified.csv
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

import pyggml

Row = dict[str, str]
FIELDS = ("text", "label", "probability")


def read_rows(path: Path) -> list[Row]:
    """Rows of a CSV file with a header, or of a file with a JSON object in each line."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [json.loads(line) for line in file if line.strip()] if is_json(path) else list(csv.DictReader(file))
    if not all(isinstance(row, dict) and row.get("text") for row in rows):
        raise ValueError(f"{path}: every row needs a text, and may have a label")
    return [{"text": " ".join(row["text"].split()), "label": row.get("label") or ""} for row in rows]


def write_rows(rows: Iterable[Row], as_json: bool) -> None:
    """Print rows in the form of the input."""
    if as_json:
        for row in rows:
            print(json.dumps(row, ensure_ascii=False))
    else:
        table = csv.DictWriter(sys.stdout, FIELDS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def is_json(path: Path) -> bool:
    return path.suffix in (".json", ".jsonl", ".ndjson")


def classify(llm: pyggml.LLM, rows: list[Row], calibrate: bool) -> None:
    """Give a label and its probability to each row without one."""
    examples = [row for row in rows if row["label"]]
    labels = sorted({row["label"] for row in examples})
    if len(labels) < 2:
        raise ValueError("label at least one row of each kind: these rows are the examples for the model")
    beginning = "".join(f"Message: {row['text']}\nKind: {row['label']}\n\n" for row in examples)
    unlabelled = [row for row in rows if not row["label"]]
    completions = llm.generate_batch(
        [f"{beginning}Message: {row['text']}\nKind:" for row in unlabelled],  # the beginning is computed once
        choices=[f" {label}" for label in labels],
        max_tokens=1,
        logprobs=200,
        logprobs_mode="processed_logprobs",
        parse_special=False,  # the texts come from strangers
        return_exceptions=True,
    )
    pairs = list(zip(unlabelled, completions, strict=True))
    for row, error in pairs:
        if isinstance(error, pyggml.InferError):  # such as a text that is longer than the context
            print(f"{row['text'][:50]}: {error}", file=sys.stderr)
    done = [(row, completion) for row, completion in pairs if isinstance(completion, pyggml.Completion)]
    if not done:
        return
    shares = np.array([label_shares(llm, labels, completion) for _, completion in done])
    if calibrate:  # as in https://arxiv.org/abs/2309.17249
        shares /= shares.mean(axis=0)
    shares /= shares.sum(axis=1, keepdims=True)
    for (row, _), share in zip(done, shares, strict=True):
        row["label"], row["probability"] = labels[share.argmax()], f"{share.max():.2f}"


def label_shares(llm: pyggml.LLM, labels: list[str], completion: pyggml.Completion) -> npt.NDArray[np.float64]:
    """The probability of each label, from the alternatives for the first token.

    ``choices`` allows no tokens but beginnings of labels. Tokens with which several labels begin tell nothing.
    """
    shares = np.zeros(len(labels))
    assert completion.logprobs is not None  # they were asked for
    for token_id, logprob in completion.logprobs[0].top:
        piece = llm.tokenizer.piece(token_id).decode(errors="replace")
        fitting = [n for n, label in enumerate(labels) if f" {label}".startswith(piece)]
        if len(fitting) == 1:
            shares[fitting] += math.exp(logprob)
    if not shares.all():
        raise ValueError(f"the first token has to tell the labels apart; rename some of them: {', '.join(labels)}")
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="CSV file, or JSON Lines, with texts and some labels")
    parser.add_argument("-m", "--model", default=pyggml.SHIPPED_MODEL, help="GGUF file, directory or hf:org/repo")
    parser.add_argument(
        "--calibrate",
        action="store_true",
        help="correct the preference of small models for some labels; for files in which each is about as frequent",
    )
    args = parser.parse_args()
    rows = read_rows(args.file)
    with pyggml.load(args.model, n_parallel=16) as llm:
        classify(llm, rows, args.calibrate)
    write_rows(rows, is_json(args.file))


if __name__ == "__main__":
    try:
        main()
    except (pyggml.InferError, OSError, ValueError) as error:
        sys.exit(f"classifier.py: {error}")
