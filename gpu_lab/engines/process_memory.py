"""GPU memory of a PyTorch process besides what its caching allocator reserves, part by part."""

import json
import os
from typing import Any

PAGE = 2 << 20  # bytes of a page of device memory


class Stages:
    """Prints a JSON line for each stage of one rank."""

    def __init__(self, rank: int) -> None:
        self.rank, self.before = rank, 0

    def report(self, name: str) -> None:
        """Bytes in use that the allocator does not reserve, and pages since the stage before."""
        import torch
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        used = total - free - torch.cuda.memory_reserved()
        print(json.dumps({"rank": self.rank, "loading": os.environ.get("CUDA_MODULE_LOADING", "default"), "stage": name,
                          "bytes": used, "pages": round((used - self.before) / PAGE, 2)}), flush=True)
        self.before = used


def small_step(device: Any) -> None:
    """Calls each operation of a Llama step once: GEMMs, attention, norms, loss, both ways, and the optimizer."""
    import torch
    import torch.nn.functional as F
    make = lambda *shape: torch.randn(*shape, device=device, dtype=torch.bfloat16, requires_grad=True)
    x, weight = make(1, 1024, 1024), make(3072, 1024)
    q, k, v = F.linear(F.rms_norm(x, (1024,)), weight).view(1, 1024, 3, 16, 64).permute(2, 0, 3, 1, 4)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    rows = F.silu(mixed.transpose(1, 2).reshape(1024, 1024))
    loss = F.cross_entropy(F.linear(rows, weight).float(), torch.zeros(1024, dtype=torch.long, device=device))
    loss.backward()
    torch.optim.AdamW([x, weight], fused=True).step()


def collectives(group: Any, size: int, device: Any) -> None:
    """One all-gather and one reduce-scatter of 64 MiB."""
    import torch
    import torch.distributed as dist
    whole, part = torch.zeros(1 << 24, device=device), torch.zeros((1 << 24) // size, device=device)
    dist.all_gather_into_tensor(whole, part, group=group)
    dist.reduce_scatter_tensor(part, whole, group=group)


def print_stages() -> None:
    """All stages of one rank under torchrun."""
    import torch
    import torch.distributed as dist
    rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    torch.zeros(1, device=device)
    stages = Stages(rank)
    stages.report("context")
    small_step(device)
    stages.report("step")
    dist.init_process_group("nccl", device_id=device)
    stages.report("default group")
    world = dist.get_world_size()
    collectives(None, world, device)
    stages.report("its collectives")
    for number in (2, 3):
        group = dist.new_group(list(range(world)))
        collectives(group, world, device)
        stages.report(f"group {number} of all ranks")
    for number in (4, 5):
        groups = [dist.new_group([one]) for one in range(world)]
        stages.report(f"group {number}, of one rank")
        collectives(groups[rank], 1, device)
        stages.report(f"group {number}, its collectives")
    dist.all_reduce(torch.zeros(1 << 20, device=device))
    stages.report("an all-reduce of the default group")
    dist.destroy_process_group()
