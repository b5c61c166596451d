"""A plain Llama in PyTorch, written in few lines, that other engines train.

Queries, keys and values come from one GEMM, gate and up from another; norms by F.rms_norm, RoPE angles in fp32, causal
attention by scaled_dot_product_attention, cross entropy of fp32 logits. Qwen2 (biases) and Qwen3 (norms of queries and
keys) are trained too. Classes are made by functions, so that PyTorch is imported only where a model is needed.
"""

from types import SimpleNamespace
from typing import Any


def functions(fuse: bool) -> SimpleNamespace:
    """Element-wise functions. `fuse`: each compiled alone."""
    import torch
    import torch.nn.functional as F
    def fused(function: Any) -> Any:
        return torch.compile(function, dynamic=False) if fuse else function

    def norm(x: Any, weight: Any, epsilon: float) -> Any:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)).to(x.dtype) * weight

    def plain_norm(x: Any, weight: Any, epsilon: float) -> Any:
        return F.rms_norm(x, weight.shape, weight, epsilon)

    def swiglu(both: Any) -> Any:
        gate, up = both.chunk(2, -1)
        return F.silu(gate) * up

    def rotate(x: Any, cosine: Any, sine: Any) -> Any:
        half = x.shape[-1] // 2
        rotated = torch.cat([-x[..., half:], x[..., :half]], -1)
        return (x.float() * cosine + rotated.float() * sine).to(x.dtype)

    def loss(logits: Any, labels: Any) -> Any:
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())

    return SimpleNamespace(norm=fused(norm) if fuse else plain_norm, swiglu=fused(swiglu), rotate=fused(rotate),
                           loss=fused(loss))


def layers(norm: Any) -> SimpleNamespace:
    """Modules that can be made without values and reset later."""
    import torch
    from torch import nn
    class Norm(nn.Module):
        """RMS norm of [..., width]."""

        def __init__(self, width: int, epsilon: float) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))
            self.epsilon = epsilon

        def reset_parameters(self) -> None:
            """Ones."""
            nn.init.ones_(self.weight)

        def forward(self, x: Any) -> Any:
            """The norm."""
            return norm(x, self.weight, self.epsilon)

    class Linear(nn.Linear):
        """A GEMM whose weights are small random numbers."""

        def reset_parameters(self) -> None:
            """Normal, deviation 0.02."""
            nn.init.normal_(self.weight, std=0.02)

    class Embedding(nn.Embedding):
        """Rows of small random numbers."""

        def reset_parameters(self) -> None:
            """Normal, deviation 0.02."""
            nn.init.normal_(self.weight, std=0.02)

    return SimpleNamespace(Norm=Norm, Linear=Linear, Embedding=Embedding)


def block_class(does: SimpleNamespace, made: SimpleNamespace) -> Any:
    """The transformer block."""
    import torch.nn.functional as F
    from torch import nn
    class Block(nn.Module):
        """Attention and SwiGLU of [batch, sequence, hidden]."""

        def __init__(self, config: dict[str, Any]) -> None:
            super().__init__()
            hidden, epsilon = config["hidden_size"], config["rms_norm_eps"]
            self.heads = config["num_attention_heads"]
            self.pairs = config.get("num_key_value_heads", self.heads)
            self.head = head_size(config)
            self.norm1, self.norm2 = made.Norm(hidden, epsilon), made.Norm(hidden, epsilon)
            self.qkv = made.Linear(hidden, (self.heads + 2 * self.pairs) * self.head, bias=config["model_type"] == "qwen2")
            self.normed = config["model_type"] == "qwen3"
            if self.normed:
                self.norm_q, self.norm_k = made.Norm(self.head, epsilon), made.Norm(self.head, epsilon)
            self.out = made.Linear(self.heads * self.head, hidden, bias=False)
            self.gate_up = made.Linear(hidden, 2 * config["intermediate_size"], bias=False)
            self.down = made.Linear(config["intermediate_size"], hidden, bias=False)

        def forward(self, x: Any, cosine: Any, sine: Any) -> Any:
            """The block, with its residuals."""
            batch, length, _ = x.shape
            heads = [self.heads, self.pairs, self.pairs]
            qkv = self.qkv(self.norm1(x)).view(batch, length, sum(heads), self.head).transpose(1, 2)
            q, k, v = qkv.split(heads, 1)
            if self.normed:
                q, k = self.norm_q(q), self.norm_k(k)
            q, k = does.rotate(q, cosine, sine), does.rotate(k, cosine, sine)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, -1))
            return x + self.down(does.swiglu(self.gate_up(self.norm2(x))))

    return Block


def llama_classes(fuse: bool, untied: bool) -> SimpleNamespace:
    """Llama and its Block. `untied`: a head of its own, whatever the configuration has."""
    from torch import nn
    does = functions(fuse)
    made = layers(does.norm)
    Block = block_class(does, made)

    class Llama(nn.Module):
        """The mean loss of tokens [batch, sequence]."""

        def __init__(self, config: dict[str, Any]) -> None:
            super().__init__()
            self.embedding = made.Embedding(config["vocab_size"], config["hidden_size"])
            self.layers = nn.ModuleList([Block(config) for _ in range(config["num_hidden_layers"])])
            self.norm = made.Norm(config["hidden_size"], config["rms_norm_eps"])
            self.head = made.Linear(config["hidden_size"], config["vocab_size"], bias=False)
            if config.get("tie_word_embeddings") and not untied:
                self.head.weight = self.embedding.weight

        def forward(self, tokens: Any, labels: Any, cosine: Any, sine: Any) -> Any:
            """The loss."""
            x = self.embedding(tokens)
            for layer in self.layers:
                x = layer(x, cosine, sine)
            return does.loss(self.head(self.norm(x)), labels)

    return SimpleNamespace(Llama=Llama, Block=Block)


def head_size(config: dict[str, Any]) -> int:
    """Columns of a head."""
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def angles(length: int, config: dict[str, Any], device: Any) -> tuple[Any, Any]:
    """Cosines and sines of RoPE, [length, head size] in fp32."""
    import torch
    head, theta = head_size(config), config.get("rope_theta", 10000.0)
    rates = 1.0 / theta ** (torch.arange(0, head, 2, device=device, dtype=torch.float32) / head)
    turns = torch.outer(torch.arange(length, device=device, dtype=torch.float32), rates)
    return torch.cat([turns.cos(), turns.cos()], -1), torch.cat([turns.sin(), turns.sin()], -1)


def reset(model: Any) -> None:
    """Gives all weights their first values."""
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
