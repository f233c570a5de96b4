"""Pack the corpus into windows, and train the network on them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch.nn import functional

from .corpus import END_OF_TEXT, documents
from .network import Llama
from .vocabulary import EncodedDocument, encode, special_id

PROMPT_WEIGHT = 0.1
"""Loss weight of tokens of other speakers; the model's own tokens weigh 1."""

NO_BOS_EVERY = 5
"""One in so many windows lacks the leading begin-of-text token if it starts with a chat, so that a chat
prompt works with and without that token."""


@dataclass(frozen=True)
class Schedule:
    """Training schedule. Counted in steps, never in time, so that a run can be repeated.

    Most steps see windows of ``n_short`` tokens in which each document sees only itself. Every
    ``long_every``-th sees as many tokens in windows of the whole context, with all that came before in sight,
    so that the network also learns to work at the far end of its context.

    ``learning_rate`` is that of the layers' matrices; embedding and norms learn at half of it. ``practice`` is
    :func:`documents`'.
    """

    n_steps: int = 6600
    n_tokens: int = 2048
    n_short: int = 256
    long_every: int = 6
    learning_rate: float = 5e-3
    n_warmup: int = 40
    final_fraction: float = 0.02
    weight_decay: float = 0.1
    seed: int = 20240613
    practice: bool = False

    def rate(self, step: int) -> float:
        """Learning rate of a step: linear warm-up, then half a cosine."""
        if step < self.n_warmup:
            return self.learning_rate * (step + 1) / self.n_warmup
        done = (step - self.n_warmup) / max(1, self.n_steps - self.n_warmup)
        low = self.final_fraction
        return self.learning_rate * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * done)))


PRACTICE = Schedule(n_steps=600, learning_rate=1.2e-3, seed=20240615, practice=True)
"""The second course: gentler, and half of it of what the first leaves weakest."""


@dataclass
class Window:
    """``n_ctx + 1`` tokens of whole documents, padded at the end.

    Attributes:
        ids: The tokens, (n_ctx + 1,).
        weights: What each counts as a target, (n_ctx + 1,).
        owners: The number of the document that each belongs to, (n_ctx + 1,); an end-of-text token belongs to
            the document that it precedes.
    """

    ids: NDArray[np.int64]
    weights: NDArray[np.float32]
    owners: NDArray[np.int64]


def windows(tokenizer: Tokenizer, n_ctx: int, seed: int, *, practice: bool = False) -> Iterator[Window]:
    """The corpus as windows of documents with an end-of-text token before, between and after them.

    A document is never cut: each is learnt from its start, and a window's first document lies exactly as a
    lone prompt lies at inference.
    """
    end = special_id(tokenizer, END_OF_TEXT)
    room = n_ctx + 1
    held: list[EncodedDocument] = []
    n_held, n_made = 1, 0
    for document in documents(seed, practice=practice):
        encoded = encode(tokenizer, document)
        if len(encoded.ids) + 2 > room:
            continue
        if n_held + len(encoded.ids) + 1 > room:
            n_made += 1
            yield _window(held, room, end, with_bos=not (held[0].is_chat and n_made % NO_BOS_EVERY == 0))
            held, n_held = [], 1
        held.append(encoded)
        n_held += len(encoded.ids) + 1


def _window(held: list[EncodedDocument], room: int, end: int, *, with_bos: bool) -> Window:
    ids = [end] if with_bos else []
    weights, owners = [0.0] * len(ids), [0] * len(ids)
    for number, document in enumerate(held):
        ids += [*document.ids, end]
        weights += [*(1.0 if own else PROMPT_WEIGHT for own in document.own), 1.0]
        owners += [*(number for _ in document.ids), number + 1]
    padding = room - len(ids)
    return Window(
        np.array(ids + [end] * padding, dtype=np.int64),
        np.array(weights + [0.0] * padding, dtype=np.float32),
        np.array(owners + [len(held)] * padding, dtype=np.int64),
    )


def _loss(network: Llama, batch: list[Window], *, apart: bool) -> torch.Tensor:
    """The weighted mean of the targets' cross-entropies. ``apart``: each document sees only itself."""
    ids = torch.from_numpy(np.stack([window.ids for window in batch]))
    weights = torch.from_numpy(np.stack([window.weights for window in batch]))[:, 1:].flatten()
    sight = None
    if apart:
        owners = torch.from_numpy(np.stack([window.owners for window in batch]))[:, :-1]
        sight = (owners[:, :, None] == owners[:, None, :]).tril().unsqueeze(1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = network(ids[:, :-1], sight)
    each = functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    return (each * weights).sum() / weights.sum()


def train(
    tokenizer: Tokenizer,
    network: Llama,
    schedule: Schedule,
    checkpoint: Path | None = None,
    log_every: int = 25,
) -> None:
    """Train the network. With ``checkpoint``, its weights are also saved there every 100 steps."""
    n_ctx = network.config.n_ctx
    optimizers = _optimizers(network, schedule)
    long = windows(tokenizer, n_ctx, schedule.seed, practice=schedule.practice)
    short = windows(tokenizer, schedule.n_short, schedule.seed + 1, practice=schedule.practice)
    start, total = time.perf_counter(), 0.0
    for step in range(schedule.n_steps):
        far = step % schedule.long_every == 0
        source, length = (long, n_ctx) if far else (short, schedule.n_short)
        batch = [next(source) for _ in range(schedule.n_tokens // length)]
        loss = _loss(network, batch, apart=not far)
        network.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = schedule.rate(step) * group["share"]
            optimizer.step()
        total += loss.item()
        if (step + 1) % log_every == 0:
            elapsed = time.perf_counter() - start
            print(
                f"step {step + 1}/{schedule.n_steps}  loss {total / log_every:.4f}  {elapsed:.0f} s",
                flush=True,
            )
            total = 0.0
        if checkpoint is not None and (step + 1) % 100 == 0:
            torch.save(network.state_dict(), checkpoint)


def _optimizers(network: Llama, schedule: Schedule) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices, where it needs half as many steps as AdamW, which does the rest."""
    inner = [p for name, p in network.named_parameters() if p.dim() == 2 and name != "token_embd.weight"]
    rest = [p for name, p in network.named_parameters() if p.dim() == 1 or name == "token_embd.weight"]
    return [
        torch.optim.Muon(
            [{"params": inner, "share": 1.0}],
            weight_decay=schedule.weight_decay,
            adjust_lr_fn="match_rms_adamw",
        ),
        torch.optim.AdamW([{"params": rest, "share": 0.5}], betas=(0.9, 0.95), weight_decay=0.0, fused=True),
    ]
