"""Ootomo's slides, DGEMM on Integer Tensor Cores (2023): digits, and the simulation of a quantum circuit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import ozaki
from benchmarks.devices import Device
from ozaki.schemes.digits import fp16_digit_bits
from ozaki.schemes.image import ceil_log2
from reproduce import circuit, digits_speed
from reproduce.data import spread_normal
from reproduce.figures import Claim, Figure, Series

SEED = "slides"

SCALES = {"small": (16, 6), "cpu": (128, 12), "full": (1024, 16)}
"""Rows and columns of the products, and qubits of the circuit, by scale."""

K = 4096

PHIS = (0.1, 0.5, 1.0, 2.0, 4.0)

SIZES = {"small": (256, 512), "cpu": (1024, 2048, 4096), "full": (1024, 2048, 4096, 8192, 16384)}
"""n of the products whose throughput a GPU shows, by scale."""

SPREAD = {"small": 512, "cpu": 4096, "full": 4096}
"""n of the products whose exponents spread, by scale."""

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
    """Without the sign, as FP16's 11 are."""
    ks = [2**e for e in range(8, 19)]
    fp16 = {k: fp16_digit_bits(k) - 1 for k in ks}
    series: Series = {
        "FP16 tensor cores": list(fp16.items()),
        "int8 tensor cores": [(k, min(7, (31 - ceil_log2(k)) // 2)) for k in ks],
    }
    within = [k for k, bits in fp16.items() if 5 <= bits <= 7]
    claim = Claim(
        "the effective length on FP16 tensor cores is 5 to 7 bits, of 11", f"for k from {within[0]} to {within[-1]}",
        within[0] <= 1024 and within[-1] >= 16384,
    )  # fmt: skip
    differs = "What sums in FP32 and in int32 leave to digits whose products they add exactly, without their signs."
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
