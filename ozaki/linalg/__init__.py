"""Linear algebra to a named accuracy: solutions and factors whose errors are proven."""

from ozaki.linalg.determinants.determinant import Det, SLogDet, det, slogdet
from ozaki.linalg.factors.cholesky import Cholesky, cholesky
from ozaki.linalg.factors.lu import LU, lu_factor, lu_solve
from ozaki.linalg.factors.qr import QR, qr
from ozaki.linalg.functions.expm import Expm, expm
from ozaki.linalg.spectra.eigh import Eigen, eigh
from ozaki.linalg.systems.solution import Solution
from ozaki.linalg.systems.solving import inv, lstsq, solve

__all__ = [
    "LU",
    "QR",
    "Cholesky",
    "Det",
    "Eigen",
    "Expm",
    "SLogDet",
    "Solution",
    "cholesky",
    "det",
    "eigh",
    "expm",
    "inv",
    "lstsq",
    "lu_factor",
    "lu_solve",
    "qr",
    "slogdet",
    "solve",
]
