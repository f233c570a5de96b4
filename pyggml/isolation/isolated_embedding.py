"""Proxy of an Embedder's contexts in the engine's process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pyggml._native.adapter import Adapter
from pyggml._native.token_batch import Ids, TokenBatch
from pyggml.generation.embedding.encoder import BatchEncoder, n_texts
from pyggml.generation.embedding.pass_texts import Floats, PassTexts
from pyggml.isolation import protocol
from pyggml.isolation.isolated_adapters import names_in_process
from pyggml.isolation.isolated_engine import decode_matrix

if TYPE_CHECKING:
    from pyggml.isolation.supervisor import Isolated


class IsolatedPasses(BatchEncoder):
    """Forward passes in the engine's process, which pools token vectors there."""

    def __init__(self, isolated: Isolated) -> None:
        """Use a process, whose contexts of both kinds serve every proxy."""
        super().__init__(n_texts(isolated.model))
        self._isolated = isolated

    def outputs(self, parts: Sequence[PassTexts], adapters: Mapping[Adapter, float]) -> list[Floats]:
        """See the base class."""
        shapes = [(part.n_rows, self._n_columns(part)) for part in parts]
        ends = np.cumsum([n_rows * n_columns for n_rows, n_columns in shapes])
        process = self._isolated.process()
        names = names_in_process(adapters)
        request = protocol.encode_request("embed", parts=[encode_part(part) for part in parts], adapter=names)
        token_ids = np.concatenate([part.texts.ids for part in parts])
        _, data = process.call(request, token_ids, int(ends[-1]) * 4)
        found = np.split(decode_matrix(data, 1, int(ends[-1]))[0], ends[:-1])
        return [rows.reshape(shape) for rows, shape in zip(found, shapes, strict=True)]

    def close(self) -> None:
        """Do nothing: the process keeps its contexts for the next texts."""

    def _n_columns(self, part: PassTexts) -> int:
        model = self._isolated.model
        return model.n_cls_out if part.kind == "scores" else model.n_embd_out * max(1, len(part.pooling))


def encode_part(part: PassTexts) -> dict[str, Any]:
    """Return a part of a pass as JSON values, without its token ids."""
    lengths = part.texts.lengths.tolist()
    return {"lengths": lengths, "kind": part.kind, "pooling": part.pooling, "n_skipped": part.n_skipped}


def decode_parts(parts: list[dict[str, Any]], token_ids: Ids) -> list[PassTexts]:
    """Return the parts of a pass, with the token ids of all of them."""
    lengths = [np.array(part["lengths"], np.int32) for part in parts]
    ids = np.split(token_ids, np.cumsum([each.sum() for each in lengths])[:-1])
    return [
        PassTexts(TokenBatch(each, sizes), part["kind"], tuple(part["pooling"]), part["n_skipped"])
        for part, each, sizes in zip(parts, ids, lengths, strict=True)
    ]
