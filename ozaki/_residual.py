"""Residuals of linear systems, with all their digits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ozaki._accuracy import Accuracy
from ozaki._api import matmul
from ozaki._environment import default_environment
from ozaki._formats import MULTIPRECISION, SIGNIFICAND_BITS, format_named, is_multiprecision, precision_of
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.objects import mparray


@contextmanager
def _naming(inner: str, name: str) -> Iterator[None]:
    """Let errors about the argument `inner` of a function that `residual` calls name its own argument."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if str(error).startswith(f"{inner}: "):
            raise type(error)(f"{name}{str(error).removeprefix(inner)}") from None
        raise


@default_environment
def residual(a: Any, x: Any, b: Any, *, accuracy: Accuracy | str | float = "exact", dtype: str | None = None) -> Any:
    """Compute b - a x, rounded once, so that a residual which cancels keeps its digits.

    Parameters
    ----------
    a : array, shape (..., m, k), float32, float64 or integers, on NumPy, or an `MPArray`
    x : array, shape (..., k, n) or (k,), as `a`; or a tuple of float64 arrays, an unevaluated sum, high word first
    b : array of the shape of a x, as `a`
    accuracy : Accuracy, str, int or float
        That of a x, as for `matmul`. "exact": the residual is the exact one, correctly rounded.
    dtype : str, optional
        "float64", "float32", "mp" or, say, "mp106". Default: float64; "mp", every bit, if `b` is an `MPArray`.

    Returns
    -------
    array or MPArray, of the shape of `b`

    Raises
    ------
    ValueError, TypeError, NotImplementedError
        As `matmul` and `mparray`; and if the shape of `b` is not that of a x.

    Notes
    -----
    With tol the tolerance of `accuracy`, 0 for "exact", R the exact residual and u the unit roundoff of the result:
    abs(r - R)_ij <= tol (abs(a) abs(x))_ij (1 + u) + u abs(R_ij), unless r over- or underflows.

    Examples
    --------
    >>> import numpy as np, ozaki
    >>> a, x = np.array([[1.0, 1e-20], [0.1, 3.0]]), np.array([1.0, 1.0])
    >>> b = a @ x
    >>> b - a @ x, ozaki.residual(a, x, b)
    (array([0., 0.]), array([-1.00000000e-20,  8.32667268e-17]))
    """
    wanted = format_named(dtype) or (MULTIPRECISION if isinstance(b, MPArray) else "float64")
    if wanted not in SIGNIFICAND_BITS and not is_multiprecision(wanted):
        raise TypeError(f"dtype: {dtype!r}; expected 'float32', 'float64' or 'mp'")
    with _naming("x", "x"):
        factor = mparray(x) if isinstance(x, tuple) else x
    with _naming("b", "x"):
        product = matmul(a, factor, accuracy=accuracy, dtype="mp")
    with _naming("x", "b"):
        whole = mparray(b)
    if whole.shape != product.shape:
        raise ValueError(f"b: shape {whole.shape}; expected that of a x, {product.shape}")
    rest = whole - product
    if wanted == MULTIPRECISION:
        return rest
    return rest.round_to(precision_of(wanted)) if is_multiprecision(wanted) else rest.astype(wanted)
