"""Linear algebra to a named accuracy: solutions and factors whose errors are proven."""

from ozaki.linalg import blas
from ozaki.linalg.determinants.determinant import Det, SLogDet, det, slogdet
from ozaki.linalg.factors.cho_solve import cho_solve
from ozaki.linalg.factors.cholesky import Cholesky, cholesky
from ozaki.linalg.factors.lq import LQ, lq
from ozaki.linalg.factors.lu import LU, lu_factor, lu_solve
from ozaki.linalg.factors.qr import QR, PivotedQR, qr
from ozaki.linalg.functions.expm import Expm, expm
from ozaki.linalg.spectra.eig import GeneralEigen, GeneralEigenvalues, eig, eigvals
from ozaki.linalg.spectra.eigh import Eigen, eigh
from ozaki.linalg.spectra.eigvalsh import Eigenvalues, eigvalsh
from ozaki.linalg.systems.solution import Solution
from ozaki.linalg.systems.solving import inv, lstsq, solve
from ozaki.linalg.systems.triangular import solve_triangular

__all__ = [
    "LQ",
    "LU",
    "QR",
    "Cholesky",
    "Det",
    "Eigen",
    "Eigenvalues",
    "Expm",
    "GeneralEigen",
    "GeneralEigenvalues",
    "PivotedQR",
    "SLogDet",
    "Solution",
    "blas",
    "cho_solve",
    "cholesky",
    "det",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "expm",
    "inv",
    "lq",
    "lstsq",
    "lu_factor",
    "lu_solve",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
]
