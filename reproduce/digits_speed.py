"""Float64 products by digits and residues on a GPU, after Ootomo's slides: over n, and over the spread of exponents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import ozaki
from benchmarks.devices import Device
from benchmarks.measure import drawn
from benchmarks.results import Shape
from reproduce.data import spread_normal
from reproduce.figures import Claim, Figure, Series, between, since
from reproduce.speed import Product, over, ratios, speeds

DGEMM, INT8, FP16, RESIDUES = "cuBLAS DGEMM", "int8 digits", "FP16 digits", "residues"

SCHEMES = {INT8: "digits", FP16: "fp16-digits", RESIDUES: "residues"}

_PLANNED = (
    "Times are those of products whose number of slices was planned from the data before, for a proven componentwise "
    "4 sqrt(n) 2^-53; the operands are cut in each."
)

_CARDS = (
    "The slides name no GPU for this plot, of 2020. Many cards compute FP64 at a 32nd or 64th of the speed of FP32; "
    "those of data centres have tensor cores for it, and native DGEMM is another rival there."
)


@dataclass(frozen=True)
class Planned:
    """The ways to multiply two matrices, and the slices that each needs."""

    products: tuple[Product, ...]
    slices: dict[str, int]

    @classmethod
    def of(cls, device: Device, a: Any, b: Any) -> Planned:
        out = device.xp.empty((a.shape[0], b.shape[1]), np.float64)
        native = Product(DGEMM, partial(device.xp.matmul, a, b, out=out), out, a.shape[1] * 2.0**-52)
        plans = {name: ozaki.plan(a, b, scheme=scheme) for name, scheme in SCHEMES.items()}
        ours = (
            Product(name, partial(ozaki.matmul, a, b, plan=plan, out=out), out, plan.bound)
            for name, plan in plans.items()
        )
        return cls((native, *ours), {name: plan.slices for name, plan in plans.items()})


def figures(
    device: Device, sizes: Sequence[int], n: int, phis: Sequence[float], min_seconds: float = 0.1
) -> Iterator[Figure]:
    """Throughput over the sizes; and over phi, at one size."""
    yield against_n(over((n, of_normal(device, n, min_seconds)) for n in sizes))
    slices: dict[float, dict[str, int]] = {}
    rates: list[tuple[float, dict[str, float]]] = []
    for phi in phis:
        rng = device.xp.random.default_rng(0)
        a, b = (spread_normal(rng, (n, n), phi) for _ in range(2))
        planned = Planned.of(device, a, b)
        slices[phi] = planned.slices
        rates.append((phi, speeds(device, a, b, planned.products, min_seconds)))
    yield against_phi(over(rates), slices, n)


def of_normal(device: Device, n: int, min_seconds: float) -> dict[str, float]:
    """TFLOP/s of n x n products of N(0, 1)."""
    a, b = drawn(device, Shape.square(n), "float64", 0)
    return speeds(device, a, b, Planned.of(device, a, b).products, min_seconds)


def compared(series: Series, name: str, other: str) -> tuple[str, bool]:
    """How fast one is beside the other at the largest size, since when it is faster, and whether it is at the end."""
    ratio = ratios(series, name, other)
    last = ratio[max(ratio)]
    faster = since("faster", {n: y > 1 for n, y in ratio.items()})
    return f"{last:.2g} times as fast at n = {max(ratio)}, {faster}", last > 1


def against_n(series: Series) -> Figure:
    """TFLOP/s over n."""
    claims = (
        Claim("int8 tensor cores have twice the throughput of FP16, so int8 digits are faster",
              *compared(series, INT8, FP16)),
        Claim("the scheme is faster than cublasDgemm, on FP16 tensor cores", *compared(series, FP16, DGEMM)),
        Claim("(not in the slides) int8 digits are faster than cublasDgemm", *compared(series, INT8, DGEMM)),
        Claim("(not in the slides) residues are faster than digits", *compared(series, RESIDUES, INT8)),
        Claim("(not in the slides) residues are faster than cublasDgemm", *compared(series, RESIDUES, DGEMM)),
    )  # fmt: skip
    return Figure("Throughput", "n x n products, N(0, 1), float64", "n", "TFLOP/s (2 n³ / time)", series, claims,
                  f"{_PLANNED} {_CARDS}")  # fmt: skip


def against_phi(series: Series, slices: dict[float, dict[str, int]], n: int) -> Figure:
    """TFLOP/s over the spread of exponents."""
    (first, last), speed = (min(slices), max(slices)), {name: dict(points) for name, points in series.items()}

    def slower(name: str) -> Claim:
        shown = (f"{speed[name][phi]:.3g} TFLOP/s with {slices[phi][name]} slices at phi = {phi}"
                 for phi in (first, last))  # fmt: skip
        worse = slices[last][name] > slices[first][name] and speed[name][last] < speed[name][first]
        return Claim(f"{name}: a larger phi needs more splits, and costs throughput", ", ".join(shown), worse)

    def faster(published: str, name: str, other: str) -> Claim:
        ratio = [speed[name][phi] / speed[other][phi] for phi in slices]
        return Claim(published, f"{between(ratio)} as fast", min(ratio) > 1)

    claims = (
        slower(FP16),
        slower(INT8),
        faster("FP16 digits are faster than cublasDgemm", FP16, DGEMM),
        faster("int8 digits are faster than FP16 digits", INT8, FP16),
        faster("(not in the slides) int8 digits are faster than cublasDgemm", INT8, DGEMM),
    )
    return Figure("Throughput against phi", f"(rand - 0.5) exp(phi randn), n = {n}, float64", "phi",
                  "TFLOP/s (2 n³ / time)", series, claims, f"{_PLANNED} {_CARDS}", "x")  # fmt: skip
