"""The energy of the electrons of water: Hartree-Fock by PySCF, and MP2 with a proven bound of every rounding.

PySCF finds the orbitals, with the products of its NumPy code run through `ozaki.emulate`. Second-order perturbation
theory (MP2) then needs the integrals (pq|rs) of atomic orbitals in terms of these: four products with their
coefficients, of which a report has the bound. The energy is one more product,

    E = sum of (ia|jb) (2 (ia|jb) - (ib|ja)) / (e_i + e_j - e_a - e_b),   i, j occupied orbitals, a, b empty ones.

The oracle is the same sum in 200 bits. Integrals, coefficients and differences e_i - e_a are PySCF's, float64 numbers
that count as exact: the digits are those of this sum, not of water. By how much roundings may change it is proven for
each way, PySCF's own included, from the bounds of its products.
"""

import mpmath
import numpy as np
from pyscf import ao2mo, gto, mp, scf

import ozaki

WATER = "O 0 0 0.1173; H 0 0.7572 -0.4692; H 0 -0.7572 -0.4692"


def hartree_fock():
    return scf.RHF(gto.M(atom=WATER, basis="cc-pvdz", verbose=0)).run(conv_tol=1e-12)


def orbitals(mean_field):
    """(pq|rs) of atomic orbitals, coefficients of the occupied and of the empty ones, and e_i - e_a."""
    coefficients, levels, filled = mean_field.mo_coeff, mean_field.mo_energy, mean_field.mo_occ > 0
    integrals = ao2mo.restore(1, mean_field._eri, len(coefficients))
    gaps = levels[filled][:, None] - levels[~filled]
    return integrals, coefficients[:, filled], coefficients[:, ~filled], gaps


def transformed(integrals, occupied, empty, **options):
    """(ia|jb), and the largest bound of the four products."""
    x, bounds = integrals, []
    for c in (occupied, empty, occupied, empty):  # each sums over the first axis, and the new one comes last
        product, report = ozaki.matmul(x.reshape(len(c), -1).T, c, return_report=True, **options)
        x = product.reshape(*x.shape[1:], c.shape[1])
        bounds.append(report.bound)
    return x, max(bounds)


def quotients(x, gaps):
    """(2 (ia|jb) - (ib|ja)) / (e_i + e_j - e_a - e_b), rounded four times in float64, and once to more bits."""
    if isinstance(x, ozaki.MPArray):
        x, bits = x.to_fractions(), x.bits
        gaps = ozaki.mparray(gaps).to_fractions()
        return ozaki.mparray((2 * x - x.transpose(0, 3, 2, 1)) / (gaps[:, :, None, None] + gaps), bits=bits)
    return (2 * x - x.transpose(0, 3, 2, 1)) / (gaps[:, :, None, None] + gaps)


def mp2_energy(integrals, occupied, empty, gaps, **options):
    """The energy, and bounds of products: of those that transform, and of that which sums."""
    x, bound = transformed(integrals, occupied, empty, **options)
    energy, report = ozaki.matmul(x.reshape(-1), quotients(x, gaps).reshape(-1), return_report=True, **options)
    return energy, bound, report.bound


def proven(integrals, occupied, empty, gaps, of_transform, of_sum, unit=2.0**-53):
    """What an energy may be off, by the bounds of its products, where other operations round to `unit`.

    Four products of bound t are off by ((1 + t)^4 - 1) times the same products of absolute values. The rest follows
    from abs(x y - X Y) <= abs(x - X) abs(y) + abs(X) abs(y - Y). Sums run in float64 here, of numbers that are not
    negative: the last factor covers what they round.
    """
    x, of_x = transformed(integrals, occupied, empty)
    sizes, _ = transformed(abs(integrals), abs(occupied), abs(empty))
    off = np.expm1(4 * np.log1p(of_transform)) * sizes
    largest = abs(x) + off + np.expm1(4 * np.log1p(of_x)) * sizes * (1 + 1e-9)
    denominators = abs(gaps[:, :, None, None] + gaps)
    quotients_off = (2 * off + off.transpose(0, 3, 2, 1)) / denominators
    largest_quotients = (2 * largest + largest.transpose(0, 3, 2, 1)) / denominators
    # Quotients are rounded four times at most, and where they are rounded, they are a little larger.
    quotients_off += 5 * unit * largest_quotients
    total = of_sum * (1 + 5 * unit) * largest * largest_quotients
    total += off * largest_quotients + largest * quotients_off
    return float(total.sum()) * (1 + 1e-9)


def any_order(terms):
    """The bound of a float64 sum of so many products, in whatever order it runs."""
    return terms * 2.0**-53 / (1 - terms * 2.0**-53)


def main():
    alone = hartree_fock()
    with ozaki.emulate(accuracy="fp64", report=True) as run:
        mean_field = hartree_fock()
    left = sum(run.account.left.values())
    print(
        f"Hartree-Fock energy {mean_field.e_tot:.12f} hartree, {abs(mean_field.e_tot - alone.e_tot):.0e} off without:"
    )
    print(
        f"  {run.account.products} products of PySCF's NumPy code ran through ozaki, {left} of other types as they are"
    )
    assert abs(mean_field.e_tot - alone.e_tot) < 1e-11  # iterations stop at 1e-12

    water = orbitals(mean_field)
    occupied, empty = water[-1].shape
    assert (water[-1] < 0).all()  # so that no sum of levels cancels
    exact, *_ = mp2_energy(*water, accuracy=200, dtype="mp")
    print(f"MP2 energy, {occupied} occupied orbitals, {empty} empty ones     off by    proven")

    def show(name, energy, digits, *bounds, **unit):
        error, bound = abs(ozaki.mparray(energy) - exact).astype("float64").item(), proven(*water, *bounds, **unit)
        print(f"  {name:<16} {mpmath.nstr(ozaki.mparray(energy).to_mpmath(), digits):<30} {error:.0e}     {bound:.0e}")
        assert error <= bound < 1e-11

    # Of PySCF's own: sums over an orbital, in compiled code, and one over all terms, with five or so that it adds up.
    native = any_order(occupied + empty), any_order((occupied * empty) ** 2 + 9)
    show("PySCF", mp.MP2(mean_field).kernel()[0], 16, *native)
    with ozaki.emulate(accuracy="fp64"):
        emulated, _ = mp.MP2(mean_field).kernel()
    show("PySCF, emulated", emulated, 16, *native)
    energy, *bounds = mp2_energy(*water, accuracy="fp64")
    show("ozaki, fp64", energy, 16, *bounds)
    energy, *bounds = mp2_energy(*water, accuracy=80, dtype="mp")
    show("ozaki, 80 bits", energy, 24, *bounds, unit=2.0**-80)
    print(f"  {'ozaki, 200 bits':<16} {mpmath.nstr(exact.to_mpmath(), 24)}")


if __name__ == "__main__":
    main()
