"""Ootomo and Yokota on a GPU: throughput and roofline, figures 14 and 15."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.devices import Device
from benchmarks.measure import rows_of
from benchmarks.results import Row, Shape
from benchmarks.routines import Account, Routine, routines
from reproduce.cublas import Compute, gemm
from reproduce.figures import Claim, Figure, Series, since
from reproduce.speed import ratios

HALFHALF, TF32TF32, SGEMM = "ozaki halfhalf", "ozaki tf32tf32", "cublas sgemm"

RIVALS = {"cublas TF32": Compute.FP32_BY_TF32, "cublas FP16": Compute.FP32_BY_FP16}
"""The dashed lines of figure 14: one product, its operands converted by cuBLAS."""


@dataclass(frozen=True)
class Peaks:
    """What the vendor's data sheet says: TFLOP/s without sparsity, TB/s of memory."""

    fp16: float
    tf32: float
    fp32: float
    memory: float


PEAKS = {"NVIDIA H200": Peaks(989, 494, 67, 4.8)}
"""By name of the device; without its ceilings there is no roofline."""

_WHOLE = (
    "N(0, 1) on one device. Times are those of whole calls, in which float32 operands are scaled and cut into words "
    "that are written to memory; the paper cuts them inside the kernel. Where n is small, the launches of several "
    "kernels take longer than the product. Of the paper's cards the A100 is quoted alone."
)


def compared(device: Device) -> list[Routine]:
    """cuBLAS SGEMM, halfhalf, tf32tf32 and the rivals."""
    known = {routine.name: routine for routine in routines("float32", device.xp, device.blas)}
    rivals = [
        Routine(name, False, partial(gemm, compute=compute), lambda a, b: Account(None, 1))
        for name, compute in RIVALS.items()
    ]
    return [known[name] for name in (SGEMM, HALFHALF, TF32TF32)] + rivals


def measured(device: Device, sizes: Sequence[int], min_seconds: float) -> list[Row]:
    """All of them at all sizes, their answers checked."""
    return [
        row
        for n in sizes
        for row in rows_of("float32", "float32", device, Shape.square(n), compared(device), 0, min_seconds)
    ]


def figures(rows: Sequence[Row], peaks: Peaks | None) -> Iterator[Figure]:
    """Both; without known peaks the first."""
    yield throughput(rows, peaks)
    if peaks is not None:
        yield roofline(rows, peaks)


def by_routine(rows: Sequence[Row]) -> Series:
    """TFLOP/s over n."""
    series: Series = {}
    for row in rows:
        series.setdefault(row.routine, []).append((row.n, row.tflops or 0))
    return series


def fastest(series: Series, name: str) -> float:
    return max(y for _, y in series[name])


def throughput(rows: Sequence[Row], peaks: Peaks | None) -> Figure:
    series = by_routine(rows)
    claims = []
    for name in (HALFHALF, TF32TF32):
        ratio = ratios(series, name, SGEMM)
        faster = since("faster", {n: y > 1 for n, y in ratio.items()})
        claims.append(Claim(f"{name.split()[1]} is faster than cuBLAS SGEMM for all sizes on the A100",
                            f"at least {min(ratio.values()):.2g} times as fast, {faster}",
                            min(ratio.values()) > 1))  # fmt: skip
    both = [fastest(series, name) for name in (HALFHALF, TF32TF32)]
    shown = "{:.3g} and {:.3g} TFLOP/s".format(*both)
    if peaks is not None:
        claims.append(Claim("both exceed the theoretical peak of FP32: 51 and 33 of 19.5 TFLOP/s on the A100 (45 and "
                            "29 in the report)", f"{shown}, of {peaks.fp32:g}", min(both) > peaks.fp32))  # fmt: skip
    claims.append(Claim("halfhalf is faster than tf32tf32", shown, both[0] > both[1]))
    return Figure(
        "Figure 14", "Throughput of n x n products", "n", "TFLOP/s (2 n³ / time)", series, tuple(claims), _WHOLE
    )


def roofline(rows: Sequence[Row], peaks: Peaks) -> Figure:
    """Speed over operations for each byte of three float32 matrices, 2 n³ / (12 n²)."""
    reached = {name: points for name, points in by_routine(rows).items() if name in (SGEMM, HALFHALF, TF32TF32)}
    series: Series = {name: [(n / 6, y) for n, y in points] for name, points in reached.items()}
    ceilings = {HALFHALF: peaks.fp16 / 3, TF32TF32: peaks.tf32 / 3, SGEMM: peaks.fp32}
    names = {HALFHALF: "FP16 / 3, theory", TF32TF32: "TF32 / 3, theory", SGEMM: "FP32, theory"}
    span = [x for x, _ in series[SGEMM]]
    for name, ceiling in ceilings.items():
        ridge = ceiling / peaks.memory
        xs = sorted({min(*span, ridge / 4), ridge, max(span)})
        series[names[name]] = [(x, min(ceiling, peaks.memory * x)) for x in xs]
    shares = {name: fastest(reached, name) / ceilings[name] for name in (HALFHALF, TF32TF32)}
    claim = Claim(
        "neither reaches its ceilings, tf32tf32 comes closer: halfhalf 49% of a third of the FP16 peak, tf32tf32 63% "
        "of a third of the TF32 peak on the A100",
        f"{shares[HALFHALF]:.0%} and {shares[TF32TF32]:.0%}", shares[HALFHALF] < shares[TF32TF32] < 1,
    )  # fmt: skip
    differs = f"All sizes, not the fastest and the slowest alone. {_WHOLE} Peaks are those of the vendor's data sheet."
    return Figure("Figure 15", "Roofline", "FLOP / byte", "TFLOP/s", series, (claim,), differs)
