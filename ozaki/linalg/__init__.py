"""Linear algebra to a named accuracy: solutions and factors whose errors are proven."""

from ozaki.linalg._cholesky import Cholesky, cholesky
from ozaki.linalg._eigen import Eigen, eigh
from ozaki.linalg._lu import LU, lu_factor, lu_solve
from ozaki.linalg._qr import QR, qr
from ozaki.linalg._solution import Solution
from ozaki.linalg._solving import inv, lstsq, solve

__all__ = [
    "LU",
    "QR",
    "Cholesky",
    "Eigen",
    "Solution",
    "cholesky",
    "eigh",
    "inv",
    "lstsq",
    "lu_factor",
    "lu_solve",
    "qr",
    "solve",
]
