"""Record what transformers computes with tiny encoders and cross-encoders, for tests without it.

    python tools/record_encoders.py --python /path/to/python [CASE ...]

``--python`` names an interpreter with transformers and PyTorch. It configures a tiny model of each kind, gives it
weights that follow from the tensors' names, and computes the token vectors of a text in float32, or the scores of
pairs of texts. ``tests/data/encoders.npz`` then holds configurations, shapes, token ids and results.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.checkpoints import checkpoints  # noqa: E402

RECORD = ROOT / "tests" / "data" / "encoders.npz"
N_VOCAB, N_TOKENS, N_PAIRS = 320, 60, 3

BASE: dict[str, Any] = {
    "vocab_size": N_VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}
#: Every token that a configuration may name is the vocabulary's one special token.
TOKENS = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id", "cls_token_id", "sep_token_id"), 256)
ROBERTA = {"pad_token_id": 1, "max_position_embeddings": 130, "type_vocab_size": 1}
ONE_LABEL = {"num_labels": 1}


@dataclass(frozen=True)
class Case:
    """A model ``<kind><head>`` with a configuration ``<config_kind or kind>Config``.

    Attributes:
        head: "Model" for token vectors, or "ForSequenceClassification" for scores of pairs.
    """

    name: str
    kind: str
    config: dict[str, Any] = field(default_factory=dict)
    head: str = "Model"
    config_kind: str = ""


RERANK = "ForSequenceClassification"
CASES = (
    Case("bert", "Bert"),
    Case("bert, tanh gelu", "Bert", {"hidden_act": "gelu_new"}),
    Case("bert, one type", "Bert", {"type_vocab_size": 1, "layer_norm_eps": 1e-5}),
    Case("bert, masked lm", "Bert", head="ForMaskedLM"),
    Case("bert, reranker", "Bert", ONE_LABEL, RERANK),
    Case("roberta", "Roberta", ROBERTA),
    Case("roberta, reranker", "Roberta", {**ROBERTA, **ONE_LABEL}, RERANK),
    Case("camembert", "Camembert", ROBERTA),
    Case("xlm-roberta", "XLMRoberta", {**ROBERTA, "layer_norm_eps": 1e-5}),
    Case("xlm-roberta, reranker", "XLMRoberta", {**ROBERTA, **ONE_LABEL}, RERANK),
    Case("distilbert", "DistilBert", {"dim": 64, "hidden_dim": 96, "n_layers": 3, "n_heads": 4}),
    Case("nomic-bert", "NomicBert"),
    Case("nomic-bert, other base", "NomicBert", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}),
    Case("modernbert", "ModernBert", {**TOKENS, "num_hidden_layers": 5, "local_attention": 16}),
    Case("modernbert, silu", "ModernBert", {**TOKENS, "hidden_activation": "silu", "local_attention": 16}),
    Case("modernbert, reranker", "ModernBert", {**TOKENS, **ONE_LABEL, "local_attention": 16}, RERANK),
    Case(
        "modernbert, reranker by mean",
        "ModernBert",
        {**TOKENS, **ONE_LABEL, "local_attention": 16, "classifier_pooling": "mean"},
        RERANK,
    ),
    Case("eurobert", "EuroBert", {**TOKENS, "num_key_value_heads": 2, "mask_token_id": 256}),
    Case("jina v3", "JinaEmbeddingsV3", {**TOKENS, "pad_token_id": 1}),
    Case(
        "embeddinggemma",
        "Gemma3Text",
        {
            **TOKENS,
            "head_dim": 16,
            "num_key_value_heads": 2,
            "num_hidden_layers": 7,
            "query_pre_attn_scalar": 16,
            "sliding_window": 16,
            "use_bidirectional_attention": True,
        },
        config_kind="Gemma3Text",
    ),
    Case("qwen3 embedding", "Qwen3", {**TOKENS, "head_dim": 16, "num_key_value_heads": 2, "tie_word_embeddings": True}),
    Case(
        "qwen3, reranker",
        "Qwen3",
        {**TOKENS, **ONE_LABEL, "head_dim": 16, "num_key_value_heads": 2, "tie_word_embeddings": True},
        RERANK,
    ),
)


def make(directory: Path, names: set[str]) -> None:
    """Write configurations, shapes and results; needs transformers."""
    for number, case in enumerate(CASES):
        if not names or case.name in names:
            make_case(directory / f"{number:02}", case, number)


def make_case(directory: Path, case: Case, seed: int) -> None:
    import safetensors
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    config = getattr(transformers, f"{case.config_kind or case.kind}Config")(**{**BASE, **case.config})
    given = {key: value for key, value in case.config.items() if key == "sliding_window"}
    kind = getattr(transformers, f"{case.kind}{case.head}")
    kind(config).save_pretrained(directory)
    values = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**values, **given}))  # Gemma 3 saves what it made of the width
    with safetensors.safe_open(directory / "model.safetensors", "np") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in sorted(file.keys())}
    tensors = {name: checkpoints.drawn(name, shape) for name, shape in shapes.items()}
    checkpoints.write(directory / "model.safetensors", tensors)
    model = kind.from_pretrained(directory, dtype=torch.float32).eval()
    draw = np.random.default_rng(seed)
    n_rows = N_PAIRS if case.head == RERANK else 1
    ids = draw.integers(2, 250, (n_rows, N_TOKENS))
    types = np.zeros_like(ids)
    types[:, N_TOKENS // 3 :] = case.head == RERANK and values.get("type_vocab_size", 1) > 1
    inputs = {"input_ids": torch.tensor(ids), "attention_mask": torch.ones_like(torch.tensor(ids))}
    if types.any():
        inputs["token_type_ids"] = torch.tensor(types)
    with torch.no_grad():
        done = model(**inputs, output_hidden_states=True)
    vectors = getattr(done, "last_hidden_state", done.hidden_states[-1])
    result = done.logits if case.head == RERANK else vectors[0]
    np.savez(directory / "expected.npz", ids=ids, types=types, result=result.numpy())
    (directory / "shapes.json").write_text(json.dumps(shapes))


def record(directory: Path, names: set[str]) -> None:
    """Save the results; if only some cases were made, the others stay unchanged."""
    kept: dict[str, Any] = dict(np.load(RECORD)) if names and RECORD.exists() else {}
    for number, case in enumerate(CASES):
        folder = directory / f"{number:02}"
        if names and case.name not in names:
            continue
        expected = np.load(folder / "expected.npz")
        config, shapes = (json.loads((folder / f"{name}.json").read_text()) for name in ("config", "shapes"))
        kept[f"{case.name}/model"] = json.dumps({"config": config, "shapes": shapes})
        kept[f"{case.name}/ids"] = expected["ids"].astype(np.int32)
        kept[f"{case.name}/types"] = expected["types"].astype(np.int8)
        kept[f"{case.name}/result"] = expected["result"].astype(np.float32)
    np.savez_compressed(RECORD, **kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", help="an interpreter with transformers and PyTorch")
    parser.add_argument("--make", type=Path, help="only write the results, with the current interpreter")
    parser.add_argument("cases", nargs="*", help="names of cases (default: all)")
    args = parser.parse_args()
    if args.make:
        make(args.make, set(args.cases))
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [args.python or sys.executable, __file__, "--make", folder, *args.cases]
        subprocess.run(command, check=True)
        record(Path(folder), set(args.cases))
    print(f"{RECORD.name}: {len(args.cases) or len(CASES)} cases")


if __name__ == "__main__":
    main()
