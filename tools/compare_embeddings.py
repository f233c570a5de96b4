"""Compare an imported embedding model with sentence-transformers: token ids and vectors of many texts.

    python tools/compare_embeddings.py DIRECTORY --python /path/to/python
    python tools/compare_embeddings.py DIRECTORY --python /path/to/python --record 48

``--python`` names an interpreter with sentence-transformers. Texts longer than the model's limit are cut by both. The
smallest cosine of float32 weights must be at least 0.99999. ``--record`` saves some texts with their results for the
tests instead.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.checkpoints.sentences import mixed_texts  # noqa: E402

RECORD = ROOT / "tests" / "data" / "minilm.npz"
LEAST_COSINE = 0.99999


def make(directory: str, n: int, out: Path) -> None:
    """Write what sentence-transformers computes; needs it."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(2)
    model = SentenceTransformer(directory, device="cpu")
    texts = mixed_texts(n)
    ids = [model.preprocess([text])["input_ids"][0].tolist() for text in texts]
    np.savez_compressed(out, texts=json.dumps(texts), ids=json.dumps(ids), vectors=model.encode(texts, batch_size=16))


def compare(directory: str, expected: Path) -> bool:
    """Print the differences; True if there are none that count."""
    import pyggml
    from pyggml.options.embedding_profile import read_profile

    record = np.load(expected)
    texts, ids, vectors = json.loads(str(record["texts"])), json.loads(str(record["ids"])), record["vectors"]
    with pyggml.load(directory, outtype="f32", n_threads=2) as llm:
        profile = read_profile(llm.model.metadata)
        limit = profile.max_tokens or llm.n_ctx
        own = [llm.tokenize(text) for text in texts]
        own = [each if len(each) <= limit else [*each[: limit - 1], each[-1]] for each in own]
        found = llm.embed(own, pooling="cls" if profile.pooling == ("cls",) else "mean")
    n_same = sum(a == b for a, b in zip(own, ids, strict=True))
    cosine = (found * vectors).sum(-1) / np.linalg.norm(found, axis=-1) / np.linalg.norm(vectors, axis=-1)
    n_cut = sum(len(each) == limit for each in ids)
    print(f"{len(texts)} texts, {n_cut} of them cut at {limit} tokens")
    print(f"same ids: {n_same}; cosine: at least {cosine.min():.7f}, mean {cosine.mean():.7f}")
    return n_same == len(texts) and bool(cosine.min() >= LEAST_COSINE)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", help="a directory of sentence-transformers")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with sentence-transformers")
    parser.add_argument("--make", type=Path, help="only write the results, with the current interpreter")
    parser.add_argument("--record", type=int, help=f"save so many texts with their results in {RECORD.name}")
    parser.add_argument("-n", type=int, default=1000, help="number of texts (default: 1000)")
    args = parser.parse_args()
    if args.make:
        make(args.directory, args.record or args.n, args.make)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        out = RECORD if args.record else Path(folder) / "expected.npz"
        command = [args.python, __file__, args.directory, "--make", str(out), "-n", str(args.record or args.n)]
        subprocess.run(command, check=True)
        return 0 if compare(args.directory, out) else 1


if __name__ == "__main__":
    sys.exit(main())
