"""Lower triangular and orthonormal factors to a named accuracy: those of `qr` of the adjoint."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from ozaki.driver.watching import named, reached
from ozaki.interchange.calls import any_arrays
from ozaki.linalg.common.arrays import adjoint
from ozaki.linalg.common.matrices import check_matrix, matrices
from ozaki.linalg.common.products import Bounds
from ozaki.linalg.common.results import largest_of_each
from ozaki.linalg.common.targets import Target
from ozaki.linalg.factors.correcting import factor_target
from ozaki.linalg.factors.qr import orthonormal
from ozaki.linalg.factors.stacks import in_parts, qr_at_once, takes
from ozaki.linalg.systems.gathering import of_each, with_the_rest
from ozaki.process.environment import default_environment
from ozaki.records.accuracy import Accuracy


class LQ(NamedTuple):
    """A lower triangular factor and one of orthonormal rows, and what is proven of them.

    Attributes
    ----------
    l : array or MPArray, shape (..., m, k), k the lesser of m and n; zeros above the diagonal; (..., m, n) of the mode
        "complete"
    q : array or MPArray, shape (..., k, n); (..., n, n) of the mode "complete"
    error_bound : float, or NumPy array of float64 of the shape of a stack
        abs(a - l q)_ij <= error_bound norm(row i of l) and abs(I - q q^H)_ij <= error_bound norm(row i of q) norm(row j
        of q), with Euclidean norms. Proven, rounding to the dtype included.
    error_bounds : NumPy array of float64
        As `error_bound`, for each row i of l and of q, as many as the longer of the two has, for each matrix of a
        stack.
    iterations : int
        Corrections; of a stack the most of a matrix.
    """

    l: Any  # noqa: E741
    q: Any
    error_bound: Any
    error_bounds: Bounds
    iterations: int


@any_arrays("a", numpy=("error_bound", "error_bounds"))
@default_environment
@np.errstate(all="ignore")
@named("lq", solves=True)
def lq(
    a: Any,
    mode: Literal["reduced", "complete"] = "reduced",
    *,
    accuracy: Accuracy | str | float | None = None,
    dtype: Any = None,
) -> LQ:
    """Factor a matrix a = l q to a named accuracy, which is proven: l lower triangular, q of orthonormal rows.

    Parameters
    ----------
    a : array or MPArray, shape (..., m, n), real or complex
        Its first k rows are independent, k the lesser of m and n.
    mode : {"reduced", "complete"}, optional
        q of k rows; or of n rows, those beyond k orthonormal to all others, and l with zeros in the columns beyond.
    accuracy, dtype
        As in `qr`, of a - l q and of I - q q^H.

    Returns
    -------
    LQ

    Raises
    ------
    numpy.linalg.LinAlgError, OverflowError, ValueError, TypeError
        As in `qr`, of the columns of a^H.

    Notes
    -----
    l and q are the adjoints of r and q of a^H, with the bounds of these (docs/linalg.md, L4 and L8).

    Examples
    --------
    >>> import numpy as np, ozaki.linalg
    >>> l, q, error_bound, *_ = ozaki.linalg.lq(np.array([[3.0, 4.0, 0.0], [1.0, 1.0, 2.0]]))
    >>> abs(l).round(6), error_bound < 1e-15
    (array([[5.      , 0.      ],
           [1.4     , 2.009975]]), True)
    """
    if mode not in ("reduced", "complete"):
        raise ValueError(f"mode: {mode!r}; expected 'reduced' or 'complete'")
    (a,), formats = matrices(a=a)
    check_matrix("a", a)
    target = factor_target(accuracy, dtype, formats)

    def one(each: Any) -> LQ:
        return _of_one(each, mode, target)

    wide = mode == "complete" and a.shape[-2] < a.shape[-1]
    if not wide and takes(target, a):
        (q, r), bounds, met, steps = in_parts(qr_at_once, adjoint(a), target)
        found = with_the_rest(_found(q, r, bounds, steps), met, one, a)
    else:
        found = of_each(one, a)
    return reached(found, found.l.shape, found.q, "rowwise")


def _of_one(a: Any, mode: Literal["reduced", "complete"], target: Target) -> LQ:
    """The factors of one matrix."""
    try:
        q, r, bounds, steps = orthonormal(adjoint(a), target, complete=mode == "complete")
    except np.linalg.LinAlgError as error:  # whose message speaks of the columns of the adjoint
        raise np.linalg.LinAlgError(str(error).replace("column", "row")) from None
    return _found(q, r, bounds, steps)


def _found(q: Any, r: Any, bounds: Any, steps: int) -> LQ:
    """The factors of one matrix, or of a stack, from those of its adjoint."""
    return LQ(adjoint(r).copy(), adjoint(q).copy(), largest_of_each(bounds), bounds, steps)
