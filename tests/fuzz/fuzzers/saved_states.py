"""Saved states, damaged or of other contexts: each is restored, or refused and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from support.checkpoints import models

import pyggml
from fuzz import damage
from fuzz.refusal import refused
from pyggml.errors import InvalidParameterError

MAX_SECONDS = 30.0
TOKENS = [1, 2, 3, 4, 5]
SEQUENCES = (None, 0, 1)


class Prepared(NamedTuple):
    """Objects that all cases use.

    Attributes:
        contexts: of several models and shapes.
        states: what each of them saved, of all and of single sequences.
    """

    contexts: list[pyggml.Context]
    states: list[bytes]


def prepare(folder: Path) -> Prepared:
    paths = [
        models.write_llama(folder / "llama.gguf"),
        models.write_llama(folder / "deeper.gguf", n_layer=3),
        models.write_mamba(folder / "mamba.gguf"),
        models.write_jamba(folder / "jamba.gguf"),
        models.write_gemma2(folder / "gemma2.gguf"),
    ]
    shapes: list[dict[str, Any]] = [{}, {"n_ctx": 512}, {"kv_unified": True}, {"n_seq_max": 4}]
    contexts = []
    for path in paths:
        model = pyggml.Model(path)
        for shape in shapes if path == paths[0] else shapes[:1]:
            contexts.append(pyggml.Context(model, **{"n_ctx": 256, "n_seq_max": 2, "n_threads": 1, **shape}))
    states = []
    for context in contexts:
        _fill(context)
        states += [context.state_save(seq_id) for seq_id in SEQUENCES]
    return Prepared(contexts, states)


def _fill(context: pyggml.Context) -> None:
    """Puts a text into the first sequence, whatever is there now."""
    context.memory_clear()
    context.decode(TOKENS)


def make(random: np.random.Generator) -> list[Any]:
    """Whose state, what becomes of it, and into what it is restored."""
    kinds = list(CHANGES)
    changes = [
        [kinds[int(random.integers(len(kinds)))], int(random.integers(1 << 30))] for _ in range(random.integers(3))
    ]
    return [
        ["state", int(random.integers(1 << 20))],
        *changes,
        ["context", int(random.integers(1 << 20))],
        ["sequence", int(random.integers(1 << 20))],
    ]


def run(prepared: Prepared, parts: list[Any], folder: Path) -> str:
    del folder
    given = {kind: number for kind, number in parts if kind not in CHANGES}
    state = prepared.states[given.get("state", 0) % len(prepared.states)]
    for kind, number in parts:
        if kind in CHANGES:
            state = CHANGES[kind](state, np.random.default_rng(number))
    context = prepared.contexts[given.get("context", 0) % len(prepared.contexts)]
    seq_id = SEQUENCES[given.get("sequence", 0) % len(SEQUENCES)]
    _fill(context)
    before = context.state_save()
    try:
        context.state_restore(state, seq_id)
    except InvalidParameterError as error:
        refused(error)
        unchanged = context.state_save() == before
        context.memory_clear()
        context.decode(TOKENS)
        assert context.state_save() == before, "after a refusal the context is another one"
        return "refused" if unchanged else "refused, and emptied"
    is_whole = state in prepared.states
    assert is_whole, "a damaged state is restored"
    context.decode([6])
    return "restored"


def _grown(state: bytes, random: np.random.Generator) -> bytes:
    return state + bytes(random.integers(0, 256, int(random.integers(1, 100)), np.uint8))


def _with_number(state: bytes, random: np.random.Generator) -> bytes:
    """With a size or a count that is another one, or hostile."""
    at = int(random.integers(0, max(len(state) // 4, 1))) * 4
    number = int(random.choice([0, 1, 0xFFFFFFFF, 0x7FFFFFFF, 0x80000000, 1 << 16]))
    return state[:at] + number.to_bytes(4, "little") + state[at + 4 :]


CHANGES: dict[str, Callable[[bytes, np.random.Generator], bytes]] = {
    "bytes": damage.with_changed_bytes,
    "head": lambda state, random: damage.with_changed_bytes(state[:64], random) + state[64:],
    "span": damage.with_changed_span,
    "number": _with_number,
    "grown": _grown,
    "cut": lambda state, random: state[: int(random.integers(len(state) + 1))],
}
