"""Linear equations with matrices that are factored, or their transposes; inverses are found when first asked for."""

from __future__ import annotations

from typing import Any

from ozaki.call.operands import holds_complex
from ozaki.linalg.common.targets import Target
from ozaki.linalg.common.transposition import Transposition
from ozaki.linalg.systems.solution import Solution
from ozaki.linalg.systems.solving import System


class Equations:
    """Linear equations with one square matrix a, or each of a stack, and with its transpose.

    Parameters
    ----------
    a : square matrices, shape (..., n, n), which must not change
    formats : the formats that a solution depends on
    system : the equations a x = b with their inverse, if that is found already
    """

    def __init__(self, a: Any, formats: list[str], system: System | None = None) -> None:
        self.a, self.formats = a, formats
        self._systems = {} if system is None else {False: system}

    def __repr__(self) -> str:
        return f"Equations({self.a.shape[-1]})"

    def solve(self, b: Any, target: Target, trans: Transposition = 0) -> Solution:
        """The solution for right-hand sides of shape (n,) or (..., n, columns).

        Raises
        ------
        numpy.linalg.LinAlgError
            If the matrix is singular, or its condition number is too large.
        """
        conjugate = trans == 2 and holds_complex(self.a)
        found = self._system(trans != 0).solve(b.conj() if conjugate and holds_complex(b) else b, target)
        return found._replace(x=found.x.conj()) if conjugate else found

    def _system(self, transposed: bool) -> System:
        if transposed not in self._systems:
            a = self.a.swapaxes(-1, -2) if transposed else self.a
            self._systems[transposed] = System(a, self.formats)
        return self._systems[transposed]
