"""Linear algebra to a named accuracy: solutions and factors whose errors are proven."""

from ozaki.linalg.factors.cholesky import Cholesky, cholesky
from ozaki.linalg.factors.lu import LU, lu_factor, lu_solve
from ozaki.linalg.factors.qr import QR, qr
from ozaki.linalg.spectra.eig import GeneralEigen, GeneralEigenvalues, eig, eigvals
from ozaki.linalg.spectra.eigh import Eigen, eigh
from ozaki.linalg.systems.solution import Solution
from ozaki.linalg.systems.solving import inv, lstsq, solve

__all__ = [
    "LU",
    "QR",
    "Cholesky",
    "Eigen",
    "GeneralEigen",
    "GeneralEigenvalues",
    "Solution",
    "cholesky",
    "eig",
    "eigh",
    "eigvals",
    "inv",
    "lstsq",
    "lu_factor",
    "lu_solve",
    "qr",
    "solve",
]
