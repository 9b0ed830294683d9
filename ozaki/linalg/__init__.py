"""Linear algebra to a named accuracy: solutions and factors whose errors are proven."""

from ozaki.linalg.factors.cholesky import Cholesky, cholesky
from ozaki.linalg.factors.lu import LU, lu_factor, lu_solve
from ozaki.linalg.factors.qr import QR, qr
from ozaki.linalg.norms import Norm, norm
from ozaki.linalg.spectra.eigh import Eigen, eigh
from ozaki.linalg.spectra.svd import SVD, SingularValues, svd, svdvals
from ozaki.linalg.systems.solution import Solution
from ozaki.linalg.systems.solving import inv, lstsq, solve

__all__ = [
    "LU",
    "QR",
    "SVD",
    "Cholesky",
    "Eigen",
    "Norm",
    "SingularValues",
    "Solution",
    "cholesky",
    "eigh",
    "inv",
    "lstsq",
    "lu_factor",
    "lu_solve",
    "norm",
    "qr",
    "solve",
    "svd",
    "svdvals",
]
