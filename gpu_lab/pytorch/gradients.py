"""Gradients and logits of one step of mfsdp-exec beside those of PyTorch in fp64."""

import json
from typing import Any

from gpu_lab.command_line import Flags
from gpu_lab.machine import WrongFlag
from gpu_lab.pytorch.tokens import random_tokens, read_sample, read_tokens, write_tokens
from gpu_lab.pytorch.weights import load_model, parts_of
from gpu_lab.saves import Save

FACTOR = 1.25
SLACK = 1e-4


def _step(folder: str, dtype: Any, attention: str, ids: Any, labels: Any, device: str) -> tuple[Any, float, dict[str, Any]]:
    """Logits, loss, and gradients by name, on the device."""
    import torch
    model = load_model(folder, dtype, attention).to(device).train()
    logits = model(ids.to(device)[None], use_cache=False).logits[0]
    wide = logits if dtype == torch.float64 else logits.float()
    loss = torch.nn.functional.cross_entropy(wide, labels.to(device))
    loss.backward()
    return logits.detach(), loss.item(), {name: p.grad for name, p in model.named_parameters()}


def _error(value: Any, reference: Any) -> float:
    """|value - reference| / |reference| in L2 norms."""
    import torch
    difference = torch.linalg.vector_norm(value.to(reference.device).double() - reference)
    return (difference / torch.linalg.vector_norm(reference)).item()


def _joined(gradients: dict[str, Any], parameter: str) -> Any:
    import torch
    return torch.cat([gradients[part].reshape(-1) for part in parts_of(parameter)])


def error_rows(flags: Flags) -> list[tuple[str, float, float]]:
    """Logits and each parameter: the error of mfsdp-exec and that of PyTorch in bf16."""
    import torch
    import transformers
    from safetensors.torch import load_file
    stream = read_tokens(flags.tokens)
    ids, labels = map(torch.tensor, read_sample(stream, len(stream) - 1, 0))
    wanted, wanted_loss, reference = _step(flags.export, torch.float64, "eager", ids, labels, flags.device)
    bf16_logits, bf16_loss, bf16 = _step(flags.export, torch.bfloat16, "sdpa", ids, labels, flags.device)
    ours = Save(flags.state).floats("first_moment")
    covered = {part for parameter in ours for part in parts_of(parameter)}
    if covered != reference.keys():
        raise RuntimeError(f"{flags.state}: other parameters than {flags.export}: {sorted(covered ^ reference.keys())[:8]}")
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {len(ids)} tokens, "
          f"loss {wanted_loss:.6f} in fp64, {bf16_loss:.6f} in bf16")
    rows = [("logits", _error(load_file(flags.logits)["logits"], wanted), _error(bf16_logits, wanted))]
    for parameter, gradient in ours.items():
        value = _joined(reference, parameter)
        rows.append((parameter, _error(torch.frombuffer(gradient, dtype=torch.float32), value),
                     _error(_joined(bf16, parameter), value)))
    return rows


def gradients(flags: Flags) -> int:
    """Compares gradients and logits of one step of mfsdp-exec with those of PyTorch.

        python3 -m gpu_lab gradients --make-tokens FILE --vocab N --sequence N
        python3 -m gpu_lab gradients --export DIR --state DIR --logits FILE --tokens FILE [--device cuda]

    The first form writes a file of random tokens that is one sample. The step is one on that file with --lr 0 --beta1 0
    --clip 0: it leaves the weights as they are, for the export, and the gradient as the first moment, for the save.
    mfsdp-exec and PyTorch in bf16 are both compared with PyTorch in fp64 (norms, softmax and angles are fp32 in
    transformers), all with the same bf16 weights. Exit code 1: an error of mfsdp-exec is above 1.25 times that of PyTorch
    in bf16 plus 1e-4. `pytorch compare --stage gradients` does all of it.
    """
    if flags.make_tokens:
        if not flags.vocab or not flags.sequence:
            raise WrongFlag("--make-tokens: expected --vocab and --sequence")
        write_tokens(flags.make_tokens, random_tokens(1, flags.vocab, flags.sequence + 1))
        return 0
    if missing := [name for name in ("export", "state", "logits", "tokens") if not getattr(flags, name)]:
        raise WrongFlag(f"expected --{missing[0]}, or --make-tokens")
    rows = error_rows(flags)
    print(f"{'error relative to fp64':<56} {'mfsdp':>10} {'torch bf16':>10} {'ratio':>6}")
    wrong = 0
    for name, own, theirs in rows:
        good = own <= FACTOR * theirs + SLACK
        wrong += not good
        print(f"{name:<56} {own:10.3e} {theirs:10.3e} {own / theirs:6.3f}{'' if good else '  WRONG'}")
    worst = max(rows, key=lambda row: row[1] / row[2])
    print(json.dumps({"compared": len(rows), "wrong": wrong, "largest_ratio": worst[1] / worst[2],
                      "largest_ratio_of": worst[0]}))
    return 1 if wrong else 0
