"""Ootomo and Yokota on a GPU: energy, figure 16 and table 6."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from math import ceil

from benchmarks.devices import Device
from benchmarks.measure import drawn
from benchmarks.results import Row, Shape
from benchmarks.routines import Routine
from reproduce.figures import Claim, Figure, Series, since
from reproduce.power import MIN_SECONDS, WARM_UP, Meter, Spent, spent
from reproduce.speed import ratios
from reproduce.throughput import HALFHALF, SGEMM, TF32TF32, by_routine, compared, fastest

BURST = 0.1
"""Seconds of products that are begun before the host waits for them: waiting costs less than a thousandth then."""

COUNTER_AGREES = 0.1
"""Relative difference of the samples from the meter's own counter."""


def figures(
    device: Device, rows: Sequence[Row], meter: Meter, min_seconds: float = MIN_SECONDS, warm_up: float = WARM_UP
) -> Iterator[Figure]:
    """Both figures; `rows` are those of the same routines at the same sizes, already timed."""
    idle = spent(meter, partial(time.sleep, BURST), min_seconds, warm_up)
    spendings: dict[tuple[str, int], Spent] = {}
    products: dict[tuple[str, int], float] = {}
    for row in rows:
        count = ceil(BURST / row.seconds)
        work = burst(device, row, count)
        spendings[row.routine, row.n] = each = spent(meter, work, min_seconds, warm_up)
        products[row.routine, row.n] = each.joules / count
        device.release()
    yield joules(products, spendings, idle)
    yield summary(rows, products)


def burst(device: Device, row: Row, count: int) -> partial[float]:
    """A function that computes `count` products by the routine of a row, at its size, and waits for the last."""
    (routine,) = (routine for routine in compared(device) if routine.name == row.routine)
    a, b = drawn(device, Shape.square(row.n), row.dtype, 0)
    out = device.xp.empty_like(a)

    def multiply(routine: Routine = routine) -> None:
        for _ in range(count):
            routine.multiply(a, b, out)

    return partial(device.elapsed, multiply)


def over_n(products: dict[tuple[str, int], float]) -> Series:
    series: Series = {}
    for (name, n), y in products.items():
        series.setdefault(name, []).append((n, y))
    return series


def joules(products: dict[tuple[str, int], float], spendings: dict[tuple[str, int], Spent], idle: Spent) -> Figure:
    series = over_n(products)
    claims = []
    for name in (HALFHALF, TF32TF32):
        ratio = ratios(series, name, SGEMM)
        less = since("less", {n: y < 1 for n, y in ratio.items()})
        claims.append(Claim(f"{name.split()[1]} takes less energy than cuBLAS SGEMM for all sizes on the A100",
                            f"at most {max(ratio.values()):.2g} times its energy, {less}",
                            max(ratio.values()) < 1))  # fmt: skip
    off = max(abs(each.watts * each.seconds / each.counted - 1) for each in spendings.values())
    claims.append(Claim("(not in the paper) the samples agree with NVML's own counter of energy",
                        f"to {off:.1%}", off < COUNTER_AGREES))  # fmt: skip
    watts = {name: max(each.watts for (of, _), each in spendings.items() if of == name) for name in series}
    most_power = ", ".join(f"{name} {w:.0f} W" for name, w in watts.items())
    differs = (
        f"The power of the idle device, {idle.watts:.0f} W, is part of it; at most {most_power}. Whole calls on "
        "float32 operands, N(0, 1), the same ones again and again. Of small products launches and the idle device take "
        "most."
    )
    return Figure("Figure 16", "Energy of an n x n product", "n", "joules", series, tuple(claims), differs)


def summary(rows: Sequence[Row], products: dict[tuple[str, int], float]) -> Figure:
    """Table 6, with the numbers of section 4.3."""
    series = over_n({(name, n): 2e-9 * n**3 / y for (name, n), y in products.items()})
    best = {name: fastest(series, name) for name in (HALFHALF, TF32TF32, SGEMM)}
    shown = ", ".join(f"{y:.3g}" for y in best.values())
    claims = [
        Claim("at most 121 GFLOP/s for each watt with halfhalf, 80.9 with tf32tf32, 67.0 with cuBLAS SGEMM on the A100",
              shown, best[HALFHALF] > best[TF32TF32] > best[SGEMM])
    ]  # fmt: skip
    errors = {(row.routine, row.n): row.rms or 0 for row in rows}
    sizes = sorted({row.n for row in rows})
    speeds = by_routine(rows)
    for name, published in ((HALFHALF, "51 TFLOP/s, lower consumption, a limited exponent range"),
                            (TF32TF32, "33 TFLOP/s, lower consumption")):  # fmt: skip
        error = max(errors[name, n] / errors[SGEMM, n] for n in sizes)
        faster, energy = (ratios(of, name, SGEMM) for of in (speeds, over_n(products)))
        better = {n: faster[n] > 1 > energy[n] for n in sizes}
        claims.append(Claim(
            f"{name.split()[1]}: the accuracy of cuBLAS SGEMM, faster, at most {published}",
            f"at most {error:.2g} times its rms error, at least {min(faster.values()):.2g} times as fast, "
            f"{fastest(speeds, name):.3g} TFLOP/s, at most {max(energy.values()):.2g} times its energy; "
            f"{since('faster, with less energy,', better)}",
            error <= 1 and all(better.values()),
        ))  # fmt: skip
    differs = (
        "GFLOP/s for each watt are quoted from section 4.3. Scaled rows and columns give halfhalf the whole range of "
        "FP32 here. Of small products launches and the idle device take most."
    )
    return Figure("Table 6", "Summary", "n", "GFLOP/s for each watt", series, tuple(claims), differs)
