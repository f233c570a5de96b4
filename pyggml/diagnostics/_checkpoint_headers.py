"""A checkpoint's tensors, read from the headers as far as possible."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

from pyggml.families import Layout
from pyggml.files.weights import Weight
from pyggml.importer.safetensors import Checkpoint
from pyggml.importer.schemes import Role, Scheme
from pyggml.importer.tensors import Tensors

# Bytes compared at the beginning, in the middle and at the end.
_SAMPLE = 4096

#: A weight of a quantised module, its shape, and the name, type and shape of each tensor of the module.
_Signature = tuple[str, Role, Hashable, tuple[int, ...], tuple[tuple[str, str, tuple[int, ...]], ...]]


class HeaderTensors(Tensors):
    """Tensors that read only the scales of one quantised module of each kind."""

    def __init__(self, checkpoint: Checkpoint, layout: Layout, scheme: Scheme | None) -> None:
        super().__init__(checkpoint, layout, scheme)
        self._modules: dict[str, list[str]] = defaultdict(list)
        for name in self._stored_names:
            self._modules[name.rpartition(".")[0]].append(name)
        self._seen: dict[_Signature, tuple[Weight, list[str]]] = {}

    def weight(
        self, name: str, shape: tuple[int, ...], role: Role = "linear", *, is_transposed: bool = False
    ) -> Weight:
        """See :class:`~pyggml.importer.tensors.Tensors`."""
        module = name.rpartition(".")[0]
        members = self._modules.get(module, [])
        if self._scheme is None or len(members) < 2:
            return super().weight(name, shape, role, is_transposed=is_transposed)
        stored = ((each, self.checkpoint[self._stored_names[each]]) for each in sorted(members))
        parts = tuple((each[len(module) :], tensor.dtype, tensor.shape) for each, tensor in stored)
        signature = name[len(module) :], role, self._scheme.settings(self.module(name, role)), shape, parts
        if signature in self._seen:
            weight, used = self._seen[signature]
            self._used.update(f"{module}.{suffix}" for suffix in used)
            return weight
        before = set(self._used)
        weight = super().weight(name, shape, role, is_transposed=is_transposed)
        self._seen[signature] = weight, [each.rpartition(".")[2] for each in self._used - before]
        return weight

    def is_same(self, name: str, other: str) -> bool:
        """Compare samples of the bytes of two tensors."""
        if name not in self or other not in self:
            return False
        first, second = (self.checkpoint[self._stored_names[each]] for each in (name, other))
        same = (first.dtype, first.shape) == (second.dtype, second.shape) and all(
            self._sample(name, part) == self._sample(other, part) for part in (0.0, 0.5, 1.0)
        )
        if same:
            self._used.add(name)
        return same

    def _sample(self, name: str, part: float) -> bytes:
        stored = self.checkpoint[self._stored_names[name]]
        offset = int(part * max(stored.nbytes - _SAMPLE, 0))
        with stored.path.open("rb") as file:
            file.seek(stored.offset + offset)
            return file.read(min(_SAMPLE, stored.nbytes))
