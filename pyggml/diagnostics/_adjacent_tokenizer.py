"""Check of a tokenizer next to a GGUF file, which users may mistake for the model's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyggml._native.vocab import Vocab
from pyggml.diagnostics._facts import Problems
from pyggml.errors import TokenizerError
from pyggml.files.json_file import read_object
from pyggml.files.model_files import split_set


def check_adjacent_tokenizer(path: Path, vocab: Vocab, problems: Problems) -> None:
    """Compare a ``tokenizer.json`` next to the file with the vocabulary, unless it is shared with other models."""
    file = path.parent / "tokenizer.json"
    models = {(split_set(other.name) or [other.name])[0] for other in path.parent.glob("*.gguf")}
    if not file.is_file() or len(models) > 1:
        return
    try:
        content = read_object(file, TokenizerError)
    except TokenizerError as error:
        problems.warning("neighbour-tokenizer", f"the tokenizer next to the file cannot be read: {error}")
        return
    model = content.get("model")
    tokens = model.get("vocab") if isinstance(model, dict) else None
    n_tokens = len(tokens) if isinstance(tokens, (dict, list)) else 0
    added = content.get("added_tokens")
    entries = [token for token in added if isinstance(token, dict)] if isinstance(added, list) else []
    wrong = next(filter(None, (_difference(token, vocab) for token in entries)), None)
    if n_tokens > vocab.n_tokens:
        wrong = f"it has {n_tokens} tokens, but the file has {vocab.n_tokens}"
    if wrong is not None:
        problems.warning(
            "neighbour-tokenizer",
            f"{file.name} next to the file belongs to another model: {wrong}. Do not load it as this model's tokenizer",
        )


def _difference(token: dict[str, Any], vocab: Vocab) -> str | None:
    """The difference of an added token from the vocabulary. Conversions omit tokens beyond its end."""
    token_id, text = token.get("id"), token.get("content")
    if not isinstance(token_id, int) or not 0 <= token_id < vocab.n_tokens or vocab.text(token_id) == text:
        return None
    return f"its token {token_id} is {text!r:.40}, but the file's is {vocab.text(token_id)!r:.40}"
