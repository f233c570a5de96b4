"""Record what transformers computes with the published configurations in `tests/data/published`.

For each of them, transformers makes a checkpoint with random weights, which follow from the tensors' names, and
computes it in float32 from the very same `config.json`. A test imports it and compares. Run it with an interpreter that
has transformers and PyTorch, after a change to a configuration::

    /path/to/python tools/record_published.py
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from compare_with_transformers import ROOT, write_weights

sys.path.insert(0, str(ROOT / "tests"))

from support.checkpoints import published


def computed(path: Path, directory: Path) -> tuple[dict[str, tuple[int, ...]], Any]:
    """Return the names and shapes of a configuration's tensors, and the logits after the prompt's last tokens."""
    import safetensors
    import torch
    import transformers

    content = path.read_text("utf-8")
    is_multimodal = "text_config" in json.loads(content)
    kind = transformers.AutoModelForImageTextToText if is_multimodal else transformers.AutoModelForCausalLM
    (directory / "config.json").write_text(content, "utf-8")
    kind.from_config(transformers.AutoConfig.from_pretrained(directory)).save_pretrained(directory)
    with safetensors.safe_open(directory / "model.safetensors", "np") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in sorted(file.keys())}
    write_weights(directory, shapes, is_sharded=False)
    (directory / "config.json").write_text(content, "utf-8")  # which save_pretrained replaced
    model = kind.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        logits = model(torch.tensor(published.prompt_of(path.stem))[None]).logits[0]
    return shapes, logits[-published.N_KEPT :, : published.N_VOCAB].numpy()


def main() -> None:
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)  # with matrices this small, more would only wait for each other
    names = sys.argv[1:]
    kept: dict[str, Any] = dict(np.load(published.RECORD)) if names else {}
    for path in published.FILES:
        if path.stem in published.LATER or (names and path.stem not in names):
            continue
        with tempfile.TemporaryDirectory() as folder:
            shapes, logits = computed(path, Path(folder))
        kept[f"{path.stem}/shapes"] = json.dumps(shapes)
        kept[f"{path.stem}/logits"] = logits.astype(np.float32)
        print(path.stem, len(shapes), f"{logits.std():.3f}", flush=True)
    np.savez_compressed(published.RECORD, **kept)


if __name__ == "__main__":
    main()
