"""A quantum Fourier transform of 12 qubits, gate by gate, with a proven bound of the error of its amplitudes.

A gate on one or two qubits is a unitary matrix, which multiplies the complex amplitudes of states, a column for each
setting of the other qubits. Of each product a report has the bound, and gates are unitary, so that errors add up and do
not grow. Products by a given number of slices have the same bits on every device, and whatever is computed beside them.

The oracle is the transform of a basis state in closed form, exp(2 pi i x y / N) / sqrt(N), in 30 digits.
"""

import mpmath
import numpy as np

import ozaki

QUBITS = 12


def gates():
    """The gates of the transform in order: the qubits, and the matrix."""
    hadamard = np.array([[1, 1], [1, -1]]) / np.sqrt(2)
    for q in range(QUBITS):
        yield (q,), hadamard.astype(complex)
        for other in range(q + 1, QUBITS):
            yield (q, other), np.diag([1, 1, 1, np.exp(2j * np.pi / 2 ** (other - q + 1))])


def applied(gate, qubits, states):
    """States of shape (number, 2, ..., 2) after a gate, and a bound of the norm of what each of them is off."""
    axes, front = [1 + q for q in qubits], range(len(qubits))
    moved = np.moveaxis(states, axes, front)
    product, report = ozaki.matmul(
        gate, moved.reshape(len(gate), -1), accuracy="fp64", scheme="residues", slices=16, return_report=True
    )
    # abs(E) <= bound abs(gate) abs(state) for each entry, and the norm of abs(gate) is at most that of all its entries.
    off = report.bound * np.linalg.norm(gate)
    return np.moveaxis(product.reshape(moved.shape), front, axes), off


def transformed(states):
    """The transform of states, and the bound of what rounded products add; the qubits come out in reverse order."""
    total = 0.0
    for qubits, gate in gates():
        states, off = applied(gate, qubits, states)
        total += off
    return states.transpose(0, *range(QUBITS, 0, -1)), total


def basis_state(x):
    state = np.zeros(2**QUBITS, complex)
    state[x] = 1
    return state.reshape(1, *(2,) * QUBITS)


def worst_amplitude(state, x):
    """The largest error of an amplitude of the transform of basis state x."""
    size = 2**QUBITS
    with mpmath.workdps(30):
        exact = [mpmath.expjpi(mpmath.mpf(2 * x * y % (2 * size)) / size) / mpmath.sqrt(size) for y in range(size)]
        return float(max(abs(mpmath.mpc(c) - e) for c, e in zip(state.ravel().tolist(), exact, strict=True)))


def main():
    states = np.concatenate([basis_state(x) for x in (1, 1234)])
    together, bound = transformed(states)
    print(f"{QUBITS} qubits, {sum(1 for _ in gates())} gates; all rounded products are off by less than {bound:.0e}")
    for state, x in zip(together, (1, 1234), strict=True):
        error = worst_amplitude(state, x)
        print(f"  basis state {x:4}: amplitudes of {2**-6:.4f} are right to {error:.0e}")
        # The entries of gates are rounded, too: each gate is off by a few units in the last place.
        assert error < bound + 4 * sum(1 for _ in gates()) * 2.0**-53
        alone, _ = transformed(basis_state(x))
        assert (alone[0] == state).all()
    print("  each state alone has the same bits")


if __name__ == "__main__":
    main()
