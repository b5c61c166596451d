#!/usr/bin/env python3
"""Whether a run of mfsdp-exec trains as PyTorch does: bands.py OURS REFERENCE REFERENCE REFERENCE...

Files have a JSON line a step (mfsdp-exec --output jsonl, train_fsdp2.py). The references sum in
different orders and thereby say how far runs drift apart that compute the same.

Steps 1 to 20: our gradient norm is within 1 % of the references' mean.

Later steps, in windows of 20: the mean loss of a window is in the interval in which one more
reference would be expected: the references' mean and, on either side, t * s * sqrt(1 + 1/k), with s
their standard deviation and k their number (the prediction interval of a normal distribution). s is
taken over a window and its neighbours, which gives Student's t their degrees of freedom; the
level is such that one more reference would leave any of the windows in 5 % of cases (Bonferroni).
For comparison the table also says how often we are between the references' lowest and highest loss,
and how each reference fares against the others.

Exit status 1: one of the two does not hold.
"""

import json
import math
import sys

import numpy

NORM_STEPS = 20
NORM_LIMIT = 0.01
WINDOW = 20
FALSE_ALARMS = 0.05


def read_steps(path):
    """Losses and norms by step, from step 1 on."""
    lines = [json.loads(line) for line in open(path) if line.startswith("{")]
    steps = [line for line in lines if line.get("event") == "step"]
    if not steps or [line["step"] for line in steps] != list(range(1, len(steps) + 1)):
        sys.exit(f"{path}: expected a line for each step from 1 on")
    return numpy.array([[line["loss"], line["grad_norm"]] for line in steps])


def student_quantile(probability, freedom):
    """The value that Student's t is below with the probability, which is above one half."""
    # Density over tan(angle): the integral's range is finite.
    angle = numpy.linspace(0, math.pi / 2, 200001)[:-1]
    value = numpy.tan(angle) * math.sqrt(freedom)
    density = numpy.cos(angle) ** (freedom - 1)
    mass = numpy.concatenate([[0], numpy.cumsum((density[1:] + density[:-1]) / 2)])
    return float(numpy.interp((probability - 0.5) * 2 * mass[-1], mass, value))


def windows_of(losses):
    """Means over windows behind the first steps; runs by windows."""
    count = (losses.shape[1] - NORM_STEPS) // WINDOW
    kept = losses[:, NORM_STEPS:NORM_STEPS + count * WINDOW]
    return kept.reshape(losses.shape[0], count, WINDOW).mean(axis=2)


def band_of(references):
    """Centre and half width by window, of references by windows."""
    k, count = references.shape
    centre = references.mean(axis=0)
    variance = references.var(axis=0, ddof=1)
    width = numpy.empty(count)
    for i in range(count):
        near = variance[max(i - 1, 0):i + 2]
        t = student_quantile(1 - FALSE_ALARMS / count / 2, (k - 1) * len(near))
        width[i] = t * math.sqrt(near.mean() * (1 + 1 / k))
    return centre, width


def compare_norms(ours, references):
    mean = references[:, :NORM_STEPS].mean(axis=0)
    away = abs(ours[:NORM_STEPS] / mean - 1)
    others = abs(references[:, :NORM_STEPS] / mean - 1).max()
    print(f"norms of steps 1 to {NORM_STEPS}: at most {away.max():.3%} from the references' mean (step "
          f"{away.argmax() + 1}); the references themselves at most {others:.3%}")
    return bool((away <= NORM_LIMIT).all())


def compare_losses(ours, references):
    windows = windows_of(references)
    own = windows_of(ours[None])[0]
    if windows.shape[1] == 0:
        sys.exit(f"expected at least {NORM_STEPS + WINDOW} steps")
    centre, width = band_of(windows)
    inside = abs(own - centre) <= width
    print(f"{'steps':>9} {'ours':>9} {'mean':>9} {'lowest':>9} {'highest':>9} {'band +-':>9}")
    for i, value in enumerate(own):
        first = NORM_STEPS + i * WINDOW + 1
        print(f"{first:>4}-{first + WINDOW - 1:<4} {value:9.5f} {centre[i]:9.5f} "
              f"{windows[:, i].min():9.5f} {windows[:, i].max():9.5f} {width[i]:9.5f}"
              f"{'' if inside[i] else '  OUTSIDE'}")
    between = (own >= windows.min(axis=0)) & (own <= windows.max(axis=0))
    print(f"losses: in the band in {inside.sum()} of {len(own)} windows, between the lowest and the "
          f"highest reference in {between.sum()}")
    for i in range(len(windows)) if len(windows) > 2 else ():
        others = numpy.delete(windows, i, axis=0)
        centre, width = band_of(others)
        print(f"  reference {i + 1} against the others: in the band in "
              f"{(abs(windows[i] - centre) <= width).sum()} of {len(own)}")
    return bool(inside.all())


def main():
    if len(sys.argv) < 5:
        sys.exit("usage: bands.py OURS REFERENCE REFERENCE REFERENCE...")
    runs = [read_steps(path) for path in sys.argv[1:]]
    if len({len(run) for run in runs}) != 1:
        sys.exit(f"expected runs of one length, got {[len(run) for run in runs]} steps")
    ours, references = runs[0], numpy.stack(runs[1:])
    good = compare_norms(ours[:, 1], references[:, :, 1])
    good = compare_losses(ours[:, 0], references[:, :, 0]) and good
    print("ok" if good else "WRONG")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
