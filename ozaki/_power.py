"""Powers of matrices, with all their bits."""

from __future__ import annotations

from operator import index as integer_of
from typing import Any

import numpy as np

from ozaki._api import matmul
from ozaki._environment import default_environment
from ozaki._watching import named
from ozaki.interchange.calls import any_arrays
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.numbers import moved
from ozaki.multiprecision.objects import mparray


@any_arrays("a")
@default_environment
@named("matrix_power")
def matrix_power(a: Any, n: int) -> MPArray:
    """Compute a matrix to a power, exactly, by repeated squaring.

    Parameters
    ----------
    a : MPArray, or anything else that `mparray` takes without `bits`, shape (..., m, m)
    n : int
        The power, 0 or more.

    Returns
    -------
    MPArray, of the shape of `a`

    Raises
    ------
    ValueError
        If `n` is below 0, the matrices are not square, or an entry of a product has too many bits.
    TypeError
        If `n` is no integer.

    Examples
    --------
    >>> import numpy as np, ozaki
    >>> ozaki.matrix_power(np.array([[1, 1], [1, 0]]), 100).to_fractions()[0, 1]
    Fraction(354224848179261915075, 1)
    """
    try:
        exponent = integer_of(n)
    except TypeError:
        raise TypeError(f"n: {type(n).__name__}; expected an integer, 0 or more") from None
    if exponent < 0:
        raise ValueError(f"n: {n}; expected 0 or more: inverses have no end in binary")
    square = mparray(a)
    if square.ndim < 2 or square.shape[-2] != square.shape[-1]:
        raise ValueError(f"a: shape {square.shape}; expected square matrices, as (3, 3)")
    if exponent == 0:
        one = np.eye(square.shape[-1], dtype=np.complex128 if square.is_complex else np.float64)
        return moved(mparray(np.broadcast_to(one, square.shape)), square.library)
    result: MPArray | None = None
    while True:
        if exponent % 2:
            result = square if result is None else matmul(result, square, accuracy="exact")
        exponent //= 2
        if exponent == 0:
            assert result is not None  # the highest bit of the exponent is set
            return result
        square = matmul(square, square, accuracy="exact")
