"""Measures mfsdp-exec and other training engines on GPUs: runs, records, scores and compares them.

`python3 -m gpu_lab --help`, from the repository's root, lists the commands. gpu_lab/README.md describes each.
The package needs Python 3.11 and its standard library. Functions that use PyTorch import it themselves, so that the
other commands work where it is not installed.
"""
