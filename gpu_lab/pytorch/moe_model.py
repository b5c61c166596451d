"""Qwen3-MoE in PyTorch: attention, softmax router, K experts a token, SwiGLU; experts sharded by rank if asked for.

Classes are made by functions, so that PyTorch is imported only where a model is needed. E is the number of experts.
"""

import argparse
from types import SimpleNamespace
from typing import Any

Config = argparse.Namespace  # fields of config.json


def angles_of(config: Config, sequence: int, device: Any) -> tuple[Any, Any]:
    """Cosines and sines of RoPE, [sequence, head size / 2]."""
    import torch
    half = config.head_dim // 2
    rates = config.rope_theta ** (-torch.arange(half, device=device, dtype=torch.float32) / half)
    turns = torch.outer(torch.arange(sequence, device=device, dtype=torch.float32), rates)
    return turns.cos(), turns.sin()


def rotate(heads: Any, angles: tuple[Any, Any]) -> Any:
    """RoPE of [batch, sequence, heads, head size]."""
    import torch
    cosines, sines = (part[None, :, None, :] for part in angles)
    first, second = heads.float().chunk(2, -1)
    return torch.cat((first * cosines - second * sines, second * cosines + first * sines), -1).to(heads.dtype)


def attend(query: Any, key: Any, value: Any) -> Any:
    """Causal attention of [batch, heads, sequence, head size]; several queries share a key and value."""
    import torch
    from torch.nn import functional
    if hasattr(functional, "scaled_dot_product_attention"):
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    group = query.shape[1] // key.shape[1]
    key, value = (part.repeat_interleave(group, 1) for part in (key, value))
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(later, float("-inf")).softmax(-1) @ value


def sorted_order(numbers: Any) -> tuple[Any, Any]:
    """The order that sorts, stable, and where each number went."""
    import torch
    order = torch.sort(numbers, stable=True).indices
    return order, torch.empty_like(order).scatter(0, order, torch.arange(order.numel(), device=order.device))


def grouped_gemm(rows: Any, matrices: Any, ends: Any) -> Any:
    """rows [M, K] times experts' [E, K, N]: each expert's rows end where `ends` has it."""
    import torch
    if rows.is_cuda:
        return torch._grouped_mm(rows, matrices, offs=ends)
    stops = [0, *ends.tolist()]
    return torch.cat([rows[a:b] @ matrix for a, b, matrix in zip(stops, stops[1:], matrices)])


def run_experts(rows: Any, ends: Any, gate_up: Any, down: Any) -> Any:
    """SwiGLU of each row by its expert."""
    from torch.nn import functional
    gate, up = grouped_gemm(rows, gate_up.transpose(-1, -2), ends).chunk(2, -1)
    return grouped_gemm(functional.silu(gate) * up, down.transpose(-1, -2), ends)


def loss_of(logits: Any, labels: Any) -> Any:
    """The mean of fp32 cross entropy."""
    from torch.nn import functional
    return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


# ---- functions with a backward of their own -----------------------------------------------------


def row_functions() -> SimpleNamespace:
    """Moves of rows, forward and backward. Autograd's own backward of an index would add row by row."""
    import torch
    import torch.distributed as dist
    class Spread(torch.autograd.Function):
        """Rows of tokens in the order of experts; the gradient gathers."""

        @staticmethod
        def forward(context: Any, tokens: Any, order: Any, places: Any, chosen: int) -> Any:
            """[tokens, hidden] to [tokens * chosen, hidden]."""
            context.save_for_backward(places)
            context.chosen = chosen
            return tokens[order // chosen]

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            """Sums the rows of each token."""
            places, = context.saved_tensors
            return gradient[places].unflatten(0, (-1, context.chosen)).sum(1), None, None, None

    class Permute(torch.autograd.Function):
        """Rows in another order, and back in `inverse`; the gradient gathers."""

        @staticmethod
        def forward(context: Any, rows: Any, order: Any, inverse: Any) -> Any:
            """No row comes twice."""
            context.save_for_backward(inverse)
            return rows[order]

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            """The inverse order."""
            inverse, = context.saved_tensors
            return gradient[inverse], None, None

    class Exchange(torch.autograd.Function):
        """Rows to the ranks that have their experts, or back."""

        @staticmethod
        def forward(context: Any, rows: Any, sent: list[int], received: list[int], group: Any) -> Any:
            """`sent`, `received`: rows to and from each rank."""
            context.sizes = (received, sent, group)
            got = rows.new_empty((sum(received), *rows.shape[1:]))
            dist.all_to_all_single(got, rows.contiguous(), received, sent, group=group)
            return got

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            """The same with both sides swapped."""
            return (Exchange.apply(gradient, *context.sizes), None, None, None)

    return SimpleNamespace(spread=Spread.apply, permute=Permute.apply, exchange=Exchange.apply)


# ---- modules ------------------------------------------------------------------------------------


def attention_classes() -> SimpleNamespace:
    """Norm and Attention."""
    import torch
    from torch import nn
    class Norm(nn.Module):
        """RMS norm of [..., width]."""

        def __init__(self, width: int, epsilon: float) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(width))
            self.epsilon = epsilon

        def forward(self, rows: Any) -> Any:
            """In fp32."""
            wide = rows.float()
            scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.epsilon)
            return (wide * scale).to(rows.dtype) * self.weight

    class Attention(nn.Module):
        """Grouped attention with norms of queries and keys."""

        def __init__(self, config: Config) -> None:
            super().__init__()
            self.head = config.head_dim
            width, pairs = config.num_attention_heads * self.head, config.num_key_value_heads * self.head
            self.query = nn.Linear(config.hidden_size, width, bias=False)
            self.key = nn.Linear(config.hidden_size, pairs, bias=False)
            self.value = nn.Linear(config.hidden_size, pairs, bias=False)
            self.output = nn.Linear(width, config.hidden_size, bias=False)
            self.query_norm = Norm(self.head, config.rms_norm_eps)
            self.key_norm = Norm(self.head, config.rms_norm_eps)
            self.angles: Any = None  # set when there is a device; no parameters, so they are not cast to bf16

        def forward(self, rows: Any) -> Any:
            """[batch, sequence, hidden]."""
            query, key, value = (part(rows).unflatten(-1, (-1, self.head)) for part in (self.query, self.key, self.value))
            query, key = rotate(self.query_norm(query), self.angles), rotate(self.key_norm(key), self.angles)
            mixed = attend(*(part.transpose(1, 2) for part in (query, key, value)))
            return self.output(mixed.transpose(1, 2).flatten(2))

    return SimpleNamespace(Norm=Norm, Attention=Attention)


def expert_classes(parts: SimpleNamespace, move: SimpleNamespace) -> SimpleNamespace:
    """Front, all of a block before its experts, and Experts."""
    import torch
    from torch import nn
    class Front(nn.Module):
        """Attention, router, and rows in the order of experts."""

        def __init__(self, config: Config) -> None:
            super().__init__()
            self.experts, self.chosen = config.num_experts, config.num_experts_per_tok
            self.normalise = config.norm_topk_prob
            self.attention_norm = parts.Norm(config.hidden_size, config.rms_norm_eps)
            self.attention = parts.Attention(config)
            self.experts_norm = parts.Norm(config.hidden_size, config.rms_norm_eps)
            self.router = nn.Linear(config.hidden_size, config.num_experts, bias=False)

        def forward(self, residual: Any) -> Any:
            """The residual, rows, their weights and order, and how many rows each expert has."""
            residual = residual + self.attention(self.attention_norm(residual))
            tokens = self.experts_norm(residual).flatten(0, 1)
            weights, indices = self.router(tokens).float().softmax(-1).topk(self.chosen, -1)
            if self.normalise:
                weights = weights / weights.sum(-1, keepdim=True)
            indices = indices.flatten()
            counts = indices.new_zeros(self.experts).scatter_add(0, indices, torch.ones_like(indices))
            order, places = sorted_order(indices)
            return residual, move.spread(tokens, order, places, self.chosen), weights, order, places, counts

    class Experts(nn.Module):
        """Weights [E, outputs, inputs] of this rank's experts."""

        def __init__(self, config: Config, count: int) -> None:
            super().__init__()
            inner = config.moe_intermediate_size
            self.gate_up = nn.Parameter(torch.empty(count, 2 * inner, config.hidden_size))
            self.down = nn.Parameter(torch.empty(count, config.hidden_size, inner))
            self.run = run_experts

        def forward(self, rows: Any, ends: Any) -> Any:
            """Rows in the order of experts."""
            return self.run(rows, ends, self.gate_up, self.down)

    return SimpleNamespace(Front=Front, Experts=Experts)


def block_class(made: SimpleNamespace, move: SimpleNamespace) -> Any:
    """The block: its front, experts here or on other ranks, and the sum."""
    import torch
    import torch.distributed as dist
    from torch import nn
    def combine(residual: Any, rows: Any, weights: Any, order: Any, places: Any) -> Any:
        """Adds what experts computed for each token, times its weights."""
        rows = move.permute(rows, places, order).unflatten(0, weights.shape)
        return residual + (rows * weights[..., None].to(rows.dtype)).sum(1).view_as(residual)

    class Block(nn.Module):
        """`ep`: ranks of `group` over which the experts are sharded."""

        def __init__(self, config: Config, ep: int, group: Any) -> None:
            super().__init__()
            self.front = made.Front(config)
            self.experts = made.Experts(config, config.num_experts // ep)
            self.ep, self.group = ep, group
            self.combine = combine

        def forward(self, residual: Any) -> Any:
            """[batch, sequence, hidden]."""
            residual, rows, weights, order, places, counts = self.front(residual)
            if self.ep == 1:
                rows = self.experts(rows, counts.cumsum(0).to(torch.int32))
            else:
                rows = self.exchanged(rows, counts)
            return self.combine(residual, rows, weights, order, places)

        def exchanged(self, rows: Any, counts: Any) -> Any:
            """Sends rows to their experts' ranks and back. The host reads their numbers, as torchtitan does."""
            theirs = torch.empty_like(counts)
            dist.all_to_all_single(theirs, counts, group=self.group)
            theirs = theirs.view(self.ep, -1)  # [rank it comes from, expert of this rank]
            sent, received = torch.stack((counts.view(self.ep, -1).sum(1), theirs.sum(1))).tolist()
            rows = move.exchange(rows, sent, received, self.group)
            expert = torch.arange(theirs.shape[1], device=rows.device).repeat(self.ep)
            expert = torch.repeat_interleave(expert, theirs.flatten(), output_size=sum(received))
            order, places = sorted_order(expert)
            rows = self.experts(move.permute(rows, order, places), theirs.sum(0).cumsum(0).to(torch.int32))
            return move.exchange(move.permute(rows, places, order), received, sent, self.group)

    return Block


def make_model(config: Config, ep: int, group: Any) -> Any:
    """The model, without values on the meta device."""
    from torch import nn
    move, parts = row_functions(), attention_classes()
    Block = block_class(expert_classes(parts, move), move)

    class Model(nn.Module):
        """Logits of tokens [batch, sequence]."""

        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
            self.blocks = nn.ModuleList(Block(config, ep, group) for _ in range(config.num_hidden_layers))
            self.norm = parts.Norm(config.hidden_size, config.rms_norm_eps)
            self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

        def forward(self, tokens: Any) -> Any:
            """All blocks."""
            rows = self.embedding(tokens)
            for block in self.blocks:
                rows = block(rows)
            return self.head(self.norm(rows))

    return Model()


def compile_parts(model: Any, ep: int) -> None:
    """Compiles what compiles: whole blocks or, where experts are exchanged, what lies between exchanges."""
    import torch
    for block in model.blocks:
        if ep == 1:
            block.compile()
            continue
        block.front.compile()
        block.experts.run = torch.compile(run_experts, dynamic=True)
        block.combine = torch.compile(block.combine)
