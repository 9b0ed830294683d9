"""Ootomo's slides, DGEMM on Integer Tensor Cores (2023): digits, and the simulation of a quantum circuit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import ozaki
from benchmarks.devices import Device
from benchmarks.seeds import circuit, digits_speed
from benchmarks.seeds.data import spread_normal
from benchmarks.seeds.figures import Claim, Figure
from ozaki.schemes.digits import fp16_digit_bits

SEED = "slides"

SCALES = {"small": (16, 6), "cpu": (128, 12), "full": (1024, 16)}
"""Rows and columns, and qubits."""

K = 4096

PHIS = (0.1, 0.5, 1.0, 2.0, 4.0)

SIZES = {"small": (256, 512), "cpu": (1024, 2048, 4096), "full": (1024, 2048, 4096, 8192, 16384)}
"""Of the products whose throughput a GPU shows."""

SPREAD = {"small": 512, "cpu": 4096, "full": 4096}
"""Of those whose exponents spread."""

GATES = {"small": (12, (2, 4, 6)), "cpu": (20, (4, 6, 8, 10)), "full": (24, (4, 6, 8, 10, 12))}
"""Qubits of a circuit on a GPU, and of its gates."""


def figures(scale: str, rng: np.random.Generator) -> Iterator[Figure]:
    """What needs no GPU: digits, splits and products against the spread of exponents, and the circuit."""
    n, qubits = SCALES[scale]
    yield bits_of_digits()
    yield splits(n, rng)
    yield circuit.circuit(qubits, 10 * qubits, rng)


def figures_on_gpu(device: Device, scale: str, rng: np.random.Generator) -> Iterator[Figure]:
    """Throughput over n and over the spread of exponents, and the circuit's accuracy and time."""
    yield from digits_speed.figures(device, SIZES[scale], SPREAD[scale], PHIS)
    yield from circuit.timed(device, *GATES[scale], 10, rng)


def bits_of_digits() -> Figure:
    points = [(2.0**e, float(fp16_digit_bits(2**e))) for e in range(11, 17)]
    series = {"FP16 tensor cores": points, "int8 tensor cores": [(k, 8.0) for k, _ in points]}
    low, high = min(b for _, b in points), max(b for _, b in points)
    expected = "the effective length on FP16 tensor cores is 5 to 7 bits, of 11"
    claim = Claim(expected, f"{low:g} to {high:g} bits for k from 2^11 to 2^16", (low, high) == (5, 7))
    differs = "Balanced digits: the sign counts as a bit, here and in the 8 of int8. 8 bits at k = 2^10, 4 at 2^17."
    return Figure("Bits of a digit", "Bits of exact digits", "k", "bits", series, (claim,), differs, "x")


def splits(n: int, rng: np.random.Generator) -> Figure:
    """Slices and products for the accuracy of FP64, and the bytes of the slices, against phi."""
    series: dict[str, list[tuple[float, float]]] = {}
    for phi in PHIS:
        a, b = spread_normal(rng, (n, K), phi), spread_normal(rng, (K, n), phi)
        target = ozaki.Accuracy("componentwise", 4 * np.sqrt(K) * 2.0**-53)
        for name, scheme, size in (("int8 digits", "digits", 1), ("FP16 digits", "fp16-digits", 2)):
            plan = ozaki.plan(a, b, scheme=scheme, accuracy=target)
            series.setdefault(f"{name}, slices", []).append((phi, plan.slices))
            series.setdefault(f"{name}, products", []).append((phi, plan.products))
            series.setdefault(f"{name}, bytes an element", []).append((phi, plan.slices * size))
    fewer = all(
        x[1] < y[1] for what in ("products", "bytes an element")
        for x, y in zip(series[f"int8 digits, {what}"], series[f"FP16 digits, {what}"], strict=True)
    )  # fmt: skip
    first, last = series["int8 digits, slices"][0][1], series["int8 digits, slices"][-1][1]
    int8, fp16 = (series[f"{name} digits, products"][0][1] for name in ("int8", "FP16"))
    bytes8, bytes16 = (series[f"{name} digits, bytes an element"][0][1] for name in ("int8", "FP16"))
    claims = (
        Claim("int8 needs less working memory and fewer products than FP16 for the same accuracy",
              f"{int8:g} and {fp16:g} products, {bytes8:g} and {bytes16:g} bytes an element at phi = {PHIS[0]}", fewer),
        Claim("a larger phi needs more splits", f"{first:g} slices at phi = {PHIS[0]}, {last:g} at {PHIS[-1]}",
              last > first),
    )  # fmt: skip
    differs = f"{n} rows and columns. The accuracy is a proven componentwise 4 sqrt(k) 2^-53."
    return Figure("Splits against phi", f"Slices for FP64, k = {K}", "phi", "number", series, claims, differs, "x")
