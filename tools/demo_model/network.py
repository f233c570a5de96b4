"""The Llama architecture in PyTorch, laid out as the engine expects its tensors."""

# PyTorch is not among what the linters' environment has; without it mypy takes its classes for Any.
# mypy: disallow-subclassing-any=False

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Config:
    """Hyper-parameters. Every matrix has rows of a multiple of 256 numbers, as the K-quants need."""

    n_vocab: int = 2048
    n_ctx: int = 1024
    n_embd: int = 256
    n_layer: int = 5
    n_head: int = 4
    n_head_kv: int = 2
    n_ff: int = 512
    rope_base: float = 10_000.0
    norm_eps: float = 1e-5

    @property
    def n_head_dim(self) -> int:
        return self.n_embd // self.n_head


class RMSNorm(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(config.n_embd))
        self.eps = config.norm_eps

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


def rope_tables(config: Config) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary angles: float32, (n_ctx, n_head_dim / 2) each."""
    half = torch.arange(0, config.n_head_dim, 2, dtype=torch.float32) / config.n_head_dim
    angles = torch.outer(torch.arange(config.n_ctx, dtype=torch.float32), config.rope_base**-half)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding over neighbouring pairs, the order GGUF has for this architecture.

    Training in that order spares the export the permutation that Hugging Face checkpoints need.

    Args:
        x: (batch, heads, positions, n_head_dim).
        cos: (positions, n_head_dim / 2), as ``sin``.
        sin: See ``cos``.
    """
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2).type_as(x)


class Block(nn.Module):
    """One layer: attention, then the gated feed-forward network."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        n_kv = config.n_head_kv * config.n_head_dim
        self.attn_norm = RMSNorm(config)
        self.attn_q = nn.Linear(config.n_embd, config.n_embd, bias=False)
        self.attn_k = nn.Linear(config.n_embd, n_kv, bias=False)
        self.attn_v = nn.Linear(config.n_embd, n_kv, bias=False)
        self.attn_output = nn.Linear(config.n_embd, config.n_embd, bias=False)
        self.ffn_norm = RMSNorm(config)
        self.ffn_gate = nn.Linear(config.n_embd, config.n_ff, bias=False)
        self.ffn_up = nn.Linear(config.n_embd, config.n_ff, bias=False)
        self.ffn_down = nn.Linear(config.n_ff, config.n_embd, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, sight: Tensor | None) -> Tensor:
        x = x + self.attention(self.attn_norm(x), cos, sin, sight)
        h = self.ffn_norm(x)
        gated: Tensor = functional.silu(self.ffn_gate(h)) * self.ffn_up(h)
        added: Tensor = self.ffn_down(gated)
        return x + added

    def attention(self, x: Tensor, cos: Tensor, sin: Tensor, sight: Tensor | None) -> Tensor:
        batch, n, _ = x.shape

        def heads(projected: Tensor) -> Tensor:
            return projected.view(batch, n, -1, self.config.n_head_dim).transpose(1, 2)

        q = rotate(heads(self.attn_q(x)), cos, sin)
        k = rotate(heads(self.attn_k(x)), cos, sin)
        v = heads(self.attn_v(x))
        shared = self.config.n_head // self.config.n_head_kv
        k, v = k.repeat_interleave(shared, dim=1), v.repeat_interleave(shared, dim=1)
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=sight, is_causal=sight is None)
        joined: Tensor = self.attn_output(mixed.transpose(1, 2).reshape(batch, n, -1))
        return joined


class Llama(nn.Module):
    """The whole network; the output matrix is the token embedding."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.token_embd = nn.Embedding(config.n_vocab, config.n_embd)
        self.blk = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.output_norm = RMSNorm(config)
        cos, sin = rope_tables(config)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                # GPT-2's scheme: what writes to the residual stream starts smaller, the deeper the network.
                writes = name.endswith(("attn_output.weight", "ffn_down.weight"))
                std = 0.02 / (2 * config.n_layer) ** 0.5 if writes else 0.02
                nn.init.normal_(parameter, std=std)

    def forward(self, ids: Tensor, sight: Tensor | None = None) -> Tensor:
        """Logits (batch, n, n_vocab) of token ids (batch, n); n is at most n_ctx.

        ``sight``, bool (batch, 1, n, n), tells which positions each position sees; by default all before it.
        """
        n = ids.shape[1]
        x = self.token_embd(ids)
        for block in self.blk:
            x = block(x, self.cos[:n], self.sin[:n], sight)
        return functional.linear(self.output_norm(x), self.token_embd.weight)
