"""Matrices of whole numbers, real or Gaussian ones: elimination without fractions, exactly.

E. H. Bareiss, "Sylvester's identity and multistep integer-preserving Gaussian elimination", Math. Comp. 22 (1968): all
numbers on the way are minors of the matrix, and each division by the pivot before leaves no remainder.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log2
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.floats import trimmed

Objects = npt.NDArray[np.object_]

Wholes = tuple[Any, ...]
"""An array of Python's integers; of Gaussian integers the real parts, and the imaginary ones."""


def wholes_of(x: MPArray, by_rows: bool = False) -> tuple[Wholes, npt.NDArray[np.int64]]:
    """A matrix as whole numbers and the exponents of the powers of two that they are multiplied by, one for each row.

    All are the same, unless rows have their own: `by_rows`.
    """
    each = [part.to_ints() for part in ((x.real, x.imag) if x.is_complex else (x,))]
    ints, exponents = (np.stack(found) for found in zip(*each, strict=True))
    lowest = lowest_exponents(ints != 0, exponents, by_rows)
    # A zero, whose exponent is 0, is not shifted: its shift may be negative.
    shifts = np.where(ints != 0, exponents - lowest[:, None], 0).astype(object)
    return tuple(ints << shifts), lowest


def lowest_exponents(nonzero: Any, exponents: Any, by_rows: bool) -> npt.NDArray[np.int64]:
    """The exponents of the lowest bits of rows, or of all of them; 0 of zeros. Shapes are (parts, rows, columns)."""
    far = np.iinfo(np.int64).max
    lowest = np.where(nonzero, exponents, far).min(axis=(0, 2), initial=far)
    lowest = lowest if by_rows else np.full_like(lowest, lowest.min(initial=far))
    return np.where(lowest == far, 0, lowest)


def bits_of(x: MPArray, by_rows: bool = False) -> int:
    """How many bits the whole numbers of `wholes_of` have at most; found without making them."""
    x = MPArray._of(trimmed(x))  # integers have fewer than the 53 bits of their format
    signs, tops = (np.moveaxis(each, -1, 0) if x.is_complex else each[None] for each in (x.signs, x.exponents))
    if not signs.any():
        return 1
    lowest = lowest_exponents(signs != 0, tops - x.bits, by_rows)  # no bit is lower
    return int(np.where(signs != 0, tops - lowest[:, None], 0).max())


def work(rows: int, columns: int, pivots: int, bits: int, is_complex: bool = False) -> float:
    """About how many nanoseconds an elimination takes: minors of k rows have k (bits + log2(k) / 2) bits (Hadamard).

    Measured on one core of an AMD EPYC: of 60 x 60 integers of 66 bits 0.5 s, of 90 x 90 3.3 s.
    """
    steps = sum(rows * columns * (300.0 + (k * (bits + log2(k) / 2) / 30) ** 1.6) for k in range(1, pivots + 1))
    return 2.0 * float(steps) * (4 if is_complex else 1)


def times(x: Wholes, y: Wholes) -> Wholes:
    """Elementwise products."""
    if len(x) == 1:
        return (x[0] * y[0],)
    (a, b), (c, d) = x, y
    return a * c - b * d, a * d + b * c


def less(x: Wholes, y: Wholes) -> Wholes:
    """Differences."""
    return tuple(a - b for a, b in zip(x, y, strict=True))


def at(x: Wholes, index: Any) -> Wholes:
    """Parts of an array."""
    return tuple(each[index] for each in x)


def conjugate(x: Wholes) -> Wholes:
    """Complex conjugates."""
    return (x[0], *(-each for each in x[1:]))


def divided(x: Wholes, by: Wholes) -> Wholes:
    """Quotients that are known to be whole; `by` is one number."""
    if len(x) == 2 and by[1]:
        x = times(x, conjugate(by))
        by = (by[0] * by[0] + by[1] * by[1],)
    return tuple(each // by[0] for each in x)


Choice = Callable[[Wholes, Wholes, list[int]], int]
"""What picks a pivot: a function of a column from the diagonal on (what ordinary elimination leaves, times the pivot
before), of that pivot, and of the rows of the matrix that the numbers belong to. It returns the pivot's place in the
column."""


def first_nonzero(column: Wholes) -> int:
    """The place of the first number that is not zero.

    Raises
    ------
    numpy.linalg.LinAlgError
        If there is none.
    """
    for place, parts in enumerate(zip(*column, strict=True)):
        if any(parts):
            return place
    raise np.linalg.LinAlgError("a: singular")


def largest(exponents: npt.NDArray[np.int64]) -> Choice:
    """The choice of the first of the largest numbers, abs(re) + abs(im) of complex ones, as LAPACK counts.

    The exponents are those of the powers of two that rows are multiplied by. The choice raises a
    `numpy.linalg.LinAlgError` if all numbers are zero.
    """
    return lambda column, before, rows: _largest(column, before, exponents[rows])


def _largest(column: Wholes, before: Wholes, exponents: npt.NDArray[np.int64]) -> int:
    """The place of the largest number."""
    # Over a complex number the order of such sizes is another one; its square is positive.
    sizes: Any = sum(abs(each) for each in (column if len(column) == 1 else times(column, conjugate(before))))
    sizes = sizes << (exponents - exponents.min()).astype(object)
    place = int(np.argmax(sizes))
    if not sizes[place]:
        raise np.linalg.LinAlgError("a: singular")
    return place


def eliminate(a: Wholes, k: int, rows: slice, before: Wholes) -> None:
    """Replace rows, right of column k, by what is left once that column is eliminated by row k; `before` divides it.

    Column k itself stays, since it has the lower factor. `before` is the pivot before, or one.
    """
    pivot, right = at(a, (k, k)), slice(k + 1, None)
    left, up = at(a, (rows, k, None)), at(a, (k, right))
    found = divided(less(times(at(a, (rows, right)), pivot), times(left, up)), before)
    for part, each in zip(a, found, strict=True):
        part[rows, right] = each


def eliminated(a: Wholes, pivots: int, choice: Choice | None = None) -> tuple[Wholes, list[int]]:
    """Gaussian elimination of that many columns without fractions, and the order in which rows became pivots.

    Row k from column k on, over the pivot before, is row k of the upper factor; column k below the diagonal, over its
    pivot, that of the unit lower one. Without a choice rows stay in their order: no leading minor may be zero.
    """
    a = tuple(each.copy() for each in a)
    order, before = [*range(len(a[0]))], one_of(a)
    for k in range(pivots):
        if choice is not None and (place := k + choice(at(a, (slice(k, None), k)), before, order[k:])) != k:
            exchange(a, k, place)
            order[k], order[place] = order[place], order[k]
        eliminate(a, k, slice(k + 1, None), before)
        before = at(a, (k, k))
    return a, order


def solved(a: Wholes) -> tuple[Wholes, Wholes]:
    """Of the equations whose matrix, shape (n, n + columns), this is: det and det times the solution.

    Gauss-Jordan elimination without fractions: above the diagonal, too, numbers are minors.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the matrix is singular.
    """
    a, n = tuple(each.copy() for each in a), len(a[0])
    before = one_of(a)
    for k in range(n):
        exchange(a, k, k + first_nonzero(at(a, (slice(k, None), k))))
        for rows in (slice(0, k), slice(k + 1, None)):
            eliminate(a, k, rows, before)
        before = at(a, (k, k))
    return before, at(a, (slice(None), slice(n, None)))


def inertia(a: Wholes) -> tuple[int, int]:
    """How many eigenvalues of a Hermitian matrix are negative, and how many zero (Sylvester's law).

    A minor of the order k over that of the order k - 1 is a pivot of the elimination of a congruent matrix. Where no
    diagonal element is left that is not zero, the row and the column of another one are added to one of them.
    """
    a, n = tuple(each.copy() for each in a), len(a[0])
    before, negative = one_of(a), 0
    for k in range(n):
        diagonal = np.diagonal(a[0])[k:]
        nonzero = np.flatnonzero(diagonal != 0)
        if nonzero.size:
            place = k + int(nonzero[0])
        else:
            rest: Any = sum(abs(each[k:, k:]) for each in a)
            found = np.argwhere(rest != 0)
            if not len(found):
                return negative, n - k
            place, other = (found[0] + k).tolist()
            # diag + 2 Re(c a_ij), with c = 1 or i: one of them is not zero.
            _add_symmetrically(a, place, other, imaginary=not a[0][place, other])
        exchange(a, k, place)
        for part in a:
            part[:, [k, place]] = part[:, [place, k]]
        pivot = at(a, (k, k))
        negative += (pivot[0] < 0) != (before[0] < 0)
        eliminate(a, k, slice(k + 1, None), before)
        before = pivot
    return negative, 0


def _add_symmetrically(a: Wholes, i: int, j: int, imaginary: bool) -> None:
    """Add row j to row i, and column j to column i; with `imaginary` i times the row, and -i times the column."""
    if not imaginary:
        for part in a:
            part[i] += part[j]
            part[:, i] += part[:, j]
        return
    real, imag = a
    # The first sum is computed before the second one changes what it needs: row j and column j stay as they are.
    real[i], imag[i] = real[i] - imag[j], imag[i] + real[j]
    real[:, i], imag[:, i] = real[:, i] + imag[:, j], imag[:, i] - real[:, j]


def exchange(a: Wholes, i: int, j: int) -> None:
    """Exchange two rows."""
    if i != j:
        for part in a:
            part[[i, j]] = part[[j, i]]


def one_of(a: Wholes) -> Wholes:
    """The number one, with as many parts as the matrix has."""
    return (1, *(0 for _ in a[1:]))
