"""Facts about this machine: GPUs, the tools of mfsdp, and the scenarios with their models."""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
from dataclasses import dataclass

PACKAGE = pathlib.Path(__file__).resolve().parent
ROOT = PACKAGE.parent
MODELS = PACKAGE / "models"  # small models that only this package uses
GIB = 2**30
SMALL_LLAMA = "small_llama.json"

# Folder of each tool in a build tree.
BUILD_FOLDERS = {"mfsdp-exec": "gpu_backend", "mfsdp-sim": "sim", "mfsdp-verify": "verify",
                 "gpu_backend_cuda_device_tests": "tests", "libmfsdp_count_allocations.so": "tests"}


class WrongFlag(Exception):
    """A flag has a value that cannot be used. The command prints it and ends with exit code 2."""


# ---- files --------------------------------------------------------------------------------------


def scenarios() -> pathlib.Path:
    """The folder of models, GPUs and texts: MFSDP_SCENARIOS, else that of the source tree."""
    return pathlib.Path(os.environ.get("MFSDP_SCENARIOS") or ROOT / "scenarios")


def text() -> pathlib.Path:
    """The text that trainings read."""
    return scenarios() / "texts" / "jargon.txt"


def model_path(model: str) -> pathlib.Path:
    """The config.json of a model: a name in scenarios/models, a file of gpu_lab/models, or a path."""
    if not model.endswith(".json"):
        return scenarios() / "models" / model / "config.json"
    return pathlib.Path(model) if os.sep in model else MODELS / model


def cut_model(model: str, layers: int | None, folder: pathlib.Path) -> pathlib.Path:
    """The config.json of the model with `layers` layers, in `folder` if their number changes."""
    path = model_path(model)
    if layers is None:
        return path
    shape = json.loads(path.read_text())
    shape["n_layer" if "n_layer" in shape else "num_hidden_layers"] = layers  # GPT-2's name
    if "layer_types" in shape:  # one entry for each layer
        shape["layer_types"] = shape["layer_types"][:layers]
    folder.mkdir(parents=True, exist_ok=True)
    cut = folder / "config.json"
    cut.write_text(json.dumps(shape, indent=2))
    return cut


@dataclass(frozen=True)
class Tools:
    """The programs that are run. `folder`: an installation's bin or a build tree; None: PATH."""

    folder: pathlib.Path | None = None
    must_exist: bool = True  # a dry run prints commands of tools that are not there

    def find(self, name: str) -> str:
        """The path of a tool. Raises WrongFlag where there is none."""
        found = self.look_for(name)
        if found is None and self.must_exist:
            place = "PATH" if self.folder is None else str(self.folder)
            raise WrongFlag(f"--bin: expected a folder with {name}, found none in {place}")
        return found or name

    def look_for(self, name: str) -> str | None:
        """The path of a tool; None where there is none."""
        if self.folder is None:
            return shutil.which(name)
        for place in (self.folder, self.folder / BUILD_FOLDERS.get(name, "."), self.folder / "bin"):
            if (place / name).is_file():
                return str((place / name).resolve())
        return None


def has_module(*names: str) -> bool:
    """Whether Python can import all of them. Nothing is imported."""
    return all(importlib.util.find_spec(name) is not None for name in names)


# ---- GPUs ---------------------------------------------------------------------------------------


def ask_driver(*query: str) -> list[str]:
    """Lines that nvidia-smi prints; none where there is no nvidia-smi."""
    try:
        done = subprocess.run(["nvidia-smi", *query], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def gpu_count() -> int:
    """GPUs of this host, whether visible to CUDA or not."""
    return sum(line.startswith("GPU") for line in ask_driver("-L"))


def describe_gpus(fields: str) -> list[str]:
    """One line for each GPU with these comma-separated fields of nvidia-smi."""
    return ask_driver(f"--query-gpu={fields}", "--format=csv,noheader")


def visible_gpus() -> list[str]:
    """Indices of the GPUs that CUDA sees."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",") if visible else [line.strip() for line in describe_gpus("index")]


def _numbers(query: str) -> list[int]:
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    lines = ask_driver(query, "--format=csv,noheader,nounits", *([f"--id={seen}"] if seen else []))
    return [int(word) for line in lines for word in line.split() if word.isdigit()]


def memory_in_use() -> list[int]:
    """MiB in use on each visible GPU."""
    return _numbers("--query-gpu=memory.used")


def gpu_processes() -> list[int]:
    """Processes that compute on the visible GPUs."""
    return _numbers("--query-compute-apps=pid")


def grown_memory(before: list[int]) -> list[str]:
    """A fault for each GPU that has 64 MiB more in use than before."""
    return [f"GPU {i}: {b} MiB in use, {a} before" for i, (a, b) in enumerate(zip(before, memory_in_use())) if b > a + 64]
