"""Writes h100_steps.csv: python3 h100_steps.py > steps.csv. Needs PyTorch and one GPU.

A Llama-like model (hidden 2048, 16 heads, 18 or 19 blocks, 2 sequences of 2048 tokens) is trained in
bf16 with AdamW for 150 steps a run; the time between the ends of two steps is taken with events.
"""
import random
import subprocess
import sys
import time

STEPS = 150
HIDDEN, INNER, VOCABULARY = 2048, 5632, 32000


def train(program, layers, run):
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
            self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
            self.out = nn.Linear(HIDDEN, HIDDEN, bias=False)
            self.up = nn.Linear(HIDDEN, 2 * INNER, bias=False)
            self.down = nn.Linear(INNER, HIDDEN, bias=False)

        def forward(self, x):
            n, t, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, 16, 128).permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(n, t, HIDDEN))
            gate, up = self.up(self.norm2(x)).chunk(2, -1)
            return x + self.down(functional.silu(gate) * up)

    torch.manual_seed(0)
    with torch.device("cuda"):
        model = nn.Sequential(
            nn.Embedding(VOCABULARY, HIDDEN), *[Block() for _ in range(layers)],
            nn.RMSNorm(HIDDEN), nn.Linear(HIDDEN, VOCABULARY, bias=False)).bfloat16()
        data = torch.randint(VOCABULARY, (64, 2, 2049))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(STEPS + 1)]
    events[0].record()
    for i in range(STEPS):
        batch = data[i % 64]
        logits = model(batch[:, :-1]).flatten(0, 1)
        functional.cross_entropy(logits, batch[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        events[i + 1].record()
    torch.cuda.synchronize()
    for i in range(STEPS):
        print(f"{program},{run},{i + 1},{round(events[i].elapsed_time(events[i + 1]) * 1e6)}")


def disturb():
    import torch
    a = torch.randn(6144, 6144, device="cuda", dtype=torch.bfloat16)
    while True:
        for _ in range(random.randint(1, 60)):
            a @ a
        torch.cuda.synchronize()
        time.sleep(random.random() * 0.4)


def main():
    def run(*arguments):
        subprocess.run([sys.executable, __file__, *map(str, arguments)], check=True)
    for i in (1, 3, 5, 7, 9):
        for program, layers, number in (("a", 18, i), ("b", 19, i), ("b", 19, i + 1), ("a", 18, i + 1)):
            run(program, layers, number)
    other = subprocess.Popen([sys.executable, __file__, "disturb"])
    for i in (1, 2, 3):
        run("noisy", 18, i)
    other.kill()


if len(sys.argv) == 1:
    main()
elif sys.argv[1] == "disturb":
    disturb()
else:
    train(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
