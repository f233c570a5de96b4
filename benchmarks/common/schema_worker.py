"""Worker of benchmarks/schemas.py: reads an engine's name and the path of a schema file per line, writes the result.

It runs in an environment with all engines, and dies of a schema that takes too much memory; the parent ends it after
too long, and starts another.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from schema_engines import ENGINES, Engine, end_of

import pyggml

INDENTS = {"none": None, "2": 2, "4": 4, "8": 8, "tab": "\t"}


def run(engine: Engine, data: dict[str, Any], texts: list[list[int]], end: int) -> dict[str, Any]:
    """Compile a schema and follow its instances.

    Args:
        engine: the engine.
        data: content of a MaskBench file.
        texts: token ids of its instances.
        end: the token that ends a text.

    Returns:
        "refused": the reason; or "accepted": a bool per instance, "mask_us": thread CPU time of each mask with the
        acceptance of its token, and "first_mask_ms": that of compilation and the first mask.
    """
    begin = time.thread_time_ns()
    try:
        engine.compile(data["schema"])
        engine.compute_mask()
    except Exception as error:  # whatever a library raises for a schema that it refuses
        return {"refused": f"{type(error).__name__}: {error}"[:300]}
    first_mask_ms = (time.thread_time_ns() - begin) / 1e6
    mask_us: list[float] = []
    accepted = []
    for token_ids in texts:
        try:
            accepted.append(_accepts(engine, token_ids, end, mask_us))
        except Exception as error:
            return {"refused": f"while following: {type(error).__name__}: {error}"[:300]}
    return {"accepted": accepted, "mask_us": mask_us, "first_mask_ms": first_mask_ms}


def _accepts(engine: Engine, token_ids: list[int], end: int, mask_us: list[float]) -> bool:
    """Return True if a text is allowed and may end, and add the time of each of its masks."""
    engine.start()
    for token_id in token_ids:
        begin = time.thread_time_ns()
        engine.compute_mask()
        is_allowed = engine.allows(token_id)
        if is_allowed:
            engine.accept(token_id)
        mask_us.append((time.thread_time_ns() - begin) / 1e3)
        if not is_allowed:
            return False
    engine.compute_mask()
    return engine.allows(end)


def main() -> None:
    vocabulary, names, indent, n_gib = sys.argv[1:]
    model = pyggml.Model(vocabulary, vocab_only=True)
    engines = {name: ENGINES[name](model) for name in names.split(",")}
    end = end_of(model.vocab)
    n_bytes = int(float(n_gib) * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (n_bytes, n_bytes))
    out = sys.stdout
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        name, path = line.rstrip("\n").split(" ", 1)
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        instances = [
            json.dumps(test["data"], indent=INDENTS[indent], ensure_ascii=False).encode("utf-8", "surrogatepass")
            for test in data["tests"]
        ]
        texts = [model.vocab.tokenize(text, add_special=False, parse_special=False) for text in instances]
        print(json.dumps(run(engines[name], data, texts, end)), file=out, flush=True)


if __name__ == "__main__":
    main()
