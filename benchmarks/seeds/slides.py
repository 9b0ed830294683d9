"""Ootomo's slides, DGEMM on Integer Tensor Cores (2023): digits, and the simulation of a quantum circuit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

import ozaki
from benchmarks.seeds.data import spread_normal
from benchmarks.seeds.figures import Claim, Figure
from ozaki.schemes.digits import fp16_digit_bits

SEED = "slides"

SCALES = {"small": (16, 6), "cpu": (128, 12), "full": (1024, 16)}
"""Rows and columns, and qubits."""

K = 4096

PHIS = (0.1, 0.5, 1.0, 2.0, 4.0)

Complex = npt.NDArray[np.complex128]


def figures(scale: str, rng: np.random.Generator) -> Iterator[Figure]:
    """What needs no GPU: digits, splits and products against the spread of exponents, and the circuit."""
    n, qubits = SCALES[scale]
    yield bits_of_digits()
    yield splits(n, rng)
    yield circuit(qubits, 10 * qubits, rng)


def bits_of_digits() -> Figure:
    points = [(2.0**e, float(fp16_digit_bits(2**e))) for e in range(11, 17)]
    series = {"FP16 tensor cores": points, "int8 tensor cores": [(k, 8.0) for k, _ in points]}
    low, high = min(b for _, b in points), max(b for _, b in points)
    expected = "the effective length on FP16 tensor cores is 5 to 7 bits, of 11"
    claim = Claim(expected, f"{low:g} to {high:g} bits", (low, high) == (5, 7))
    differs = "Balanced digits: the sign counts as a bit, here and in the 8 of int8, of which the slides use 7."
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
    claims = (
        Claim("int8 needs less working memory and fewer products than FP16 for the same accuracy",
              f"{int8:g} and {fp16:g} products at phi = {PHIS[0]}", fewer),
        Claim("a larger phi needs more splits", f"{first:g} slices at phi = {PHIS[0]}, {last:g} at {PHIS[-1]}",
              last > first),
    )  # fmt: skip
    differs = (
        f"{n} rows and columns; the throughput needs a GPU. The accuracy is a proven componentwise 4 sqrt(k) 2^-53."
    )
    return Figure("Splits against phi", f"Slices for FP64, k = {K}", "phi", "number", series, claims, differs, "x")


# A circuit of random gates on two qubits --------------------------------------------------------------------------


def random_gate(rng: np.random.Generator) -> Complex:
    """A random unitary 4 x 4 matrix."""
    x = rng.standard_normal((4, 4)) + 1j * rng.standard_normal((4, 4))
    unitary: Complex = np.linalg.qr(x)[0]
    return unitary


def native(gate: Complex, state: Complex) -> Complex:
    product: Complex = gate @ state
    return product


def emulated(gate: Complex, state: Complex) -> Complex:
    """The product through exact real ones: [re -im; im re] [re; im], to the accuracy of FP64."""
    left = np.block([[gate.real, -gate.imag], [gate.imag, gate.real]])
    right = np.concatenate([state.real, state.imag])
    product = ozaki.matmul(left, right, accuracy="fp64", reproducible=True)
    return product[:4] + 1j * product[4:]


def apply(multiply: object, gate: Complex, state: Complex, first: int, second: int) -> Complex:
    """A gate on two qubits of a state of shape (2, ..., 2)."""
    assert callable(multiply)
    front = np.moveaxis(state, (first, second), (0, 1))
    product = multiply(gate, np.ascontiguousarray(front.reshape(4, -1)))
    return np.moveaxis(product.reshape(front.shape), (0, 1), (first, second))


def circuit(qubits: int, gates: int, rng: np.random.Generator) -> Figure:
    """Amplitudes after each gate, emulated against native."""
    states = {}
    for name in ("native", "emulated"):
        states[name] = np.zeros((2,) * qubits, np.complex128)
        states[name][(0,) * qubits] = 1
    differences, norms = [], []
    for step in range(1, gates + 1):
        gate = random_gate(rng)
        first, second = rng.permutation(qubits)[:2]
        for name, multiply in (("native", native), ("emulated", emulated)):
            states[name] = apply(multiply, gate, states[name], int(first), int(second))
        differences.append((float(step), float(np.abs(states["native"] - states["emulated"]).max())))
        norms.append((float(step), float(abs(np.linalg.norm(states["emulated"]) - 1))))
    worst, off = (max(y for _, y in points) for points in (differences, norms))
    claims = (
        Claim("the accuracy is almost that of native FP64", f"amplitudes differ by {worst:.1g} after {gates} gates",
              worst < 1e-14),
        Claim("the state keeps its norm", f"off by {off:.1g}", off < 1e-13),
    )  # fmt: skip
    series = {"largest difference of an amplitude": differences}
    differs = "Random gates on two qubits of our own circuit; complex products as real ones. Time needs a GPU."
    return Figure("Quantum circuit", f"State of {qubits} qubits", "gates", "difference", series, claims, differs, "y")
