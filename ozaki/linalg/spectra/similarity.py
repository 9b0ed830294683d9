"""Matrices that are nearly diagonal, and similar to a given one: approximate eigenvectors, measured and corrected."""

from __future__ import annotations

from contextlib import suppress
from math import ceil, log2
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.driver.watching import step
from ozaki.functions.products import gemm, matmul
from ozaki.linalg.common.arrays import Floats, Sum, added, array_library, exactly, masked, on_host, rounded
from ozaki.linalg.common.products import UNIT, componentwise, native_error, native_product, not_tiny, product
from ozaki.linalg.common.scaling import without_tiny
from ozaki.linalg.common.upper import LEAST, UP, column_sizes, norms_on_host, row_norm
from ozaki.linalg.factors.correcting import native
from ozaki.linalg.spectra.balancing import balance_of, exponents_of
from ozaki.linalg.spectra.clusters import FINER, NOT_CONVERGING
from ozaki.linalg.spectra.conjugates import NO_PAIRS, Pairs
from ozaki.linalg.spectra.discs import Discs, discs, groups, reach, turned
from ozaki.linalg.spectra.vector_inverses import FINEST, inverse_of, native_inverse, row_sums
from ozaki.linalg.systems.inverses import left_inverse
from ozaki.multiprecision.numbers import Numbers, moved
from ozaki.multiprecision.objects import mparray

Complexes = npt.NDArray[np.complex128]

_NOTHING = "float64 finds no eigenvalues"


class Similar(NamedTuple):
    """D + E, similar to A.

    Attributes
    ----------
    coupling : E but for its errors, shape (n, n), as all matrices here; in the basis of eigenvectors; its diagonal is
        part of `values`
    errors : upper bounds of these errors
    differences : d_j - d_i, rounded
    gaps, distances : lower and upper bounds of their abs, infinite and 0 for i = j
    powers : exponents t for which elements e_ij 2**(t_j - t_i) are alike in size, as far as they need be
    discs : of D + E with such elements
    """

    coupling: Complexes
    errors: Floats
    differences: Complexes
    gaps: Floats
    distances: Floats
    powers: npt.NDArray[np.int64]
    discs: Discs


class GeneralDecomposition:
    """Approximate eigenvalues D and eigenvectors X of a matrix A whose elements are below 1.

    With P = A X - X D, Y near the inverse of X and F = I - Y X, A is similar to D + E, E = (I - F)^-1 Y P. Those of
    float64 come first. All but P is found in float64, where Y may be, since E needs a few digits alone.

    Attributes
    ----------
    values : complex128 array, Sum or MPArray, NumPy, shape (n,): D with the diagonal of E, as measured
    vectors : float64 or complex128 array, or MPArray, shape (n, n): X; of a real matrix in a real basis
    pairs : the conjugate pairs of values of a real matrix
    real : whether A is
    precise : whether X is so near to a singular matrix that products with it need more bits than float64 has
    errors : upper bounds of the errors of the values, NumPy, shape (n,)
    steps : corrections so far
    """

    def __init__(self, a: Any, relative: bool, tolerance: float) -> None:
        self._a, self._xp, self.steps = a, array_library(a), 0
        host = on_host(rounded(a))
        self.real = host.dtype.kind != "c"
        for noise in (0.0, 2.0**-44):
            values, vectors = native(np.linalg.eig, _shaken(host, noise) if noise else host, _NOTHING)
            pairs = Pairs.of(values) if self.real else NO_PAIRS
            x = self._xp.asarray(pairs.real_basis(vectors) if self.real else vectors)
            sizes = abs(values)
            goal = tolerance * (sizes.min() if relative and sizes.min() else sizes.max() or 1.0)
            if self._measured(values.astype(np.complex128), x, pairs, max(goal, 2.0**-80 * sizes.max()) * FINER):
                return
        raise np.linalg.LinAlgError(f"a: {_NOTHING} of which vectors are independent")

    # Measuring -------------------------------------------------------------------------------------------------------

    def _measured(self, values: Any, x: Any, pairs: Pairs, wanted: float, guess: Any = None) -> bool:
        """Take these D and X, if X has an inverse, perhaps near a guess, and measure E, off by about `wanted`."""
        inverse = inverse_of(x, guess)
        if inverse is None:
            return False
        y, missed, contraction = inverse
        step("inverse of eigenvectors: norm of I - Y X up to %s", contraction)
        of_rows = row_sums(y)
        if not np.isfinite(of_rows).all():
            return False
        wanted = wanted / of_rows.max()
        if not wanted >= FINEST:
            return False
        rest, of_rest = self._residual(values, x, pairs, wanted, isinstance(y, Numbers))
        largest, n = column_sizes(rest), len(missed)
        if isinstance(y, Numbers):
            # Y P is smaller than abs(Y) abs(P) by the condition number of X.
            fine = 2.0**-56 / max(float(of_rows.max()) * row_norm(x) * n, 1.0)
            coupling, gain = product(y, rest, fine, multiprecision=False), fine * n
        else:
            coupling, gain = native_product(y, rest), native_error(y, rest) + 2 * UNIT
        coupling = on_host(coupling)
        if not np.isfinite(coupling).all():
            return False
        # E - Y P is F E; Y P is off by the errors of P, of the product, and of roundings.
        of_columns = of_rest + gain * largest * UP + LEAST
        with np.errstate(all="ignore"):
            of_e = (abs(coupling) * (1 + 2.0**-48) + np.outer(of_rows, of_columns)).max(axis=0) / (1 - contraction)
        of_e *= UP
        self.values, self.vectors, self.pairs, self._inverse_norm = values, x, pairs, float(of_rows.max())
        self._inverse, self.precise = y, isinstance(y, Numbers)
        errors = np.outer(pairs.row_sizes(of_rows), pairs.column_sizes(of_columns))
        errors += np.outer(pairs.row_sizes(missed), pairs.column_sizes(of_e))
        errors = (errors + (2.0**-48 + UNIT) * pairs.sizes(abs(coupling))) * UP + LEAST
        self._take(pairs.similar(coupling), errors)
        return True

    def _residual(self, values: Any, x: Any, pairs: Pairs, wanted: float, precise: bool) -> tuple[Any, Floats]:
        """P = A X - X D, rounded to float64 if not `precise`, and upper bounds of its errors before that, as `wanted`.

        Of each column the largest.
        """
        a, xp, n = self._a, self._xp, x.shape[0]
        by_column = on_host(column_sizes(x))
        sizes = abs(rounded(values)) * UP
        if not precise and not isinstance(a, Numbers) and not isinstance(x, Numbers):
            diagonal = xp.asarray(_diagonal(values, pairs, self.real))
            left, right = xp.concatenate([a, x], axis=1), xp.concatenate([x, -diagonal])
            terms = float(norms_on_host(left, 1).max()) * norms_on_host(right, 0)
            fine = not_tiny(min(wanted / (8 * float(terms.max())), 2.0**-8))
            if fine >= 2.0**-130:
                return product(left, right, fine, multiprecision=False), fine * terms * UP
        # In X D a column of a pair is a sum of two.
        terms = 2 * pairs.column_sizes(by_column) * (row_norm(a) + 4 * sizes)
        fine = min(wanted / float(terms.max() or 1.0), 2.0**-8)
        exact = moved(exactly(values), xp)
        diagonal = _diagonal(exact, pairs, self.real)
        scaled_x = matmul(exactly(x), diagonal, accuracy=componentwise(fine), dtype="mp")
        rest = gemm(1, a, x, -1, scaled_x, accuracy=componentwise(fine), dtype="mp")
        # LEAST is more than what elements of A that were left out change (docs/linalg.md, L6).
        rest = rest if precise else rounded(rest)
        return rest, fine * terms * UP + LEAST * (1 + n * by_column)

    def _take(self, coupling: Complexes, errors: Floats) -> None:
        """Find the discs of D + E, `coupling` E but for errors; its diagonal goes to the values."""
        change = np.diagonal(coupling).copy()
        np.fill_diagonal(coupling, 0.0)
        values = self.values
        self.values = added(values, change) if isinstance(values, np.ndarray) else values + mparray(change)
        if isinstance(self.values, Sum):
            high, low = self.values
            differences = (high - high[:, None]) + (low - low[:, None])
            slack = 2.0**-100 * abs(high).max()  # which these sums may lose
            errors[np.diag_indices(len(errors))] += slack
        else:
            differences, slack = rounded(self.values[None, :] - self.values[:, None]), 0.0
        gaps = (abs(differences) * (1 - 2.0**-45) - slack - LEAST).clip(0)
        distances = abs(differences) * (1 + 2.0**-45) + slack + LEAST
        np.fill_diagonal(gaps, np.inf)
        np.fill_diagonal(distances, 0.0)
        with np.errstate(all="ignore"):
            sizes = abs(coupling) * (1 + 2.0**-48) + errors
        sizes[~np.isfinite(sizes)] = np.inf
        found, powers = discs(gaps, sizes), np.zeros(len(sizes), np.int64)
        if not found.alone.all() and np.isfinite(sizes).all():
            # Nearly dependent eigenvectors make rows of E, which Y has, larger than columns.
            powers = balance_of(exponents_of(sizes))
            found = discs(gaps, _scaled(sizes, powers))
        partners = self.pairs.partners(len(sizes))
        found = found._replace(alone=found.alone & found.alone[partners])
        self._similar = Similar(coupling, errors, differences, gaps, distances, powers, found)
        self.errors = reach(distances, found)

    def real_change(self, change: Complexes) -> npt.NDArray[Any]:
        """A matrix that multiplies eigenvectors from the right, and keeps their pairs, for X."""
        return self.pairs.real_similar(change, self.pairs) if self.real else change

    def times(self, change: Any, bits: int) -> Any:
        """X times a matrix in NumPy: in float64, or where X is nearly singular, so that much may cancel, in bits."""
        change = self._xp.asarray(change)
        if not self.precise:
            return native_product(rounded(self.vectors), change)
        return matmul(exactly(self.vectors), mparray(change), accuracy=componentwise(2.0**-bits), dtype="mp")

    def turned(self) -> tuple[Complexes, Floats]:
        """W for which columns of I + W are eigenvectors of D + E to first order, and upper bounds of their errors.

        Both are 0 where none are proven.
        """
        coupling, errors, differences, gaps, _, powers, found = self._similar
        change = np.where(found.alone, coupling / _nonzero(differences), 0.0)
        scaled_errors, by = _scaled(errors, powers), np.asarray(abs(_scaled(change, powers)), np.float64)
        sizes = abs(_scaled(coupling, powers)) * (1 + 2.0**-48) + scaled_errors
        return change, _scaled(turned(found, gaps, by, sizes, scaled_errors), -powers)

    @property
    def alone(self) -> npt.NDArray[np.bool_]:
        """Which values are proven to belong to one eigenvalue."""
        return self._similar.discs.alone

    @property
    def least_gap(self) -> float:
        """The smallest distance of values that are alone from others."""
        return float(self._similar.gaps[:, self.alone].min(initial=1.0))

    # Correcting ------------------------------------------------------------------------------------------------------

    def correct(self, goal: float) -> None:
        """One correction; `goal` is the largest error that is wanted of the values in the end.

        Raises
        ------
        numpy.linalg.LinAlgError
            If there is none.
        """
        self.steps += 1
        rows = self._similar.discs.rows
        finite = rows[np.isfinite(rows)]
        now = min(float(finite.max()) if finite.size else 1.0, 1.0)
        wanted = max(goal * FINER, 2.0**-100 * now)
        together = self._similar.gaps <= 8 * (rows[:, None] + rows)
        together[~np.isfinite(rows)] = True
        n = len(rows)
        together |= together[np.ix_(self.pairs.partners(n), self.pairs.partners(n))]
        labels = groups(together)
        fine = max(goal * FINER, 2.0**-60 * now, FINEST) / max(self._inverse_norm, 1.0)
        bits = ceil(log2(n) - log2(fine)) + 8
        small = np.where(labels[:, None] == labels, 0.0, self._similar.coupling / _nonzero(self._similar.differences))
        x = exactly(self.vectors) + exactly(self.times(self.real_change(small), bits + 64))
        if len(np.unique(labels)) == n:
            values, (x, _) = exactly(self.values).round_to(bits + 8), without_tiny(x.round_to(bits))
            if self._measured(values, x, self.pairs, wanted, self._inverse):
                return
        else:
            values, change, pairs = self._split(labels)
            # Of columns whose inverse has large rows more bits are needed.
            more = float(np.linalg.norm(native_inverse(change), np.inf))
            bits += ceil(log2(min(max(more, 1.0), 2.0**60)))
            x, guess = self._split_vectors(x, change, pairs, bits)
            if self._measured(values.round_to(bits + 8), x, pairs, wanted, guess):
                return
        raise np.linalg.LinAlgError(NOT_CONVERGING)

    def _split_vectors(self, x: Any, change: Any, pairs: Pairs, bits: int) -> tuple[Any, Any]:
        """X times a matrix, which makes it one of these pairs, with columns whose norms are about 1; and its inverse.

        That is near the inverse; None where X has a native one.
        """
        lengths = norms_on_host(native_product(rounded(x), self._xp.asarray(change)), 0)
        lengths[pairs.first] = lengths[pairs.second] = lengths[pairs.first] + lengths[pairs.second]
        usual = np.isfinite(lengths) & (lengths > 0)
        change = change / np.where(usual, 2.0 ** np.round(np.log2(np.where(usual, lengths, 1.0))), 1.0)
        change, guess = self._xp.asarray(change), None
        if self.precise:
            with suppress(np.linalg.LinAlgError):
                guess = matmul(left_inverse(change).r, self._inverse, accuracy=componentwise(2.0**-bits), dtype="mp")
        found = matmul(x, mparray(change), accuracy=componentwise(2.0**-bits), dtype="mp")
        return without_tiny(found.round_to(bits))[0], guess

    def _split(self, labels: npt.NDArray[np.intp]) -> tuple[Any, Any, Pairs]:
        """New values, what X is multiplied by, and new pairs: groups of values are split by LAPACK.

        The block of a group in D + E, less one of its values, is rounded to float64: so the distances of values that
        are close get as many digits as values that are not.
        """
        n, partners = len(labels), self.pairs.partners(len(labels))
        turn, offsets = np.eye(n, dtype=np.complex128), np.zeros(n, np.complex128)
        anchors, on_axis = np.arange(n), np.zeros(n, bool)
        done, firsts = np.zeros(n, bool), [*self.pairs.first]
        for label in range(labels.max() + 1):
            members = np.flatnonzero(labels == label)
            mirrored = partners[members]
            if done[members[0]] or len(members) == 1:
                continue
            done[members] = done[mirrored] = True
            anchors[members], anchors[mirrored] = members[0], mirrored[0]
            shifts = self._similar.differences[members[0], members]
            block = self._similar.coupling[np.ix_(members, members)] + np.diag(shifts)
            if self.real and set(members) == set(mirrored):
                on_axis[members] = True  # so that the block is that of a real matrix
                block += np.diag(np.full(len(members), 1j * rounded(self.values)[members[0]].imag))
                local = self.pairs.of_members(members)
                offsets[members], vectors = _eigen(local.real_similar(block, local))
                new = Pairs.of(offsets[members])
                firsts = [each for each in firsts if each not in members] + [*members[new.first]]
                partners[members] = members[new.partners(len(members))]
                turn[np.ix_(members, members)] = local.coordinates(vectors)
                continue
            offsets[members], vectors = _eigen(block)
            turn[np.ix_(members, members)] = vectors
            if self.real:
                offsets[mirrored] = offsets[members].conj()
                turn[np.ix_(mirrored, mirrored)] = vectors.conj()
        first = np.sort(np.array(firsts, np.intp))
        pairs = Pairs(first, partners[first])
        values = exactly(self.values)[anchors]
        if self.real:
            values = values.real + masked(values.imag, ~on_axis) * 1j
            turn = self.pairs.real_similar(turn, pairs)
        return values + mparray(offsets), turn, pairs


def _eigen(block: Any) -> tuple[Any, Any]:
    """Eigenvalues and independent eigenvectors of a block, or, where it has none, of one that is near.

    LAPACK finds those of what the block adds to a multiple of the identity. Its errors, and what is added to them, are
    multiplied by the condition number of the vectors in the block's place.
    """
    middle = np.trace(block) / len(block)
    block = block - middle * np.eye(len(block))
    best, least = None, np.inf
    for noise in (0.0, 2.0**-44, 2.0**-36, 2.0**-28, 2.0**-20):
        values, vectors = native(np.linalg.eig, _shaken(block, noise) if noise else block, _NOTHING)
        coupling = float(np.linalg.norm(native_inverse(vectors), np.inf)) * len(block) * max(noise, 2.0**-52)
        if best is None or coupling < least:
            best, least = (values + middle, vectors), coupling
        if least <= 2.0**-10:
            break
    assert best is not None
    return best


def _scaled(x: npt.NDArray[Any], powers: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Elements x_ij 2**(t_j - t_i), t the powers; LEAST is added to sizes, which may underflow."""
    if not powers.any():
        return x
    by = (powers - powers[:, None]).clip(-5000, 5000).astype(np.int32)
    if x.dtype.kind == "c":
        found = np.empty_like(x)
        found.real, found.imag = np.ldexp(x.real, by), np.ldexp(x.imag, by)
        return found
    return np.asarray(np.ldexp(x, by) + LEAST * (x > 0))


def _diagonal(values: Any, pairs: Pairs, real: bool) -> Any:
    """D as a matrix: of a real one, whose basis is real, with blocks of two for pairs."""
    xp, n = array_library(values), values.shape[0]
    if not real:
        if not isinstance(values, Numbers):
            return xp.diag(values)
        return masked(values[xp.broadcast_to(xp.arange(n), (n, n))], xp.eye(n))
    places = xp.asarray(np.broadcast_to(np.arange(n)[:, None], (n, n)))
    beside = np.zeros((n, n))
    beside[pairs.first, pairs.second] = beside[pairs.second, pairs.first] = 1
    beside = xp.asarray(beside)
    return masked(values.real[places], xp.eye(n)) + masked(values.imag[places], beside)


def _nonzero(x: Complexes) -> Complexes:
    """Numbers to divide by, 1 in place of 0."""
    return np.where(x == 0, 1.0, x)


def _shaken(x: Any, noise: float) -> Any:
    """A matrix with changes of its largest element times `noise`, always the same, so that no values are equal."""
    n = len(x)
    parts = (np.arange(1, n * n + 1) * 0.6180339887498949 % 1 - 0.5).reshape(n, n)
    return x + noise * (float(abs(x).max()) or 1.0) * parts
