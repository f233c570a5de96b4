"""The report on a GGUF adapter: plain values, ready for JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyggml._core.json_forms import JSONReady
from pyggml.units import bytes_text, count_text, counted, ranges

#: The tensor whose rows are looked up instead of multiplied.
EMBEDDING = "token_embd.weight"


@dataclass(frozen=True)
class AdapterTarget:
    """A weight of the base model that an adapter changes.

    Attributes:
        name: the weight's name in the base model, such as "blk.0.attn_q.weight".
        rank: rank of the change: rows of ``lora_a``, and columns of ``lora_b``.
        n_experts: number of stacked matrices in a tensor of experts; 0: a single matrix.
        type_a: element type of ``lora_a``: "F32", "F16", "BF16" or "Q8_0".
        type_b: element type of ``lora_b``.
    """

    name: str
    rank: int
    n_experts: int
    type_a: str
    type_b: str

    @property
    def is_embedding(self) -> bool:
        """True for the token embedding, whose ``lora_a`` is stored transposed: (n_vocab, rank)."""
        return self.name == EMBEDDING

    def scale(self, alpha: float) -> float:
        """Return the factor of the product of both matrices.

        Args:
            alpha: the adapter's alpha; 0: the file has none, and the factor is 1.
        """
        return alpha / self.rank if alpha else 1.0


@dataclass(frozen=True)
class AdapterReport(JSONReady):
    """Report on a LoRA adapter in a GGUF file; see :func:`pyggml.inspect_adapter`. ``print`` shows it as text.

    Attributes:
        path: the file.
        architecture: the engine's name for the base model's architecture.
        name: the adapter's name according to the file; "" if it has none.
        base_model: name of the base model according to the file; "" if it does not say.
        alpha: strength of the change: each weight's is ``alpha / rank``. 0: the file has none, and the strength is 1.
        targets: the weights that it changes, in the file's order.
        invocation_tokens: token ids after which an activated LoRA (aLoRA) takes effect; empty: an ordinary LoRA.
        task_name: the task that it was trained for, according to the file; "" if it does not say.
        prompt_prefix: text that its prompts should begin with, according to the file; "" if it does not say.
        n_params: number of weights in both matrices of all targets.
        n_data_bytes: size of these weights.
        n_bytes: size of the file.
        sha256: digest of everything that the results depend on, as hexadecimal digits; "" if the data was not read.
        notes: differences from the source of a conversion that users should know; usually empty.
    """

    path: Path
    architecture: str
    name: str
    base_model: str
    alpha: float
    targets: tuple[AdapterTarget, ...]
    invocation_tokens: tuple[int, ...]
    task_name: str
    prompt_prefix: str
    n_params: int
    n_data_bytes: int
    n_bytes: int
    sha256: str
    notes: tuple[str, ...] = ()

    _derived = ("ranks",)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the targets, without repetitions, in ascending order."""
        return tuple(sorted({target.rank for target in self.targets}))

    @property
    def title(self) -> str:
        """The adapter's name, or that of its file, with control characters escaped."""
        return _printable(self.name or self.path.name)

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Names and values of the facts for a terminal. Control characters from the file are escaped."""
        return tuple((name, _printable(text)) for name, text in self._facts() if text)

    def _facts(self) -> Iterator[tuple[str, str]]:
        types = Counter(type for target in self.targets for type in (target.type_a, target.type_b))
        yield "architecture", self.architecture
        yield "made for", self.base_model
        yield "task", self.task_name
        yield "prompt prefix", self.prompt_prefix
        yield "rank", ranges(list(self.ranks))
        yield "alpha", f"{self.alpha:g}" if self.alpha else "none: the product is added unscaled"
        yield "size", f"{count_text(self.n_params)} weights, {bytes_text(self.n_bytes)}"
        yield "stored as", ", ".join(type for type, _ in types.most_common())
        yield "changes", counted(len(self.targets), "weight")
        for kind, blocks in _kinds(self.targets):
            yield f"  {kind}", f"blocks {ranges(blocks)}" if blocks else "outside the blocks"
        if self.invocation_tokens:
            yield "takes effect", f"after the token ids {', '.join(map(str, self.invocation_tokens))} (aLoRA)"
        for note in self.notes:
            yield "note", note

    def __str__(self) -> str:
        facts = self.facts
        width = max(len(name) for name, _ in facts)
        return "\n".join([self.title, *(f"  {name:{width}}  {text}" for name, text in facts)])


def _kinds(targets: tuple[AdapterTarget, ...]) -> list[tuple[str, list[int]]]:
    """The targets by their name in a block, each with the numbers of its blocks."""
    kinds: dict[str, list[int]] = {}
    for target in targets:
        head, _, rest = target.name.partition(".")
        number, _, kind = rest.partition(".")
        if head == "blk" and number.isdecimal():
            kinds.setdefault(kind.removesuffix(".weight"), []).append(int(number))
        else:
            kinds[target.name.removesuffix(".weight")] = []
    return [(kind, sorted(blocks)) for kind, blocks in kinds.items()]


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
