"""Residuals of linear systems, with all their digits."""

from __future__ import annotations

from typing import Any

import numpy as np

from ozaki.backends import backend_of
from ozaki.call.format_checks import check_finite
from ozaki.call.operands import are_integers, as_array, dtype_of, holds_complex
from ozaki.driver.watching import named
from ozaki.functions.products import gemm
from ozaki.interchange.calls import any_arrays
from ozaki.multiprecision.numbers import Numbers
from ozaki.multiprecision.objects import mparray
from ozaki.process.environment import default_environment
from ozaki.records.accuracy import Accuracy
from ozaki.records.formats import (
    COMPLEX,
    MULTIPRECISION,
    QUAD,
    SIGNIFICAND_BITS,
    format_named,
    is_multiprecision,
    precision_of,
)

_NAMES = {"b": "x", "c": "b"}
"""What `residual` calls the arguments of `gemm`."""


@any_arrays("a", "x", "b")
@default_environment
@named("residual")
def residual(a: Any, x: Any, b: Any, *, accuracy: Accuracy | str | float = "exact", dtype: str | None = None) -> Any:
    """Compute b - a x, rounded once, so that a residual which cancels keeps its digits.

    It is `ozaki.gemm(-1, a, x, 1, b)`.

    Parameters
    ----------
    a : array, shape (..., m, k), real or complex floats or integers, NumPy or CuPy, or an `MPArray`
    x : array, shape (..., k, n) or (k,), as `a`, or a tuple of arrays
        A tuple of float64 or complex128 arrays is an unevaluated sum, high word first.
    b : array of the shape of a x, as `a`
    accuracy : Accuracy, str, int or float
        That of a x, as for `matmul`. "exact": the residual is the exact one, correctly rounded.
    dtype : str, optional
        "float64", "float32", "complex128", "complex64", "mp" or, say, "mp106". Default: float64; complex128 if `a` or
        `x` is complex; "mp" if `b` is an `MPArray`, then with every bit of an exact residual.

    Returns
    -------
    array or MPArray, of the shape of `b`

    Raises
    ------
    ValueError, TypeError, NotImplementedError
        As `gemm` and `mparray`; if the shape of `b` is not that of a x; and, on NumPy, for NaN and Inf.

    Notes
    -----
    With tol the tolerance of `accuracy`, 0 for "exact", R the exact residual and u the unit roundoff of the result:
    abs(r - R)_ij <= tol (abs(a) abs(x))_ij (1 + u) + u abs(R_ij), unless r over- or underflows. With dtype "mp" and an
    accuracy that is not exact, abs(r - R)_ij <= tol (abs(a) abs(x) + abs(b))_ij.

    Examples
    --------
    >>> import numpy as np, ozaki
    >>> a, x = np.array([[1.0, 1e-20], [0.1, 3.0]]), np.array([1.0, 1.0])
    >>> b = a @ x
    >>> b - a @ x, ozaki.residual(a, x, b)
    (array([0., 0.]), array([-1.00000000e-20,  8.32667268e-17]))
    """
    factor = mparray(x) if isinstance(x, tuple) else x
    backend = backend_of(("a", a), ("x", factor), ("b", b))
    a, factor, b = (as_array(name, each, backend) for name, each in (("a", a), ("x", factor), ("b", b)))
    usual = "complex128" if holds_complex(a) or holds_complex(factor) else "float64"
    wanted = format_named(dtype) or (MULTIPRECISION if isinstance(b, Numbers) else usual)
    if wanted not in (*SIGNIFICAND_BITS, *COMPLEX, QUAD) and not is_multiprecision(wanted):
        raise TypeError(f"dtype: {dtype!r}; expected 'float32', 'float64', 'complex64', 'complex128' or 'mp'")
    for name, each in (("a", a), ("x", factor), ("b", b)):
        if not are_integers(each):
            dtype_of(name, each)  # raises
        if isinstance(each, np.ndarray) and each.dtype.kind in "fc":
            check_finite(name, each)
    Accuracy.of(accuracy, 1)  # refuses those of 16-bit products
    asked = MULTIPRECISION if is_multiprecision(wanted) else dtype if wanted == QUAD else wanted
    try:
        found = gemm(-1, a, factor, 1, b, accuracy=accuracy, dtype=asked, reproducible=True)
    except (TypeError, ValueError) as error:
        name, colon, message = str(error).partition(": ")
        if colon and name in _NAMES:
            raise type(error)(f"{_NAMES[name]}: {message}") from None
        raise
    named_bits = is_multiprecision(wanted) and wanted != MULTIPRECISION
    return found.round_to(precision_of(wanted)) if named_bits else found
