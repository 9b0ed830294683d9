"""The density matrix of buckminsterfullerene, C60, by purification, and the energy of its electrons to 30 digits.

In Hueckel's tight-binding model each carbon atom has one orbital, which meets those of its three neighbours. The
density matrix P is the projection on the 30 orbitals of lowest energy. McWeeny's step 3 P^2 - 2 P^3 makes a matrix with
the right eigenvectors more and more of a projection, by products alone: no eigenvalues are computed.

P is symmetric, so that P P^T is a matrix times its own transpose: `ozaki.matmul` sees that by the memory, and
multiplies half of it.

The oracle are the eigenvalues of C60, which the symmetry of the molecule gives in closed form.
"""

from itertools import product

import mpmath
import numpy as np

import ozaki

BITS = 106


def bonds():
    """Which of the 60 atoms are neighbours: a matrix of zeros and ones."""
    phi = (1 + 5**0.5) / 2
    corners = {
        tuple(np.roll(np.array(corner) * signs, turn).round(6) + 0.0)
        for corner in ((0, 1, 3 * phi), (1, 2 + phi, 2 * phi), (phi, 2, 2 * phi + 1))
        for signs in product((1, -1), repeat=3)
        for turn in range(3)
    }
    atoms = np.array(sorted(corners))
    distances = np.linalg.norm(atoms[:, None] - atoms, axis=-1)
    return (abs(distances - 2) < 1e-3).astype(float)


def purified(p):
    """McWeeny's step, and how far P is from a projection: the largest entry of P^2 - P."""
    square = ozaki.matmul(p, p.T, accuracy=BITS)
    step = 3 * square - 2 * ozaki.matmul(p, square, accuracy=BITS)
    return step.round_to(BITS), float(abs(square - p).max())


def exact_energy():
    """Twice the sum of the 30 largest eigenvalues of the bonds, in units of the energy of a bond."""
    root = mpmath.sqrt
    levels = [
        (1, 3),
        (3, ((3 + root(5)) / 2 + root((19 - root(5)) / 2)) / 2),
        (5, (1 + root(13)) / 2),
        (3, ((3 - root(5)) / 2 + root((19 + root(5)) / 2)) / 2),
        (4, (root(17) - 1) / 2),
        (9, 1),
        (5, (root(5) - 1) / 2),
    ]
    assert sum(count for count, _ in levels) == 30
    return 2 * sum(count * level for count, level in levels)


def main():
    of_bonds = bonds()
    assert of_bonds.shape == (60, 60) and (of_bonds.sum(axis=0) == 3).all()
    middle = 0.25  # between the last level that has electrons and the first that has none
    p = ozaki.mparray(np.eye(60) / 2 + (of_bonds - middle * np.eye(60)) / 8, bits=BITS)  # eigenvalues between 0 and 1
    for step in range(1, 40):
        p, off = purified(p)
        if step % 4 == 0 or off < 1e-28:
            print(f"  step {step:2}: P^2 - P at most {off:.0e}")
        if off < 1e-28:
            break
    exactly = p.to_fractions()
    with mpmath.workdps(40):
        energy = 2 * mpmath.fraction(*(exactly * of_bonds.astype(int)).sum().as_integer_ratio())
        error = abs(energy / exact_energy() - 1)
        print(f"  {float(2 * exactly.trace()):.12f} electrons, energy {mpmath.nstr(energy, 30)}")
    print(f"  its relative error is {float(error):.0e}, by the closed form of the eigenvalues")
    assert error < 1e-29


if __name__ == "__main__":
    main()
