"""Linear algebra to a named accuracy: solutions and factors whose errors are proven."""

from ozaki.linalg.factors.cholesky import Cholesky, cholesky
from ozaki.linalg.factors.lu import LU, lu_factor, lu_solve
from ozaki.linalg.factors.qr import QR, qr
from ozaki.linalg.norms import Norm, norm
from ozaki.linalg.spectra.eigh import Eigen, eigh
from ozaki.linalg.spectra.pinv import PseudoInverse, pinv
from ozaki.linalg.spectra.ranks import Condition, Rank, cond, matrix_rank
from ozaki.linalg.spectra.svd import SVD, SingularValues, svd, svdvals
from ozaki.linalg.systems.solution import Solution
from ozaki.linalg.systems.solving import inv, lstsq, solve

__all__ = [
    "LU",
    "QR",
    "SVD",
    "Cholesky",
    "Condition",
    "Eigen",
    "Norm",
    "PseudoInverse",
    "Rank",
    "SingularValues",
    "Solution",
    "cholesky",
    "cond",
    "eigh",
    "inv",
    "lstsq",
    "lu_factor",
    "lu_solve",
    "matrix_rank",
    "norm",
    "pinv",
    "qr",
    "solve",
    "svd",
    "svdvals",
]
