"""Holds one side to the other: predictions to measurements, layouts of one class to one result, losses to a band."""

import math
import statistics
from collections.abc import Iterable, Sequence

from gpu_lab.results import Bits

# ---- errors of predictions ----------------------------------------------------------------------


def error_of(predicted: float, measured: float) -> float:
    """How far a prediction is off, as a share of what was measured."""
    return predicted / measured - 1


def mean_of(errors: Sequence[float]) -> float:
    """The mean size of errors."""
    return sum(abs(error) for error in errors) / len(errors)


def worst_of(errors: Sequence[float]) -> float:
    """The largest size of an error."""
    return max(abs(error) for error in errors)


def summary(errors: Sequence[float], digits: int = 2) -> str:
    """Mean and worst, for people."""
    return f"{100 * mean_of(errors):.{digits}f} % on average, {100 * worst_of(errors):.{digits}f} % at worst"


# ---- layouts with the same bits -----------------------------------------------------------------


def judge_classes(runs: Iterable[tuple[str, Bits]]) -> tuple[list[str], list[str]]:
    """Lines about classes of layouts, and what is wrong: all runs of one class have one result."""
    classes: dict[str, list[Bits]] = {}
    for name, bits in runs:
        classes.setdefault(name, []).append(bits)
    lines = [f"{name}: {len(all_of)} layouts, {len(set(all_of))} results" for name, all_of in classes.items()]
    return lines, [f"{name}: results differ" for name, all_of in classes.items() if len(set(all_of)) != 1]


# ---- bands --------------------------------------------------------------------------------------

NORM_STEPS = 20
NORM_LIMIT = 0.01
WINDOW = 20  # steps
FALSE_ALARMS = 0.05
_GRID = 200_001


def student_quantile(probability: float, freedom: int) -> float:
    """The value that Student's t is below with the probability, which is above one half."""
    # With t = tan(angle) * sqrt(freedom) the integral's range is finite, and the density is cos(angle) ** (freedom - 1) but for a factor.
    step = math.pi / 2 / (_GRID - 1)
    densities = [math.cos(i * step) ** (freedom - 1) for i in range(_GRID - 1)]
    total = sum(densities) - (densities[0] + densities[-1]) / 2
    wanted, mass = (probability - 0.5) * 2 * total, 0.0
    for i in range(1, len(densities)):
        piece = (densities[i - 1] + densities[i]) / 2
        if mass + piece >= wanted:
            low, high = math.tan((i - 1) * step), math.tan(i * step)
            return math.sqrt(freedom) * (low + (wanted - mass) / piece * (high - low))
        mass += piece
    return math.inf


def windows_of(losses: Sequence[float]) -> list[float]:
    """Means over windows of the steps after the first twenty."""
    kept = losses[NORM_STEPS:]
    return [statistics.fmean(kept[at:at + WINDOW]) for at in range(0, len(kept) - WINDOW + 1, WINDOW)]


def band_of(references: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """Centre and half width of each window, from the references' windows: where one more reference is expected.

    The half width is t * s * sqrt(1 + 1/k), with k references and s their standard deviation over a window and its
    neighbours (the prediction interval of a normal distribution). The level is such that one more reference leaves any
    of the windows in 5 % of cases (Bonferroni).
    """
    k, columns = len(references), list(zip(*references))
    variances = [statistics.variance(column) for column in columns]
    quantiles: dict[int, float] = {}
    band = []
    for i, column in enumerate(columns):
        near = variances[max(i - 1, 0):i + 2]
        freedom = (k - 1) * len(near)
        if freedom not in quantiles:
            quantiles[freedom] = student_quantile(1 - FALSE_ALARMS / len(columns) / 2, freedom)
        width = quantiles[freedom] * math.sqrt(statistics.fmean(near) * (1 + 1 / k))
        band.append((statistics.fmean(column), width))
    return band


def inside_band(values: Sequence[float], band: Sequence[tuple[float, float]]) -> list[bool]:
    """Whether each window's value is in its band."""
    return [abs(value - centre) <= width for value, (centre, width) in zip(values, band)]


def judge_norms(ours: Sequence[float], references: Sequence[Sequence[float]]) -> tuple[list[str], bool]:
    """A line about the norms of the first twenty steps, and whether ours are within 1 % of the references' mean."""
    means = [statistics.fmean(column) for column in zip(*(one[:NORM_STEPS] for one in references))]
    away = [abs(norm / mean - 1) for norm, mean in zip(ours, means)]
    others = max(abs(norm / mean - 1) for one in references for norm, mean in zip(one, means))
    line = (f"norms of steps 1 to {NORM_STEPS}: at most {max(away):.3%} from the references' mean (step "
            f"{away.index(max(away)) + 1}); the references themselves at most {others:.3%}")
    return [line], all(one <= NORM_LIMIT for one in away)


def judge_losses(ours: Sequence[float], references: Sequence[Sequence[float]]) -> tuple[list[str], bool]:
    """Lines about the losses of later steps, and whether ours are in the band in all windows."""
    windows, own = [windows_of(one) for one in references], windows_of(ours)
    if not own:
        raise ValueError(f"expected at least {NORM_STEPS + WINDOW} steps")
    band = band_of(windows)
    inside = inside_band(own, band)
    lines = [f"{'steps':>9} {'ours':>9} {'mean':>9} {'lowest':>9} {'highest':>9} {'band +-':>9}"]
    between = 0
    for i, (value, (centre, width)) in enumerate(zip(own, band)):
        first, column = NORM_STEPS + i * WINDOW + 1, [one[i] for one in windows]
        between += min(column) <= value <= max(column)
        lines.append(f"{first:>4}-{first + WINDOW - 1:<4} {value:9.5f} {centre:9.5f} {min(column):9.5f} "
                     f"{max(column):9.5f} {width:9.5f}{'' if inside[i] else '  OUTSIDE'}")
    lines.append(f"losses: in the band in {sum(inside)} of {len(own)} windows, between the lowest and the "
                 f"highest reference in {between}")
    for i, one in enumerate(windows) if len(windows) > 2 else ():
        others = band_of([*windows[:i], *windows[i + 1:]])
        lines.append(f"  reference {i + 1} against the others: in the band in {sum(inside_band(one, others))} of {len(own)}")
    return lines, all(inside)
