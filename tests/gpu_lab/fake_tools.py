"""Stand-ins for mfsdp-exec, mfsdp-sim, mfsdp-verify and nvidia-smi, for tests without GPUs. Only the standard
library is imported, so that a start takes milliseconds. The name by which the script is called selects the program.

FAKE_WRONG=FLAG: runs with this flag have other losses. FAKE_REFUSES=FLAG: mfsdp-exec refuses it."""

import os
import sys
import time

PROGRAMS = ("mfsdp-exec", "mfsdp-sim", "mfsdp-verify", "nvidia-smi")
GIB = 2**30


def install(folder):
    """Writes the stand-ins into the folder."""
    for name in PROGRAMS:
        path = os.path.join(folder, name)
        with open(path, "w") as file:
            file.write(f"#!{sys.executable} -SE\n")
            with open(__file__) as source:
                file.write(source.read())
        os.chmod(path, 0o755)


def value_of(words, flag, default=None):
    """The word after a flag."""
    return words[words.index(flag) + 1] if flag in words else default


def result(step_ns):
    """A result, as mfsdp.result/1 has it. Text, as the json module takes longer to load than all else."""
    return ('{"schema": "mfsdp.result/1", "cost_model_version": 3, "time": {"median_step_ns": %d, "step_ns": %d, "compute_ns": %d,'
            ' "exposed_communication_ns": 1000000, "idle_ns": 1000000, "tflops_per_gpu": 500}, "memory": {"allocated_bytes": %d,'
            ' "reserved_bytes": %d, "device_bytes": %d, "alloc_retries": 0, "capacity_bytes": %d, "fits": true,'
            ' "verdict_certain": true, "categories": {"runtime": %d}}}'
            % (step_ns, step_ns, step_ns - 2_000_000, 43 * GIB, 44 * GIB, 46 * GIB, 80 * GIB, 3 * GIB))


def save(folder, steps):
    """A save of one parameter."""
    os.makedirs(folder, exist_ok=True)
    header = b'{"entries": [{"parameter": "w", "kind": "weight", "begin": 0, "end": 2, "dtype": "fp32", "offset": 0}]}'
    with open(os.path.join(folder, "rank0"), "wb") as file:
        file.write(b"mfsdp.st" + len(header).to_bytes(8, "little") + header + bytes(8))
    with open(os.path.join(folder, "manifest.json"), "w") as file:
        file.write('{"samples": 1, "tokens": 1, "seed": 1, "data": 1, "model": 1, "optimizer": 1, "step": %d,'
                   ' "files": [{"name": "rank0"}]}' % steps)


def train(words):
    """mfsdp-exec."""
    if (refused := os.environ.get("FAKE_REFUSES")) and refused in words:
        print(f"mfsdp-exec: {refused}: refused", file=sys.stderr)
        return 2
    if "--dry-run" in words:
        with open(value_of(words, "--plan-out"), "w") as file:
            file.write('{"plans": [{"name": "train", "segments": [{"ops": [0, 1]}, {"ops": [2]}]}]}')
        return 0
    wrong, steps = os.environ.get("FAKE_WRONG"), int(value_of(words, "--steps", "3"))
    if log := os.environ.get("NCCL_DEBUG_FILE"):
        with open(log.replace("%p", str(os.getpid())), "w") as file:
            file.write("via NET\n")
    if folder := value_of(words, "--save"):
        save(folder, steps)
    if value_of(words, "--node-rank", "0") != "0":
        return 0  # another rank prints
    for step in range(1, steps + 1):
        loss = 4 - step / 1000 + (0.5 if wrong in words else 0)
        print('{"event": "step", "step": %d, "loss": %r, "grad_norm": 1.5, "step_ns": 100000000, "tflops_per_gpu": 500}'
              % (step, loss), flush=True)
    if (store := value_of(words, "--db")):
        open(store, "w").close()
    print(result(100_000_000))
    return 0


def main():
    """The program that was called."""
    name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
    if name == "mfsdp-exec":
        return train(words)
    if name == "mfsdp-sim":
        print(result(101_000_000))
    elif "-lms" in words:
        time.sleep(60)
    elif name == "nvidia-smi":
        gpus = int(os.environ.get("FAKE_GPUS", "2"))
        for gpu in range(gpus):
            print("GPU 0: fake" if "-L" in words else f"{gpu}" if "index" in words[0] else "NVIDIA H200, 1")
    return 0


if __name__ == "__main__":
    sys.exit(main())
