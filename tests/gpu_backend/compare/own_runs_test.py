#!/usr/bin/env python3
"""What gpu_backend/compare/own_runs.py makes of predictions and of made-up runs, without GPUs."""

import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parents[3] / "gpu_backend/compare"
GIB = 2**30


def made_run(folder, steps_ms, exposed_ms, pools_gib):
    """Sixteen steps, of which the first four are slow, and the result."""
    lines = [{"event": "step", "step_ns": 9_000_000_000}] * 4 + [{"event": "step", "step_ns": ms * 1_000_000} for ms in steps_ms]
    time = {"median_step_ns": 0, "compute_ns": 90_000_000, "exposed_communication_ns": exposed_ms * 1_000_000,
            "idle_ns": 0, "tflops_per_gpu": 1}
    memory = {"allocated_bytes": pools_gib * GIB + 7, "categories": {"runtime": 7}}
    lines.append({"schema": "mfsdp.result/1", "time": time, "memory": memory})
    folder.mkdir()
    (folder / "done").write_text("talk\n" + "".join(json.dumps(line) + "\n" for line in lines))


def score(predicted, out):
    return subprocess.run([sys.executable, HERE / "own_runs.py", "score", "--predicted", predicted, out],
                          capture_output=True, text=True, check=False)


def expect(got, wanted, what):
    if got != wanted:
        sys.exit(f"{what}: expected {wanted}, got {got}")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        predicted = folder / "predicted.csv"
        predicted.write_text("run,step,compute,exposed,pools\na,102.0,90.0,1.0,40.0\nb,196.0,90.0,2.0,20.0\n")
        (folder / "out").mkdir()
        expect(score(predicted, folder / "out").returncode, 1, "nothing is run")
        made_run(folder / "out/a", [100] * 12, 2, 40)
        half = score(predicted, folder / "out")
        expect((half.returncode, "| b | not run |" in half.stdout), (1, True), "one is run")
        made_run(folder / "out/b", [200] * 11 + [900], 2, 20)
        whole = score(predicted, folder / "out")
        expect(whole.returncode, 0, f"both are as predicted: {whole.stdout}{whole.stderr}")
        expect("| a | 100.0 | 102.0 | +2.0% | 90.0 | 90.0 | 2.0 | 1.0 | -1.0% | 40.00 | 40.00 |" in whole.stdout, True, whole.stdout)
        expect("2 of 2 runs: step 2.00% on average, 2.00% at worst; exposed 0.50% and 1.00% of the step; pools equal in 2"
               in whole.stdout, True, whole.stdout)
        for wrong in ("a,93.9,90.0,1.0,40.0", "a,102.0,90.0,4.0,40.0", "a,102.0,90.0,1.0,41.0"):
            predicted.write_text(f"run,step,compute,exposed,pools\n{wrong}\n")
            expect(score(predicted, folder / "out").returncode, 1, wrong)
    if len(sys.argv) > 1:  # mfsdp-sim: whether every run of the list can be predicted
        made = subprocess.run([sys.executable, HERE / "own_runs.py", "predict", "--sim", sys.argv[1], "--gpu", "h200",
                               HERE / "own_runs.csv"], capture_output=True, text=True, check=False)
        runs = len((HERE / "own_runs.csv").read_text().splitlines())
        expect((made.returncode, len(made.stdout.splitlines())), (0, runs), made.stderr)


if __name__ == "__main__":
    main()
