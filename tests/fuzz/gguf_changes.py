"""Changes to a GGUF file: choose and apply them.

Places are fractions: of the pairs, of the tensors, of the bytes, so that a change fits every file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from support.checkpoints import handmade_gguf as handmade
from support.checkpoints import models

from fuzz import gguf_file
from fuzz.gguf_file import File

SOURCES = models.VOCABULARIES.parent / "src"

SCALARS = [type for type in handmade.LETTERS if type != handmade.BOOL] + [handmade.BOOL, handmade.STRING]
NUMBERS: list[Any] = [
    0, 1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 33, 64, 100, 255, 256, 1000, 65535, 2**20, 2**31 - 1, 2**31, 2**32 - 1, 2**62,
    2**63, 2**64 - 1, -1, -2, -(2**31), 0.5, 1e-30, 1e30, -1.5, float("nan"), float("inf"), float("-inf"),
]  # fmt: skip
LIKELY = [0, 1, 2, 3, 4, 8, 16, 31, 32, 33, 64]  # sizes that small models come close to
TEXTS = [
    "", "a", "llama", "gpt2", "bert", "t5", "rwkv", "plamo2", "no_vocab", "none", "default", "qwen2", "linear", "yarn",
    "longrope", "\0", "\udcff\udcfe", "x" * 100_000, "{{ messages }}", "{% for m in messages %}{{ m }}", "mamba",
    "phi3", "gemma3", "1", "<s>", "▁", "Ġ",
]  # fmt: skip
#: Every type of weights upstream knows, and some that it does not.
TYPES = [*range(43), 100, 2**31, 2**32 - 1]


def keys() -> list[str]:
    """Every key that upstream reads; ``%s`` is the architecture."""
    return sorted(set(re.findall(r'LLM_KV_\w+,\s+"([^"]+)"', (SOURCES / "llama-arch.cpp").read_text())))


def architectures() -> list[str]:
    source = (SOURCES / "llama-arch.cpp").read_text()
    return sorted(set(re.findall(r'LLM_ARCH_\w+,\s+"([^"]+)"', source)))


def make(random: np.random.Generator) -> list[Any]:
    """One change."""
    kind = str(random.choice(list(_KINDS), p=_WEIGHTS))
    return [kind, *_KINDS[kind][1](random)]


def apply(file: File, change: list[Any]) -> None:
    kind, *arguments = change
    _KINDS[kind][2](file, *arguments)


def _number(random: np.random.Generator) -> Any:
    return _one(random, LIKELY if random.random() < 0.5 else NUMBERS)


def _one(random: np.random.Generator, choices: list[Any]) -> Any:
    return choices[int(random.integers(len(choices)))]


def _place(random: np.random.Generator) -> float:
    return min(round(float(random.random()), 6), 0.999999)


def _scalar(random: np.random.Generator, type: int) -> Any:
    return _one(random, TEXTS) if type == handmade.STRING else _number(random)


def _make_value(random: np.random.Generator) -> tuple[int, Any]:
    type = _one(random, SCALARS)
    if random.random() < 0.8:
        return type, _scalar(random, type)
    return type, [_scalar(random, type) for _ in range(_one(random, [0, 1, 2, 3, 16, 300]))]


def _make_known(random: np.random.Generator) -> list[Any]:
    return [_one(random, keys()), *_make_value(random)]


def _set(file: File, key: str, type: int, value: Any) -> None:
    file.set(key.replace("%s", file.architecture), gguf_file.value_bytes(type, value))


def _make_other_number(random: np.random.Generator) -> list[Any]:
    return [_place(random), _number(random)]


def _set_number(file: File, place: float, value: Any) -> None:
    """A number of the type that is there, or as many of them."""
    numbers = [i for i, (_, old) in enumerate(file.pairs) if old[0] != handmade.STRING and old[0] != handmade.ARRAY]
    if numbers:
        key, old = file.pairs[numbers[int(place * len(numbers))]]
        file.set(key.decode(errors="surrogateescape"), gguf_file.value_bytes(old[0], value))


def _make_other_value(random: np.random.Generator) -> list[Any]:
    return [_place(random), *_make_value(random)]


def _set_value(file: File, place: float, type: int, value: Any) -> None:
    if file.pairs:
        key, _ = file.pairs[int(place * len(file.pairs))]
        file.set(key.decode(errors="surrogateescape"), gguf_file.value_bytes(type, value))


def _make_place(random: np.random.Generator) -> list[Any]:
    return [_place(random)]


def _drop_pair(file: File, place: float) -> None:
    if file.pairs:
        del file.pairs[int(place * len(file.pairs))]


def _double_pair(file: File, place: float) -> None:
    if file.pairs:
        file.pairs.append(file.pairs[int(place * len(file.pairs))])


def _make_architecture(random: np.random.Generator) -> list[Any]:
    return [_one(random, architectures())]


def _rename_architecture(file: File, name: str) -> None:
    """With its keys: the tensors are another's."""
    old = f"{file.architecture}.".encode()
    new = f"{name}.".encode()
    file.pairs = [(new + key[len(old) :] if key.startswith(old) else key, value) for key, value in file.pairs]
    _set(file, "general.architecture", handmade.STRING, name)


def _make_type(random: np.random.Generator) -> list[Any]:
    return [_place(random), _one(random, TYPES), int(random.integers(2**30))]


def _set_type(file: File, place: float, type: int, seed: int) -> None:
    if file.tensors:
        tensor = file.tensors[int(place * len(file.tensors))]
        tensor.type = type
        tensor.data = np.random.default_rng(seed).bytes(gguf_file.n_bytes(type, tensor.ne))


def _set_all_types(file: File, place: float, type: int, seed: int) -> None:
    """Of all tensors whose name ends alike."""
    if file.tensors:
        end = file.tensors[int(place * len(file.tensors))].name.split(b".", 2)[-1]
        for i, tensor in enumerate(file.tensors):
            if tensor.name.endswith(end):
                _set_type(file, (i + 0.5) / len(file.tensors), type, seed)


def _make_shape(random: np.random.Generator) -> list[Any]:
    return [_place(random), [_number(random) for _ in range(random.integers(0, 6))]]


def _set_shape(file: File, place: float, ne: list[Any]) -> None:
    if file.tensors:
        tensor = file.tensors[int(place * len(file.tensors))]
        tensor.ne = [int(size) % 2**63 if abs(size) < float("inf") else 0 for size in ne]
        tensor.data = bytes(gguf_file.n_bytes(tensor.type, tensor.ne))


def _make_dimension(random: np.random.Generator) -> list[Any]:
    return [_place(random), int(random.integers(4)), _one(random, ["+1", "-1", "*2", "/2", "=0", "=1", "swap"])]


def _set_dimension(file: File, place: float, at: int, how: str) -> None:
    if not file.tensors:
        return
    tensor = file.tensors[int(place * len(file.tensors))]
    ne = list(tensor.ne)
    at = min(at, len(ne) - 1)
    if how == "swap":
        ne.reverse()
    elif ne:
        size = ne[at]
        ne[at] = {"+1": size + 1, "-1": max(size - 1, 0), "*2": 2 * size, "/2": size // 2, "=0": 0, "=1": 1}[how]
    tensor.ne = ne
    tensor.data = (tensor.data * 2)[: gguf_file.n_bytes(tensor.type, ne)]


def _drop_tensor(file: File, place: float) -> None:
    if file.tensors:
        del file.tensors[int(place * len(file.tensors))]


def _drop_tensors(file: File, place: float) -> None:
    """All whose name ends alike."""
    if file.tensors:
        end = file.tensors[int(place * len(file.tensors))].name.split(b".", 2)[-1]
        file.tensors = [tensor for tensor in file.tensors if not tensor.name.endswith(end)]


def _double_tensor(file: File, place: float) -> None:
    if file.tensors:
        file.tensors.append(file.tensors[int(place * len(file.tensors))])


def _make_two_places(random: np.random.Generator) -> list[Any]:
    return [_place(random), _place(random)]


def _swap_names(file: File, one: float, other: float) -> None:
    if file.tensors:
        a, b = (file.tensors[int(place * len(file.tensors))] for place in (one, other))
        a.name, b.name = b.name, a.name


def _make_shift(random: np.random.Generator) -> list[Any]:
    return [_place(random), _one(random, [1, 32, -32, 2**20, 2**40, 2**63 - 32, 2**63])]


def _shift(file: File, place: float, by: int) -> None:
    if file.tensors:
        file.tensors[int(place * len(file.tensors))].shift = by


def _make_numbers(random: np.random.Generator) -> list[Any]:
    return [_place(random), _one(random, ["nan", "inf", "random", "zeros", "largest"]), int(random.integers(2**30))]


def _set_numbers(file: File, place: float, what: str, seed: int) -> None:
    if file.tensors:
        tensor = file.tensors[int(place * len(file.tensors))]
        n = len(tensor.data)
        numbers = {"nan": np.nan, "inf": np.inf, "zeros": 0.0, "largest": 3e38}
        pattern = np.array([numbers.get(what, 0.0)], np.float32).tobytes()
        tensor.data = np.random.default_rng(seed).bytes(n) if what == "random" else (pattern * (n // 4 + 1))[:n]


def _make_tokens(random: np.random.Generator) -> list[Any]:
    return [_one(random, ["same", "empty", "no utf-8", "fewer", "more", "none", "long"]), int(random.integers(2**30))]


def _set_tokens(file: File, how: str, seed: int) -> None:
    n = 261
    texts = {"same": "a", "empty": "", "no utf-8": "\udcff", "long": "x" * 3000}
    count = {"fewer": 17, "more": 1000, "none": 0}.get(how, n)
    random = np.random.default_rng(seed)
    tokens = [texts.get(how) if how in texts else f"t{random.integers(900)}" for _ in range(count)]
    _set(file, "tokenizer.ggml.tokens", handmade.STRING, tokens)


def _make_merges(random: np.random.Generator) -> list[Any]:
    return [_one(random, [["t"], ["t h", "t h"], [""], [" "], ["a b c"], ["\udcff \udcfe"], ["q z"], ["t h"] * 300])]


def _set_merges(file: File, merges: list[str]) -> None:
    _set(file, "tokenizer.ggml.merges", handmade.STRING, merges)


def _make_types_of_tokens(random: np.random.Generator) -> list[Any]:
    return [_one(random, [0, 1, 2, 3, 4, 5, 6, 7, -1, 2**31 - 1]), _one(random, [0, 1, 100, 261, 400])]


def _set_types_of_tokens(file: File, type: int, n: int) -> None:
    _set(file, "tokenizer.ggml.token_type", handmade.INT32, [type] * n)


def _make_bytes(random: np.random.Generator) -> list[Any]:
    return [[[_place(random), int(random.integers(256))] for _ in range(random.integers(1, 5))]]


def _change_bytes(file: File, changes: list[list[Any]]) -> None:
    file.bytes_changed.update(dict(changes))


def _cut(file: File, place: float) -> None:
    file.cut = place


Maker = Callable[[np.random.Generator], list[Any]]
#: Kind of change -> how often, how it is made up, how it is made.
_KINDS: dict[str, tuple[float, Maker, Callable[..., None]]] = {
    "known key": (20, _make_known, _set),
    "other number": (25, _make_other_number, _set_number),
    "other value": (8, _make_other_value, _set_value),
    "without key": (4, _make_place, _drop_pair),
    "key twice": (1, _make_place, _double_pair),
    "architecture": (4, _make_architecture, _rename_architecture),
    "type": (10, _make_type, _set_type),
    "types": (10, _make_type, _set_all_types),
    "shape": (4, _make_shape, _set_shape),
    "dimension": (8, _make_dimension, _set_dimension),
    "without tensor": (6, _make_place, _drop_tensor),
    "without tensors": (5, _make_place, _drop_tensors),
    "tensor twice": (1, _make_place, _double_tensor),
    "names": (2, _make_two_places, _swap_names),
    "offset": (2, _make_shift, _shift),
    "numbers": (4, _make_numbers, _set_numbers),
    "tokens": (3, _make_tokens, _set_tokens),
    "merges": (2, _make_merges, _set_merges),
    "types of tokens": (2, _make_types_of_tokens, _set_types_of_tokens),
    "bytes": (3, _make_bytes, _change_bytes),
    "cut": (1, _make_place, _cut),
}
_WEIGHTS = [often / sum(kind[0] for kind in _KINDS.values()) for often, *_ in _KINDS.values()]
