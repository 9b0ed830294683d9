"""The ground state of a Heisenberg chain of 10 spins by DMRG, and its energy to 27 digits.

The density-matrix renormalisation group (White 1992) writes a state as a chain of tensors, a matrix product state, and
improves two neighbours at a time, in sweeps to and fro. It is a NumPy program, whose products `ozaki.emulate` runs.

How good is the state? Some eigenvalue of H lies within the square root of the variance <H^2> - <H>^2 of its energy. The
better the state, the more of this difference cancels, until float64 finds noise. With products of every bit, energy and
variance of the very same tensors are fractions, and Temple's inequality says that the energy is above the lowest
eigenvalue by at most the variance over the distance to the next one.

The oracle is exact diagonalisation, by `ozaki.linalg.eigh`, which proves 30 digits of both eigenvalues.
"""

from itertools import combinations
from math import sqrt

import mpmath
import numpy as np

import ozaki

SPINS, BOND, SWEEPS = 10, 32, 4


def hamiltonian():
    """The sum of S_i S_(i+1) as a chain of one tensor: (left bond, right bond, spin after, spin before)."""
    up = np.array([[0.0, 1], [0, 0]])
    z, one = np.diag([0.5, -0.5]), np.eye(2)
    w = np.zeros((5, 5, 2, 2))
    w[0, 0] = w[4, 4] = one
    w[0, 1], w[0, 2], w[0, 3] = up / 2, up.T / 2, z
    w[1, 4], w[2, 4], w[3, 4] = up.T, up, z
    return w


def at_site(site):
    """The tensor of a site: the ends have a row, or a column, of it."""
    w = hamiltonian()
    return w[:1] if site == 0 else w[:, 4:] if site == SPINS - 1 else w


# The sweeps, in NumPy ------------------------------------------------------------------------------------------------


def grown(left, a, w):
    """What lies to the left of the next bond, (bra, H, ket), from the left of this one."""
    x = np.tensordot(left, a, (2, 0))  # bra, H, spin, ket
    x = np.tensordot(x, w, ((1, 2), (0, 3)))  # bra, ket, H, spin
    return np.tensordot(a, x, ((0, 1), (0, 3))).transpose(0, 2, 1)


def mirrored(a):
    return a.transpose(2, 1, 0)


def applied(left, right, v, w):
    """H on the tensor of two sites (left bond, spin, spin, right bond), given what lies beside them."""
    x = np.tensordot(left, v, (2, 0))  # bra, H, spin, spin, ket
    x = np.tensordot(x, w[0], ((1, 2), (0, 3)))  # bra, spin, ket, H, spin
    x = np.tensordot(x, w[1], ((3, 1), (0, 3)))  # bra, ket, spin, H, spin
    return np.tensordot(x, right, ((3, 1), (1, 2)))


def lowest(apply, v, steps=8):
    """The lowest eigenvector of a symmetric map in the space of v, H v, H H v, ...: Lanczos."""
    basis = [v.ravel() / np.linalg.norm(v)]
    images = []
    for _ in range(steps):
        images.append(apply(basis[-1].reshape(v.shape)).ravel())
        rest = images[-1]
        for _ in range(2):
            rest = rest - np.dot(np.dot(np.array(basis), rest), np.array(basis))
        size = np.linalg.norm(rest)
        if size < 1e-13:
            break
        basis.append(rest / size)
    vectors = np.array(basis[: len(images)])
    small = np.dot(vectors, np.array(images).T)
    _, mixtures = np.linalg.eigh((small + small.T) / 2)
    return np.dot(mixtures[:, 0], vectors).reshape(v.shape)


def pair(state, site):
    return np.tensordot(state[site], state[site + 1], (2, 0))


def ground_state():
    """The tensors (left bond, spin, right bond) of a state of norm one, or nearly so."""
    state = [np.zeros((1, 2, 1)) for _ in range(SPINS)]
    for site in range(SPINS):
        state[site][0, site % 2, 0] = 1  # up, down, up, down
    left, right = {0: np.ones((1, 1, 1))}, {SPINS: np.ones((1, 1, 1))}
    w = [at_site(site) for site in range(SPINS)]
    for site in range(SPINS - 1, 1, -1):
        right[site] = grown(right[site + 1], mirrored(state[site]), w[site].swapaxes(0, 1))
    for _ in range(SWEEPS):
        for site in range(SPINS - 1):
            state[site], state[site + 1] = improved(state, site, left, right, w, rightwards=True)
            left[site + 1] = grown(left[site], state[site], w[site])
        for site in range(SPINS - 2, -1, -1):
            state[site], state[site + 1] = improved(state, site, left, right, w, rightwards=False)
            right[site + 1] = grown(right[site + 2], mirrored(state[site + 1]), w[site + 1].swapaxes(0, 1))
    return state


def improved(state, site, left, right, w, rightwards):
    """The best tensors of two neighbours: a singular value decomposition splits the lowest eigenvector of both."""
    v = lowest(lambda v: applied(left[site], right[site + 2], v, w[site : site + 2]), pair(state, site))
    u, s, vh = np.linalg.svd(v.reshape(v.shape[0] * 2, -1), full_matrices=False)
    kept = min(BOND, int((s > 1e-14).sum()))
    u, s, vh = u[:, :kept], s[:kept], vh[:kept]
    a, b = (u, s[:, None] * vh) if rightwards else (u * s, vh)
    return a.reshape(-1, 2, kept), b.reshape(kept, 2, -1)


# The energy and its variance, of any kind of numbers ------------------------------------------------------------------


def contracted(x, y, sums, multiply):
    """The sum of products over some axes of both, as `np.tensordot` has it, of multiprecision numbers, too."""
    sums = [[axis % z.ndim for axis in axes] for z, axes in zip((x, y), sums, strict=True)]
    of_x = [axis for axis in range(x.ndim) if axis not in sums[0]]
    of_y = [axis for axis in range(y.ndim) if axis not in sums[1]]
    rows, columns = [x.shape[axis] for axis in of_x], [y.shape[axis] for axis in of_y]
    length = int(np.prod([x.shape[axis] for axis in sums[0]]))
    left = x.transpose(*of_x, *sums[0]).reshape(-1, length)
    right = y.transpose(*sums[1], *of_y).reshape(length, -1)
    return multiply(left, right).reshape(*rows, *columns)


def moments(state, multiply):
    """<1>, <H> and <H^2> of a state."""
    found = []
    for power in range(3):
        x = np.ones((1,) * (power + 2))  # bonds to the left: of the bra, of each H, of the ket
        for site, a in enumerate(state):
            x = contracted(x, a, ((-1,), (0,)), multiply).swapaxes(-2, -1)
            for h in range(power, 0, -1):  # of which the bond comes before those of the ket and of later ones
                x = contracted(x, at_site(site), ((h, -1), (0, 3)), multiply)
            x = contracted(x, a, ((0, -1), (0, 1)), multiply)
            x = x.transpose(*reversed(range(x.ndim)))
        found.append(x.reshape(1))
    return found


def exact(x, y):
    """The product with all of its bits."""
    return ozaki.matmul(x, y, accuracy="exact", dtype="mp")


def rayleigh(state, multiply):
    """The energy and its variance, as fractions."""
    norm, first, second = (ozaki.mparray(x).to_fractions()[0] for x in moments(state, multiply))
    return first / norm, second / norm - (first / norm) ** 2


def matrix():
    """H between the states of as many spins up as down, among whose eigenvalues are all that H has."""
    states = {sum(1 << site for site in up): n for n, up in enumerate(combinations(range(SPINS), SPINS // 2))}
    h = np.zeros((len(states), len(states)))
    for state, n in states.items():
        for site in range(SPINS - 1):
            both = 3 << site
            unlike = (state & both) not in (0, both)
            h[n, n] += -0.25 if unlike else 0.25
            if unlike:
                h[states[state ^ both], n] += 0.5
    return h


def digits(fraction):
    with mpmath.workdps(40):
        return mpmath.nstr(mpmath.fraction(*fraction.as_integer_ratio()), 28, strip_zeros=False)


def main():
    with ozaki.emulate(accuracy="fp64") as run:
        state = ground_state()
    assert not run.account.left
    print(f"{SPINS} spins, {SWEEPS} sweeps: {run.account.products} products of NumPy ran through ozaki")
    print("  products         energy                          variance    an eigenvalue is within")
    energy, variance = rayleigh(state, np.matmul)
    print(f"  of float64       {float(energy):<30.15f} {float(variance):9.0e}    {sqrt(abs(variance)):.0e}")
    energy, variance = rayleigh(state, exact)
    print(f"  with every bit   {digits(energy):<30} {float(variance):9.0e}    {sqrt(variance):.0e}")
    assert variance < 1e-25

    levels, _, error_bound, *_ = ozaki.linalg.eigh(matrix(), accuracy=100, dtype="mp")
    off = error_bound * float(abs(levels).max())
    lowest_level, next_level = levels[:2].to_fractions()
    print(f"  diagonalisation  {digits(lowest_level)}, off by less than {off:.0e}")
    above, most = float(energy - lowest_level), float(variance / (next_level - energy)) * (1 + 1e-9)
    print(f"the state's energy is {above:.1e} above the lowest level; Temple's inequality allows {most:.1e}")
    assert -off <= above <= most + off


if __name__ == "__main__":
    main()
