"""Questions about a folder of text files, answered from the nearest passages, which are cited; the index is in SQLite.

python examples/documents.py examples/data/handbook "When is paper collected?" -m model.gguf
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

import pyggml

SCHEMA = """
PRAGMA foreign_keys = ON;
CREATE TABLE IF NOT EXISTS files (path TEXT PRIMARY KEY, digest TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS passages (
    path TEXT NOT NULL REFERENCES files ON DELETE CASCADE,
    line INTEGER NOT NULL,
    text TEXT NOT NULL,
    vector BLOB NOT NULL  -- float32
);
"""
MAX_WORDS = 150


@dataclass(frozen=True)
class Passage:
    """A paragraph of a file, under its heading; ``line`` is where it begins."""

    path: str
    line: int
    text: str


def split(path: str, text: str) -> Iterator[Passage]:
    """The paragraphs of a text; long ones in parts of MAX_WORDS words."""
    heading = ""
    for found in re.finditer(r"(?:\S.*\n?)+", text):
        first, _, rest = found[0].partition("\n")
        is_heading = first.startswith("#")
        heading = first.strip("# ") if is_heading else heading
        words = (rest if is_heading else found[0]).split()
        line = text.count("\n", 0, found.start()) + 1
        for start in range(0, len(words), MAX_WORDS):
            yield Passage(path, line, f"{heading}\n\n{' '.join(words[start : start + MAX_WORDS])}".strip())


def update(index: sqlite3.Connection, embedder: pyggml.LLM, folder: Path) -> None:
    """Embed the files that are new or have changed, and forget those that are gone."""
    paths = [path for path in sorted(folder.rglob("*")) if path.suffix in (".md", ".rst", ".txt")]
    texts = {str(path.relative_to(folder)): path.read_text("utf-8", errors="replace") for path in paths}
    # Vectors of different models do not compare.
    digests = {path: hashlib.sha256(f"{embedder.source}\n{text}".encode()).hexdigest() for path, text in texts.items()}
    known = dict(index.execute("SELECT path, digest FROM files"))
    stale = [path for path in known if digests.get(path) != known[path]]
    fresh = [path for path in digests if digests[path] != known.get(path)]
    passages = [passage for path in fresh for passage in split(path, texts[path])]
    vectors = embedder.embed([passage.text for passage in passages], truncate=True, parse_special=False)
    with index:
        index.executemany("DELETE FROM files WHERE path = ?", [(path,) for path in stale])
        index.executemany("INSERT INTO files VALUES (?, ?)", [(path, digests[path]) for path in fresh])
        index.executemany(
            "INSERT INTO passages VALUES (?, ?, ?, ?)",
            [(at.path, at.line, at.text, vector.tobytes()) for at, vector in zip(passages, vectors, strict=True)],
        )
    if stale or fresh:
        print(f"Index: {len(passages)} passages of {len(fresh)} files added, {len(stale)} files removed or replaced\n")


def nearest(index: sqlite3.Connection, embedder: pyggml.LLM, question: str, n: int) -> list[Passage]:
    """The passages whose vectors are most similar to that of a question, the nearest first."""
    rows = index.execute("SELECT path, line, text, vector FROM passages").fetchall()
    if not rows:
        raise ValueError("the folder has no text")
    vectors = np.frombuffer(b"".join(row[-1] for row in rows), np.float32).reshape(len(rows), -1)
    # Models that were not trained to embed give all texts much in common, which hides what they differ in.
    centre = vectors.mean(axis=0)
    similarity = unit(vectors - centre) @ unit(embedder.embed(question, truncate=True, parse_special=False) - centre)
    return [Passage(*rows[i][:-1]) for i in similarity.argsort()[::-1][:n]]


def unit(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Vectors of length 1, so that products are cosines."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: npt.NDArray[np.float32] = vectors / np.maximum(lengths, np.float32(1e-9))
    return scaled


def answer(llm: pyggml.LLM, question: str, passages: list[Passage]) -> None:
    """Print an answer as it is generated, and the passages that it is from."""
    known = "\n\n".join(passage.text for passage in passages)
    messages = [
        {"role": "system", "content": f"You answer questions in one sentence. You know this:\n\n{known}"},
        {"role": "user", "content": question},
    ]
    print(question)
    for chunk in llm.stream_chat(messages, temperature=0, max_tokens=200):
        print(chunk.content, end="", flush=True)
    print("\n  from", ", ".join(f"{passage.path}:{passage.line}" for passage in passages), end="\n\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with .md, .rst or .txt files")
    parser.add_argument("questions", nargs="*", metavar="question", help="without one, only the index is updated")
    parser.add_argument("-m", "--model", default=pyggml.SHIPPED_MODEL, help="GGUF file, directory or hf:org/repo")
    parser.add_argument("--embedder", metavar="MODEL", help="model for embeddings (default: the same)")
    parser.add_argument("--index", type=Path, help="SQLite file (default: .passages.sqlite in the folder)")
    parser.add_argument("-n", type=int, default=2, help="number of passages for an answer (default: 2)")
    args = parser.parse_intermixed_args()
    if not args.folder.is_dir():
        parser.error(f"{args.folder} is not a folder")
    with (
        pyggml.load(args.model) as llm,
        pyggml.load(args.embedder) if args.embedder else llm as embedder,
        closing(sqlite3.connect(args.index or args.folder / ".passages.sqlite")) as index,
    ):
        index.executescript(SCHEMA)
        update(index, embedder, args.folder)
        for question in args.questions:
            answer(llm, question, nearest(index, embedder, question, args.n))


if __name__ == "__main__":
    try:
        main()
    except (pyggml.InferError, OSError, ValueError, sqlite3.Error) as error:
        sys.exit(f"documents.py: {error}")
