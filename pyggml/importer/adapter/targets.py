"""The weights of a GGUF file that a module of a checkpoint becomes, by the layouts that imports use."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from pyggml._core.checks import shown
from pyggml.errors import ArchitectureMismatchError, ModelLoadError, UnsupportedArchitectureError
from pyggml.families import Layout, Tensor
from pyggml.files.weights import Floats, Plain
from pyggml.importer.adapter.base_model import BaseModel, require_layouts
from pyggml.importer.adapter.peft_tensors import PeftPair
from pyggml.importer.adapter.report import EMBEDDING
from pyggml.importer.tensors import layout_name
from pyggml.quant import GGMLType

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
_MAX_DIGITS = 6  # of a block's or an expert's number
_WRAPPED = ".base_layer"

_OTHER_MODEL = "It was made for another model"


@dataclass(frozen=True)
class Target:
    """A weight of the base model that one pair of matrices changes.

    Attributes:
        name: the weight's name in the GGUF file.
        shape: (n_out, n_in), or (n_experts, n_out, n_in).
        parameter: name of the changed parameter's module or, without a module of its own, of the parameter.
        rule: how an import makes the weight; None: the pair already has the GGUF file's name.
        block: number of its block.
        expert: number of the expert of whose matrix the pair is; None: of the whole weight.
        n_stacked: number of matrices in the pair: that of the experts, if it is of all of them.
        is_swapped: True if the pair is of the transposed matrices, as older versions of PEFT store those of experts.
    """

    name: str
    shape: tuple[int, ...]
    parameter: str
    rule: Tensor | None = None
    block: int = 0
    expert: int | None = None
    n_stacked: int = 1
    is_swapped: bool = False

    @property
    def is_embedding(self) -> bool:
        """True for the token embedding."""
        return self.name == EMBEDDING

    @property
    def is_module(self) -> bool:
        """True if the weight is that of a module, not a parameter that a module has among others."""
        return self.rule is None or self.rule.source.endswith(".weight")

    def rank(self, pair: PeftPair) -> int:
        """Return the rank of the change.

        Args:
            pair: the matrices.
        """
        return pair.a.shape[0] // self.n_stacked

    def matrices(self, a: Floats, b: Floats, base: BaseModel) -> tuple[Floats, Floats]:
        """Return the matrices as the GGUF file has them, except for the experts' dimension of a single expert.

        Args:
            a: lora_A as stored.
            b: lora_B as stored.
            base: the base model.

        Returns:
            (rank, n_in) and (n_out, rank); both with a leading dimension for several experts; for the embedding
            (n_vocab, rank) and (n_embd, rank).

        Raises:
            ModelLoadError: they have another number of rows than the base model.
            UnsupportedArchitectureError: the layout computes the rows from sizes that a GGUF file does not state.
        """
        if self.is_embedding:
            return a.T, b
        n, rank = self.n_stacked, len(a) // self.n_stacked
        if n > 1:
            a, b = a.reshape(n, rank, -1), b.reshape(len(b), rank, n).transpose(2, 0, 1)
            if self.is_swapped:
                a, b = b.transpose(0, 2, 1), a.transpose(0, 2, 1)
        if self.rule is not None and self.rule.transform is not None:
            b = self._transformed(np.ascontiguousarray(b), base)
        return np.ascontiguousarray(a), np.ascontiguousarray(b)

    def _transformed(self, b: Floats, base: BaseModel) -> Floats:
        assert self.rule is not None
        assert self.rule.transform is not None
        try:
            rows = self.rule.transform(Plain(b.reshape(-1, b.shape[-1]), GGMLType.F32), base.sizes(self.block))
            return rows.floats(slice(None)).reshape(*self.shape[:-2][: b.ndim - 2], -1, b.shape[-1])
        except (AttributeError, KeyError):
            raise UnsupportedArchitectureError(
                f"{base.path} does not state the sizes by which rows of {self.name} are reordered: give the directory "
                "of the base model instead"
            ) from None
        except (ValueError, IndexError) as error:
            raise ModelLoadError(f"the rows of {self.name} cannot be put into {base.path}'s order: {error}") from None


def targets_of(pair: PeftPair, base: BaseModel, path: Path) -> list[Target]:
    """Return the weights of a base model that a pair changes, one or more.

    Args:
        pair: the matrices of a module.
        base: the base model.
        path: the adapter, for messages.

    Raises:
        ArchitectureMismatchError: the base model has no such module, or of another shape.
        UnsupportedArchitectureError: modules of its architecture are unknown, or the engine cannot add to the weight.
    """
    own = f"{pair.module}.weight"
    if own in base.shapes and (own == EMBEDDING) == (pair.kind == "embedding"):
        targets = [Target(own, base.shapes[own], pair.module)]
    else:
        require_layouts(base)
        targets = list(_by_layouts(pair, base, own)) or _of_parameters(pair, base)
    if not targets:
        raise ArchitectureMismatchError(
            f"{path} changes the module {shown(pair.module)}, which {base.path} lacks. {_reason(pair, base)}"
        )
    _require_shapes(pair, targets, path, base)
    return targets


def _reason(pair: PeftPair, base: BaseModel) -> str:
    if pair.module.endswith("lm_head") and base.is_tied:
        return "Its output layer shares the embedding's weights"
    return _OTHER_MODEL


@lru_cache(maxsize=64)
def _rules(layout: Layout) -> Mapping[str, tuple[tuple[re.Pattern[str], Tensor], ...]]:
    """The tensors of a layout that become matrices, by the name of their source with "#" for numbers."""
    found: dict[str, list[tuple[re.Pattern[str], Tensor]]] = {}
    for tensor in layout.tensors:
        if tensor.target.endswith(".weight") and tensor.join is None:
            digits = rf"\d{{1,{_MAX_DIGITS}}}"
            expression = re.escape(tensor.source)
            for letter in "ie":
                expression = expression.replace(rf"\{{{letter}\}}", f"(?P<{letter}>{digits})", 1)
                expression = expression.replace(rf"\{{{letter}\}}", f"(?P={letter})")
            key = _NUMBER.sub("#", re.sub(r"\{[ie]\}", "0", tensor.source))
            found.setdefault(key, []).append((re.compile(expression), tensor))
    return {key: tuple(rules) for key, rules in found.items()}


def _by_layouts(pair: PeftPair, base: BaseModel, source: str) -> Iterator[Target]:
    """Yield the targets whose source in a checkpoint has a name."""
    found: dict[str, Tensor] = {}
    for layout in base.layouts:
        name = layout_name(source, layout)
        for pattern, tensor in _rules(layout).get(_NUMBER.sub("#", name), ()):
            match = pattern.fullmatch(name)
            if match is None or (pair.kind == "embedding") != (tensor.target == EMBEDDING):
                continue
            numbers = match.groupdict()
            block, expert = int(numbers.get("i") or 0), numbers.get("e")
            target = tensor.target.replace("{i}", str(block))
            if target not in base.shapes:
                continue
            other = found.get(target)
            if other is not None and (other.transform, other.each) != (tensor.transform, tensor.each):
                raise UnsupportedArchitectureError(
                    f"{base.path} may come from several kinds of checkpoints, which have the rows of {target} in "
                    "different orders: give the directory of the base model instead"
                )
            if other is None:
                found[target] = tensor
                parameter = source.removesuffix(".weight")
                number = None if expert is None else int(expert)
                yield Target(target, base.shapes[target], parameter, tensor, block, number)


def _of_parameters(pair: PeftPair, base: BaseModel) -> list[Target]:
    """Return the targets of a parameter of the module, such as the stacked experts', that the shapes tell.

    PEFT wraps a module once for each parameter, and does not store which.
    """
    module = pair.module.replace(_WRAPPED, "")
    leaves = {
        source.rpartition(".")[2]: None
        for layout in base.layouts
        for source in _rules(layout)
        if source.rpartition(".")[0]
        == _NUMBER.sub("#", layout_name(f"{module}.weight", layout).removesuffix(".weight"))
    }
    for is_swapped in (False, True):
        for leaf in leaves:
            targets = [
                Target(
                    each.name,
                    each.shape,
                    f"{module}.{leaf}",
                    each.rule,
                    each.block,
                    n_stacked=each.shape[0] if len(each.shape) == 3 else 1,
                    is_swapped=is_swapped,
                )
                for each in _by_layouts(pair, base, f"{module}.{leaf}")
            ]
            if targets and _fits(pair, targets):
                return targets
    return []


def _fits(pair: PeftPair, targets: list[Target]) -> bool:
    """Check whether a pair has the shape of the parameter that targets are parts of."""
    first = targets[0]
    if any(len(each.shape) < 2 or each.shape[-1] != first.shape[-1] for each in targets):
        return False
    n_in, n_out = pair.a.shape[1], pair.b.shape[0]
    if first.is_swapped:
        n_in, n_out = n_out, n_in
    rows = sum(each.shape[-2] for each in targets)
    return pair.a.shape[0] % first.n_stacked == 0 and (n_out, n_in) == (rows, first.shape[-1])


def _require_shapes(pair: PeftPair, targets: list[Target], path: Path, base: BaseModel) -> None:
    first = targets[0]
    if first.is_embedding:
        is_right = (pair.a.shape[1], pair.b.shape[0]) == first.shape
        found: tuple[int, ...] = (pair.a.shape[1], pair.b.shape[0])
    else:
        if len(first.shape) < 2:  # a matrix of one row, whose dimension the file lacks
            first = targets[0] = replace(first, shape=(1, *first.shape))
        is_right, found = _fits(pair, targets), (pair.b.shape[0], pair.a.shape[1])
    n_experts = first.shape[0] if len(first.shape) == 3 else 1
    if first.expert is not None and first.expert >= n_experts:
        raise ArchitectureMismatchError(
            f"{path} changes the module {shown(pair.module)}, and {base.path} has {n_experts} experts. {_OTHER_MODEL}"
        )
    if not is_right:
        shapes = " and ".join(f"{each.name} {each.shape}" for each in targets)
        raise ArchitectureMismatchError(
            f"{path} changes a matrix {shown(pair.module)} of shape {found}, and {base.path} has {shapes}. "
            f"{_OTHER_MODEL}"
        )
