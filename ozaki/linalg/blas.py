"""Products with matrices of which one triangle is read, as BLAS has them: names and arguments of `scipy.linalg.blas`.

They are products of this library, with all options of `ozaki.matmul`; a report states their error bound.

    >>> import numpy as np, ozaki
    >>> a = np.array([[1.0, np.nan], [2.0, 3.0]])
    >>> ozaki.linalg.trmm(1.0, a, np.eye(2), lower=1, accuracy="exact")
    array([[1., 0.],
           [2., 3.]])
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, Unpack

import numpy as np

from ozaki.backends import backend_of
from ozaki.call.halves import half_asked
from ozaki.call.operands import as_array, holds_complex
from ozaki.driver.watching import named
from ozaki.functions.products import gemm
from ozaki.interchange.calls import any_arrays
from ozaki.linalg.common.transposition import Transposition
from ozaki.linalg.common.triangles import Diagonal, mirrored, read, with_ones
from ozaki.process.environment import default_environment
from ozaki.records.options import Options, ProductOptions, takes
from ozaki.records.report import AskedReport

__all__ = ["hemm", "herk", "symm", "syrk", "trmm"]

Flag = Literal[0, 1]


@any_arrays("a", "b")
@default_environment
@np.errstate(all="ignore")
@named("trmm")
@takes(ProductOptions)
def trmm(
    alpha: complex,
    a: Any,
    b: Any,
    side: Flag = 0,
    lower: Flag = 0,
    trans_a: Transposition = 0,
    diag: Flag = 0,
    *,
    return_report: AskedReport = False,
    **options: Unpack[ProductOptions],
) -> Any:
    """Multiply by a triangular matrix: alpha op(a) b, or alpha b op(a).

    Parameters
    ----------
    alpha : number
        As in `ozaki.gemm`.
    a : array or MPArray, shape (n, n), or a stack of such
        One triangle is read; what stands in the other, NaN too, counts as 0, and as in every product 0 times NaN or Inf
        of b is NaN.
    b : array or MPArray, shape (n, columns); with side=1 (rows, n); not modified
    side : {0, 1}, optional
        1: b op(a) in place of op(a) b.
    lower : {0, 1}, optional
        Which triangle of a is read; 0 is the upper one.
    trans_a : {0, 1, 2}, optional
        op(a) is a, its transpose (1) or its conjugate transpose (2).
    diag : {0, 1}, optional
        1: the diagonal of a counts as ones, and is not read.
    return_report, **options
        As for `ozaki.gemm`.

    Returns
    -------
    array or MPArray, of the shape of b; with a report also the Report

    Raises
    ------
    ValueError, TypeError, NotImplementedError, OverflowError
        As in `ozaki.gemm`.

    Examples
    --------
    >>> import numpy as np, ozaki
    >>> a, b = np.array([[2.0, 1e-20], [np.nan, 3.0]]), np.array([[1.0], [1.0]])
    >>> ozaki.linalg.trmm(1.0, a, b, accuracy="exact", dtype="mp")[0] - 2
    mparray([1.0e-20], bits=...)
    """
    _check_options("trmm", options)
    _check("lower", lower)
    _check("diag", diag)
    _check("trans_a", trans_a, 2)
    triangle = _triangle("a", a, lower, "ones" if diag else "read")
    triangle = with_ones(triangle) if diag else triangle
    return _times(alpha, triangle, b, 0, None, side, trans_a, return_report, options)


@any_arrays("a", "b", "c")
@default_environment
@np.errstate(all="ignore")
@named("symm")
@takes(ProductOptions)
def symm(
    alpha: complex,
    a: Any,
    b: Any,
    beta: complex = 0.0,
    c: Any = None,
    side: Flag = 0,
    lower: Flag = 0,
    *,
    return_report: AskedReport = False,
    **options: Unpack[ProductOptions],
) -> Any:
    """Multiply by a symmetric matrix: alpha a b + beta c, or alpha b a + beta c.

    Parameters
    ----------
    alpha, beta : number
        As in `ozaki.gemm`.
    a : array or MPArray, shape (n, n), or a stack of such
        One triangle is read, and stands for the other.
    b : array or MPArray, shape (n, columns); with side=1 (rows, n)
    c : array or MPArray, of the shape of the result, optional
        None counts as zeros. Not modified.
    side : {0, 1}, optional
        1: b a in place of a b.
    lower : {0, 1}, optional
        Which triangle of a is read; 0 is the upper one.
    return_report, **options
        As for `ozaki.gemm`.

    Returns
    -------
    array or MPArray, of the shape of b; with a report also the Report

    Raises
    ------
    ValueError, TypeError, NotImplementedError, OverflowError
        As in `ozaki.gemm`.

    Examples
    --------
    >>> import numpy as np, ozaki
    >>> a = np.array([[1.0, np.nan], [2.0, 3.0]])
    >>> ozaki.linalg.symm(1.0, a, np.eye(2), lower=1, accuracy="exact")
    array([[1., 2.],
           [2., 3.]])
    """
    _check_options("symm", options)
    return _symmetric_times(alpha, a, b, beta, c, side, lower, False, return_report, options)


@any_arrays("a", "b", "c")
@default_environment
@np.errstate(all="ignore")
@named("hemm")
@takes(ProductOptions)
def hemm(
    alpha: complex,
    a: Any,
    b: Any,
    beta: complex = 0.0,
    c: Any = None,
    side: Flag = 0,
    lower: Flag = 0,
    *,
    return_report: AskedReport = False,
    **options: Unpack[ProductOptions],
) -> Any:
    """Multiply by a Hermitian matrix, as `symm`: the other triangle of a has the conjugates of the one that is read.

    Imaginary parts on the diagonal of a are not read. A real matrix is Hermitian if it is symmetric.

    Parameters
    ----------
    alpha, a, b, beta, c, side, lower, return_report, **options
        As for `symm`.

    Returns
    -------
    array or MPArray, of the shape of b; with a report also the Report

    Raises
    ------
    ValueError, TypeError, NotImplementedError, OverflowError
        As in `ozaki.gemm`.

    Examples
    --------
    >>> import numpy as np, ozaki
    >>> a = np.array([[1.0, 0.0], [2.0 + 1.0j, 3.0]])
    >>> ozaki.linalg.hemm(1.0, a, np.eye(2), lower=1, accuracy="exact")
    array([[1.+0.j, 2.-1.j],
           [2.+1.j, 3.+0.j]])
    """
    _check_options("hemm", options)
    return _symmetric_times(alpha, a, b, beta, c, side, lower, True, return_report, options)


@any_arrays("a", "c")
@default_environment
@np.errstate(all="ignore")
@named("syrk")
@takes(ProductOptions)
def syrk(
    alpha: complex,
    a: Any,
    beta: complex = 0.0,
    c: Any = None,
    trans: Transposition = 0,
    lower: Flag = 0,
    *,
    return_report: AskedReport = False,
    **options: Unpack[ProductOptions],
) -> Any:
    """Multiply a matrix by its own transpose: alpha a a^T + beta c, or alpha a^T a + beta c.

    By residues one triangle is multiplied, unless something is added.

    Parameters
    ----------
    alpha, beta : number
        As in `ozaki.gemm`.
    a : array or MPArray, shape (n, k), with trans=1 (k, n), or a stack of such
    c : array or MPArray, shape (n, n), optional
        A symmetric matrix, of which one triangle is read. None counts as zeros. Not modified.
    trans : {0, 1, 2}, optional
        1: a^T a in place of a a^T; 2 is the same for a real a.
    lower : {0, 1}, optional
        Which triangle of c is read; 0 is the upper one.
    return_report, **options
        As for `ozaki.gemm`.

    Returns
    -------
    array or MPArray, shape (n, n)
        Both triangles, where BLAS writes one, and each has the bits of the other; with a report also the Report.

    Raises
    ------
    ValueError, TypeError, NotImplementedError, OverflowError
        As in `ozaki.gemm`; for trans=2 and a complex a, as in BLAS: that is `herk`.

    Examples
    --------
    >>> import numpy as np, ozaki
    >>> ozaki.linalg.syrk(1.0, np.array([[1.0, 2.0], [3.0, 4.0]]), accuracy="exact")
    array([[ 5., 11.],
           [11., 25.]])
    """
    _check_options("syrk", options)
    return _squared(alpha, a, beta, c, trans, lower, False, return_report, options)


@any_arrays("a", "c")
@default_environment
@np.errstate(all="ignore")
@named("herk")
@takes(ProductOptions)
def herk(
    alpha: float,
    a: Any,
    beta: float = 0.0,
    c: Any = None,
    trans: Transposition = 0,
    lower: Flag = 0,
    *,
    return_report: AskedReport = False,
    **options: Unpack[ProductOptions],
) -> Any:
    """Multiply a matrix by its own conjugate transpose: alpha a a^H + beta c, or alpha a^H a + beta c.

    Parameters
    ----------
    alpha, beta : real number
    a : array or MPArray, shape (n, k), with trans=2 (k, n), or a stack of such
    c : array or MPArray, shape (n, n), optional
        A Hermitian matrix, of which one triangle is read, and of its diagonal the real part.
    trans : {0, 1, 2}, optional
        2: a^H a in place of a a^H; 1 is the same for a real a.
    lower, return_report, **options
        As for `syrk`.

    Returns
    -------
    array or MPArray, shape (n, n)
        Both triangles, where BLAS writes one, each with the conjugates of the other, and a real diagonal; with a report
        also the Report.

    Raises
    ------
    ValueError, TypeError, NotImplementedError, OverflowError
        As in `ozaki.gemm`; for trans=1 and a complex a, as in BLAS: that is `syrk`.

    Examples
    --------
    >>> import numpy as np, ozaki
    >>> ozaki.linalg.herk(1.0, np.array([[1.0, 2.0j], [3.0, 4.0]]), accuracy="exact")
    array([[ 5.+0.j,  3.+8.j],
           [ 3.-8.j, 25.+0.j]])
    """
    _check_options("herk", options)
    for name, x in (("alpha", alpha), ("beta", beta)):
        if getattr(x, "imag", 0) != 0:
            raise ValueError(f"{name}: {x!r}; expected a real number, or the result is not Hermitian")
    return _squared(alpha, a, beta, c, trans, lower, True, return_report, options)


def _check_options(name: str, options: ProductOptions) -> None:
    """Refuse what is no option, and a result of 16 bits, in a function whose 16-bit operands become float32.

    Raises
    ------
    TypeError, ValueError
    """
    half, by = half_asked(Options.of(name, options))
    if half is not None:
        raise ValueError(
            f"{by} is of ozaki.matmul and gemm; to {name} operands of 16 bits are the float32 numbers that they are, "
            "so omit it"
        )


def _check(name: str, x: Any, most: int = 1) -> None:
    """Refuse a number that is not from 0 to `most`.

    Raises
    ------
    ValueError
    """
    if not isinstance(x, int | np.integer | np.bool) or not 0 <= x <= most:
        raise ValueError(f"{name}: {x!r}; expected {'0 or 1' if most == 1 else '0, 1 or 2'}")


def _triangle(name: str, x: Any, lower: Flag, diagonal: Diagonal) -> Any:
    """A triangle of a square operand, with zeros in place of what is not read.

    Raises
    ------
    ValueError, TypeError
    """
    found = read(name, [*x] if isinstance(x, tuple) else x, bool(lower), diagonal)
    if found.ndim < 2 or found.shape[-1] != found.shape[-2]:
        raise ValueError(f"{name}: shape {tuple(found.shape)}; expected a square matrix, as (3, 3)")
    return found


def _symmetric_times(
    alpha: complex,
    a: Any,
    b: Any,
    beta: complex,
    c: Any,
    side: Flag,
    lower: Flag,
    conjugate: bool,
    return_report: AskedReport,
    options: ProductOptions,
) -> Any:
    """Alpha a b + beta c, or alpha b a + beta c, of the symmetric or Hermitian matrix with a triangle of a."""
    _check("lower", lower)
    triangle = _triangle("a", a, lower, "real" if conjugate else "read")
    return _times(alpha, mirrored(triangle, bool(lower), conjugate), b, beta, c, side, 0, return_report, options)


_SWAPPED = {"a": "b", "b": "a"}
"""What these functions call the arguments of `gemm` where the square matrix is the right one."""


def _times(
    alpha: complex,
    a: Any,
    b: Any,
    beta: complex,
    c: Any,
    side: Flag,
    trans_a: Transposition,
    return_report: AskedReport,
    options: ProductOptions,
) -> Any:
    """Alpha op(a) b + beta c, or alpha b op(a) + beta c."""
    _check("side", side)
    b = as_array("b", b, backend_of(("a", a), ("b", b)))
    n = a.shape[-1]
    op: Any = ("N", "T", "C")[trans_a]
    if b.ndim < 2 or b.shape[-1 if side else -2] != n:
        raise ValueError(f"b: shape {tuple(b.shape)} does not fit a of shape {tuple(a.shape)}; expected "
                         f"{f'(rows, {n})' if side else f'({n}, columns)'}")  # fmt: skip
    beta = 0 if c is None else beta
    if not side:
        return gemm(alpha, a, b, beta, c, trans_a=op, return_report=return_report, **options)
    try:
        return gemm(alpha, b, a, beta, c, trans_b=op, return_report=return_report, **options)
    except (TypeError, ValueError) as error:
        name, colon, rest = str(error).partition(": ")
        if colon and name in _SWAPPED:
            raise type(error)(f"{_SWAPPED[name]}: {rest}") from None
        raise


def _squared(
    alpha: complex,
    a: Any,
    beta: complex,
    c: Any,
    trans: Transposition,
    lower: Flag,
    conjugate: bool,
    return_report: AskedReport,
    options: ProductOptions,
) -> Any:
    """Alpha times a matrix times its (conjugate) transpose, plus beta times a matrix with a triangle of c."""
    _check("lower", lower)
    _check("trans", trans, 2)
    x = as_array("a", a, backend_of(("a", a), *((("c", c),) if c is not None else ())))
    if x.ndim < 2:
        raise ValueError(f"a: shape {tuple(x.shape)}; expected a matrix")
    if holds_complex(x) and trans == (1 if conjugate else 2):
        raise ValueError(f"trans: {trans} of a complex matrix; expected 0 or {2 if conjugate else 1}")
    beta = 0 if c is None else beta
    if beta != 0:
        c = mirrored(_triangle("c", c, lower, "real" if conjugate else "read"), bool(lower), conjugate)
    transposed: Any = {("trans_a" if trans else "trans_b"): "C" if conjugate else "T"}
    found = gemm(alpha, x, x, beta, c, **transposed, return_report=return_report, **options)
    if not return_report:
        return mirrored(found, bool(lower), conjugate)
    result, report = found
    if report.bounds is not None:
        report = replace(report, bounds=mirrored(report.bounds, bool(lower), conjugate=False))
    return mirrored(result, bool(lower), conjugate), report
