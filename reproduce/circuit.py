"""The simulation of a quantum circuit on its state vector, as in Ootomo's slides: products emulated, and native."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

import ozaki
from benchmarks.devices import Device, median_seconds
from reproduce.figures import Claim, Figure, Series, since
from reproduce.speed import ratios

Complex = npt.NDArray[np.complex128]

Multiply = Callable[[Any, Any], Any]

COMPLEX, OF_PARTS = "emulated", "emulated, as real products"
"""Names of the ways to emulate: by complex products, and by real ones of real and imaginary parts."""


def random_gate(size: int, rng: Any, xp: Any = np) -> Any:
    """A random unitary matrix."""
    x = rng.standard_normal((size, size)) + 1j * rng.standard_normal((size, size))
    return xp.linalg.qr(x)[0]


def native(gate: Any, state: Any) -> Any:
    return gate @ state


def emulated(gate: Any, state: Any) -> Any:
    """The complex product, to the accuracy of FP64, by integer slices."""
    return ozaki.matmul(gate, state, accuracy="fp64", reproducible=True)


def of_parts(gate: Any, state: Any, xp: Any = np) -> Any:
    """The same through a real product: [re -im; im re] [re; im]."""
    top, bottom = xp.concatenate([gate.real, -gate.imag], 1), xp.concatenate([gate.imag, gate.real], 1)
    right = xp.concatenate([state.real, state.imag])
    product = ozaki.matmul(xp.concatenate([top, bottom]), right, accuracy="fp64", reproducible=True)
    return product[: len(gate)] + 1j * product[len(gate) :]


# Gates on any two qubits ------------------------------------------------------------------------------------------


def apply(multiply: Multiply, gate: Complex, state: Complex, first: int, second: int) -> Complex:
    """A gate on two qubits of a state of shape (2, ..., 2)."""
    front = np.moveaxis(state, (first, second), (0, 1))
    product = multiply(gate, np.ascontiguousarray(front.reshape(4, -1)))
    return np.moveaxis(product.reshape(front.shape), (0, 1), (first, second))


def circuit(qubits: int, gates: int, rng: np.random.Generator) -> Figure:
    """Amplitudes after each gate, emulated against native."""
    ways: dict[str, Multiply] = {"native": native, COMPLEX: emulated, OF_PARTS: of_parts}
    states = {}
    for name in ways:
        states[name] = np.zeros((2,) * qubits, np.complex128)
        states[name][(0,) * qubits] = 1
    differences: Series = {name: [] for name in (COMPLEX, OF_PARTS)}
    norms = []
    for step in range(1, gates + 1):
        gate = random_gate(4, rng)
        first, second = rng.permutation(qubits)[:2]
        for name, multiply in ways.items():
            states[name] = apply(multiply, gate, states[name], int(first), int(second))
        for name, points in differences.items():
            points.append((float(step), float(np.abs(states["native"] - states[name]).max())))
        norms.append((float(step), float(abs(np.linalg.norm(states[COMPLEX]) - 1))))
    worst, off = (max(y for _, y in points) for points in (differences[COMPLEX], norms))
    claims = (
        Claim("the accuracy is almost that of native FP64", f"amplitudes differ by {worst:.1g} after {gates} gates",
              worst < 1e-14),
        Claim("(not in the slides) the state keeps its norm", f"off by {off:.1g}", off < 1e-13),
    )  # fmt: skip
    differs = (
        "Random gates on two qubits of our own circuit: the largest difference of an amplitude from that of native "
        "products. Complex products are two real ones for each modulus; the other way is a real product of four times "
        "the size."
    )
    return Figure(
        "Quantum circuit", f"State of {qubits} qubits", "gates", "difference", differences, claims, differs, "y"
    )


# Gates on neighbours, timed on a GPU ------------------------------------------------------------------------------


def apply_to_neighbours(multiply: Multiply, gate: Any, state: Any, first: int) -> Any:
    """A gate of any size on a flat state: on as many qubits, from the first on."""
    size = len(gate)
    front = state.reshape(2**first, size, -1).swapaxes(0, 1)
    product = multiply(gate, front.reshape(size, -1))
    return product.reshape(front.shape).swapaxes(0, 1).reshape(-1)


def timed(
    device: Device,
    qubits: int,
    widths: tuple[int, ...],
    gates: int,
    rng: np.random.Generator,
    min_seconds: float = 0.05,
) -> Iterator[Figure]:
    """Seconds of a gate over the number of its qubits, and amplitudes after such gates, emulated against native."""
    xp = device.xp
    ways: dict[str, Multiply] = {"native": native, COMPLEX: emulated, OF_PARTS: partial(of_parts, xp=xp)}
    seconds: Series = {name: [] for name in ways}
    off = dict.fromkeys(ways, 0.0)
    differences: Series = {name: [] for name in (COMPLEX, OF_PARTS)}
    for width in widths:
        gate = random_gate(2**width, xp.random.default_rng(width), xp)
        states = {}
        for name in ways:
            states[name] = xp.zeros(2**qubits, np.complex128)
            states[name][0] = 1
        for first in rng.integers(0, qubits - width + 1, gates):
            for name, multiply in ways.items():
                states[name] = apply_to_neighbours(multiply, gate, states[name], int(first))
        for name, points in differences.items():
            points.append((width, float(xp.abs(states["native"] - states[name]).max())))
        for name, multiply in ways.items():
            off[name] = max(off[name], abs(float(xp.linalg.norm(states[name])) - 1))
            step = partial(apply_to_neighbours, multiply, gate, states[name], (qubits - width) // 2)
            seconds[name].append((width, median_seconds(device, [step], min_seconds)))
        device.release()
    yield accuracy(differences, off, qubits, gates)
    yield times(seconds, qubits)


_NEIGHBOURS = (
    "Random gates on neighbouring qubits of our own circuit, one for each width. Products are planned from the data in "
    "each call: complex ones, two real products for each modulus, and a real one of four times the size."
)


def accuracy(differences: Series, off: dict[str, float], qubits: int, gates: int) -> Figure:
    """Amplitudes, and norms."""
    worst = max(y for _, y in differences[COMPLEX])
    claims = (
        Claim("the accuracy is almost that of native FP64", f"amplitudes differ by {worst:.1g} after {gates} gates",
              worst < 1e-14),
        Claim("(not in the slides) the state keeps its norm",
              f"off by {off[COMPLEX]:.1g}, native {off['native']:.1g}", off[COMPLEX] < 1e-13),
    )  # fmt: skip
    title = f"State of {qubits} qubits after {gates} gates"
    return Figure("Quantum circuit", title, "qubits of a gate", "difference", differences, claims, _NEIGHBOURS, "y")


def times(seconds: Series, qubits: int) -> Figure:
    """Seconds of a gate."""
    claims = []
    for claim, fast, slow in (
        ("emulated is faster than native FP64: a circuit up to 4.33 times (Ootomo, Ozaki and Yokota, arXiv 2306.11975)",
         COMPLEX, "native"),
        ("(not in the slides) the same, by real products", OF_PARTS, "native"),
        ("(not in the slides) complex products are faster than real ones of their parts", COMPLEX, OF_PARTS),
    ):  # fmt: skip
        ratio = ratios(seconds, slow, fast)
        best, faster = max(ratio.values()), since("faster", {width: y > 1 for width, y in ratio.items()}, "width")
        claims.append(Claim(claim, f"up to {best:.2g} times as fast, {faster}", min(ratio.values()) > 1))
    differs = (
        f"{_NEIGHBOURS} Times are those of whole gates, with the state's qubits brought to the front and back. The "
        "slides' RTX A6000 Ada computes FP64 at a 64th of the speed of FP32; the cards of data centres have tensor "
        "cores for it."
    )
    return Figure("Quantum circuit, time", f"A gate on a state of {qubits} qubits", "qubits of a gate", "seconds",
                  seconds, tuple(claims), differs, "y")  # fmt: skip
