"""Make the model that ships with pyggml, ``pyggml/assets/pyggml-demo-q8_0.gguf``.

The script makes everything itself: the corpus (a grammar of short stories, conversations about a table of plain
facts, small sums, lists), a byte-level BPE tokenizer and a small Llama network trained on it, and the GGUF file. It
downloads nothing. Seeds are fixed and the schedule counts steps, so the same machine with the same versions
makes the same file.

    pip install -r tools/requirements.txt
    python tools/train_demo_model.py

Training has two courses: everything, and then more of what takes longest to learn (see demo_model/training.py). The
shipped file took 50 minutes on one thread of a shared processor with bfloat16 instructions.

It also writes ``tests/data/demo_facts.jsonl``, ``demo_sums.jsonl`` and ``demo_systems.jsonl``: questions whose wording
(of the fact, of the sum, of the system message) is left out of training, with the answer expected word for word.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch
from demo_model import held_out
from demo_model.corpus import documents
from demo_model.evaluate import report
from demo_model.export import read_weights, write_gguf
from demo_model.network import Config, Llama
from demo_model.training import PRACTICE, Schedule, train
from demo_model.vocabulary import train_tokenizer

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "pyggml" / "assets" / "pyggml-demo-q8_0.gguf"
HELD_OUT = ROOT / "tests" / "data"
TOKENIZER_SEED, N_TOKENIZER_DOCUMENTS = 7, 20_000
MAX_BYTES = 6_000_000
MIN_RIGHT = 0.95


def write_held_out(folder: Path) -> None:
    """Write the held-out questions as JSON lines, one file per kind."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, asked in (
        ("facts", held_out.fact_questions()),
        ("sums", held_out.sum_questions()),
        ("systems", held_out.styled_questions()),
    ):
        lines = [json.dumps({k: v for k, v in asdict(one).items() if v is not None}) for one in asked]
        (folder / f"demo_{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    """Trains, writes the file, reads it back and evaluates it. Returns 1 if it is not fit to ship."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=MODEL, help="the GGUF file to write (default: the shipped one)")
    parser.add_argument("--held-out", type=Path, default=HELD_OUT, help="the folder to write the held-out questions to")
    parser.add_argument(
        "--steps", type=int, default=Schedule.n_steps, help="steps of the first course (default: %(default)s)"
    )
    parser.add_argument("--threads", type=int, default=1, help="PyTorch's threads (default: %(default)s)")
    parser.add_argument("--checkpoint", type=Path, help="save the weights here at intervals")
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    config, start = Config(), time.perf_counter()
    texts = (document.text for document in itertools.islice(documents(TOKENIZER_SEED), N_TOKENIZER_DOCUMENTS))
    tokenizer = train_tokenizer(texts, config.n_vocab)
    torch.manual_seed(Schedule.seed)
    network = Llama(config)
    for schedule in (Schedule(n_steps=arguments.steps), PRACTICE):
        train(tokenizer, network, schedule, arguments.checkpoint)
    print(f"trained in {time.perf_counter() - start:.0f} s")

    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    write_gguf(arguments.out, network, tokenizer)
    write_held_out(arguments.held_out)
    n_bytes = arguments.out.stat().st_size
    print(f"{arguments.out}: {n_bytes:,} bytes, {sum(p.numel() for p in network.parameters()):,} parameters")
    right = report(read_weights(arguments.out, config), tokenizer)
    return 0 if right >= MIN_RIGHT and n_bytes <= MAX_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
