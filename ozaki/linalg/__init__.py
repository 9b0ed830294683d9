"""Linear algebra to a named accuracy: solutions and factors whose errors are proven."""

from ozaki.linalg.blas import hemm, herk, symm, syrk, trmm
from ozaki.linalg.determinants.determinant import Det, SLogDet, det, slogdet
from ozaki.linalg.factors.cho_solve import cho_solve
from ozaki.linalg.factors.cholesky import Cholesky, cholesky
from ozaki.linalg.factors.lq import LQ, lq
from ozaki.linalg.factors.lu import LU, lu_factor, lu_solve
from ozaki.linalg.factors.qr import QR, PivotedQR, qr
from ozaki.linalg.functions.expm import Expm, expm
from ozaki.linalg.norms import Norm, norm
from ozaki.linalg.spectra.eig import GeneralEigen, GeneralEigenvalues, eig, eigvals
from ozaki.linalg.spectra.eigh import Eigen, eigh
from ozaki.linalg.spectra.eigvalsh import Eigenvalues, eigvalsh
from ozaki.linalg.spectra.pinv import PseudoInverse, pinv
from ozaki.linalg.spectra.ranks import Condition, Rank, cond, matrix_rank
from ozaki.linalg.spectra.svd import SVD, SingularValues, svd, svdvals
from ozaki.linalg.systems.as_found import SolutionAsFound
from ozaki.linalg.systems.solution import Solution
from ozaki.linalg.systems.solving import inv, lstsq, solve
from ozaki.linalg.systems.triangular import solve_triangular

__all__ = [
    "LQ",
    "LU",
    "QR",
    "SVD",
    "Cholesky",
    "Condition",
    "Det",
    "Eigen",
    "Eigenvalues",
    "Expm",
    "GeneralEigen",
    "GeneralEigenvalues",
    "Norm",
    "PivotedQR",
    "PseudoInverse",
    "Rank",
    "SLogDet",
    "SingularValues",
    "Solution",
    "SolutionAsFound",
    "cho_solve",
    "cholesky",
    "cond",
    "det",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "expm",
    "hemm",
    "herk",
    "inv",
    "lq",
    "lstsq",
    "lu_factor",
    "lu_solve",
    "matrix_rank",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
    "symm",
    "syrk",
    "trmm",
]
