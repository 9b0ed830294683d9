"""Conjugate pairs of eigenvalues of real matrices: real bases in place of complex eigenvectors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.linalg.common.arrays import Sum, array_library, times_signs
from ozaki.multiprecision.numbers import Numbers

Places = npt.NDArray[np.intp]


class Pairs(NamedTuple):
    """Which eigenvalues are conjugate pairs.

    The eigenvectors of a pair are u + i v and u - i v. In a real basis X columns u and v take their places, so that
    what is computed in it leaves pairs exact conjugates, and real eigenvalues real. With T the matrix that takes the
    real basis to the eigenvectors, these are X T. Matrices lie in NumPy, unless a method says otherwise.

    Attributes
    ----------
    first, second : the places of the first members of pairs, and of their conjugates
    """

    first: Places
    second: Places

    @classmethod
    def of(cls, values: npt.NDArray[Any]) -> Pairs:
        """The pairs of eigenvalues of a real matrix as LAPACK returns them: conjugates follow each other."""
        first = np.flatnonzero(values.imag > 0)
        return cls(first, first + 1)

    def partners(self, n: int) -> Places:
        """For each of n eigenvalues the place of its conjugate, its own for those without."""
        found = np.arange(n)
        found[self.first], found[self.second] = self.second, self.first
        return found

    def real_basis(self, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The real matrix x T^-1 of a matrix x whose columns are conjugates as the pairs are."""
        found = x.real.copy()
        found[:, self.second] = x[:, self.first].imag
        return found

    def eigenvectors(self, x: Any) -> Any:
        """X T, of floats, a sum of them or multiprecision numbers in any library; X itself without pairs."""
        if not len(self.first):
            return x
        if isinstance(x, Sum):
            return Sum(*map(self.eigenvectors, x))
        xp, n = array_library(x), x.shape[1]
        of_real, of_imag, signs = np.arange(n), np.arange(n), np.zeros(n, np.int8)
        of_real[self.second], of_imag[self.first] = self.first, self.second
        signs[self.first], signs[self.second] = 1, -1
        of_real, of_imag, signs = map(xp.asarray, (of_real, of_imag, signs))
        imag = x[:, of_imag]
        if isinstance(x, Numbers):
            return x[:, of_real] + times_signs(imag, signs) * 1j
        return x[:, of_real] + 1j * (imag * signs)

    def similar(self, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """T^-1 x T: a matrix of the real basis in that of the eigenvectors.

        Off by no more than 2**-50 times `sizes` of abs(x).
        """
        found = np.asarray(self.eigenvectors(x), np.complex128)
        u, v = found[self.first], found[self.second]
        found[self.first] = (u - 1j * v) / 2
        partners = self.partners(len(x))
        found[self.second] = found[self.first].conj()[:, partners]
        return found

    def coordinates(self, x: npt.NDArray[Any]) -> npt.NDArray[np.complex128]:
        """T^-1 x: of what has coordinates x in the real basis, those in the basis of eigenvectors."""
        found = x.astype(np.complex128)
        u, v = x[self.first], x[self.second]
        found[self.first], found[self.second] = (u - 1j * v) / 2, (u + 1j * v) / 2
        return found

    def of_members(self, members: Places) -> Pairs:
        """The pairs within these places, in ascending order, as places among them."""
        inside = np.isin(self.first, members)
        return Pairs(np.searchsorted(members, self.first[inside]), np.searchsorted(members, self.second[inside]))

    def sizes(self, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Upper bounds of abs(T^-1 y T) for all y with abs(y) <= x, but for roundings."""
        return self.row_sizes(self.column_sizes(x.T).T)

    def row_sizes(self, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Abs of T^-1 times x, which has no negative elements."""
        found = x.copy()
        found[self.first] = found[self.second] = (x[self.first] + x[self.second]) / 2
        return found

    def column_sizes(self, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Abs of T^T times x, which has no negative elements: of columns, in the first axis, x T."""
        found = x.copy()
        found[self.first] = found[self.second] = x[self.first] + x[self.second]
        return found

    def real_similar(self, x: npt.NDArray[Any], after: Pairs) -> npt.NDArray[Any]:
        """T x T'^-1, T' of the pairs `after`: what takes a real basis to another, from what takes eigenvectors."""
        found = x.copy()
        u, v = x[self.first], x[self.second]
        found[self.first], found[self.second] = u + v, 1j * (u - v)
        return after.real_basis(found)


NO_PAIRS = Pairs(np.zeros(0, np.intp), np.zeros(0, np.intp))
"""Of matrices without conjugate pairs: of complex ones, for example."""
