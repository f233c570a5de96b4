"""Damaged directories of sentence-transformers: each is imported and embeds, or is refused by an InferError."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from support.checkpoints import checkpoints

import pyggml
from fuzz.damage import with_changed_bytes, with_changed_value
from pyggml.errors import InferError
from pyggml.gguf import GGUFReader
from pyggml.options.embedding_profile import apply_dense, read_profile

MAX_SECONDS = 30.0
MAX_MESSAGE = 2000

N_EMBD, N_FF, N_VOCAB = 16, 32, 40
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklm.!?", *(f"##{each}" for each in "abcdefghi"))
KINDS = "sentence_transformers.models."
#: What the configuration of a reranker has besides.
REWARDS = {"id2label": {"0": "LABEL_0"}, "sentence_transformers": {"activation_fn": "torch.nn.Sigmoid"}}


def bert(directory: Path, *, is_reranker: bool = False) -> Path:
    """Write a small BERT with a WordPiece tokenizer."""
    directory.mkdir()
    linear = {"query": "attention.self.", "key": "attention.self.", "value": "attention.self."}
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (N_VOCAB, N_EMBD),
        "embeddings.position_embeddings.weight": (32, N_EMBD),
        "embeddings.token_type_embeddings.weight": (2, N_EMBD),
    }
    layer = "encoder.layer.0."
    named = {
        **{f"{layer}{module}{name}": (N_EMBD, N_EMBD) for name, module in linear.items()},
        f"{layer}attention.output.dense": (N_EMBD, N_EMBD),
        f"{layer}intermediate.dense": (N_FF, N_EMBD),
        f"{layer}output.dense": (N_EMBD, N_FF),
        "embeddings.LayerNorm": (N_EMBD,),
        f"{layer}attention.output.LayerNorm": (N_EMBD,),
        f"{layer}output.LayerNorm": (N_EMBD,),
        "pooler.dense": (N_EMBD, N_EMBD),
    }
    for name, shape in named.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    if is_reranker:
        shapes = {f"bert.{name}": shape for name, shape in shapes.items()}
        shapes |= {"classifier.weight": (1, N_EMBD), "classifier.bias": (1,)}
    tensors = {name: checkpoints.drawn(name, shape) for name, shape in shapes.items()}
    checkpoints.write(directory / "model.safetensors", tensors)
    write(
        directory,
        config={
            "model_type": "bert",
            "architectures": ["BertForSequenceClassification" if is_reranker else "BertModel"],
            "hidden_size": N_EMBD,
            "intermediate_size": N_FF,
            "num_attention_heads": 2,
            "num_hidden_layers": 1,
            "max_position_embeddings": 32,
            "type_vocab_size": 2,
            "vocab_size": N_VOCAB,
            "hidden_act": "gelu",
            "layer_norm_eps": 1e-12,
            "position_embedding_type": "absolute",
            **(REWARDS if is_reranker else {}),
        },
        tokenizer=word_piece(),
        tokenizer_config={"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "model_max_length": 30},
    )
    return directory


def word_piece() -> dict[str, Any]:
    """A tokenizer of few words."""
    texts = [*WORDS, *(f"[unused{i}]" for i in range(N_VOCAB - len(WORDS)))]
    special = [
        {"id": i, "content": text, "special": True, "normalized": False, "lstrip": False, "rstrip": False}
        | {"single_word": False}
        for i, text in enumerate(texts[:5])
    ]
    one, two = ({"Sequence": {"id": each, "type_id": i}} for i, each in enumerate("AB"))
    cls, sep = ({"SpecialToken": {"id": each, "type_id": 0}} for each in ("[CLS]", "[SEP]"))
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [cls, one, sep],
            "pair": [cls, one, sep, two, sep],
            "special_tokens": {
                text: {"id": text, "ids": [texts.index(text)], "tokens": [text]} for text in ("[CLS]", "[SEP]")
            },
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {text: i for i, text in enumerate(texts)},
        },
    }


def write(directory: Path, **files: Any) -> None:
    """Write JSON files by name, with ``__`` for a slash."""
    for name, content in files.items():
        path = directory / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))


def modules(*types: str) -> list[dict[str, Any]]:
    return [
        {"idx": i, "name": str(i), "path": f"{i}_{type.rpartition('.')[2]}" if i else "", "type": type}
        for i, type in enumerate(types)
    ]


def dense(directory: Path, folder: str, n_in: int, n_out: int, **config: Any) -> None:
    tensors = {"linear.weight": checkpoints.drawn("linear.weight", (n_out, n_in))}
    if config["bias"]:
        tensors["linear.bias"] = checkpoints.drawn("linear.bias", (n_out,))
    (directory / folder).mkdir()
    checkpoints.write(directory / folder / "model.safetensors", tensors)
    write(directory, **{f"{folder}__config": {"in_features": n_in, "out_features": n_out, **config}})


def prepare(folder: Path) -> list[Path]:
    full = bert(folder / "full")
    write(
        full,
        modules=modules(*(KINDS + kind for kind in ("Transformer", "Pooling", "Dense", "Dense", "Normalize"))),
        config_sentence_transformers={
            "prompts": {"query": "a: ", "document": ""},
            "default_prompt_name": "query",
            "similarity_fn_name": "cosine",
            "matryoshka_dims": [8, 16],
        },
        sentence_bert_config={"max_seq_length": 20, "do_lower_case": False},
        **{"1_Pooling__config": {"word_embedding_dimension": N_EMBD, "pooling_mode_mean_tokens": True}},
    )
    dense(full, "2_Dense", N_EMBD, 24, bias=True, activation_function="torch.nn.modules.activation.Tanh")
    dense(full, "3_Dense", 24, 8, bias=False, activation_function="torch.nn.modules.linear.Identity")
    new = bert(folder / "new")
    write(
        new,
        modules=modules("sentence_transformers.base.modules.transformer.Transformer", f"{KINDS}Pooling"),
        config_sentence_transformers={"prompts": {}, "similarity_fn_name": "dot"},
        **{
            "1_Pooling__config": {
                "embedding_dimension": N_EMBD,
                "pooling_mode": ["cls", "max"],
                "include_prompt": False,
            }
        },
    )
    late = bert(folder / "late")
    write(
        late,
        modules=modules(f"{KINDS}Transformer", "pylate.models.Dense.Dense"),
        config_sentence_transformers={
            "model_type": "ColBERT",
            "query_prefix": "[Q] ",
            "document_prefix": "[D] ",
            "query_length": 8,
            "document_length": 16,
            "do_query_expansion": True,
            "attend_to_expansion_tokens": True,
            "skiplist_words": [".", "!"],
        },
    )
    dense(late, "1_Dense", N_EMBD, 4, bias=False, activation_function="torch.nn.modules.linear.Identity")
    return [full, full, new, late, bert(folder / "reranker", is_reranker=True)]


def damage(directory: Path, random: np.random.Generator) -> str:
    """Damage one file; those of sentence-transformers more often than the rest. Return what was done."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    weights = np.array([1.0 if path.name in ("config.json", "tokenizer.json") else 3.0 for path in files])
    file = files[int(random.choice(len(files), p=weights / weights.sum()))]
    content = file.read_bytes()
    n_head = 8 + int.from_bytes(content[:8], "little") if file.suffix == ".safetensors" else len(content)
    kind = str(random.choice(["bytes", "cut", "value", "value", "key", "remove", "swap"]))
    if kind == "remove":
        file.unlink()
    elif kind == "swap":
        file.write_bytes(files[int(random.integers(len(files)))].read_bytes())
    elif kind == "cut":
        file.write_bytes(content[: int(random.integers(len(content)))])
    elif kind == "bytes":
        file.write_bytes(with_changed_bytes(content[:n_head], random) + content[n_head:])
    elif file.suffix == ".safetensors":
        entries = with_changed_value(json.loads(content[8:n_head]), random, kind == "key")
        file.write_bytes(checkpoints.file(entries, content[n_head:]))
    else:
        file.write_text(json.dumps(with_changed_value(json.loads(content), random, kind == "key")))
    return f"{kind} of {file.relative_to(directory)}"


def make(random: np.random.Generator) -> list[Any]:
    """Choose a directory, and the seeds of one or two damages to it."""
    seeds = random.integers(0, 1 << 30, int(random.integers(1, 3))).tolist()
    return [["directory", int(random.integers(1 << 20))], *(["damage", seed] for seed in seeds)]


def run(prepared: list[Path], parts: list[Any], folder: Path) -> str:
    which = next((number for kind, number in parts if kind == "directory"), 0)
    directory = Path(shutil.copytree(prepared[which % len(prepared)], folder / "st"))
    for seed in [number for kind, number in parts if kind == "damage"]:
        try:
            damage(directory, np.random.default_rng(seed))
        except ValueError:  # the first damage left no JSON
            continue
    outcome = outcome_of(directory, folder / "out.gguf")
    assert outcome != "InvalidParameterError"  # no argument was wrong
    shutil.rmtree(directory)
    left = [path.name for path in folder.iterdir()]
    assert not left, f"something is left: {left}"
    return outcome


def outcome_of(directory: Path, out: Path) -> str:
    """Import, load and embed."""
    try:
        pyggml.convert(directory, out, n_threads=1)
    except InferError as error:
        if len(str(error)) > MAX_MESSAGE:
            raise
        return type(error).__name__
    try:
        return used(out)
    except InferError as error:
        return f"imported, and then {type(error).__name__}"
    finally:
        out.unlink()


def used(path: Path) -> str:
    """Compute a text's vectors, and its dense layers."""
    with pyggml.Model(path, device="cpu") as model:
        profile = read_profile(model.metadata)
        with pyggml.Context(model, n_ctx=256, n_batch=256, n_threads=1, embeddings=True, pooling="none") as context:
            context.decode([2, 5, 6, 3], output="all")
            vectors = context.embeddings()
    with GGUFReader(path) as reader:
        for layer in profile.dense:
            weight = np.asarray(reader.metadata[layer.weight_key], np.float32).reshape(layer.n_out, layer.n_in)
            bias = np.asarray(reader.metadata[layer.bias_key], np.float32) if layer.has_bias else None
            if vectors.shape[1] == layer.n_in:
                vectors = apply_dense(layer, weight, bias, vectors)
    return "embedded"
